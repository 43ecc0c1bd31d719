"""Finding a lab, naming, filtering and sorting its runs, and the upkeep."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from listed_runs import FILTERS, SORTS, in_both_databases, make, make_varied

from luxmeter.errors import LuxmeterWarning, StoreError, UsageError
from luxmeter.settings import find_lab, globs
from luxmeter.store import Lab, Run
from luxmeter.store.query import Both, Condition, Field, Not, parse_filter


def test_lab_is_found_as_git_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "project" / "src" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert find_lab().folder == Path.home() / ".luxmeter"
    assert not find_lab().exists
    Lab.open(tmp_path / "project" / ".luxmeter").close()
    assert find_lab().folder == tmp_path / "project" / ".luxmeter"
    Lab.open(tmp_path / "named").close()
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "named"))
    assert find_lab().folder == tmp_path / "named"
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "project"))
    assert find_lab().folder == tmp_path / "project" / ".luxmeter"
    monkeypatch.delenv("LUXMETER_HOME")
    monkeypatch.chdir(tmp_path)
    globs.update("global", "home", str(tmp_path / "named"))
    assert find_lab().folder == tmp_path / "named"


def test_default_place_is_made_on_first_use() -> None:
    with pytest.raises(StoreError, match="no-lab"):
        Lab.open(create=False)
    lab = Lab.open()
    assert lab.folder == Path.home() / ".luxmeter"
    assert Lab.open(create=False).id == lab.id


@in_both_databases
def test_one_grammar_names_runs(lab: Lab) -> None:
    first = make(lab, "mnist", tags=("good",))
    second = make(lab, "mnist")
    third = make(lab, "cifar", tags=("good",))
    assert lab.find(first).id == first
    assert lab.find(first[:5]).id == first
    assert lab.find("latest").id == third
    assert lab.find("latest~2").id == first
    assert lab.find("mnist").id == second
    assert lab.find("mnist~1").id == first
    assert lab.find("good").id == third
    assert lab.find("good~1").id == first
    assert lab.find(lab.folder / "runs" / second).id == second
    with pytest.raises(StoreError, match=r"latest~3.*holds 3"):
        lab.find("latest~3")
    with pytest.raises(StoreError, match=r"Did you mean 'mnist'\?"):
        lab.find("mnits")
    with pytest.raises(StoreError, match="only 2 runs"):
        lab.find("mnist~2")
    with pytest.raises(StoreError, match="not-a-run"):
        lab.find(lab.folder / "nowhere")


@in_both_databases
def test_ambiguous_beginning_is_refused(lab: Lab) -> None:
    ids = [make(lab, "a") for _ in range(30)]
    letter = next(i[0] for i in ids if sum(j[0] == i[0] for j in ids) > 1)
    with pytest.raises(StoreError, match="run-ambiguous"):
        lab.find(letter)


@in_both_databases
def test_filters_and_sorting(lab: Lab) -> None:
    a = make(lab, "a", lr=0.1, acc=0.9, optim={"name": "adam"})
    b = make(lab, "b", lr=0.01, acc=0.95, optim={"name": "sgd"}, tags=("best",))
    c = make(lab, "c", lr=1, flag=True)

    def ids(where: str, sort: str = "created") -> list[str]:
        return [row.id for row in lab.runs(where, sort=sort)]

    assert ids("") == [a, b, c]
    assert ids("", "-created") == [c, b, a]
    assert ids("param.lr < 0.5") == [a, b]
    assert ids("params.optim.name = adam") == [a]
    assert ids("param.optim.name ~ 'a*'") == [a]
    assert ids("metric.acc >= 0.9 and param.lr <= 0.01") == [b]
    assert ids("metric.acc.max > 0 and not tag = best") == [a]
    assert ids("tag != best") == [a, c]
    assert ids("(name = a or name = c) and state = finished") == [a, c]
    assert ids("param.flag = true") == [c]
    assert ids("", "-metric.acc") == [b, a, c]
    assert ids("", "param.lr") == [b, a, c]
    assert ids("created > 2020-01-01 and duration < 60") == [a, b, c]
    assert lab.runs(limit=1)[0].id == c
    row = lab.runs("name = b")[0]
    assert (row.params["optim.name"], row.metrics["acc"]["last"], row.tags) == ("sgd", 0.95, ["best"])


def test_conditions_that_must_all_hold_are_answered_as_any_other(lab: Lab) -> None:
    make_varied(lab)
    for where in filter(None, FILTERS):
        for sort in SORTS:
            joined = lab.runs(where, sort=sort)  # parameters and metrics joined to the runs
            nested = lab.runs(f"not not ({where})", sort=sort)  # each a select of its own
            assert joined == nested, (where, sort)
            assert [row.head for row in joined] == list(lab.catalog.select_heads(where, sort=sort))
    assert [row.name for row in lab.runs("param.lr <= 0.1 and metric.acc > 0.3", sort="-metric.acc")] == [
        "a",
        "b",
    ]
    assert [row.name for row in lab.runs(sort="-metric.acc")] == ["a", "b", "b", "a_%", "none", "Ä", "c"]
    assert [row.name for row in lab.runs(sort="metric.acc")] == ["a_%", "b", "b", "a", "none", "Ä", "c"]


@in_both_databases
def test_heads_of_a_list(lab: Lab) -> None:
    assert len(lab.catalog.select_heads("")) == 0 and list(lab.catalog.select_heads("")) == []
    ids = [make(lab, name) for name in ('a "quoted", [name]', "b\0", "c")]
    heads = lab.catalog.select_heads("", sort="created")
    assert len(heads) == 3 and [head.id for head in heads] == ids
    assert heads[0].name == 'a "quoted", [name]' and heads[1].name == "b\0" and heads[-1].state == "finished"
    assert heads[1:] == list(heads)[1:]
    lab.delete(ids[2])
    assert heads[2].id == ids[2] and len(lab.catalog.select_heads("")) == 2  # as it was when it was asked for


def test_filter_is_read_without_evaluating() -> None:
    assert parse_filter("  ") is None
    condition = Condition(Field("param", "lr"), ">", 0.1)
    assert parse_filter("param.lr>0.1") == condition
    assert parse_filter("not param.lr>0.1 or name = x") == Both(
        "or", Not(condition), Condition(Field("name"), "=", "x")
    )


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ("param.lr", "expected one of"),
        ("param.lr >", "expected a value"),
        ("lr > 1", "query-field"),
        ("stat = running", "Did you mean 'state'"),
        ("metric.acc > high", "expected a number"),
        ("created > soon", "expected a date"),
        ("(name = a", r"expected '\)'"),
        ("name = a name = b", "position"),
        ("name = a; drop table", "expected the end"),
    ],
)
def test_filters_that_are_not_understood(lab: Lab, where: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        lab.runs(where)


@in_both_databases
def test_text_that_looks_like_sql_is_text(lab: Lab) -> None:
    nasty = "x'; DROP TABLE luxmeter_runs; --"
    made = make(lab, nasty, note=nasty)
    assert [row.id for row in lab.runs(f'name = "{nasty}"')] == [made]
    assert lab.runs('name = "%"') == []
    assert [row.id for row in lab.runs("name ~ 'x*'")] == [made]


@in_both_databases
def test_half_characters_are_kept(lab: Lab) -> None:
    odd = "a\udcffb"  # what Python makes of a file name with the byte 0xff
    with lab.create_run(odd, params={"file": odd, odd: 1}, tags=[odd]) as run:
        run.log({"loss": 0.5})
        run.marks.set_note(odd)
    found = lab.find(run.id)
    assert (found.name, found.params, found.tags, found.marks.note) == (
        odd,
        {"file": odd, odd: 1},
        [odd],
        odd,
    )
    (head,) = lab.catalog.select_heads("metric.loss = 0.5 and param.file ~ 'a*b'")
    assert head.name == odd


@in_both_databases
def test_marks(lab: Lab) -> None:
    run = lab.find(make(lab, "a"))
    run.marks.tag("one", "two", "one")
    run.marks.set_note("look here")
    assert lab.runs("tag = two")[0].tags == ["one", "two"]
    run.marks.untag("one")
    assert lab.runs("tag = one") == []
    run.marks.set_archived()
    assert lab.runs() == []
    assert lab.runs(archived=True)[0].note == "look here"
    for tag in ("", "a/b", "latest", "x~1", " x"):
        with pytest.raises(UsageError, match="tag-name"):
            run.marks.tag(tag)


@in_both_databases
def test_delete_restore(lab: Lab) -> None:
    made = make(lab, "a", lr=0.5)
    assert lab.delete("a") == made
    assert lab.runs() == []
    with pytest.raises(StoreError, match="run-not-found"):
        lab.find(made)
    assert Run(lab.restore(made)).params == {"lr": 0.5}
    assert lab.find("a").id == made
    with pytest.raises(StoreError, match="not-in-trash"):
        lab.restore(made)
    living = lab.create_run("living")
    with pytest.raises(StoreError, match="run-is-running"):
        lab.delete(living.id)
    living.finish()


@in_both_databases
def test_runs_deleted_or_copied_in_by_hand_are_noticed(lab: Lab, tmp_path: Path) -> None:
    a, b = make(lab, "a"), make(lab, "b")
    assert len(lab.runs()) == 2
    shutil.move(lab.folder / "runs" / a, tmp_path / a)
    assert [row.id for row in lab.runs()] == [b]
    shutil.move(tmp_path / a, lab.folder / "runs" / a)
    assert {row.id for row in lab.runs()} == {a, b}


@in_both_databases
def test_reindex_gives_the_same_lists(lab: Lab) -> None:
    for i in range(5):
        make(lab, f"r{i}", lr=i, acc=i / 10, tags=("t",))
    before = lab.runs("metric.acc > 0.1", sort="-param.lr")
    shutil.rmtree(lab.folder / "index", ignore_errors=True)  # where it is a file
    lab.close()
    assert lab.runs("metric.acc > 0.1", sort="-param.lr") == before
    assert lab.reindex() == 5
    assert lab.runs("metric.acc > 0.1", sort="-param.lr") == before


def test_damaged_index_is_made_anew(lab: Lab) -> None:
    make(lab, "a")
    assert len(lab.runs()) == 1
    lab.close()
    (file,) = (lab.folder / "index").glob("*.sqlite")
    for extra in (lab.folder / "index").glob("*.sqlite-*"):
        extra.unlink()
    file.write_bytes(b"not a database at all" * 1000)
    with pytest.warns(LuxmeterWarning, match="index-damaged"):
        assert len(lab.runs()) == 1
    assert list((lab.folder / "index").glob("*.damaged-*"))


@in_both_databases
def test_damaged_run_hides_no_other(lab: Lab) -> None:
    bad, good = make(lab, "bad"), make(lab, "good")
    (lab.folder / "runs" / bad / "run.json").write_text("{")
    assert lab.reindex() == 2
    assert {row.id: row.state for row in lab.runs()} == {bad: "damaged", good: "finished"}
    assert "run.json" in lab.runs("state = damaged")[0].note


def test_gc(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run.put_blob(b"x" * 10)
    lab.delete("a")
    assert lab.gc(empty_trash=False)["trashed"] == 0
    assert lab.gc() == {
        "compacted": 0,
        "half_made": 0,
        "trashed": 1,
        "blobs": 0,
        "damaged": 0,
    }  # too young to be sure
    assert lab.gc(older_than_s=-1)["blobs"] == 1
    assert not list((lab.folder / "blobs").rglob("*/*"))


def test_newer_formats_are_refused_clearly(lab: Lab) -> None:
    made = make(lab, "a")
    file = lab.folder / "runs" / made / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    with pytest.raises(StoreError, match="run-format"):
        lab.find(file.parent)
    (lab.folder / "lab.json").write_text('{"format": 99, "id": "x"}')
    with pytest.raises(StoreError, match="lab-format"):
        Lab.open(lab.folder)


@pytest.mark.parametrize(
    "said",
    ["[1]", "7", '"x"', "{}", '{"id": "x"}', '{"format": 1}', '{"format": "1", "id": "x"}', '{"format": 1.5, "id": "x"}',
     '{"format": null, "id": "x"}', '{"format": 1, "id": {}}', "{torn"],
)  # fmt: skip
def test_a_lab_that_does_not_say_which_it_is(lab: Lab, said: str) -> None:
    (lab.folder / "lab.json").write_text(said)
    with pytest.raises(StoreError, match=r"lab\.json.*file-damaged"):
        Lab.open(lab.folder)


@pytest.mark.parametrize("text", ["toy", "'toy'", " toy "])
def test_a_single_word_is_a_name_or_a_tag(text: str) -> None:
    lab = Lab.open()
    with (
        lab.create_run("toy") as named,
        lab.create_run("other", tags=["toy"]) as tagged,
        lab.create_run("third"),
    ):
        pass
    assert {row.id for row in lab.runs(text)} == {named.id, tagged.id}


def test_git_leaves_a_lab_alone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True)
    Lab.open(tmp_path / "project" / ".luxmeter").close()
    seen = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tmp_path / "project", check=True, capture_output=True
    )
    assert seen.stdout == b""
