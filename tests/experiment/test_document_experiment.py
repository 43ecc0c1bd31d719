"""The document's chapter on experiments: its snippet with only the imports changed, and what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.store import Lab

SNIPPET = """
import time
from luxmeter import Logger,Saver,Experiment

exp = Experiment("./exp")

@exp.keycode()
def train():
    logger = Logger()
    logger.add_log_dir(exp.hold_exp_part("log",[".log"]))
    save = Saver(exp.hold_exp_part("save",[".ckpt",".pth"]))
    for i in range(10):
        for j in range(5):
            save.save_checkpoint(j, {}, {})
            time.sleep(0.2)
            logger.info(i)

exp.start_exp()
train()
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    Path("train.py").write_text(text.replace("time.sleep(0.2)", "time.sleep(0.002)"))
    return subprocess.run(
        [sys.executable, "train.py"], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("end", ["", "raise KeyError('lost')", "exp.end_exp()", "import sys; sys.exit(3)"])
def test_snippet(end: str) -> None:
    done = run(SNIPPET + end)
    state, code = {"": ("finished", 0), "r": ("failed", 1), "e": ("finished", 0), "i": ("failed", 3)}[end[:1]]
    assert done.returncode == code, done.stderr
    kept = Lab.open().find("exp")
    assert kept.state == state and ("KeyError: 'lost'" in kept.error) == end.startswith("raise")
    # 记录本次试验中的文件变动和代码快照: here, and in the folder
    changed = {(change.part, change.path, change.event) for change in kept.changed_files}
    files = {("log", "run.log", "created"), *(("save", f"{i:06}.ckpt", "created") for i in (2, 3, 4))}
    assert changed == files  # the side-cars end in .json: not among the suffixes
    assert all(change.kept for change in kept.changed_files)
    beside = json.loads(Path("exp", "luxmeter-runs", f"{kept.id}.json").read_text())
    assert beside["state"] == state and len(beside["files"]) == 4 and "train.py" in beside["code"]["files"]
    code_kept = kept.snapshot
    assert code_kept is not None and list(code_kept.files) == ["train.py"]
    assert kept.blob(code_kept.files["train.py"]).decode() == Path("train.py").read_text()
    (key,) = code_kept.keycode
    assert (key["name"], key["kind"], key["file"], key["line"]) == ("train", "function", "train.py", 7)
    assert kept.blob(key["sha256"]).decode().startswith("@exp.keycode()\ndef train():")
    assert "INFO" in kept.log_text or "4\n" in kept.log_text


def test_keycode_of_the_main_module() -> None:
    text = """
import sys
from luxmeter import Experiment
exp = Experiment("main")
exp.keycode(sys.modules["__main__"])
@exp.keycode
class Model: pass
with exp: pass
"""
    assert run(text).returncode == 0
    code = Lab.open().find("main").snapshot
    assert code is not None
    assert [(key["name"], key["kind"]) for key in code.keycode] == [
        ("__main__", "module"),
        ("Model", "class"),
    ]


def test_the_same_code_is_kept_once() -> None:
    for _ in range(2):
        assert run("from luxmeter import Experiment\nwith Experiment('./exp'): pass\n").returncode == 0
    lab = Lab.open()
    shas = {lab.find(f"exp~{i}").snapshot.files["train.py"] for i in (0, 1)}  # type: ignore[union-attr]
    assert len(shas) == 1 and len(list(lab.pool.folder.rglob(shas.pop()))) == 1
