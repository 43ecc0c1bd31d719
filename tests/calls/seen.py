"""A trace without a session: a recorder, the patcher, and the counts of what was called. For tests of the patching alone."""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode

from luxmeter.calls import core as cores
from luxmeter.calls.arguments import Arguments
from luxmeter.calls.describe import Names, describer
from luxmeter.calls.patching import aliases
from luxmeter.calls.patching.patcher import Patcher

CORES = {"c": "luxmeter.calls.core._core", "python": "luxmeter.calls.core._pycore"}
FASTEST = cores.describe()[0]  # for tests that any core serves


class Seen:
    """Names and counts of one patched stretch."""

    def __init__(self, core: str, *, inside: bool = False, **options: Any) -> None:
        self.core = importlib.import_module(CORES[core])
        arguments = Arguments()
        self.known = Names(arguments, describer("torch", facts=True))
        # Signatures as a trace makes them: to read and describe the arguments may change nothing either.
        self.recorder = self.core.Recorder(
            inside=inside, on_signature=self.known.on_signature, **arguments.hooks()
        )
        self.known.attach(self.recorder)
        self.names: dict[int, str] = {0: ""}
        self.paths: dict[int, str] = {}
        self.kinds: dict[int, int] = {}
        self.patcher = Patcher(self.recorder, self, **options)

    def add(self, name: str, *, label: str = "", kind: int = 0, path: str = "", module: bool = False, record: bool = True,
            boundary: bool = False, framework: str = "") -> int:  # fmt: skip
        found = self.known.add(
            name,
            label=label,
            kind=kind,
            path=path,
            module=module,
            record=record,
            boundary=boundary,
            framework=framework,
        )
        self.names[found], self.paths[found], self.kinds[found] = name, path, kind
        return found

    def child_token(self) -> None:
        return None

    def __enter__(self) -> Seen:
        self.patcher.install()
        self.recorder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.recorder.stop()
        self.patcher.remove()
        assert self.recorder.stats()["hook_errors"] == 0

    def counts(self, *, spans: bool = True) -> Counter[str]:
        """Name -> number of calls so far."""
        found: Counter[str] = Counter()
        for callable_id, n, *_ in self.recorder.live():
            if callable_id and (spans or self.kinds.get(callable_id) == 0):
                found[self.names[callable_id]] += n
        return found

    def calls(self) -> Counter[str]:
        """Only what is opaque: no spans."""
        return self.counts(spans=False)

    def by_path(self) -> dict[str, tuple[str, int]]:
        """Module path -> (name, number of calls)."""
        return {
            self.paths[callable_id]: (self.names[callable_id], n)
            for callable_id, n, *_ in self.recorder.live()
            if self.paths.get(callable_id)
        }

    def raised(self) -> Counter[str]:
        """Name -> number of calls that an exception left."""
        return Counter({self.names[row[0]]: row[6] for row in self.recorder.live() if row[6]})


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Everything bound in torch's modules and classes, and in the test modules, is the same object afterwards."""
    before = bindings()
    yield
    after = bindings()
    changed = [key for key, value in before.items() if key in after and after[key] is not value]
    gone = [key for key in before if key not in after]
    added = [key for key, value in after.items() if key not in before and is_stand_in(value)]
    assert not changed and not gone and not added, (changed[:5], gone[:5], added[:5])


def is_stand_in(value: Any) -> bool:
    return type(value).__name__ in ("Wrapper", "PlainWrapper", "PropertyWrapper") and hasattr(
        type(value), "__wrapped__"
    )


def bindings() -> dict[tuple[str, ...], Any]:
    """(module, name) and (module, class, name) -> object."""
    found: dict[tuple[str, ...], Any] = {}
    classes: dict[int, Any] = {}
    for module, namespace in aliases.namespaces():
        if module.partition(".")[0] != "torch" and not module.startswith("test_"):
            continue
        for name, value in list(namespace.items()):
            if callable(value):  # counters and caches change; what can be called must not
                found[module, name] = value
                if issubclass(type(value), type):
                    classes[id(value)] = value
    for value in classes.values():
        # By its own name: where it is found first changes when torch imports more of itself.
        module, name = value.__module__, f"{value.__qualname__} at {id(value):x}"
        for member, what in list(vars(value).items()):
            if callable(what) or hasattr(type(what), "__get__"):
                found[module, name, member] = what
    return found


def bits(value: Any) -> Any:
    """A value that is equal if and only if two results are the same to the last bit."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
        if tensor.is_sparse or tensor.layout not in (torch.strided,) or tensor.is_nested:
            tensor = tensor.to_dense() if not tensor.is_nested else torch.nested.to_padded_tensor(tensor, 0.0)
        if tensor.is_quantized:
            tensor = tensor.int_repr()
        if tensor.is_meta:
            return tuple(tensor.shape), str(tensor.dtype)
        strides = tensor.stride()
        tensor = tensor.resolve_conj().resolve_neg()
        if tensor._is_zerotensor():
            tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
        # A copy: one element may have any stride and still count as contiguous.
        flat = tensor.reshape(-1).clone(memory_format=torch.contiguous_format)
        return (
            tuple(tensor.shape),
            strides,
            str(tensor.dtype),
            flat.view(torch.uint8).numpy().tobytes() if tensor.numel() else b"",
        )
    if isinstance(value, tuple | list):
        return [bits(each) for each in value]
    if isinstance(value, dict):
        return {key: bits(each) for key, each in value.items()}
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, torch.nn.Module):
        return bits(value.state_dict())
    return repr(value) if not callable(value) else type(value).__name__


def torch_is_untouched() -> bool:
    """No stand-in is left in any module."""
    return not any(
        is_stand_in(value) for _, namespace in aliases.namespaces() for value in list(namespace.values())
    )


def shallow(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call it on a thread of its own: torch's samples read the source of every frame of the stack, and pytest's is deep."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args, **kwargs).result()


def is_public(function: Any) -> bool:
    """Not an attribute of a tensor, not torch.ops.*, not a name with an underscore: coverage() says that those are not timed."""
    name = getattr(function, "__name__", "")
    private = name.startswith("_") and not name.startswith("__")
    return (
        name not in ("__get__", "__set__")
        and not private
        and not isinstance(function, OpOverload | OpOverloadPacket)
    )


class Witness(TorchFunctionMode):
    """Sees every overridable call that is not made inside another. `probe` is timed: it leaves an event only at top level."""

    def __init__(self, probe: Any) -> None:
        super().__init__()
        self.probe = probe
        self.calls: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_public(func):
            self.calls.append(func)
            self.probe()
        return func(*args, **(kwargs or {}))
