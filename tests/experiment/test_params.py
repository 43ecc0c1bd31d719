"""Free parameters: names, levels, bounds, the lock, copies and differences."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from luxmeter import BaseParams, Params
from luxmeter.errors import LuxmeterError, MissingNameError, UsageError
from luxmeter.experiment.params.params import ABSENT

# torch wraps `step` of an optimizer class when the first one is made; do that before any test looks.
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)
torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=1)


def test_attribute_item_and_dotted_name_are_the_same() -> None:
    p = BaseParams()
    p.optim = {"lr": 0.1, "sched": {"kind": "cos"}}
    p["optim.momentum"] = 0.9
    p["data.batch.size"] = 32
    assert p.optim.lr == p["optim.lr"] == p["optim"]["lr"] == 0.1
    assert p.optim.sched.kind == "cos"
    assert p.optim.momentum == 0.9
    assert p.data.batch.size == 32
    assert "optim.sched.kind" in p
    assert p.contains("data.batch")
    assert "optim.lr.deeper" not in p
    assert 3 not in p
    assert p.get("optim.nope", 7) == 7
    assert dict(**p.optim.sched) == {"kind": "cos"}
    assert p.optim == {"lr": 0.1, "sched": {"kind": "cos"}, "momentum": 0.9}


def test_a_dict_whose_keys_are_no_names_stays_a_dict() -> None:
    p = BaseParams()
    p.classes = {0: "cat", 1: "dog"}
    p.layers = {"conv.weight": 3}
    assert type(p.classes) is dict
    assert type(p.layers) is dict


@pytest.mark.parametrize("locked", [False, True])
def test_reading_a_missing_name_raises_with_a_suggestion_and_creates_nothing(locked: bool) -> None:
    p = Params()
    p.optim = {"lr": 0.1}
    if locked:
        p.lock()
    before = repr(p)
    with pytest.raises(AttributeError, match=r"Did you mean 'epoch'\?"):
        _ = p.epoh
    with pytest.raises(KeyError, match=r"Did you mean 'optim.lr'\?"):
        _ = p["optim.lrr"]
    with pytest.raises(MissingNameError, match="It has lr"):
        _ = p.optim.zzz
    with pytest.raises(MissingNameError, match="It is empty"):
        _ = BaseParams().zzz
    assert not hasattr(p, "epoh")
    assert getattr(p, "epoh", 3) == 3
    assert p.get("optm.lr") is None
    assert repr(p) == before


def test_a_failed_set_creates_no_level() -> None:
    p = BaseParams(a=1).lock()
    with pytest.raises(UsageError):
        p["optim.lr"] = 0.1
    assert "optim" not in p
    p.unlock()
    with pytest.raises(UsageError, match="a is 1, so nothing can be set below it") as caught:
        p["a.b"] = 2
    assert caught.value.slug == "not-nested"
    assert p.to_dict() == {"a": 1}


def test_parameters_cannot_hold_themselves() -> None:
    p, q = BaseParams(a=1), BaseParams(b=2)
    with pytest.raises(UsageError) as caught:
        p.me = p
    assert caught.value.slug == "params-loop"
    p.inner = q
    with pytest.raises(UsageError):
        q.outer = p
    q.outer = p.copy()
    assert p.inner.outer.inner == {"b": 2}


@pytest.mark.parametrize("name", ["", ".", "a..b", ".a", 3, None])
def test_what_cannot_be_a_name(name: object) -> None:
    p = BaseParams()
    with pytest.raises(UsageError):
        p[name] = 1  # type: ignore[index]
    with pytest.raises(UsageError):
        _ = p[name]  # type: ignore[index]
    assert not len(p)


def test_lock_keeps_the_names_and_lets_values_change() -> None:
    p = Params(optim={"lr": 0.1}).lock()
    p.epoch = 3
    p.optim.lr = 0.2
    with pytest.raises(UsageError, match=r"Did you mean 'epoch'\?"):
        p.epochs = 4
    with pytest.raises(UsageError):
        p.optim.momentum = 0.9
    with pytest.raises(UsageError):
        del p.epoch
    assert p["optim.lr"] == 0.2
    p.unlock()
    p.new = 1
    del p["optim.lr"]
    assert p.optim == {}
    assert p.new == 1


def test_replacing_a_level_of_locked_parameters_cannot_smuggle_in_an_unlocked_one() -> None:
    p = BaseParams(optim={"lr": 0.1}).lock()
    p.optim = {"lr": 0.3}
    with pytest.raises(UsageError):
        p.optim.momentum = 1


def test_choice_is_checked_on_every_set() -> None:
    p = BaseParams()
    assert p.choice("dataset", "cifar10", "cifar100", "svhn") == "cifar10"
    assert p.dataset == "cifar10"
    p.dataset = "svhn"
    with pytest.raises(UsageError, match=r"Did you mean 'cifar100'\?"):
        p.dataset = "cifar1000"
    with pytest.raises(UsageError):
        p["dataset"] = 3
    with pytest.raises(UsageError):
        p.update(dataset="x")
    with pytest.raises(UsageError):
        p.choice("empty")
    assert p.dataset == "svhn"


def test_arange_is_checked_on_every_set() -> None:
    p = Params()
    p.arange("epoch", 50, 1, 100)
    p.arange("optim.lr", 0.1, 0)
    assert p.epoch == 50
    p.epoch = 100
    for wrong in (0, 101):
        with pytest.raises(UsageError, match="from 1 to 100"):
            p.epoch = wrong
    for bad in (-0.1, float("nan"), "fast", None, torch.ones(2)):
        with pytest.raises(UsageError):
            p.optim.lr = bad
    with pytest.raises(UsageError):
        p.arange("wrong", 5, 0, 1)
    assert "wrong" not in p


def test_bounds_survive_copies_pickles_and_a_replaced_level() -> None:
    p = BaseParams()
    p.choice("net.name", "a", "b")
    p.arange("lr", 0.1, 0, 1)
    twins = [
        p.copy(),
        copy.copy(p),
        copy.deepcopy(p),
        pickle.loads(pickle.dumps(p)),
        next(p.grid_search("lr", [0.5])),
    ]
    for twin in twins:
        with pytest.raises(UsageError):
            twin.lr = 2
        with pytest.raises(UsageError):
            twin.net.name = "c"
    with pytest.raises(UsageError):
        p.net = {"name": "c"}
    p.net = {"depth": 3}
    with pytest.raises(UsageError):
        p.net.name = "c"


def test_a_rule_of_ones_own() -> None:
    p = BaseParams()
    p.lambda_bound("size", 4, lambda x: x % 2 == 0)
    with pytest.raises(UsageError):
        p.size = 5
    p.size = 6
    assert p.size == 6


def test_default_sets_only_what_is_absent() -> None:
    p = BaseParams(lr=0.5)
    p.lr = p.default(0.1)
    p.wd = p.default(0.1)
    p["optim.name"] = p.default("sgd")
    assert p == {"lr": 0.5, "wd": 0.1, "optim": {"name": "sgd"}}


def test_update_merges_levels() -> None:
    p = BaseParams(optim={"lr": 0.1, "wd": 0.0})
    p.update({"optim": {"lr": 0.2}, "optim.extra": 1}, seed=3)
    assert p == {"optim": {"lr": 0.2, "wd": 0.0, "extra": 1}, "seed": 3}


def test_names_that_parameters_need_themselves() -> None:
    p = BaseParams()
    with pytest.raises(UsageError) as caught:
        p.copy = 3  # type: ignore[method-assign,assignment]
    assert caught.value.slug == "reserved-name"
    p["copy"] = 3
    assert p["copy"] == 3
    assert p.copy() == {"copy": 3}
    with pytest.raises(UsageError):

        class Wrong(BaseParams):
            hash: int = 3  # type: ignore[assignment]


def test_private_names_are_attributes_not_parameters() -> None:
    p = BaseParams()
    p._cache = 3
    assert p._cache == 3
    assert len(p) == 0
    del p._cache
    with pytest.raises(AttributeError):
        _ = p._cache


def test_a_copy_is_independent_and_not_locked() -> None:
    p = Params(optim={"betas": [0.9, 0.99]}).lock()
    twin = p.copy()
    twin.optim.betas.append(1)
    twin.new = 1
    assert p.optim.betas == [0.9, 0.99]
    assert "new" not in p
    with pytest.raises(UsageError):
        p.new = 1


def test_diff() -> None:
    a = BaseParams(lr=0.1, optim={"wd": 0, "eps": 1}, w=torch.ones(2))
    b = BaseParams(lr=0.2, optim={"wd": 0}, w=torch.ones(2), seed=1)
    assert a.diff(b) == {"lr": (0.1, 0.2), "optim.eps": (1, ABSENT), "seed": (ABSENT, 1)}
    assert a.diff(a.copy()) == {}
    assert a.diff({"lr": 0.1, "optim": {"wd": 0, "eps": 1}, "w": torch.ones(2)}) == {}
    assert "<absent>" in repr(a.diff(b))


def test_equality_looks_into_arrays() -> None:
    assert BaseParams(w=torch.ones(3)) == BaseParams(w=torch.ones(3))
    assert BaseParams(w=torch.ones(3)) != BaseParams(w=torch.zeros(3))
    assert BaseParams() != 3
    with pytest.raises(TypeError):
        hash(BaseParams())


def test_iterating_and_listing() -> None:
    p = BaseParams(b=1, a={"x": 2, "empty": {}})
    assert list(p) == list(p.keys()) == ["b", "a"]
    assert dict(p.items())["b"] == 1
    assert p.flat() == {"b": 1, "a.x": 2, "a.empty": {}}
    assert "b" in dir(p)
    assert repr(p) == "BaseParams[('b', 1),\n ('a', {'x': 2, 'empty': {}})]"
    assert repr(BaseParams()) == "BaseParams[]"


def test_experiment_name() -> None:
    p = Params(lr=0.01, data="a/b")
    with pytest.raises(LuxmeterError):
        p.get_exp_name()
    assert p.build_exp_name("mytrainer", "lr") == "mytrainer_lr=0.01"
    assert p.get_exp_name() == "mytrainer_lr=0.01"
    assert p.build_exp_name("x", "data", sep=".") == "x.data=a-b"
    with pytest.raises(MissingNameError):
        p.build_exp_name("x", "lrr")


def test_optimizer_from_parameters() -> None:
    p = Params()
    p.optim = p.create_optim("SGD", lr=0.1, momentum=0.9)
    p.from_args(["--optim.lr=0.5"])
    optimizer = p.optim.build(torch.nn.Linear(2, 2).parameters())
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.param_groups[0]["lr"] == 0.5
    p.optim.name = "Adan"
    with pytest.raises(UsageError, match="Did you mean"):
        p.optim.build([torch.zeros(1, requires_grad=True)])
    p.optim.name = "Adam"
    with pytest.raises(UsageError, match="momentum"):
        p.optim.build([torch.zeros(1, requires_grad=True)])
