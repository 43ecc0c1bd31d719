"""The switch for deterministic kernels, which also says what it cannot make deterministic."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from luxmeter.torch_extra import require_torch, torch

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


@dataclass(frozen=True)
class Determinism:
    """Is the switch on, what did it change, and what still may differ from run to run."""

    on: bool
    changed: tuple[str, ...]
    remaining: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"deterministic algorithms: {'on' if self.on else 'off'}"]
        lines += [f"  changed: {text}" for text in self.changed]
        lines += [f"  still not deterministic: {text}" for text in self.remaining]
        return "\n".join(lines)


class DeterministicSwitch:
    """Turns torch's deterministic mode on and off; off gives back the settings found at the first `on`."""

    def __init__(self) -> None:
        self._before: dict[str, Any] | None = None

    def set(self, on: bool, *, warn_only: bool) -> Determinism:
        """Set the mode. An operator without a deterministic form raises, or only warns with warn_only."""
        require_torch("deterministic()")
        before = _settings()
        if on:
            if self._before is None:
                self._before = before
            os.environ.setdefault(_CUBLAS, ":4096:8")
            _set_cudnn(deterministic=True, benchmark=False)
            torch.use_deterministic_algorithms(True, warn_only=warn_only)
        elif self._before is not None:
            _apply(self._before)
            self._before = None
        else:
            torch.use_deterministic_algorithms(False)
        after = _settings()
        changed = tuple(
            f"{name}: {before[name]} -> {after[name]}" for name in after if after[name] != before[name]
        )
        return Determinism(on=on, changed=changed, remaining=tuple(_remaining(on, warn_only)))


def _settings() -> dict[str, Any]:
    return {
        "use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        _CUBLAS: os.environ.get(_CUBLAS),
    }


def _set_cudnn(*, deterministic: bool, benchmark: bool) -> None:
    # A program may have frozen these flags (torch's own test tools do); this is torch's way to set them all the same.
    with getattr(torch.backends, "__allow_nonbracketed_mutation")():
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cudnn.benchmark = benchmark


def _apply(settings: dict[str, Any]) -> None:
    torch.use_deterministic_algorithms(
        settings["use_deterministic_algorithms"], warn_only=settings["warn_only"]
    )
    _set_cudnn(deterministic=settings["cudnn.deterministic"], benchmark=settings["cudnn.benchmark"])
    if settings[_CUBLAS] is None:
        os.environ.pop(_CUBLAS, None)
    else:
        os.environ[_CUBLAS] = settings[_CUBLAS]


def _remaining(on: bool, warn_only: bool) -> list[str]:
    remaining = []
    if not on:
        remaining.append("operators that have a faster form without a fixed order of additions")
    elif warn_only:
        remaining.append("operators without a deterministic form (they only warn)")
    if on and torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        remaining.append(f"cuBLAS, when CUDA was started before {_CUBLAS} was set: call this earlier")
    remaining += [
        f"sums on the CPU when the number of threads differs (now {torch.get_num_threads()})",
        "results on other hardware, or with other versions of torch, CUDA, MKL or their kernels",
        "kernels of extensions and torch.compile with max-autotune, which choose by timing",
        "randomness of loader workers, unless lux.DataLoader seeds it by sample",
    ]
    if sys.flags.hash_randomization and os.environ.get("PYTHONHASHSEED") in (None, "random"):
        remaining.append("the order of sets of strings: start python with PYTHONHASHSEED=0")
    return remaining
