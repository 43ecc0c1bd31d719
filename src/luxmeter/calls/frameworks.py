"""Which frameworks a trace looks at: torch, and MindSpore where the program uses it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from luxmeter.errors import LuxmeterError, MissingExtraError, UsageError, suggestion

if TYPE_CHECKING:
    from luxmeter.calls.patch import Framework

AUTO = "auto"  # torch, and MindSpore once the program has imported it
NAMES = ("torch", "mindspore")


def chosen(asked: str) -> tuple[str, ...]:
    """The frameworks to patch now: "auto", a name, or two with a plus between them."""
    if asked == AUTO:
        return ("torch", "mindspore") if is_loaded("mindspore") else ("torch",)
    names = tuple(asked.split("+"))
    for name in names:
        _check(name)
    return names


def awaited(asked: str) -> tuple[str, ...]:
    """Those to patch as soon as the program has imported them."""
    return ("mindspore",) if asked == AUTO and not is_loaded("mindspore") else ()


def is_loaded(name: str) -> bool:
    """Whether the program has imported it, completely."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return name in sys.modules and not getattr(spec, "_initializing", False)


def make(name: str, also: Sequence[str] = ()) -> Framework:
    """What the patcher has to know about a framework. Imports it."""
    _check(name)
    makers: dict[str, Callable[[Sequence[str]], Framework]] = {"torch": _torch, "mindspore": _mindspore}
    return makers[name](also)


def _check(name: str) -> None:
    if name not in NAMES:
        raise UsageError(
            "unknown-framework",
            f"There is no framework called {name!r} to trace.",
            suggestion(name, (*NAMES, AUTO)) or f"It knows {', '.join(NAMES)} and {AUTO}.",
        )


def _torch(also: Sequence[str]) -> Framework:
    from luxmeter.calls.targets.torch_stand_ins import TorchFramework

    return TorchFramework(also)


def _mindspore(also: Sequence[str]) -> Framework:
    import_mindspore()
    from luxmeter.calls.targets.mindspore_stand_ins import MindSporeFramework

    return MindSporeFramework(also)


def import_mindspore() -> Any:
    """MindSpore, or one error that says what is missing and how to install it."""
    if "mindspore" in sys.modules:
        return sys.modules["mindspore"]
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:  # nothing, or a mere folder of that name
        raise MissingExtraError(
            "mindspore-missing",
            f"MindSpore is not installed for this Python ({sys.version.split()[0]}).",
            'Install it in an environment of its own: pip install "luxmeter[mindspore]" (Python 3.11 or 3.12).',
        )
    try:
        return importlib.import_module("mindspore")
    except LuxmeterError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever its import meets, the user is told in one line
        raise _unusable(error) from None


def _unusable(error: Exception) -> MissingExtraError:
    version = importlib.metadata.version("numpy")
    if int(version.partition(".")[0]) >= 2:
        return MissingExtraError(
            "mindspore-numpy",
            f"MindSpore cannot be imported: it needs numpy 1, and this environment has numpy {version}.",
            'Use an environment with pip install "luxmeter[mindspore]", which takes numpy<2.',
        )
    said = " ".join(str(error).split())[:200]
    return MissingExtraError(
        "mindspore-broken",
        f"MindSpore is installed and cannot be imported: {type(error).__name__}: {said}.",
        'Install it anew: pip install --force-reinstall "luxmeter[mindspore]".',
    )
