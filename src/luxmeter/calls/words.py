"""What the recorder's numbers stand for: kept in memory by id, and told to the trace's folder as they are used."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from luxmeter.calls.records import CALL, SECTION, CallableWords, SignatureWords
from luxmeter.signature import Signature, describe
from luxmeter.signature_json import signature_from_json
from luxmeter.signature_json import to_json as signature_to_json

if TYPE_CHECKING:
    from luxmeter.calls.arguments import Arguments
    from luxmeter.calls.core._core import Recorder

OWN_NAME = "(luxmeter)"
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
Describer: TypeAlias = dict[str, Any]  # "facts": what looks at values (signature_torch.Looks), "module"


class Words:
    """Names for ids. `add` is called by whoever patches; `on_signature` and `on_thread` by the core."""

    def __init__(self, arguments: Arguments, how: Describer | None = None) -> None:
        self._arguments = arguments
        self._describer = how or {}  # keyword arguments for signature.describe: facts=, module=
        self.callables: list[CallableWords] = [CallableWords(OWN_NAME)]
        self.signatures: dict[int, SignatureWords] = {}
        self.threads: dict[int, str] = {}
        self.sections: dict[str, int] = {}
        self._described: dict[int, int] = {}  # signature -> callable, while it is described
        self._told: set[tuple[str, int]] = set()
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
        words = CallableWords(name, label, kind, path, framework)
        if number == len(self.callables):
            self.callables.append(words)
        else:  # another thread was between the two lines
            self.callables.extend([words] * (number + 1 - len(self.callables)))
            self.callables[number] = words
        return number

    def section(self, name: str) -> int:
        """The id of the section of this name inside the innermost open one of this thread."""
        assert self._recorder is not None
        outer = self._recorder.section()
        path = f"{self.callables[outer].name}/{name}" if outer else name
        if path not in self.sections:
            self.sections[path] = self.add(path, kind=SECTION)
        return self.sections[path]

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
            self.signatures[signature_id] = _general(callable_id)
            return
        self._described[signature_id] = callable_id
        with self._arguments.quiet():
            how = dict(self._describer)
            if "facts" in how:
                how["facts"] = how["facts"].of_signature() if self._arguments.may_compute() else None
            if self.callables[callable_id].kind != CALL:  # a whole model is no operator: its class is enough
                how.pop("module", None)
            self.signatures[signature_id] = SignatureWords(callable_id, describe(args, kwargs, **how))
        del self._described[signature_id]

    @property
    def unlooked(self) -> int:
        """Tensors whose values were not looked at because that would have taken too long."""
        return self._describer["facts"].skipped if "facts" in self._describer else 0

    def on_thread(self, number: int) -> None:
        """Note the name of the thread that begins to record (without making one up for it in `threading`)."""
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        self.threads[number] = thread.name if thread is not None else f"native-{threading.get_native_id()}"

    # -- to the folder and back

    def new_lines(self, callables: Iterable[int]) -> list[str]:
        """JSON lines for what was not told yet: these callables, and all signatures and threads."""
        lines = []
        for number in callables:
            if self._first("callable", number) and number < len(self.callables):
                words = self.callables[number]
                lines.append(
                    {
                        "callable": number,
                        "name": words.name,
                        "label": words.label,
                        "kind": words.kind,
                        "path": words.path,
                        "framework": words.framework,
                    }
                )
        for number, signature in list(self.signatures.items()):
            if self._first("signature", number):
                told: dict[str, Any] = {"signature": number, "of": signature.callable}
                told.update(
                    {"general": True} if signature.general else {"is": signature_to_json(signature.signature)}
                )
                lines.append(told)
        for number, name in list(self.threads.items()):
            if self._first("thread", number):
                lines.append({"thread": number, "name": name})
        return [json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines]

    def forget_told(self) -> None:
        """Tell everything again: a forked child writes to a folder of its own, with threads of its own."""
        for number, callable_id in self._described.items():  # by threads that are not here
            self.signatures[number] = _general(callable_id)
        self._described.clear()
        self._told.clear()
        self.threads.clear()
        if "facts" in self._describer:
            self._describer["facts"].skipped = 0

    def _first(self, kind: str, number: int) -> bool:
        if (kind, number) in self._told:
            return False
        self._told.add((kind, number))
        return True


def _general(callable_id: int) -> SignatureWords:
    return SignatureWords(callable_id, Signature(general=True), general=True)


def _default(told: dict[str, Any]) -> str:
    """Of traces from before there was a second framework."""
    return "" if told["kind"] == SECTION else "torch"


def describer(framework: str | None, *, facts: bool) -> Describer:
    """How `signature.describe` looks into the framework's values."""
    if framework not in ("auto", "torch"):
        return {}
    from luxmeter import signature_torch

    module: Describer = {"module": signature_torch.module_of}
    return {"facts": signature_torch.Looks(), **module} if facts else module


def read_lines(
    lines: Iterable[str],
) -> tuple[dict[int, CallableWords], dict[int, SignatureWords], dict[int, str]]:
    """What `new_lines` wrote; a torn last line is passed over."""
    callables: dict[int, CallableWords] = {0: CallableWords(OWN_NAME)}
    signatures: dict[int, SignatureWords] = {}
    threads: dict[int, str] = {}
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if "callable" in told:
            callables[told["callable"]] = CallableWords(
                told["name"], told["label"], told["kind"], told["path"], told.get("framework", _default(told))
            )
        elif "signature" in told:
            general = told.get("general", False)
            found = Signature(general=True) if general else signature_from_json(told["is"])
            signatures[told["signature"]] = SignatureWords(told["of"], found, general)
        elif "thread" in told:
            threads[told["thread"]] = told["name"]
    return callables, signatures, threads
