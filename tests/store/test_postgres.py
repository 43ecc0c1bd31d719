"""PostgreSQL as the index: the same answers as SQLite, many writers at once, and what goes wrong with a server."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from listed_runs import FILTERS, SORTS, make, make_varied

import luxmeter as lux
from luxmeter.errors import LuxmeterError, LuxmeterWarning, MissingExtraError, StoreError, UsageError
from luxmeter.settings import globs, without_password
from luxmeter.store import Lab, Run
from luxmeter.store import catalog as catalog_module
from luxmeter.store.database import Database, sqlite_url
from luxmeter.store.index import SCHEMA, Index
from luxmeter.view.cli import doctor, main
from postgres_server import PASSWORD, PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server is the index."""
    monkeypatch.setenv("LUXMETER_STORE_URL", postgres.url())
    return postgres.url()


# -- as with SQLite -------------------------------------------------------------------------------------------------


def test_one_database_serves_many_labs(url: str, lab: Lab, tmp_path: Path) -> None:
    other = Lab.open(tmp_path / "other")
    a = make(lab, "a", lr=0.1, acc=0.9, tags=("best",))
    b = make(other, "b", lr=0.2, acc=0.8)
    assert [row.id for row in lab.runs("param.lr <= 0.1 and tag = best", sort="-metric.acc")] == [a]
    assert [row.id for row in other.runs("name ~ 'b*' and created > 2020-01-01")] == [b]
    assert lab.find("latest").id == a and lab.find(a[:4]).id == a
    assert lab.reindex() == 1
    lab.delete(a)
    assert lab.runs() == [] and len(other.runs()) == 1
    assert not (lab.folder / "index").exists()
    other.close()


def test_both_databases_give_the_same_answers(
    postgres: PostgresServer, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setenv("LUXMETER_STORE_URL", postgres.url())
    with pytest.warns(LuxmeterWarning, match="index-moved"):
        by_postgresql = answers()
    for question, ours, theirs in zip(asked, by_sqlite, by_postgresql, strict=True):
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


def test_a_lab_says_itself_where_its_index_is(
    postgres: PostgresServer, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting in the shared folder holds on every machine, and wherever the program stands."""
    with monkeypatch.context() as patch:
        patch.setenv("LUXMETER_HOME", str(lab.folder))
        globs.update("local", "store.url", postgres.url())
    made = make(lab, "a")
    assert [run.id for run in lux.runs(lab=lab.folder)] == [made]
    assert not (lab.folder / "index").exists()
    kept = postgres.ask(f"select id, host from luxmeter_runs where lab = '{lab.id}'")
    assert kept == [(made, Run(lab.folder / "runs" / made).identity["process"]["host"])]
    (place,) = postgres.ask(
        f"select value from luxmeter_progress where lab = '{lab.id}' and key like 'folder on %'"
    )
    assert place == (str(lab.folder),)


# -- many writers ---------------------------------------------------------------------------------------------------

_WRITER = """
import sys; from luxmeter.store import Lab
lab = Lab.open(sys.argv[1])
for number in range(int(sys.argv[2])):
    with lab.create_run('many', params={'number': number}) as run: run.log({'x': 1.0})
    own = {row.id for row in lab.runs('param.number >= 0')}
    assert run.id in own, (run.id, len(own))
lab.close()
"""


def test_many_processes_at_once(postgres: PostgresServer, lab: Lab) -> None:
    """The tables are made, and runs taken in, by all of them at the same time."""
    environment = {**os.environ, "LUXMETER_STORE_URL": postgres.new_database("empty")}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, lab.folder, "5"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    errors = [process.communicate()[1] for process in started]
    assert [(process.returncode, error) for process, error in zip(started, errors, strict=True)] == [
        (0, "")
    ] * 3
    assert postgres.ask("select count(*), count(distinct id) from luxmeter_runs", database="empty") == [
        (15, 15)
    ]


def _can_unshare() -> bool:
    tried = subprocess.run(
        ["unshare", "--uts", "--pid", "--net", "--fork", "--mount-proc", "true"],
        check=False,
        capture_output=True,
    )
    return tried.returncode == 0


def _on_host(number: int, program: str, *words: object) -> subprocess.Popen[str]:
    """A process on a machine of its own, as far as one can tell: name, process numbers and network are not ours."""
    shell = f'hostname stand-in-{number} && exec "$@"'
    return subprocess.Popen(
        ["unshare", "--uts", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "sh", "-c", shell, "sh",
         sys.executable, "-c", program, *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.soak
def test_sixteen_processes_on_four_machines(url: str, postgres: PostgresServer, lab: Lab) -> None:
    """No lost row, no lock error; who lists sees at least what it wrote itself."""
    if not _can_unshare():
        pytest.skip("namespaces cannot be made here")
    started = [_on_host(number % 4, _WRITER, lab.folder, 25) for number in range(16)]
    ends = [(process.communicate()[1], process.returncode) for process in started]
    assert ends == [("", 0)] * 16
    there = sorted(path.name for path in (lab.folder / "runs").iterdir())
    assert len(there) == 400
    rows = postgres.ask(f"select id, host, state from luxmeter_runs where lab = '{lab.id}' order by id")
    assert [row[0] for row in rows] == there, "before anybody here asked"
    assert {row[1] for row in rows} == {f"stand-in-{number}" for number in range(4)}
    assert sorted(row.id for row in lab.runs("state = finished and metric.x = 1")) == there
    assert len(list((lab.folder / "journal").glob("*.log"))) == 4
    assert lab.reindex() == 400


@pytest.mark.soak
def test_a_run_of_another_machine_lives_and_is_lost(
    url: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not _can_unshare():
        pytest.skip("namespaces cannot be made here")
    monkeypatch.setenv("LUXMETER_STORE_LOST_AFTER_S", "6")
    program = "import sys, time; from luxmeter.store import Lab\n" + (
        "run = Lab.open(sys.argv[1]).create_run('far')\nprint(run.id, flush=True)\ntime.sleep(600)"
    )
    with _on_host(1, program, lab.folder) as far:
        assert far.stdout is not None
        run_id = far.stdout.readline().strip()
        assert [(row.id, row.state, row.host) for row in lab.runs()] == [(run_id, "running", "stand-in-1")]
        far.kill()  # the whole machine
    deadline = time.monotonic() + 60
    while lab.runs("state = lost") == [] and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [row.id for row in lab.runs("state = lost")] == [run_id]


def test_a_forked_child_has_connections_of_its_own(url: str, lab: Lab) -> None:
    make(lab, "a")
    assert len(lab.runs()) == 1

    def ask() -> None:
        for _ in range(20):
            assert len(lab.runs("name = a")) == 1

    child = multiprocessing.get_context("fork").Process(target=ask)
    child.start()
    ask()
    child.join()
    assert child.exitcode == 0
    assert len(lab.runs()) == 1


def test_reindex_never_shows_half_of_it(url: str, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {make(lab, f"r{number}") for number in range(4)}
    assert len(lab.runs()) == 4
    shutil.rmtree(lab.folder / "runs" / min(made))
    other = Index(url, lab.id)  # as another machine sees it
    seen: list[set[str]] = []
    real = catalog_module.entry_of

    def look(folder: Path, lab_folder: Path, growing: object = None) -> object:
        seen.append(other.known()[0])
        return real(folder, lab_folder, growing)

    monkeypatch.setattr(catalog_module, "entry_of", look)
    assert lab.reindex() == 3
    assert seen == [made] * len(seen) and other.known()[0] == made - {min(made)}
    other.close()


def test_an_old_list_of_a_shared_folder_drops_no_run(
    url: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network share may show for some seconds what a folder held before."""
    a, b = make(lab, "a"), make(lab, "b")
    assert len(lab.runs()) == 2
    real = os.scandir
    old = [entry for entry in real(lab.folder / "runs") if entry.name == a]
    monkeypatch.setattr(
        os, "scandir", lambda path=".": iter(old) if Path(path) == lab.folder / "runs" else real(path)
    )
    os.utime(lab.folder / "runs")
    assert {row.id for row in lab.runs()} == {a, b}


# -- what goes wrong ------------------------------------------------------------------------------------------------


def test_it_goes_away_while_a_run_goes_on(
    url: str,
    postgres: PostgresServer,
    lab: Lab,
    recwarn: pytest.WarningsRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = lux.Experiment("goes-on", lab=lab).start_exp()
    assert [row.state for row in lab.runs()] == ["running"]
    postgres.stop()
    try:
        experiment.log({"loss": 0.5}, step=1)
        experiment.end_exp()
        with lux.Experiment("begun-meanwhile", lab=lab) as second:
            second.log({"loss": 0.25}, step=1)
        whole = Run(lab.folder / "runs" / experiment.id)
        assert (whole.state, whole.metrics["loss"]["last"]) == ("finished", 0.5)
        assert not [w for w in recwarn if issubclass(w.category, LuxmeterWarning)]
        with pytest.raises(StoreError, match=r"does not answer.*Runs go on meanwhile.*index-unreachable"):
            lab.runs()
        without = Lab.open(lab.folder)
        with monkeypatch.context() as patch:
            patch.setenv("LUXMETER_STORE_URL", "None")
            assert len(without.runs()) == 2  # by a file, as long as it is away
        without.close()
    finally:
        postgres.start()
    assert {row.name: (row.state, row.metrics["loss"]["last"]) for row in lab.runs()} == {
        "goes-on": ("finished", 0.5),
        "begun-meanwhile": ("finished", 0.25),
    }


def test_it_was_started_anew_between_two_questions(url: str, postgres: PostgresServer, lab: Lab) -> None:
    made = make(lab, "a")
    assert len(lab.runs()) == 1
    postgres.stop()
    postgres.start()
    assert [row.id for row in lab.runs()] == [made]


def test_it_breaks_in_the_middle_of_a_question(
    url: str, postgres: PostgresServer, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections are cut while runs are taken in: nothing of it is kept, then all of it."""
    made = {make(lab, f"r{number}") for number in range(3)}
    lab.runs()
    made.add(make(lab, "new"))
    real, cuts = catalog_module.entry_of, iter([True])

    def cut(folder: Path, lab_folder: Path, growing: object = None) -> object:
        if next(cuts, False):
            postgres.ask(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'luxmeter'"
            )
        return real(folder, lab_folder, growing)

    monkeypatch.setattr(catalog_module, "entry_of", cut)
    assert {row.id for row in lab.runs()} == made


@pytest.mark.parametrize(
    ("setting", "slug", "said"),
    [
        ("postgresql://lux:s3cret@127.0.0.1:1/none", "index-unreachable", "lux:***@127.0.0.1:1/none"),
        (
            "postgresql://lux:s3cret@no-such-host.invalid/db",
            "index-unreachable",
            "lux:***@no-such-host.invalid",
        ),
        ("mysql://lux:s3cret@host/db", "store-url", "mysql://lux:***@host/db"),
        ("sqlite:////tmp/other.sqlite", "store-url", "names no PostgreSQL"),
        ("somewhere", "store-url", "'somewhere'"),
        ("17", "setting-type", "17"),
        ("postgresql://lux:s3cret@host:port/db", "store-url", "lux:***@host:port/db"),
    ],
)
def test_urls_that_lead_nowhere(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, setting: str, slug: str, said: str
) -> None:
    monkeypatch.setenv("LUXMETER_STORE_URL", setting)
    with pytest.raises(LuxmeterError, match=slug) as caught:
        lab.runs()
    assert said in str(caught.value) and "s3cret" not in str(caught.value)
    assert isinstance(caught.value, UsageError if slug in ("store-url", "setting-type") else StoreError)


def test_a_password_is_needed_and_never_shown(
    postgres: PostgresServer, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.ask("grant create on schema public to guarded")
    monkeypatch.setenv("LUXMETER_STORE_URL", postgres.url(user="guarded", password="s3cret%"))
    with pytest.raises(StoreError, match="index-refused") as caught:
        lab.runs()
    assert 'password authentication failed for user "guarded"' in str(caught.value)
    monkeypatch.setenv("LUXMETER_HOME", str(lab.folder))
    for command in (["runs"], ["config", "store.url"], ["config", "store.url", "--json"]):
        monkeypatch.setattr(sys, "argv", ["luxmeter", *command])
        with pytest.raises(SystemExit):
            main()
    said = capsys.readouterr()
    assert "guarded:***@" in said.out + said.err
    assert "s3cret" not in said.out + said.err + str(caught.value)
    monkeypatch.setenv("LUXMETER_STORE_URL", postgres.url("template1", "guarded", PASSWORD))
    with pytest.raises(StoreError, match=r"refuses: .*permission denied.*team-lab\.md.*index-refused"):
        lab.runs()


def test_psycopg_is_an_extra(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "psycopg"] + ["psycopg"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("LUXMETER_STORE_URL", "postgresql://lux@host/db")
    with pytest.raises(MissingExtraError, match=r"pip install 'luxmeter\[postgres\]'.*no-psycopg"):
        lab.runs()


def test_an_index_of_a_newer_version_is_left_alone(
    postgres: PostgresServer, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUXMETER_STORE_URL", postgres.new_database("versions"))
    make(lab, "a")
    assert len(lab.runs()) == 1

    def set_version(number: int) -> None:
        postgres.ask(
            f"update luxmeter_progress set value = '{number}' where lab = '' and key = 'schema'",
            database="versions",
        )

    set_version(SCHEMA + 1)
    lab.close()
    with pytest.raises(
        StoreError, match=rf"version {SCHEMA + 1}.*up to {SCHEMA}.*Update luxmeter.*index-version"
    ):
        lab.runs()
    assert postgres.ask("select count(*) from luxmeter_runs", database="versions") == [(1,)]
    set_version(SCHEMA - 1)  # an older one is made anew, from the directories
    assert len(lab.runs()) == 1


def test_another_version_takes_over_while_it_is_open(
    postgres: PostgresServer, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUXMETER_STORE_URL", postgres.new_database("versions"))
    make(lab, "a")
    assert len(lab.runs()) == 1
    postgres.ask(
        f"update luxmeter_progress set value = '{SCHEMA + 1}' where lab = '' and key = 'schema'",
        "alter table luxmeter_runs rename column head to heading",
        database="versions",
    )
    with pytest.raises(StoreError, match="index-version"):
        lab.catalog.select_heads("")


def test_a_lab_that_had_a_file_says_once_that_it_moved(
    postgres: PostgresServer, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [make(lab, "a"), make(lab, "b")]
    assert len(lab.runs()) == 2 and list((lab.folder / "index").glob("*.sqlite"))
    lab.close()
    monkeypatch.setenv("LUXMETER_STORE_URL", postgres.url())
    with pytest.warns(LuxmeterWarning, match="index-moved") as said:
        assert [row.id for row in lab.runs(sort="created")] == made
        lab.runs()
    assert len(said) == 1
    lux_again = Lab.open(lab.folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from luxmeter.errors import forget_warnings

        forget_warnings()  # as in another process
        assert lux_again.reindex() == 2
        assert len(lux_again.runs()) == 2
    lux_again.close()


def test_a_copy_of_a_lab_is_refused(url: str, lab: Lab, tmp_path: Path) -> None:
    make(lab, "a")
    assert len(lab.runs()) == 1
    shutil.copytree(lab.folder, tmp_path / "copy")
    copy = Lab.open(tmp_path / "copy")
    with pytest.raises(StoreError, match=r"copies of one lab.*lab-copied"):
        copy.runs()
    (tmp_path / "copy" / "lab.json").unlink()
    copy = Lab.open(tmp_path / "copy")
    assert copy.id != lab.id and len(copy.runs()) == len(lab.runs()) == 1
    copy.close()
    lab.close()
    (tmp_path / "link").symlink_to(lab.folder)  # another way to the same folder is no copy
    linked = Lab.open(tmp_path / "link")
    assert len(linked.runs()) == 1
    linked.close()
    shutil.move(lab.folder, tmp_path / "moved")
    moved = Lab.open(tmp_path / "moved")
    assert len(moved.runs()) == 1
    moved.close()


# -- what tells about it --------------------------------------------------------------------------------------------


def test_doctor_tells_which_index_is_used_and_whether_it_answers(
    url: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUXMETER_HOME", str(lab.folder))
    make(lab, "a")
    found = doctor.Findings()
    doctor._look_at_store(found)
    assert found.store["index"] == url and found.store["runs"] == 1 and not found.problems
    assert found.store["index answers"].startswith("yes: PostgreSQL 1")
    monkeypatch.setenv("LUXMETER_STORE_URL", "postgresql://lux:s3cret@127.0.0.1:1/none")
    found = doctor.Findings()
    doctor._look_at_store(found)
    assert found.store["index answers"] == "no"
    assert found.store["index"] == "postgresql://lux:***@127.0.0.1:1/none"
    assert "does not answer" in found.problems[0][0] and "s3cret" not in json.dumps(vars(found))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://lux@host/db", "postgresql://lux@host/db"),
        ("postgresql://lux:a@b:c@host/db?x=1", "postgresql://lux:***@host/db?x=1"),
        ("postgresql://host/db?user=lux&password=abc&x=1", "postgresql://host/db?user=lux&password=***&x=1"),
        ("http://host:8000/a@b", "http://host:8000/a@b"),
    ],
)
def test_passwords_are_left_out(text: str, shown: str) -> None:
    assert without_password(text) == shown


# -- the connection layer -------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Either database, as other tables than the index's use it."""
    if request.param == "sqlite":
        made = Database(sqlite_url(tmp_path / "file.sqlite"), durable=True)
    else:
        made = Database(request.getfixturevalue("postgres").new_database("layer"))
    yield made
    made.close()


def test_who_changes_is_alone(database: Database) -> None:
    import threading

    with database.change("numbers") as connection:
        connection.do("create table numbers (number integer)")
        connection.do("insert into numbers values (?)", 0)
    add: Callable[[], None]

    def add() -> None:
        for _ in range(20):
            with database.change("numbers") as connection:
                number = connection.value("select number from numbers")
                assert connection.do("update numbers set number = ?", number + 1) == 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert connection.value("select number from numbers") == 80
    assert database.version().split()[0] in ("SQLite", "PostgreSQL")
    if not database.is_server:
        with database.read() as connection:
            assert connection.value("pragma synchronous") == 2  # written through
