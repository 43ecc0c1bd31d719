"""A lab in which one run is damaged, at random: it is one row that says why, and everything works for the others."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

sys.path.insert(0, str(Path(__file__).parent.parent / "experiment"))
from made_runs import make_run

import luxmeter as lux
from luxmeter.errors import LuxmeterError, LuxmeterWarning, StoreError
from luxmeter.experiment.compare.explain import diff_runs
from luxmeter.experiment.compare.repeats import find_repeats
from luxmeter.experiment.query.runs import find_run
from luxmeter.experiment.query.viewer import ExperimentViewer
from luxmeter.store import Image, Lab, Run, layout
from luxmeter.view.cli import build_app
from luxmeter.view.pages import plots
from luxmeter.view.text.run import write_page
from luxmeter.view.text.run_diff import write_diff


def make_lab(folder: Path) -> tuple[Lab, str, list[str]]:
    """A lab with runs as they are: ended, lost with segments, with code, files, tags, objects, a checkpoint."""
    lab = Lab.open(folder)
    project = folder.parent
    common: dict[str, Any] = {
        "code": {"train.py": "x = 1\n", "pkg/m.py": "y = 2\n"},
        "root": project,
        "output": "epoch 1\n",
    }
    others = [
        make_run(
            lab, params={"lr": 0.1, "seed": seed}, metrics={"loss": [3.0, 2.0, seed], "acc": [0.5]}, **common
        ).id
        for seed in (0, 1)
    ]
    victim = lab.create_run(
        "mnist",
        params={"lr": 0.1, "seed": 2, "net": {"widths": (1, 2)}},
        environment={"machine": {}},
        tags=["best"],
    )
    for step in range(30):
        victim.log({"loss": 1.0 / (step + 1), "acc": 0.01 * step}, step=step)
    victim.metric("picture", Image([[0, 255], [255, 0]]))
    victim.metric("words", "hello")
    kept = {"train.py": victim.put_blob(b"x = 1\n")}
    victim.put_file("code.json", json.dumps({"root": str(project), "files": kept, "git": None}))
    victim.put_file(
        "command.json",
        json.dumps({"format": 1, "argv": ["train.py"], "script": "train.py", "seed": 2, "cwd": "."}),
    )
    victim.put_file("ending.json", json.dumps({"format": 1, "exit_code": 0, "signal": None}))
    (victim.folder / "logs").mkdir()
    (victim.folder / "logs" / "output.log").write_text("epoch 1\nepoch 2\n")
    from luxmeter.experiment.capture.watch_files import to_batch
    from luxmeter.store.records import FileChange

    weights = victim.put_blob(b"weights")
    change = FileChange(
        "best.ckpt", str(project / "out"), "out", "created", weights, 7, 1_700_000_000_000_000_000, True
    )
    victim.append_rows("files", to_batch([change]))
    victim.flush()
    segments = {path: path.read_bytes() for path in victim.folder.glob("tables/*/*.arrows")}
    victim.finish()
    victim.marks.set_note("a note")
    identity = json.loads((victim.folder / layout.IDENTITY).read_text())
    identity["process"]["pid"] = 999999999  # its process has gone
    (victim.folder / layout.IDENTITY).write_text(json.dumps(identity))
    (victim.folder / "unfinished").mkdir()
    for path, body in segments.items():  # a second form of the victim: lost, with segments, nothing compacted
        target = victim.folder / "unfinished" / path.relative_to(victim.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_name(f"999999999-{target.name.split('-', 1)[1]}").write_bytes(body)
    lab.close()
    return lab, victim.id, others


# -- how bytes go bad -------------------------------------------------------------------------------------------------

HUGE = [
    10**30,
    -(10**30),
    2**63,
    1e308,
    -1,
    0,
    "",
    None,
    [],
    {},
    True,
    "\udcff",
    "../../x",
    float("nan"),
    10**400,
    "\0",
]


def flip(data: bytes, chance: random.Random) -> bytes:
    body = bytearray(data or b"\0")
    for _ in range(chance.choice([1, 1, 1, 3, 20])):
        body[chance.randrange(len(body))] = chance.choice([0xFF, 0x00, chance.randrange(256)])
    return bytes(body)


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def grow(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.randbytes(chance.choice([1, 8, 300])) + data[place:]


def nested(_: bytes, chance: random.Random) -> bytes:
    depth = chance.choice([150, 250, 900, 5000, 200_000])
    return b'{"a": ' + b"[" * depth + b"]" * depth + b"}"


def other_json(data: bytes, chance: random.Random) -> bytes:
    """The same JSON with one value replaced by another type, gone, or under another name."""
    try:
        value = json.loads(data)
    except ValueError:
        return flip(data, chance)
    places = list(_places(value))
    if not places or chance.random() < 0.1:
        return json.dumps(chance.choice(HUGE)).encode()
    owner, key = chance.choice(places)
    what = chance.random()
    if what < 0.2 and isinstance(owner, dict):
        del owner[key]
    elif what < 0.3 and isinstance(owner, dict):
        owner[f"{key}x"] = owner.pop(key)
    else:
        owner[key] = chance.choice(HUGE)
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [
    flip,
    flip,
    cut,
    grow,
    other_json,
    other_json,
    other_json,
    nested,
]


def damage(run: Path, chance: random.Random) -> str:
    """Damage one file of the run; returns what was done."""
    if chance.random() < 0.3:  # the form that was lost while it was written
        for name in ("tables", layout.STATUS, layout.SUMMARY):
            path = run / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (run / "unfinished" / "tables").rename(run / "tables")
    shutil.rmtree(run / "unfinished")
    files = sorted(p for p in run.rglob("*") if p.is_file() and not p.name.startswith("."))
    path = chance.choice(files)
    what = chance.random()
    if what < 0.08:
        path.unlink()
        return f"{path.relative_to(run)} removed"
    if what < 0.12:
        path.unlink()
        path.mkdir()
        return f"{path.relative_to(run)} is a folder"
    kind = chance.choice(DAMAGES if path.suffix == ".json" else DAMAGES[:4])
    path.write_bytes(kind(path.read_bytes(), chance))
    return f"{path.relative_to(run)}: {kind.__name__}"


# -- what must hold ---------------------------------------------------------------------------------------------------


def check(lab: Lab, victim: str, others: list[str], *, pages: bool = True) -> str:
    """Everything that users do with a lab; returns the victim's state. Only the victim itself may say no, and clearly."""
    assert lab.reindex() == 3
    rows = {row.id: row for row in lab.runs()}
    assert set(rows) == {victim, *others}
    state = rows[victim].state
    assert state != "damaged" or rows[victim].note, "no reason"
    assert all(rows[other].state == "finished" for other in others)
    found = lux.runs(lab=lab)
    assert {run.id for run in found} == {victim, *others}
    assert len(found.params_frame()) == len(found.metrics_frame()) == 3
    assert len(found.points_frame("loss")) >= 6
    for where in (
        "param.lr = 0.1",
        "metric.loss >= 0 or state = damaged",
        "created > 2020-01-01 and tag != best",
    ):
        assert set(others) <= {row.id for row in lab.runs(where)}
    for sort in ("-metric.loss,param.seed", "name,duration"):
        assert {row.id for row in lab.runs(sort=sort)} == set(rows)
    kept = [find_run(other, lab=lab) for other in others]
    for run in kept:
        assert run.record()["metrics"]
        if pages:
            write_page(run, io.StringIO(), width=100, system=True)
    if pages:
        write_diff(*diff_runs(*kept), io.StringIO(), full=True, system=True)
        assert plots.plot(kept, ["loss"]).charts
    groups = find_repeats(lab, "name = mnist")
    assert {member.id for group in groups for member in group.members} >= set(others)
    ExperimentViewer(lab).backtracking("ckpt")
    assert lab.gc()["damaged"] in (0, 1)
    assert {row.id for row in lab.runs()} == set(rows)

    def stored() -> Run:
        return Run(lab.folder / layout.RUNS / victim, lab.folder)

    said_no = asks(
        lambda: lab.find(victim).state,
        lambda: Run.record(stored()), lambda: write_page(stored(), io.StringIO(), width=100, system=True),
        lambda: stored().code, lambda: plots.plot([stored()], []), lambda: stored().tags,
        lambda: stored().objects(), lambda: stored().metric("loss"), lambda: stored().metrics,
        lambda: list(stored().metric("acc")), lambda: stored().log_text,
        lambda: stored().follow().new(), lambda: diff_runs(stored(), kept[0]),
    )  # fmt: skip
    assert said_no or state != "damaged", "a damaged run says why when it is asked"
    return state


def check_commands(victim: str, others: list[str], state: str, command: Any) -> None:
    """The same as users type it."""
    assert victim in command("runs") and all(other in command("runs", "--all") for other in others)
    assert len(json.loads(command("runs", "--json", "--sort", "-metric.acc"))) == 3
    assert ("damaged" in command("runs", "--state", "damaged")) == (state == "damaged")
    assert "3 runs" in command("reindex")
    for other in others:
        assert other in command("show", other)
    assert others[0] in command("diff", *others)
    assert "loss" in command("plot", *others, "-m", "loss")
    if state == "damaged":
        assert "loss" in command("plot", "--where", "name = mnist", "-m", "loss")
    assert json.loads(command("repeats", "--json", "name = mnist"))
    command("runs", "--group")
    assert set(json.loads(command("gc", "--json"))) >= {"compacted", "damaged"}
    asks(
        lambda: command("show", victim), lambda: command("show", victim, "--json"), lambda: command("code", victim),
        lambda: command("plot", victim), lambda: command("tag", victim), lambda: command("diff", victim, others[0]),
    )  # fmt: skip
    assert command("rm", victim).startswith("Removed") and victim in command("rm", "--list")
    assert victim not in command("runs")
    command("rm", "--undo", victim)
    assert victim in command("runs")


def asks(*questions: Callable[[], Any]) -> bool:
    """Each part of the damaged run comes, or a clear error does. Whether one said no."""
    said_no = False
    for ask in questions:
        try:
            ask()
        except LuxmeterError as error:
            assert error.what and error.next_step
            said_no = True
    return said_no


def trial(seed: int, template: tuple[Path, str, list[str]], place: Path, command: Any) -> str:
    source, victim, others = template
    folder = place / f"lab{seed}" / ".luxmeter"
    shutil.copytree(source, folder)
    chance = random.Random(seed)
    done = damage(folder / "runs" / victim, chance)
    lab = Lab.open(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LuxmeterWarning)
            state = check(lab, victim, others, pages=seed % 4 == 0)
            if seed % 8 == 0:
                check_commands(victim, others, state, lambda *words: command(folder, *words))
            return state
    except BaseException as error:
        error.add_note(f"seed {seed}: {done}")
        raise
    finally:
        lab.close()
        shutil.rmtree(place / f"lab{seed}")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command in this process, in the lab of a folder; returns what it printed."""
    app = typer.main.get_command(build_app())

    def run(folder: Path, *words: str) -> str:
        monkeypatch.setenv("LUXMETER_HOME", str(folder))
        capsys.readouterr()
        ended = app.main(list(words), standalone_mode=False)
        assert (ended or 0) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def template(tmp_path: Path) -> tuple[Path, str, list[str]]:
    lab, victim, others = make_lab(tmp_path / "template" / ".luxmeter")
    return lab.folder, victim, others


def test_sixty_damages(template: tuple[Path, str, list[str]], tmp_path: Path, command: Any) -> None:
    seeds = [*range(60), 2974]  # the last: a length of a column that no memory holds
    states = [trial(seed, template, tmp_path, command) for seed in seeds]
    assert states.count("damaged") > 15  # many a flipped byte is one that nobody can tell


@pytest.mark.soak
def test_two_thousand_damages(template: tuple[Path, str, list[str]], tmp_path: Path, command: Any) -> None:
    for seed in range(1000, 3000):
        trial(seed, template, tmp_path, command)


# -- the cases that were found ----------------------------------------------------------------------------------------

CASES: dict[str, tuple[str, bytes]] = {
    "a byte that is no UTF-8": (layout.PARAMS, b'{"lr": "\xff"}'),
    "a time past all clocks": (layout.IDENTITY, b"created_ns"),
    "a summary without min": (layout.SUMMARY, b'{"loss": {"n": 1, "last": 1.0, "last_step": 0, "max": 1.0}}'),
    "no identity": (layout.IDENTITY, b""),
    "a state that is none": (layout.STATUS, b'{"state": "winning", "ended_ns": 1}'),
    "tags that are none": (layout.MARKS, b'{"tags": 5}'),
    "a list of parameters": (layout.PARAMS, b"[1, 2]"),
    "a tuple of nothing": (layout.PARAMS, b'{"a": {"$tuple": 5}}'),
    "a deep nest": (layout.PARAMS, b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a table that is none": ("tables/metrics/table.parquet", b"PAR1 no PAR1"),
    "an environment that is none": (layout.ENVIRONMENT, b"7"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_a_damaged_run_is_one_row_until_it_is_mended(
    case: str, template: tuple[Path, str, list[str]], tmp_path: Path, command: Any
) -> None:
    source, victim, others = template
    shutil.rmtree(source / "runs" / victim / "unfinished")
    lab = Lab.open(source)
    lab.runs()
    file, body = CASES[case]
    path = source / "runs" / victim / file
    before = path.read_bytes()
    if body == b"created_ns":
        body = json.dumps({**json.loads(before), "created_ns": 10**30}).encode()
    path.write_bytes(body) if body else path.unlink()
    assert check(lab, victim, others) == "damaged"
    (row,) = lab.runs("state = damaged")
    assert Path(file).name.split(".")[0] in row.note or "tables" in row.note
    with pytest.raises((StoreError, LuxmeterError)) as told:
        command(source, "show", victim)
    assert str(path) in str(told.value) or "tables/metrics" in str(told.value)
    path.write_bytes(before)
    assert {row.id: row.state for row in lab.runs()} == dict.fromkeys([victim, *others], "finished")
    assert Run(source / "runs" / victim).metric("loss").to_arrow().num_rows == 30
    lab.close()


def test_gc_keeps_a_run_that_lost_its_identity(template: tuple[Path, str, list[str]], tmp_path: Path) -> None:
    """It looked like one that was never begun, and all its data was removed."""
    source, victim, _ = template
    lab = Lab.open(source)
    (source / "runs" / victim / layout.IDENTITY).unlink()
    (source / "runs" / "notes").mkdir()
    (source / "runs" / "notes" / "mine.txt").write_text("somebody's")
    done = lab.gc(older_than_s=-1)
    assert done["half_made"] == 0 and (source / "runs" / victim / "tables").is_dir()
    assert (source / "runs" / "notes" / "mine.txt").exists()
    lab.close()
