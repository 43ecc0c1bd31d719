"""Global and local variables, as the thexp document describes them."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.errors import MissingNameError, StoreError, UsageError
from luxmeter.files import write_json
from luxmeter.settings import environment_name, globs
from luxmeter.store import Lab
from luxmeter.view.cli import build_app


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


@pytest.mark.parametrize(
    ("name", "value"),
    [("store.url", "postgresql://lux:s3cret@far.example/db"), ("mindspore.python", "/tmp/planted/python")],
)
def test_what_a_lab_names_outside_of_it_holds_once_it_is_trusted(lab: Lab, name: str, value: str) -> None:
    """The settings came with the lab: a host is not called, a program not started, before the user said so."""
    write_json(lab.folder / "settings.json", {name: value, "batch": 64})
    for read in (lambda: globs[name], lambda: globs.of_lab(name, lab.folder)):
        with pytest.raises(UsageError, match="lab-not-trusted") as caught:
            read()
        assert name in str(caught.value) and "s3cret" not in str(caught.value)
    assert globs["batch"] == 64
    run = CliRunner()
    if name == "store.url":
        refused = run.invoke(build_app(), ["runs"])
        assert isinstance(refused.exception, UsageError) and refused.exception.slug == "lab-not-trusted"
    trusted = run.invoke(build_app(), ["config", "--trust"])
    assert (
        trusted.exit_code == 0 and f"trusted: {name} = " in trusted.stdout and "s3cret" not in trusted.stdout
    )
    assert globs[name] == globs.of_lab(name, lab.folder) == value
    write_json(lab.folder / "settings.json", {name: f"{value}x"})  # trust is of the value, not of the name
    with pytest.raises(UsageError, match="lab-not-trusted"):
        globs[name]
    globs.update("local", name, f"{value}y")  # set by the user's own hand
    assert globs[name] == f"{value}y"
    write_json(lab.folder / "settings.json", {})
    assert "nothing outside" in run.invoke(build_app(), ["config", "--trust"]).stdout
    assert globs[name] is None


def test_settings_that_are_no_variables_are_named(lab: Lab) -> None:
    for text in ("[1]", "3", "{broken", '"a"', "\udcff".encode(errors="surrogateescape")):
        (lab.folder / "settings.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(StoreError, match=r"settings\.json is not readable"):
            globs["core"]
        with pytest.raises(StoreError, match="file-damaged"):
            globs.of_lab("store.lost_after_s", lab.folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [("core", 3), ("core", ["c"]), ("store.lost_after_s", "soon"), ("store.lost_after_s", -1), ("store.lost_after_s", True),
     ("store.lost_after_s", float("nan")), ("store.lost_after_s", 10**400), ("mindspore.python", 3)],
)  # fmt: skip
def test_a_setting_of_another_type_is_our_error(lab: Lab, name: str, value: object) -> None:
    """A lab comes from elsewhere; and it can still be mended by hand."""
    write_json(lab.folder / "settings.json", {name: value})
    globs.trust()
    with pytest.raises(UsageError, match="setting-type"):
        _ = globs[name]
    with pytest.raises(UsageError, match="setting-type"):
        globs.of_lab(name, lab.folder)
    globs.remove("local", name)
    assert globs[name] == globs.of_lab(name, lab.folder)
