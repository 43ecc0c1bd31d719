"""Global and local variables, as the thexp document describes them."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

import luxmeter as lux
from luxmeter.errors import MissingNameError, StoreError, UsageError
from luxmeter.settings import environment_name, globs
from luxmeter.store import Lab


@pytest.fixture
def lab() -> Lab:
    return Lab.open(Path.cwd() / ".luxmeter")


def test_document_snippet(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    globs.update("global", "datasets", "/path/to/all/datasets")
    assert lux.globs["datasets"] == "/path/to/all/datasets"
    lux.globs.update("local", "a", 1)
    assert lux.globs.list_config(globa=True, local=True) == {"datasets": "/path/to/all/datasets", "a": 1}
    assert capsys.readouterr().out == "datasets = /path/to/all/datasets\na = 1\n"
    assert lux.globs.glob_fn == Path.home() / ".config" / "luxmeter" / "settings.json"


def test_local_wins_over_global_and_environment_over_both(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    globs.update("global", "x", "global")
    assert globs["x"] == "global"
    globs.update("local", "x", "local")
    assert globs["x"] == "local"
    monkeypatch.setenv("LUXMETER_X", "3")
    assert globs["x"] == 3
    assert environment_name("store.url") == "LUXMETER_STORE_URL"


@pytest.mark.parametrize(
    "value", [1, 1.5, True, None, "text", "007", [1, "a"], (1, 2), {"a": {"b": 1}}, float("inf")]
)
def test_values_keep_their_type(value: object) -> None:
    globs.update("global", "v", value)
    assert globs["v"] == value
    assert type(globs["v"]) is type(value)
    json.loads(globs.glob_fn.read_text(), parse_constant=pytest.fail)


def test_missing_and_removed(lab: Lab) -> None:
    globs.update("global", "datasets", "x")
    with pytest.raises(MissingNameError, match=r"'dataset'.*Did you mean 'datasets'\?"):
        globs["dataset"]
    with pytest.raises(KeyError):
        globs["nothing"]
    assert globs.get("nothing", 7) == 7
    assert "datasets" in globs and "nothing" not in globs and list(globs) == ["datasets"] and len(globs) == 1
    with pytest.raises(MissingNameError, match="setting-not-set"):
        globs.remove("local", "datasets")
    globs.remove("global", "datasets")
    assert "datasets" not in globs


def test_bad_input_changes_nothing() -> None:
    with pytest.raises(UsageError, match="setting-scope"):
        globs.update("planet", "a", 1)
    with pytest.raises(UsageError, match="setting-name"):
        globs.update("global", "a b", 1)
    with pytest.raises(UsageError, match="no-lab-for-local"):
        globs.update("local", "a", 1)
    assert not globs.glob_fn.exists()


def test_damaged_file_is_named() -> None:
    globs.update("global", "a", 1)
    globs.glob_fn.write_text("{broken")
    with pytest.raises(StoreError, match=r"settings\.json is not readable"):
        globs["a"]


def _write(number: int) -> None:
    for i in range(25):
        globs.update("global", f"n{number}_{i}", i)


def test_two_writers_lose_nothing() -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(globs.scope("global")) == 100
    assert not [
        path
        for path in globs.glob_fn.parent.iterdir()
        if path.name.startswith(".settings.json.") and path.suffix != ".lock"
    ]


def test_set_as_in_a_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the lab where there is one, else for all of them."""
    lux.globs["a"] = 4
    assert lux.globs.scope("global") == {"a": 4}
    Lab.open(Path.cwd() / ".luxmeter")
    lux.globs["a"] = 5
    assert (
        lux.globs["a"] == 5 and lux.globs.scope("local") == {"a": 5} and lux.globs.scope("global") == {"a": 4}
    )
