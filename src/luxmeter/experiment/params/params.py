"""Parameters of an experiment: free or declared, nested, from code, files, environment and command line.

Who wins: defaults < file < environment < command line < code. What code sets before a source is read is a
default; what it sets afterwards stays. The order in which the sources are read does not matter.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from luxmeter.errors import MissingNameError, UsageError, suggestion
from luxmeter.experiment.params import command_line, files
from luxmeter.experiment.params.bounds import Choice, Range, Rule
from luxmeter.experiment.params.declared import Declaration, Declaring, own_annotations
from luxmeter.experiment.params.level import DefaultValue, Level, Source, name_of_class, reserved, split
from luxmeter.experiment.params.schedules import SCHEDULES
from luxmeter.identity import fingerprint, same
from luxmeter.ranks import own_rank
from luxmeter.torch_extra import has_torch

if TYPE_CHECKING:
    import torch

P = TypeVar("P", bound="BaseParams")


class Absent:
    """Stands for a name that one side does not have."""

    def __repr__(self) -> str:
        return "<absent>"


ABSENT = Absent()


class BaseParams(Declaring):
    """Parameters without presets. Names are set freely until `lock()`; reading one that nobody set raises.

    Annotated class attributes are declared: their types are checked on every set, and they make `--help`.
    A dict becomes nested parameters: `p.optim.lr`, `p["optim.lr"]` and `p["optim"]["lr"]` are the same.
    """

    SCHE: ClassVar[Any] = SCHEDULES  # the schedules by short name: `Params.SCHE.Cos(...)`

    _level: Level
    _exp_name: str | None

    def __init_subclass__(cls, *, takes_new_names: bool | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if takes_new_names is None and not own_annotations(cls):
            takes_new_names = cls._declaration.takes_new_names  # the parent's
        local_names = sys._getframe(1).f_locals
        made = Declaration(cls, takes_new_names=bool(takes_new_names), local_names=local_names)
        for name in made.names:
            if hasattr(BaseParams, name):
                raise reserved(name)
        cls._declaration = made
        for name in made.defaults:
            delattr(cls, name)  # otherwise reading would find the class's value before the object's

    def __new__(cls: type[P], *args: Any, **kwargs: Any) -> P:
        self = super().__new__(cls)
        self.__dict__.update(_level=Level(cls, BaseParams), _exp_name=None)
        return self

    def __init__(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        for declaration in self._level.declaration.lineage:
            for name, field in declaration.own.items():
                if not field.required:
                    self._level.put(name, field.make_default(), Source.DEFAULT)
            for name, value in declaration.defaults.items():
                if name not in declaration.own:
                    self._level.put(name, copy.deepcopy(value), Source.DEFAULT)
        self.update({**(values or {}), **more})

    # Reading

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            return self._level.values[name]
        except KeyError:
            raise self._level.missing(name) from None

    def __getitem__(self, name: str) -> Any:
        level, leaf = self._level.holder(name)
        return level.values[leaf]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a (dotted) name, or `default` when nobody set it."""
        return self[name] if name in self else default  # noqa: SIM401  this is that get

    def __contains__(self, name: object) -> bool:
        return name in self._level

    contains = __contains__

    def keys(self) -> Iterable[str]:
        """The names at this level, in the order they were set."""
        return self._level.values.keys()

    def values(self) -> Iterable[Any]:
        """The values at this level."""
        return self._level.values.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values at this level."""
        return self._level.values.items()

    def flat(self) -> dict[str, Any]:
        """Every value under its dotted name."""
        return self._level.flat()

    def __iter__(self) -> Iterator[str]:
        return iter(self._level.values)

    def __len__(self) -> int:
        return len(self._level.values)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._level.values})

    def __repr__(self) -> str:
        lines = [repr((name, _shown(value))) for name, value in self._level.values.items()]
        return f"{type(self).__name__}[" + ",\n ".join(lines) + "]"

    # Setting

    def __setattr__(self, name: str, value: Any) -> None:
        owned = getattr(type(self), name, None)
        if name.startswith("_") or hasattr(owned, "__set__"):
            object.__setattr__(self, name, value)
        elif owned is not None:
            raise reserved(name)
        else:
            self._level.put(name, value, self._level.reached)

    def __setitem__(self, name: str, value: Any) -> None:
        self._level.put_dotted(split(name), value, self._level.reached)

    def __delattr__(self, name: str) -> None:
        if name.startswith("_"):
            object.__delattr__(self, name)
        else:
            del self[name]

    def __delitem__(self, name: str) -> None:
        self._level.remove(name)

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
        return self._level.bind(name, Choice(values), values[0])

    def arange(
        self, name: str, default: Any, left: float = -float("inf"), right: float = float("inf")
    ) -> Any:
        """Allow only numbers from `left` to `right` for `name`, `default` unless it has one already."""
        return self._level.bind(name, Range(left, right), default)

    def lambda_bound(self, name: str, default: Any, allows: Any) -> Any:
        """Allow only what the function `allows` says yes to (or, returning nothing, does not raise for)."""
        return self._level.bind(name, Rule(allows), default)

    def lock(self: P) -> P:
        """From now on no name is added or removed; the values of the names that exist can still change."""
        self._level.lock(True)
        return self

    def unlock(self: P) -> P:
        """Undo `lock()`."""
        self._level.lock(False)
        return self

    # Sources

    def from_args(self: P, argv: Sequence[str] | None = None) -> P:
        """Take `--name=value`, `--name value`, `name=value`, `--flag`, `--no-flag` and `@file` from the command line."""
        arguments = command_line.arguments_of_process() if argv is None else list(argv)
        if argv is None and "LUXMETER_HANDOVER" in os.environ:
            self._tell_space()
        known = command_line.read(self._level, arguments)
        if known.wants_help:
            own = type(self) not in (BaseParams, Params)
            command_line.show_help(self._level, (type(self).__doc__ or "") if own else "")
            raise SystemExit(0)
        for path in known.files:
            self.from_file(path)
        self._level.read(known.texts, Source.ARGS, "the command line")
        self._level.check_required()
        return self

    def _tell_space(self) -> None:
        """For `luxmeter sweep`, which starts a program only to hear what can be searched."""
        from luxmeter.experiment.params.space import tell_space
        from luxmeter.experiment.reproduce.handover import job_given

        asked = (job_given() or {}).get("tell space")
        if asked:
            tell_space(self._level, Path(asked))
            raise SystemExit(0)

    def from_file(self: P, path: str | os.PathLike[str], *, kind: str | None = None) -> P:
        """Take the values of a YAML, TOML or JSON file, by its suffix unless `kind` is another (`.json`)."""
        self._level.read(files.read(Path(path), kind), Source.FILE, str(path))
        return self

    def from_env(self: P, prefix: str = "PARAMS_", environ: Mapping[str, str] | None = None) -> P:
        """Take `PREFIX_NAME` and `PREFIX_OUTER__INNER` from the environment; without a prefix only known names."""
        texts = command_line.from_environment(self._level, prefix, os.environ if environ is None else environ)
        self._level.read(texts, Source.ENV, "the environment")
        return self

    from_json = files.FromFile(".json")
    from_yaml = files.FromFile(".yaml")
    from_toml = files.FromFile(".toml")

    def to_file(self, path: str | os.PathLike[str]) -> Path:
        """Write a YAML, TOML or JSON file (by its suffix) that `from_file` reads back."""
        return files.write(self._level.values, Path(path))

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The values as JSON text, also written to `path` if there is one."""
        if path is not None:
            files.write(self._level.values, Path(path), suffix=".json")
        return files.as_json(self._level.values)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain dicts, the values as they are."""
        return self._level.to_dict()

    def to_plain(self) -> dict[str, Any]:
        """As `to_dict`, with every value as JSON knows it; what JSON cannot hold becomes its repr. Never raises."""
        plain: dict[str, Any] = files.plain(self.to_dict(), fallback=repr)
        return plain

    def live_values(self) -> dict[str, Any]:
        """The values of this level themselves: what is written here is not checked. For what changes with every batch."""
        return self._level.values

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
                self._level.try_reading({name: None}, Source.ARGS, "grid_search")
        for chosen in _combinations(grid):
            variant = self.copy()
            variant.update(chosen)
            yield variant

    def grid_range(
        self: P, key: str | int, start: float = 0, stop: float = 1, count: int = 2, *, log: bool = False
    ) -> Iterator[P]:
        """`count` copies with `key` spread evenly (or by `log`arithm) from start to stop; just copies for a number."""
        if isinstance(key, int):
            return (self.copy() for _ in range(key))
        return self.grid_search(key, _spread(key, start, stop, count, log=log))

    # Experiments

    def optim_option(self, **options: Any) -> BaseParams:
        """Set `optim` to the options of an optimizer, and return it."""
        self["optim"] = options
        node: BaseParams = self._level.values["optim"]
        return node

    def create_optim(self, name: str, **options: Any) -> OptimParams:
        """Set `optim` to a torch optimizer's name and options; `p.optim.build(parameters)` makes it."""
        self["optim"] = OptimParams(name=name, **options)
        return cast(OptimParams, self._level.values["optim"])

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
        made._level.read(dict(value.items()), Source.DEFAULT, name_of_class(cls))
        return made


BaseParams._declaration = Declaration(BaseParams, takes_new_names=True, local_names={})
Mapping.register(BaseParams)  # `**params.optim`, and `params == {...}`


def default_device() -> str:
    """The accelerator of this process if there is one (by its local rank), otherwise the CPU."""
    if not has_torch():
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return f"cuda:{own_rank().local_rank % max(1, torch.cuda.device_count())}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


class Params(BaseParams, takes_new_names=True):
    """Parameters with the presets a training needs: epoch, eidx, idx, global_step and device."""

    epoch: int = Field(10, description="how many epochs to train")
    eidx: int = Field(1, description="the epoch that runs now, from 1")
    idx: int = Field(0, description="the batch within the epoch")
    global_step: int = Field(0, description="batches since the start")
    device: Any = Field(default_factory=default_device, description="where to compute")


class OptimParams(BaseParams, takes_new_names=True):
    """`name` is a class of torch.optim; all other names are its options."""

    name: str = "SGD"

    def build(self, parameters: Any) -> torch.optim.Optimizer:
        """The optimizer over `parameters` (an iterable, named or in groups, as torch takes them)."""
        import torch

        known = [n for n, v in vars(torch.optim).items() if isinstance(v, type) and n != "Optimizer"]
        if self.name not in known:
            raise UsageError(
                "unknown-optimizer",
                f"torch.optim has no optimizer {self.name!r}.",
                suggestion(self.name, known) or f"It has {', '.join(sorted(known))}.",
            )
        options = {option: value for option, value in self.to_dict().items() if option != "name"}
        try:
            return cast("torch.optim.Optimizer", getattr(torch.optim, self.name)(parameters, **options))
        except TypeError as error:
            raise UsageError(
                "optimizer-options",
                f"{self.name} was given {options}: {error}.",
                "Change the options of `optim`.",
            ) from error


files.OWN_TYPES["OptimParams"] = OptimParams


def _shown(value: Any) -> Any:
    return value.to_dict() if isinstance(value, BaseParams) else value


def _combinations(grid: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination, the last name changing fastest."""
    names = list(grid)
    for name in names:
        if isinstance(grid[name], str) or not isinstance(grid[name], Iterable):
            raise UsageError(
                "grid-values",
                f"The values to search for {name!r} are {grid[name]!r}.",
                f"Give a list: grid_search({name!r}, [...]).",
            )
    for chosen in itertools.product(*(list(grid[name]) for name in names)):
        yield dict(zip(names, chosen, strict=True))


def _spread(name: str, start: float, stop: float, count: int, *, log: bool = False) -> list[float]:
    """`count` numbers from `start` to `stop`, both included, evenly spread (by their logarithms with `log`)."""
    if count < 1 or (log and (start <= 0 or stop <= 0)):
        raise UsageError(
            "grid-range",
            f"{name!r} cannot go from {start} to {stop} in {count} values{' by logarithm' if log else ''}.",
            "Ask for at least one value; by logarithm both ends must be above zero.",
        )
    if count == 1:
        return [start]
    if log:
        low, high = math.log(start), math.log(stop)
        inner = [math.exp(low + (high - low) * i / (count - 1)) for i in range(1, count - 1)]
    else:
        inner = [start + (stop - start) * i / (count - 1) for i in range(1, count - 1)]
    # Twelve digits: 0.01 rather than 0.009999999999999998, which would be another hash and an ugly name.
    numbers = [start, *(float(f"{n:.12g}") for n in inner), stop]
    if all(isinstance(n, int) for n in (start, stop)) and all(float(n).is_integer() for n in numbers):
        return [int(n) for n in numbers]
    return numbers
