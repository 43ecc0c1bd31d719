"""Runs leave and come in: a folder, a .zip, a .tar.gz or a .tar.zst that holds a run's directory as it is.

What comes in is looked at before any of it is believed: names that lead outside, links and devices are refused,
every file must be what the manifest says, blobs what their names say, and nothing appears in the lab before all is there.

Format history
1: the run's files in a folder of its id.
2: before them, in that folder, `manifest.json`: {"format": 2, "files": {path: SHA-256}}. Format 1 is taken in, too.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import secrets
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from luxmeter.errors import LuxmeterError, StoreError, UsageError, suggestion
from luxmeter.files import json_text, read_json, sha256_of, write_file
from luxmeter.store import Lab, Run, inside, layout, row_of

MANIFEST = "manifest.json"
FORMAT = 2
ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")
_CHUNK = 1 << 20
_MOST_MEMBERS = 1_000_000
_MOST_TIMES, _SMALL_BYTES = (
    200,
    1 << 30,
)  # more than so many times an archive's size is a bomb, from so many bytes on


@dataclass(frozen=True)
class Imported:
    """A run that came in. `was` is the id it had elsewhere; `already` says that it was here before."""

    id: str
    was: str
    folder: Path
    already: bool = False


def export_run(run: Run, target: Path) -> Path:
    """Write a run to `target`: an archive by its ending, else a folder. Whole or not at all; returns where."""
    if run.state == "running":
        raise StoreError(
            "run-is-running", f"Run {run.id} is still running.", "Wait for its end, then export it."
        )
    target = target.expanduser().absolute()
    if target.is_dir():
        target = target / run.id
    ending = _ending(target)
    if target.exists():
        raise UsageError(
            "export-exists", f"There is already something at {target}.", "Give another name with -o."
        )
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(3)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not ending:
            _write_folder(run, temporary)
        elif ending == ".zip":
            _write_zip(run, temporary)
        else:
            _write_tar(run, temporary, ending)
        os.replace(temporary, target)
    except OSError as error:
        raise StoreError(
            "export-unwritable",
            f"{target} cannot be written: {error.strerror}.",
            "Give another place with -o.",
        ) from error
    finally:
        _remove(temporary)
    return target


def import_run(lab: Lab, source: Path) -> Imported:
    """Take a run in from an archive or a folder. One that is here already is not taken twice; another run with the
    same id gets a new one."""
    source = source.expanduser().absolute()
    if not source.exists():
        raise UsageError("import-missing", f"There is no {source}.", "Give an exported run's file or folder.")
    staging = lab.folder / f".import-{secrets.token_hex(4)}"
    try:
        staging.mkdir()
        if source.is_dir():
            _copy_folder(source, staging)
        else:
            _unpack(source, staging)
        folder = _run_in(staging, source)
        _check_manifest(folder, source)
        return _take_in(lab, folder, source)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


# -- out --------------------------------------------------------------------------------------------------------------


def _files(run: Run) -> Iterator[tuple[Path, str]]:
    """Each file of the run with its name in an archive; lock files and the like stay behind."""
    for path in sorted(run.folder.rglob("*")):
        relative = path.relative_to(run.folder)
        if path.is_file() and not path.is_symlink() and not any(p.startswith(".") for p in relative.parts):
            yield path, f"{run.id}/{relative.as_posix()}"


def _manifest(run: Run) -> bytes:
    """What each file of the run is."""
    files = {name.partition("/")[2]: sha256_of(path) for path, name in _files(run)}
    return json_text({"format": FORMAT, "files": files}).encode()


def _write_folder(run: Run, target: Path) -> None:
    target.mkdir()
    write_file(target / MANIFEST, _manifest(run))
    for path, name in _files(run):
        place = target / name.partition("/")[2]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        moment = path.stat()
        os.utime(place, ns=(moment.st_atime_ns, moment.st_mtime_ns))


def _write_zip(run: Run, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.writestr(f"{run.id}/{MANIFEST}", _manifest(run))
        for path, name in _files(run):
            archive.write(path, name)


def _write_tar(run: Run, target: Path, ending: str) -> None:
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with _tar_stream(target, ending, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        # First: an archive that lost its end, or its beginning, is not taken for one without a manifest.
        manifest = _manifest(run)
        first = tarfile.TarInfo(f"{run.id}/{MANIFEST}")
        first.size = len(manifest)
        archive.addfile(first, io.BytesIO(manifest))
        for path, name in _files(run):
            # Blobs of a run and of the pool are one file: to the archive each is a file of its own.
            archive.inodes.clear()  # type: ignore[attr-defined]
            archive.add(path, name, recursive=False, filter=plain)


@contextlib.contextmanager
def _tar_stream(path: Path, ending: str, mode: str) -> Iterator[IO[bytes]]:
    if ending == ".tar.zst":
        import pyarrow as pa

        kind = pa.CompressedOutputStream if mode == "wb" else pa.CompressedInputStream
        with open(path, mode) as file, kind(file, "zstd") as stream:
            yield stream
    elif ending in (".tar.gz", ".tgz"):
        with gzip.open(path, mode) as stream:
            yield stream  # type: ignore[misc]
    else:
        with open(path, mode) as stream:
            yield stream


def _ending(path: Path) -> str:
    name = path.name.lower()
    found = next((e for e in sorted(ENDINGS, key=len, reverse=True) if name.endswith(e)), "")
    if not found and path.suffix and not path.is_dir():
        near = suggestion(path.suffix, ENDINGS)
        raise UsageError(
            "export-ending",
            f"{path.name} has an ending that is no archive's.",
            near or f"Use {', '.join(ENDINGS)}, or a name without an ending for a folder.",
        )
    return found


# -- in ---------------------------------------------------------------------------------------------------------------


class _Room:
    """Counts what is unpacked: an archive may not fill the disk."""

    def __init__(self, place: Path, packed_bytes: int | None = None) -> None:
        self.left = int(shutil.disk_usage(place).free * 0.9)
        if packed_bytes is not None:
            self.left = min(self.left, max(_SMALL_BYTES, _MOST_TIMES * packed_bytes))
        self.members = 0

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0 or self.members > _MOST_MEMBERS:
            raise StoreError(
                "archive-too-large",
                "The archive holds more than fits here, or far more than an archive of its size would.",
                "Make room on the lab's disk; if you trust it, unpack it yourself and import the folder.",
            )


def _unpack(source: Path, staging: Path) -> None:
    try:
        if zipfile.is_zipfile(source):
            _unpack_zip(source, staging)
        else:
            _unpack_tar(source, staging)
    except (LuxmeterError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged archive makes of the library that reads it
        raise StoreError(
            "not-an-archive", f"{source} cannot be read as an archive: {error}.", "Export the run again."
        ) from error


def _unpack_zip(source: Path, staging: Path) -> None:
    room = _Room(staging, source.stat().st_size)
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(member.filename, "is a link or a device")
            if not member.is_dir():
                with archive.open(member) as body:
                    _write(body, _target(staging, member.filename), room)


def _unpack_tar(source: Path, staging: Path) -> None:
    room = _Room(staging, source.stat().st_size)
    with open(source, "rb") as file:
        start = file.read(4)
    ending = ".tar.zst" if start == b"\x28\xb5\x2f\xfd" else ".tar.gz" if start[:2] == b"\x1f\x8b" else ".tar"
    with _tar_stream(source, ending, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isdir():
                _target(staging, member.name)
                continue
            if not member.isreg():
                raise _refused(member.name, "is a link or a device")
            target = _target(staging, member.name)
            body = archive.extractfile(member)
            if body is None:
                raise _refused(member.name, "has no content")
            _write(body, target, room)
            os.utime(target, (member.mtime, member.mtime))
        while rest := stream.read(_CHUNK):  # to the end, where gzip has its checksum
            room.take(len(rest))


def _target(staging: Path, name: str) -> Path:
    try:
        return inside(staging, str(PurePosixPath(name)))
    except UsageError:
        raise _refused(name, "points outside") from None


def _write(body: IO[bytes], target: Path, room: _Room) -> None:
    room.members += 1
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        raise _refused(target.name, "is there twice")
    with open(target, "xb") as file:
        while chunk := body.read(_CHUNK):
            room.take(len(chunk))
            file.write(chunk)


def _refused(name: str, why: str) -> StoreError:
    return StoreError(
        "archive-member",
        f"The archive's member {name!r} {why}.",
        "Nothing was imported; do not trust where the archive came from.",
    )


def _copy_folder(source: Path, staging: Path) -> None:
    room = _Room(staging)
    for path in sorted(source.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise _refused(str(path.relative_to(source)), "is a link or a device")
        target = _target(staging, path.relative_to(source).as_posix())
        with open(path, "rb") as body:
            _write(body, target, room)
        moment = path.stat()
        os.utime(
            target, ns=(moment.st_atime_ns, moment.st_mtime_ns)
        )  # its rights are not ours: the umask says them


def _run_in(staging: Path, source: Path) -> Path:
    """The run's folder: the staging place itself, or the one folder in it."""
    inner = [p for p in staging.iterdir() if p.is_dir()]
    places: list[Path] = [staging, *inner] if len(inner) == 1 else [staging]
    for folder in places:
        if (folder / layout.IDENTITY).is_file():
            return folder
    raise StoreError(
        "no-run-in-archive",
        f"{source} holds no run.",
        "Name a file that luxmeter export wrote; other tools: luxmeter import tensorboard DIR, luxmeter import mlflow URI.",
    )


def _check_manifest(folder: Path, source: Path) -> None:
    """Whether all files are there, each as it was exported; the manifest itself does not come in."""
    said = read_json(folder / MANIFEST)
    if said is None:
        return  # of an older export, or a run's folder as it lies in a lab
    files = said.get("files") if isinstance(said, dict) else None
    if not isinstance(files, dict) or type(said.get("format")) is not int:
        raise _unfit(source, f"its {MANIFEST} lists no files")
    if said["format"] > FORMAT:
        raise StoreError(
            "archive-too-new",
            f"{source} has format {said['format']}; this version reads up to {FORMAT}.",
            "Update luxmeter.",
        )
    (folder / MANIFEST).unlink()
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    wrong = [f"{name} is missing" for name in files.keys() - there.keys()]
    wrong += [f"{name} is not in its list" for name in there.keys() - files.keys()]
    wrong += [
        f"{name} is not what was exported"
        for name in files.keys() & there.keys()
        if sha256_of(there[name]) != files[name]
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise StoreError(
            "archive-damaged",
            f"{source} is damaged: {', '.join(sorted(wrong)[:3])}{more}.",
            "Nothing was imported. Export the run again, or copy the archive again.",
        )


def _take_in(lab: Lab, folder: Path, source: Path) -> Imported:
    identity = _checked(folder, source)
    was = identity["id"]
    target = lab.folder / layout.RUNS / was
    trashed = lab.folder / layout.TRASH / was
    if target.exists() or trashed.exists():
        if _is_same(target, identity):
            return Imported(was, was, target, already=True)
        taken = lab.adopt(folder, anew=True)
    else:
        taken = lab.adopt(folder)
    return Imported(taken.id, was, taken.folder)


def _is_same(folder: Path, identity: dict[str, Any]) -> bool:
    """Whether the run that lies here was made at that moment by that process."""
    try:
        there = Run(folder).identity
    except LuxmeterError:
        return False
    return all(there[key] == identity[key] for key in ("created_ns", "process"))


def _checked(folder: Path, source: Path) -> dict[str, Any]:
    """The run's identity, if everything that lists and readers rely on is as it should be."""
    try:
        run = Run(folder)
        row_of(run)
    except LuxmeterError as error:
        raise _unfit(source, error.what.replace(f"{folder}{os.sep}", "").rstrip(".")) from error
    for blob in sorted((folder / layout.BLOBS).glob("*/*")):
        if sha256_of(blob) != blob.name:
            raise _unfit(source, f"blob {blob.name} does not hold what its name says")
    return run.identity


def _unfit(source: Path, why: str) -> StoreError:
    return StoreError("run-unfit", f"The run in {source} cannot be imported: {why}.", "Export it again.")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
