"""What people add to a run, at any time and after its end: tags, a note, archived or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from luxmeter.errors import UsageError
from luxmeter.files import write_json
from luxmeter.store.checked import read_marks
from luxmeter.store.journal import announce
from luxmeter.store.layout import MARKS


class Marks:
    """The marks of one run. Each change is read, made and written under a lock."""

    def __init__(self, run_folder: Path, lab_folder: Path) -> None:
        self._file = run_folder / MARKS
        self._lab_folder = lab_folder

    @property
    def tags(self) -> list[str]:
        """The tags, in the order they were given."""
        return list(self._read()["tags"])

    @property
    def note(self) -> str:
        """The note, empty if there is none."""
        return str(self._read()["note"])

    @property
    def archived(self) -> bool:
        """Whether lists leave the run out unless asked."""
        return bool(self._read()["archived"])

    def tag(self, *tags: str) -> None:
        """Add tags."""
        for tag in tags:
            if (
                not isinstance(tag, str)
                or not tag
                or tag != tag.strip()
                or "/" in tag
                or "~" in tag
                or tag == "latest"
            ):
                raise UsageError(
                    "tag-name",
                    f"{tag!r} cannot be a tag.",
                    "Use text without '/', '~' and outer spaces; 'latest' is taken.",
                )
        self._change(lambda marks: marks["tags"].extend(t for t in tags if t not in marks["tags"]))

    def untag(self, *tags: str) -> None:
        """Remove tags; those it does not have are passed over."""
        self._change(lambda marks: marks.update(tags=[t for t in marks["tags"] if t not in tags]))

    def set_note(self, note: str) -> None:
        """Replace the note."""
        self._change(lambda marks: marks.update(note=note))

    def set_archived(self, archived: bool = True) -> None:
        """Archive, or take out of the archive."""
        self._change(lambda marks: marks.update(archived=archived))

    def _read(self) -> dict[str, Any]:
        return read_marks(self._file)

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        with FileLock(self._file.with_name(f".{self._file.name}.lock")):
            marks = self._read()
            change(marks)
            write_json(self._file, marks)
        announce(self._lab_folder, self._file.parent.name)
