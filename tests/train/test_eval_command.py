"""`luxmeter eval RUN`: the run's Trainer with its captured code and a checkpoint of it, evaluated and never trained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import LuxmeterError
from luxmeter.experiment.reproduce import rerun
from luxmeter.store import Run, blob_path
from luxmeter.train import Evaluation, evaluate_run, load_evaluation, own_run
from luxmeter.view.cli import build_app

HEAD = """
import luxmeter as lux
import torch
from torch import nn

def data(which, length):
    print("making", which)
    xs = torch.randn(length, 6, generator=torch.Generator().manual_seed(length))
    return lux.DataLoader(torch.utils.data.TensorDataset(xs, xs[:, :3].argmax(1)), batch_size=4)
"""
TRAINER = """
class Digits(lux.Trainer):
    def initial_trainer(self, params):
        lux.random.fix_seed(3)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        self.optim = torch.optim.SGD(self.model.parameters(), lr=params.lr)
        self.regist_databundler(train=lambda: data("train", 24), eval=lambda: data("eval", 12), test=lambda: data("test", 8))

    def train_batch(self, eidx, idx, global_step, batch_data, params, device):
        print("training a batch")
        return nn.functional.cross_entropy(self.model(batch_data[0]), batch_data[1])

    def eval_batch(self, eidx, idx, global_step, batch_data, params, device):
        meter = lux.Meter()
        meter.acc = (self.model(batch_data[0]).argmax(1) == batch_data[1]).float().mean()
        meter.percent("acc")
        meter.loss = nn.functional.cross_entropy(self.model(batch_data[0]), batch_data[1])
        meter.epoch = eidx
        return meter
"""
TRAIN = """
params = lux.Params(epoch=2, lr=0.3)
params.from_args()
trainer = Digits(params)
trainer.initial_exp(FOLDER)
trainer.train()
"""
Start = Callable[..., Run]


def script(*parts: str, name: str = "digits", folder: str = "named") -> Path:
    file = Path(f"{name}.py").absolute()
    file.write_text("\n".join(parts).replace("FOLDER", repr(folder)))
    return file


def execute(file: Path, argv: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A script as the program of a process."""
    main = ModuleType("__main__")
    main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", [str(file), *argv])
    exec(compile(file.read_text(), str(file), "exec"), main.__dict__)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Start]:
    """Runs a script in this process to its end, and so does `luxmeter eval`: another Python would take seconds."""

    def run(file: Path, *argv: str) -> Run:
        with monkeypatch.context() as patch:
            execute(file, argv, patch)
        own_run.close_open()
        capsys.readouterr()
        return lux.runs()[0]

    def wait(words: list[str], cwd: Path, variables: dict[str, str], *, output: int) -> int:
        if output > 2:
            os.write(output, b"what it printed\n")
        with monkeypatch.context() as patch:
            patch.setattr(os, "environ", variables)
            patch.chdir(cwd)
            try:
                execute(Path(words[1]), words[2:], patch)
            except SystemExit as end:
                return int(end.code or 0)
            finally:
                own_run.close_open()
        return 0

    monkeypatch.setattr(rerun, "_wait", wait)
    yield run


def refused(slug: str, run: Run, **options: Any) -> str:
    with pytest.raises(LuxmeterError) as error:
        evaluate_run(run, **options)
    assert error.value.slug == slug
    return str(error.value)


def logged(run: Run, which: str = "eval") -> dict[str, float]:
    return {name: run.metrics[f"{which}/{name}"]["last"] for name in ("acc", "loss", "epoch")}


# -- what is evaluated ------------------------------------------------------------------------------------------------------


SPLIT = """
class Split(Digits):
    def initial_trainer(self, params):
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
        self.optim = torch.optim.SGD(self.model.parameters(), lr=params.lr)
        xs = torch.randn(64, 6)
        kept, left = torch.utils.data.random_split(torch.utils.data.TensorDataset(xs, xs[:, :3].argmax(1)), [32, 32])
        self.regist_databundler(train=lux.DataLoader(kept, batch_size=4, shuffle=True), eval=lux.DataLoader(left, batch_size=4))
"""


@pytest.mark.parametrize("folder", ["named", "./experiment"])
def test_data_that_is_drawn_without_a_seed_is_that_of_the_training(start: Start, folder: str) -> None:
    """Otherwise what was trained on would be among what is evaluated."""
    run = start(script(HEAD, TRAINER, SPLIT, TRAIN.replace("Digits", "Split"), folder=folder))
    torch.rand(3)  # another place in the random state than where the training began
    assert dict(evaluate_run(run).metrics) == logged(run)


def test_as_the_training_was_at_its_end(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    run = start(script(HEAD, TRAINER, TRAIN), "lr=0.2")
    found = evaluate_run(run)
    assert dict(found.metrics) == logged(run)  # bit by bit
    assert (found.run, found.trainer, found.on, found.step, found.epoch) == (run.id, "Digits", "eval", 12, 2)
    assert found.checkpoint == str(run.folder / "files" / "save" / "000012.ckpt") and found.notes == ()
    out = capsys.readouterr().out
    assert "making eval" in out and "making train" not in out and "training a batch" not in out
    assert len(lux.runs()) == 1
    test = evaluate_run(run, on="test", checkpoint="6")
    assert (test.on, test.step, test.epoch) == ("test", 6, 1) and test.metrics != found.metrics
    assert "making eval" not in capsys.readouterr().out
    assert [result.title for result in run.results("eval")] == [found.title, test.title]
    assert run.results("eval")[0].load() == found and found.title.startswith("eval at step 12: acc ")
    evaluate_run(run, on="test", checkpoint="6")  # the same as the last
    evaluate_run(run, keep=False)
    assert len(run.results("eval")) == 2


def test_with_the_code_of_the_run(start: Start) -> None:
    file = script(HEAD, TRAINER, TRAIN)
    run = start(file)
    file.write_text("raise RuntimeError('the code of now')")
    assert dict(evaluate_run(run).metrics) == logged(run)


GUARDED = "if __name__ == '__main__':\n" + textwrap.indent(TRAINER + TRAIN, "    ")
PACKAGE = "from nets import Digits\nimport luxmeter as lux\n" + TRAIN


@pytest.mark.parametrize(
    "parts", [(HEAD, GUARDED), (PACKAGE,)], ids=["inside a guard", "a module of its own"]
)
def test_wherever_the_class_is(start: Start, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    script(HEAD, TRAINER, name="nets")
    monkeypatch.syspath_prepend(Path.cwd())
    run = start(script(*parts))
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    assert dict(evaluate_run(run).metrics) == logged(run)


def test_a_trainer_that_builds_all_at_once(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    run = start(script(HEAD, TRAINER.replace("lambda: ", ""), TRAIN))
    found = evaluate_run(run)
    assert dict(found.metrics) == logged(run)
    assert "making train" in capsys.readouterr().out and "makes its training data at once" in found.notes[0]


def test_averaged_weights_and_mixed_precision(start: Start) -> None:
    run = start(
        script(HEAD, TRAINER, TRAIN.replace("Digits(params)", "Digits(params, ema=0.9, amp='bfloat16')"))
    )
    plain = start(script(HEAD, TRAINER, TRAIN, name="plain"))
    assert dict(evaluate_run(run).metrics) == logged(run) != logged(plain)


def test_one_of_several_trainings_of_a_program(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    several = """
from pathlib import Path
params = lux.Params(epoch=1, lr=0.3, schedule=lux.Params.SCHE.Cos(right=5), where=Path("x"), pair=(1, 2), call=max)
class Other(Digits):
    pass
for kind, lr in ((Other, 0.1), (Digits, 0.2), (Digits, 0.3)):
    params.lr = lr
    trainer = kind(params)
    trainer.initial_exp(f"{kind.__name__}-{lr}")
    trainer.train()
    print("then", trainer.model[0].weight.shape, trainer.experiment.state)
"""
    start(script(HEAD, TRAINER, several))
    for run in lux.runs():
        assert (
            dict(evaluate_run(run).metrics) == logged(run)
            and "training a batch" not in capsys.readouterr().out
        )
    assert len({tuple(logged(run).values()) for run in lux.runs()}) == 3


def test_a_parameter_that_is_another_each_time(start: Start) -> None:
    file = script(HEAD, TRAINER, TRAIN.replace("lr=0.3)", "lr=0.3, now=__import__('time').time_ns())"))
    run = start(file)
    found = evaluate_run(run)
    assert dict(found.metrics) == logged(run)
    assert found.notes[0].startswith("now is ") and found.notes[0].endswith(": taken all the same")
    both = TRAIN.replace("lr=0.3)", "lr=0.3, now=__import__('time').time_ns())")
    two = start(script(HEAD, TRAINER, both, both.replace("named", "other"), name="two", folder="named"))
    assert "made 2 of Digits" in refused("eval-not-reached", two)


# -- which checkpoint ---------------------------------------------------------------------------------------------------------


def test_the_best_a_step_a_file_and_none(start: Start, tmp_path: Path) -> None:
    best = """
from luxmeter.train import ModelCheckpoint
class Best(Digits):
    def initial_callback(self):
        super().initial_callback()
        ModelCheckpoint("eval/epoch", "min").hook(self)
""" + TRAIN.replace("Digits", "Best")
    run = start(script(HEAD, TRAINER, best))
    assert evaluate_run(run, checkpoint="best").step == 6 and evaluate_run(run).step == 12
    file = Path(evaluate_run(run, checkpoint="6").checkpoint)
    copy = tmp_path / "copy.ckpt"
    copy.write_bytes(file.read_bytes())
    Path(f"{copy}.json").write_text(Path(f"{file}.json").read_text())
    assert evaluate_run(run, checkpoint=os.path.relpath(copy)).checkpoint == str(copy)
    assert "000006.ckpt, 000012.ckpt" in refused("checkpoint-absent", run, checkpoint="7")
    assert "latest, best" in refused("eval-checkpoint", run, checkpoint="nothing.ckpt")
    plain = start(script(HEAD, TRAINER, TRAIN, name="plain"))
    assert "no ModelCheckpoint(monitor=...)" in refused("checkpoint-absent", plain, checkpoint="best")
    without = start(
        script(HEAD, TRAINER, TRAIN.replace("(params)", "(params, checkpoint=False)"), name="without")
    )
    assert "has no checkpoint in" in refused("checkpoint-absent", without)


def test_a_checkpoint_of_another_model(start: Start) -> None:
    run = start(script(HEAD, TRAINER, TRAIN))
    wider = start(script(HEAD, TRAINER.replace("8", "9"), TRAIN, name="wider"))
    renamed = start(script(HEAD, TRAINER.replace("self.model", "self.net"), TRAIN, name="renamed"))
    for other, said in ((wider, "0.weight ((9, 6) there, (8, 6) here)"), (renamed, "holds no model model")):
        file = str(other.folder / "files" / "save" / "000012.ckpt")
        assert said in refused("checkpoint-of-another-model", run, checkpoint=file)


def test_runs_that_share_a_folder(start: Start) -> None:
    """`initial_exp("./experiment")` twice: the second training wrote over the first one's files."""
    file = script(HEAD, TRAINER, TRAIN, folder="./experiment")
    first = start(file, "lr=0.1")
    second = start(file, "lr=0.4", "epoch=3")
    assert logged(first) != logged(second)
    found = evaluate_run(first)
    assert dict(found.metrics) == logged(first) and found.step == 12
    assert dict(evaluate_run(second).metrics) == logged(second)
    for change in first.final_files.values():
        if change.part == "save":
            blob_path(first.folder, change.sha256).unlink()
    refused("checkpoint-replaced", first)


# -- what cannot be -----------------------------------------------------------------------------------------------------------


def test_what_is_no_run_of_a_trainer(start: Start) -> None:
    run = start(script("import luxmeter as lux\nwith lux.Experiment('bare'):\n    pass"))
    assert "was not made by a Trainer" in refused("run-without-trainer", run)


def test_nothing_to_evaluate_on(start: Start) -> None:
    run = start(script(HEAD, TRAINER.replace(', test=lambda: data("test", 8)', ""), TRAIN))
    assert "no test data" in refused("eval-nothing", run, on="test")
    assert "no 'train' data" in refused("eval-on", run, on="train")
    mute = start(script(HEAD, TRAINER.replace("eval_batch", "my_batch"), TRAIN, name="mute"))
    assert "no eval_batch" in refused("eval-nothing", mute)


def test_a_program_that_fails_or_does_not_come_so_far(start: Start, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    lines = f"from pathlib import Path\nif not Path({str(tmp_path / 'there')!r}).exists(): raise SystemExit(MISSING)\n"
    ends = start(script(lines.replace("MISSING", "0"), HEAD, TRAINER, TRAIN, name="ends"))
    fails = start(script(lines.replace("MISSING", "7"), HEAD, TRAINER, TRAIN, name="fails"))
    (tmp_path / "there").unlink()
    assert "ended without training a Digits" in refused("eval-not-reached", ends)
    assert "ended with 7 before it was evaluated. Mend" in refused("eval-failed", fails)
    assert "It said:\n  what it printed\n" in refused("eval-failed", fails, quiet=True)
    command = fails.folder / "files" / "command.json"
    command.write_text(json.dumps({**json.loads(command.read_text()), "script": None, "interactive": True}))
    assert "trainer.load_checkpoint(" in refused("eval-no-program", fails)


def test_a_damaged_evaluation_says_so(tmp_path: Path) -> None:
    made = Evaluation(
        "r", "T", "eval", "x.ckpt", 3, 1, "cpu", {"acc": 0.5, "nan": float("nan")}, {"acc": "50%"}, ("n",)
    )
    made.save(tmp_path / "eval.json")
    assert str(load_evaluation(tmp_path / "eval.json").to_dict()) == str(made.to_dict())
    assert str(made).splitlines()[1].split() == ["acc", "50%"]
    for text in (
        "{}",
        "[]",
        '{"format": 2}',
        '{"format": 1, "metrics": 3}',
        (tmp_path / "eval.json").read_text().replace("0.5", '"x"'),
    ):
        (tmp_path / "eval.json").write_text(text)
        with pytest.raises(LuxmeterError, match="eval-format"):
            load_evaluation(tmp_path / "eval.json")


# -- as it is typed -----------------------------------------------------------------------------------------------------------


def test_the_command(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    run = start(script(HEAD, TRAINER, TRAIN))
    build_app()(["eval", "latest", "--on", "test", "--checkpoint", "6"], standalone_mode=False)
    said = capsys.readouterr()
    assert f"evaluating {run.id} (named) with the code that it captured" in said.err
    assert f"put into {run.id}/eval" in said.err
    lines = said.out[said.out.index("metric") :].splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["metric", "acc", "loss", "epoch"]
    assert lines[1].endswith("%") and lines[4] == "test of Digits at step 6 (epoch 1), 000006.ckpt, on cpu"
    build_app()(["show", "latest/eval"], standalone_mode=False)
    assert capsys.readouterr().out.splitlines() == lines
    build_app()(["show", "latest/eval", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["step"] == 6
    build_app()(["show", "latest"], standalone_mode=False)
    assert "  eval  test at step 6: acc " in capsys.readouterr().out


def test_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without a guard, started by `luxmeter`, is not trained again."""
    with monkeypatch.context() as patch:
        execute(script(HEAD, "torch.set_num_threads(1)", TRAINER, TRAIN), ["--lr=0.2"], patch)
    own_run.close_open()
    run = lux.runs()[0]
    command = [sys.executable, "-m", "luxmeter", "eval", "latest", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["metrics"] == logged(run)
    assert done.stderr.splitlines() == [
        f"luxmeter: evaluating {run.id} (named) with the code that it captured",
        f"luxmeter: put into {run.id}/eval",
    ]
    assert len(lux.runs()) == 1 and not list(tmp_path.rglob("luxmeter-eval-*"))
