"""What is asked of a training from outside, and what it answers: small files in its run.

`control/listening.json` is there while a training listens, and says which one and what it does. A request is a file
`control/requests/<name>.json`, its answer `control/answers/<name>.json`; each appears by rename. Who listens takes a request
away before it is obeyed, so that it is obeyed once. What lies there is not trusted: it may ask for what is in WHAT, no more.

Format history
1: listening: format, session, state, step, since_ns, and (later) steps: how many there will be in all, null if that is not known; request: what, changes (name -> text), and, of our own, format, to (a
   session), by, answer (whether one is waited for); answer: format, done, and the fields of Answer, or slug, what, next.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from luxmeter.errors import LuxmeterError, StoreError, UsageError, near_names
from luxmeter.files import make_below, read_json, write_json
from luxmeter.literal import show
from luxmeter.plain_text import one_line
from luxmeter.store import Run

FORMAT = 1
WHAT = {
    "status": "say where it stands",
    "pause": "stop after the current step, and go on listening",
    "resume": "go on",
    "checkpoint": "save one now",
    "stop": "end the training after the current step",
    "set": "change the learning rate, or a parameter",
}
FOLDER, LISTENING, REQUESTS, ANSWERS = "control", "listening.json", "requests", "answers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.json")
_MOST_BYTES = 1 << 16  # of a request
_MOST_CHANGES = 100
_MOST_TAKEN = 20  # requests at one look
_LOOK_S, _ALIVE_S = 0.05, 0.5  # how often an answer is looked for, and whether anybody can still give one


@dataclass(frozen=True)
class Request:
    """One thing that is asked for."""

    name: str  # of its file
    what: str
    changes: Mapping[str, str] = field(default_factory=dict)  # name -> value, as typed
    by: str = ""
    session: str = ""  # the one it is meant for; empty: whoever listens
    wants_answer: bool = True


@dataclass(frozen=True)
class Answer:
    """What a training says to what it was asked. `state` is training, paused or stopping; of a run that has ended, how it did."""

    what: str
    text: str
    state: str
    epoch: int | None = None
    step: int | None = None  # batches that were trained on
    steps: int | None = None  # how many there will be in all, if that is known
    lr: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> (before, after)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        changed = {key: list(pair) for key, pair in self.changed.items()}
        return {**asdict(self), "lr": list(self.lr), "changed": changed}

    def __str__(self) -> str:
        return self.text


# -- who asks -----------------------------------------------------------------------------------------------------------


def control_run(
    run: Run,
    what: str = "status",
    changes: Mapping[str, Any] | None = None,
    *,
    wait_s: float = 10.0,
) -> Answer:
    """Ask something of the training that a run is in the middle of, and wait for its answer: see `Run.control`.

    What a text means among the changes is decided by the value that it replaces.
    """
    asked = {key: text_of(value) for key, value in _checked(what, changes).items()}
    listening = _listening(run)
    if listening is None:
        if what == "status":
            return Answer(what, f"{run.state}: no training listens", run.state)
        raise _no_training(run)
    folder = run.folder / FOLDER
    name = f"{time.time_ns():020}-{secrets.token_hex(4)}.json"
    write_json(
        folder / REQUESTS / name,
        {
            "format": FORMAT,
            "what": what,
            "changes": asked,
            "to": listening["session"],
            "by": _who(),
            "answer": wait_s > 0,
        },
    )
    if wait_s <= 0:
        return Answer(what, f"asked to {what}: it obeys at the end of the current step", listening["state"])
    return _wait_for(run, what, folder / ANSWERS / name, wait_s)


def paused_at(run: Run) -> int | None:
    """The step at which a run's training is paused; None if it is not."""
    found = _listening(run) or {}
    step = found.get("step")
    return step if found.get("state") == "paused" and isinstance(step, int) else None


@dataclass(frozen=True)
class Listening:
    """What a training says of itself while it listens, as of its beginning or the last request."""

    state: str  # training, paused or stopping
    step: int
    steps: int | None = None  # how many there will be in all, if that is known


def read_listening(run_folder: Path) -> Listening | None:
    """What the training in a run's folder says of itself; None if none listens. Whether its process lives is not asked."""
    found = read_json(run_folder / FOLDER / LISTENING)
    if not isinstance(found, dict) or not isinstance(found.get("state"), str):
        return None
    step, steps = found.get("step"), found.get("steps")
    return Listening(
        found["state"], step if isinstance(step, int) else 0, steps if isinstance(steps, int) else None
    )


def _checked(what: str, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    if what not in WHAT:
        raise UsageError(
            "control-what",
            f"A training cannot be asked to {what!r}.",
            near_names(str(what), WHAT) or f"It can be asked to {', '.join(WHAT)}.",
        )
    if (what == "set") != bool(changes):
        raise UsageError(
            "control-changes",
            f"{what!r} was given {_shown(dict(changes)) if changes else 'nothing'} to change.",
            "What is to change is said with set: set lr=0.01.",
        )
    return dict(changes or {})


def _wait_for(run: Run, what: str, file: Path, wait_s: float) -> Answer:
    end = alive = monotonic()
    end += wait_s
    while True:
        record = read_json(file)
        if record is not None:
            file.unlink(missing_ok=True)
            return _read_answer(what, record)
        now = monotonic()
        if now >= alive:
            if _listening(run) is None and not file.exists():
                raise _no_training(run)
            alive = now + _ALIVE_S
        if now >= end:
            raise StoreError(
                "control-unanswered",
                f"The training of run {run.id} has not answered {what!r} in {wait_s:g} s.",
                "A step or an evaluation takes longer: what was asked stays and is obeyed after it. --wait-s waits longer.",
            )
        sleep(min(_LOOK_S, max(0.0, end - now)))


def _read_answer(what: str, record: Any) -> Answer:
    try:
        if record["done"] is not True:
            raise UsageError("control-refused", one_line(str(record["text"])), one_line(str(record["next"])))
        known = {f.name: record[f.name] for f in fields(Answer) if f.name in record}
        changed = {str(key): (str(a), str(b)) for key, (a, b) in known.pop("changed", {}).items()}
        return Answer(**{**known, "what": what, "lr": tuple(known.get("lr", ())), "changed": changed})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, LuxmeterError):
            raise
        raise StoreError(
            "control-garbled",
            f"The answer to {what!r} cannot be read: {error!r}.",
            "It was not written by this version of luxmeter: ask again with the one that trains.",
        ) from error


def _listening(run: Run) -> dict[str, Any] | None:
    """What the training that listens says of itself; None if none does."""
    if run.state != "running":
        return None
    found = read_json(run.folder / FOLDER / LISTENING)
    fits = isinstance(found, dict) and all(isinstance(found.get(key), str) for key in ("session", "state"))
    return found if fits else None


def _no_training(run: Run) -> StoreError:
    if run.state == "lost":
        return StoreError(
            "control-ended",
            f"The process of run {run.id} is gone: nobody listens.",
            "Go on from its last checkpoint with train(resume=True).",
        )
    if run.state != "running":
        return StoreError(
            "control-ended",
            f"Run {run.id} has ended ({run.state}): nobody listens.",
            "luxmeter runs --state running lists those that can be asked.",
        )
    return StoreError(
        "control-not-training",
        f"Run {run.id} goes on, but no training in it listens.",
        "It has not begun yet, or has ended while the program goes on, or the program has no Trainer.",
    )


def _who() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


# -- who listens ----------------------------------------------------------------------------------------------------------


class Mailbox:
    """The requests of one training, from `open` to `close`."""

    def __init__(self, run_folder: Path) -> None:
        self._run_folder = run_folder
        self._folder = run_folder / FOLDER
        self._requests = str(self._folder / REQUESTS)
        self._session = secrets.token_hex(8)
        self._passed: set[str] = set()  # what cannot be taken away

    def open(self, step: int = 0, steps: int | None = None) -> None:
        """Listen. What lies there was meant for somebody else. `steps`: how many there will be in all."""
        for name in (REQUESTS, ANSWERS):
            make_below(self._run_folder, self._folder / name)
        for file in (self._folder / ANSWERS).iterdir():
            with contextlib.suppress(OSError):
                file.unlink()
        self.refuse_all("It lay there before this training began.")
        self.tell("training", step, steps)

    def tell(self, state: str, step: int, steps: int | None = None) -> None:
        """Say what the training does."""
        record = {
            "format": FORMAT,
            "session": self._session,
            "state": state,
            "step": step,
            "steps": steps,
            "since_ns": time.time_ns(),
        }
        write_json(self._folder / LISTENING, record)

    def close(self) -> None:
        """Listen no more; what was not heard is refused."""
        with contextlib.suppress(OSError):
            (self._folder / LISTENING).unlink(missing_ok=True)
            self.refuse_all("The training has ended.")

    def take(self) -> Iterator[Request | UsageError]:
        """The requests that wait, the first first, each taken away; the error of one that is none."""
        try:
            names = os.listdir(self._requests)  # noqa: PTH208  (looked at four times a second, and mostly empty)
        except OSError:  # the run was removed: the training goes on
            return
        if not names:
            return
        for name in sorted(set(names) - self._passed)[:_MOST_TAKEN]:
            if name.startswith("."):
                continue  # being written
            try:
                found = self._take(name)
            except UsageError as error:
                yield error
            else:
                if found is not None:
                    yield found

    def answer(self, request: Request, record: Mapping[str, Any]) -> None:
        """Tell who asked, if they wait."""
        if request.wants_answer:
            write_json(self._folder / ANSWERS / request.name, {"format": FORMAT, **record})

    def refuse(self, request: Request, error: LuxmeterError) -> None:
        """Tell who asked why not."""
        self.answer(request, {"done": False, "slug": error.slug, "text": error.what, "next": error.next_step})

    def refuse_all(self, why: str) -> None:
        """Tell all who wait why not."""
        for request in self.take():
            if isinstance(request, Request):
                self.refuse(request, UsageError("control-refused", why, "Ask when a training listens."))

    def _take(self, name: str) -> Request | None:
        if not _NAME.fullmatch(name):
            self._passed.add(name)  # no request: it stays where it is
            raise _garbled(name, "its name is none of letters, digits and .json")
        path, data, trouble = Path(self._requests, name), b"", ""
        try:
            data = _read(path)
        except FileNotFoundError:
            return None  # somebody was faster
        except OSError as error:
            trouble = error.strerror or str(error)
        try:
            path.unlink()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._passed.add(name)
            trouble = trouble or f"it cannot be taken away ({error.strerror})"
        if trouble:
            raise _garbled(name, trouble)
        request = _parsed(name, data)
        if request.session and request.session != self._session:
            self.refuse(
                request,
                UsageError(
                    "control-refused", "It was meant for an earlier training of this run.", "Ask again."
                ),
            )
            return None
        return request


def _read(path: Path) -> bytes:
    """A small regular file; never through a link, and never waiting for whoever would fill a pipe."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no plain file")
        if found.st_size > _MOST_BYTES:
            raise OSError(0, f"it has {found.st_size} bytes")
        return os.read(number, _MOST_BYTES)
    finally:
        os.close(number)


def _parsed(name: str, data: bytes) -> Request:
    try:
        said = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _garbled(name, "it is no JSON") from None
    if not isinstance(said, dict):
        raise _garbled(name, "it holds no names with values")
    what, changes = said.get("what"), said.get("changes", {})
    if not isinstance(what, str) or what not in WHAT:
        raise _garbled(name, f"it asks for {_shown(what)}")
    if not isinstance(changes, dict) or len(changes) > _MOST_CHANGES or (what == "set") != bool(changes):
        raise _garbled(name, f"its changes are {_shown(changes)}")
    if not all(isinstance(value, str | int | float | None) for value in changes.values()):
        raise _garbled(name, f"its changes are {_shown(changes)}")
    by, session = said.get("by", ""), said.get("to", "")
    if not isinstance(by, str) or not isinstance(session, str):
        raise _garbled(name, "it does not say by whom, or for whom")
    typed = {key: text_of(value) for key, value in changes.items()}
    return Request(name, what, typed, one_line(by)[:80], session, said.get("answer", True) is not False)


def text_of(value: Any) -> str:
    """A value as it would be typed on a command line."""
    return value if isinstance(value, str) else show(value)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _garbled(name: str, why: str) -> UsageError:
    return UsageError(
        "control-request",
        f"The request {one_line(name)[:100]} was passed over: {one_line(why)}.",
        "Ask with luxmeter control RUN, or run.control().",
    )
