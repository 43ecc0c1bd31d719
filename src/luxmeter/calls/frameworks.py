"""Which frameworks a trace looks at: torch, and MindSpore where the program uses it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from luxmeter.calls.targets import Unseen
from luxmeter.errors import LuxmeterError, MissingExtraError, TraceError, UsageError, suggestion, warn_once
from luxmeter.loaded import loaded
from luxmeter.supported import check_torch, numbers_of, version_of
from luxmeter.torch_extra import has_torch, needs_torch, require_torch

if TYPE_CHECKING:
    from luxmeter.calls.patching.patcher import Framework

AUTO = "auto"  # torch, and MindSpore once the program has imported it
NAMES = ("torch", "mindspore")
# The newest MindSpore known to be built for numpy 1. Its requirements do not say so, and its import does not fail: its
# first operator does, or crashes.
_BUILT_FOR_NUMPY_1 = (2, 10)


def chosen(asked: str) -> tuple[str, ...]:
    """The frameworks to patch now: "auto", a name, or two with a plus between them."""
    if asked == AUTO:
        found = ("torch",) if has_torch() else ()
        if loaded("mindspore") is not None and _is_usable():
            return (*found, "mindspore")
        if not found and not has_mindspore():
            raise needs_torch("A trace of anything but MindSpore")
        return found
    names = tuple(asked.split("+"))
    for name in names:
        _check(name)
    return names


def has_mindspore() -> bool:
    """Whether MindSpore is installed here; it is not imported for that."""
    if "mindspore" in sys.modules:
        return sys.modules["mindspore"] is not None
    try:
        spec = importlib.util.find_spec("mindspore")
    except (ImportError, ValueError):  # somebody forbids it
        return False
    return spec is not None and spec.origin is not None  # not a mere folder of that name


def awaited(asked: str) -> tuple[str, ...]:
    """Those to patch as soon as the program has imported them."""
    return ("mindspore",) if asked == AUTO and loaded("mindspore") is None else ()


def make(name: str, also: Sequence[str] = ()) -> Framework:
    """What the patcher has to know about a framework. Imports it."""
    _check(name)
    makers: dict[str, Callable[[Sequence[str]], Framework]] = {"torch": _torch, "mindspore": _mindspore}
    try:
        return makers[name](also)
    except (LuxmeterError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise TraceError(
            "framework-unknown",
            f"{name} {version_of(name)} cannot be traced: {type(error).__name__}: {error}.",
            f"Use a {name} that was tested; docs/versions.md names them.",
        ) from error


def make_all(asked: str, also: Sequence[str] = ()) -> tuple[dict[str, Framework], list[Unseen]]:
    """The frameworks to patch now. Of several, one that does not fit is left out with the reason; one alone raises."""
    names = chosen(asked)
    made: dict[str, Framework] = {}
    left_out: list[Unseen] = []
    for name in names:
        try:
            made[name] = make(name, also)
        except LuxmeterError as error:
            if error.slug not in ("torch-too-old", "framework-unknown") or len(left_out) == len(names) - 1:
                raise
            left_out.append(Unseen(name, error.what))
    return made, left_out


def _check(name: str) -> None:
    if name not in NAMES:
        raise UsageError(
            "unknown-framework",
            f"There is no framework called {name!r} to trace.",
            suggestion(name, (*NAMES, AUTO)) or f"It knows {', '.join(NAMES)} and {AUTO}.",
        )
    if name == "torch":
        require_torch("A trace of torch's calls")


def _torch(also: Sequence[str]) -> Framework:
    check_torch()
    from luxmeter.calls.targets.torch.stand_ins import TorchFramework

    return TorchFramework(also)


def _mindspore(also: Sequence[str]) -> Framework:
    import_mindspore()
    from luxmeter.calls.targets.mindspore.stand_ins import MindSporeFramework

    return MindSporeFramework(also)


def import_mindspore() -> Any:
    """MindSpore, or one error that says what is missing and how to install it."""
    if "mindspore" in sys.modules:
        _check_numpy()
        return sys.modules["mindspore"]
    if not has_mindspore():
        raise MissingExtraError(
            "mindspore-missing",
            f"MindSpore is not installed for this Python ({sys.version.split()[0]}).",
            'Install it in an environment of its own: pip install "luxmeter[mindspore]" (Python 3.11 or 3.12).',
        )
    _check_numpy()
    try:
        return importlib.import_module("mindspore")
    except LuxmeterError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever its import meets, the user is told in one line
        raise _unusable(error) from None


def _is_usable() -> bool:
    """Whether the MindSpore that the program has imported can be traced; says once why not."""
    try:
        _check_numpy()
    except MissingExtraError as error:
        warn_once(
            "framework-not-traced",
            f"The calls of MindSpore are not timed. {error.what}",
            error.next_step,
        )
        return False
    return True


def _check_numpy() -> None:
    numpy, mindspore = version_of("numpy"), version_of("mindspore")
    if numbers_of(numpy) >= (2, 0) and (0, 0) < numbers_of(mindspore) <= _BUILT_FOR_NUMPY_1:
        raise MissingExtraError(
            "mindspore-numpy",
            f"MindSpore {mindspore} needs numpy 1, and this environment has numpy {numpy}.",
            'Use an environment with pip install "luxmeter[mindspore]", which takes numpy<2.',
        )


def _unusable(error: Exception) -> MissingExtraError:
    said = " ".join(str(error).split())[:200]
    return MissingExtraError(
        "mindspore-broken",
        f"MindSpore is installed and cannot be imported: {type(error).__name__}: {said}.",
        'Install it anew: pip install --force-reinstall "luxmeter[mindspore]".',
    )
