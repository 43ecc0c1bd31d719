"""torch's own samples of modules and optimizers: the same bits with and without tracing, each call with its count."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from seen import Seen, bits, shallow, unchanged

from luxmeter.calls.targets.torch.names import class_name

pytest.importorskip("expecttest")
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

STEPS = 3


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def built(info: Any, most: int) -> Iterator[Any]:
    """Modules and inputs of the first samples, made anew from the same seeds."""
    torch.manual_seed(3)
    given = list(
        info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
    )
    for one in [i for i in given if i.forward_input is not None][:most]:
        torch.manual_seed(5)
        module = info.module_cls(*one.constructor_input.args, **one.constructor_input.kwargs)
        torch.manual_seed(7)
        yield module, one.forward_input


def called(module: Any, given: Any) -> Any:
    """The result, or the kind of error: some samples do not fit torch's own module at float32."""
    try:
        return module(*given.args, **given.kwargs)
    except RuntimeError as error:
        return type(error).__name__


def gradients(module: Any, result: Any) -> Any:
    first = result[0] if isinstance(result, tuple) else result
    parameters = [
        p
        for p in module.parameters()
        if p.requires_grad and not isinstance(p, torch.nn.UninitializedParameter)
    ]
    if (
        parameters
        and isinstance(first, torch.Tensor)
        and first.requires_grad
        and first.dtype.is_floating_point
    ):
        return torch.autograd.grad(first.sum(), parameters, allow_unused=True)
    return None


def check_modules(infos: list[Any], core: str, *, most: int) -> None:
    expected = {}
    for info in infos:
        for number, (module, given) in enumerate(built(info, most)):
            result = called(module, given)
            expected[info, number] = bits((result, gradients(module, result)))
    assert expected
    wrong = []
    seen = Seen(core)
    with unchanged(), seen:
        seen.recorder.pause()
        for info in infos:
            for number, (module, given) in enumerate(built(info, most)):
                before = seen.calls()
                seen.recorder.start()
                result = called(module, given)
                seen.recorder.pause()
                found = seen.calls() - before
                label = f"{info.name} sample {number}"
                if bits((result, gradients(module, result))) != expected.pop((info, number)):
                    wrong.append(f"{label}: another result")
                if found != Counter({class_name(info.module_cls): 1}):
                    wrong.append(f"{label}: {dict(found)}")
    assert not expected
    assert not wrong, "\n".join(wrong)


def train(info: Any, given: Any) -> list[Any]:
    torch.manual_seed(3)
    weight, bias = torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(3))
    parameters = [weight] if "Muon" in info.optim_cls.__name__ else [weight, bias]
    sparse = getattr(info, "only_supports_sparse_grads", False)
    options = {
        key: value
        for key, value in given.kwargs.items()
        if not isinstance(value, torch.Tensor) or value.device.type == "cpu"
    }
    optimizer = info.optim_cls(parameters, **options)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * weight).sum() + (bias * bias).sum()
        loss.backward()
        if sparse:
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad = parameter.grad.to_sparse()
        return loss

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [parameters, optimizer.state_dict()["state"]]


def check_optimizers(infos: list[Any], core: str, *, all_of_them: bool) -> None:
    seen = Seen(core)
    wrong = []
    cases = []
    for info in infos:
        inputs = [
            i
            for i in info.optim_inputs_func(device="cpu")
            if not i.kwargs.get("fused") and not i.kwargs.get("capturable")
        ]
        cases += [
            (info, given, bits(train(info, given))) for given in (inputs if all_of_them else inputs[:1])
        ]
    with unchanged(), seen:
        for info, given, expected in cases:
            before = seen.calls()
            result = train(info, given)
            found = seen.calls() - before
            name = class_name(info.optim_cls)
            label = f"{name} {given.desc}"
            if bits(result) != expected:
                wrong.append(f"{label}: another result")
            if found[f"{name}.step"] != STEPS:
                wrong.append(f"{label}: {found[f'{name}.step']} steps, {dict(found)}")
            if not info.step_requires_closure and (found[f"{name}.zero_grad"], found["Tensor.backward"]) != (
                STEPS,
                STEPS,
            ):
                wrong.append(f"{label}: {dict(found)}")
    assert cases and not wrong, "\n".join(wrong)


@pytest.mark.parametrize("core", ["c", "python"])
def test_first_sample_of_every_module(core: str) -> None:
    shallow(check_modules, module_db, core, most=1)


@pytest.mark.parametrize("core", ["c", "python"])
def test_first_sample_of_every_optimizer(core: str) -> None:
    shallow(check_optimizers, optim_db, core, all_of_them=False)


@pytest.mark.soak
@pytest.mark.parametrize("core", ["c", "python"])
def test_all_samples_of_every_module(core: str) -> None:
    shallow(check_modules, module_db, core, most=10_000)


@pytest.mark.soak
@pytest.mark.parametrize("core", ["c", "python"])
def test_all_samples_of_every_optimizer(core: str) -> None:
    shallow(check_optimizers, optim_db, core, all_of_them=True)
