"""Jobs as batch jobs of Slurm, submitted through submitit. Each has a name that its run's id makes: by that it is found again."""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from luxmeter.errors import LuxmeterError
from luxmeter.store import Job, Needs
from luxmeter.train.queue.engines.engine import End, Room, Start
from luxmeter.train.queue.engines.local import said_of_code
from luxmeter.train.queue.engines.on_node import DEVICES, LAUNCHERS, Program, ended_code, run_program

_SLOTS = 16  # in Slurm's queue at once, which has priorities of its own
_LOOK_S = 1.0  # between questions to Slurm
_ANSWER_S = 60.0  # to wait for an answer of Slurm
_FILE_S = 10.0  # until a file that a node wrote is seen here
_MEASURED = 1.25  # Slurm ends a job that uses more than it asked for: a little more than the last run used
_OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "SPECIAL_EXIT", "TIMEOUT",
}  # fmt: skip

_NEVER = {  # why Slurm holds back what it took, and would for ever unless somebody changes the cluster
    "AccountNotAllowed", "BadConstraints", "InvalidAccount", "InvalidQOS", "PartitionConfig", "PartitionNodeLimit",
    "PartitionTimeLimit", "QOSNotAllowed",
}  # fmt: skip


class Slurm:
    """The cluster that sbatch knows. What it has room for is Slurm's to say: it has a queue, too."""

    name = "slurm"
    slots = _SLOTS

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            self._submitit: Any = importlib.import_module("submitit")
        except ImportError as error:
            raise LuxmeterError(
                "no-submitit",
                "--on slurm needs submitit, which is not installed here.",
                "pip install 'luxmeter[slurm]'",
            ) from error
        if missing := [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]:
            raise LuxmeterError(
                "no-slurm",
                f"--on slurm needs Slurm's commands; {', '.join(missing)} cannot be found.",
                "Start the worker on a machine of the cluster, or correct PATH.",
            )
        self._clock = clock
        self._asked_at = float("-inf")
        self._found: dict[str, tuple[str, str]] | None = None
        self._complaint = ""
        if self.state("") is None:
            raise LuxmeterError(
                "slurm-silent",
                f"Slurm does not answer: {self._complaint}",
                "Check sinfo on this machine; jobs wait in the queue meanwhile.",
            )

    def room(self, needs: Needs, running: Sequence[Job]) -> Room:
        """Slurm takes what it can ever run, and refuses the rest when it is submitted."""
        silent = self.state("") is None
        return Room(
            not silent, f"waits for Slurm, which does not answer: {self._complaint}" if silent else ""
        )

    def start(self, start: Start) -> SlurmJob:
        """A batch job of one task."""
        name = _name(start.job)
        executor = self._submitit.SlurmExecutor(folder=start.folder / "slurm")
        executor.update_parameters(job_name=name, **parameters(start.job.needs))
        program = Program(
            list(start.words), str(start.cwd), dict(start.variables), str(start.log), str(start.folder),
            (*DEVICES, *LAUNCHERS),
        )  # fmt: skip
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # submitit shows what sbatch says, and so do we
                submitted = executor.submit(run_program, program)
        except Exception as error:  # submitit's own kinds, with what sbatch said
            raise LuxmeterError(
                "slurm-refuses",
                f"Slurm does not take it: {last_line(str(error))}",
                "Ask for less, or see sinfo for what the cluster has.",
            ) from error
        self._asked_at = float("-inf")  # what was heard before does not know it
        return SlurmJob(self, name, start.folder, start.log, f"slurm {submitted.job_id}")

    def adopt(self, job: Job, folder: Path) -> SlurmJob | None:
        """By its name, which its run's id makes: also one that Slurm has not started yet."""
        name = _name(job)
        self._asked_at = float("-inf")
        state = self.state(name)
        if state is not None and state[0] in (*_OVER, "") and ended_code(folder) is None:
            return None
        return SlurmJob(self, name, folder, None, job.place)

    def close(self) -> None:
        """Nothing is held."""

    def state(self, name: str) -> tuple[str, str] | None:
        """A job's state as Slurm says it, empty if it knows none of that name, and the reason; None if it does not answer."""
        now = self._clock()
        if now - self._asked_at >= _LOOK_S:
            self._asked_at = now
            answered, said = _ask("squeue", "--me", "--noheader", "--states=all", "--format=%T|%r|%j")
            rows = [line.split("|", 2) for line in said.splitlines() if line.count("|") >= 2]
            self._found = {row[2]: (row[0], row[1]) for row in rows} if answered else None
            self._complaint = "" if answered else last_line(said)
        return None if self._found is None else self._found.get(name, ("", ""))

    def cancel(self, name: str, *options: str) -> None:
        """End a job."""
        _ask("scancel", "--me", *options, f"--name={name}")


class SlurmJob:
    """A batch job."""

    def __init__(self, slurm: Slurm, name: str, folder: Path, log: Path | None, place: str) -> None:
        self.place = place
        self._slurm, self._name, self._folder, self._log = slurm, name, folder, log
        self._over_since: float | None = None

    def poll(self) -> End | None:
        """As its folder tells; without a word there, as Slurm does."""
        code = ended_code(self._folder)
        if code is not None:
            return End(code, said_of_code(code))
        found = self._slurm.state(self._name)
        state, reason = found or ("PENDING", "")
        if state == "PENDING" and reason in _NEVER:
            self.end("ask")
            return End(None, f"Slurm would never start it: {reason}", refused=True)
        if state not in (*_OVER, ""):
            self._over_since = None
            return None
        now = self._slurm._clock()
        self._over_since = now if self._over_since is None else self._over_since
        if state != "CANCELLED" and now - self._over_since < _FILE_S:
            return None
        return End(None, f"Slurm says {state}" if state else "Slurm does not know it any more")

    def end(self, how: Literal["ask", "kill"]) -> None:
        """scancel, which asks first and kills after Slurm's KillWait; or kills at once."""
        self._slurm.cancel(self._name, *(("--signal=KILL", "--full") if how == "kill" else ()))


def parameters(needs: Needs) -> dict[str, Any]:
    """What a job needs, in submitit's words. Partition, time and account: Slurm's variables (SBATCH_PARTITION, ...)."""
    wanted: dict[str, Any] = {
        "time": None, "wckey": None,  # submitit's own would be 5 minutes and a key that the cluster may not know
        "nodes": 1, "cpus_per_task": needs.cpus,
        "use_srun": False,  # so that the program may use srun itself
        "setup": ["trap : TERM"],  # the shell waits for the program that was asked to end
        "additional_parameters": {"no_requeue": True},  # starting it again is the queue's to decide
    }  # fmt: skip
    if needs.memory_bytes:
        asked = needs.memory_bytes * (_MEASURED if needs.is_measured else 1)
        wanted["mem"] = f"{math.ceil(asked / 2**20)}M"
    if needs.gpus:
        wanted["gpus_per_node"] = needs.gpus
    return wanted


def _name(job: Job) -> str:
    return f"luxmeter-{job.run}"


def _ask(*words: str) -> tuple[bool, str]:
    """Whether a command of Slurm went well, and what it printed, or complained of."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    return done.returncode == 0, done.stdout if done.returncode == 0 else done.stderr


def last_line(said: str) -> str:
    """What a command of Slurm complained of, of all that stands around it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line.partition("error: ")[2] for line in lines if "error: " in line] or lines
    return told[-1] if told else "it said nothing"
