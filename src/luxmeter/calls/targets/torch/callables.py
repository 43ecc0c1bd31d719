"""Everything a torch user calls, listed from torch itself."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import multiprocessing.reduction
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
import torch.fx
import torch.overrides

from luxmeter.calls.arguments import unseen
from luxmeter.calls.patching import aliases
from luxmeter.calls.targets import Form, Listing, Target, Unseen, try_part
from luxmeter.calls.targets.torch import names

# Where a function is bound in several of them, the first gives it its name: torch.conv2d is documented as
# torch.nn.functional.conv2d, and torch itself comes last.
NAMESPACES = (
    "torch.nn.functional", "torch.func", "torch.foreach", "torch.linalg", "torch.fft", "torch.special", "torch.sparse", "torch.nested", "torch.masked",
    "torch.signal.windows", "torch.autograd", "torch.autograd.functional", "torch.autograd.forward_ad", "torch.nn.init", "torch.nn.utils",
    "torch.nn.utils.rnn", "torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "torch.nn.utils.stateless",
    "torch.nn.utils.prune", "torch.nn.attention.flex_attention", "torch.nn.parallel", "torch.utils.checkpoint", "torch.utils.data",
    "torch.distributed", "torch",
)  # fmt: skip

# Captures of a program: what runs inside is not the user's run.
CAPTURES = (
    ("torch.jit", "script"), ("torch.jit", "trace"), ("torch.jit", "trace_module"), ("torch.jit", "freeze"), ("torch.fx", "symbolic_trace"),
    ("torch.fx.experimental.proxy_tensor", "make_fx"), ("torch.export", "export"), ("torch.export", "draft_export"),
    ("torch.export", "export_for_training"), ("torch.onnx", "export"), ("torch.onnx", "dynamo_export"),
)  # fmt: skip

# They run a function or module of the user, who wants to see what it calls.
_RUNS_USER_CODE = {"func", "function", "functions", "true_fn", "cond_fn", "pred"}
_RUNS_USER_MODULE = {"functional_call", "data_parallel", "parallel_apply"}
_SENDS_MANY = "batch_isend_irecv"  # each message is a call of its own


@functools.cache
def listing() -> Listing:
    """All targets of this torch, once a process. Call it before anything is patched."""
    left_out: list[Unseen] = []
    try_part("tables of torch.overrides", _warm, left_out)
    overridable = set(try_part("functions in no __all__", _overridable, left_out))
    found: list[Target | Unseen] = []
    taken: set[int] = set()
    for namespace in (*NAMESPACES, *_other_namespaces(overridable)):
        for module in try_part(f"{namespace}.*", functools.partial(_loaded, namespace), left_out):
            found += _functions(module, overridable=overridable, taken=taken, left_out=left_out)
        if namespace not in sys.modules:
            found.append(Unseen(f"{namespace}.*", "this torch does not have it, or cannot import it"))
    found += _tensor_methods(left_out)
    for name, listed in (
        ("properties of Tensor", _tensor_properties),
        ("DataLoader", _data),
        ("workers of a DataLoader", _workers),
        ("what DDP sends", _ddp),
        ("torch.distributed.Work.wait", _work),
        ("torch.nn.Module.__call__", _module_calls),
        ("torch.autograd.Function.apply", _autograd),
        ("torch.ops.*", _operators),
    ):
        found += try_part(name, listed, left_out)
    targets = [entry for entry in found if isinstance(entry, Target)]
    untimed = [entry for entry in found if isinstance(entry, Unseen)]
    untimed.append(Unseen("torch.ops.higher_order.*", "takes functions of a program that is being captured"))
    untimed.append(Unseen("torch._*", "names with an underscore are not public"))
    return Listing(tuple(targets), tuple(untimed), tuple(left_out))


def _warm() -> Iterator[None]:
    for warm in (torch.overrides.get_testing_overrides, torch.overrides.get_default_nowrap_functions):
        warm()  # tables keyed by function: torch builds them once, they must hold the originals
    yield


def _overridable() -> Iterator[int]:
    for functions in torch.overrides.get_overridable_functions().values():
        yield from map(id, functions)


def _other_namespaces(overridable: set[int]) -> list[str]:
    """Public modules of this torch that define functions on tensors and are not known here: of a newer torch."""
    return [
        name
        for name, namespace in aliases.namespaces()
        if name.startswith("torch.")
        and name not in NAMESPACES
        and not any(word.startswith("_") for word in name.split("."))
        and any(
            names.is_function(value) and id(value) in overridable and value.__module__ == name
            for attribute, value in list(namespace.items())
            if attribute in namespace.get("__all__", ())
        )
    ]


def _loaded(name: str) -> Iterator[ModuleType]:
    if name == "torch.distributed" and not torch.distributed.is_available():
        return
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        yield importlib.import_module(name)  # otherwise this torch does not have it yet, or no longer


def _functions(
    module: ModuleType, *, overridable: set[int], taken: set[int], left_out: list[Unseen]
) -> Iterator[Target | Unseen]:
    for attribute, value in list(vars(module).items()):
        if not attribute.startswith("_"):
            ask = functools.partial(_function, module, attribute, value, overridable, taken)
            yield from try_part(f"{module.__name__}.{attribute}", ask, left_out)


def _function(
    module: ModuleType, attribute: str, value: Any, overridable: set[int], taken: set[int]
) -> Iterator[Target | Unseen]:
    public = getattr(module, "__all__", None)
    name = f"{module.__name__}.{attribute}"
    known = id(value) in overridable or _is_undocumented(module, value)
    if module is not torch and getattr(torch, attribute, None) is value and isinstance(value, type):
        return  # merely imported there: torch.fft.Tensor
    if issubclass(type(value), type):  # not isinstance: lazy objects answer that with a warning
        if (public is None and value.__module__ == module.__name__) or (
            public is not None and attribute in public
        ):
            yield Unseen(name, names.CONTEXT if hasattr(value, "__enter__") else names.CLASS)
        return
    if not names.is_function(value) or not names.belongs_to_torch(value):
        if callable(value) and public is not None and attribute in public:
            yield Unseen(name, names.SWITCH if attribute.startswith("get_") else names.OBJECT_CALL)
        return
    if public is not None and attribute not in public and not known and not _documented(module, value):
        return
    if id(value) in taken:
        return  # the same object under a second name: found as an alias and replaced there too
    reason = names.why_not(attribute, value, namespace=module.__name__, overridable=known)
    if reason:
        yield Unseen(name, reason)
        return
    taken.add(id(value))
    if name == "torch.compile":
        yield Target(name, module, attribute, Form.COMPILE)
    elif name == "torch.save":
        # Pickles functions by name: see pickle_targets.
        yield Target(name, module, attribute, Form.SUSPENDING)
    elif _returns_callable(module, value):
        yield Target(name, module, attribute, Form.FACTORY, span=True)
    else:
        yield Target(name, module, attribute, span=_runs_user_code(attribute, value))


def _is_undocumented(module: ModuleType, value: Any) -> bool:
    """In no list of torch's, but one that it tests: torch.segment_reduce, up to 2.8."""
    return module is torch and names.is_function(value) and value in torch.overrides.get_testing_overrides()


def _documented(module: ModuleType, value: Any) -> bool:
    """Not in __all__, yet defined for this namespace: torch.fft.hfftn, torch.sparse.spdiags, torch.unique."""
    return module.__name__ in ("torch", "torch.fft", "torch.sparse") and bool(getattr(value, "__doc__", None))


def _first_parameter(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_varnames[0] if code is not None and code.co_argcount else ""


def _runs_user_code(attribute: str, function: Any) -> bool:
    return attribute in (*_RUNS_USER_MODULE, _SENDS_MANY) or _first_parameter(function) in _RUNS_USER_CODE


def _returns_callable(module: ModuleType, function: Any) -> bool:
    if module.__name__ != "torch.func" or _first_parameter(function) not in _RUNS_USER_CODE:
        return False
    returned = str(getattr(inspect.unwrap(function), "__annotations__", {}).get("return", ""))
    return "Callable" in returned and not returned.startswith(("tuple", "typing.Tuple"))


def _ddp() -> Iterator[Target]:
    """The one collective that DDP calls from Python: in it a rank waits for the buffers of rank 0 before its forward."""
    if torch.distributed.is_available():
        yield Target("torch.distributed._broadcast_coalesced", torch.distributed, "_broadcast_coalesced")


def _work() -> Iterator[Target]:
    """Where a rank waits for what an asynchronous collective or message does."""
    if torch.distributed.is_available():
        yield Target("torch.distributed.Work.wait", torch.distributed.Work, "wait")


def _tensor_methods(left_out: list[Unseen]) -> Iterator[Target | Unseen]:
    for attribute in dir(torch.Tensor):
        if not attribute.startswith("_") or (attribute.startswith("__") and attribute.endswith("__")):
            yield from try_part(f"Tensor.{attribute}", functools.partial(_tensor_method, attribute), left_out)


def _tensor_method(attribute: str) -> Iterator[Target | Unseen]:
    found = inspect.getattr_static(torch.Tensor, attribute)
    if not callable(found) or isinstance(found, type | staticmethod | classmethod | property):
        return
    name = f"Tensor.{attribute}"
    reason = names.why_not_method(attribute)
    if reason:
        yield Unseen(name, reason)
    else:
        yield Target(name, torch.Tensor, attribute, label=names.LABELS.get(name, ""))


def _tensor_properties() -> Iterator[Target | Unseen]:
    """Properties that compute: each reading makes a new tensor (T, mH, real, data ...)."""
    properties = []
    for attribute in dir(torch.Tensor):
        found = inspect.getattr_static(torch.Tensor, attribute)
        if not attribute.startswith("_") and not callable(found) and hasattr(type(found), "__get__"):
            properties.append(attribute)
    computing: set[str] = set()
    unseen(lambda: computing.update(filter(_computer(), properties)))
    for attribute in properties:
        if attribute in computing:
            yield Target(f"Tensor.{attribute}", torch.Tensor, attribute, Form.PROPERTY)
        else:
            yield Unseen(f"Tensor.{attribute}", "a property that tells what is known: computes nothing")


def _computer() -> Callable[[str], bool]:
    """Whether reading an attribute of a tensor makes a new one."""
    probe = torch.ones(2, 2, dtype=torch.complex64, device="cpu")

    def computes(attribute: str) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                first, second = getattr(probe, attribute), getattr(probe, attribute)
            except (AttributeError, RuntimeError):
                return False
        return isinstance(first, torch.Tensor) and first is not second

    return computes


def capture_targets() -> Iterator[Target]:
    """Those of the modules imported so far: torch.onnx alone would take 0.1 s, and exports through torch.export."""
    for namespace, attribute in CAPTURES:
        module = sys.modules.get(namespace)
        if module is not None and names.is_function(vars(module).get(attribute)):
            yield Target(f"{namespace}.{attribute}", module, attribute, Form.SUSPENDING)
    yield Target("torch.fx.Tracer.trace", torch.fx.Tracer, "trace", Form.SUSPENDING)


def pickle_targets() -> Iterator[Target]:
    """pickle refuses a function that is no longer what its name is bound to: an original in an object of the user's."""
    yield Target("pickle.dumps", pickle, "dumps", Form.PICKLE)
    yield Target("pickle.dump", pickle, "dump", Form.PICKLE)
    yield Target("multiprocessing.reduction.dump", multiprocessing.reduction, "dump", Form.PICKLE)


def _data() -> Iterator[Target]:
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    yield Target("DataLoader.__iter__", DataLoader, "__iter__", span=True, label="iter(DataLoader)")
    yield Target("DataLoader.__next__", _BaseDataLoaderIter, "__next__", span=True, label="next(DataLoader)")


def _workers() -> Iterator[Target]:
    from torch.utils.data import _utils

    yield Target("DataLoader worker", _utils.worker, "_worker_loop", Form.WORKER)


def _module_calls() -> Iterator[Target]:
    yield Target("torch.nn.Module.__call__", torch.nn.Module, "__call__", Form.MODULE)


def _autograd() -> Iterator[Target]:
    yield Target("torch.autograd.Function.apply", torch.autograd.Function, "apply", Form.CLASSMETHOD)


def _operators() -> Iterator[Target]:
    """`torch.ops.aten.mm(a, b)`, custom operators, and one overload of them: `torch.ops.aten.mm.default(a, b)`."""
    from torch._ops import OpOverload, OpOverloadPacket

    for cls in (OpOverloadPacket, OpOverload):
        yield Target("torch.ops.*", cls, "__call__", Form.OPERATOR)


# Operators of torch itself hide what they call; one that a user or a package wrote is a span, as its functions are.
OWN_OPERATORS = (
    "aten",
    "prim",
    "prims",
    "quantized",
    "mkldnn",
    "mkl",
    "onednn",
    "sparse",
    "symm_mem",
    "torch",
    "inductor",
    "c10d",
    "fsdp",
    "profiler",
    "prepacked",
    "rngprims",
    "debugprims",
    "static_runtime",
)


def names_of_operator(operator: Any) -> tuple[str, bool]:
    """What the user wrote, and whether it is a span."""
    full = getattr(operator, "_qualified_op_name", None) or operator.name()  # aten::mm, aten::mm.default
    namespace, _, name = full.partition("::")
    words = namespace.lstrip("_")
    own = words in OWN_OPERATORS or words.split("_")[0] in OWN_OPERATORS
    return f"torch.ops.{namespace}.{name}", not own


def operator_names() -> Iterator[str]:
    """All that are registered now: each with its overloads."""
    for full in getattr(torch._C, "_dispatch_get_all_op_names", tuple)():
        namespace, _, name = full.partition("::")
        yield f"torch.ops.{namespace}.{name.partition('.')[0]}"
        yield f"torch.ops.{namespace}.{name}"
