"""The commands that list, show, mark, remove, export and import runs, as a user types them."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "experiment"))
from made_runs import make_run

import luxmeter as lux
from luxmeter.errors import LuxmeterError, StoreError, UsageError
from luxmeter.render import Column, Table
from luxmeter.store import Lab, Run
from luxmeter.view.cli import build_app


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "work" / ".luxmeter")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process; returns what it printed, and fails on any exit code but `code`."""
    app = build_app()

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        ended = app(list(words), standalone_mode=False)
        assert (ended or 0) == code
        return capsys.readouterr().out

    return run


def trained(lab: Lab, lr: float = 0.1, **more: Any) -> Run:
    base: dict[str, Any] = {
        "params": {"lr": lr, "seed": 0}, "metrics": {"loss": [3.0, 2.0, lr], "acc": [0.1, 0.9 - lr]},
        "code": {"train.py": f"lr = {lr}\n"}, "output": "epoch 1\nepoch 2\n",
    }  # fmt: skip
    return make_run(lab, **{**base, **more})


# -- runs -------------------------------------------------------------------------------------------------------------


def test_runs_lists_what_tells_runs_apart(lab: Lab, command: Any) -> None:
    one, two = trained(lab, 0.1), trained(lab, 0.2, tags=["best"])
    lines = command("runs").splitlines()
    assert lines[0].split() == ["id", "name", "state", "created", "duration", "lr", "loss", "acc", "tags"]
    assert lines[1].startswith(two.id) and lines[1].rstrip().endswith("best") and lines[2].startswith(one.id)
    assert "seed" not in lines[0]  # the same in all


def test_runs_filters_sorts_and_chooses_columns(lab: Lab, command: Any) -> None:
    made = [trained(lab, lr) for lr in (0.1, 0.2, 0.3)]
    said = command("runs", "param.lr > 0.15", "--sort=param.lr", "--columns", "id,param.lr,metric.acc.max")
    assert [line.split() for line in said.splitlines()] == [
        ["id", "lr", "acc.max"], [made[1].id, "0.2", "0.7"], [made[2].id, "0.3", "0.6"]
    ]  # fmt: skip
    assert len(command("runs", "-p", "lr=0.1").splitlines()) == 2
    assert len(command("runs", "--limit", "2").splitlines()) == 3
    assert command("runs", "--name", "nothing") == "No run fulfils this.\n"
    found = json.loads(command("runs", "--state", "finished", "--json"))
    assert [run["params"]["lr"] for run in found] == [0.3, 0.2, 0.1] and found[0]["metrics"]["loss"] == 0.3
    for wrong in (
        ["runs", "--sort", "speed"],
        ["runs", "parm.lr > 1"],
        ["runs", "-p", "lr"],
        ["runs", "--state", "x"],
    ):
        with pytest.raises(UsageError):
            command(*wrong)


def test_runs_shows_fifty_unless_told(lab: Lab, command: Any) -> None:
    for i in range(52):
        lab.create_run(f"r{i}").finish()
    assert len(command("runs").splitlines()) == 52 and "--limit 0" in command("runs")
    assert len(command("runs", "--limit", "0").splitlines()) == 53
    assert len(json.loads(command("runs", "--json"))) == 52


def test_runs_fit_a_narrow_terminal(lab: Lab, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(lab, 0.1, tags=["a-tag"])
    trained(lab, 0.2)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "dumb")  # no bold
    lines = command("runs").splitlines()
    assert max(len(line.rstrip()) for line in lines[:3]) <= 60
    assert lines[0].split() == [
        "id",
        "name",
        "state",
        "created",
        "duration",
        "loss",
    ]  # how it went, when, how long, what came out
    assert lines[3] == "(no room for lr, acc, tags: --columns shows them)"
    for width, columns in (
        (50, []),
        (60, ["loss"]),
        (70, ["lr", "loss", "acc"]),
        (109, ["lr", "loss", "acc", "tags"]),
    ):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = command("runs").splitlines()
        found = lines[0].split()
        assert found[:4] == ["id", "name", "state", "created"] and max(map(len, lines[:3])) <= width
        assert found[4:] == (["duration", *columns] if width > 50 else [])
        for line in lines[1:3]:  # the beginning of an id names the run
            assert json.loads(command("show", line.split()[0], "--json"))["id"].startswith(line.split()[0])
    monkeypatch.setenv("COLUMNS", "110")
    assert lux.runs(lab=lab.folder)[0].id in command("runs")


def test_a_long_name_costs_no_column_that_stays(
    lab: Lab, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(lab, 0.1, name="a-long-name-of-an-experiment")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "60")
    lines = command("runs").splitlines()
    assert lines[0].split()[:5] == ["id", "name", "state", "created", "duration"]
    assert run.id.partition("-")[0] in lines[1] and "a-long-name" in lines[1] and "experiment" not in lines[1]
    monkeypatch.setenv("COLUMNS", "110")
    assert "a-long-name-of-an-experiment" in command("runs")


def test_a_run_of_another_kind_moves_no_column(lab: Lab, command: Any) -> None:
    """What most runs have comes first, and what finds no place is named."""
    for lr in (0.1, 0.2, 0.3):
        trained(lab, lr)
    odd = {f"odd{number}": number for number in range(9)}
    make_run(lab, params=odd, metrics={"odd": [1.0], "loss": [1.0]})
    lines = command("runs").splitlines()
    assert lines[0].split()[5:7] == ["lr", "seed"] and lines[0].split().index("loss") < lines[
        0
    ].split().index("odd")
    assert "(no room for odd4, odd5, odd6, odd7, odd8: --columns shows them)" in lines[-1]


def test_a_state_has_a_colour_on_a_terminal_alone() -> None:
    table = Table([Column("state", is_state=True), Column("name")], [["failed", "failed"], ["running", "x"]])
    terminal = Terminal()
    table.print(terminal, width=40)
    assert terminal.getvalue().count("\x1b[31m") == 1 and "\x1b[32mrunning" in terminal.getvalue()
    assert "\x1b" not in table.text()


class Terminal(io.StringIO):
    """One with colours."""

    def isatty(self) -> bool:
        return True


def test_init_names_another_lab_that_is_in_force(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "in force" not in command("init", str(tmp_path / "one"))
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "other"))
    said = command("init", str(tmp_path / "two"))
    assert f"another lab is in force: {tmp_path / 'other'} (environment variable LUXMETER_HOME)" in said


def test_a_field_that_is_none_is_put_right(lab: Lab, command: Any) -> None:
    trained(lab, 0.1)
    with pytest.raises(
        LuxmeterError, match=r"no field 'lr'. A parameter is param\.lr, a metric metric\.lr\."
    ):
        command("runs", "lr > 0")
    with pytest.raises(LuxmeterError, match="Did you mean"):
        command("runs", "stat = failed")
    assert "No run fulfils this" in command("runs", "status = failed")


def test_runs_groups_repeats(lab: Lab, command: Any) -> None:
    for lr in (0.1, 0.2):
        for seed in range(3):
            make_run(lab, params={"lr": lr, "seed": seed}, metrics={"acc": [lr + seed / 100]})
    lines = command("runs", "--group").splitlines()
    assert len(lines) == 3 and "mnist lr=0.1" in lines[1] and "±" in lines[1]
    assert [group["seeds"] for group in json.loads(command("runs", "--group", "--json"))] == [[0, 1, 2]] * 2


def test_which_run_made_a_file(lab: Lab, command: Any, tmp_path: Path) -> None:
    run = trained(lab, files={"a.ckpt": b"w"})
    trained(lab, files={"b.ckpt": b"v"})
    moved = shutil.move("out/a.ckpt", tmp_path / "elsewhere.bin")
    assert run.id in command("runs", "--made", str(moved))
    assert list(json.loads(command("runs", "--made", "ckpt", "--json"))) == [r.id for r in lab.runs()]
    Path("mine").write_text("by hand")
    assert command("runs", "--made", "./mine") == "No run of this lab made mine.\n"


# -- show, code -------------------------------------------------------------------------------------------------------


def test_show_has_everything(lab: Lab, command: Any) -> None:
    run = trained(lab, files={"a.ckpt": b"w" * 2048}, tags=["best"], argv=("train.py", "--lr", "0.1"), seed=7)
    run.marks.set_note("two\nlines")
    said = command("show", "best")
    for part in (run.id, "finished", "train.py --lr 0.1   (seed 7)", "abacus", "torch 2.13.0", "two\n           lines",
                 "out/a.ckpt  2.00 KiB, kept", "epoch 2", "1 file that ran"):  # fmt: skip
        assert part in said, part
    row = next(line for line in said.splitlines() if line.startswith("loss"))
    assert row.split()[:6] == ["loss", "3", "2", "0.1", "0.1", "3"] and row.split()[6] == "█▆▁"
    assert json.loads(command("show", run.id, "--json"))["params"] == {"lr": 0.1, "seed": 0}
    assert command("show", "--log") == "epoch 1\nepoch 2\n"
    with pytest.raises(StoreError, match="'best'"):
        command("show", "bset")


def test_show_says_which_files_are_kept(lab: Lab, command: Any, tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    with lux.Experiment(
        "e", lab=lab, quiet=True, code=False, system_s=0, watch=tmp_path / "seen", keep_file_bytes=2
    ) as exp:
        Path(exp.hold_exp_part("ckpt"), "held.txt").write_text("in the run itself")
        (tmp_path / "seen" / "big.txt").write_text("too big to be kept")
    shown = {line.split()[0]: line for line in command("show").splitlines() if ".txt" in line}
    assert ", kept," in shown["ckpt/held.txt"] and ", not kept," in shown["seen/big.txt"]


def test_show_a_failed_run(lab: Lab, command: Any) -> None:
    trained(lab, state="failed", error="Traceback (most recent call last):\nValueError: bad\n")
    assert "ValueError: bad" in command("show")


def test_show_has_the_users_frames_of_an_error(lab: Lab, command: Any) -> None:
    foreign = (
        '  File "/opt/py/lib/python3.12/site-packages/torch/m.py", line 9, in _call\n    return f(*args)\n'
    )
    error = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 3, in <module>\n    model(x)\n    ~~~~~^^^\n'
        + foreign * 4
        + "RuntimeError: shapes\n  two lines\n"
    )
    run = trained(lab, state="failed", error=error)
    said = command("show")
    assert "train.py" in said and "~~~~~^^^" in said and "site-packages" not in said and "  two lines" in said
    assert "(4 frames in installed packages left out: --error shows all)" in said
    assert command("show", run.id, "--error").count("site-packages") == 4
    trained(lab, state="failed", error=foreign + "RuntimeError: in a package alone\n")
    assert "site-packages" in command("show")


def test_code(lab: Lab, command: Any) -> None:
    run = trained(lab, code={"train.py": "a = 1\n", "pkg/m.py": "b = 'ü'\n"})
    assert command("code", run.id, "pkg/m.py") == "b = 'ü'\n"
    listed = command("code", run.id)
    assert "train.py" in listed and "pkg/m.py" in listed
    assert json.loads(command("code", run.id, "--json"))["train.py"] == "a = 1\n"
    with pytest.raises(StoreError, match=r"'pkg/m\.py'"):
        command("code", run.id, "pkg/n.py")
    lab.create_run("bare").finish()
    with pytest.raises(StoreError, match="no-code-kept"):
        command("code", "bare")


# -- diff -------------------------------------------------------------------------------------------------------------


def test_diff(lab: Lab, command: Any) -> None:
    trained(lab, 0.1)
    trained(lab, 0.2)
    said = command("diff", "latest~1", "latest", "--metric", "acc")
    assert "-lr = 0.1" in said and "+lr = 0.2" in said and "environment: the same" in said
    assert "why acc differs" in said and "lr 0.1 -> 0.2" in said
    found = json.loads(command("diff", "latest~1", "latest", "--json"))
    assert found["params"] == [{"kind": "parameter", "name": "lr", "a": 0.1, "b": 0.2}]
    assert found["explanation"]["candidates"][0]["name"] == "lr"
    with pytest.raises(UsageError, match="diff-what"):
        command("diff", "latest", "latest~1", "--what", "things")


def test_diff_of_benchmarks(lab: Lab, command: Any) -> None:
    from luxmeter.operators.results import BenchResult, Row

    for name, scale in (("a", 1.0), ("b", 3.0)):
        times = tuple(scale * (1e-5 + i * 1e-9) for i in range(30))
        row = Row("torch.mm", "f32[2,2]", "", "float32", "eager", n=30, median_us=scale * 10, times_s=times)
        BenchResult((row,), {}, 0.01).to_json(f"{name}.json")
    assert "slower" in command("diff", "a.json", "b.json")
    assert json.loads(command("diff", "a.json", "b.json", "--json"))["counts"] == {"slower": 1}


# -- marks, trash -----------------------------------------------------------------------------------------------------


def test_note_tag_archive(lab: Lab, command: Any) -> None:
    run = trained(lab)
    assert str(run.folder) in command("note", "latest", "first line")
    command("note", "latest", "second line", "--add")
    assert command("note", "latest") == "first line\nsecond line\n"
    assert json.loads(command("note", "latest", "--json")) == {
        "id": run.id,
        "note": "first line\nsecond line",
    }
    command("note", "latest", "")
    assert command("note", "latest") == "\n"
    assert "best paper" in command("tag", "latest", "best", "paper")
    assert command("tag", "best") == "best paper\n"
    command("tag", "best", "new", "--remove", "paper")
    assert json.loads(command("tag", "best", "--json"))["tags"] == ["best", "new"]
    command("untag", "best", "new")
    assert run.tags == ["best"]
    with pytest.raises(UsageError, match="tag-name"):
        command("tag", "best", "a/b")
    assert command("archive", "best").startswith(f"Archived {run.id}")
    assert command("runs") == "No run fulfils this.\n" and run.id in command("runs", "--archived")
    command("archive", "--undo", "best")
    assert run.id in command("runs")


def test_rm_and_back(lab: Lab, command: Any) -> None:
    one, two = trained(lab, 0.1), trained(lab, 0.2)
    assert f"luxmeter rm --undo {one.id}" in command("rm", one.id)
    assert not one.folder.exists() and len(lab.runs()) == 1
    assert one.id in command("rm", "--list") and two.id not in command("rm", "--list")
    command("rm", two.id)
    assert f"Brought back {two.id}" in command("rm", "--undo")  # the last one
    assert f"Brought back {one.id}" in command("rm", "--undo", one.id[:7])
    assert len(lab.runs()) == 2 and command("rm", "--list") == "The trash is empty.\n"
    assert one.folder.is_dir() and lab.find(one.id).metric("loss").to_arrow().num_rows == 3
    with pytest.raises(StoreError, match="not-in-trash"):
        command("rm", "--undo", "nothing")
    with pytest.raises(StoreError, match="rm-nothing"):
        command("rm")
    living = lab.create_run("living")
    with pytest.raises(StoreError, match="run-is-running"):
        command("rm", one.id, living.id)
    assert one.folder.is_dir()  # none went, since not all could
    living.finish()
    command("rm", one.id)
    command("gc")
    with pytest.raises(StoreError, match="not-in-trash"):
        command("rm", "--undo")


def test_gc_forgets_the_snapshots_of_removed_runs_and_nothing_else(lab: Lab, command: Any) -> None:
    import subprocess

    from luxmeter.experiment.capture.snapshot import git_snapshot

    def git(*words: str) -> str:
        who = ["-c", "user.name=T", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
        return subprocess.run(
            ["git", *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q")
    Path("train.py").write_text("x\n")
    git("add", "train.py")
    git("commit", "-qm", "first")
    runs = [trained(lab, lr) for lr in (0.1, 0.2, 0.3)]
    for run in runs:
        taken = git_snapshot(Path.cwd(), run.id)
        said = {"root": str(Path.cwd()), "files": {}, "git": taken}
        if run is runs[2]:
            said["git"] = {**(taken or {}), "ref": "refs/heads/main"}  # a record that lies
        (run.folder / "files" / "code.json").write_text(json.dumps(said))
    command("rm", runs[0].id, runs[2].id)
    command("gc", "--keep-trash")
    assert len(git("for-each-ref", "refs/luxmeter").splitlines()) == 3
    assert "1 snapshot in git" in command("gc")
    left = git("for-each-ref", "--format=%(refname)").split()
    assert left == ["refs/heads/main", *sorted(f"refs/luxmeter/{run.id}" for run in runs[1:])]


def test_export_and_import(lab: Lab, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(lab)
    assert command("export", "latest") == f"Wrote {run.id} to {Path.cwd() / f'{run.id}.tar.zst'}\n"
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "other"))
    file = f"{run.id}.tar.zst"
    assert command("import", file) == f"Imported {run.id} to {tmp_path / 'other' / 'runs' / run.id}\n"
    assert "is here already" in command("import", file)
    assert json.loads(command("import", file, "--json"))[0]["already"] is True
    with pytest.raises(UsageError, match="import-what"):
        command("import", "tensorboard")


def test_import_tensorboard(lab: Lab, command: Any) -> None:
    pytest.importorskip("tensorboard")
    from luxmeter.experiment.transfer.tensorboard import TensorBoardFiles

    files = TensorBoardFiles("logs/one")
    files.log({"loss": 0.5}, step=3)
    files.close()
    assert "1 run of tensorboard" in command("import", "tensorboard", "logs")
    assert lab.runs()[0].metrics["loss"]["last"] == 0.5


def test_rollback(lab: Lab, command: Any, tmp_path: Path) -> None:
    run = trained(lab, files={"a.ckpt": b"w"})
    assert "would write train.py" in command("rollback", run.id, "--to", str(tmp_path / "there"), "--dry-run")
    said = command("rollback", run.id, "--to", str(tmp_path / "there"))
    assert "wrote train.py" in said and f"to {tmp_path / 'there'}: 2 files written" in said
    Path("train.py").write_text("precious\n")
    with pytest.raises(StoreError, match=r"train\.py"):
        command("rollback", run.id)
    assert json.loads(command("rollback", run.id, "--no-code", "--json"))["equal"] == ["out/a.ckpt"]


# -- what files and records say is shown, never done --------------------------------------------------------------------

EVIL = "[red]x[/red] <script>alert(1)</script> $(touch pwned) \x1b[31m\x1b]0;title\x07 \u202eevil\r"


def test_values_never_reach_markup_or_the_terminal(lab: Lab, command: Any) -> None:
    for lr in (0.1, 0.2):
        make_run(
            lab, EVIL.strip(), params={"lr": lr, EVIL: EVIL + str(lr)}, metrics={EVIL: [1.0, 2.0]}, argv=("train.py", EVIL),
            code={"train.py": f"# {EVIL}\nlr = {lr}\n", EVIL.replace("/", "") + ".py": ""}, output=EVIL + "\n", tags=["[red]t"],
            environment={"packages": {EVIL: str(lr)}, "machine": {"processor": EVIL}}, state="failed", error=EVIL,
            files={"[bold]a.ckpt": b"x"},
        )  # fmt: skip
        lab.find("latest").marks.set_note(EVIL)
    pages = [
        command("runs"), command("runs", "--columns", f"id,note,tag,param.{EVIL}"), command("show", "--system"),
        command("diff", "latest~1", "latest", "--full"), command("code", "latest"), command("note", "latest"),
        command("tag", "latest"), command("runs", "--made", "ckpt"), command("rollback", "latest", "--to", "there"),
    ]  # fmt: skip
    for page in pages:
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(page), repr(page)
    assert "[red]x[/red] <script>" in pages[0] and "\\x1b[31m" in pages[0]
    assert "[red]t" in pages[6] and "[bold]a.ckpt" in pages[7]
    assert not list(Path.cwd().rglob("pwned"))


def test_headings_never_reach_markup_or_the_terminal(lab: Lab, command: Any) -> None:
    for seed in (1, 2, 3, 4):
        lr = 0.1 * (seed % 2)
        make_run(
            lab, EVIL.strip(), params={"seed": seed, EVIL: EVIL + str(lr)}, metrics={EVIL: [1.0, lr + seed]}
        )
    pages = [
        command("runs", "--group"), command("repeats"), command("repeats", "-m", EVIL), command("plot", "-m", EVIL),
        command("plot", "--where", "state = finished", "--repeats"), command("diff", "latest~1", "latest"),
    ]  # fmt: skip
    command("rm", "latest")
    for page in (*pages, command("rm", "--list")):
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(page), repr(page)
    assert all("\\x1b[31m" in page.splitlines()[0] for page in pages[:3])


def test_json_gives_values_back_as_they_are(lab: Lab, command: Any) -> None:
    make_run(lab, params={"text": EVIL}, metrics={"m": [float("nan")]})
    found = json.loads(command("runs", "--json"))[0]
    assert found["params"]["text"] == EVIL and found["metrics"]["m"] is None


def test_errors_of_users_are_luxmeters(lab: Lab, command: Any) -> None:
    trained(lab)
    for words in (["show", "nope"], ["diff", "nope", "latest"], ["export", "nope"], ["note", "nope", "x"], ["reproduce", "nope"],
                  ["rerun", "latest", "lrr=1"], ["rerun", "latest", "x"], ["rollback", "nope"], ["import", "nope"]):  # fmt: skip
        with pytest.raises(LuxmeterError):
            command(*words)
