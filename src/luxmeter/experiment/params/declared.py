"""The fields a class of parameters declares: annotated class attributes, their types checked by pydantic."""

from __future__ import annotations

import contextlib
import copy
import inspect
import operator
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from luxmeter.errors import UsageError
from luxmeter.literal import items, parse


@dataclass(frozen=True)
class Declared:
    """One declared parameter: its type, its default and what `--help` says of it."""

    name: str
    annotation: Any
    info: FieldInfo

    @property
    def required(self) -> bool:
        return self.info.is_required()

    @property
    def help(self) -> str:
        return self.info.description or ""

    @property
    def type_text(self) -> str:
        """The type as one would write it."""
        annotation = self.annotation
        if typing.get_origin(annotation) is Annotated:
            annotation = typing.get_args(annotation)[0]
        if typing.get_origin(annotation) is Literal:
            return "|".join(str(value) for value in typing.get_args(annotation))
        if isinstance(annotation, type) and not typing.get_args(annotation):
            return annotation.__name__
        return str(annotation).replace("typing.", "").replace("pathlib.", "")

    @property
    def is_flag(self) -> bool:
        return self.annotation is bool

    def takes_bool(self) -> bool:
        """Whether the type has room for a bool that stays one."""
        try:
            return self._adapter.validate_python(True, strict=True) is True
        except ValidationError:
            return False

    def make_default(self) -> Any:
        """A default of its own for each object, so that no two share a list."""
        factory: Any = self.info.default_factory
        return factory() if factory is not None else copy.deepcopy(self.info.default)

    def validate(self, value: Any, *, owner: str = "") -> Any:
        """`value` as the declared type, or an error that says why not."""
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = "".join(f"[{place!r}]" for place in first["loc"])
            raise UsageError(
                "wrong-type",
                f"{owner}{self.name} cannot be {value!r}: {where + ' ' if where else ''}{first['msg']}.",
                f"Give a value of type {self.type_text}.",
            ) from None

    def read_text(self, text: str, *, owner: str = "") -> Any:
        """The value that `text` from a command line or the environment means for this type."""
        if self.annotation is str:
            return self.validate(text, owner=owner)
        parts = items(text)
        readings: list[Any] = [
            parse(text),
            text,
            *([] if parts is None else [[parse(p) for p in parts], parts]),
        ]
        for reading in readings:
            try:
                return self.validate(reading, owner=owner)
            except UsageError:
                continue
        return self.validate(text, owner=owner)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        annotation: Any = operator.getitem(Annotated, (self.annotation, self.info))
        try:
            return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            return TypeAdapter(annotation)  # a pydantic model, dataclass or TypedDict brings its own


class Declaring:
    """What every class of parameters is: it knows what its body declares."""

    _declaration: ClassVar[Declaration]


class Declaration:
    """What the body of one class of parameters says: its fields, its plain defaults, whether other names may come in."""

    def __init__(
        self, cls: type[Declaring], *, takes_new_names: bool, local_names: Mapping[str, Any]
    ) -> None:
        self._cls = cls
        self.defaults = _plain_defaults(cls)
        self.takes_new_names = takes_new_names
        self._own: dict[str, Declared] | None = None
        self._all: dict[str, Declared] | None = None
        # A type that is defined further down is looked up again at the first object.
        with contextlib.suppress(NameError):
            self._own = _declared(cls, self.defaults, local_names)

    @staticmethod
    def of(cls: type) -> Declaration:
        """The class's own, not a parent's."""
        found: Declaration = cls.__dict__["_declaration"]
        return found

    @property
    def names(self) -> list[str]:
        """All that the body gives a type or a value."""
        return list(dict.fromkeys([*own_annotations(self._cls), *self.defaults]))

    @property
    def own(self) -> dict[str, Declared]:
        """The fields of this class alone."""
        if self._own is None:
            try:
                self._own = _declared(self._cls, self.defaults, {self._cls.__name__: self._cls})
            except NameError as error:
                raise UsageError(
                    "unknown-type",
                    f"{self._cls.__name__} declares a parameter with a type that cannot be found: {error}.",
                    "Define or import the type at the top of the module.",
                ) from error
        return self._own

    @property
    def fields(self) -> dict[str, Declared]:
        """All fields, those of the parents first."""
        if self._all is None:
            found: dict[str, Declared] = {}
            for declaration in self.lineage:
                found.update(declaration.own)
            self._all = found
        return self._all

    @property
    def lineage(self) -> list[Declaration]:
        """Those of the parents, and this one, the farthest first."""
        return [Declaration.of(c) for c in reversed(self._cls.__mro__) if "_declaration" in c.__dict__]


def own_annotations(cls: type) -> list[str]:
    """The names that the class body itself annotates, private ones left out."""
    return [name for name in inspect.get_annotations(cls) if not name.startswith("_")]


def _declared(cls: type, defaults: Mapping[str, Any], local_names: Mapping[str, Any]) -> dict[str, Declared]:
    """The fields of the class body. Raises NameError while a type named in it is not defined yet."""
    hints = typing.get_type_hints(cls, localns=dict(local_names), include_extras=True)
    fields = {}
    for name in own_annotations(cls):
        hint = hints[name]
        if hint is ClassVar or typing.get_origin(hint) is ClassVar:
            continue
        if name in defaults:
            info = FieldInfo.from_annotated_attribute(hint, defaults[name])
        else:
            info = FieldInfo.from_annotation(hint)
        if info.default is PydanticUndefined and info.default_factory is None and _builds_itself(hint):
            info.default_factory = hint
        fields[name] = Declared(name, hint, info)
    return fields


def _plain_defaults(cls: type) -> dict[str, Any]:
    """The class attributes that are values: not methods, properties, classes or private names."""
    behaviour = (types.FunctionType, classmethod, staticmethod, property, type, cached_property)
    annotated = inspect.get_annotations(cls)
    return {
        name: value
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and not _is_class_variable(annotated.get(name))
        and (name in annotated or not (isinstance(value, behaviour) or hasattr(value, "__get__")))
    }


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def _builds_itself(hint: Any) -> bool:
    """A nested class of parameters needs no default: an object of it is one."""
    return isinstance(hint, type) and issubclass(hint, Declaring)
