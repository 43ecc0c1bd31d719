"""What a run holds beside its tables: the names, the records, and how each is read back.

Format history
1: files/command.json, files/code.json, files/random.json, files/ending.json, files/children.txt, logs/output.log and the table `files`.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.files import read_json
from luxmeter.late import late
from luxmeter.store.checked import damaged, read_status
from luxmeter.store.layout import TABLES, is_named
from luxmeter.store.output_file import LOGS_FOLDER, OUTPUT, left_out_line, output_tails
from luxmeter.store.segments import read_segments, reading

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = late("pyarrow")

FORMAT = 1
COMMAND, CODE, RANDOM, CHILDREN, ENDING = (
    "command.json", "code.json", "random.json", "children.txt", "ending.json",
)  # fmt: skip
OWN_FILES = (COMMAND, CODE, RANDOM, CHILDREN, ENDING)  # ours, not the program's
FILES_FOLDER = "files"
FILES_TABLE = "files"
SYSTEM = "system/"  # the beginning of the keys of the machine's own metrics
SEED_NAMES = ("seed", "random_seed", "rng_seed")  # the parameters that hold a run's seed


# Format history of tables/files
# 1: one row a change that was seen in a watched folder.
@cache
def files_schema() -> pa.Schema:
    """Of the changes of files."""
    return pa.schema(
        [
            pa.field("path", pa.string()),  # relative to the watched folder
            pa.field("folder", pa.string()),  # the watched folder, absolute
            pa.field("part", pa.string()),  # the name the folder was given
            pa.field("event", pa.string()),  # created, changed or removed
            pa.field("sha256", pa.string()),  # of the content; empty when it was removed
            pa.field("size_bytes", pa.int64()),
            pa.field("time_ns", pa.int64()),
            pa.field("kept", pa.bool_()),  # whether the content is among the run's blobs
        ],
        metadata={"luxmeter.format": "1"},
    )


@dataclass(frozen=True)
class Command:
    """How the program was started."""

    argv: tuple[str, ...] = ()
    executable: str = ""
    cwd: str = ""
    script: str | None = None  # relative to the code's root, or absolute when it lies outside of it
    module: str | None = None  # after python -m
    seed: int | None = None
    interactive: bool = False
    by: str = "script"  # who keeps the run: the script itself, or "luxmeter run"

    def record(self) -> dict[str, Any]:
        """As it rests in the run."""
        return {"format": FORMAT, **vars(self), "argv": list(self.argv)}


@dataclass(frozen=True)
class Code:
    """The code that ran. `files` is path below `root` -> SHA-256, the content is among the run's blobs."""

    root: str = ""
    files: dict[str, str] = field(default_factory=dict)
    git: dict[str, Any] | None = None
    keycode: tuple[dict[str, Any], ...] = ()  # what exp.keycode() named: name, kind, file, line, sha256


@dataclass(frozen=True)
class FileChange:
    """A file in a watched folder that came, changed or went."""

    path: str
    folder: str
    part: str
    event: str
    sha256: str
    size_bytes: int
    time_ns: int
    kept: bool

    @property
    def name(self) -> str:
        """As the run calls the file."""
        return f"{self.part}/{self.path}"


@dataclass(frozen=True)
class Ending:
    """How a program left its run."""

    state: str = "finished"
    exit_code: int | None = (
        0  # None where it cannot be known: a signal, or a run that ended before its program
    )
    signal: str | None = None
    error: str = ""  # the traceback

    @staticmethod
    def of(error: BaseException | None) -> Ending:
        """The end that an exception makes, or None."""
        if error is None:
            return Ending(exit_code=None)
        text = "".join(traceback.format_exception(error))
        if isinstance(error, SystemExit):
            code = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
            return Ending("failed" if code else "finished", code, None, text if code else "")
        if isinstance(error, KeyboardInterrupt):
            return Ending("interrupted", None, "SIGINT", text)
        return Ending("failed", 1, None, text)

    def record(self) -> dict[str, Any]:
        """As it rests in the run."""
        return {"format": FORMAT, "exit_code": self.exit_code, "signal": self.signal}


def read_command(run_folder: Path) -> Command | None:
    """How the run's program was started; None if the run keeps no such record."""
    usual = vars(Command()) | {"argv": [], "script": "", "module": "", "seed": 0}
    found = _read(run_folder, COMMAND, usual)
    if found is None:
        return None
    known = {name: found[name] for name in Command.__dataclass_fields__ if found.get(name) is not None}
    return Command(**{**known, "argv": tuple(map(str, found.get("argv") or ()))})


def read_code(run_folder: Path) -> Code | None:
    """The code that ran; None if the run keeps none."""
    found = _read(run_folder, CODE, {"root": "", "files": {}, "git": {}, "keycode": []})
    if found is None:
        return None
    path = run_folder / FILES_FOLDER / CODE
    files, keycode = found.get("files") or {}, found.get("keycode") or []
    if not all(isinstance(name, str) for name in files.values()) or not all(
        isinstance(k, dict) for k in keycode
    ):
        raise damaged(path, "its files are not names of content")
    git = found.get("git")
    if git is not None:
        _typed(path, git, {**_GIT, "left_out": [], "secrets": []})
        for word in ("tree", "snapshot", "commit"):
            if (said := git.get(word)) and not GIT_OBJECT.fullmatch(said):
                raise damaged(path, f"its {word!r} is {said[:80]!r}, which names nothing of git's")
    return Code(found.get("root") or "", files, git, tuple(keycode))


# What git is given as a word: no option, and not the zeros that say that any object will do.
GIT_OBJECT = re.compile("(?!0+$)(?:[0-9a-f]{40}|[0-9a-f]{64})")
_GIT = dict.fromkeys(("tree", "snapshot", "ref", "commit", "branch", "diff"), "")


def read_random(run_folder: Path) -> dict[str, Any] | None:
    """The random state at the start (`start_state.restore` goes back to it); None if the run keeps none."""
    return _read(run_folder, RANDOM, {})


def read_ending(run_folder: Path) -> Ending | None:
    """How the program left the run; None while it runs, or if it was lost."""
    found = _read(run_folder, ENDING, {"exit_code": 0, "signal": ""})
    status = read_status(run_folder)
    if found is None or status is None:
        return None
    return Ending(status["state"], found.get("exit_code"), found.get("signal"), status["error"])


def _read(run_folder: Path, name: str, usual: Mapping[str, Any]) -> dict[str, Any] | None:
    """One of the records; each value has the type of the usual one, or is None. Else the run is damaged there."""
    path = run_folder / FILES_FOLDER / name
    found = read_json(path)
    return None if found is None else _typed(path, found, usual)


def _typed(path: Path, found: Any, usual: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise damaged(path, "it holds no names with values")
    for key, example in usual.items():
        if not isinstance(found.get(key), type(example) | None):
            raise damaged(path, f"its {key!r} is no {type(example).__name__}")
    return found


def read_children(run_folder: Path) -> list[str]:
    """The ids of the runs that were begun inside this one, in that order."""
    try:
        lines = (run_folder / FILES_FOLDER / CHILDREN).read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
    return list(dict.fromkeys(line for line in lines if is_named("run", line)))


def read_output(run_folder: Path) -> str:
    """The text of a run's output; of a long one whose run lives or was lost, its beginning and its end."""
    path = run_folder / LOGS_FOLDER / OUTPUT
    newer, older = output_tails(path)
    head, before, tail = _bytes_of(path), _bytes_of(older), _bytes_of(newer)
    data = head + (left_out_line().encode() if before else b"") + before + tail
    return data.decode("utf-8", "replace")


def read_output_beginning(run_folder: Path, most_bytes: int) -> str:
    """The first lines of a run's output, of so many bytes; empty if there is none."""
    try:
        with open(run_folder / LOGS_FOLDER / OUTPUT, "rb") as file:
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def read_output_end(run_folder: Path, most_bytes: int = 1 << 16) -> str:
    """The last lines of a run's output, of so many bytes: what a look at a long one need not read is not read."""
    path = run_folder / LOGS_FOLDER / OUTPUT
    newer, older = output_tails(path)
    data, is_cut = b"", False
    for part in (newer, older, path):
        left = most_bytes - len(data)
        try:
            with open(part, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                is_cut = size > left
                file.seek(max(0, size - left))
                data = file.read(left) + data
        except OSError:
            continue
        if is_cut:
            break
    text = data.decode("utf-8", "replace")
    return text.partition("\n")[2] if is_cut and "\n" in text else text


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def read_changes(run_folder: Path) -> list[FileChange]:
    """What happened to files in the watched folders, in the order it was seen."""
    place = run_folder / TABLES / FILES_TABLE
    if not place.is_dir():  # most runs of a large lab
        return []
    with reading(place):
        table = read_segments(place, columns=files_schema().names)
        if table is None:
            return []
        table = table.cast(files_schema().remove_metadata())
        if any(column.null_count for column in table.columns):
            raise damaged(place, "a change of a file lacks a part")
        return [FileChange(**row) for row in table.to_pylist()]
