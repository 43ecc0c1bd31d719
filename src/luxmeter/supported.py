"""Which torch Luxmeter is made for. Imports no framework.

The range stands here and nowhere else: doctor, a trace and `lux.analyze` ask here. pyproject.toml and README.md say it
too, and a test compares them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from typing import Final

from luxmeter.errors import UsageError

OLDEST_TORCH: Final = (2, 8)  # older ones lack what the recorder stands on
NEWEST_TORCH: Final = (2, 15)  # of those that were tested; a newer one is tried


def version_of(package: str) -> str:
    """Of what is imported, otherwise of what is installed; empty if neither says."""
    said = getattr(sys.modules.get(package), "__version__", "")
    try:
        return str(said or importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return ""


def numbers_of(version: str) -> tuple[int, int]:
    """`2.13.0+cpu` -> (2, 13); (0, 0) for what is no version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def range_of_torch() -> str:
    """As people read it: `2.8 to 2.15`."""
    return f"{_shown(OLDEST_TORCH)} to {_shown(NEWEST_TORCH)}"


def too_old(version: str) -> UsageError | None:
    """What is to be said of a torch that is older than what works; None of any other, and of one that says nothing."""
    if not (0, 0) < numbers_of(version) < OLDEST_TORCH:
        return None
    oldest = _shown(OLDEST_TORCH)
    return UsageError(
        "torch-too-old",
        f"This torch ({version}) is too old: Luxmeter works with torch {range_of_torch()}.",
        f"Install a newer one: pip install 'torch>={oldest}'.",
    )


def check_torch() -> None:
    """Raise where this process's torch is too old."""
    error = too_old(version_of("torch"))
    if error is not None:
        raise error


def newer_than_tested(version: str) -> str:
    """One line about a torch that is newer than those that were tested; empty about any other."""
    if numbers_of(version) <= NEWEST_TORCH:
        return ""
    return f"torch {version} is newer than what was tested ({_shown(NEWEST_TORCH)}); a trace says what it cannot see"


# Names that not every torch has, and what is missing without them. Asked for, never compared by version.
_FOR_A_TRACE = (
    ("torch.Tensor.__dlpack_c_exchange_api__", "tensors are read by their attributes, which takes longer a call"),
    ("torch._C._functorch.peek_interpreter_stack", "the values of arguments are not looked at"),
    ("torch._C._len_torch_dispatch_stack", "the values of arguments are not looked at"),
    ("torch._C._is_cow_tensor", "the values of arguments are not looked at"),
    ("torch._C.DisableTorchFunction", "a class with __torch_function__ sees that its tensors are read"),
    ("torch._C._dispatch_get_all_op_names", "only= and skip= do not know the names of torch.ops.*"),
    ("torch.overrides.get_overridable_functions", "functions that are in no __all__ are not timed"),
    ("torch.optim.Optimizer._patch_step_function", "optimizers made during a trace are seen from their zero_grad on"),
    ("torch.utils.data._utils.worker._worker_loop", "what workers of a DataLoader call is not timed"),
    ("torch.accelerator.synchronize", "no other accelerator than CUDA is waited for"),
    ("torch._dynamo.callback.callback_handler.start_callbacks", "while a compiled function runs, nothing else is timed"),
    ("torch._dynamo.convert_frame.input_codes.seen", "while a compiled function runs, nothing else is timed"),
    ("torch._C._dynamo.eval_frame._debug_get_cache_entry_list", "while a compiled function runs, nothing else is timed"),
)  # fmt: skip
_FOR_THE_REST = (
    ("torch.compiler.set_stance", "lux.analyze cannot count a model that torch.compile made"),
    ("torch.serialization.get_unsafe_globals_in_checkpoint", "a checkpoint is read once more to see that it is safe"),
    ("torch._lazy_clone", "a checkpoint copies the weights before it goes on"),
    ("torch.nn.parallel.DistributedDataParallel._pre_forward", 'several processes train with parallel="none" alone'),
    ("torch.nn.parallel.DistributedDataParallel._post_forward", 'several processes train with parallel="none" alone'),
    ("torch.distributed.fsdp.FSDPModule._get_fsdp_state", 'there is no parallel="fsdp"'),
    ("torch.distributed._broadcast_coalesced", 'there is no parallel="fsdp"'),
)  # fmt: skip


def torch_changed(what: str, name: str, next_step: str) -> UsageError:
    """What is to be said where something stands on a name of torch's own, which this torch has not."""
    return UsageError(
        "torch-changed",
        f"{what} cannot be with this torch ({version_of('torch') or 'of no version'}): it has no {name}.",
        f"{next_step}; it works with torch {range_of_torch()}.",
    )


def lacking(*, trace_only: bool = False) -> list[tuple[str, str]]:
    """(name, what is missing without it) of what the torch that is imported lacks."""
    wanted = _FOR_A_TRACE if trace_only else (*_FOR_A_TRACE, *_FOR_THE_REST)
    return [(name, f"this torch lacks it: {without}") for name, without in wanted if not has(name)]


def has(name: str) -> bool:
    """Whether what is imported has this name. One in a module that is not imported yet may be there: True."""
    parts = name.split(".")
    depth = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in sys.modules), 0)
    if depth == 0 or (depth < len(parts) - 1 and _may_be_imported(parts[: depth + 1])):
        return True
    found: object = sys.modules[".".join(parts[:depth])]
    for part in parts[depth:]:
        found = getattr(found, part, _ABSENT)
    return found is not _ABSENT


_ABSENT: Final = object()


def _may_be_imported(parts: list[str]) -> bool:
    """Whether there is such a module, without importing it."""
    if hasattr(sys.modules[".".join(parts[:-1])], parts[-1]):
        return False
    return importlib.util.find_spec(".".join(parts)) is not None


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
