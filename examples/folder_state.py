"""A folder as one state: saved into a checkpoint and put back (lux.FolderState)."""

import tempfile
from pathlib import Path

import luxmeter as lux

folder = tempfile.TemporaryDirectory()
work = Path(folder.name)
data = work / "data"
data.mkdir()
(data / "labels.txt").write_text("cat\ndog\n")

saver = lux.Saver(work / "saves")
saver.save_state(1, data=lux.FolderState(data))

(data / "labels.txt").write_text("spoilt")
(data / "added.txt").write_text("later")

saver.resume(data=lux.FolderState(data))
print(sorted(path.name for path in data.iterdir()), (data / "labels.txt").read_text().split())
assert sorted(path.name for path in data.iterdir()) == ["labels.txt"]
assert (data / "labels.txt").read_text() == "cat\ndog\n"
