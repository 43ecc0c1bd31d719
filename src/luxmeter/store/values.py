"""What may be logged: anything with one number in it is a metric point; the rest is an object beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.files import to_json
from luxmeter.late import late
from luxmeter.loaded import loaded

if TYPE_CHECKING:
    import numpy as np
else:
    np = late("numpy")

_LONGEST_TEXT = 1 << 28  # characters: a table's text has room for 2 GiB in all
_HALF = re.compile("[\ud800-\udfff]")
_SMALL_ARRAY = 1024  # elements kept as text; more go to a .npy blob


@dataclass(frozen=True)
class Stored:
    """An object as it rests: its kind, a short JSON text, and bytes with a suffix if it has a body."""

    kind: str
    text: str
    body: bytes = b""
    suffix: str = ""


class Text:
    """Text to keep with a step, such as a generated sample."""

    def __init__(self, text: str) -> None:
        self.text = text

    def stored(self) -> Stored:
        """As it rests."""
        return Stored("text", json.dumps(self.text, ensure_ascii=False))


class Histogram:
    """How values are spread: counts between edges. Only these are kept, not the values."""

    def __init__(self, values: Any, *, bins: int = 64) -> None:
        array = _array(values).astype(np.float64).ravel()
        finite = array[np.isfinite(array)]
        self.counts: np.ndarray[Any, Any] = np.zeros(0, int)
        self.edges: np.ndarray[Any, Any] = np.zeros(0)
        if finite.size:
            self.counts, self.edges = np.histogram(finite, bins=bins)
        self.n = int(array.size)
        self.non_finite = int(array.size - finite.size)
        self.mean = float(finite.mean()) if finite.size else math.nan
        self.std = float(finite.std()) if finite.size else math.nan

    def stored(self) -> Stored:
        """As it rests."""
        record = {
            "counts": self.counts.tolist(),
            "edges": self.edges.tolist(),
            "n": self.n,
            "non_finite": self.non_finite,
            "mean": self.mean,
            "std": self.std,
        }
        return Stored("histogram", json.dumps(to_json(record)))


class Image:
    """A picture: PIL image, PNG bytes, or an array (H, W), (H, W, 3|4) or (3|4|1, H, W), 0..255 or 0..1."""

    def __init__(self, picture: Any, *, caption: str = "") -> None:
        self.caption = caption
        if isinstance(picture, bytes):
            if not picture.startswith(b"\x89PNG"):
                raise UsageError(
                    "image-not-png", "These bytes are not a PNG picture.", "Pass PNG bytes, or an array."
                )
            self.png = picture
        elif hasattr(picture, "save") and hasattr(picture, "convert"):
            self.png = _png(np.asarray(picture.convert("RGBA")))
        else:
            self.png = _png(_pixels(_array(picture)))

    def stored(self) -> Stored:
        """As it rests."""
        return Stored("image", json.dumps({"caption": self.caption}, ensure_ascii=False), self.png, ".png")


class File:
    """A file's content as it is now."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.body = self.path.read_bytes()
        except OSError as error:
            raise UsageError(
                "file-unreadable",
                f"{self.path} cannot be read: {error.strerror}.",
                "Check the path and its rights.",
            ) from error

    def stored(self) -> Stored:
        """As it rests."""
        return Stored(
            "file", json.dumps({"name": self.path.name}, ensure_ascii=False), self.body, self.path.suffix
        )


def number_of(value: Any) -> Any:
    """The float in `value`; a one-element tensor of an asynchronous device as a copy, to be read later; else None."""
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return _float(value)
    if isinstance(value, np.ndarray):
        return _float(value.reshape(())[()]) if value.size == 1 and value.dtype.kind in "biuf" else None
    torch = loaded("torch")  # a value can only be a tensor if somebody imported it
    if torch is not None and isinstance(value, torch.Tensor):
        # The methods underneath: a trace shows the user's calls, not these.
        tensor = getattr(torch._C, "TensorBase", torch.Tensor)
        if tensor.numel(value) != 1 or tensor.is_complex(value):
            return None
        # Reading a device's value now would wait for the device. The copy is queued behind the work that makes
        # the value, and is read by the background writer.
        if value.device.type == "cpu":
            return float(tensor.item(value))
        return tensor.clone(tensor.detach(value))
    if hasattr(value, "asnumpy"):  # MindSpore
        return number_of(value.asnumpy())
    return None


def object_of(key: str, value: Any) -> Stored:
    """`value` as an object, or a clear error that names `key`."""
    stored = _stored(key, value)
    texts = (stored.kind, stored.text, stored.suffix)
    if not all(isinstance(text, str) for text in texts) or len(stored.text) > _LONGEST_TEXT:
        raise UsageError(
            "value-not-storable",
            f"{key!r} has a value that is described by {len(stored.text):,} characters."
            if isinstance(stored.text, str)
            else f"{key!r} has a value whose stored() does not give texts.",
            "Put it into a file, and log that.",
        )
    if all(map(str.isascii, texts)):
        return stored
    # Half characters (of a file name's odd bytes, say) have no bytes in UTF-8: JSON has escapes for them.
    kind, suffix = (
        text.encode("utf-8", "backslashreplace").decode() for text in (stored.kind, stored.suffix)
    )
    text = _HALF.sub(lambda found: f"\\u{ord(found.group()):04x}", stored.text)
    return dataclasses.replace(stored, kind=kind, text=text, suffix=suffix)


def _stored(key: str, value: Any) -> Stored:
    if isinstance(value, str):
        return Text(value).stored()
    if isinstance(value, Path):
        return File(value).stored()
    if hasattr(value, "stored"):
        stored = value.stored()
        if isinstance(stored, Stored) and isinstance(stored.body, bytes):
            return stored
    if hasattr(value, "save") and hasattr(value, "convert") and hasattr(value, "getbands"):
        return Image(value).stored()
    if isinstance(value, list | tuple | np.ndarray) or hasattr(value, "numel") or hasattr(value, "asnumpy"):
        return _array_object(key, value)
    raise UsageError(
        "value-not-storable",
        f"{key!r} has a value of type {type(value).__module__}.{type(value).__qualname__}, which cannot be logged.",
        "Log numbers, tensors, arrays, text, Histogram, Image or File; for anything else put a file.",
    )


def blob_name(body: bytes) -> str:
    """The content's name: its SHA-256 in hexadecimal, as `sha256sum` prints it."""
    return hashlib.sha256(body).hexdigest()


def _array_object(key: str, value: Any) -> Stored:
    try:
        array = _array(value)
    except Exception as error:  # a foreign tensor raises what it likes
        raise UsageError(
            "value-not-storable",
            f"{key!r} cannot be made an array: {error}.",
            "Log numbers or a regular array.",
        ) from error
    if array.dtype.kind not in "biufcU":
        raise UsageError(
            "value-not-storable",
            f"{key!r} holds {array.dtype} elements.",
            "Log arrays of numbers, or text as a string.",
        )
    if array.size <= _SMALL_ARRAY and array.dtype.kind in "biufU":
        record = {"dtype": str(array.dtype), "shape": list(array.shape), "values": to_json(array.tolist())}
        return Stored("array", json.dumps(record, ensure_ascii=False))
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    record = {"dtype": str(array.dtype), "shape": list(array.shape)}
    return Stored("array", json.dumps(record), sink.getvalue(), ".npy")


def _array(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
            value = value.float()  # NumPy has no such type
        return np.asarray(value.numpy())
    if hasattr(value, "asnumpy"):
        return np.asarray(value.asnumpy())
    return np.asarray(value)


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None  # complex, or an integer beyond every float


def _pixels(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))) or 0 in array.shape:
        raise UsageError(
            "image-shape",
            f"An array of shape {tuple(array.shape)} is not a picture.",
            "Pass (H, W), (H, W, 3), (H, W, 4) or the channels first.",
        )
    if array.dtype.kind == "f":
        array = np.nan_to_num(array)
        array = array * (255.0 if array.max(initial=0.0) <= 1.0 else 1.0)
    if array.dtype == bool:
        array = array * np.uint8(255)
    return np.clip(np.round(array), 0, 255).astype(np.uint8)


def _png(pixels: np.ndarray[Any, Any]) -> bytes:
    """A PNG file of 8-bit pixels: grey, RGB or RGBA (the format is 30 lines; Pillow would be a dependency)."""
    height, width = pixels.shape[:2]
    colour = {1: 0, 3: 2, 4: 6}[1 if pixels.ndim == 2 else pixels.shape[2]]
    rows = pixels.reshape(height, -1)
    raw = np.concatenate(
        [np.zeros((height, 1), np.uint8), rows], axis=1
    ).tobytes()  # filter 0 before each row

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw, 6))
        + chunk(b"IEND", b"")
    )
