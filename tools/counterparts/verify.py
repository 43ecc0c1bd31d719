"""Run an operator of torch and its possible targets on the same samples, and tell which agree.

For a worker of `isolate`, in an interpreter that has both frameworks: a target may kill the process. `note` is told
before each sample which one it is, so that it can be known afterwards, and left out.
"""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from samples import Sampled, sampled, samples_of

import mindspore
from luxmeter.operators import randomness
from luxmeter.operators.counterparts import How, Status, Target
from luxmeter.operators.counterparts.agreement import agreement
from luxmeter.operators.counterparts.calling import call_on, named
from luxmeter.operators.counterparts.values import NotConvertible, settle, to_torch
from luxmeter.operators.resolve import callable_of, parameter_names

Note: TypeAlias = Callable[[str, int], None]
# Other names for the same parameter, torch's first.
_ALIASES = {
    "dim": ("axis", "axes", "dims", "dim"), "dims": ("axis", "axes", "dims", "dim"),
    "keepdim": ("keep_dims", "keepdims"), "self": ("input", "x", "input_x", "a"), "input": ("x", "input_x", "logits"),
    "other": ("y", "x2", "other", "value", "tensor2"), "p": ("p", "prob"), "stride": ("strides",), "size": ("shape", "size"),
    "dim0": ("axis0",), "dim1": ("axis1",), "correction": ("ddof",), "target": ("labels", "target", "label"),
    "eps": ("epsilon",), "negative_slope": ("alpha",), "index": ("index", "indices"), "weight": ("weight",),
    "dtype": ("dtype",), "n": ("n", "num"), "source": ("source", "y", "tensor"), "src": ("src", "source"),
    "exponent": ("exponent", "other", "y"), "descending": ("descending",), "offset": ("offset", "k"),
    "diagonal": ("diagonal",), "bins": ("bins",), "repeats": ("repeats",), "shifts": ("shifts", "shift"),
    "axis": ("axis", "dim"), "num_classes": ("depth", "num_classes"),
}  # fmt: skip


def names_with_samples() -> list[list[Any]]:
    """All names of torch that can be checked: [name, [[OpInfo, variant], ...], whether in place]."""
    return [[s.op, [list(key) for key in s.infos], s.in_place] for s in sampled()]


def verify(
    what: Sequence[Any],
    *,
    targets: Sequence[str | dict[str, Any]],
    most: int = 16,
    skip: Sequence[int] = (),
    note: Callable[[str, int], None] = lambda target, sample: None,
) -> dict[str, Any]:
    """Each target's best way of being called, with how many samples it took and on how many it agreed.

    A target is a name, and the way is found; or a name with its way, and only that is tried.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    op, infos, in_place = what
    case = Sampled(op, tuple((name, variant) for name, variant in infos), in_place)
    samples, dtype = samples_of(case, most=most)
    pairs = list(_references(case, samples))
    found = []
    for target in targets:
        name = target if isinstance(target, str) else target["name"]
        try:
            named(name)
        except AttributeError:
            continue
        ways = _ways(case.op, name, pairs) if isinstance(target, str) else iter([target_of(target)])
        found.append(_best(case, ways, pairs, frozenset(skip), note))
    return {"samples": len(pairs), "dtype": dtype, "targets": found}


def versions() -> dict[str, str]:
    """Of what is compared here."""
    return {"torch": torch.__version__.partition("+")[0], "mindspore": mindspore.__version__}


def _references(case: Sampled, samples: Sequence[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """(args, kwargs, torch's result) of every sample that torch itself takes under this name."""
    function = callable_of(case.op)
    for args, kwargs in samples:
        with torch.no_grad():
            try:
                mine = copy.deepcopy((args, kwargs)) if case.in_place else (args, kwargs)
                torch.manual_seed(0)
                yield args, kwargs, function(*mine[0], **mine[1])
            except Exception:  # noqa: BLE001  (a sample for another name of the operator)
                continue


def _best(
    case: Sampled, ways: Iterator[Target], pairs: Sequence[Any], skip: frozenset[int], note: Note
) -> dict[str, Any]:
    best: dict[str, Any] = {}
    for target in ways:
        tried = _tried(case, target, pairs, skip, note)
        if not best or tried["agree"] > best["agree"]:
            best = tried
        if tried["agree"] == len(pairs):
            break
    return best


def _ways(op: str, name: str, pairs: Sequence[Any]) -> Iterator[Target]:
    """How torch's arguments might be handed to it, the plainest first."""
    yield Target(name)
    keywords = {k for _, kwargs, _ in pairs for k in kwargs}
    most = max((len(args) for args, _, _ in pairs), default=0)
    taken = _parameters(name)
    if taken:
        renamed = _renamed(keywords, taken)
        if renamed:
            yield Target(name, names=renamed)
        known = tuple(
            n for args, kwargs, _ in pairs for n in parameter_names(op, len(args), tuple(kwargs))[1:]
        )
        if most > 1 and known:
            yield Target(name, "by_name", _renamed({*known, *keywords}, taken))
    ways: tuple[How, ...] = ("packed", "unpacked")
    for how in ways:
        if any(_fits(how, args) for args, _, _ in pairs):
            yield Target(name, how, _renamed(keywords, taken) if taken else ())


def _fits(how: How, args: Sequence[Any]) -> bool:
    last = args[-1] if args else None
    return isinstance(last, list | tuple) if how == "unpacked" else type(last) is int and len(args) > 1


def _renamed(names: set[str], taken: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names that the target does not have, with the one it has instead."""
    pairs = []
    for name in sorted(names):
        if name not in taken:
            other = next((a for a in _ALIASES.get(name, ()) if a in taken), None)
            if other:
                pairs.append((name, other))
    return tuple(pairs)


@functools.cache
def _parameters(name: str) -> tuple[str, ...]:
    """The parameters a target declares; none where it does not say."""
    try:
        found = inspect.signature(named(name)).parameters
    except (TypeError, ValueError):
        return ()
    kinds = {p.kind for p in found.values()}
    return () if inspect.Parameter.VAR_POSITIONAL in kinds else tuple(found)


def _tried(
    case: Sampled, target: Target, pairs: Sequence[Any], skip: frozenset[int], note: Note
) -> dict[str, Any]:
    tally: Counter[str] = Counter()
    edges: Counter[str] = Counter()  # samples without a single value: a matter of their own
    why: dict[str, str] = {}
    error = 0.0
    for number, (args, kwargs, wanted) in enumerate(pairs):
        note(target.name, number)
        if number in skip:
            kind, said, gap = "crashes", _shown(args, kwargs), 0.0
        else:
            kind, said, gap = _once(case, target, args, kwargs, wanted)
        if _is_empty((args, kwargs)):
            edges[kind] += 1
            kind = "empty" if kind != "equal" else kind
        else:
            tally[kind] += 1
            error = max(error, gap if kind == "equal" else 0.0)
        why.setdefault(kind, said if kind in ("raises", "crashes") else f"{said} ({_shown(args, kwargs)})")
    status = status_of(tally or edges, is_random(case))
    reason = reason_of(tally, why)
    if tally and edges.total() != edges["equal"]:
        reason = "; ".join(filter(None, [reason, f"with empty inputs: {why['empty']}"]))
    return {
        "name": target.name, "how": target.how, "names": dict(target.names), "fixed": dict(target.fixed),
        "samples": len(pairs), "agree": tally["equal"] + edges["equal"], "status": status, "why": reason[:300],
        "error": error,
    }  # fmt: skip


def _is_empty(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 0
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(_is_empty(v) for v in value)


def _once(case: Sampled, target: Target, args: Any, kwargs: Any, wanted: Any) -> tuple[str, str, float]:
    """What came of it, what is to be said about that, and the error."""
    compared = not is_random(case)
    settle()
    try:
        made = call_on(target, case.op, args, kwargs)
        found = agreement(wanted, to_torch(made.run()), values=compared)
        if case.in_place and made.args and found.kind == "equal":
            # The result is right and its argument too: that is what in place means.
            changed = agreement(wanted, to_torch(made.args[0]), values=compared)
            return (
                ("value", "its argument is not changed", 1.0)
                if changed.kind != "equal"
                else ("equal", "", 0.0)
            )
        return found.kind, found.why, found.error
    except NotConvertible as reason:
        return "raises", str(reason), 0.0
    except Exception as error:  # noqa: BLE001  (whatever MindSpore raises is the finding)
        return "raises", f"{type(error).__name__}: {first_line(error)}", 0.0


def is_random(case: Sampled) -> bool:
    """Whether its values differ from run to run. Those of a module do not: it runs in evaluation."""
    return randomness.is_random(case.op) and not case.op.rpartition(".")[2][0].isupper()


def status_of(tally: Counter[str], random: bool) -> Status:
    total = tally.total()
    if not total or tally["raises"] == total:
        return "raises"
    if tally["equal"] == total:
        return "random" if random else "equal"
    if tally["equal"] and tally["equal"] + tally["raises"] == total:
        return "random" if random else "partly"
    kinds: tuple[Status, ...] = ("crashes", "value", "shape", "dtype")
    return next((kind for kind in kinds if tally[kind]), "raises")


def reason_of(tally: Counter[str], why: dict[str, str]) -> str:
    total = tally.total()
    words = {"raises": "raises", "value": "other values", "dtype": "another dtype", "shape": "another shape",
             "crashes": "the process dies"}  # fmt: skip
    parts = [f"{words[k]} on {n} of {total}: {why[k]}" for k, n in tally.most_common() if k != "equal"]
    return "; ".join(parts)


def _shown(args: Any, kwargs: Any) -> str:
    from luxmeter.signature import describe

    return str(describe(tuple(args), dict(kwargs)))[:120]


def first_line(error: BaseException) -> str:
    """What an exception says in one line. MindSpore adds a C++ call stack below it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return (lines[0] if lines else "")[:160]


def target_of(said: dict[str, Any]) -> Target:
    """A target as `verify` tells it."""
    return Target(
        said["name"], said.get("how", "same"), tuple(said.get("names", {}).items()),
        tuple(said.get("fixed", {}).items()), said.get("samples", 0), said.get("agree", 0),
        said.get("status", "equal"), said.get("why", ""),
    )  # fmt: skip
