"""Everything a MindSpore user calls, listed from the installed MindSpore itself."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import mindspore
from luxmeter.calls.targets import Form, Listing, Target, Unseen, subclasses, try_part
from luxmeter.calls.targets.mindspore import names

# The same function is often bound in several of them. Each name gets a stand-in that says its own name; one that the
# user imported by itself (`from mindspore.ops import relu`) is known by the last of them.
NAMESPACES = (
    "mindspore", "mindspore.nn", "mindspore.numpy", "mindspore.scipy.linalg", "mindspore.mint.distributed",
    "mindspore.mint.nn.functional", "mindspore.mint.linalg", "mindspore.mint.special", "mindspore.mint.nn",
    "mindspore.mint", "mindspore.ops",
)  # fmt: skip
_IF_LOADED = ("mindspore.numpy", "mindspore.scipy.linalg", "mindspore.mint.distributed")

# Of `mindspore` itself: what works on tensors and files. The rest of it sets switches, or builds and launches programs.
_WORKS = (
    "mindspore.ops.",
    "mindspore.train.serialization",
    "mindspore.common.tensor",
    "mindspore.parallel.checkpoint",
)

# They run a function of the user, who wants to see what it calls; of these some return a function that does.
_RUNS_USER_CODE = {"fn", "func", "function", "block", "cond_fn", "cond_func", "true_fn", "loop_func"}
_RETURNS_FUNCTION = {"vmap", "jacfwd", "jacrev", "custom_vjp"}
_GRADIENTS = ("grad", "value_and_grad")


@functools.cache
def listing() -> Listing:
    """All targets of this MindSpore, once a process. Call it before anything is patched."""
    targets: list[Target] = []
    unseen: list[Unseen] = []
    left_out: list[Unseen] = []
    for namespace in NAMESPACES:
        module = _loaded(namespace)
        if module is not None:
            _sort(
                try_part(f"{namespace}.*", functools.partial(_functions, module), left_out), targets, unseen
            )
    for name, found in (
        ("methods of Tensor", _tensor_methods),
        ("properties of Tensor", _tensor_properties),
        ("datasets", _data),
        ("cells and primitives", _calls),
        ("graphs", _graphs),
    ):
        _sort(try_part(name, found, left_out), targets, unseen)
    unseen.append(Unseen("mindspore._*", "names with an underscore are not public"))
    return Listing(tuple(targets), tuple(unseen), tuple(left_out))


def _sort(found: Iterable[Target | Unseen], targets: list[Target], unseen: list[Unseen]) -> None:
    for entry in found:
        if isinstance(entry, Target):
            targets.append(entry)
        else:
            unseen.append(entry)


def _loaded(name: str) -> ModuleType | None:
    if name in _IF_LOADED and name not in sys.modules:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:  # pragma: no cover - another MindSpore does not have it yet, or no longer
        return None


def _functions(module: ModuleType) -> Iterator[Target | Unseen]:
    public = set(getattr(module, "__all__", ()))
    for attribute, value in list(vars(module).items()):
        if attribute.startswith("_") or not callable(value) or not names.belongs_to_mindspore(value):
            continue
        name = f"{module.__name__}.{attribute}"
        if isinstance(value, type):
            if attribute in public and not _is_called(value):
                yield Unseen(name, names.CLASS)
            continue
        if attribute not in public and not value.__module__.startswith("mindspore.ops.function.grad."):
            continue
        if not names.is_function(value):
            primitive = isinstance(value, mindspore.ops.Primitive)
            yield Unseen(
                name,
                f"an instance of {names.class_name(type(value))}, which is timed"
                if primitive
                else names.GRAPH,
            )
            continue
        reason = names.GRADIENT if attribute in _GRADIENTS else names.why_not(attribute, value)
        if not reason and module is mindspore and not value.__module__.startswith(_WORKS):
            reason = names.JIT if attribute.startswith("jit") else names.SWITCH
        if reason:
            if attribute == "jit":
                yield Target(name, module, attribute, Form.COMPILE)
            yield Unseen(name, reason)
        elif attribute in _RETURNS_FUNCTION and _first_parameter(value) in _RUNS_USER_CODE:
            yield Target(name, module, attribute, Form.FACTORY, span=True)
        else:
            yield Target(name, module, attribute, span=_first_parameter(value) in _RUNS_USER_CODE)


def _first_parameter(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_varnames[0] if code is not None and code.co_argcount else ""


def _is_called(cls: type) -> bool:
    """Cells and primitives: running an instance is the call, and is timed."""
    return issubclass(cls, (mindspore.nn.Cell, mindspore.ops.Primitive))


def _tensor_methods() -> Iterator[Target | Unseen]:
    for attribute in dir(mindspore.Tensor):
        if attribute.startswith("_") and not (attribute.startswith("__") and attribute.endswith("__")):
            continue
        found = inspect.getattr_static(mindspore.Tensor, attribute)
        if not callable(found) or isinstance(found, type | staticmethod | classmethod | property):
            continue
        name = f"mindspore.Tensor.{attribute}"
        reason = names.why_not_method(attribute)
        if reason or type(found).__name__ == "classmethod_descriptor":
            yield Unseen(name, reason or names.OBJECT)
        else:
            yield Target(name, mindspore.Tensor, attribute, label=names.LABELS.get(name, ""))


def _tensor_properties() -> Iterator[Target | Unseen]:
    """Properties that compute: each reading makes a new tensor (T, mH ...)."""
    probe = mindspore.Tensor([[1.0, 2.0], [3.0, 4.0]])
    for attribute in dir(mindspore.Tensor):
        found = inspect.getattr_static(mindspore.Tensor, attribute)
        if attribute.startswith("_") or callable(found) or not inspect.isdatadescriptor(found):
            continue
        try:
            first, second = getattr(probe, attribute), getattr(probe, attribute)
        except Exception:  # noqa: BLE001  # pragma: no cover - another MindSpore: a property that refuses this tensor tells nothing either
            first = second = None
        name = f"mindspore.Tensor.{attribute}"
        if isinstance(first, mindspore.Tensor) and first is not second and attribute != "data":
            yield Target(name, mindspore.Tensor, attribute, Form.PROPERTY)
        else:
            yield Unseen(name, names.PROPERTY)


def _data() -> Iterator[Target]:
    """Making an iterator and waiting for its next batch. What the user's own source computes meanwhile is seen too."""
    from mindspore.dataset.engine import datasets, iterators

    for attribute in ("create_dict_iterator", "create_tuple_iterator"):
        yield Target(f"mindspore.dataset.Dataset.{attribute}", datasets.Dataset, attribute, span=True)
    yield Target(
        "mindspore.dataset.Dataset.__iter__", datasets.Dataset, "__iter__", span=True, label="iter(Dataset)"
    )
    yield Target(
        "mindspore.dataset.Iterator.__next__",
        iterators.Iterator,
        "__next__",
        span=True,
        label="next(Dataset)",
    )


def _calls() -> Iterator[Target]:
    """Where cells and primitives are run: on each class that says for itself how."""
    for cls in subclasses(mindspore.nn.Cell):
        if "__call__" in vars(cls) and names.is_mindspore_class(cls):
            yield Target(f"{names.class_name(cls)}.__call__", cls, "__call__", Form.MODULE)
    for cls in subclasses(mindspore.ops.Primitive):
        # Those made by decorators (constexpr) fold constants, and some turn words into numbers: no work on tensors.
        made = "<locals>" in cls.__qualname__ or cls.__module__.startswith("mindspore.ops._utils")
        if "__call__" in vars(cls) and names.is_mindspore_class(cls) and not made:
            alone = not type.__subclasses__(cls)
            yield Target(names.class_name(cls), cls, "__call__", Form.FUNCTION if alone else Form.INSTANCE)


def _graphs() -> Iterator[Target]:
    """Gradients and compiled functions; MindSpore's own entrances, which all public ways lead through."""
    from mindspore.graph import api
    from mindspore.ops.composite import base

    from mindspore import _c_expression

    yield Target("mindspore.grad.backward", base, "_pynative_func_grad_backward")
    for cls in (base._Grad, base.GradOperation):
        yield Target("mindspore.grad", cls, "__call__", Form.GRADIENT, span=True)
    yield Target("mindspore.jit", api._JitExecutor, "__call__", Form.INSTANCE)
    for name in ("JitExecutor_", "GraphExecutor_"):
        executor = getattr(_c_expression, name, None)
        if executor is not None and "compile" in vars(executor):  # pragma: no branch - another MindSpore
            yield Target("mindspore.jit.compile", executor, "compile", Form.SUSPENDING)
    yield Target("mindspore.set_context", mindspore, "set_context", Form.MODE)
    capture = sys.modules.get("mindspore.graph._utils.pijit_context")
    if capture is not None:  # pragma: no branch - another MindSpore
        yield Target("mindspore.jit", capture.PIJitCaptureContext, "__enter__", Form.ENTER)
        yield Target("mindspore.jit", capture.PIJitCaptureContext, "__exit__", Form.EXIT)
