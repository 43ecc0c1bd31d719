"""A training that is asked from outside: pause, resume, checkpoint, stop, change a value, say where it stands."""

from __future__ import annotations

import contextlib
import json
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from luxmeter.errors import LuxmeterError, UsageError, near_names
from luxmeter.experiment import BaseParams, hide_params
from luxmeter.literal import parse
from luxmeter.plain_text import one_line
from luxmeter.ranks import is_main
from luxmeter.store import Stored
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.config.overrides import read_like
from luxmeter.train.dist import broadcast_object
from luxmeter.train.in_step import Listener
from luxmeter.train.requests import Answer, Mailbox, Request, text_of

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

EVENT = "control"  # the key of what was asked, among the run's objects; values that were set: control/<name>
_COUNTERS = ("eidx", "idx", "global_step")  # in the Params, but the loop's own
_PAUSED_S = 0.1  # how often a paused training looks
_SCALED = ("initial_lr", "max_lr", "min_lr")  # what schedules keep in an optimizer's groups
_RATES = ("base_lrs", "max_lrs", "min_lrs")  # and in themselves


class Control(Callback):
    """Obeys `luxmeter control RUN pause` and `run.control("pause")`, at the ends of steps; looks at most every `every_s` seconds.

    Whatever is done is a line of the log and one of `run.objects("control")`; numbers that are set are metrics
    (`control/lr`), too. A parameter that was set goes into checkpoints: a resumed training has it. Of several ranks the first
    listens, and all obey, behind the same step.
    """

    priority = 95

    def __init__(self, every_s: float = 0.25) -> None:
        if isinstance(every_s, bool) or not isinstance(every_s, int | float) or not 0 <= every_s < math.inf:
            raise UsageError(
                "control-every", f"every_s={every_s!r} is no time.", "Give seconds from 0 on, such as 0.25."
            )
        self.every_s = every_s
        self._due = math.inf
        self._mailbox: Mailbox | None = None
        self._paused = False
        self._listener: Listener | None = None  # with other ranks
        self._taken: list[Request | UsageError] = []
        self._changes: dict[
            str, tuple[str, str]
        ] = {}  # of parameters: name -> (as it was at first, as it is)
        self._trainer: Callable[[], Trainer | None] = lambda: None

    def setup(self, trainer: Trainer) -> None:
        """Know whose parameters a checkpoint may change."""
        self._trainer = weakref.ref(trainer)

    def before_train(self, trainer: Trainer) -> None:
        """Begin to listen."""
        in_step = trainer._training.in_step
        self._paused = False
        if in_step is not None:
            self._listener = Listener(self._hears, lambda: self._obey_all(trainer), lambda: self._paused)
            in_step.listeners.append(self._listener)
        writer = trainer.experiment.writer if trainer.experiment is not None else None
        if writer is None or not is_main():
            return
        mailbox = Mailbox(writer.folder)
        try:
            mailbox.open(trainer.position.done, trainer.steps_in_all())
        except OSError as error:
            trainer.logger.warn(f"This training cannot be controlled from outside: {error}")
            return
        self._mailbox, self._due = mailbox, monotonic() + self.every_s

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Look whether somebody asks, if it is time."""
        if monotonic() < self._due or self._listener is not None:
            return
        self._obey(trainer)
        if self._paused:
            self._wait(trainer)
        self._due = monotonic() + self.every_s

    def after_train(self, trainer: Trainer) -> None:
        """Listen no more."""
        self._end(trainer)

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Listen no more."""
        self._end(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The parameters that were set from outside."""
        return {"changes": {key: list(pair) for key, pair in self._changes.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set them again, unless the program has other ones now."""
        trainer = self._trainer()
        if trainer is None:
            return
        for key, (before, after) in self._changes.items():  # since then, or in another branch
            if text_of(trainer.params.get(key)) == after:
                trainer.params[key] = read_like(before, trainer.params[key])
        self._changes = {}
        for key, (before, after) in state["changes"].items():
            now = text_of(trainer.params.get(key))
            if now == before:
                try:
                    trainer.params[key] = read_like(after, trainer.params[key])
                except ValueError as error:
                    _say(
                        trainer,
                        f"{key}, which was set from outside before the checkpoint, cannot be set: {error}",
                    )
                    continue
                shown = hidden({key: (before, after)})
                _say(trainer, f"{_shown(shown)}: it was set from outside before the checkpoint")
                self._record(trainer, "set", "the checkpoint", shown)
            elif now != after:
                _say(
                    trainer,
                    f"{key} stays as the program has it, though it was set from outside before the checkpoint",
                )
                continue
            self._changes[key] = before, after

    # -- inside ------------------------------------------------------------------------------------------------------

    def _end(self, trainer: Trainer) -> None:
        in_step = trainer._training.in_step
        if in_step is not None and self._listener is not None:
            in_step.listeners.remove(self._listener)
        self._listener = None
        mailbox, self._mailbox, self._due = self._mailbox, None, math.inf
        if mailbox is not None:
            mailbox.close()

    def _wait(self, trainer: Trainer) -> None:
        """Until somebody says go on, stop, or Ctrl-C."""
        began = monotonic()
        while self._paused and not (trainer.is_over() or trainer.is_interrupted):
            sleep(_PAUSED_S)
            self._obey(trainer)
        self._paused = False
        trainer.pace.leave_out(monotonic() - began)

    def _hears(self) -> bool:
        """With other ranks, on the first: whether somebody asks."""
        if self._mailbox is None or (monotonic() < self._due and not self._paused):
            return False
        self._due = monotonic() + self.every_s
        self._taken += self._mailbox.take()
        return bool(self._taken)

    def _obey_all(self, trainer: Trainer) -> None:
        """With other ranks: do on each what was asked of the first."""
        requests = broadcast_object(self._taken)
        self._taken = []
        self._do_each(trainer, requests)

    def _obey(self, trainer: Trainer) -> None:
        """Do what is asked."""
        if self._mailbox is not None:
            self._do_each(trainer, self._mailbox.take())

    def _do_each(self, trainer: Trainer, requests: Iterable[Request | UsageError]) -> None:
        """Do what is asked. Whatever is wrong with it, and whatever goes wrong, the training goes on."""
        mailbox = self._mailbox
        for request in requests:
            if isinstance(request, UsageError):
                _say(trainer, str(request))
                continue
            try:
                try:
                    answer = self._do(trainer, request)
                    if mailbox is not None:
                        mailbox.answer(request, {"done": True, **answer.to_dict()})
                except LuxmeterError as error:
                    _say(
                        trainer,
                        f"Asked from outside{_by(request)} to {request.what}, which was refused: {error}",
                    )
                    if mailbox is not None:
                        mailbox.refuse(request, error)
            except Exception as error:  # noqa: BLE001 - nothing that is asked from outside may end a training
                _say(trainer, f"Asked from outside{_by(request)} to {request.what}, which failed: {error!r}")
                self._tell_failed(request, error)

    def _tell_failed(self, request: Request, error: Exception) -> None:
        try:
            if self._mailbox is not None:
                said = f"It failed: {type(error).__name__}: {error}."
                self._mailbox.refuse(request, UsageError("control-refused", said, "The training goes on."))
        except OSError:
            return  # nobody can be told: the log has it

    def _do(self, trainer: Trainer, request: Request) -> Answer:
        what, at = request.what, trainer.position
        changed: dict[str, tuple[str, str]] = {}
        where = f"at step {at.done} (epoch {at.eidx})"
        if what == "pause":
            text = f"{'is paused already' if self._paused else 'paused'} {where}"
            self._paused = True
        elif what == "resume":
            text = f"{'goes on' if self._paused else 'was not paused'} {where}"
            self._paused = False
        elif what == "stop":
            trainer.stop_train()
            self._paused = False
            text = f"stops {where}"
        elif what == "checkpoint":
            path = trainer.save_checkpoint()
            trainer.saver.flush()
            text = f"saved {path} {where}"
        elif what == "set":
            changed, remarks = self._set(trainer, request.changes)
            text = f"set {_shown(changed)} {where}{remarks}"
        else:
            in_all = trainer.steps_in_all()
            of = f" of {in_all}" if in_all is not None else ""
            text = f"{self._state(trainer)}: step {at.done}{of}, epoch {at.eidx}"
        if what != "status":
            _say(trainer, f"Asked from outside{_by(request)}: {text}")
            self._record(trainer, what, request.by, changed)
            with contextlib.suppress(OSError):  # it is done, whether or not it can be written down
                if self._mailbox is not None:
                    self._mailbox.tell(self._state(trainer), at.done, trainer.steps_in_all())
        return self._answer(trainer, what, text, changed)

    def _state(self, trainer: Trainer) -> str:
        is_over = trainer.is_over() or trainer._training.is_asked("stop")
        return "paused" if self._paused else "stopping" if is_over else "training"

    def _answer(
        self, trainer: Trainer, what: str, text: str, changed: Mapping[str, tuple[str, str]]
    ) -> Answer:
        at = trainer.position
        numbers = {
            name: float(value)
            for name, value in (trainer.metrics() if what == "status" else {}).items()
            if isinstance(value, int | float)
        }
        rates = [
            float(group["lr"]) for one in trainer.optimizers for group in one.param_groups if "lr" in group
        ]
        return Answer(
            what,
            text,
            self._state(trainer),
            at.eidx,
            at.done,
            trainer.steps_in_all(),
            tuple(dict.fromkeys(rates)),
            numbers,
            changed,
        )

    def _record(self, trainer: Trainer, what: str, by: str, changed: Mapping[str, tuple[str, str]]) -> None:
        """Into the run: it must be seen that it was not left to itself."""
        writer = trainer.experiment.writer if trainer.experiment is not None else None
        if writer is None:
            return
        step = trainer.position.done
        numbers = {key: parse(after) for key, (_, after) in changed.items()}
        with contextlib.suppress(LuxmeterError):  # the log has it
            writer.metric(EVENT, Event(what, by, dict(changed)), step)
            for key, number in numbers.items():
                if isinstance(number, int | float):
                    writer.metric(f"{EVENT}/{key}", float(number), step)

    # -- changing values ---------------------------------------------------------------------------------------------

    def _set(self, trainer: Trainer, changes: Mapping[str, str]) -> tuple[dict[str, tuple[str, str]], str]:
        """All of the changes, or none: name -> (before, after); and what is to be said of them."""
        rates, known = _rates(trainer), {k: v for k, v in trainer.params.flat().items() if k not in _COUNTERS}
        for key in changes:
            if key not in rates and key not in known:
                every = [*dict.fromkeys([*rates, *known])]
                raise UsageError(
                    "control-key",
                    f"The training has no {key!r} that could be set.",
                    near_names(key, every) or f"It has {', '.join(every[:20])}.",
                )
        numbers = {key: _rate(key, text, rates[key]) for key, text in changes.items() if key in rates}
        changed: dict[str, tuple[str, str]] = {}
        undo: list[tuple[str, Any]] = []
        try:
            for key, text in changes.items():
                if key in known:
                    undo.append((key, known[key]))
                    is_number = key in numbers and isinstance(known[key], int | float)
                    changed[key] = _set_parameter(trainer.params, key, numbers[key] if is_number else text)
        except LuxmeterError:
            for key, value in undo:
                trainer.params[key] = value
            raise
        remarks = ""
        for key, (before, after) in changed.items():
            self._changes[key] = self._changes.get(key, (before, after))[0], after
            if key not in numbers:
                remarks = "; for what reads the parameters from here on"
        for key, number in numbers.items():
            before = " ".join(
                dict.fromkeys(f"{group['lr']:g}" for one in rates[key] for group in one.param_groups)
            )
            for optimizer in rates[key]:
                if _set_rate(trainer, optimizer, number):
                    remarks = "; its schedule goes on from there"
            changed[key] = before, text_of(number)
        return hidden(changed), remarks


@dataclass(frozen=True)
class Event:
    """Something that was asked from outside, as the run keeps it."""

    what: str
    by: str
    changed: dict[str, tuple[str, str]]

    def stored(self) -> Stored:
        """As it rests."""
        changed = {key: list(pair) for key, pair in self.changed.items()}
        return Stored("control", json.dumps({"what": self.what, "by": self.by, "changed": changed}))


def hidden(changed: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Without the values of secrets."""
    before, after = (hide_params({key: pair[side] for key, pair in changed.items()}) for side in (0, 1))
    return {key: (before[key], after[key]) for key in changed}


def _shown(changed: Mapping[str, tuple[str, str]]) -> str:
    return ", ".join(f"{key} {before} -> {after}" for key, (before, after) in changed.items())


def _say(trainer: Trainer, text: str) -> None:
    """In the log, and on the console of a quiet training, too: nobody there knows of it. Of several ranks, by one."""
    if is_main():
        trainer.logger.warn(one_line(text))


def _by(request: Request) -> str:
    return f" by {request.by}" if request.by else ""


def _rates(trainer: Trainer) -> dict[str, list[Any]]:
    """Names of learning rates: `lr` of all optimizers, `optim.lr` of the one that is the trainer's attribute `optim`."""
    from luxmeter.train import parts

    found = {name: one for name, one in parts.optimizers(trainer).items() if "lr" in one.defaults}
    return {
        **({"lr": list(found.values())} if found else {}),
        **{f"{name}.lr": [one] for name, one in found.items()},
    }


def _rate(key: str, text: str, optimizers: list[Any]) -> float:
    number = parse(text)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
        raise UsageError(
            "control-value", f"{key}={text} is no learning rate.", "Give a number from 0 on: lr=0.01."
        )
    for group in (group for one in optimizers for group in one.param_groups):
        if "initial_lr" in group and not float(group["lr"]):
            raise UsageError(
                "control-value",
                f"The schedule has brought {key} to 0, from where it cannot be scaled to {text}.",
                "Ask at another step.",
            )
    return float(number)


def _set_rate(trainer: Trainer, optimizer: Any, number: float) -> bool:
    """Set the rate of every group; what its schedules go by is scaled alike. Whether there are any."""
    factors = []
    for group in optimizer.param_groups:
        before = group["lr"]
        factors.append(number / float(before) if float(before) else 1.0)
        if hasattr(before, "fill_"):
            before.fill_(number)  # compiled steps hold the tensor
        else:
            group["lr"] = number
        for name in _SCALED:
            if name in group:
                group[name] = group[name] * factors[-1]
    given = [getattr(callback, "schedule", None) for callback in trainer.callbacks]
    schedulers = _flat_schedulers([*trainer.schedulers, *given], optimizer)
    for scheduler in schedulers:
        for name in _RATES:
            rates = getattr(scheduler, name, None)
            if isinstance(rates, list) and len(rates) == len(factors):
                setattr(scheduler, name, [rate * factor for rate, factor in zip(rates, factors, strict=True)])
    return bool(schedulers) or any("initial_lr" in group for group in optimizer.param_groups)


def _flat_schedulers(schedulers: list[Any], optimizer: Any) -> list[Any]:
    """Those of an optimizer, with those that others are made of."""
    found: dict[int, Any] = {}
    for one in schedulers:
        if getattr(one, "optimizer", None) is optimizer:
            inner = _flat_schedulers(list(getattr(one, "_schedulers", ())), optimizer)
            found |= {id(each): each for each in (one, *inner)}
    return list(found.values())


def _set_parameter(params: BaseParams, key: str, given: str | float) -> tuple[str, str]:
    """Give a parameter a number, or the value that a text means in place of the one it has; (before, after)."""
    before = params[key]
    if not isinstance(given, str):
        params[key] = given
        return text_of(before), text_of(params[key])
    text = given
    try:
        after = read_like(text, before)
    except ValueError as error:
        raise _unfit(key, before, text, str(error)) from None
    if before is not None and type(after) is not type(before):
        raise _unfit(key, before, text, f"Give one of type {type(before).__name__}.")
    params[key] = after
    return text_of(before), text_of(params[key])


def _unfit(key: str, before: Any, text: str, hint: str) -> UsageError:
    return UsageError(
        "control-value", f"{key} is {text_of(before)[:80]}, which {text!r} cannot replace.", hint
    )
