"""Samples, transforms and samplers of a task, on the loader that keeps its position; its optimizers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.train import SAMPLERS, TRANSFORMS, SampleDataset
from luxmeter.train.registries import DATASETS, config_key_of
from luxmeter.train.task.dataset import make_loader
from luxmeter.train.task.optimizers import make_optimizer, make_scheduler, param_groups


class EveryThird(torch.utils.data.Sampler[int]):
    """A sampler of one's own, which draws from Python's random numbers."""

    def __init__(self, data_source: Any, offset: int = 0) -> None:
        self.indices = list(range(offset, len(data_source), 3))

    def __iter__(self) -> Iterator[int]:
        order = list(self.indices)
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return len(self.indices)


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for registry in (DATASETS, SAMPLERS, TRANSFORMS):
        monkeypatch.setattr(registry, "_things", dict(registry._things))
    DATASETS.register("numbers", lambda count: [{"x": float(n), "n": n} for n in range(count)])
    TRANSFORMS.register("add", lambda value, amount: value + amount)
    TRANSFORMS.register("jitter", lambda value: value + random.random())
    SAMPLERS.register(EveryThird)
    yield


CFG: dict[str, Any] = {
    "samples": {"type": "numbers", "count": 12},
    "transforms": [
        {"type": "add", "amount": 0.5, "on": "x"},
        lambda sample: {**sample, "twice": 2 * sample["n"]},
    ],
    "batch_size": 4,
}


def test_samples_and_transforms() -> None:
    loader = make_loader(CFG)
    assert isinstance(loader, lux.DataLoader) and isinstance(loader.dataset, SampleDataset)
    first = next(iter(loader))
    assert first["x"].tolist() == [0.5, 1.5, 2.5, 3.5] and first["twice"].tolist() == [0, 2, 4, 6]
    assert len(loader) == 3
    pairs = make_loader(
        {"samples": [(1.0, 2.0)], "transforms": [{"type": "add", "amount": 1, "on": 1}]}, key="data.x"
    )
    assert [one.item() for one in next(iter(pairs))] == [1.0, 3.0]


def test_datasets_and_samplers_of_torch() -> None:
    cfg = {
        "dataset": {"type": "TensorDataset", "tensors": [torch.arange(6)]},
        "sampler": {"type": "SubsetRandomSampler", "indices": [1, 3]},
        "batch_size": 2,
    }
    assert sorted(next(iter(make_loader(cfg)))[0].tolist()) == [1, 3]
    batches = {
        **CFG,
        "batch_sampler": {"type": "BatchSampler", "sampler": range(4), "batch_size": 3, "drop_last": True},
    }
    del batches["batch_size"]
    assert [one["n"].tolist() for one in make_loader(batches)] == [[0, 1, 2]]


DRAWN = {"type": "RandomSampler", "replacement": True, "num_samples": 15}
WEIGHTED = {"type": "WeightedRandomSampler", "weights": [1.0, 2.0, 3.0] * 4, "num_samples": 12}
OWN = {"type": "EveryThird", "offset": 1}


@pytest.mark.parametrize(
    ("sampler", "workers"),
    [(DRAWN, 0), (WEIGHTED, 0), (OWN, 0), (OWN, 1), (None, 0)],
    ids=["drawn", "weighted", "own", "own, a worker", "shuffled"],
)
def test_the_position_holds_with_any_sampler(sampler: Any, workers: int) -> None:
    cfg = {
        "samples": {"type": "numbers", "count": 12},
        "transforms": [{"type": "jitter", "on": "x"}],
        "sampler": sampler,
        "batch_size": 2,
        "num_workers": workers,
        "seed": 7,
        **({} if sampler else {"shuffle": True}),
    }

    def read(loader: Any, batches: int) -> list[Any]:
        read_before: list[Any] = []
        while True:
            for batch in loader:
                read_before.append(batch["x"].tolist())
                if len(read_before) == batches:
                    return read_before

    whole = read(make_loader(cfg), 7)  # into the second epoch of the shortest
    assert len({number for batch in whole for number in batch}) == len([n for batch in whole for n in batch])
    for stop in (3,) if workers else (1, 3):
        first = make_loader(cfg)
        before = read(first, stop)
        second = make_loader(cfg)
        second.load_state_dict(first.state_dict())
        random.seed(stop)
        assert before + read(second, 7 - stop) == whole


@pytest.mark.parametrize(
    ("cfg", "text", "key"),
    [
        (CFG | {"batchsize": 3}, r"data.train: data takes no 'batchsize'. Did you mean 'batch_size'", ""),
        (CFG | {"dataset": {"type": "TensorDataset"}}, "data.train: It has samples, transforms, dataset", ""),
        ({"batch_size": 3}, "data.train: It has no data", ""),
        (CFG | {"samples": {"type": "numbrs"}}, "data.train.samples: There is no dataset", "data.train.samples"),
        (CFG | {"samples": 3}, "int is no list of samples", ""),
        (CFG | {"transforms": [{"type": "ad"}]}, "data.train.transforms.0: There is no transform", "data.train.transforms.0"),
        (CFG | {"transforms": [{"type": "add", "amout": 1}]}, "add takes no argument 'amout'. Did you mean 'amount'", "data.train.transforms.0.amout"),
        (CFG | {"transforms": [3]}, "data.train.transforms.0: 3 cannot be called", ""),
        (CFG | {"sampler": {"type": "RandomSampler", "replacment": 1}}, "Did you mean 'replacement'", "data.train.sampler.replacment"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit(cfg: Any, text: str, key: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        make_loader(cfg, key="data.train")
    assert config_key_of(caught.value) == key


def test_a_transform_on_what_is_not_there() -> None:
    with pytest.raises(KeyError) as caught:
        next(iter(make_loader(CFG | {"transforms": [{"type": "add", "amount": 1, "on": "y"}]})))
    assert "on 'y' of a sample, which has ['x', 'n']" in caught.value.__notes__[0]


# -- optimizers --------------------------------------------------------------------------------------------------------


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop", "LBFGS", "Adafactor", "NAdam"])
def test_optimizers_by_name(name: str) -> None:
    module = net()
    made = make_optimizer({"type": name, "lr": 0.3}, module)
    assert type(made) is getattr(torch.optim, name) and made.param_groups[0]["lr"] == 0.3
    assert [id(one) for one in made.param_groups[0]["params"]] == [id(one) for one in module.parameters()]


def test_groups_by_pattern() -> None:
    module = net()
    module[0].bias.requires_grad_(False)  # type: ignore[index, union-attr]
    cfg = {
        "type": "AdamW",
        "weight_decay": 0.1,
        "groups": [{"match": "bias$|Norm", "weight_decay": 0.0}, {"match": "^2", "lr": 1.0}],
    }
    made = make_optimizer(cfg, module)
    names = {id(one): name for name, one in module.named_parameters()}
    found = [
        ([names[id(one)] for one in group["params"]], group["weight_decay"], group["lr"])
        for group in made.param_groups
    ]
    assert found == [
        (["0.weight"], 0.1, 0.001),
        (["1.weight", "1.bias", "2.bias"], 0.0, 0.001),
        (["2.weight"], 0.1, 1.0),
    ]
    assert [group["params"] for group in param_groups(module, [{"match": "."}])] == [
        list(param_groups(module))
    ]


def test_optimizers_in_other_ways() -> None:
    module = net()
    given = torch.optim.SGD(module.parameters(), lr=0.1)
    assert make_optimizer(given, module) is given
    assert make_optimizer(partial(torch.optim.SGD, lr=0.2), module).param_groups[0]["lr"] == 0.2
    assert type(make_optimizer(torch.optim.Adam, module)) is torch.optim.Adam
    assert isinstance(
        make_scheduler({"type": "StepLR", "step_size": 3}, given), torch.optim.lr_scheduler.StepLR
    )


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        ({"type": "SGD", "momentm": 0.9}, r"optimizer: SGD takes no argument 'momentm'. Did you mean 'momentum'"),
        ({"type": "SGD", "groups": [{"match": "bais"}]}, r"optimizer.groups.0: no parameter is left that 'bais' matches. There are 0.weight"),
        ({"type": "SGD", "groups": [{"lr": 1}]}, "optimizer.groups.0 has no match"),
        ({"type": dict}, "optimizer is a dict"),
    ],
)  # fmt: skip
def test_optimizers_that_do_not_fit(cfg: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make_optimizer(cfg, net())
