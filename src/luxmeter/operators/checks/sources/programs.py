"""Test classes and functions of a user's files: each draws its own inputs, calls what it checks and returns the result.

A class is a `unittest.TestCase`, and each of its `test_...` methods a case; a function is called `test_...`. What
`reference_...` of the same name returns is right, where there is one; otherwise the same code on the CPU in double
precision. `tolerance = 1e-3` of the class or function takes the place of the dtype's. Files are imported one by one under names of their own: nothing is looked up in `globals()`,
and a folder called `torch` hides no torch.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from luxmeter.operators.checks.judging import absent_api
from luxmeter.operators.checks.same_draws import drawn
from luxmeter.operators.checks.trial import Trial

_KNOWN = "__unittest_expecting_failure__"


def list_cases(path: str, root: str = "") -> list[dict[str, Any]]:
    """The cases of one file. A file that asks for a name that this torch does not have gives one case that is missed."""
    try:
        module = imported(path)
    except Exception as error:
        absent, inside = absent_api(error), _inside(path, root)
        if not absent:
            raise
        api = (
            absent.rpartition(" ")[2]
            if isinstance(error, AttributeError | ImportError)
            else folder_api(path, root) or inside
        )
        name = inside if api == inside else f"{api}: {inside}"
        return [{"source": "program", "api": api, "name": name, "file": path, "missed": absent}]
    found: list[dict[str, Any]] = []
    for name, value in vars(module).items():
        if getattr(value, "__module__", "") != module.__name__:
            continue  # only imported there
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            for method in unittest.defaultTestLoader.getTestCaseNames(value):
                found.append(_case(path, root, f"{name}.{method}", getattr(value, "api", "")))
        elif inspect.isfunction(value) and name.startswith("test_"):
            found.append(_case(path, root, name, getattr(value, "api", "")))
    return found


def _case(path: str, root: str, name: str, api: str) -> dict[str, Any]:
    shown = f"{_inside(path, root)}:{name}"
    return {
        "source": "program",
        "api": api or folder_api(path, root) or shown,
        "name": shown,
        "file": path,
        "program": name,
    }


def _inside(path: str, root: str) -> str:
    return str(Path(path).relative_to(root)) if root and Path(path).is_relative_to(root) else Path(path).name


def folder_api(path: str, root: str) -> str:
    """`torch.nn.functional.relu` of testcase/torch/nn/functional/relu.py."""
    parts = Path(_inside(path, root)).with_suffix("").parts
    return ".".join(parts) if parts[0] == "torch" and len(parts) > 1 else ""


def dtype_of(case: dict[str, Any], dtype: str, device: str) -> str:
    """Any dtype that can be torch's default."""
    return dtype if getattr(torch, dtype).is_floating_point else ""


def trials_of(case: dict[str, Any], *, dtype: str, seed: int, device: str) -> Iterator[Trial]:
    """One trial: the program with numbers of its own, drawn from the seed."""
    if "missed" in case:
        raise NotImplementedError(case["missed"])
    program, reference, tolerance = found_in(case)
    kind = getattr(torch, dtype)
    given: list[Any] = []
    yield Trial(
        case["api"],
        functools.partial(drawn, program, seed, dtype=kind, device=device, wide=False, given=given),
        (),
        {},
        backward=False,
        reference=functools.partial(drawn, reference or program, seed, dtype=kind, device="cpu", wide=True),
        tolerance=tolerance,
        dtype=kind,
        is_program=True,
        given=given,
    )


def found_in(case: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any] | None, float | None]:
    """The program of a case, its reference if it names one, its tolerance if it has one."""
    module = imported(case["file"])
    owner, _, name = case["program"].rpartition(".")
    called = f"reference_{name.removeprefix('test_')}"
    if not owner:
        function = getattr(module, name)
        return function, getattr(module, called, None), getattr(function, "tolerance", None)
    kind = getattr(module, owner)
    reference = functools.partial(_run_method, kind, called) if hasattr(kind, called) else None
    return functools.partial(_run_method, kind, name), reference, getattr(kind, "tolerance", None)


def _run_method(kind: type[unittest.TestCase], name: str) -> Any:
    """As unittest runs it, but what it returns is kept."""
    test = kind(name)
    method = getattr(test, name)
    skipped = getattr(kind, "__unittest_skip__", False) or getattr(method, "__unittest_skip__", False)
    if skipped:
        why = getattr(method, "__unittest_skip_why__", "") or getattr(kind, "__unittest_skip_why__", "")
        raise unittest.SkipTest(why)
    kind.setUpClass()
    try:
        test.setUp()
        try:
            if getattr(kind, _KNOWN, False) or getattr(method, _KNOWN, False):
                return _failing(method)
            return method()
        finally:
            test.tearDown()
            test.doCleanups()
    finally:
        kind.tearDownClass()


def _failing(method: Callable[[], Any]) -> None:
    """What unittest.expectedFailure marks is right if it fails."""
    try:
        method()
    except Exception:  # noqa: BLE001  (whatever it fails by)
        return
    raise AssertionError("it is marked as an expected failure, and passes")


@functools.cache
def imported(path: str) -> Any:
    """The module of a file, imported once."""
    file = Path(path).resolve()
    name = f"luxmeter_cases_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    for folder in (str(Path.cwd()), str(file.parent)):
        # A folder with a package called torch would hide torch from whoever imports it next.
        if folder not in sys.path and not (Path(folder) / "torch").is_dir():
            sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
