"""Where a search is kept while it goes: its state file, and its run in the lab, or among the results of the active run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from luxmeter.csv_text import csv_text
from luxmeter.environment import collect
from luxmeter.model.plainnet.candidates import Candidate
from luxmeter.model.plainnet.state import SearchState, save_state
from luxmeter.render import amount, counted
from luxmeter.store import Lab, RunWriter, put_result, results_folder, write_head

STATE_FILE = "search.json"
"""The state among the files of a run."""


class Keeper:
    """Saves a search at the end of each generation, and records how it ended."""

    def __init__(self, run: RunWriter | None, path: Path | None, among: Path | None = None) -> None:
        self._run = run
        self._among = among  # the results of another run: its own folder there
        self.path = path
        self.run_id = among.parents[2].name if among is not None else None if run is None else run.id

    @classmethod
    def open(
        cls,
        state: SearchState,
        settings: dict[str, Any],
        *,
        lab: Lab | None,
        path: str | Path | None,
        keep: bool,
    ) -> Keeper:
        """Begin a run if one is to be kept; a search that goes on names the run it goes on from as its parent."""
        place = None if path is None else Path(path)
        if not keep:
            return cls(None, place)
        within = results_folder() if lab is None else None
        if within is not None:
            state.run_id = within.name
            put = put_result("search", "begun", STATE_FILE, lambda path: save_state(path, state))
            return cls(None, place or put, put.parent if put is not None else None)
        own = lab if lab is not None else Lab.open()
        try:
            run = own.create_run(
                "search", params=settings, environment=collect(), parent=state.run_id, kind="search"
            )
        finally:
            if lab is None:
                own.close()
        state.run_id = run.id
        return cls(run, place if place is not None else run.folder / "files" / STATE_FILE)

    def generation(self, state: SearchState, row: dict[str, float]) -> None:
        """Log a generation and save."""
        if self._run is not None:
            self._run.log(row, step=len(state.history))
        self._save(state)

    def end(self, state: SearchState, *, interrupted: bool) -> None:
        """Save for good."""
        self._save(state)
        if self._run is not None:
            self._run.finish("interrupted" if interrupted else "finished")

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and self._run is not None:
            self._run.fail(error)

    def _save(self, state: SearchState) -> None:
        if self.path is not None:
            save_state(self.path, state)
        if self._among is not None:
            save_state(self._among / STATE_FILE, state)
            write_head(self._among, "search", title_of(state), STATE_FILE)
        if self._run is not None and state.population:
            self._run.put_file("best.txt", state.population[0].structure + "\n")
            self._run.put_file("population.csv", _table(state.population))


def title_of(state: SearchState) -> str:
    """A search in a line."""
    said = f"{counted(state.evaluated, 'network')} scored in {counted(len(state.history), 'generation')}"
    if not state.population:
        return f"{said}, none within the budgets"
    best = state.population[0]
    return f"{said}; best {best.score:.2f} with {amount(best.params)} parameters, {amount(best.macs)} MACs"


def _table(population: list[Candidate]) -> str:
    names = [one.name for one in fields(Candidate)]
    return csv_text([names, *([getattr(one, name) for name in names] for one in population)])
