"""What goes on beside a run while it lives: one thread that looks, and what it writes down."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from luxmeter.errors import warn_once
from luxmeter.experiment.capture import snapshot, started
from luxmeter.experiment.capture.keycode import KeyCode
from luxmeter.experiment.capture.output import OutputLog
from luxmeter.experiment.capture.output_native import NativeOutput
from luxmeter.experiment.capture.read_output import ReadOutput
from luxmeter.experiment.capture.snapshot import Snapshot
from luxmeter.experiment.capture.system_metrics import SystemMeter
from luxmeter.experiment.capture.watch_files import FileWatch, to_batch
from luxmeter.experiment.checkpoint import background
from luxmeter.experiment.options import ExperimentOptions
from luxmeter.experiment.reproduce.handover import LaidOut, laid_out, random_at_start
from luxmeter.experiment.seed import start_state
from luxmeter.files import json_text
from luxmeter.store import FileChange, OutputFile, RunWriter, records

_TICK_S = 0.5


class Recording:
    """Begins with a run and ends with it. Nothing here may end the program: trouble is told once."""

    def __init__(self, run: RunWriter, options: ExperimentOptions) -> None:
        self._run = run
        self._options = options
        self.root = started.code_root()
        self.changes: list[FileChange] = []
        self.snapshot: Snapshot | None = None
        self._laid: LaidOut | None = None
        self._modules: set[str] = set()  # whose files the snapshot has looked at
        self._watch = FileWatch(run.folder, run.put_blob, options)
        self._output: OutputLog | NativeOutput | None = None
        self._printed: ReadOutput | None = None
        self._system: SystemMeter | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch_lock = threading.Lock()

    def start(self, params: Mapping[str, Any]) -> None:
        """Write down how it began, and begin to look."""
        self._laid = laid_out()
        self.root = self._laid.folder if self._laid else snapshot.repository_of(self.root) or self.root
        self._command = started.command(self.root, params)
        self._put(records.COMMAND, self._command.record())
        self._put(records.RANDOM, random_at_start())
        if self._options.output:
            self._output = self._listener()
            self._output.start()
        if self._options.read_output:
            self._printed = ReadOutput(self._run)
            self._printed.start()
        if self._options.system_s:
            self._system = SystemMeter()
        self._thread = threading.Thread(target=self._look, name="luxmeter-experiment", daemon=True)
        self._thread.start()

    def watch(self, folder: Path, part: str, suffixes: tuple[str, ...] = ()) -> None:
        """Look into a folder from now on."""
        with self._watch_lock:
            self._watch.add(folder, part, suffixes)

    def note_random(self) -> None:
        """Write the random state down again: a framework has been loaded, and nobody has drawn from it."""
        self._put(records.RANDOM, random_at_start())

    def stop(self, keycode: list[KeyCode]) -> None:
        """Look a last time and give everything back."""
        if self._printed is not None:
            self._printed.stop()
        if self._output is not None:
            self._output.stop()
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._is_gone():
            return
        if self._system is not None:
            with self._told("The machine's load"):
                self._run.log(self._system.sample())
        background.wait_for_all()  # checkpoints under way belong to the run
        self._look_into_folders(final=True)
        if self._options.code:
            self._keep_code(keycode)
        self._complete_command()

    def after_fork(self) -> None:
        """In a child: the thread is not here."""
        self._thread = None
        self._watch_lock = threading.Lock()
        if self._printed is not None:
            self._printed.stop()  # the end of a line may be its parent's
        if self._output is not None:
            self._output.after_fork()

    # -- inside -------------------------------------------------------------------------------------------------

    def _listener(self) -> OutputLog | NativeOutput:
        most_bytes = self._options.output_bytes
        if self._options.output == "all" and NativeOutput.is_possible():
            return NativeOutput(self._run.folder, most_bytes=most_bytes)
        return OutputLog(OutputFile(self._run.folder, most_bytes=most_bytes))

    def _look(self) -> None:
        with self._told("The circumstances of the run"):
            self._run.set_environment(started.gather())
        if self._options.code:
            with self._told("The code"):
                modules = set(sys.modules)
                put = self._run.put_blob
                if self._laid is not None:
                    self.snapshot = snapshot.of_laid_out(self._run.id, self._laid, put)
                else:
                    self.snapshot = snapshot.take(self._run.id, self.root, put)
                self._modules = modules
                self._put(records.CODE, self.snapshot.record())
        options, now = self._options, time.monotonic()
        next_sample, next_scan = now + options.system_s, now + options.watch_s
        while not self._stop.wait(_TICK_S):
            now = time.monotonic()
            if self._output is not None:
                self._output.flush_lines()
            if self._system is not None and now >= next_sample:
                next_sample = now + options.system_s
                with self._told("The machine's load"):
                    self._run.log(self._system.sample())
            if options.watch_s and now >= next_scan:
                self._look_into_folders(final=False)
                next_scan = time.monotonic() + options.watch_s

    def _look_into_folders(self, *, final: bool) -> None:
        if self._is_gone():
            return
        with self._told("A watched folder"), self._watch_lock:
            changes = self._watch.scan(final=final)
            if changes:
                self.changes.extend(changes)
                self._run.append_rows(records.FILES_TABLE, to_batch(changes))

    def _keep_code(self, keycode: list[KeyCode]) -> None:
        """Once more: what was imported meanwhile is code of this run too."""
        with self._told("The code"):
            before = self.snapshot or Snapshot(self._laid.root if self._laid else str(self.root))
            files = snapshot.imported_files(self.root, known=self._modules)
            named = [code.file for code in keycode if code.kind != "file" and code.file.is_file()]
            kept = snapshot.keep_files([*files, *named], self.root, self._run.put_blob)
            whole = {  # as they were when they were named
                started.relative(code.file, self.root): self._run.put_blob(code.source.encode())
                for code in keycode
                if code.kind == "file" and code.file.is_relative_to(self.root)
            }
            self.snapshot = replace(before, files={**kept, **whole, **before.files})
            key = [
                {
                    "name": code.name,
                    "kind": code.kind,
                    "file": started.relative(code.file, self.root),
                    "line": code.line,
                    "sha256": self._run.put_blob(code.source.encode()),
                }
                for code in keycode
            ]
            self._put(records.CODE, {**self.snapshot.record(), "keycode": key})

    def _complete_command(self) -> None:
        """The seed may have been set, and a module's file found, only after the start."""
        seed = start_state.torch_seed() if self._command.seed is None else self._command.seed
        script, _ = started.main_script()
        named = self._command.script or (None if script is None else started.relative(script, self.root))
        complete = replace(self._command, seed=seed, script=named)
        if complete != self._command:
            self._put(records.COMMAND, complete.record())

    def _put(self, name: str, record: Mapping[str, Any]) -> None:
        with self._told(name):
            indent = (
                None if name == records.RANDOM else 1
            )  # thousands of numbers: a line each would help nobody
            self._run.put_file(name, json_text(dict(record), indent=indent))

    def _is_gone(self) -> bool:
        """Whether somebody removed the run: it stays removed."""
        return not (self._run.folder / "run.json").exists()

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # noqa: BLE001  (a record less is no reason to end a training)
            if self._is_gone():
                return  # the writer tells that
            warn_once(
                "experiment-record",
                f"{what} could not be kept with run {self._run.id}: {type(problem).__name__}: {problem}.",
                "The run goes on without it.",
                key=what,
            )
