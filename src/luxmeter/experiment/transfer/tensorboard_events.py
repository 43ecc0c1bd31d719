"""TensorBoard's event files, read: scalars, images, histograms, text, audio and hyperparameters of a run folder.

A file is a row of records (length, checksum, bytes, checksum), each an Event message. What a killed process left
torn at the end is passed over; a damaged record is passed over and counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from luxmeter.errors import MissingExtraError, UsageError
from luxmeter.files import to_json
from luxmeter.store import Stored

_MOST_RECORD_BYTES = 1 << 30  # a length beyond is damage, not data
# The package's checksum is written in Python: up to here it costs little. A larger record is a picture or a
# graph, whose own format tells damage.
_CHECKED_BYTES = 1 << 16
_LAST_SECOND = 9e9  # of what 64 bits of nanoseconds hold
HPARAMS = "_hparams_/"


@dataclass
class FoundRun:
    """One run folder. `points` are flat: key, value, step, time_ns, key, ...; `objects` are key, step, time_ns, value."""

    folder: Path
    name: str
    files: list[Path] = field(default_factory=list)
    points: list[Any] = field(default_factory=list)
    objects: list[tuple[str, int, int, Stored]] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0
    key: str = ""  # the SHA-256 of the first record: stays as the run grows
    content: str = ""  # the SHA-256 of all records read
    status: str = ""  # success, failure or running, where hyperparameters say it
    damaged: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)  # plugin -> values that have no form here


def run_folders(folder: str | Path) -> list[Path]:
    """The folders at and below `folder` that hold event files, sorted."""
    root = Path(folder)
    if not root.exists():
        raise UsageError(
            "no-event-files", f"There is no folder {root}.", "Name a folder that TensorBoard was given."
        )
    if root.is_file():
        raise UsageError("no-event-files", f"{root} is a file.", "Name the folder that it lies in.")
    found = sorted({path.parent for path in root.rglob("*tfevents*") if path.is_file()})
    if not found:
        raise UsageError(
            "no-event-files",
            f"No event file lies in {root} or below (their names hold 'tfevents').",
            "Name a folder that TensorBoard was given.",
        )
    return found


def read_runs(folder: str | Path) -> Iterator[FoundRun]:
    """Every run folder at and below `folder`, read. A folder's name is its path below; `add_hparams` is taken in."""
    root = Path(folder).absolute()
    folders = run_folders(root)
    inner = _hparams_folders(folders)
    for place in folders:
        if place in inner:
            continue
        name = place.relative_to(root).as_posix()
        run = read_run(place, name=root.name or "tensorboard" if name == "." else name)
        for child in (c for c, parent in inner.items() if parent == place):
            session = read_run(child, name=child.name)
            run.params.update(session.params)
            run.points.extend(session.points)
            run.last_ns = max(run.last_ns, session.last_ns)
            run.status = session.status or run.status
            run.files.extend(session.files)
            run.content = hashlib.sha256((run.content + session.content).encode()).hexdigest()
        if run.key:
            yield run


def read_run(folder: Path, *, name: str = "") -> FoundRun:
    """What the event files of one folder hold, in the order of their names (they begin with the time)."""
    reader = _Reader(FoundRun(folder, name or folder.name))
    for path in sorted(p for p in folder.glob("*tfevents*") if p.is_file()):
        reader.read(path)
    return reader.done()


def records(path: Path) -> Iterator[bytes | None]:
    """The records of a file; None for a damaged one. Ends without a word at what was never finished."""
    checksum: Callable[[bytes], int] = _tensorboard().checksum
    with open(path, "rb") as file:
        while True:
            head = file.read(12)
            if len(head) < 12:
                return
            length, check = struct.unpack("<QI", head)
            if length > _MOST_RECORD_BYTES or checksum(head[:8]) != check:
                yield None
                return  # where the next record begins is not known any more
            body = file.read(length + 4)
            if len(body) < length + 4:
                return
            data = body[:length]
            sound = length > _CHECKED_BYTES or checksum(data) == struct.unpack("<I", body[length:])[0]
            yield data if sound else None


@dataclass(frozen=True)
class _Package:
    """What is used of the tensorboard package."""

    event: Any
    hparams: Any
    make_array: Callable[[Any], np.ndarray[Any, Any]]
    checksum: Callable[[bytes], int]
    decode_error: type[Exception]


@contextlib.contextmanager
def needed_package() -> Iterator[None]:
    """Around the imports of the tensorboard package: says what to do where it is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            "no-tensorboard",
            f"TensorBoard's event files need the package tensorboard: {error}.",
            "Install it with: pip install 'luxmeter[tensorboard]'",
        ) from error


def _tensorboard() -> _Package:
    with needed_package():
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
        from tensorboard.compat.proto import event_pb2
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
        from tensorboard.plugins.hparams import plugin_data_pb2
        from tensorboard.util import tensor_util
    return _Package(event_pb2, plugin_data_pb2, tensor_util.make_ndarray, masked_crc32c, DecodeError)


class _Reader:
    def __init__(self, run: FoundRun) -> None:
        self.run = run
        self.package = _tensorboard()
        self.plugins: dict[str, str] = {}  # tag -> plugin; only a tag's first value names it
        self.digest = hashlib.sha256()

    def read(self, path: Path) -> None:
        run = self.run
        run.files.append(path)
        for number, data in enumerate(records(path)):
            if data is None:
                run.damaged.append(f"{path.name}: record {number}")
                continue
            self.digest.update(data)
            if not run.key:
                run.key = hashlib.sha256(data).hexdigest()
            try:
                event = self.package.event.Event.FromString(data)
            except self.package.decode_error:
                run.damaged.append(f"{path.name}: record {number}")
                continue
            self._event(event)

    def done(self) -> FoundRun:
        self.run.content = self.digest.hexdigest()
        return self.run

    def _event(self, event: Any) -> None:
        run = self.run
        time_ns = int(event.wall_time * 1e9) if abs(event.wall_time) < _LAST_SECOND else 0  # or not a number
        run.first_ns = min(run.first_ns or time_ns, time_ns)
        run.last_ns = max(run.last_ns, time_ns)
        kind = event.WhichOneof("what")
        if kind == "session_log" and event.session_log.status == 1 and event.step > 0:
            self._restart(event.step)
        elif kind == "summary":
            for value in event.summary.value:
                self._value(value, event.step, time_ns)

    def _restart(self, step: int) -> None:
        """A resumed training logs from `step` on anew (`purge_step`): what was there from that step on is void."""
        run = self.run
        old, run.points = run.points, []
        for i in range(0, len(old), 4):
            if old[i + 2] < step:
                run.points.extend(old[i : i + 4])
        run.objects = [row for row in run.objects if row[1] < step]

    def _value(self, value: Any, step: int, time_ns: int) -> None:
        run = self.run
        key = value.tag or value.node_name
        if value.metadata.plugin_data.plugin_name:
            self.plugins[key] = value.metadata.plugin_data.plugin_name
        plugin = self.plugins.get(key, "")
        if plugin == "hparams":
            self._hparams(value.metadata.plugin_data.content)
            return
        which = value.WhichOneof("value")
        if which == "simple_value":
            run.points.extend((key, float(value.simple_value), step, time_ns))
            return
        found = self._objects(value, which, plugin)
        if isinstance(found, float):
            run.points.extend((key, found, step, time_ns))
        elif found:
            # torch adds this to the tag of every text, so that text and scalars of one name do not clash.
            name = key.removesuffix("/text_summary") if plugin == "text" else key
            run.objects.extend((name, step, time_ns, stored) for stored in found)
        else:
            word = plugin or which or "empty"
            run.left_out[word] = run.left_out.get(word, 0) + 1

    def _objects(self, value: Any, which: str | None, plugin: str) -> float | list[Stored]:
        if which == "image":
            return [picture(value.image.encoded_image_string)]
        if which == "histo":
            h = value.histo
            limits = [min(limit, h.max) for limit in h.bucket_limit]  # the last may be the largest float
            edges = [min(h.min, *limits[:1], h.max), *limits]
            return [_histogram(list(h.bucket), edges, n=h.num, total=h.sum, squares=h.sum_squares)]
        if which == "audio":
            return [_blob("file", {"name": "audio.wav"}, value.audio.encoded_audio_string, ".wav")]
        if which != "tensor":
            return []
        array = self.package.make_array(value.tensor)
        if plugin == "scalars" or (not plugin and array.size == 1 and array.dtype.kind in "biuf"):
            return float(array.reshape(-1)[0])
        if plugin == "text":
            texts = [_text(item) for item in array.reshape(-1)]
            return [Stored("text", json.dumps("\n".join(texts), ensure_ascii=False))]
        if plugin == "images":
            return [picture(bytes(item)) for item in array.reshape(-1)[2:]]  # width and height come first
        if plugin == "histograms" and array.ndim == 2 and array.shape[1] == 3:
            edges = [*array[:1, 0].tolist(), *array[:, 1].tolist()]
            return [_histogram(array[:, 2].tolist(), edges)]
        if plugin == "audio":
            return [
                _blob("file", {"name": "audio.wav"}, bytes(item), ".wav") for item in array.reshape(-1)[:1]
            ]
        if array.dtype.kind in "biuf" and not plugin:
            record = {
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "values": to_json(array.tolist()),
            }
            return [Stored("array", json.dumps(record))]
        return []

    def _hparams(self, content: bytes) -> None:
        try:
            data = self.package.hparams.HParamsPluginData.FromString(content)
        except self.package.decode_error:
            self.run.damaged.append("hyperparameters")
            return
        kind = data.WhichOneof("data")
        if kind == "session_start_info":
            for name, value in data.session_start_info.hparams.items():
                self.run.params[name] = _plain(value)
        elif kind == "session_end_info":
            self.run.status = {1: "success", 2: "failure", 3: "running"}.get(data.session_end_info.status, "")


def _hparams_folders(folders: list[Path]) -> dict[Path, Path]:
    """Folders that torch's `add_hparams` made beside a run's own files (named by the time) -> that run's folder."""
    inner: dict[Path, Path] = {}
    for parent in folders:
        children = [f for f in folders if f.parent == parent and f.name.replace(".", "", 1).isdigit()]
        if len(children) == 1 and len(children[0].name) > 9:  # several: each is a session of its own
            inner[children[0]] = parent
    return inner


def picture(body: bytes) -> Stored:
    """An encoded picture, as the store keeps it."""
    for magic, suffix in ((b"\x89PNG", ".png"), (b"\xff\xd8", ".jpg"), (b"GIF8", ".gif"), (b"RIFF", ".webp")):
        if body.startswith(magic):
            return _blob("image", {"caption": ""}, body, suffix)
    return _blob("file", {"name": "image"}, body, ".bin")


def _blob(kind: str, record: dict[str, Any], body: bytes, suffix: str) -> Stored:
    return Stored(kind, json.dumps(record), body, suffix)


def _histogram(
    counts: list[float], edges: list[float], *, n: float = 0, total: float = 0, squares: float = 0
) -> Stored:
    """A histogram; without its sums the mean and spread are those of the middles of its bins."""
    number = n or sum(counts)
    if not n and number:
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        total = math.fsum(c * m for c, m in zip(counts, middles, strict=False))
        squares = math.fsum(c * m * m for c, m in zip(counts, middles, strict=False))
    mean = total / number if number else math.nan
    std = math.sqrt(max(0.0, squares / number - mean * mean)) if number else math.nan
    record = {"counts": counts, "edges": edges, "n": int(number), "non_finite": 0, "mean": mean, "std": std}
    return Stored("histogram", json.dumps(to_json(record)))


def _text(item: Any) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return getattr(value, kind) if kind in ("string_value", "bool_value") else None
