"""What the recorder's numbers stand for: kept in memory by id, and told to the trace's folder as they are used."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from luxmeter.calls.checked import check_line
from luxmeter.calls.records import CALL, SECTION, STEP, CallableNames, SignatureNames, SiteNames
from luxmeter.calls.sites import Sources, UserCode, site_names
from luxmeter.signature import Opaque, Signature, describe, signature_from_json, tensors_in
from luxmeter.signature import to_json as signature_to_json
from luxmeter.torch_extra import has_torch

if TYPE_CHECKING:
    from luxmeter.calls.arguments import Arguments
    from luxmeter.calls.core._core import Recorder

OWN_NAME = "(luxmeter)"
UNKNOWN = Signature((Opaque("unknown"),))  # of a call whose arguments could not be described
# Floats are left out of a signature's key: 200 steps of Adam are one signature. Here they decide the size of the result.
SHAPED_BY_FLOATS = frozenset(
    {
        "torch.arange",
        "torch.range",
        *(
            f"torch.nn.functional.{name}"
            for name in ("interpolate", "upsample", "upsample_nearest", "upsample_bilinear")
        ),
        *(
            f"torch.nn.functional.fractional_max_pool{n}d{more}"
            for n in (2, 3)
            for more in ("", "_with_indices")
        ),
    }
)
_NOBODY = CallableNames("")  # at a number whose callable is being added
Describer: TypeAlias = dict[str, Any]  # "facts": what looks at values (signature.Looks), "module"


class Names:
    """Names for ids. `add` is called by whoever patches; `on_signature` and `on_thread` by the core."""

    def __init__(
        self, arguments: Arguments, how: Describer | None = None, user_code: UserCode | None = None
    ) -> None:
        """`user_code`: of which the lines are told; None: of none."""
        self._arguments = arguments
        self.user_code = user_code
        self.sources: Sources | None = None  # where the texts of the program's files are kept
        self._describer = how or {}  # keyword arguments for signature.describe: facts=, module=
        self.callables: list[CallableNames] = [CallableNames(OWN_NAME)]
        self.signatures: dict[int, SignatureNames] = {}
        self.threads: dict[int, str] = {}
        self.idents: dict[int, int] = {}  # of threads, to their numbers
        self.sections: dict[str, int] = {}
        self._described: dict[int, int] = {}  # signature -> callable, while it is described
        # Handed from the program's threads to the writer one by one: to walk a dictionary that they add to would fail.
        self._new: deque[tuple[str, int]] = deque()
        self._untold: dict[
            tuple[str, int], None
        ] = {}  # in order; those given by `untold_lines` and not yet `told`
        self._given: list[tuple[str, int]] = []
        self._told: set[tuple[str, int]] = set()  # callables and sites
        self.refused: Exception | None = None  # why something could not be told the last time
        self._recorder: Recorder | None = None
        self.token: Any = None

    def attach(self, recorder: Recorder) -> None:
        """The recorder whose ids these are."""
        self._recorder = recorder

    def add(
        self,
        name: str,
        *,
        label: str = "",
        kind: int = CALL,
        path: str = "",
        module: bool = False,
        record: bool = True,
        boundary: bool = False,
        framework: str = "",
    ) -> int:
        """A new callable id."""
        assert self._recorder is not None
        number = self._recorder.add_callable(
            name, kind=kind, module=module, record=record, boundary=boundary, floats=name in SHAPED_BY_FLOATS
        )
        while len(self.callables) <= number:  # other threads may do the same: a place too many is harmless
            self.callables.append(_NOBODY)
        self.callables[number] = CallableNames(name, label, kind, path, framework, boundary)
        return number

    def section(self, name: str) -> int:
        """The id of the section of this name inside the innermost open one of this thread."""
        assert self._recorder is not None
        outer = self._recorder.section()
        path = f"{self.callables[outer].name}/{name}" if outer else name
        if path not in self.sections:
            self.sections[path] = self.add(path, kind=SECTION)
        return self.sections[path]

    def step(self) -> int:
        """The id of what t.step() leaves."""
        if STEP not in self.sections:
            self.sections[STEP] = self.add(STEP, kind=SECTION)
        return self.sections[STEP]

    def child_token(self) -> Any:
        """What a spawned worker needs to join the trace; None when it cannot."""
        return self.token

    # -- hooks of the core

    def on_signature(
        self,
        callable_id: int,
        signature_id: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        general: bool,
    ) -> None:
        """Describe a call's arguments, the first time they look like this."""
        if general:
            self._add_signature(signature_id, _general(callable_id))
            return
        self._described[signature_id] = callable_id
        found = UNKNOWN  # stays so if describing it raises, which the core counts
        try:
            with self._arguments.quiet():
                how = dict(self._describer)
                if "facts" in how:
                    how["facts"] = how["facts"].of_signature() if self._arguments.may_compute() else None
                # A whole model is no operator: its class is enough.
                if self.callables[callable_id].kind != CALL:
                    how.pop("module", None)
                found = describe(args, kwargs, **how)
        finally:
            self._add_signature(signature_id, SignatureNames(callable_id, found))
            del self._described[signature_id]

    def on_result(self, signature_id: int, result: Any) -> None:
        """Keep the shapes of what the first call of a signature gave: what a replay is held against."""
        with self._arguments.quiet():
            outputs = tuple(t.shape for t in tensors_in(describe((result,)).args))
        names = self.signatures.get(signature_id)  # None: another thread was first, and still describes it
        if names is not None and not names.general:
            self._add_signature(signature_id, replace(names, outputs=outputs))

    def _add_signature(self, number: int, names: SignatureNames) -> None:
        self.signatures[number] = names
        self._new.append(("signature", number))

    @property
    def unlooked(self) -> int:
        """Tensors whose values were not looked at because that would have taken too long."""
        return self._describer["facts"].skipped if "facts" in self._describer else 0

    def on_thread(self, number: int) -> None:
        """Note the name of the thread that begins to record (without making one up for it in `threading`)."""
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        self.threads[number] = thread.name if thread is not None else f"native-{threading.get_native_id()}"
        self.idents[threading.get_ident()] = number
        self._new.append(("thread", number))

    # -- to the folder and back

    def untold_lines(
        self, callables: Iterable[int], sites: Iterable[int] = (), *, last: bool = False
    ) -> list[str]:
        """JSON lines for what the folder does not hold: these callables and sites, and all signatures and threads since.

        They are given again until `told` is called. One that cannot be written waits; with `last` it is unknown for good.
        """
        while self._new:
            self._untold[self._new.popleft()] = None
        used = [*(("callable", n) for n in callables), *(("site", n) for n in sites if n)]
        self._untold.update((each, None) for each in used if each not in self._told)
        lines, self._given, self.refused = [], [], None
        for kind, number in self._untold:
            try:
                told = self._as_json(kind, number)
            except Exception as error:  # noqa: BLE001  (one odd value must not keep the others from being told)
                self.refused = error
                if kind != "signature" or not last:
                    continue
                told = self._signature_json(number, UNKNOWN)
            lines.append(_summed(json.dumps(told, separators=(",", ":"))))
            self._given.append((kind, number))
        return lines

    def told(self) -> None:
        """What `untold_lines` gave rests in the folder."""
        for kind, number in self._given:
            del self._untold[kind, number]
            if kind in ("callable", "site"):
                self._told.add((kind, number))
        self._given = []

    def _as_json(self, kind: str, number: int) -> dict[str, Any]:
        if kind == "callable":
            names = self.callables[number]
            return {
                "callable": number,
                "name": names.name,
                "label": names.label,
                "kind": names.kind,
                "path": names.path,
                "framework": names.framework,
                **({"boundary": True} if names.boundary else {}),
            }
        if kind == "thread":
            return {"thread": number, "name": self.threads[number]}
        if kind == "site":
            return {"site": number, **asdict(self._site(number))}
        return self._signature_json(number, self.signatures[number].signature)

    def _signature_json(self, number: int, signature: Signature) -> dict[str, Any]:
        names = self.signatures[number]
        said: dict[str, Any] = {"general": True} if names.general else {"is": signature_to_json(signature)}
        if names.outputs is not None:
            said["outputs"] = names.outputs
        return {"signature": number, "of": names.callable, **said}

    def _site(self, number: int) -> SiteNames:
        assert self._recorder is not None and self.user_code is not None
        code, at = self._recorder.site(number)
        path = self.user_code.path(code.co_filename)
        source = self.sources.keep(code.co_filename, path) if self.sources is not None else ""
        return site_names(code, at, path, source)

    def forget_told(self) -> None:
        """Tell everything again: a forked child writes to a folder of its own, with threads of its own."""
        for number, callable_id in self._described.items():  # by threads that are not here
            self.signatures[number] = _general(callable_id)
        self._described.clear()
        self.threads.clear()
        self.idents.clear()
        self._told.clear()
        self._untold.clear()
        self._new = deque(("signature", number) for number in self.signatures)
        if "facts" in self._describer:
            self._describer["facts"].skipped = 0


_SUM = re.compile(r',"sum":"([0-9a-f]{8})"\}$')


def _summed(line: str) -> str:
    """A line with the CRC-32 of what it was as its last entry."""
    return f'{line[:-1]},"sum":"{zlib.crc32(line.encode()):08x}"}}'


def _without_sum(line: str) -> str:
    """The line as it was; ValueError if it is another one. Older traces have no sums."""
    found = _SUM.search(line)
    if found is None:
        return line
    was = line[: found.start()] + "}"
    if f"{zlib.crc32(was.encode(errors='surrogateescape')):08x}" != found[1]:
        raise ValueError("not what was written")
    return was


def _general(callable_id: int) -> SignatureNames:
    return SignatureNames(callable_id, Signature(general=True), general=True)


def _default(told: dict[str, Any]) -> str:
    """Of traces from before there was a second framework."""
    return "" if told["kind"] == SECTION else "torch"


def describer(framework: str | None, *, facts: bool) -> Describer:
    """How `signature.describe` looks into the framework's values."""
    if framework not in ("auto", "torch"):
        return {}
    if not has_torch():
        return {}
    from luxmeter.signature import Looks, module_of

    module: Describer = {"module": module_of}
    return {"facts": Looks(), **module} if facts else module


def read_lines(
    lines: Iterable[str], damaged: list[str]
) -> tuple[dict[int, CallableNames], dict[int, SignatureNames], dict[int, str], dict[int, SiteNames]]:
    """What `untold_lines` gave; a torn line is passed over, and so is one that is not as it was written (into `damaged`)."""
    callables: dict[int, CallableNames] = {0: CallableNames(OWN_NAME)}
    signatures: dict[int, SignatureNames] = {}
    threads: dict[int, str] = {}
    sites: dict[int, SiteNames] = {}
    for line in filter(None, lines):  # an empty one ends what a failed write had begun
        try:
            told = json.loads(_without_sum(line))
            check_line(told)
        except (ValueError, RecursionError):
            damaged.append(line)
            continue
        if "callable" in told:
            callables[told["callable"]] = CallableNames(
                told["name"], told["label"], told["kind"], told["path"], told.get("framework", _default(told)),
                told.get("boundary", False),
            )  # fmt: skip
        elif "signature" in told:
            general = told.get("general", False)
            found = Signature(general=True) if general else signature_from_json(told["is"])
            outputs = tuple(map(tuple, told["outputs"])) if "outputs" in told else None
            signatures[told["signature"]] = SignatureNames(told["of"], found, general, outputs=outputs)
        elif "thread" in told:
            threads[told["thread"]] = told["name"]
        elif "site" in told:
            sites[told["site"]] = SiteNames(told["file"], told["function"], told["line"], told["source"])
    return callables, signatures, threads, sites
