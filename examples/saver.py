"""Keep the best checkpoints of a training, written in the background (lux.Saver)."""

import tempfile
from pathlib import Path

import torch

import luxmeter as lux

model = torch.nn.Linear(4, 2)
folder = tempfile.TemporaryDirectory()
saver = lux.Saver(folder.name, max_to_keep=2, metric="loss", mode="min")

for epoch, loss in enumerate([0.9, 0.4, 0.6, 0.3, 0.5]):
    # Returns as soon as the state is copied: the weights may change right away.
    saver.save_checkpoint(epoch, {"model": model.state_dict(), "epoch": epoch}, {"loss": loss})
    torch.nn.init.normal_(model.weight)

print([Path(path).name for path in saver.find_checkpoints()])  # waits for what is still being written
state, info = saver.load_best_checkpoint()
print("best:", state["epoch"], info)
assert state["epoch"] == 3 and info == {"loss": 0.3}
assert saver.load_latest_checkpoint().checkpoint["epoch"] == 4  # the newest always stays

# A damaged file is noticed, and the one before it is loaded, with a warning that says so.
latest = Path(saver.find_checkpoints()[-1])
latest.write_bytes(latest.read_bytes()[:-10])
assert saver.load_latest_checkpoint().checkpoint["epoch"] == 3
