"""A small evolutionary search over structure strings: the best score within budgets.

One step changes a member of the population, and keeps the child if it is within the budgets; the member with the
lowest score leaves when there are too many. All randomness comes from one seed and the state is saved, so a
search that was stopped goes on as if it never had been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.model.plainnet.candidates import Budget, Candidate, costs_of, latency_of
from luxmeter.model.plainnet.journal import Keeper
from luxmeter.model.plainnet.mutate import Space, check_searchable, mutate
from luxmeter.model.plainnet.network import PlainNet
from luxmeter.model.plainnet.parser import parse_structure, write_structure
from luxmeter.model.plainnet.state import SearchState, load_state, reading, saved_settings
from luxmeter.model.scores import score_named
from luxmeter.model.zen import check_size
from luxmeter.progress import track
from luxmeter.store import Lab, without_results
from luxmeter.typed_fields import checked_fields

Score = Callable[..., float]


@dataclass(frozen=True)
class SearchOptions:
    """How a search goes. A generation is as many steps as the population has places."""

    population: int = 32
    generations: int = 16
    input_size: tuple[int, ...] = (16, 3, 32, 32)
    num_classes: int | None = 10
    use_se: bool = False
    changes: int = 2
    """Blocks changed in a step, at most."""
    tries: int = 200
    """Children made in a step until one is new and within the budgets."""
    seed: int = 0
    score: str | Score = "zen"
    """zen, naswot, synflow, grad_norm, or a function of (model, *, input_size, seed). Higher is better."""
    space: Space = field(default_factory=Space)

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_size", check_size(self.input_size))
        for name in ("population", "generations", "changes", "tries"):
            if getattr(self, name) < 1:
                raise UsageError("search-options", f"{name} is {getattr(self, name)}.", "Give at least 1.")


@dataclass(frozen=True)
class SearchResult:
    """The population at the end, best first, and a row of numbers for each generation."""

    population: tuple[Candidate, ...]
    history: tuple[dict[str, float], ...]
    evaluated: int
    interrupted: bool
    run_id: str | None
    state_path: Path | None

    @property
    def best(self) -> Candidate:
        """The candidate with the highest score."""
        if not self.population:
            raise UsageError(
                "search-no-best",
                "The search has no network within its budgets yet.",
                "Go on with it, or raise the budgets.",
            )
        return self.population[0]


def search(
    start: str,
    *,
    budget: Budget,
    options: SearchOptions = SearchOptions(),  # noqa: B008  (frozen)
    state: str | Path | None = None,
    resume: str | Path | None = None,
    lab: Lab | None = None,
    keep: bool = True,
    quiet: bool = False,
) -> SearchResult:
    """Search from `start` for the structure with the highest score within the budgets.

    Scores are taken on the network without shortcuts, as published. The search is saved in the file `state` and
    goes on from it if it is there; `resume` is another file to go on from. With `keep` it is a run of the lab, with
    its parameters, the numbers of each generation and the best structure; without `state` it is saved there too.
    Inside a run it makes none, and is put into that one (unless a lab is given).
    Ctrl-C ends it after the step at hand.
    """
    goal = _Goal(budget, options, options.score if callable(options.score) else score_named(options.score))
    calls = parse_structure(start)
    check_searchable(calls, start)
    PlainNet(start, no_create=True, use_se=options.use_se)  # raises where the structure is wrong
    settings = _settings(start, budget, options)
    if resume is None and state is not None and Path(state).exists():
        resume = state
    if resume is not None:
        now = load_state(Path(resume), settings)
    else:
        now = SearchState.begin(settings, options.seed)
    keeper = Keeper.open(now, settings, lab=lab, path=state, keep=keep)
    with keeper:
        if not now.seen:
            goal.take_in(now, write_structure(calls))
        steps = track(range(now.step, options.population * options.generations), "searching", quiet=quiet)
        for step in steps:
            goal.one_step(now, write_structure(calls))
            now.step = step + 1
            if now.population:
                steps.note(f"best {now.population[0].score:.4g}")
            if now.step % options.population == 0:
                if not now.population:
                    raise _nothing_fits(now, budget)
                keeper.generation(now, now.summarize())
        keeper.end(now, interrupted=steps.interrupted)
        if not now.population:
            raise _nothing_fits(now, budget)
    return SearchResult(
        tuple(now.population),
        tuple(now.history),
        now.evaluated,
        steps.interrupted,
        keeper.run_id,
        keeper.path,
    )


def resume_search(
    path: str | Path,
    *,
    generations: int | None = None,
    state: str | Path | None = None,
    lab: Lab | None = None,
    keep: bool = True,
    quiet: bool = False,
) -> SearchResult:
    """Go on with the search saved in a file, with its own settings; `generations` makes it a longer one."""
    start, budget, options = _of_settings(Path(path))
    if generations is not None:
        options = replace(options, generations=generations)
    return search(
        start,
        budget=budget,
        options=options,
        state=state,
        resume=path,
        lab=lab,
        keep=keep,
        quiet=quiet,
    )


def load_search(path: str | Path) -> SearchResult:
    """The search whose state a file holds, as far as it came."""
    settings = saved_settings(Path(path))
    state = load_state(Path(path), settings)
    with reading(Path(path)):
        population, generations = (settings["options"][name] for name in ("population", "generations"))
        if type(population) is not int or type(generations) is not int:
            raise ValueError(f"it has {str(population)[:80]} places and {str(generations)[:80]} generations")
        is_over = state.step >= population * generations
    return SearchResult(
        tuple(state.population),
        tuple(state.history),
        state.evaluated,
        not is_over,
        state.run_id,
        Path(path),
    )


def _of_settings(path: Path) -> tuple[str, Budget, SearchOptions]:
    """What a saved search began with, looked at before anything is done with it."""
    saved = saved_settings(path)
    with reading(path):
        given = dict(saved["options"])
        score_named(given["score"])  # a function of one's own has a name here, and cannot be found again
        space = given.pop("space")
        within = Space() if space == "default" else checked_fields(Space(**_as_tuples(space)))
        options = checked_fields(SearchOptions(**{**given, "space": within}))
        if not isinstance(saved["start"], str):
            raise ValueError(f"its start is {str(saved['start'])[:80]!r}")
        return saved["start"], checked_fields(Budget(**saved["budget"])), options


def _as_tuples(space: Mapping[str, Any]) -> dict[str, Any]:
    """A Space's fields, in which JSON has lists for tuples."""
    return {**space, "kinds": tuple(map(tuple, space["kinds"]))}


@dataclass(frozen=True)
class _Goal:
    """What candidates are measured by."""

    budget: Budget
    options: SearchOptions
    score: Score

    def one_step(self, now: SearchState, start: str) -> None:
        """Make children until one is new and within the budgets; take it in."""
        for _ in range(self.options.tries):
            if now.population:
                parent = now.rng.choice(now.population).structure
            else:
                parent = now.nearest or start  # nothing fits yet: go on from what came nearest
            calls = mutate(
                parse_structure(parent), now.rng, changes=self.options.changes, space=self.options.space
            )
            if self.take_in(now, write_structure(calls)):
                return

    def take_in(self, now: SearchState, structure: str) -> bool:
        """Score the structure and put it into the population, if it is new and within the budgets."""
        if structure in now.seen:
            return False
        options = self.options
        now.seen.add(structure)
        costs = costs_of(
            structure,
            resolution=options.input_size[-1],
            num_classes=options.num_classes,
            use_se=options.use_se,
        )
        over = self.budget.excess(costs)
        if not over and self.budget.latency_s is not None:
            costs["latency_s"] = latency_of(
                structure,
                input_size=options.input_size,
                num_classes=options.num_classes,
                use_se=options.use_se,
            )
            over = self.budget.excess(costs)
        if over:
            now.reject(structure, over)
            return False
        candidate = Candidate(structure, self._score(structure), **costs)
        now.evaluated += 1
        now.population.append(candidate)
        # The structure decides between equal scores: the order must not depend on who came first.
        now.population.sort(key=lambda c: (-c.score, c.structure))
        del now.population[options.population :]
        return True

    def _score(self, structure: str) -> float:
        # Without shortcuts, as the published search does: the score is about the plain network.
        net = PlainNet(
            structure, num_classes=self.options.num_classes, use_se=self.options.use_se, no_reslink=True
        )
        # One seed for all: equal random numbers make the comparison fair, and a structure's score its own.
        with without_results():  # it is the search that a run gets
            value = float(self.score(net, input_size=self.options.input_size, seed=self.options.seed))
        return value if value == value and value != float("inf") else float("-inf")


def _settings(start: str, budget: Budget, options: SearchOptions) -> dict[str, Any]:
    score = options.score
    name = score if isinstance(score, str) else getattr(score, "__qualname__", type(score).__name__)
    space = "default" if options.space == Space() else asdict(options.space)
    return {
        "start": start,
        "budget": asdict(budget),
        "options": {**asdict(options), "score": name, "space": space},
    }


def _nothing_fits(now: SearchState, budget: Budget) -> UsageError:
    reasons = ", ".join(f"{name} {count}" for name, count in sorted(now.rejected.items()))
    return UsageError(
        "search-nothing-fits",
        f"None of {len(now.seen)} structures was within {budget}. Over budget: {reasons}; the nearest was "
        f"{now.nearest_excess:.3g} times over.",
        "Raise that budget, or start from a smaller structure.",
    )
