"""Parameters: declared or free, from a file, the command line and code; bounds, a grid, and a stable hash."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field

import luxmeter as lux
from luxmeter.errors import MissingNameError, UsageError


class Optim(lux.BaseParams):
    lr: float = Field(0.1, gt=0, description="learning rate")
    name: str = "SGD"


class Train(lux.Params):
    optim: Optim
    layers: list[int] = Field([64, 64])


params = Train()
params.choice("dataset", "cifar10", "svhn")
params.arange("dropout", 0.5, 0, 1)

with TemporaryDirectory() as folder:
    file = Path(folder, "base.yaml")
    file.write_text("epoch: 20\noptim:\n  lr: 1e-2\n")
    # As if started with: python train.py @base.yaml --optim.lr=0.3 --layers=[8,8] --dataset=svhn
    params.from_args([f"@{file}", "--optim.lr=0.3", "--layers=[8,8]", "--dataset=svhn"])

print(params)
assert (params.epoch, params.optim.lr, params.layers, params.dataset) == (20, 0.3, [8, 8], "svhn")

try:
    params.from_args(["--epochs=5"])
except UsageError as error:
    print(error)
    assert "Did you mean 'epoch'?" in str(error)

try:
    print(params.optim.lrr)
except MissingNameError as error:
    print(error)

variants = list(params.grid_search({"optim.lr": [0.1, 0.3], "dropout": [0.0, 0.5]}))
assert len({variant.hash() for variant in variants}) == 4
assert params.diff(variants[0]) == {"optim.lr": (0.3, 0.1), "dropout": (0.5, 0.0)}
assert params.build_exp_name("demo", "optim.lr", "dataset") == "demo_optim.lr=0.3_dataset=svhn"

free = lux.BaseParams()  # no presets, no declared names
free.model = {"width": 8}
assert free["model.width"] == free.model.width == 8
