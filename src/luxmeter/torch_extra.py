"""torch is an extra. What needs it says so in one line; what only looks at its values finds that there are none."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from luxmeter.errors import MissingExtraError


def has_torch() -> bool:
    """Whether torch is installed here; it is not imported for that."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):  # somebody forbids it
        return False


def needs_torch(what: str) -> MissingExtraError:
    """The error of `what`, which cannot be had without torch."""
    return MissingExtraError(
        "needs-torch",
        f"{what} needs torch, which is not installed for this Python ({sys.executable}).",
        "Install it: pip install 'luxmeter[torch]'.",
    )


def require_torch(what: str) -> None:
    """Raise that error unless torch is here."""
    if not has_torch():
        raise needs_torch(what)


def is_about_torch(error: BaseException) -> bool:
    """Whether an import failed for want of torch, and of nothing else."""
    if getattr(error, "slug", "") == "needs-torch":
        return True
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return (name or "").partition(".")[0] == "torch" and not has_torch()


def refusing(name: str) -> Any:
    """In place of a public name: can be imported, and says when it is used that it needs torch."""

    def refuse(*_: object, **__: object) -> Any:
        raise needs_torch(f"lux.{name}")

    refuse.__name__ = refuse.__qualname__ = name
    return type(name, (), {"__new__": refuse, "__init_subclass__": refuse}) if name[0].isupper() else refuse


class _Values:
    def item(self) -> Any:
        raise TypeError("no value is a tensor here")


class _NoTensor(_Values):
    """The class of no value."""


class _NoTorch:
    def __getattr__(self, name: str) -> Any:
        raise needs_torch(f"torch.{name}")


if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor

    HAS_TORCH: bool
else:

    def __getattr__(name: str) -> Any:
        """`torch` and `Tensor`, for what looks whether a value is a tensor: whoever asks for them imports torch.

        What cannot do without torch imports it as everybody does.
        """
        if name == "HAS_TORCH":
            return has_torch()
        if name not in ("torch", "Tensor"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if not has_torch():
            return _NoTorch() if name == "torch" else _NoTensor
        torch = importlib.import_module("torch")
        globals().update(torch=torch, Tensor=torch.Tensor)  # found without this function from now on
        return globals()[name]
