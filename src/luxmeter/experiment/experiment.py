"""An experiment: one run, kept whole, whatever way it ends (lux.Experiment)."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from luxmeter import ranks, scratch
from luxmeter.described import DescribedMapping, described, fields_of
from luxmeter.errors import UsageError
from luxmeter.experiment import ending, running, signals
from luxmeter.experiment.capture import redaction
from luxmeter.experiment.capture.capture import Recording
from luxmeter.experiment.capture.keycode import KeyCode, keycode_of
from luxmeter.experiment.capture.read_output import printed_series
from luxmeter.experiment.folder import ExperimentFolder, folder_of
from luxmeter.experiment.lineage import forgiving, in_environment, note_child, outer_run, parent_of, same_lab
from luxmeter.experiment.options import ExperimentSettings, listed, make_options
from luxmeter.experiment.other_rank import OtherRank, tell_other_ranks
from luxmeter.experiment.reproduce.handover import draw_for_job, job_given, note_run, reserved
from luxmeter.experiment.transfer.tensorboard import TensorBoardFiles
from luxmeter.files import write_json
from luxmeter.plain_text import one_line
from luxmeter.store import Ending, Lab, Run, RunWriter, activate, inside, layout, number_of, records

T = TypeVar("T")
_NOTHING = object()


class Experiment:
    """Keeps a run: parameters, code, environment, output, files, metrics and how it ended.

    A Path, or a string that starts with `.`, `/` or `~`, is the folder that holds the experiment's parts; any other
    string is its name. Use it as a context manager, or with start_exp() and end_exp(). Other ranks than the first
    make no run (unless all_ranks=True): what they log lies in that of rank 0, apart from what it logs itself.
    """

    def __init__(
        self,
        name: str | os.PathLike[str],
        params: Any = None,
        **settings: Unpack[ExperimentSettings],
    ) -> None:
        self._options = make_options(settings)
        if not isinstance(name, str) and not (
            isinstance(name, os.PathLike) and isinstance(os.fspath(name), str)
        ):
            raise UsageError("experiment-name", f"{name!r:.80} names no experiment.", "Give a name or a folder.")  # fmt: skip
        self._place = folder_of(name)
        self.name = self._place.name if self._place is not None else str(name)
        if not self.name.strip():
            raise UsageError("experiment-name", f"{name!r} names no experiment.", "Give a name or a folder.")
        self._params = plain_params(params)
        self._has_params = params is not None
        self.offers_reading = (
            False  # at its end, where it printed metrics and logged none: for `luxmeter run`
        )
        self.given: dict[str, Any] = {}  # by `luxmeter run --param`: they stay when the program names its own
        self._folder: ExperimentFolder | None = None
        self._keycode: list[KeyCode] = []
        self._parts: list[tuple[Path, str, tuple[str, ...]]] = []
        self._run: RunWriter | None = None
        self._recording: Recording | None = None
        self._board: TensorBoardFiles | None = None
        self._lab: Lab | None = None
        self._ended: RunWriter | None = None
        self._scratch: Path | None = None
        self._is_silent = False
        self._beside: OtherRank | None = None  # on a rank that makes no run
        self._leave = contextlib.ExitStack()
        self._owner = 0
        self._end_lock = threading.RLock()
        self._again = ""  # the run to go on in

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id of its run; empty before the start, and on ranks that make none."""
        run = self._run or self._ended
        return "" if run is None else run.id

    @property
    def state(self) -> str:
        """new, running, finished, failed or interrupted."""
        run = self._run or self._ended
        return ("running" if self._is_silent else "new") if run is None else run.state

    @property
    def folder(self) -> Path:
        """The folder of its run in the lab."""
        return self._known_run().folder

    @property
    def run(self) -> Run:
        """Its run as it rests in the lab, to be read."""
        return Run(self._known_run().folder)

    @property
    def writer(self) -> RunWriter | None:
        """Its run while it goes on; None before and after, and on ranks that make none."""
        return self._run

    @property
    def params(self) -> dict[str, Any]:
        """The parameters it was given, nested."""
        return dict(self._params)

    # -- begin and end ------------------------------------------------------------------------------------------

    def start_exp(self) -> Experiment:
        """Begin the run. Without end_exp() it ends with the program, whatever way that ends."""
        self._start()
        self._leave.enter_context(running.listening_for_exit())
        return self

    def _start(self) -> None:
        if self._run is not None or self._is_silent:
            raise UsageError(
                "experiment-running",
                f"The experiment {self.name!r} is running already (run {self.id or 'of rank 0'}).",
                "End it with end_exp() before starting it again.",
            )
        self._owner = os.getpid()
        if not (ranks.is_main() or self._options.all_ranks) or job_given() is not None:
            self._is_silent = True
            if job_given() is None:
                self._join_rank_0()
            else:
                draw_for_job(self.name)
            return
        if self._place is not None:
            self._folder = ExperimentFolder(self._place)
        else:
            self._parts.clear()  # of a run before this one
        outer = running.claim()
        if isinstance(outer, Experiment) and same_lab(self._options.lab, outer._lab):
            self._take_over(outer)
        else:
            if outer is not None:
                outer.discard()
            self._begin()

    def go_on_in(self, run_id: str) -> Experiment:
        """Before its start: have it write on in a run of this lab whose process is gone, if that is there; else it makes a new one."""
        self._again = run_id
        return self

    def end_exp(self, error: BaseException | None = None) -> None:
        """End the run: finished or, with an exception, as that says. A second call does nothing."""
        self.end_as(Ending.of(error))

    def __enter__(self) -> Experiment:
        if self._run is None and not self._is_silent:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.end_exp(error)

    def log(self, values: Any, value: Any = _NOTHING, step: int | None = None) -> None:
        """Log metrics: `log({"loss": 0.3}, step=7)`, `log(meter, step=7)` or `log("loss", 0.3, step=7)`."""
        run: RunWriter | None = self._run
        if run is None:
            if self._beside is None:
                self._refuse_unless_silent("log")
                return
            run = self._beside.writer
        if isinstance(values, str):
            if value is _NOTHING:
                raise UsageError(
                    "log-without-value",
                    f"log({values!r}) has no value.",
                    f"Say log({values!r}, 0.3, step=7) or log({{{values!r}: 0.3}}, step=7).",
                )
            values = {values: value}
        elif values.__class__ is not dict or value is not _NOTHING:
            values, step = _several(values), step if value is _NOTHING else value
        try:
            run.log(values, step)
        finally:  # what is refused is refused alone
            if self._board is not None:
                self._board.log(values, step)

    def metric(self, key: str, value: Any, step: int | None = None) -> None:
        """Log one value: a number, or text, an array, an image beside the numbers."""
        self.log(key, value, step)

    def set_params(self, params: Any) -> None:
        """Put parameters in the place of those it was given: they are known only now."""
        self._params = plain_params(params)
        self._has_params = True
        if self._run is not None:
            self._run.set_params(redaction.hide_params(self._params))

    def note(self, text: str) -> None:
        """Write a note on the run, in place of the one it has."""
        if self._writing("note"):
            self._known_run().marks.set_note(text)

    def tag(self, *tags: str) -> None:
        """Add tags to the run."""
        if self._writing("tag"):
            self._known_run().marks.tag(*tags)

    def add_file(self, path: str | os.PathLike[str], name: str | None = None) -> Path | None:
        """Copy a file into the run, under its own name or another; returns where it lies."""
        source = Path(path)
        if not source.is_file():
            raise UsageError(
                "no-such-file", f"There is no file {source} to keep with the run.", "Check the path."
            )
        return self._known_run().put_file(name or source.name, source) if self._writing("add_file") else None

    @overload
    def keycode(self, code: None = None) -> Callable[[T], T]: ...

    @overload
    def keycode(self, code: T) -> T: ...

    def keycode(self, code: T | None = None) -> T | Callable[[T], T]:
        """Keep this code by name: `@exp.keycode()` above a function or class, `exp.keycode(module)`, `exp.keycode(path)`."""
        if code is None:
            return self._keep_code
        return self._keep_code(code)

    def hold_exp_part(self, name: str, suffixes: Iterable[str] | str = ()) -> str:
        """A folder for a part of the experiment, made and watched; of all such folders these suffixes are recorded.

        It lies in the experiment's folder or, for an experiment with a name, in its run.
        """
        if self._place is not None:
            self._folder = self._folder or ExperimentFolder(self._place)
            folder = self._folder.part(name)
        elif self._is_silent:
            self._scratch = self._scratch or scratch.make("part")
            folder = inside(self._scratch, name)
        else:
            folder = inside(self._running("hold_exp_part").folder / records.FILES_FOLDER, name)
        folder.mkdir(parents=True, exist_ok=True)
        self.watch_part(folder, name, (suffixes,) if isinstance(suffixes, str) else tuple(suffixes))
        return str(folder)

    def flush(self) -> None:
        """Write out what is buffered now."""
        if self._run is not None:
            self._run.flush()
        elif self._beside is not None:
            self._beside.writer.flush()

    def __repr__(self) -> str:
        return f"<Experiment {self.name!r} {self.state}{f' {self.id}' if self.id else ''}>"

    def join_run(self, folder: Path) -> None:
        """On a rank that makes no run: that of rank 0 is this one. Else it is looked for in the lab."""
        if self._beside is not None and folder.is_dir():
            self._beside.writer.join(folder)

    # -- for `luxmeter run` -----------------------------------------------------------------------------------------

    def is_here(self) -> bool:
        """Whether its run was begun by this process, and goes on."""
        return self._run is not None and os.getpid() == self._owner

    def after_fork(self) -> None:
        """In a child: what ran beside the run is not here."""
        self._end_lock = threading.RLock()
        if self._recording is not None:
            self._recording.after_fork()

    def log_from(self, source: str, values: Mapping[str, Any], step: int | None) -> None:
        """Log what the program told somebody else: `source`. A name that is taken by another gets it before."""
        if self._run is not None:
            self._run.log_from(source, values, step)
        elif self._beside is not None:
            self._beside.writer.log(values, step)

    def note_random(self) -> None:
        """A framework has been loaded: its random state belongs to the start."""
        if self._recording is not None:
            self._recording.note_random()

    def discard(self) -> None:
        """Leave no run: another one takes its place."""
        run, self._run = self._run, None
        if run is None or self._recording is None:
            return
        self._leave.close()
        self._recording.stop([])
        run.finish()
        if not (run.folder / layout.CALLS).exists():  # a trace that goes on: then it keeps its run
            shutil.rmtree(run.folder, ignore_errors=True)

    # -- inside -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        options = self._options
        lab = options.lab if isinstance(options.lab, Lab) else Lab.open(options.lab)  # type: ignore[arg-type]
        parent = parent_of(options.parent, lab)
        run_id, tags = reserved() if outer_run() is None else ("", ())
        run = lab.reopen_run(self._again) if self._again else None
        if run is not None:
            (run.folder / records.FILES_FOLDER / records.ENDING).unlink(missing_ok=True)
            run.set_params(redaction.hide_params(self._params))
        run = run or lab.create_run(
            self.name,
            params=redaction.hide_params(self._params),
            tags=(*listed(options.tags), *tags),
            parent=parent.id if parent else None,
            run_id=run_id,
        )
        self._lab, self._run = lab, run
        try:
            if outer_run() is None:
                note_run(run.folder, run.name)
            if parent is not None:
                note_child(parent.folder, run.id)
            self._recording = Recording(run, options)
            self._recording.start(self._params)
            self._go_on()
        except BaseException as error:
            if self._recording is not None:
                self._recording.stop([])
            self._run, self._recording = None, None
            run.fail(error)
            raise

    def _join_rank_0(self) -> None:
        """On another rank: log beside rank 0. As there, it goes on where `luxmeter run` began for the whole program."""
        outer = running.take_offered()
        before = outer._beside if isinstance(outer, Experiment) else None
        if before is not None and isinstance(outer, Experiment):
            outer._beside = None
            if self._options.lab is None:
                self._beside = before
                return
            before.end(Ending())
        self._beside = OtherRank(ranks.rank(), self.name, self._options)

    def _take_over(self, outer: Experiment) -> None:
        """Go on in the run that `luxmeter run` began for the whole program."""
        run, self._lab, self._recording = outer._run, outer._lab, outer._recording
        assert run is not None and outer._lab is not None
        self._run, self._owner = run, outer._owner
        outer._run = None
        outer._leave.close()
        parent = parent_of(self._options.parent, outer._lab) if self._options.parent is not None else None
        if parent is not None:
            note_child(parent.folder, run.id)
        params = self._params if self._has_params else None
        running.adopt(run, self.name, params, outer.given, parent=parent.id if parent else None)
        self.name = run.name
        if self._options.tags:
            run.marks.tag(*listed(self._options.tags))
        self._go_on()

    def _go_on(self) -> None:
        run, recording = self._run, self._recording
        assert run is not None and recording is not None
        if self._options.note:
            run.marks.set_note(self._options.note)
        for folder in listed(self._options.watch):
            place = Path(folder).expanduser().absolute()
            recording.watch(place, place.name)
        for place, part, suffixes in self._parts:
            recording.watch(place, part, suffixes)
        if self._folder is not None:
            self._folder.note_start(run)
        if self._options.tensorboard is not None:
            self._board = TensorBoardFiles(Path(self._options.tensorboard))
            self._board.set_params(redaction.hide_params(self._params))
        if self._lab is not None and not self._options.all_ranks:
            tell_other_ranks(self._lab, self.name, run.id)
        self._leave = contextlib.ExitStack()
        self._leave.callback(running.remove, self)
        running.add(self)
        self._leave.callback(signals.remove, self._end_by_signal)
        signals.add(self._end_by_signal)
        self._leave.enter_context(in_environment(run.folder))
        self._leave.enter_context(forgiving(activate(run)))

    def _end_by_signal(self, name: str) -> None:
        self.end_as(Ending("interrupted", None, name, f"The process was ended by {name}."))

    def end_as(self, outcome: Ending) -> None:
        """End the run in this way."""
        with self._end_lock:
            run, recording = self._run, self._recording
            beside, self._beside = self._beside, None
            if beside is not None:
                beside.end(outcome)
            self._is_silent = False
            if self._scratch is not None:
                scratch.remove(self._scratch)
                self._scratch = None
            if run is None or recording is None:
                return
            if os.getpid() != self._owner:
                run.finish()  # a forked child writes its rows; the end of the run is its parent's
                return
            self._run, self._ended = None, run
            self._leave.close()
            board, self._board = self._board, None
            try:
                if board is not None:
                    board.close(outcome.state)
                recording.stop(self._keycode)
                with contextlib.suppress(Exception):
                    write_json(run.folder / records.FILES_FOLDER / records.ENDING, outcome.record())
            finally:  # a second Ctrl-C, too, leaves a run that says how it ended
                run.finish(outcome.state, error=outcome.error)
            self._speak(run, recording)

    def _speak(self, run: RunWriter, recording: Recording) -> None:
        assert self._lab is not None
        with contextlib.suppress(Exception):  # the run is kept; words about it must not end the program
            read = Run(run.folder, self._lab.folder)
            if self._folder is not None:
                self._folder.note_end(read, recording.changes)
            line = ending.line(read, self._lab.folder)
            if self.offers_reading and not self._options.read_output and (seen := printed_series(read)):
                line += f"; it printed {ending.some(seen)}: luxmeter run --read-output keeps such as metrics"
            if (
                not self._options.quiet
                and not ending.is_silenced()
                and ranks.is_main()
                and sys.stderr is not None
            ):
                sys.stderr.write(f"luxmeter: {one_line(line)}\n")
                sys.stderr.flush()

    def _keep_code(self, code: T) -> T:
        self._keycode.append(keycode_of(code))
        return code

    def watch_part(self, folder: Path, part: str, suffixes: tuple[str, ...]) -> None:
        """Take files that appear or change in `folder` as this run's."""
        self._parts.append((folder, part, suffixes))
        if self._recording is not None and self._run is not None:
            self._recording.watch(folder, part, suffixes)

    def _known_run(self) -> RunWriter:
        run = self._run or self._ended
        return self._running("its run") if run is None else run

    def _running(self, what: str) -> RunWriter:
        if self._run is None:
            raise UsageError(
                "experiment-not-running",
                f"{what} needs a running experiment; {self.name!r} is {self.state}.",
                "Start it first: `with Experiment(...) as exp:` or exp.start_exp().",
            )
        return self._run

    def _writing(self, what: str) -> bool:
        """Whether there is a run to write to; an error where there should be one."""
        if self._run is None and self._ended is None:
            self._refuse_unless_silent(what)
            return False
        return True

    def _refuse_unless_silent(self, what: str) -> None:
        if not self._is_silent:
            self._running(what)


def plain_params(params: Any) -> DescribedMapping:
    """Nested dicts of a Params, mapping, dataclass, pydantic model or argparse namespace, as they are kept.

    Values that JSON has no word for are described. In what kind of object the outermost names stood is not kept.
    """
    if params is None:
        return DescribedMapping()
    fields = params if isinstance(params, Mapping) else fields_of(params)
    if fields is not None:
        kept: DescribedMapping = described(fields)
        return kept
    method = getattr(params, "to_dict", None)
    if callable(method) and not isinstance(params, type):
        return plain_params(method())
    raise UsageError(
        "params-kind",
        f"Parameters cannot be a {type(params).__name__}: {str(params)[:80]!r}.",
        "Pass a Params, a dict, a dataclass, a pydantic model or an argparse namespace.",
    )


def _several(values: Any) -> Mapping[str, Any]:
    """The metrics in a mapping, or the numbers in a Meter or AvgMeter (of which the averages)."""
    if isinstance(values, Mapping):
        return values
    if hasattr(values, "to_dict") and hasattr(values, "scalars"):
        return {name: value for name, value in values.to_dict().items() if number_of(value) is not None}
    raise UsageError(
        "log-what",
        f"log() was given a {type(values).__name__}.",
        'Log a dict, a Meter, or a name and a value: log("loss", 0.3, step=7).',
    )
