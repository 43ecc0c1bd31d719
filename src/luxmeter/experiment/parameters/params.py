"""Parameters of an experiment: free or declared, nested, from code, files, environment and command line.

Who wins: defaults < file < environment < command line < code. What code sets before a source is read is a
default; what it sets afterwards stays. The order in which the sources are read does not matter.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from luxmeter.errors import MissingNameError, UsageError
from luxmeter.experiment.parameters import params_args, params_files, params_tree
from luxmeter.experiment.parameters.bounds import Bound, Choice, Range, Rule
from luxmeter.experiment.parameters.declared import (
    Declared,
    declare,
    fields_of,
    own_annotations,
    own_fields,
    plain_defaults,
)
from luxmeter.experiment.parameters.default_device import default_device
from luxmeter.experiment.parameters.fingerprint import fingerprint, same
from luxmeter.experiment.parameters.grid import combinations, spread
from luxmeter.experiment.parameters.params_tree import Absent, DefaultValue, Reading, Source
from luxmeter.experiment.parameters.schedules import SCHEDULES

P = TypeVar("P", bound="BaseParams")
ABSENT = Absent()


class BaseParams:
    """Parameters without presets. Names are set freely until `lock()`; reading one that nobody set raises.

    Annotated class attributes are declared: their types are checked on every set, and they make `--help`.
    A dict becomes nested parameters: `p.optim.lr`, `p["optim.lr"]` and `p["optim"]["lr"]` are the same.
    """

    SCHE: ClassVar = SCHEDULES  # the schedules by short name: `Params.SCHE.Cos(...)`
    _is_parameters: ClassVar[bool] = True
    _takes_new_names: ClassVar[bool] = True
    _own_fields: ClassVar[dict[str, Declared] | None] = {}
    _own_defaults: ClassVar[dict[str, Any]] = {}
    _known_fields: ClassVar[dict[str, Declared]]

    _values: dict[str, Any]
    _bounds: dict[str, Bound]
    _sources: dict[str, Source]
    _reached: Source
    _locked: bool
    _exp_name: str | None

    def __init_subclass__(cls, *, takes_new_names: bool | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        defaults = plain_defaults(cls)
        annotated = own_annotations(cls)
        for name in [*annotated, *defaults]:
            if hasattr(BaseParams, name):
                raise params_tree.reserved(name)
        if takes_new_names is not None or annotated:
            cls._takes_new_names = bool(takes_new_names)
        cls._own_defaults = defaults
        try:
            cls._own_fields = declare(cls, defaults, local_names=sys._getframe(1).f_locals)
        except NameError:
            cls._own_fields = None  # a type that is defined further down: looked up again at the first object
        for name in defaults:
            delattr(cls, name)  # otherwise reading would find the class's value before the object's

    def __new__(cls: type[P], *args: Any, **kwargs: Any) -> P:
        self = super().__new__(cls)
        state = {"_values": {}, "_bounds": {}, "_sources": {}, "_reached": Source.DEFAULT, "_locked": False}
        self.__dict__.update(state, _exp_name=None)
        return self

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        for cls in reversed(type(self).__mro__):
            if not (isinstance(cls, type) and issubclass(cls, BaseParams)):
                continue
            fields = own_fields(cls)
            for name, field in fields.items():
                if not field.required:
                    params_tree.put(self, name, field.make_default(), Source.DEFAULT)
            for name, value in cls._own_defaults.items():
                if name not in fields:
                    params_tree.put(self, name, copy.deepcopy(value), Source.DEFAULT)
        self.update({**(values or {}), **more})

    # Reading

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            return self._values[name]
        except KeyError:
            raise params_tree.missing_name(self, name) from None

    def __getitem__(self, name: str) -> Any:
        node, leaf = params_tree.holder(self, name)
        return node._values[leaf]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a (dotted) name, or `default` when nobody set it."""
        return self[name] if name in self else default  # noqa: SIM401  this is that get

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        node = params_tree.walk(self, tuple(name.split(".")))
        return node is not None and name.rpartition(".")[2] in node._values

    contains = __contains__

    def keys(self) -> Iterable[str]:
        """The names at this level, in the order they were set."""
        return self._values.keys()

    def values(self) -> Iterable[Any]:
        """The values at this level."""
        return self._values.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values at this level."""
        return self._values.items()

    def flat(self) -> dict[str, Any]:
        """Every value under its dotted name."""
        return params_tree.flat(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values})

    def __repr__(self) -> str:
        lines = [repr((name, _shown(value))) for name, value in self._values.items()]
        return f"{type(self).__name__}[" + ",\n ".join(lines) + "]"

    # Setting

    def __setattr__(self, name: str, value: Any) -> None:
        owned = getattr(type(self), name, None)
        if name.startswith("_") or hasattr(owned, "__set__"):
            object.__setattr__(self, name, value)
        elif owned is not None:
            raise params_tree.reserved(name)
        else:
            params_tree.put(self, name, value, self._reached)

    def __setitem__(self, name: str, value: Any) -> None:
        params_tree.put_dotted(self, params_tree.split(name), value, self._reached)

    def __delattr__(self, name: str) -> None:
        if name.startswith("_"):
            object.__delattr__(self, name)
        else:
            del self[name]

    def __delitem__(self, name: str) -> None:
        node, leaf = params_tree.holder(self, name)
        if node._locked:
            raise UsageError(
                "params-locked",
                f"{name} cannot be removed: the parameters are locked.",
                "Call unlock() first.",
            )
        del node._values[leaf]
        node._sources.pop(leaf, None)

    def update(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set many (dotted) names; what is nested is merged, not replaced."""
        for name, value in {**(values or {}), **more}.items():
            if isinstance(value, Mapping) and isinstance(self.get(name), BaseParams):
                self[name].update(value)
            else:
                self[name] = value

    def default(self, value: Any) -> Any:
        """A value that sets only what is not there yet: `p.lr = p.default(0.1)`."""
        return DefaultValue(value)

    def choice(self, name: str, *values: Any) -> Any:
        """Allow only `values` for `name`; the first one is its value unless it has one already."""
        if not values:
            raise UsageError(
                "no-choices",
                f"choice({name!r}) was given no values.",
                f"Write choice({name!r}, 'first', 'second').",
            )
        return params_tree.bind(self, name, Choice(values), values[0])

    def arange(
        self, name: str, default: Any, left: float = -float("inf"), right: float = float("inf")
    ) -> Any:
        """Allow only numbers from `left` to `right` for `name`, `default` unless it has one already."""
        return params_tree.bind(self, name, Range(left, right), default)

    def lambda_bound(self, name: str, default: Any, allows: Any) -> Any:
        """Allow only what the function `allows` says yes to (or, returning nothing, does not raise for)."""
        return params_tree.bind(self, name, Rule(allows), default)

    def lock(self: P) -> P:
        """From now on no name is added or removed; the values of the names that exist can still change."""
        params_tree.set_locked(self, True)
        return self

    def unlock(self: P) -> P:
        """Undo `lock()`."""
        params_tree.set_locked(self, False)
        return self

    # Sources

    def from_args(self: P, argv: Sequence[str] | None = None) -> P:
        """Take `--name=value`, `--name value`, `name=value`, `--flag`, `--no-flag` and `@file` from the command line."""
        arguments = params_args.arguments_of_process() if argv is None else list(argv)
        known = params_args.read(self, arguments)
        if known.wants_help:
            params_args.show_help(self)
            raise SystemExit(0)
        for path in known.files:
            self.from_file(path)
        self._take(known.texts, Source.ARGS, "the command line")
        params_tree.check_required(self)
        return self

    def from_file(self: P, path: str | os.PathLike[str], *, kind: str | None = None) -> P:
        """Take the values of a YAML, TOML or JSON file, by its suffix unless `kind` is another (`.json`)."""
        return self._take(params_files.read(Path(path), kind), Source.FILE, str(path))

    def from_env(self: P, prefix: str = "PARAMS_", environ: Mapping[str, str] | None = None) -> P:
        """Take `PREFIX_NAME` and `PREFIX_OUTER__INNER` from the environment; without a prefix only known names."""
        texts = params_args.from_environment(self, prefix, os.environ if environ is None else environ)
        return self._take(texts, Source.ENV, "the environment")

    from_json = params_files.FromFile(".json")
    from_yaml = params_files.FromFile(".yaml")
    from_toml = params_files.FromFile(".toml")

    def to_file(self, path: str | os.PathLike[str]) -> Path:
        """Write a YAML, TOML or JSON file (by its suffix) that `from_file` reads back."""
        return params_files.write(self._values, Path(path))

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The values as JSON text, also written to `path` if there is one."""
        if path is not None:
            params_files.write(self._values, Path(path), suffix=".json")
        return params_files.as_json(self._values)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dicts, the values as they are."""
        return {n: v.to_dict() if isinstance(v, BaseParams) else v for n, v in self._values.items()}

    def to_plain(self) -> dict[str, Any]:
        """As `to_dict`, with every value as JSON knows it; what JSON cannot hold becomes its repr. Never raises."""
        plain: dict[str, Any] = params_files.plain(self.to_dict(), fallback=repr)
        return plain

    # Comparing and copying

    def hash(self) -> str:
        """32 hex digits: equal for equal values, in every process and on every machine; the order does not count."""
        return fingerprint(self.to_dict())

    def diff(self, other: Mapping[str, Any] | BaseParams) -> dict[str, tuple[Any, Any]]:
        """Dotted name -> (mine, theirs) where they differ; a name only one side has is `ABSENT` on the other."""
        theirs = other if isinstance(other, BaseParams) else BaseParams(other)
        left, right = self.flat(), theirs.flat()
        pairs = {name: (left.get(name, ABSENT), right.get(name, ABSENT)) for name in {**left, **right}}
        return {name: pair for name, pair in pairs.items() if not same(*pair)}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping | BaseParams):
            return same(self.to_dict(), other.to_dict() if isinstance(other, BaseParams) else dict(other))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it can change; `hash()` gives the digest of now

    def copy(self: P) -> P:
        """An independent copy with the same bounds, not locked."""
        return copy.deepcopy(self).unlock()

    def grid_search(
        self: P, key: str | Mapping[str, Iterable[Any]], values: Iterable[Any] = ()
    ) -> Iterator[P]:
        """A copy for each value of `key`, or for each combination of `{key: values, ...}`; bounds hold in all."""
        grid = {key: values} if isinstance(key, str) else key
        for name in grid:
            if name not in self:
                params_tree.take(params_tree.shallow(self), {name: None}, Reading(Source.ARGS, "grid_search"))
        for chosen in combinations(grid):
            variant = self.copy()
            variant.update(chosen)
            yield variant

    def grid_range(
        self: P, key: str | int, start: float = 0, stop: float = 1, count: int = 2, *, log: bool = False
    ) -> Iterator[P]:
        """`count` copies with `key` spread evenly (or by `log`arithm) from start to stop; just copies for a number."""
        if isinstance(key, int):
            return (self.copy() for _ in range(key))
        return self.grid_search(key, spread(key, start, stop, count, log=log))

    # Experiments

    def optim_option(self, **options: Any) -> BaseParams:
        """Set `optim` to the options of an optimizer, and return it."""
        self["optim"] = options
        node: BaseParams = self._values["optim"]
        return node

    def create_optim(self, name: str, **options: Any) -> Any:
        """Set `optim` to a torch optimizer's name and options; `p.optim.build(parameters)` makes it."""
        from luxmeter.experiment.parameters.params_optim import OptimParams

        self["optim"] = OptimParams(name=name, **options)
        return self._values["optim"]

    def build_exp_name(self, prefix: str, *keys: str, sep: str = "_") -> str:
        """Name the experiment after some parameters: `mytrainer_lr=0.01`. Kept for `get_exp_name()`."""
        parts = [prefix, *(f"{key}={_shown(self[key])}" for key in keys)]
        self._exp_name = sep.join(
            part.replace("/", "-").replace("\\", "-").replace("\n", " ") for part in parts
        )
        return self._exp_name

    def get_exp_name(self) -> str:
        """The name that `build_exp_name` made."""
        if self._exp_name is None:
            raise MissingNameError(
                "no-experiment-name",
                "These parameters have no experiment name yet.",
                "Call build_exp_name() first.",
            )
        return self._exp_name

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls._from_value)

    @classmethod
    def _from_value(cls: type[P], value: Any) -> P:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping | BaseParams):
            raise ValueError(f"Input should be {cls.__name__} or a dict")
        made = cls()
        made._take(dict(value.items()), Source.DEFAULT, cls.__name__)
        return made

    # Inside

    @classmethod
    def _fields(cls) -> dict[str, Declared]:
        return fields_of(cls, BaseParams)

    @classmethod
    def _has_own_doc(cls) -> bool:
        return cls.__doc__ is not None and cls not in (BaseParams, Params)

    def _make_nested(self, values: Mapping[str, Any]) -> BaseParams:
        return BaseParams(values)

    def _take(self: P, values: Mapping[str, Any], source: Source, where: str) -> P:
        """Set what a source says: all of it, or on any error nothing."""
        params_tree.take(params_tree.shallow(self), values, Reading(source, where))
        params_tree.take(self, values, Reading(source, where))
        params_tree.reach(self, source)
        return self


Mapping.register(BaseParams)  # `**params.optim`, and `params == {...}`


class Params(BaseParams, takes_new_names=True):
    """Parameters with the presets a training needs: epoch, eidx, idx, global_step and device."""

    epoch: int = Field(10, description="how many epochs to train")
    eidx: int = Field(1, description="the epoch that runs now, from 1")
    idx: int = Field(0, description="the batch within the epoch")
    global_step: int = Field(0, description="batches since the start")
    device: Any = Field(default_factory=default_device, description="where to compute")


def _shown(value: Any) -> Any:
    return value.to_dict() if isinstance(value, BaseParams) else value
