"""`luxmeter train`: a config becomes a run that keeps it; what is wrong with it is one line, and no run."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest
import torch
from in_process import Command

import luxmeter as lux
from luxmeter.experiment.capture import started
from luxmeter.train import PyConfig, train_config

BASE = """\
epoch = 2
lr = 0.1
classes = 3
_data = dict(type="FakeData", image_size=(6,), num_classes=classes, noise=0.5)
data = dict(
    train=dict(dataset=dict(**_data, size=24), batch_size=4, shuffle=True),
    eval=dict(dataset=dict(**_data, size=8, random_offset=100), batch_size=4),
    test=dict(dataset=dict(**_data, size=8, random_offset=200), batch_size=4),
)
optimizer = dict(type="SGD", lr=lr)
evaluators = [dict(type="Accuracy")]
task = dict(
    type="TaskFlow",
    sub_module_cfg=dict(type="Linear", in_features=6, out_features=classes, outputs="logits"),
    loss_cfg=dict(
        ce=dict(type="CrossEntropyLoss", inputs=dict(input="logits", target="labels")),
    ),
)
"""


@pytest.fixture
def config() -> Path:
    Path("base.py").write_text(BASE)
    Path("small.py").write_text("from base import *\n\nname = f'small_{lr}'\n")
    return Path("small.py")


def weights(run: lux.Run) -> dict[str, torch.Tensor]:  # type: ignore[name-defined]
    (file,) = [path for path in (run.folder / "files" / "save").glob("*.ckpt") if int(path.stem) == 12]
    state = lux.Saver(file.parent).load(file).checkpoint["parts"]["task"]
    found: dict[str, torch.Tensor] = state["state"]
    return found


def test_a_config_becomes_a_run(config: Path, command: Command) -> None:
    said = command("train", config, "lr=0.2")
    assert said.code == 0, said.err
    assert said.out.count("Epoch(eval)") == 2 and said.out.count("Epoch(test) [2]  acc:") == 1
    (run,) = lux.runs()
    assert run.name == "small_0.2" and run.state == "finished"
    assert run.params["optimizer"]["lr"] == run.params["lr"] == 0.2 and run.params["seed"] == 0
    files = run.folder / "files"
    assert (files / "config_sources" / "base.py").read_text() == BASE
    assert PyConfig.fromfile(files / "config.py").values["optimizer"] == {"type": "SGD", "lr": 0.2}
    assert {"base.py", "small.py"} <= set(run.snapshot.files)
    assert run.summary["eval/acc"]["last"] == 1.0 and run.summary["test/acc"]["last"] > 0.8


def test_the_config_that_a_run_keeps_repeats_it(config: Path, command: Command) -> None:
    command("train", config, "lr=0.05", "seed=3")
    (first,) = lux.runs()
    assert command("train", first.folder / "files" / "config.py").code == 0
    second, _ = lux.runs()
    assert second.name == first.name and second.params == first.params
    assert first.summary["train/loss"] == second.summary["train/loss"]
    (one, two) = (weights(run) for run in (first, second))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_a_training_goes_on(config: Path, command: Command) -> None:
    command("train", config, "--name", "mine")
    said = command("train", config, "epoch=3", "--name=mine", "--resume")
    assert said.code == 0 and "Going on from" in said.out and "Trained on 6 batches" in said.out
    said = command("train", config, "--epoch=4", "--resume=latest")  # dashes are forgiven, as by Params
    assert said.code == 0 and "Trained on 6 batches" in said.out
    assert [run.name for run in lux.runs()] == ["small_0.1", "mine", "mine"]


def test_dry_run(config: Path, command: Command) -> None:
    said = command("train", config, "--dry-run", "lr=0.4", "+trainer.log_every=3")
    assert said.code == 0 and said.err == "" and not lux.runs()
    Path("resolved.py").write_text(said.out)
    values = PyConfig.fromfile("resolved.py").values
    assert values["optimizer"]["lr"] == 0.4 and values["trainer"] == {"type": "TaskTrainer", "log_every": 3}


def test_steps_in_place_of_epochs(config: Path, command: Command) -> None:
    config.write_text("from base import data, optimizer, evaluators, task\nsteps = 5\n")
    said = command("train", config, "--name=five")
    assert "Trained on 5 batches" in said.out and said.out.count("Epoch(eval)") == 1


def test_a_config_that_changes_meanwhile(config: Path, command: Command) -> None:
    """The run keeps what was run."""
    config.write_text(
        "from base import *\nfrom pathlib import Path as _Path\nfrom luxmeter.train import FakeData as _Fake\n"
        "class Changing(_Fake):\n    def __getitem__(self, index):\n"
        "        _Path(__file__).write_text('another = 1')\n        return super().__getitem__(index)\n"
        "data['train']['dataset']['type'] = Changing\n"
    )
    before = config.read_bytes()
    assert command("train", config, "epoch=1").code == 0 and config.read_text() == "another = 1"
    (run,) = lux.runs()
    assert run.blob(run.snapshot.files["small.py"]) == before
    assert (run.folder / "files" / "config_sources" / "small.py").read_bytes() == before


def test_ctrl_c(config: Path, command: Command) -> None:
    config.write_text(
        "from base import *\nfrom luxmeter.train import Callback\n"
        "class Stops(Callback):\n    def after_batch(self, trainer, result):\n        raise KeyboardInterrupt\n"
        "callbacks = [dict(type=Stops)]\n"
    )
    said = command("train", config)
    assert said.code == 130 and "Traceback" not in said.err
    (run,) = lux.runs()
    assert run.state == "interrupted"


# -- bad configs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("optimizer = dict(type='SDG', lr=lr)", "small.py:2: optimizer.type: There is no optimizer called 'SDG'"),
        ("optimizer = dict(\n    type='SGD',\n    lrr=1)", "small.py:4: optimizer.lrr: SGD takes no argument 'lrr'. Did you mean 'lr'? [build-argument]"),
        ("optimizer = dict(lr=1)", "small.py:2: optimizer: it has no type, so that no optimizer can be made of it; it has lr."),
        ("optimzer = optimizer\ndel optimizer", "small.py:2: optimzer: TaskTrainer reads no 'optimzer', but 'optimizer'. Did you mean"),
        ("epochs = 3\ndel epoch", "small.py:2: epochs: TaskTrainer reads no 'epochs', but 'epoch'."),
        ("epochs = 3", "small.py:2: epochs: TaskTrainer reads no 'epochs', but 'epoch'."),
        ("optimiser = dict(type='Adam')", "small.py:2: optimiser: TaskTrainer reads no 'optimiser', but 'optimizer'."),
        ("scheduler = dict(type='StepLR')", "small.py:2: scheduler: StepLR needs step_size."),
        ("evaluators = [\n    dict(type='Accurcy')]", "small.py:3: evaluators.0.type: There is no evaluator called 'Accurcy'"),
        ("callbacks = [dict(type='EarlyStop', montor='x')]", "small.py:2: callbacks.0.montor: EarlyStop takes no argument 'montor'. Did you mean 'monitor'"),
        ("data['train']['dataset']['sise'] = 3", "small.py:2: data.train.dataset.sise: FakeData takes no argument 'sise'. Did you mean 'size'"),
        ("data['train']['batchsize'] = 3", "small.py:2: data.train.batchsize: data takes no 'batchsize'. Did you mean 'batch_size'"),
        ("data['trian'] = data['train']", "small.py:2: data.trian: There is no use for data called 'trian'. Did you mean 'train'"),
        ("data['train']['dataset'] = None", "base.py:6: data.train: It cannot be made: TypeError"),
        ("task['sub_module_cfg']['in_feature'] = 3", "small.py:2: task.sub_module_cfg.in_feature: Linear takes no argument 'in_feature'. Did you mean"),
        ("task['loss_cfg']['ce']['weigth'] = 3", "small.py:2: task.loss_cfg.ce.weigth: CrossEntropyLoss takes no argument 'weigth'. Did you mean 'weight'"),
        ("task['type'] = 'mine:Task'", "small.py:2: task.type: 'mine:Task' cannot be imported: No module named 'mine'."),
        ("task['sub_module_cfg']['in_features'] = 'six'", "base.py:14: task.sub_module_cfg: It cannot be made: TypeError:"),
        ("trainer = dict(type='TaskTrainer', acumulate=2)", "small.py:2: trainer.acumulate: TaskTrainer has no option 'acumulate'. Did you mean 'accumulate'"),
        ("trainer = dict(type='TaskTrainer', accumulate=0)", "small.py:2: trainer.accumulate: TaskTrainer cannot use 0 there. Give 1 or more."),
        ("trainer = dict(type='TaskTrainer', amp='fp16')", "small.py:2: trainer.amp: TaskTrainer cannot use 'fp16' there. Give bfloat16 or float16 or none."),
        ("epoch = 0", "small.py:2: epoch: epoch=0 trains nothing. Give a whole number from 1 on."),
        ("device = 'cuda:99'", "small.py:2: device: params.device is 'cuda:99', and torch sees "),
        ("task['loss_cfg']['ce']['inputs'] = dict(inputs='logits')", "small.py:2: task.loss_cfg.ce.inputs.inputs: The loss 'ce' has no argument 'inputs'"),
        ("trainer = dict(type='Treiner')", "small.py:2: trainer.type: There is no trainer called 'Treiner'"),
        ("trainer = dict(type=dict)", "small.py:2: trainer: The trainer is a dict."),
        ("task = None", "small.py:2: task: There is no task. Say what is trained"),
        ("x = [\n", "small.py:2: '[' was never closed"),
    ],
)  # fmt: skip
def test_a_bad_config_is_one_line_with_file_line_and_key(
    line: str,
    said: str,
    config: Path,
    command: Command,
) -> None:
    config.write_text(f"from base import *\n{line}\n")
    message = command.refused("train", config)
    assert message.startswith(said), message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("data['train']['batchsize'] = 3", "small.py:2: data.train.batchsize: data takes no 'batchsize'."),
        ("del data['eval']['dataset']", "base.py:7: data.eval: It has no data."),
    ],
)
def test_a_dry_run_looks_at_loaders_too(line: str, said: str, config: Path, command: Command) -> None:
    config.write_text(f"from base import *\n{line}\n")
    assert said in command.refused("train", config, "--dry-run")


@pytest.mark.parametrize("line", ["optimizer2 = dict(type='Adam')", "epochs = epoch", "tasks = [1]"])
def test_names_of_ones_own(line: str, config: Path, command: Command) -> None:
    config.write_text(f"from base import *\n{line}\n")
    assert command("train", config, "--dry-run").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["small.py", "lr=fast"], "base.py:2: lr is 0.1 and cannot be 'fast'. Give a number. [override-type]"),
        (["small.py", "optimizer.momentm=1"], "base.py:10: optimizer has no 'momentm'"),
        (["small.py", "optimizer.type=Adm"], "the override optimizer.type=Adm: optimizer.type: There is no optimizer called 'Adm'"),
        (["small.py", "+optimizer.betas=3"], "the override +optimizer.betas=3: optimizer.betas: SGD takes no argument 'betas'."),
        (["small.py", "lr"], "'lr' changes no key of the config."),
        (["samll.py"], "The config samll.py cannot be read: No such file or directory. Did you mean 'small.py'?"),
        (["base.yaml"], "base.yaml is no Python file"),
    ],
)  # fmt: skip
def test_bad_words(words: list[str], said: str, config: Path, command: Command) -> None:
    assert command.refused("train", *words).startswith(said)


def test_a_missing_name_says_where_it_was_looked_for(config: Path, command: Command) -> None:
    said = command.refused("train", config, "task.type=SpiralTask")
    assert "(looked at 0 registered, luxmeter.train, the entry points luxmeter.tasks)" in said
    assert said.endswith("Plug-ins: none. [unknown-name]")


def test_an_error_in_training_shows_the_users_frames(config: Path, command: Command) -> None:
    config.write_text(
        dedent("""\
        from base import *
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(5, 3)
            def forward(self, inputs):
                return self.linear(inputs)
        task["sub_module_cfg"] = dict(type=Net, outputs="logits")
        """)
    )
    said = command("train", config)
    assert said.code == 1
    assert "small.py" in said.err and "return self.linear(inputs)" in said.err
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in said.err
    assert "typer" not in said.err and "site-packages" not in said.err
    (run,) = lux.runs()
    assert run.state == "failed"
    whole = command("train", config, "--debug")
    assert whole.code == 1 and "trainer.py" in whole.err and "site-packages" in whole.err


@pytest.mark.parametrize(
    ("line", "said", "place"),
    [
        ("task['loss_cfg']['ce']['inputs']['input'] = 'logit'", "The loss 'ce' takes 'logit'", "small.py:2, task.loss_cfg.ce.inputs.input"),
        ("task['loss_cfg']['ce']['reduction'] = 'none'", "The loss 'ce' is of the shape (4,).", "base.py:16, task.loss_cfg.ce"),
        ("task['sub_module_cfg']['in_features'] = 5", "mat1 and mat2 shapes", "base.py:14, task.sub_module_cfg"),
        ("callbacks = [\n    dict(type='EarlyStop', monitor='eval/acx')]", "EarlyStop watches 'eval/acx'", "small.py:3, callbacks.0"),
        ("evaluators = [dict(type='Accuracy', inputs=dict(logits='logit', labels='labels'))]", "The evaluator Accuracy takes 'logit'", "small.py:2, evaluators.0.inputs.logits"),
        ("optimizer = None", "TaskTrainer has no optimizer to step. Give one: optimizer=", "small.py:2, optimizer"),
        ("del data['train']", "There is no train data. Give it: data=", "base.py:5, data"),
    ],
)  # fmt: skip
def test_what_a_training_finds_wrong_with_its_config_has_a_place_too(
    line: str, said: str, place: str, config: Path, command: Command
) -> None:
    config.write_text(f"from base import *\n{line}\n")
    told = command("train", config, "epoch=1")
    assert told.code in (1, 2) and said in told.err and f"It is of {place}.\n" in told.err, told.err
    assert f"It is of {place}." in lux.runs()[0].error


def test_the_debugger_is_left(config: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(
        "import bdb\nfrom base import *\ndef quits(logits): raise bdb.BdbQuit\ntask['loss_cfg'] = dict(q=dict(type=quits))\n"
    )
    told = command("train", config, "--debug")
    assert told.code == 1 and told.err.endswith("luxmeter: the debugger was left\n")


# -- Trainers, classes and registrations of one's own ---------------------------------------------------------------------


OWN = """\
import torch
import luxmeter as lux
from luxmeter.train import FakeData, MODULES

class Mine(lux.Trainer):
    class Params(lux.BaseParams):
        alpha: float = 0.5
    def initial_trainer(self, params):
        assert self.experiment is not None  # as everywhere
        self.model = torch.nn.Linear(6, 3)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=params.lr)
        data = FakeData(8, (6,), 3)
        self.regist_databundler(train=torch.utils.data.DataLoader(data, batch_size=4, num_workers=params.workers, **params.more))
    def train_batch(self, eidx, idx, global_step, batch_data, params, device):
        xs, ys = batch_data
        return torch.nn.functional.cross_entropy(self.model(xs), ys) * params.mine.alpha

lr = 0.1
epoch = 1
workers = 0
more = {}
mine = dict(alpha=0.25)
trainer = dict(type=Mine, log_every=1)
"""


def test_a_trainer_that_the_config_defines(command: Command) -> None:
    Path("mine.py").write_text(OWN)
    said = command("train", "mine.py", "mine.alpha=2")
    assert said.code == 0, said.err
    (run,) = lux.runs()
    assert run.name == "mine" and run.params["mine"] == {"alpha": 2.0}
    assert json.loads((run.folder / "files" / "trainer.json").read_text())["class"].endswith(":Mine")
    again = command("train", run.folder / "files" / "config.py")
    assert again.code == 0, again.err
    assert lux.runs()[0].summary["train/loss"] == run.summary["train/loss"]


def test_modules_that_a_config_registers(config: Path, command: Command) -> None:
    Path("nets.py").write_text(
        "from torch import nn\nfrom luxmeter.train import MODULES\n@MODULES.register\nclass OwnLinear(nn.Linear): ...\n"
    )
    config.write_text("from base import *\nimport nets\ntask['sub_module_cfg']['type'] = 'OwnLinear'\n")
    assert command("train", config, "epoch=1").code == 0
    (run,) = lux.runs()
    assert command("train", run.folder / "files" / "config.py").code == 0


def test_debug_reads_data_without_workers(config: Path, command: Command) -> None:
    values = PyConfig.fromfile(
        config,
        [
            "epoch=1",
            "+data.train.num_workers=2",
            "+data.train.prefetch_factor=4",
            "+data.train.persistent_workers=true",
        ],
    )
    trainer = train_config(values, debug=True)
    assert trainer.data["train"].num_workers == 0 and trainer.options.full_traceback
    assert trainer.run.tags == ["debug"] and trainer.run.params["data"]["train"]["num_workers"] == 2
    Path("mine.py").write_text(OWN)  # torch's own loader
    made = train_config(
        PyConfig.fromfile("mine.py", {"workers": 2, "more": {"prefetch_factor": 3, "timeout": 5}}), debug=True
    )
    assert made.data["train"].num_workers == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of our own")
def test_breakpoint_in_debug_mode(config: Path) -> None:
    """On a terminal: the debugger's prompt comes, in the process that reads the data, and takes what is typed."""
    Path("slow.py").write_text(
        "from luxmeter.train import FakeData\n"
        "class Stops(FakeData):\n"
        "    def __getitem__(self, index):\n"
        "        if index == 0 and self.size == 24:\n"
        "            breakpoint()\n"
        "        return super().__getitem__(index)\n"
    )
    config.write_text(
        "from base import *\nfrom slow import Stops\ndata['train']['dataset']['type'] = Stops\n"
        "data['train']['num_workers'] = 2\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "luxmeter", "train", str(config), "--debug", "epoch=1"],
        stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        env={**os.environ, "TERM": "dumb", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    os.close(theirs)
    try:
        assert "slow.py" in read_until(ours, b"(Pdb) ")
        os.write(ours, b"self.size * 100 + index\n")
        assert "2400" in read_until(ours, b"(Pdb) ")
        os.write(ours, b"c\n")
        read_until(ours, b"finished in")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, wanted: bytes) -> str:
    seen, end = b"", time.monotonic() + 120
    while wanted not in seen:
        assert time.monotonic() < end and select.select([terminal], [], [], 60)[0], seen.decode(
            errors="replace"
        )
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other side has gone
            raise AssertionError(seen.decode(errors="replace")) from None
    return seen.decode(errors="replace")


def test_help(command: Command) -> None:
    said = command("train", "--help")
    assert said.code == 0 and "--resume [=RUN]" in said.out and "Example: luxmeter new config" in said.out


def test_a_run_of_the_command_can_be_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By `python -m luxmeter`, wherever the command that was called lies: for rerun, reproduce and eval."""
    main = ModuleType("__main__")
    main.__file__ = str(Path(sysconfig.get_path("scripts")) / "luxmeter")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert started.main_script()[1] == "luxmeter" and started.code_root() == Path.cwd()
    main.__file__ = str(tmp_path / "luxmeter")  # a script of the user's
    assert started.main_script() == (tmp_path / "luxmeter", None)


@pytest.mark.parametrize("linked", ["command", "environment"])
def test_a_command_that_is_a_link_is_ours_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: str
) -> None:
    """As pipx and uv make one in ~/.local/bin: what ran lies where it was called, not in the folder of the link."""
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (command := tmp_path / "environment" / "bin" / "luxmeter").touch()
    if linked == "command":
        called = tmp_path / "luxmeter"
        called.symlink_to(command)
    else:
        (tmp_path / "link").symlink_to(tmp_path / "environment")
        called = tmp_path / "link" / "bin" / "luxmeter"
    paths = {**sysconfig.get_paths(), "scripts": str(command.parent)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    main = ModuleType("__main__")
    main.__file__ = str(called)
    monkeypatch.setitem(sys.modules, "__main__", main)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert started.main_script() == (called, "luxmeter") and started.code_root() == tmp_path / "project"
