"""TensorBoard's event files: written beside a run on request, imported as runs, and taken apart.

files = TensorBoardFiles("tb/run1")         # the real tensorboard reads them
files.log({"loss": 0.3}, step=7)
import_tensorboard(lab, "tb")                    # every run folder becomes a run; twice does not double
scalars("tb"); save_tensorboard_images("tb", "out")     # curves as a DataFrame, pictures as files
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError, warn_once
from luxmeter.experiment.transfer.origin import Origin
from luxmeter.experiment.transfer.tensorboard_events import FoundRun, needed_package, read_runs
from luxmeter.progress import track
from luxmeter.store import (
    FinishedRun,
    Lab,
    Run,
    Stored,
    checked_key,
    checked_step,
    flatten,
    number_of,
    object_of,
)

if TYPE_CHECKING:
    import pandas as pd

FLUSH_EVERY_S = 2.0
_MOST_BUFFERED_BYTES = 1 << 20
_STATES = {"success": "finished", "failure": "failed", "running": "lost"}


class TensorBoardFiles:
    """Writes what is logged as an event file in `folder`. One record a call, however many values it has."""

    def __init__(
        self,
        folder: str | Path,
        *,
        flush_every_s: float = FLUSH_EVERY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._protos = _Protos()
        self._flush_every_s = flush_every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._steps: dict[str, int] = {}
        self._has_params = False
        self._closed = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise UsageError(
                "tensorboard-folder",
                f"No event file can be made in {self.folder}: {error.strerror}.",
                "Name a folder that can be written.",
            ) from error

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Write values of one step: numbers, text, Histogram, Image. What TensorBoard has no form for is left out."""
        protos = self._protos
        kept: list[Any] = []
        refused: list[Exception] = []
        for key, value in values.items():
            try:
                number = number_of(value)
                made = (
                    self._object(checked_key(key), value)
                    if number is None
                    else protos.scalar(checked_key(key), float(number))
                )
                kept += [] if made is None else [made]
            except Exception as problem:  # noqa: BLE001  (raised below: it must not cost the values after it)
                refused.append(problem)
        if kept:
            first = next(iter(values))
            at = self._step(first) if step is None else checked_step(first, step)
            self._write(protos.event(summary=protos.summary(value=kept), step=at))
        if refused:
            raise refused[0]

    def set_params(self, params: Mapping[str, Any]) -> None:
        """The hyperparameters, shown in TensorBoard's HPARAMS tab."""
        flat = {key: value for key, value in flatten(dict(params)).items() if value is not None}
        self._has_params = True
        for value in self._protos.session_start(flat, self.folder.name, self._clock()):
            self._write(self._protos.event(summary=self._protos.summary(value=[value])))

    def flush(self) -> None:
        """Make what was logged visible to TensorBoard."""
        with self._lock:
            if not self._closed:
                self._flush()

    def close(self, state: str = "finished") -> None:
        """Write the end (`state` as a run ends) and close. Once; later calls do nothing."""
        if self._closed:
            return
        if self._has_params:
            end = self._protos.session_end(state, self._clock())
            self._write(self._protos.event(summary=self._protos.summary(value=[end])))
        with self._lock:
            self._flush()
            self._closed = True
            self._file.close()

    def __enter__(self) -> TensorBoardFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("finished" if kind is None else "failed")

    def _open(self) -> None:
        self._owner = os.getpid()
        now = self._clock()
        for number in range(1000):
            name = f"events.out.tfevents.{int(now):010}.{socket.gethostname()}.{self._owner}.{number}"
            try:
                self._file = io.FileIO(self.folder / name, "xb")
                break
            except FileExistsError:
                continue
        self._flushed = time.monotonic()
        event = self._protos.event(file_version="brain.Event:2", wall_time=now)
        # A buffer of our own: that of a file object would be written out a second time by a forked child.
        self._buffer = bytearray(self._protos.framed(event.SerializeToString()))
        self._flush()

    def _write(self, event: Any) -> None:
        event.wall_time = self._clock()
        data = self._protos.framed(event.SerializeToString())
        with self._lock:
            if self._closed:
                return
            if os.getpid() != self._owner:
                self._open()  # a forked child: its own file, as the parent's buffer is the parent's
            self._buffer += data
            if (
                time.monotonic() - self._flushed >= self._flush_every_s
                or len(self._buffer) > _MOST_BUFFERED_BYTES
            ):
                self._flush()

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        try:
            while self._buffer:
                del self._buffer[: self._file.write(self._buffer) or 0]
        except OSError as error:  # training goes on without
            del self._buffer[:]
            warn_once(
                "tensorboard-cannot-write",
                f"The event file in {self.folder} cannot be written: {error.strerror}.",
                "What was to be written is left out there; the run itself has it. Training goes on.",
                key=str(self.folder),
            )

    def _step(self, key: str) -> int:
        self._steps[key] = self._steps.get(key, -1) + 1
        return self._steps[key]

    def _object(self, key: str, value: Any) -> Any:
        stored = object_of(key, value)
        made = self._protos.object(key, stored)
        if made is None:
            warn_once(
                "tensorboard-no-form",
                f"TensorBoard has no form for {key!r} ({stored.kind}).",
                "It is kept in the run; the event file leaves it out.",
                key=key,
            )
        return made


class _Protos:
    """TensorBoard's messages, made."""

    def __init__(self) -> None:
        with needed_package():
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
            from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
            from tensorboard.plugins.text import metadata as text
            from tensorboard.util import tensor_util
        self.event, self.summary = event_pb2.Event, summary_pb2.Summary
        self._summary_pb2, self._checksum = summary_pb2, masked_crc32c
        self._api, self._hparams, self._data = api_pb2, metadata, plugin_data_pb2
        self._text, self._tensor = text, tensor_util.make_tensor_proto

    def framed(self, data: bytes) -> bytes:
        """The bytes as a record: length, checksum, bytes, checksum."""
        length = len(data).to_bytes(8, "little")
        return b"".join(
            (
                length,
                self._checksum(length).to_bytes(4, "little"),
                data,
                self._checksum(data).to_bytes(4, "little"),
            )
        )

    def scalar(self, key: str, number: float) -> Any:
        """A point."""
        return self.summary.Value(tag=key, simple_value=number)

    def object(self, key: str, stored: Stored) -> Any:
        """Text, a histogram or a picture; None for what has no form."""
        if stored.kind == "text":
            tensor = self._tensor([json.loads(stored.text).encode()])
            return self.summary.Value(
                tag=f"{key}/text_summary", metadata=self._text.create_summary_metadata(key, ""), tensor=tensor
            )
        if stored.kind == "image" and stored.suffix == ".png":
            width, height = (int.from_bytes(stored.body[at : at + 4]) for at in (16, 20))
            channels = {0: 1, 2: 3, 4: 2, 6: 4}.get(stored.body[25], 3)
            image = self.summary.Image(
                width=width, height=height, colorspace=channels, encoded_image_string=stored.body
            )
            return self.summary.Value(tag=key, image=image)
        if stored.kind == "histogram":
            return self.summary.Value(tag=key, histo=self._histogram(json.loads(stored.text)))
        return None

    def session_start(self, params: Mapping[str, Any], name: str, now: float) -> list[Any]:
        """The hyperparameters of this run, and what they are."""
        start = self._data.SessionStartInfo(group_name=name, start_time_secs=now)
        infos = []
        for key, value in params.items():
            info = self._api.HParamInfo(name=key)
            if isinstance(value, bool):
                start.hparams[key].bool_value = value
                info.type = self._api.DATA_TYPE_BOOL
            elif isinstance(value, int | float):
                start.hparams[key].number_value = value
                info.type = self._api.DATA_TYPE_FLOAT64
            else:
                start.hparams[key].string_value = value if isinstance(value, str) else repr(value)
                info.type = self._api.DATA_TYPE_STRING
            infos.append(info)
        experiment = self._data.HParamsPluginData(experiment=self._api.Experiment(hparam_infos=infos))
        session = self._data.HParamsPluginData(session_start_info=start)
        return [
            self._plugin(self._hparams.EXPERIMENT_TAG, experiment),
            self._plugin(self._hparams.SESSION_START_INFO_TAG, session),
        ]

    def session_end(self, state: str, now: float) -> Any:
        """How the run ended."""
        status = self._api.STATUS_SUCCESS if state == "finished" else self._api.STATUS_FAILURE
        end = self._data.SessionEndInfo(status=status, end_time_secs=now)
        return self._plugin(
            self._hparams.SESSION_END_INFO_TAG, self._data.HParamsPluginData(session_end_info=end)
        )

    def _plugin(self, tag: str, data: Any) -> Any:
        metadata = self._hparams.create_summary_metadata(data)
        return self.summary.Value(tag=tag, metadata=metadata, tensor=self._hparams.NULL_TENSOR)

    def _histogram(self, record: dict[str, Any]) -> Any:
        n, mean, std = record["n"] - record["non_finite"], record["mean"], record["std"]
        if not record["counts"]:
            return self._summary_pb2.HistogramProto()
        return self._summary_pb2.HistogramProto(
            min=record["edges"][0], max=record["edges"][-1], num=n, sum=mean * n,
            sum_squares=(std * std + mean * mean) * n, bucket_limit=record["edges"][1:], bucket=record["counts"],
        )  # fmt: skip


def export_run(run: Run, folder: str | Path) -> Path:
    """A kept run as an event file in `folder`, with its own times and steps: to look at it with TensorBoard."""
    now = run.created_ns / 1e9
    files = TensorBoardFiles(folder, clock=lambda: now)
    protos = files._protos
    files.set_params(run.params)
    table = run.table("metrics", columns=["key", "step", "value", "time_ns"]).sort_by("time_ns")
    columns = [table.column(name).to_pylist() for name in ("time_ns", "step", "key", "value")]
    for (time_ns, step), some in itertools.groupby(zip(*columns, strict=True), key=lambda row: row[:2]):
        now = time_ns / 1e9
        values = [protos.scalar(key, value) for _, _, key, value in some]
        files._write(protos.event(summary=protos.summary(value=values), step=step))
    for row in run.records("objects"):
        now = row["time_ns"] / 1e9
        body = run.blob(row["blob"]) if row["blob"] else b""
        made = protos.object(row["key"], Stored(row["kind"], row["text"], body, row["suffix"]))
        if made is not None:
            files._write(protos.event(summary=protos.summary(value=[made]), step=row["step"]))
    now = (run.ended_ns or time.time_ns()) / 1e9
    files.close(run.state)
    return files.folder


def import_tensorboard(lab: Lab, folder: str | Path, *, quiet: bool = True) -> list[str]:
    """Every run folder at and below `folder` becomes a run; returns their ids. Grown ones are brought up to date."""
    ids: list[str] = []
    taken: dict[str, str] = {}  # key -> content, of this import
    for found in track(read_runs(folder), "importing", quiet=quiet):
        key = found.key
        if key in taken and taken[key] != found.content:
            key = f"{key}:{found.name}"  # two runs that begin alike
        taken[key] = found.content
        ids.append(_bring(lab, found, key))
        _tell_damage(found)
    return list(dict.fromkeys(ids))


def scalars(folder: str | Path, keys: list[str] | None = None) -> pd.DataFrame:
    """The curves in event files as a DataFrame: run, key, step, value, time_ns."""
    import pandas as pd

    columns: dict[str, list[Any]] = {"run": [], "key": [], "step": [], "value": [], "time_ns": []}
    for found in read_runs(folder):
        _tell_damage(found)
        flat = found.points
        for i in range(0, len(flat), 4):
            if keys is None or flat[i] in keys:
                columns["run"].append(found.name)
                for name, value in zip(("key", "value", "step", "time_ns"), flat[i : i + 4], strict=True):
                    columns[name].append(value)
    return pd.DataFrame(columns)


def save_tensorboard_images(
    folder: str | Path, into: str | Path, *, keys: list[str] | None = None
) -> list[Path]:
    """The pictures in event files, written as files `<run>/<key>/<step>.png` below `into`; returns them."""
    written: list[Path] = []
    for found in read_runs(folder):
        _tell_damage(found)
        for key, step, _, stored in found.objects:
            if stored.kind != "image" or (keys is not None and key not in keys):
                continue
            place = Path(into, *map(_file_name, found.name.split("/")), *map(_file_name, key.split("/")))
            place.mkdir(parents=True, exist_ok=True)
            path, number = place / f"{step:08}{stored.suffix}", 1
            while path in written:  # several pictures of one step
                path, number = place / f"{step:08}-{number}{stored.suffix}", number + 1
            path.write_bytes(stored.body)
            written.append(path)
    return written


def _bring(lab: Lab, found: FoundRun, key: str) -> str:
    facts = {
        "files": [path.name for path in found.files],
        "damaged": found.damaged,
        "left_out": found.left_out,
    }
    origin = Origin("tensorboard", str(found.folder), key, found.content, facts)
    run = FinishedRun(
        id=origin.run_id(found.first_ns), name=found.name, created_ns=found.first_ns, ended_ns=found.last_ns,
        state=_STATES.get(found.status, "finished"), params=found.params, tags=("tensorboard",),
        points=found.points, objects=found.objects,
    )  # fmt: skip
    return origin.bring(lab, run)


def _tell_damage(found: FoundRun) -> None:
    if found.damaged:
        warn_once(
            "event-file-damaged",
            f"{found.folder}: {len(found.damaged)} records are damaged ({found.damaged[0]}).",
            "The others were read.",
            key=str(found.folder),
        )


def _file_name(part: str) -> str:
    """A part of a key or folder that is safe as a file's name."""
    name = re.sub(r"[^\w.=+-]+", "_", part)[:100]
    return name if name.strip(".") else "_" + name
