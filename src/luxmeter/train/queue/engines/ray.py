"""Jobs as tasks of Ray, each with its CPUs, GPUs and memory. Ray ends a worker's tasks when that worker is gone."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from luxmeter import scratch
from luxmeter.errors import LuxmeterError
from luxmeter.render import counted, size
from luxmeter.store import Job, Needs
from luxmeter.train.queue.engines.engine import End, Room, Start
from luxmeter.train.queue.engines.local import Watched, said_of_code
from luxmeter.train.queue.engines.on_node import Program, ended_code, run_program

_KNOCK_S = 10.0
_LOOK_S = 5.0  # between looks whether some node can still run what waits


class Ray:
    """The cluster of RAY_ADDRESS, or the one that `ray start` made on this machine, or else one of our own for as long as we are."""

    name = "ray"

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise LuxmeterError(
                "no-ray", "--on ray needs Ray, which is not installed here.", "pip install 'luxmeter[ray]'"
            ) from error
        self._clock = clock
        self._is_connected = False
        self._folder: Path | None = None
        self._task: Any = None

    @property
    def slots(self) -> int:
        """As many as there are GPUs in the cluster, or else CPUs."""
        nodes = self.nodes()
        gpus = sum(int(node.get("GPU", 0)) for node in nodes)
        return max(1, gpus or sum(int(node.get("CPU", 0)) for node in nodes))

    def room(self, needs: Needs, running: Sequence[Job]) -> Room:
        """What the cluster has free beside tasks that have not begun; on which node is Ray's to find."""
        nodes = self.nodes()
        if why := why_never(needs, nodes):
            return Room(False, why, never=True)
        free = dict(self._connected().available_resources())
        for job in running:
            if job.process is None:
                for name, amount in resources(job.needs, nodes).items():
                    free[name] = free.get(name, 0) - amount
        for name, amount in resources(needs, nodes).items():
            if amount > free.get(name, 0):
                shown = size(int(amount)) if name == "memory" else f"{amount:g}"
                return Room(False, f"waits for {shown} {_WORDS[name]} of the Ray cluster")
        return Room(True)

    def start(self, start: Start) -> RayTask:
        """A task, which Ray starts where there is room, and never again by itself."""
        ray = self._connected()
        wanted = resources(start.job.needs, self.nodes())
        options: dict[str, Any] = {
            "num_cpus": wanted["CPU"],
            "max_retries": 0,
            "name": f"luxmeter job {start.job.id}",
        }
        if "GPU" in wanted:
            options["num_gpus"] = wanted["GPU"]
        if "memory" in wanted:
            options["memory"] = wanted["memory"]
        program = Program(
            list(start.words), str(start.cwd), dict(start.variables), str(start.log), str(start.folder)
        )
        self._task = self._task or ray.remote(run_program)
        return RayTask(self, self._task.options(**options).remote(program), start)

    def adopt(self, job: Job, folder: Path) -> Watched | None:
        """A task ends with the worker that gave it. What is left of it on this machine is watched until it is gone."""
        process = job.process
        return Watched(process) if process is not None and process.is_here and process.runs_here() else None

    def close(self) -> None:
        """Leave the cluster; one of our own ends."""
        if self._is_connected:
            self._is_connected = False
            self._ray.shutdown()
        if self._folder is not None:
            scratch.remove(self._folder)
            self._folder = None

    def nodes(self) -> list[dict[str, float]]:
        """What each living node has in all."""
        return [dict(node["Resources"]) for node in self._connected().nodes() if node["Alive"]]

    def _connected(self) -> Any:
        if not self._is_connected:
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "luxmeter"}
            asked = os.environ.get("RAY_ADDRESS", "")
            address = asked or _started_here()
            try:
                if not address:
                    raise ConnectionError("no ray start was here")
                _knock(address)
                self._ray.init(address, **quiet)
            except (OSError, ValueError, RuntimeError) as error:
                if asked not in ("", "auto"):
                    raise LuxmeterError(
                        "ray-silent",
                        f"There is no Ray cluster at {asked} (RAY_ADDRESS): {_line(error)}",
                        "Start it with ray start, correct RAY_ADDRESS, or unset it to use this machine alone.",
                    ) from error
                self._start_own(quiet)
            self._is_connected = True
        return self._ray

    def _start_own(self, quiet: Mapping[str, Any]) -> None:
        self._folder = scratch.make("ray")
        before = os.environ.get("RAY_USAGE_STATS_ENABLED")
        os.environ["RAY_USAGE_STATS_ENABLED"] = before or "0"
        try:
            self._ray.init("local", include_dashboard=False, _temp_dir=str(self._folder), **quiet)
        except Exception as error:
            scratch.remove(self._folder)
            self._folder = None
            raise LuxmeterError(
                "ray-not-started",
                f"Ray does not start on this machine: {_line(error)}",
                "Try ray start --head, which says more, and set RAY_ADDRESS=auto.",
            ) from error
        finally:
            if before is None:
                del os.environ["RAY_USAGE_STATS_ENABLED"]


class RayTask:
    """A task."""

    def __init__(self, engine: Ray, ref: Any, start: Start) -> None:
        self.place = f"ray {ref.task_id().hex()}"
        self._engine, self._ref, self._start = engine, ref, start
        self._end: End | None = None
        self._refusal = ""
        self._looked = engine._clock()

    def poll(self) -> End | None:
        """What the task gave, or what Ray says became of it."""
        ray = self._engine._ray
        if self._end is None and ray.wait([self._ref], timeout=0)[0]:
            try:
                code = int(ray.get(self._ref))
                self._end = End(code, said_of_code(code))
            except ray.exceptions.TaskCancelledError:
                why = self._refusal or "Ray ended its task"
                self._end = End(ended_code(self._start.folder), why, refused=bool(self._refusal))
            except ray.exceptions.RayTaskError as error:
                self._end = End(1, f"the node could not run it: {_line(error.cause or error)}")
            except ray.exceptions.RayError as error:
                self._end = End(None, f"Ray says {type(error).__name__}")
        if self._end is None and self._cannot_begin():
            self.end("ask")
        return self._end

    def end(self, how: Literal["ask", "kill"]) -> None:
        """Interrupt the task, which then ends its program; or kill both."""
        if self._end is None:
            self._engine._ray.cancel(self._ref, force=how == "kill")

    def _cannot_begin(self) -> bool:
        """Whether it waits for a node that has gone: Ray would wait, too, and say nothing."""
        now = self._engine._clock()
        if now - self._looked < _LOOK_S or (self._start.folder / "began.json").exists():
            return False
        self._looked = now
        self._refusal = why_never(self._start.job.needs, self._engine.nodes())
        return bool(self._refusal)


def resources(needs: Needs, nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What a job needs, in Ray's words. GPUs that were not spoken of: one where there are any."""
    gpus = (
        needs.gpus
        if needs.gpus is not None
        else min(1, int(max((n.get("GPU", 0) for n in nodes), default=0)))
    )
    wanted: dict[str, float] = {"CPU": needs.cpus}
    if gpus:
        wanted["GPU"] = gpus
    if needs.memory_bytes:
        wanted["memory"] = needs.memory_bytes
    return wanted


def why_never(needs: Needs, nodes: Sequence[Mapping[str, float]]) -> str:
    """Why no node can ever run a job; empty if one can."""
    wanted = resources(needs, nodes)
    if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        return ""
    for name, amount in wanted.items():
        most = max((node.get(name, 0) for node in nodes), default=0)
        if amount > most:
            is_memory = name == "memory"
            needed = f"{size(int(amount))} of memory" if is_memory else counted(int(amount), name)
            has = size(int(most)) if is_memory else f"{most:g}"
            return f"needs {needed}, the largest node of the Ray cluster has {has}"
    return f"needs more together than any of the {len(nodes)} nodes of the Ray cluster has"


_WORDS = {"CPU": "CPUs", "GPU": "GPUs", "memory": "memory"}


def _started_here() -> str:
    """The cluster that `ray start` made on this machine, where Ray notes it. Its "auto" takes any: that of another worker, too,
    which ends with that worker."""
    place = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    with contextlib.suppress(OSError):
        return (Path(place) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    return ""


def _knock(address: str) -> None:
    """OSError if nobody listens at an address; Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].partition(":")
    if colon and port.isdigit():
        with socket.create_connection((host, int(port)), timeout=_KNOCK_S):
            pass


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
