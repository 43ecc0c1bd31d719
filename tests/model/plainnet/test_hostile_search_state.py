"""The state of a search as somebody may have made it: our own error, and nothing believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from luxmeter.errors import LuxmeterError
from luxmeter.model.plainnet import Budget, SearchOptions, load_search, resume_search, search
from luxmeter.store import Lab
from luxmeter.view.cli.search import show_search

START = "SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,8,1,8,1)"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("search") / "search.json"
    options = SearchOptions(population=2, generations=1, input_size=(2, 3, 8, 8), tries=2)
    search(START, budget=Budget(params=1e6), options=options, state=path, keep=False, quiet=True)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def put(said: Any, place: str, value: Any) -> None:
    *above, last = place.split(".")
    for one in above:
        said = said[int(one)] if isinstance(said, list) else said[one]
    said[int(last) if isinstance(said, list) else last] = value


SHOWN = [
    ("settings", 3), ("settings.options", []), ("settings.options.population", "x" * 1000), ("settings.options.generations", None),
    ("rng", 3), ("rng", [3, [1, 2], None]), ("rng.1", ["x"] * 625), ("rng.1.624", 10**9), ("rng.2", "soon"), ("step", "1"), ("step", -1),
    ("step", 10**400), ("population", {"a": 1}), ("population.0", 1), ("population.0.score", "high"), ("population.0.params", -1),
    ("population.0.structure", 7), ("population.0.more", 7), ("population.0.latency_s", [1]), ("seen", 3), ("seen", [[1]]), ("evaluated", None),
    ("rejected", 3), ("rejected", {"params": "x"}), ("nearest", []), ("nearest_excess", "x"), ("history", [3]), ("history", [{"a": "b"}]),
    ("run_id", "../../elsewhere"), ("run_id", 3),
]  # fmt: skip
RESUMED = [
    ("settings.start", 3), ("settings.start", "No(1)"), ("settings.budget", 3), ("settings.budget", {"params": "x"}), ("settings.budget", {"way": 1}),
    ("settings.options.input_size", 3), ("settings.options.input_size", [1, "x", 3, 3]), ("settings.options.score", []),
    ("settings.options.score", "os.system"), ("settings.options.space", 3), ("settings.options.space", {"kinds": 3}),
    ("settings.options.seed", "x"), ("settings.options.use_se", 3), ("settings.options.more", 3), ("settings.options.num_classes", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value"), SHOWN, ids=repr)
def test_a_forged_state_is_no_state(sound: dict[str, Any], place: str, value: Any, tmp_path: Path) -> None:
    said = json.loads(json.dumps(sound))
    put(said, place, value)
    path = tmp_path / "search.json"
    path.write_text(json.dumps(said))
    with pytest.raises(LuxmeterError, match="search-state"):
        load_search(path)


@pytest.mark.parametrize(("place", "value"), [*SHOWN, *RESUMED], ids=repr)
def test_a_search_does_not_go_on_from_it(
    sound: dict[str, Any], place: str, value: Any, tmp_path: Path
) -> None:
    said = json.loads(json.dumps(sound))
    put(said, place, value)
    path = tmp_path / "search.json"
    path.write_text(json.dumps(said))
    with pytest.raises(LuxmeterError):
        resume_search(path, keep=False, quiet=True)


@pytest.mark.parametrize(
    "key",
    [
        "settings",
        "step",
        "rng",
        "population",
        "seen",
        "evaluated",
        "rejected",
        "nearest",
        "history",
        "run_id",
    ],
)
def test_what_lacks(sound: dict[str, Any], key: str, tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_text(json.dumps({name: value for name, value in sound.items() if name != key}))
    with pytest.raises(LuxmeterError, match="search-state"):
        load_search(path)


def test_a_search_that_has_found_nothing_yet_is_shown(
    sound: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "search.json"
    path.write_text(json.dumps({**sound, "population": []}))
    found = load_search(path)
    show_search(found, top=5, as_json=False)
    assert "none within the budgets yet" in capsys.readouterr().out
    with pytest.raises(LuxmeterError, match="search-no-best"):
        _ = found.best


def test_a_sound_state_goes_on(sound: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_text(json.dumps(sound))
    assert resume_search(path, generations=2, lab=Lab.open(tmp_path / "lab"), quiet=True).evaluated >= 2
