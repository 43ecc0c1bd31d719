"""An experiment keeps a run: what it is given, what it finds, and nothing it must not."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.experiment.seed import start_state
from luxmeter.store import Lab, active_run, records

ONE_CORE = "where a trace lands, not what it records"


@dataclasses.dataclass
class Settings:
    lr: float = 0.1
    layers: tuple[int, ...] = (8, 4)


def test_what_a_run_holds(capsys: pytest.CaptureFixture[str]) -> None:
    with lux.Experiment("mnist", {"lr": 0.1, "optim": {"name": "adam"}}, tags=["a"], note="first") as exp:
        exp.log({"loss": 0.3, "acc": 0.9}, step=7)
        exp.log({"loss": 0.2}, 8)
        exp.log("lr", 0.1, step=7)
        exp.metric("text", "words")
        exp.tag("b", "c")
        Path("notes.txt").write_text("hello")
        exp.add_file("notes.txt", "kept/notes.txt")
        assert active_run() is not None and active_run().id == exp.id  # type: ignore[union-attr]
        assert exp.state == "running" and os.environ["LUXMETER_PARENT"] == str(exp.folder)
    assert active_run() is None and "LUXMETER_PARENT" not in os.environ
    run = Lab.open().find("mnist")
    assert (run.id, run.state, run.params) == (exp.id, "finished", {"lr": 0.1, "optim": {"name": "adam"}})
    assert run.tags == ["a", "b", "c"] and run.marks.note == "first"
    assert run.metric("loss").to_arrow().to_pydict()["step"] == [7, 8]
    assert run.metric("lr").to_arrow().to_pydict()["value"] == [0.1]
    assert run.objects("text")[0]["text"] == "words"
    assert run.file("kept/notes.txt").read_text() == "hello"
    assert run.metrics["system/process_memory_bytes"]["last"] > 1e6
    command = run.command
    assert command is not None and command.argv == tuple(sys.argv) and command.cwd == str(Path.cwd())
    assert run.environment["packages"]["pytest"] == pytest.__version__
    assert run.environment["machine"]["python"] == sys.version.split()[0]
    assert run.ending == records.Ending(exit_code=None)
    assert f"mnist {exp.id[:5]} finished in" in capsys.readouterr().err


def test_meters_are_logged_by_their_numbers() -> None:
    with lux.Experiment("meters", quiet=True) as exp:
        meter, average = lux.Meter(), lux.AvgMeter()
        for value in (1.0, 3.0):
            meter.loss, meter.word, meter.wide = torch.tensor(value), "text", torch.ones(4)
            average.update(meter)
        exp.log(meter, step=1)
        exp.log(average, step=2)
    assert exp.run.metric("loss").to_arrow().select(["step", "value"]).to_pylist() == [
        {"step": 1, "value": 3.0},
        {"step": 2, "value": 2.0},
    ]
    assert set(exp.run.metrics) - {k for k in exp.run.metrics if k.startswith("system/")} == {"loss"}
    assert exp.run.records("objects") == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, {}),
        ({"a": {"b": 1}}, {"a": {"b": 1}}),
        (Settings(), {"lr": 0.1, "layers": (8, 4)}),
        ({"inner": Settings(lr=1.0)}, {"inner": {"lr": 1.0, "layers": (8, 4)}}),
        (argparse.Namespace(lr=0.1), {"lr": 0.1}),
        (lux.BaseParams({"optim": {"lr": 0.1}}), {"optim": {"lr": 0.1}}),
    ],
)
def test_parameters_of_any_kind(given: Any, kept: dict[str, Any]) -> None:
    with lux.Experiment("kinds", given, quiet=True, code=False) as exp:
        pass
    assert exp.run.params == kept == exp.params


def test_secrets_are_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hunter2-very-secret"
    for name in ("HF_TOKEN", "TORCH_API_KEY", "NCCL_PASSWORD", "CUDA_SECRET", "SOME_OTHER"):
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("TORCH_HOME", f"https://user:{secret}@host/x")
    monkeypatch.setattr(
        sys, "argv", ["train.py", "--api-key", secret, f"--password={secret}", "--lr", "1", f"token={secret}"]
    )
    params = {
        "api_key": secret,
        "tokenizer": "bpe",
        "pad_token": "<pad>",
        "db": {"password": secret},
        "max_tokens": 5,
    }
    with lux.Experiment("secret", params, quiet=True) as exp:
        pass
    for path in exp.folder.rglob("*"):
        if path.is_file() and "blobs" not in path.parts:  # the blobs hold this very file
            assert secret.encode() not in path.read_bytes(), path
    assert exp.run.params == {
        "api_key": "(hidden)", "tokenizer": "bpe", "pad_token": "<pad>", "db": {"password": "(hidden)"}, "max_tokens": 5,
    }  # fmt: skip
    variables = exp.run.environment["variables"]
    assert variables["OMP_NUM_THREADS"] == "3" and "SOME_OTHER" not in variables
    command = exp.run.command
    assert command is not None
    assert command.argv == (
        "train.py",
        "--api-key",
        "(hidden)",
        "--password=(hidden)",
        "--lr",
        "1",
        "token=(hidden)",
    )


def test_names_and_folders() -> None:
    for name in ("a/b", "名前 *?\"'<b>", "x" * 300, "%s {}", "C:\\x", "-rf", "a\nb"):
        with lux.Experiment(name, quiet=True, code=False, output=False, system_s=0) as exp:
            part = Path(exp.hold_exp_part("save"))
        assert exp.run.name == name and part == exp.folder / "files" / "save"
    for place in ("./exp", Path("exp"), "exp/../exp/", str(Path.cwd() / "exp")):
        if place == "exp/../exp/":
            place = "./" + place
        with lux.Experiment(place, quiet=True, code=False) as exp:
            assert exp.hold_exp_part("log") == str(Path.cwd() / "exp" / "log")
        assert exp.name == "exp" and exp.folder.parent == Lab.open().folder / "runs"
        assert Path("exp", "luxmeter-runs", f"{exp.id}.json").is_file()


def test_parents_and_children() -> None:
    with lux.Experiment("outer", quiet=True) as outer:
        with lux.Experiment("inner", quiet=True) as inner:
            assert active_run().id == inner.id  # type: ignore[union-attr]
            lux.random.fix_seed(3)
        assert active_run().id == outer.id  # type: ignore[union-attr]
        with lux.Experiment("second", quiet=True) as second:
            pass
    with lux.Experiment("later", parent=outer.id, quiet=True) as later:
        pass
    assert [each.run.identity["parent"] for each in (outer, inner, second, later)] == [
        None, outer.id, outer.id, outer.id,
    ]  # fmt: skip
    assert outer.run.children == [inner.id, second.id, later.id]
    assert inner.run.command.seed == 3  # type: ignore[union-attr]


def test_random_state_of_the_start() -> None:
    with lux.Experiment("random", quiet=True) as exp:
        drawn = torch.rand(3), __import__("random").random(), __import__("numpy").random.rand()
    start_state.restore(exp.run.random_state)  # type: ignore[arg-type]
    again = torch.rand(3), __import__("random").random(), __import__("numpy").random.rand()
    assert torch.equal(drawn[0], again[0]) and drawn[1:] == again[1:]


def test_traces_and_savers_land_in_it() -> None:
    with lux.Experiment("trace", quiet=True) as exp:
        with lux.trace():
            torch.ones(2).sum()
        saver = lux.Saver(exp.hold_exp_part("save", [".ckpt"]))
        saver.save_checkpoint(1, {"w": torch.ones(3)}, {})
        saver.flush()
    assert list((exp.folder / "calls").iterdir())
    changes = exp.run.changed_files
    assert [(c.path, c.part, c.event, c.kept) for c in changes] == [("000001.ckpt", "save", "created", False)]
    assert "save/000001.ckpt" in exp.run.put_files()


def test_other_ranks_make_no_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with lux.Experiment("ranks", {"a": 1}) as exp:
        exp.log({"loss": 1.0}, step=0)
        exp.tag("x")
        part = Path(exp.hold_exp_part("save"))
        assert part.is_dir() and exp.id == "" and exp.state == "running"
    assert not part.exists() and capsys.readouterr().err == ""
    assert Lab.open().runs() == []
    with lux.Experiment("ranks", all_ranks=True) as exp:
        exp.log({"loss": 1.0}, step=0)
    assert exp.run.metrics["loss"]["n"] == 1 and capsys.readouterr().err == ""


def test_one_object_makes_one_run_at_a_time() -> None:
    exp = lux.Experiment("again", quiet=True, code=False)
    with pytest.raises(UsageError, match="experiment-not-running"):
        exp.log({"loss": 1.0})
    first = exp.start_exp().id
    with pytest.raises(UsageError, match="experiment-running"):
        exp.start_exp()
    exp.end_exp()
    exp.end_exp()
    assert exp.state == "finished"
    with exp:
        assert exp.id != first
    assert len(Lab.open().runs()) == 2


def test_parameters_known_later() -> None:
    with lux.Experiment("later", quiet=True, code=False) as exp:
        exp.set_params({"lr": 0.5, "password": "x"})
    assert exp.run.params == {"lr": 0.5, "password": "(hidden)"}
    assert [row.params for row in Lab.open().runs()] == [{"lr": 0.5, "password": "(hidden)"}]


@pytest.mark.parametrize(
    ("make", "slug"),
    [
        (lambda: lux.Experiment("x", tgas=["a"]), "unknown-experiment-option"),  # type: ignore[call-arg]
        (lambda: lux.Experiment("x", system_s=-1), "bad-experiment-option"),
        (lambda: lux.Experiment(" "), "experiment-name"),
        (lambda: lux.Experiment(None), "experiment-name"),  # type: ignore[arg-type]
        (lambda: lux.Experiment(b"a"), "experiment-name"),  # type: ignore[arg-type]
        (lambda: lux.Experiment("/"), "experiment-folder"),
        (lambda: lux.Experiment("~nobody-of-this-name/x"), "experiment-folder"),
        (lambda: lux.Experiment("x", 3), "params-kind"),
        (lambda: lux.Experiment("/proc/nothing/here").start_exp(), "experiment-folder"),
        (lambda: lux.Experiment("x", lab="/proc/nothing").start_exp(), "lab-not-writable"),
        (lambda: lux.Experiment("x", parent=3).start_exp(), "parent-what"),
        (lambda: lux.Experiment("x", parent="no-such-run").start_exp(), "run-not-found"),
        (lambda: lux.Experiment("./x").hold_exp_part("../out"), "name-outside"),
        (lambda: lux.Experiment("./x").hold_exp_part("/etc"), "name-outside"),
        (lambda: lux.Experiment("x").keycode(3), "keycode-what"),
        (lambda: lux.Experiment("x").keycode(len), "keycode-no-source"),
    ],
)
def test_wrong_use_is_told(make: Any, slug: str) -> None:
    with pytest.raises(LuxmeterError) as told:
        make()
    assert told.value.slug == slug
    assert Lab.open().runs() == []


def test_wrong_use_while_it_runs() -> None:
    with lux.Experiment("x", quiet=True, code=False) as exp:
        for use, slug in {
            lambda: exp.log("loss"): "log-without-value",
            lambda: exp.log([1, 2]): "log-what",
            lambda: exp.add_file("nowhere"): "no-such-file",
            lambda: exp.add_file(__file__, "../../out"): "name-outside",
            lambda: exp.hold_exp_part("a/../../out"): "name-outside",
            lambda: exp.tag("a/b"): "tag-name",
        }.items():
            with pytest.raises(UsageError) as told:
                use()
            assert told.value.slug == slug
    assert exp.state == "finished"
