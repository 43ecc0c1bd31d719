"""One checkpoint, one file: safetensors for the tensors, with the JSON tree of all the rest in its header.

Any safetensors reader opens the file and finds the tensors under the names of their paths. On request the file is
one of torch.save instead; which it is shows from its content, never from its name.

Format history (the "luxmeter" entry of the header's metadata):
1 = {"version": 1, "tree": ...} as JSON text; or {"version": 1, "tree_in": name of a U8 tensor with the JSON text}.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import pickle
import pickletools
import socket
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import safetensors
import torch

from luxmeter.errors import CheckpointError
from luxmeter.experiment.checkpoint.rebuild import rebuild, rebuild_copy
from luxmeter.experiment.checkpoint.tensor_blocks import SAFETENSORS_NAMES, Leaf
from luxmeter.experiment.checkpoint.tree import encode
from luxmeter.files import sha256_of

FORMAT_VERSION = 1
FORMATS = ("safetensors", "torch")
TEMP_SUFFIX = ".tmp"
_LONG_TREE_BYTES = 1 << 20  # safetensors limits the header to 100 MB
_TREE_NAME = "luxmeter.tree"
_CHUNK_BYTES = 1 << 22
_DTYPES = {name: dtype for dtype, name in SAFETENSORS_NAMES.items()}


class Arena:
    """Memory that is kept from one save to the next: fresh memory costs many times more than the copy itself."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def memory(self, size_bytes: int) -> torch.Tensor:
        """At least this many bytes; what was in them before is gone."""
        if self._memory.numel() < size_bytes:
            self._memory = torch.empty(0, dtype=torch.uint8)  # let the old one go first
            self._memory = torch.empty(size_bytes, dtype=torch.uint8)
        return self._memory[:size_bytes]


class Snapshot:
    """A state as it was at one moment: its tree, and a copy of its tensors laid out as the file will have them."""

    def __init__(
        self,
        state: Any,
        *,
        format: str = "safetensors",
        arena: Arena | None = None,
        lend: frozenset[int] | None = None,
    ) -> None:
        self.format = format
        self._encoded = encode(state, allow_objects=format == "torch")
        # Without gaps, the widest dtypes first: that is how safetensors keeps every tensor aligned.
        self._leaves = sorted(self._encoded.leaves, key=lambda leaf: -leaf.align)
        self._offsets: list[int] = []
        total = 0
        for leaf in self._leaves:
            self._offsets.append(total)
            total += leaf.size_bytes
        self._data = (arena or Arena()).memory(total)
        self._encoded.leaves.clear()
        owned = None if lend is None else lend | self._encoded.owned
        for leaf, offset in zip(self._leaves, self._offsets, strict=True):
            if owned is None or not leaf.lend(owned):
                leaf.copy_to(self._data, offset)

    def settle(self) -> None:
        """Copy what is only lent; until then a lazy copy stands in for it."""
        for leaf, offset in zip(self._leaves, self._offsets, strict=True):
            leaf.copy_to(self._data, offset)

    def write(self, file: IO[bytes]) -> tuple[str, int]:
        """Write the file, and tell the sha256 of what was written and how many bytes it is."""
        self.settle()
        return self._write_torch(file) if self.format == "torch" else _hashed_write(file, self._parts())

    def _parts(self) -> list[Any]:
        """Header, tensors and, when the tree is too long for the header, the tree."""
        tree = json.dumps(self._encoded.tree, separators=(",", ":"), allow_nan=False).encode("ascii")
        data = self._data.numpy()
        entries: dict[str, Any] = {
            leaf.name: {
                "dtype": leaf.dtype,
                "shape": leaf.shape,
                "data_offsets": [offset, offset + leaf.size_bytes],
            }
            for leaf, offset in zip(self._leaves, self._offsets, strict=True)
        }
        if len(tree) <= _LONG_TREE_BYTES:
            return [_header(entries, f'{{"version": {FORMAT_VERSION}, "tree": {tree.decode()}}}'), data]
        name = _TREE_NAME
        while name in entries:
            name += "_"
        entries[name] = {
            "dtype": "U8",
            "shape": [len(tree)],
            "data_offsets": [len(data), len(data) + len(tree)],
        }
        return [_header(entries, json.dumps({"version": FORMAT_VERSION, "tree_in": name})), data, tree]

    def _write_torch(self, file: IO[bytes]) -> tuple[str, int]:
        tensors = {
            leaf.name: _from_bytes(self._data[offset : offset + leaf.size_bytes].clone(), leaf)
            for leaf, offset in zip(self._leaves, self._offsets, strict=True)
        }
        torch.save(rebuild_copy(self._encoded, tensors), file)
        file.flush()
        unsafe = _unsafe_names(file.name)
        if unsafe:
            raise CheckpointError(
                "state-type",
                f"torch.load(weights_only=True) would refuse this file: it needs {', '.join(sorted(unsafe))}.",
                "Save plain values and tensors, use the default format, or allow the class with "
                "torch.serialization.add_safe_globals().",
            )
        return sha256_of(Path(file.name)), file.tell()


def _header(entries: dict[str, Any], described: str) -> bytes:
    header = json.dumps({"__metadata__": {"luxmeter": described}, **entries}, separators=(",", ":")).encode(
        "ascii"
    )
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def _from_bytes(raw: torch.Tensor, leaf: Leaf) -> torch.Tensor:
    return raw.view(_DTYPES[leaf.dtype]).reshape(leaf.shape)


def _hashed_write(file: IO[bytes], parts: list[Any]) -> tuple[str, int]:
    digest, size_bytes = hashlib.sha256(), 0
    for part in parts:
        view = memoryview(part)
        size_bytes += len(view)
        for start in range(0, len(view), _CHUNK_BYTES):
            # Both calls let other threads run: training goes on while a chunk is written.
            chunk = view[start : start + _CHUNK_BYTES]
            file.write(chunk)
            digest.update(chunk)
    return digest.hexdigest(), size_bytes


_numbers = itertools.count()


@contextlib.contextmanager
def replacing(path: Path, *, sync_folder: bool = True) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of path at the end, in one step and safe against a power cut.

    When anything goes wrong, path is as it was and no temporary file stays. Few calls into the system: after each of
    them the writing thread takes the interpreter away from the training.
    """
    temp = path.with_name(f".{path.name}.{new_owner()}{TEMP_SUFFIX}")
    try:
        try:
            opened = temp.open("wb")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            opened = temp.open("wb")
        with opened as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temp.replace(path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    if sync_folder:
        _sync_folder(path.parent)


def new_owner() -> str:
    """A name of this process and of one thing that it makes: no other has it, and later ones of the process are greater."""
    return f"{_host()}-{os.getpid()}-{next(_numbers) & 0xFFFFFFFF:08x}"


@functools.cache
def _host() -> str:
    return socket.gethostname()


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some filesystems and systems cannot sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_file(path: Path, state: Any, *, format: str = "safetensors") -> str:
    """Write a state to a file, atomically; returns its sha256."""
    snapshot = Snapshot(state, format=format)
    with replacing(path) as file:
        return snapshot.write(file)[0]


def read_file(path: Path, *, device: str | torch.device = "cpu") -> Any:
    """The state in a file of either format, or of plain safetensors. Nothing in the file is ever executed."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise CheckpointError(
            "checkpoint-unreadable",
            f"{path} cannot be read: {error.strerror}.",
            "Check the path and its rights.",
        ) from error
    # safetensors begins with the length of its header (any bytes, also those of a pickle), then the header's brace.
    is_torch = start[8:9] != b"{" and (start[:2] == b"PK" or start[:1] == b"\x80")
    return _read_torch(path, device) if is_torch else _read_safetensors(path, device)


def _read_safetensors(path: Path, device: str | torch.device) -> Any:
    file, tree = opened(path, device=device)
    try:
        # Clones: safetensors maps the file, where later changes would show and where data may lie off the
        # boundary that kernels of wide dtypes need (complex128 crashes there).
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise damaged(path, f"{error}") from error
    return tensors if tree is None else rebuild(tree, tensors)


def opened(path: Path, *, device: str | torch.device = "cpu") -> tuple[Any, Any]:
    """A safetensors file whose tensors are still to be read, and its tree; None for one that is not ours."""
    try:
        file: Any = safetensors.safe_open(path, framework="pt", device=str(device))
        metadata = file.metadata() or {}
        if "luxmeter" not in metadata:
            return file, None
        described = json.loads(metadata["luxmeter"])
        if described["version"] != FORMAT_VERSION:
            raise CheckpointError(
                "checkpoint-version",
                f"{path.name} has format version {described['version']!r}; this Luxmeter reads {FORMAT_VERSION}.",
                "Load it with the Luxmeter that wrote it, or a newer one.",
            )
        if "tree" in described:
            return file, described["tree"]
        return file, json.loads(file.get_tensor(described["tree_in"]).cpu().numpy().tobytes())
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, f"{error}") from error


def _read_torch(path: Path, device: str | torch.device) -> Any:
    try:
        _check_members(path)
        return torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error)
        if any(word in reason for word in ("Unsupported", "GLOBAL", "not allowed", "allowed global")):
            raise CheckpointError(
                "checkpoint-unsafe",
                f"{path.name} is refused: loading it would run code. {_first_reason(path, reason)}",
                "Do not load files you did not make. If it is yours, save it again with plain values and tensors.",
            ) from error
        raise damaged(path, reason) from error
    except Exception as error:
        raise damaged(path, str(error)) from error


def _check_members(path: Path) -> None:
    """torch.save packs nothing: members that claim more than the file has would unpack to fill the memory."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
        if claimed > path.stat().st_size:
            raise ValueError(f"its members claim {claimed} bytes, and it has {path.stat().st_size}")


def _unsafe_names(path: str) -> list[str]:
    """What torch.load(weights_only=True) would refuse; where torch has no list of it, its own words."""
    ask = getattr(torch.serialization, "get_unsafe_globals_in_checkpoint", None)
    if ask is not None:
        return list(ask(path))
    try:
        torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        return [_torch_says(str(error))]
    return []


def _torch_says(reason: str) -> str:
    lines = [line.strip() for line in reason.splitlines() if "Unsupported" in line or "GLOBAL" in line]
    return lines[0] if lines else reason.splitlines()[0]


def _first_reason(path: Path, reason: str) -> str:
    """The names the pickle asks for, read without running it; otherwise torch's own words."""
    try:
        if zipfile.is_zipfile(path):
            names = set(torch.serialization.get_unsafe_globals_in_checkpoint(path))
        else:
            names = _pickled_names(path)
    except Exception:  # noqa: BLE001 - the file is hostile: whatever the listing dies of, the refusal stands
        names = set()
    if names:
        return f"It asks for {', '.join(sorted(names))}."
    return _torch_says(reason)


def _pickled_names(path: Path) -> set[str]:
    names, words = set(), ["", ""]
    with path.open("rb") as file:
        for code, argument, _ in pickletools.genops(file):
            if code.name == "GLOBAL":
                names.add(str(argument).replace(" ", "."))
            elif code.name == "STACK_GLOBAL":
                names.add(".".join(words[-2:]))
            elif isinstance(argument, str):
                words.append(argument)
    return names


def damaged(path: Path, reason: str) -> CheckpointError:
    """The error for a file whose content is not what was written."""
    return CheckpointError(
        "checkpoint-damaged",
        f"{path.name} is damaged: {reason.splitlines()[0] if reason else 'unreadable'}.",
        "Load an earlier checkpoint; load_latest_checkpoint() finds one by itself.",
    )
