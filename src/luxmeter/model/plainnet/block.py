"""What every block of a structure string can do, the registry of blocks, and strings -> blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, overload

import torch
from torch import Tensor, nn

from luxmeter.errors import UsageError, suggestion
from luxmeter.model.plainnet.parser import Call, Number, parse_structure, pointed
from luxmeter.registry import Registry
from luxmeter.store import without_results

if TYPE_CHECKING:
    from luxmeter.model.records import ModelCost


@dataclass(frozen=True)
class BuildOptions:
    """How a string is built, beside what it says. `no_create` keeps to arithmetic: no weights, no forward."""

    no_create: bool = False
    no_reslink: bool = False
    no_bn: bool = False
    use_se: bool = False


PLAIN = BuildOptions()
"""A network just as its string says."""


class PlainNetBasicBlockClass(nn.Module):
    """A block that is written `Name(integers)`; `arguments` names the integers in their order.

    A block of your own sets `arguments`, makes its modules in `build()` and has a `forward`. Its sizes and FLOPs
    are then counted on the meta device; override the get_ methods where a formula is wanted.
    """

    arguments: ClassVar[tuple[str, ...]] = ("in_channels", "out_channels", "stride")
    optional: ClassVar[int] = 0
    """How many of the arguments, from the last backwards, may be left out."""
    branch_limits: ClassVar[tuple[int, int | None]] = (0, 0)
    """How many structures stand inside the parentheses: at least, at most."""

    in_channels: int
    out_channels: int
    stride: int = 1

    def __init__(
        self,
        *values: int,
        options: BuildOptions = PLAIN,
        block_name: str | None = None,
        **named: int,
    ) -> None:
        super().__init__()
        values += tuple(named.pop(name) for name in self.arguments[len(values) :] if name in named)
        if named:
            raise UsageError(
                "structure-arguments",
                f"{type(self).__name__} has no argument {', '.join(named)}.",
                f"Its arguments are ({', '.join(self.arguments)}).",
            )
        problem = self.problem(values)
        if problem:
            raise UsageError("structure-arguments", f"{problem[1]}.", self.usage())
        self.options = options
        self.block_name = block_name
        self._take(values)
        self.lay_out()
        if not options.no_create:
            self.build()

    # What a block of one's own defines.

    def lay_out(self) -> None:
        """Work out the inner structure; called with `no_create` too, and again when input channels change."""

    def build(self) -> None:
        """Create the modules that hold weights; called again when the input channels change."""

    def get_output_resolution(self, input_resolution: int) -> int:
        """The height of the output for an input of this height."""
        size = (1, self.in_channels, input_resolution, input_resolution)
        out: Tensor = self._on_meta()(torch.zeros(size, device="meta"))
        return out.shape[-1] if out.ndim == 4 else 1

    def get_FLOPs(self, input_resolution: int) -> int:
        """Multiply-adds for one square image, as the structure-string papers count; `analyze(...).macs`."""
        return self._counted(input_resolution).macs

    def get_elementwise(self, input_resolution: int) -> int:
        """Operations beside the multiply-adds, in evaluation: norms, activations, additions, pooling."""
        cost = self._counted(input_resolution)
        return cost.flops - 2 * cost.macs

    def get_model_size(self) -> int:
        """The number of parameters; `analyze(...).params`."""
        made = self._on_meta() if self.options.no_create else self
        return sum(parameter.numel() for parameter in made.parameters())

    def accepts(self, channels: int) -> bool:
        """Whether a tensor of this many channels can come in."""
        return channels == self.in_channels

    @classmethod
    def problem(cls, values: Sequence[int]) -> tuple[int | None, str] | None:
        """What is wrong with these arguments: the index of the one to blame, and the sentence; None if nothing."""
        most, least = len(cls.arguments), len(cls.arguments) - cls.optional
        if not least <= len(values) <= most:
            wanted = str(most) if least == most else f"{least} to {most}"
            return None, f"{cls.__name__} takes {wanted} arguments, {len(values)} were given"
        for index, (name, value) in enumerate(zip(cls.arguments, values, strict=False)):
            if name in _FLAGS and value not in (0, 1):
                return index, f"{name} of {cls.__name__} is {value}, 0 or 1 is needed"
            if name not in _FLAGS and value < 1:
                return index, f"{name} of {cls.__name__} is {value}, at least 1 is needed"
        return None

    # What every block has.

    def get_total_FLOPs(self, input_resolution: int) -> int:
        """Two operations a multiply-add, and the element-wise ones; `analyze(...).flops`."""
        return 2 * self.get_FLOPs(input_resolution) + self.get_elementwise(input_resolution)

    @classmethod
    def usage(cls) -> str:
        """How the block is written."""
        most = cls.branch_limits[1]
        inner = ["blocks;blocks;..."] if most is None else ["blocks"] * most
        return f"Write {cls.__name__}({','.join([*cls.arguments, *inner])})."

    @classmethod
    def is_instance_from_str(cls, s: str) -> bool:
        """Whether the string is written as this block, or as one derived from it."""
        name, opening, _ = s.strip().partition("(")
        written = bool(opening) and s.rstrip().endswith(")")
        return written and (name == cls.__name__ or (name in BLOCKS and issubclass(BLOCKS.get(name), cls)))

    @classmethod
    def create_from_str(cls, s: str, **options: bool) -> Self:
        """The block that the string describes: this one, or one derived from it.

        Options: no_create, no_reslink, no_bn, use_se.
        """
        calls = parse_structure(s)
        found = cls if calls[0].name == cls.__name__ else block_class(calls[0], s)
        if len(calls) == 1 and issubclass(found, cls):
            return found.from_call(calls[0], s, BuildOptions(**options))
        at, seen = (
            (calls[1].start, "more follows")
            if issubclass(found, cls)
            else (calls[0].start, f"{calls[0].name} was found")
        )
        raise UsageError(
            "structure-block",
            pointed(s, at, f"One {cls.__name__} was expected, {seen}"),
            "Use PlainNet or create_blocks_from_str for several blocks, or the class of that name.",
        )

    @classmethod
    def from_call(cls, call: Call, text: str, options: BuildOptions) -> Self:
        """The block of a parsed call; `text` is the whole string, for messages."""
        cls.check_call(call, text)
        return cls(*call.values, options=options, block_name=call.label)

    @classmethod
    def check_call(cls, call: Call, text: str) -> None:
        """Raise where the call does not fit this block."""
        problem = cls.problem(call.values)
        least, most = cls.branch_limits
        if problem is None and len(call.branches) < least:
            problem = None, f"{cls.__name__} holds blocks, none were given"
        if problem is None and most is not None and len(call.branches) > most:
            problem = None, f"{cls.__name__} takes {'integers only' if not most else 'one structure'}"
        if problem:
            at = call.start if problem[0] is None else call.numbers[problem[0]].start
            raise UsageError("structure-arguments", pointed(text, at, problem[1]), cls.usage())

    def follow(self, old: int, new: int) -> None:
        """Take `new` channels where `old` came in before."""
        self.set_input_channels(new)

    def call(self) -> Call:
        """This block as a parsed call."""
        numbers = tuple(Number(int(getattr(self, name))) for name in self.arguments)
        return Call(type(self).__name__, numbers, label=self.block_name)

    def set_input_channels(self, channels: int) -> None:
        """Take inputs of this many channels from now on. Weights whose shape stays are kept."""
        if channels == self.in_channels:
            return
        values = [
            channels if name in ("in_channels", "channels") else getattr(self, name)
            for name in self.arguments
        ]
        problem = self.problem(values)
        if problem:
            raise UsageError("structure-arguments", f"{problem[1]}.", self.usage())
        with saved_weights(self):
            self._take(values)
            self._modules.clear()
            self.lay_out()
            if not self.options.no_create:
                self.build()

    def __str__(self) -> str:
        return str(self.call())

    def __repr__(self) -> str:
        return str(self)

    def _take(self, values: Sequence[int]) -> None:
        for name, value in zip(self.arguments, values, strict=False):
            if name == "channels":
                self.in_channels = self.out_channels = value
            setattr(self, name, value)

    def _on_meta(self) -> PlainNetBasicBlockClass:
        with torch.device("meta"):
            return self.from_call(self.call(), str(self), replace(self.options, no_create=False)).eval()

    def _counted(self, resolution: int) -> ModelCost:
        from luxmeter.model.analysis import analyze  # here: building a network does not need it

        size = (1, self.in_channels, resolution, resolution)
        with without_results():
            return analyze(self._on_meta(), input_size=size, backward=False)


_FLAGS = {"bias"}
"""Arguments that say yes or no; all others count something."""

Block = TypeVar("Block", bound=type[PlainNetBasicBlockClass])
BLOCKS: Registry[type[PlainNetBasicBlockClass]] = Registry("block", group="luxmeter.plainnet_blocks")


@overload
def register_block(block: Block, *, replace: bool = False) -> Block: ...
@overload
def register_block(block: None = None, *, replace: bool = False) -> Callable[[Block], Block]: ...
def register_block(block: Block | None = None, *, replace: bool = False) -> Block | Callable[[Block], Block]:
    """Make a block class known to structure strings under its own name; a decorator, with or without brackets."""
    if block is None:
        return lambda decorated: register_block(decorated, replace=replace)
    if not (isinstance(block, type) and issubclass(block, PlainNetBasicBlockClass)):
        raise UsageError(
            "block-not-usable",
            f"{block!r} cannot be a block of structure strings.",
            "Register a class that derives from PlainNetBasicBlockClass.",
        )
    BLOCKS.register(block.__name__, block, replace=replace)
    return block


def block_class(call: Call, text: str) -> type[PlainNetBasicBlockClass]:
    """The class a call names."""
    if call.name in BLOCKS:
        return BLOCKS.get(call.name)
    raise UsageError(
        "structure-block",
        pointed(text, call.start, f"There is no block called {call.name!r}"),
        suggestion(call.name, BLOCKS.names()) or f"Known: {', '.join(BLOCKS.names())}.",
    )


def build_blocks(
    calls: Sequence[Call], text: str, options: BuildOptions, *, channels: int | None = None
) -> list[PlainNetBasicBlockClass]:
    """The blocks of these calls, each checked to take what the one before it gives (`channels` for the first)."""
    blocks: list[PlainNetBasicBlockClass] = []
    giver = "the input"
    for index, call in enumerate(calls, start=1):
        block = block_class(call, text).from_call(call, text, options)
        if channels is not None and not block.accepts(channels):
            at = call.numbers[0].start if call.numbers else call.start
            raise UsageError(
                "structure-channels",
                pointed(
                    text,
                    at,
                    f"Block {index} ({call.name}) takes {block.in_channels} channels, but {giver} gives {channels}",
                ),
                f"Make its input {channels}, or change what comes before it.",
            )
        channels, giver = block.out_channels, f"block {index} ({call.name})"
        blocks.append(block)
    return blocks


def create_blocks_from_str(s: str, **options: bool) -> list[PlainNetBasicBlockClass]:
    """The blocks of a structure string. Options: no_create, no_reslink, no_bn, use_se."""
    return build_blocks(parse_structure(s), s, BuildOptions(**options))


class saved_weights:
    """While the block is rebuilt inside: mode, device, dtype, and every weight whose name and shape stay."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __enter__(self) -> None:
        self.state = self.module.state_dict()
        self.training = self.module.training
        self.like = next(self.module.parameters(), None)

    def __exit__(self, *exc: Any) -> None:
        if exc[0] is not None:
            return
        if self.like is not None:
            self.module.to(device=self.like.device, dtype=self.like.dtype)
        fresh = self.module.state_dict()
        kept = {k: v for k, v in self.state.items() if k in fresh and fresh[k].shape == v.shape}
        self.module.load_state_dict({**fresh, **kept})
        self.module.train(self.training)
