"""The model of a task, assembled from the configs of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from luxmeter.errors import UsageError, near_names
from luxmeter.experiment import BaseParams
from luxmeter.train.registries import MODULES, build
from luxmeter.train.task.named_arguments import IN_TASK, Arguments, arguments_of

SINGLE, SINGLE_OUTPUT = "net", "output"  # what a model that is no assembly is called, and what it gives


@dataclass(frozen=True)
class Part:
    """How a part is called."""

    name: str
    arguments: Arguments
    outputs: tuple[str, ...]  # what its results are called
    previous: str | None  # the part written before it


class TaskModel(nn.Module):
    """Parts by name, each a config or a module, run so that each finds what it takes; otherwise as they are written.

    A part with one required argument takes what the part before it gave; the first one, the entry of the batch of that
    name, or else the first. One with several takes entries of the batch and outputs of parts by their names. `inputs` in a
    config says otherwise; `outputs` says what its results are called, by default as the part. `"@backbone.out_features"` in
    a config is an attribute of another part, `"@backbone"` the part itself.
    """

    def __init__(self, sub_module_cfg: Mapping[str, Any] | nn.Module) -> None:
        super().__init__()
        if isinstance(sub_module_cfg, BaseParams):
            sub_module_cfg = sub_module_cfg.to_dict()
        is_single = isinstance(sub_module_cfg, nn.Module) or "type" in sub_module_cfg
        cfgs: dict[str, Any] = {SINGLE: sub_module_cfg} if is_single else dict(sub_module_cfg)  # type: ignore[arg-type]
        if not cfgs:
            raise UsageError(
                "part-absent", "sub_module_cfg has no parts.", 'Give one: {"net": {"type": ...}}.'
            )
        modules = _made(cfgs)
        parts: list[Part] = []
        for name, cfg in cfgs.items():
            said: Mapping[str, Any] = cfg if isinstance(cfg, Mapping) else {}
            outputs = said.get("outputs", SINGLE_OUTPUT if is_single else name)
            key = f"{IN_TASK}sub_module_cfg.{name}"
            arguments = arguments_of(modules[name], said.get("inputs"), who=f"The part {name!r}", key=key)
            outputs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
            parts.append(Part(name, arguments, outputs, parts[-1].name if parts else None))
            try:
                self.add_module(name, modules[name])
            except (KeyError, TypeError) as error:
                raise UsageError(
                    "part-name", f"A part cannot be called {name!r}: {error}.", "Choose another name."
                ) from error
        self._parts = _in_order(parts)

    def forward(self, model_inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of all parts, by name."""
        entries: dict[str, Any] = {**model_inputs, "model_inputs": model_inputs}
        outputs: dict[str, Any] = {}
        given: dict[str, Any] = {}  # by each part, whatever it is called
        for part in self._parts:
            module, only = getattr(self, part.name), part.arguments.only
            if only is None or (part.previous is None and only.entry in model_inputs) or not model_inputs:
                result = part.arguments.call(module, entries)
            elif part.previous is None:
                result = module(next(iter(model_inputs.values())))
            else:
                result = module(given[part.previous])
            given[part.name] = result
            named = _named(part, result)
            outputs.update(named)
            entries.update(named)
        return outputs


def _named(part: Part, result: Any) -> dict[str, Any]:
    if len(part.outputs) == 1:
        return {part.outputs[0]: result, **(result if isinstance(result, Mapping) else {})}
    if not isinstance(result, list | tuple) or len(result) != len(part.outputs):
        many = f"{len(result)} values" if isinstance(result, list | tuple) else f"a {type(result).__name__}"
        raise UsageError(
            "part-outputs",
            f"The part {part.name!r} gave {many}, but its outputs are {', '.join(part.outputs)}.",
            "Name as many outputs as it gives.",
        )
    return dict(zip(part.outputs, result, strict=True))


def _made(cfgs: Mapping[str, Any]) -> dict[str, nn.Module]:
    """The parts, made in an order in which each reference is to one that is there."""
    made: dict[str, nn.Module] = {}
    waiting = list(cfgs)
    while waiting:
        ready = [name for name in waiting if all(ref in made for ref in _references(name, cfgs))]
        if not ready:
            raise _circle(waiting, "refer to")
        name, cfg = ready[0], cfgs[ready[0]]
        if isinstance(cfg, Mapping):
            own = {key: value for key, value in cfg.items() if key not in ("inputs", "outputs")}
            cfg = _resolved(own, made, name)
        module = build(cfg, MODULES, key=f"sub_module_cfg.{name}")
        if not isinstance(module, nn.Module):
            raise UsageError(
                "part-kind",
                f"The part {name!r} is a {type(module).__name__}, no module of torch.",
                "Give a class that derives from torch.nn.Module.",
            )
        made[name] = module
        waiting.remove(name)
    return made


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _references(name: str, cfgs: Mapping[str, Any]) -> list[str]:
    """The parts that a part refers to."""
    found = [text[1:].partition(".")[0] for text in _texts(cfgs[name]) if text.startswith("@")]
    for one in found:
        if one not in cfgs:
            raise UsageError(
                "part-absent",
                f"The part {name!r} refers to '@{one}', which is no part.",
                near_names(one, cfgs) or f"There are {', '.join(cfgs)}.",
            )
    return found


def _resolved(value: Any, made: Mapping[str, nn.Module], name: str) -> Any:
    """A config with what its references mean in their stead."""
    if isinstance(value, str) and value.startswith("@"):
        part, *attributes = value[1:].split(".")
        found: Any = made[part]
        for attribute in attributes:
            if not hasattr(found, attribute):
                raise UsageError(
                    "part-attribute",
                    f"The part {name!r} refers to {value!r}, but {type(found).__name__} has no {attribute!r}.",
                    near_names(attribute, dir(found)) or "Give the number itself.",
                )
            found = getattr(found, attribute)
        return found
    if isinstance(value, Mapping):
        return {key: _resolved(inner, made, name) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_resolved(inner, made, name) for inner in value)
    return value


def _in_order(parts: list[Part]) -> list[Part]:
    """The parts in an order in which each comes behind those whose outputs it takes."""
    giver: dict[str, str] = {}
    for part in parts:
        for output in part.outputs:
            if output in giver:
                raise UsageError(
                    "part-outputs",
                    f"The parts {giver[output]!r} and {part.name!r} both give {output!r}.",
                    'Say what one of them gives: "outputs": "another name".',
                )
            giver[output] = part.name
    ordered: list[Part] = []
    waiting = list(parts)
    while waiting:
        done = {part.name for part in ordered}
        ready = [part for part in waiting if set(_needed(part, giver)) <= done]
        if not ready:
            raise _circle((part.name for part in waiting), "wait for")
        ordered.append(ready[0])
        waiting.remove(ready[0])
    return ordered


def _needed(part: Part, giver: Mapping[str, str]) -> Iterable[str]:
    if part.arguments.only is not None:
        return [part.previous] if part.previous else []
    return [giver[one.entry] for one in part.arguments.wanted if giver.get(one.entry, part.name) != part.name]


def _circle(names: Iterable[str], how: str) -> UsageError:
    return UsageError(
        "part-circle",
        f"The parts {', '.join(names)} {how} each other in a circle.",
        "Let one of them do without the others.",
    )
