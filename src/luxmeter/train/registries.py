"""What a config can name, by kind, and `build`, which makes a thing of a mapping."""

from __future__ import annotations

import functools
import importlib
import inspect
import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from luxmeter.errors import LuxmeterError, UsageError, near_names
from luxmeter.experiment import BaseParams
from luxmeter.registry import Registry

E = TypeVar("E", bound=Exception)
Thing = Callable[..., Any]  # a class, or a function that makes something


def _classes(module: str, kind: str) -> Callable[[], dict[str, Thing]]:
    """What gives the classes of a module that are of a kind (`module:Name`), by name."""

    def ask() -> dict[str, Thing]:
        base = _imported(kind)
        return {
            name: value
            for name, value in vars(importlib.import_module(module)).items()
            if isinstance(value, type) and issubclass(value, base) and value is not base and name[0] != "_"
        }

    return ask


def _own(kind: str, *names: str) -> Callable[[], dict[str, Thing]]:
    """What gives our own classes of a kind: these names of the door, or all."""

    def ask() -> dict[str, Thing]:
        door, base = importlib.import_module("luxmeter.train"), _imported(kind)
        named = {name: getattr(door, name) for name in names or door.__all__}
        return {n: value for n, value in named.items() if isinstance(value, type) and issubclass(value, base)}

    return ask


def _losses() -> dict[str, Thing]:
    modules = _classes("torch.nn", "torch.nn:Module")()
    return {name: value for name, value in modules.items() if value.__module__ == "torch.nn.modules.loss"}


MODULES: Registry[Thing] = Registry(
    "module", group="luxmeter.modules", sources={"torch.nn": _classes("torch.nn", "torch.nn:Module")}
)
LOSSES: Registry[Thing] = Registry("loss", group="luxmeter.losses", sources={"torch.nn": _losses})
OPTIMIZERS: Registry[Thing] = Registry(
    "optimizer",
    group="luxmeter.optimizers",
    sources={"torch.optim": _classes("torch.optim", "torch.optim:Optimizer")},
)
SCHEDULERS: Registry[Thing] = Registry(
    "scheduler",
    group="luxmeter.schedulers",
    sources={
        "torch.optim.lr_scheduler": _classes(
            "torch.optim.lr_scheduler", "torch.optim.lr_scheduler:LRScheduler"
        ),
        "Params.SCHE": lambda: dict(vars(BaseParams.SCHE)),
    },
)
DATASETS: Registry[Thing] = Registry(
    "dataset",
    group="luxmeter.datasets",
    sources={
        "torch.utils.data": _classes("torch.utils.data", "torch.utils.data:Dataset"),
        "luxmeter.train": _own("torch.utils.data:Dataset", "FakeData", "SampleDataset"),
    },
)
SAMPLERS: Registry[Thing] = Registry(
    "sampler",
    group="luxmeter.samplers",
    sources={"torch.utils.data": _classes("torch.utils.data", "torch.utils.data:Sampler")},
)
TRANSFORMS: Registry[Thing] = Registry("transform", group="luxmeter.transforms")
EVALUATORS: Registry[Thing] = Registry(
    "evaluator",
    group="luxmeter.evaluators",
    sources={"luxmeter.train": _classes("luxmeter.train.task.evaluator", "luxmeter.train:Evaluator")},
)
TASKS: Registry[Thing] = Registry(
    "task",
    group="luxmeter.tasks",
    sources={"luxmeter.train": _own("luxmeter.train:TaskFlow", "TaskFlow", "Task")},
)
CALLBACKS: Registry[Thing] = Registry(
    "callback", group="luxmeter.callbacks", sources={"luxmeter.train": _own("luxmeter.train:Callback")}
)
TRAINERS: Registry[Thing] = Registry(
    "trainer",
    group="luxmeter.trainers",
    sources={"luxmeter.train": _own("luxmeter.train:Trainer", "Trainer", "TaskTrainer")},
)

# The argument that a config stands under says its kind; under any other it is of the kind that it stands in.
_KIND_OF = {
    "model": MODULES,
    "task": TASKS,
    "loss": LOSSES,
    "losses": LOSSES,
    "optimizer": OPTIMIZERS,
    "scheduler": SCHEDULERS,
    "schedulers": SCHEDULERS,
    "dataset": DATASETS,
    "datasets": DATASETS,
    "samples": DATASETS,
    "sampler": SAMPLERS,
    "batch_sampler": SAMPLERS,
    "transform": TRANSFORMS,
    "transforms": TRANSFORMS,
    "postprocess": TRANSFORMS,
    "evaluators": EVALUATORS,
    "callbacks": CALLBACKS,
}


def build(cfg: Any, registry: Registry[Thing], *, key: str = "", **more: Any) -> Any:
    """Make what a config says: `{"type": ..., argument: value, ...}`, or a type alone. What is made already is given back.

    `type` is a name of the registry, `package.module:Name`, or the class itself. Configs inside the arguments are built
    first, but those of arguments called `..._cfg` are handed over as they are. A list under the name of a `*args` is spread.
    A function makes the thing; among losses and transforms it is the thing, with some arguments set. `more` are arguments
    for whatever of this kind takes them. `key` is where the config stands, for messages.
    """
    if isinstance(cfg, BaseParams):
        cfg = cfg.to_dict()
    if isinstance(cfg, str | type):
        cfg = {"type": cfg}
    if not isinstance(cfg, Mapping):
        return cfg
    if "type" not in cfg:
        raise _no_type(cfg, registry, key)
    thing, name = _thing(cfg["type"], registry, key)
    arguments = {
        argument: value if argument.endswith("_cfg") else _inside(value, argument, registry, key, more)
        for argument, value in cfg.items()
        if argument != "type"
    }
    taken = _parameters(thing)
    arguments = {n: value for n, value in more.items() if n in taken} | arguments
    is_itself = _is_itself(thing, registry)
    spread = _checked(arguments, taken, name, key, needs_all=not is_itself)
    if is_itself:
        return functools.partial(thing, **arguments) if arguments else thing
    try:
        return thing(*spread, **arguments)
    except Exception as error:
        inner = config_key_of(error)  # of something that it builds itself
        if "config_key" not in vars(error):
            given = ", ".join(f"{argument}={reprlib.repr(value)}" for argument, value in arguments.items())
            error.add_note(f"This came of {_shown(key)}{name}({given})")
        vars(error)["config_key"] = ".".join(filter(None, (key, inner)))
        raise


def check(cfg: Any, registry: Registry[Thing], *, key: str = "", more: Collection[str] = ()) -> Thing | None:
    """Refuse what `build` would refuse of types and names of arguments, and make nothing; `more`: which it will be given.

    Returns what would be called; None where nothing is to be made.
    """
    if isinstance(cfg, BaseParams):
        cfg = cfg.to_dict()
    if isinstance(cfg, str | type):
        cfg = {"type": cfg}
    if not isinstance(cfg, Mapping):
        return None
    if "type" not in cfg:
        raise _no_type(cfg, registry, key)
    thing, name = _thing(cfg["type"], registry, key)
    arguments = {argument: value for argument, value in cfg.items() if argument != "type"}
    for argument, value in arguments.items():
        if not argument.endswith("_cfg"):
            kind = _kind(argument, registry)
            _check_inside(value, kind, f"{key}.{argument}".lstrip("."), more if kind is registry else ())
    taken = _parameters(thing)
    given = dict.fromkeys(one for one in more if one in taken) | arguments
    _checked(given, taken, name, key, needs_all=not _is_itself(thing, registry))
    return thing


def _check_inside(value: Any, kind: Registry[Thing], key: str, more: Collection[str]) -> None:
    if isinstance(value, Mapping) and "type" in value:
        check(value, kind, key=key, more=more)
    elif isinstance(value, Mapping | list | tuple) and not hasattr(value, "_fields"):
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check_inside(inner, kind, f"{key}.{name}", more)


def several(cfg: Any, key: str) -> list[tuple[str, Any, str]]:
    """(name, config, key) of one config, or of several in a list or by name; without a name it is empty."""
    if isinstance(cfg, BaseParams):
        cfg = cfg.to_dict()
    if isinstance(cfg, Mapping) and "type" not in cfg:
        return [(name, one, f"{key}.{name}") for name, one in cfg.items()]
    if isinstance(cfg, list | tuple):
        return [("", one, f"{key}.{number}") for number, one in enumerate(cfg)]
    return [] if cfg is None else [("", cfg, key)]


def config_key_of(error: BaseException) -> str:
    """The dotted key of the config that an error of `build` came of; empty for any other."""
    return str(vars(error).get("config_key", ""))


def _no_type(cfg: Mapping[str, Any], registry: Registry[Thing], key: str) -> Exception:
    listed = ", ".join(map(str, cfg)) or "nothing"
    return about(
        UsageError(
            "build-no-type",
            f"{_shown(key)}it has no type, so that no {registry.kind} can be made of it; it has {listed}.",
            'Say what to make: "type": "Name".',
        ),
        key,
    )


def about(error: E, key: str) -> E:
    """The error as one of this key of a config."""
    vars(error)["config_key"] = key
    return error


def _shown(key: str) -> str:
    return f"{key}: " if key else ""


def _thing(said: Any, registry: Registry[Thing], key: str) -> tuple[Thing, str]:
    """What a type means, and what it is called."""
    if callable(said):
        return said, getattr(said, "__name__", repr(said))
    try:
        if isinstance(said, str):
            return _imported(said) if ":" in said else registry.get(said), said
    except (LuxmeterError, ImportError, AttributeError) as error:
        what = error.what if isinstance(error, LuxmeterError) else f"{said!r} cannot be imported: {error}."
        next_step = error.next_step if isinstance(error, LuxmeterError) else "Check it: package.module:Name."
        raise about(UsageError("unknown-name", _shown(key) + what, next_step), key) from error
    raise about(
        UsageError(
            "build-no-type",
            f"{_shown(key)}type={said!r} is no {registry.kind}.",
            "Give a name, package.module:Name, or a class.",
        ),
        key,
    )


def _imported(path: str) -> Any:
    module, _, names = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def _kind(argument: str, registry: Registry[Thing]) -> Registry[Thing]:
    """Of a config that stands under an argument of something of a kind."""
    return _KIND_OF.get(argument, MODULES if registry is TASKS else registry)


def _inside(value: Any, argument: str, registry: Registry[Thing], key: str, more: Mapping[str, Any]) -> Any:
    """An argument, with the configs in it built."""
    kind = _kind(argument, registry)
    return _built(value, kind, f"{key}.{argument}".lstrip("."), more if kind is registry else {})


def _built(value: Any, kind: Registry[Thing], key: str, more: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        if "type" in value:
            return build(value, kind, key=key, **more)
        return {name: _built(inner, kind, f"{key}.{name}", more) for name, inner in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_built(inner, kind, f"{key}.{n}", more) for n, inner in enumerate(value))
    return value


def _parameters(thing: Thing) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(thing).parameters
    except (TypeError, ValueError):  # written in C: it says itself what it does not take
        return {"anything": inspect.Parameter("anything", inspect.Parameter.VAR_KEYWORD)}


def _is_itself(thing: Thing, registry: Registry[Thing]) -> bool:
    """A function of these kinds is the loss or the transform: it is not called to make one."""
    return registry in (LOSSES, TRANSFORMS) and inspect.isroutine(thing)


def _checked(
    arguments: dict[str, Any],
    taken: Mapping[str, inspect.Parameter],
    name: str,
    key: str,
    *,
    needs_all: bool = True,
) -> list[Any]:
    """Refuse arguments that do not fit; take out those for `*args` and give them back."""
    kinds = {one.kind for one in taken.values()}
    spread = next((one.name for one in taken.values() if one.kind is one.VAR_POSITIONAL), None)
    named = [one for one in taken.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    known = [one.name for one in named] + ([spread] if spread else [])
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for argument in arguments:
            if argument not in known:
                raise about(
                    UsageError(
                        "build-argument",
                        f"{_shown(key)}{name} takes no argument {argument!r}.",
                        near_names(argument, known) or f"It takes {', '.join(known) or 'none'}.",
                    ),
                    f"{key}.{argument}".lstrip("."),
                )
    missing = [one.name for one in named if one.default is one.empty and one.name not in arguments]
    if missing and needs_all:
        raise about(
            UsageError(
                "build-argument",
                f"{_shown(key)}{name} needs {', '.join(missing)}.",
                f"Add {'it' if len(missing) == 1 else 'them'} beside its type.",
            ),
            key,
        )
    return list(arguments.pop(spread)) if spread in arguments else []
