"""What went wrong in the background, kept until the user's next call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from luxmeter.errors import warn_once
from luxmeter.store.points import Dropped, dropped_text


class Troubles(list[tuple[str, str, str]]):
    """The troubles of one run that are still to be told. A list: each logged point asks whether it is empty."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self._run_id = run_id

    def tell(self) -> None:
        """Warn of each, once a run; of points that are missing, of each."""
        while self:
            slug, what, next_step = self.pop(0)
            key = what if slug.endswith("-dropped") else self._run_id
            warn_once(slug, what, next_step, key=key, stacklevel=5)

    def complain(self, slug: str, what: str, next_step: str) -> None:
        """Keep it for the user's next call."""
        trouble = (slug, f"Run {self._run_id}: {what}.", next_step)
        if trouble not in self:
            self.append(trouble)

    def internal(
        self,
        problem: Exception,
        next_step: str = "The rows it was about to write were left out; please report it.",
    ) -> None:
        """Something nobody thought of."""
        self.complain(
            "store-internal",
            f"{type(problem).__name__} while writing: {problem}",
            next_step,
        )

    def missing(self, dropped: Sequence[Dropped]) -> None:
        """Points that no table takes."""
        self.complain("points-dropped", dropped_text(dropped), "All others are kept.")

    def unfit(self, table: str, rows: int, problem: Exception) -> None:
        """Rows that cannot be written, whatever the disk says."""
        self.complain(
            "rows-dropped",
            f"{rows} rows of the table {table!r} cannot be written: {problem}",
            "All others are kept.",
        )

    def gone(self, folder: Path) -> None:
        """Somebody removed the run."""
        self.complain(
            "run-folder-gone",
            f"its folder is gone ({folder})",
            "What is logged from now on is not kept; training goes on.",
        )

    def disk(self, problem: OSError, folder: Path) -> None:
        """The disk refuses."""
        self.complain(
            "store-cannot-write",
            f"it cannot be written: {problem.strerror or problem} ({problem.filename or folder})",
            "Make room or give rights: what was logged waits in memory (up to 64 MB) and is tried again each second; "
            "training goes on.",
        )
