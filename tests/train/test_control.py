"""A training that is asked from outside: what it does, what it refuses, and what the run says of it afterwards."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import Small, same, weights

import luxmeter as lux
from luxmeter.errors import LuxmeterError, StoreError, UsageError
from luxmeter.store import Run
from luxmeter.train import Control, LRSchedule, control_run, requests
from luxmeter.train.callbacks import control
from luxmeter.view.cli import build_app
from luxmeter.view.text.run import write_page

Plan = Mapping[int, Callable[["Asked"], Any]]


class Asked(Small):
    """A training in which something is asked at the ends of steps; Control looks after every one."""

    plan: Plan = {}

    class Params(lux.BaseParams):
        momentum: float = 0.5

    def initial_callback(self) -> None:
        Control(every_s=0).hook(self)
        self.lines: list[str] = []
        self.logger.add_listener(lambda line: self.lines.append(line.text))

        Asks().hook(self)


class Asks(lux.Callback):
    """Asks what is planned for a step, just before Control looks."""

    priority = 94

    def after_batch(self, trainer: Any, result: Any) -> None:
        if (ask := trainer.plan.get(trainer.position.global_step)) is not None:
            ask(trainer)


def trained(plan: Plan, params: Mapping[str, Any] | None = None, **options: Any) -> Asked:
    trainer = type("Planned", (Asked,), {"plan": plan, "group": "asked"})(
        {"epoch": 2, "lr": 0.01, "alpha": 3, "name": "x", **(params or {})}, quiet=True, **options
    )
    trainer.initial_exp("asked")
    trainer.train()
    return trainer  # type: ignore[no-any-return]


def put(trainer: Asked, content: Any, name: str = "hand.json") -> Path:
    """A request as a file that somebody writes; returns where its answer will be."""
    folder = trainer.run.folder / "control"
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "requests" / name).write_bytes(data)
    return folder / "answers" / name


def told(file: Path) -> dict[str, Any]:
    found = json.loads(file.read_text())
    assert isinstance(found, dict)
    return found


def events(trainer: Asked) -> list[tuple[int, str, Any]]:
    trainer.close()
    return [
        (row["step"], row["text"]["what"], row["text"]["changed"]) for row in trainer.run.objects("control")
    ]


# -- what is done ---------------------------------------------------------------------------------------------------------


def test_all_of_it_from_another_thread() -> None:
    """As from a notebook beside it: each answer is one of the training that goes on."""
    trainer = Small({"lr": 0.1, "alpha": 3}, quiet=True)
    trainer.initial_exp("asked")
    said: dict[str, Any] = {}

    def ask() -> None:
        try:
            run = lux.runs()[0]
            said["pause"] = run.control("pause")
            step = said["pause"].step
            said["paused"] = run.control()
            said["set"] = run.control("set", {"lr": 0.05, "alpha": 5})
            said["checkpoint"] = run.control("checkpoint")
            assert said["paused"].step == said["set"].step == said["checkpoint"].step == step
            said["resume"] = run.control("resume")
            said["stop"] = run.control("stop")
        finally:
            trainer.stop_train()

    asking = threading.Thread(target=ask)
    real, seen = trainer.train_batch, []

    def train_batch(*given: Any) -> Any:
        if not seen:
            asking.start()
        seen.append(given)
        return real(*given)

    trainer.train_batch = train_batch  # type: ignore[method-assign]
    trainer.train(epochs=1_000_000)
    asking.join()
    step = said["pause"].step
    assert said["pause"].text == f"paused at step {step} (epoch {said['pause'].epoch})"
    assert said["paused"].state == "paused" and "train/loss" in said["paused"].metrics
    assert said["set"].changed == {"lr": ("0.1", "0.05"), "alpha": ("3", "5")} and said["set"].lr == (0.05,)
    assert trainer.optim.param_groups[0]["lr"] == 0.05 and (trainer.params.lr, trainer.params.alpha) == (
        0.05,
        5,
    )
    assert (
        said["checkpoint"].text.startswith("saved ") and f"{step:06}.ckpt at step" in said["checkpoint"].text
    )
    assert said["resume"].state == "training" and said["stop"].state == "stopping"
    assert trainer.position.done == said["stop"].step < 1_000_000
    trainer.close()
    run = trainer.run
    assert run.state == "finished"
    assert [row["text"]["what"] for row in run.objects("control")] == [
        "pause",
        "set",
        "checkpoint",
        "resume",
        "stop",
    ]
    assert all("@" in row["text"]["by"] for row in run.objects("control"))
    assert run.metric("control/lr").values.tolist() == [0.05] and run.metric(
        "control/alpha"
    ).steps.tolist() == [step]
    log = next((run.folder / "files" / "log").glob("*.log")).read_text()
    assert "set lr 0.1 -> 0.05, alpha 3 -> 5 at step" in log and "paused at step" in log


def test_pausing_saving_and_looking_change_no_number() -> None:
    alone = trained({})
    asked = trained(
        {
            2: lambda t: [
                put(t, {"what": "pause"}, "a.json"),
                put(t, {"what": "checkpoint"}, "b.json"),
                put(t, {"what": "resume"}, "c.json"),
            ],
            7: lambda t: put(t, {"what": "status"}),
        }
    )
    assert asked.losses == alone.losses and same(weights(asked), weights(alone))
    assert events(asked) == [(3, "pause", {}), (3, "checkpoint", {}), (3, "resume", {})]
    assert events(alone) == []


def test_a_paused_training_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    shown: list[str] = []

    def sleep(seconds: float) -> None:
        looks.append(json.loads((trainer.run.folder / "control" / "listening.json").read_text())["state"])
        if len(looks) == 3:
            page = io.StringIO()
            write_page(trainer.run, page)
            shown.append(page.getvalue())
            put(trainer, {"what": "stop"})

    monkeypatch.setattr(control, "sleep", sleep)
    trainer = Asked({"epoch": 2}, quiet=True)
    Asked.plan = {4: lambda t: put(t, {"what": "pause"})}
    trainer.initial_exp("asked")
    trainer.train()
    assert looks == ["paused"] * 3 and trainer.position.done == 5
    assert shown[0].splitlines()[0].endswith("asked  running, paused at step 5")
    assert trainer.run.state == "running" and not (trainer.run.folder / "control" / "listening.json").exists()


def test_ctrl_c_ends_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "sleep", lambda _: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        trained({4: lambda t: put(t, {"what": "pause"})})
    run = lux.runs()[0]
    assert run.state == "interrupted" and "save/000005.ckpt" in run.files


def test_a_pause_counts_for_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(control, "monotonic", lambda: now[0])

    def sleep(_: float) -> None:
        now[0] += 5000
        put(trainer, {"what": "resume"})

    monkeypatch.setattr(control, "sleep", sleep)
    trainer = Asked({"epoch": 1}, quiet=True)
    Asked.plan = {2: lambda t: put(t, {"what": "pause"})}
    trainer.initial_exp("asked")
    trainer.train()
    assert (
        trainer.pace.paused_s == 5000 and trainer.pace.total_s < 0
    )  # and the batch at hand makes up for it, in a real pause


def test_who_does_not_ask_costs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(requests.Mailbox, "take", lambda self: looks.append(1) or iter(()))
    now = iter(range(10_000))
    monkeypatch.setattr(control, "monotonic", lambda: next(now) * 0.01)
    trainer = Small(
        {"epoch": 4}, quiet=True
    )  # 24 steps of 0.01 s by that clock, and a quarter of a second between looks
    trainer.initial_exp("asked")
    trainer.train()
    assert len(looks) == 2  # at the start and at the end


# -- values ---------------------------------------------------------------------------------------------------------------


def listening(params: Any) -> tuple[Asked, Control]:
    """A training that listens, without a step."""
    trainer = type("Declared", (Asked,), {"plan": {}, "group": "asked"})(params, quiet=True)
    trainer.initial_exp("asked")
    found = trainer.callbacks.find(Control)
    found.before_train(trainer)
    return trainer, found


def answered(trainer: Asked, asked: Control, request: Any) -> dict[str, Any]:
    file = put(trainer, request)
    asked._obey(trainer)
    return told(file)


def many_params() -> lux.Params:
    plan = lux.Params.SCHE.Cos(right=5)
    params = lux.Params(
        {"flag": True, "sizes": (4,), "empty": None, "alpha": 3, "name": "x", "lr": 1, "plan": plan}
    )
    params.arange("bound", 3, 0, 10)
    return params


def test_a_value_is_what_it_replaces() -> None:
    trainer, asked = listening(many_params())
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"alpha": "5"}, {"alpha": 5}),
        ({"alpha": "1e3"}, {"alpha": 1000}),
        ({"alpha": 7}, {"alpha": 7}),
        ({"name": "007"}, {"name": "007"}),
        ({"flag": "false"}, {"flag": False}),
        ({"sizes": "[1, 2]"}, {"sizes": (1, 2)}),
        ({"empty": "0.5"}, {"empty": 0.5}),
        ({"lr": "0.25"}, {"lr": 0.25}),
        ({"asked.momentum": "1"}, {"asked.momentum": 1.0}),
        ({"bound": "9", "alpha": "4"}, {"bound": 9, "alpha": 4}),
    ]
    for changes, expected in cases:
        assert answered(trainer, asked, {"what": "set", "changes": changes})["done"], changes
        for key, value in expected.items():
            assert trainer.params[key] == value and type(trainer.params[key]) is type(value)
    asked.after_train(trainer)
    assert [event[1] for event in events(trainer)] == ["set"] * len(cases)


def test_what_cannot_be_set_is_refused_and_nothing_is() -> None:
    trainer, asked = listening(many_params())
    before = trainer.params.copy()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"alpah": "5"}, "Did you mean 'alpha'?"),
        ({"learning": "5"}, "It has lr, optim.lr, "),
        ({"alpha": "2.5"}, "alpha is 3, which '2.5' cannot replace. Give a whole number."),
        ({"alpha": "true"}, "Give a whole number."),
        ({"flag": "3"}, "Give true or false."),
        ({"alpha": "none"}, "Give one of type int."),
        ({"lr": "fast"}, "lr=fast is no learning rate."),
        ({"lr": "-1"}, "no learning rate"),
        ({"lr": "nan"}, "no learning rate"),
        ({"name": "y", "bound": "11"}, "bound"),
        ({"global_step": "0"}, "no 'global_step'"),
        ({"asked": "1"}, "no 'asked'"),
        ({"plan": "z"}, "plan is"),
        ({"name\x1b[2J": "1"}, "no 'name"),
    ]
    for changes, said in cases:
        found = answered(trainer, asked, {"what": "set", "changes": changes})
        assert found["done"] is False and said in f"{found['text']} {found['next']}", changes
    assert trainer.params == before and trainer.optim.param_groups[0]["lr"] == 1
    asked.after_train(trainer)
    assert events(trainer) == [] and all(line.isprintable() for line in trainer.lines)


def scheduled(kind: Callable[[Any], Any]) -> type[Asked]:
    class Scheduled(Asked):
        group = "asked"

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.optim = torch.optim.SGD(self.model.parameters(), lr=params.lr)
            self.scheduler = kind(self.optim)
            self.rates: list[float] = []
            LRSchedule(every="step").hook(self)

        def train_batch(self, *given: Any) -> Any:
            self.rates.append(self.optim.param_groups[0]["lr"])
            return super().train_batch(*given)

    return Scheduled


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9**n),
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.5),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.4, total_steps=20),
    "one after another": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.ConstantLR(o, factor=0.5, total_iters=100),
            torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9**n),
        ],
        milestones=[5],
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_schedule_goes_on_from_the_new_rate(name: str) -> None:
    def rates(plan: Plan) -> list[float]:
        kind = scheduled(SCHEDULERS[name])
        kind.plan = plan
        trainer = kind({"epoch": 2, "lr": 0.1}, quiet=True)
        trainer.initial_exp("asked")
        trainer.train()
        return trainer.rates  # type: ignore[attr-defined,no-any-return]

    alone = rates({})
    answers: list[Path] = []
    asked = rates({3: lambda t: answers.append(put(t, {"what": "set", "changes": {"lr": alone[4] / 2}}))})
    assert told(answers[0])["text"].endswith("its schedule goes on from there")
    assert asked[:4] == alone[:4]
    assert asked[4:] == pytest.approx([rate / 2 for rate in alone[4:]])


def test_a_schedule_of_params_and_one_of_several_optimizers() -> None:
    class Two(Asked):
        group = "asked"
        plan: Plan = {2: lambda t: put(t, {"what": "set", "changes": {"optim.lr": 0.001}})}

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.other = torch.optim.SGD(self.model[0].parameters(), lr=torch.tensor(0.5))

    trainer = Two(
        {"epoch": 1, "lr": 0.01, "optim": {"lr": 0.01}},
        quiet=True,
        schedule=lux.Params.SCHE.Linear(start=1, end=0, right=10),
    )
    trainer.initial_exp("asked")
    trainer.train()
    assert trainer.optim.param_groups[0]["initial_lr"] == pytest.approx(0.001 / 0.7)
    assert trainer.optim.param_groups[0]["lr"] == pytest.approx(0.001 / 0.7 * 0.4)
    assert float(trainer.other.param_groups[0]["lr"]) == pytest.approx(0.2)
    assert trainer.params["optim.lr"] == 0.001 and trainer.params.lr == 0.01
    put_all = Control(every_s=0)
    put_all._set(trainer, {"lr": "0.25"})
    assert isinstance(trainer.other.param_groups[0]["lr"], torch.Tensor)
    assert [float(one.param_groups[0]["lr"]) for one in trainer.optimizers] == [0.25, 0.25]


def test_a_resumed_training_has_what_was_set() -> None:
    first = trained(
        {3: lambda t: put(t, {"what": "set", "changes": {"alpha": 9, "lr": 0.002}})}, max_to_keep=None
    )
    first.close()
    path = first.saver.find_checkpoints()[0]
    assert path.endswith("000006.ckpt")
    Asked.plan = {}
    second = Asked({"epoch": 2, "lr": 0.01, "alpha": 3}, quiet=True)
    second.initial_exp("resumed")
    second.train(resume=path)
    assert (second.params.alpha, second.params.lr, second.optim.param_groups[0]["lr"]) == (9, 0.002, 0.002)
    assert first.losses[6:] == second.losses and same(weights(first), weights(second))
    assert events(second) == [(0, "set", {"alpha": ["3", "9"]}), (0, "set", {"lr": ["0.01", "0.002"]})]
    other = Asked({"epoch": 2, "lr": 0.01, "alpha": 4}, quiet=True)  # the program says another value now
    other.initial_exp("other")
    other.train(resume=path)
    assert other.params.alpha == 4 and any(
        "alpha stays as the program has it" in line for line in other.lines
    )
    other.load_checkpoint(path)
    assert other.params.lr == 0.002


def test_going_back_before_a_change_undoes_it() -> None:
    trainer = trained(
        {
            1: lambda t: t.save_checkpoint(kind="keypoint"),
            3: lambda t: put(t, {"what": "set", "changes": {"alpha": 9}}),
        }
    )
    assert trainer.params.alpha == 9
    trainer.load_checkpoint(trainer.saver.find_keypoints()[0])
    assert trainer.params.alpha == 3


# -- what is refused ------------------------------------------------------------------------------------------------------


def fifo(trainer: Asked) -> None:
    os.mkfifo(trainer.run.folder / "control" / "requests" / "pipe.json")


def link(trainer: Asked) -> None:
    (trainer.run.folder / "secret").write_text('{"what": "stop"}')
    (trainer.run.folder / "control" / "requests" / "link.json").symlink_to(trainer.run.folder / "secret")


def folder(trainer: Asked) -> None:
    (trainer.run.folder / "control" / "requests" / "folder.json").mkdir()


HOSTILE: dict[str, Callable[[Asked], Any]] = {
    "no JSON": lambda t: put(t, b"stop"),
    "nothing": lambda t: put(t, b""),
    "no text": lambda t: put(t, b"\xff\xfe\x00"),
    "a list": lambda t: put(t, ["stop"]),
    "deep": lambda t: put(t, b"[" * 60_000),
    "digits": lambda t: put(t, b'{"what": ' + b"9" * 9_000 + b"}"),
    "large": lambda t: put(t, b" " * 100_000 + b'{"what": "stop"}'),
    "unknown": lambda t: put(t, {"what": "rm -rf"}),
    "no what": lambda t: put(t, {}),
    "what is a list": lambda t: put(t, {"what": ["stop"]}),
    "changes without set": lambda t: put(t, {"what": "stop", "changes": {"lr": 1}}),
    "set without changes": lambda t: put(t, {"what": "set"}),
    "nested changes": lambda t: put(t, {"what": "set", "changes": {"lr": {"$float": "nan"}}}),
    "many changes": lambda t: put(t, {"what": "set", "changes": {f"k{n}": 1 for n in range(101)}}),
    "by a number": lambda t: put(t, {"what": "stop", "by": 3}),
    "name": lambda t: put(t, {"what": "stop"}, "a b.json"),
    "steering name": lambda t: put(t, {"what": "stop"}, "\x1b[2J.json"),
    "pipe": fifo,
    "link": link,
    "folder": folder,
}


def test_what_is_no_request_is_a_line_and_nothing_else() -> None:
    plan = {2 * number: ask for number, ask in enumerate(HOSTILE.values())}
    trainer = trained(plan, {"epoch": 7})
    assert len(trainer.losses) == 42
    lines = [line for line in trainer.lines if "[control-request]" in line]  # one of each: not at every step
    assert len(lines) == len(HOSTILE) and all(line.isprintable() for line in lines)
    assert not list((trainer.run.folder / "control" / "answers").iterdir())
    left = sorted(path.name for path in (trainer.run.folder / "control" / "requests").iterdir())
    assert left == [
        "\x1b[2J.json",
        "a b.json",
        "folder.json",
    ]  # what is no file of a request stays where it is
    assert (trainer.run.folder / "secret").exists() and trainer.optim.param_groups[0]["lr"] == 0.01


def test_what_lay_there_before_is_not_obeyed() -> None:
    Asked.plan = {}
    trainer = Asked({"epoch": 1}, quiet=True)
    run = trainer.initial_exp("asked").run
    with pytest.raises(StoreError) as refused:
        run.control("stop")
    assert refused.value.slug == "control-not-training" and run.control().state == "running"
    (run.folder / "control" / "requests").mkdir(parents=True)
    answer = put(trainer, {"what": "stop"})
    trainer.train()
    assert len(trainer.losses) == 6 and "before this training began" in told(answer)["text"]
    answers: list[Path] = []
    Asked.plan = {8: lambda t: answers.append(put(t, {"what": "stop", "to": "another"}))}
    trainer.train(epochs=2)
    assert len(trainer.losses) == 12 and "an earlier training" in told(answers[0])["text"]


def test_what_comes_too_late_is_answered() -> None:
    class Late(Small):
        def eval_batch(self, *given: Any) -> Any:
            self.answer = put(self, {"what": "pause"})  # type: ignore[arg-type]
            return super().eval_batch(*given)

    trainer = Late({"epoch": 1}, quiet=True)
    trainer.initial_exp("asked")
    trainer.train()
    assert told(trainer.answer) == {
        "format": 1,
        "done": False,
        "slug": "control-refused",
        "text": "The training has ended.",
        "next": "Ask when a training listens.",
    }


def test_two_at_once_are_both_obeyed_in_their_order() -> None:
    answers: list[Path] = []
    plan = {
        2: lambda t: answers.extend(
            put(t, {"what": "set", "changes": {"alpha": n}}, f"{n}.json") for n in (5, 6, 7)
        )
    }
    trainer = trained(plan)
    assert trainer.params.alpha == 7
    assert [told(file)["changed"]["alpha"] for file in answers] == [["3", "5"], ["5", "6"], ["6", "7"]]


@pytest.mark.parametrize("what", ["checkpoint", "status"])
def test_what_fails_is_told_and_the_training_goes_on(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    answers: list[Path] = []

    def ask(trainer: Asked) -> None:
        answers.append(put(trainer, {"what": what}))
        monkeypatch.setattr(Asked, "save_checkpoint" if what == "checkpoint" else "metrics", fails)

    plan = {1: ask, 2: lambda t: monkeypatch.undo()}
    trainer = trained(plan, {"epoch": 1})
    assert "No space left" in told(answers[0])["text"] and len(trainer.losses) == 6
    assert any("No space left" in line for line in trainer.lines)


def test_a_run_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    trainer = trained({1: lambda t: shutil.rmtree(t.run.folder / "control")}, {"epoch": 1})
    assert len(trainer.losses) == 6
    Asked.plan = {}
    blocked = Asked({"epoch": 1}, quiet=True)
    (blocked.initial_exp("asked").folder / "control").write_text("in the way")
    blocked.train()
    assert any("cannot be controlled" in line for line in blocked.lines) and len(blocked.losses) == 6


def test_other_ranks_than_the_first_do_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "is_main", lambda: False)
    other = trained({}, {"epoch": 1})
    assert not (other.run.folder / "control").exists()


# -- who asks ---------------------------------------------------------------------------------------------------------------


def refused(slug: str, *given: Any, **more: Any) -> str:
    with pytest.raises(LuxmeterError) as error:
        control_run(*given, **more)
    assert error.value.slug == slug
    return str(error.value)


def test_who_asks_is_told_why_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained({}, {"epoch": 1})
    run = trainer.run
    assert "Did you mean 'pause'?" in refused("control-what", run, "pauze")
    refused("control-changes", run, "pause", {"lr": 1})
    refused("control-changes", run, "set")
    (run.folder / "control" / "listening.json").write_text('{"session": "x", "state": "training"}')
    monkeypatch.setattr(requests, "sleep", lambda _: None)
    assert "has not answered 'pause' in 0.01 s" in refused("control-unanswered", run, "pause", wait_s=0.01)
    (waiting,) = (run.folder / "control" / "requests").iterdir()  # it stays
    assert json.loads(waiting.read_text())["to"] == "x"
    assert "it obeys at the end of the current step" in control_run(run, "stop", wait_s=0).text
    monkeypatch.setattr(requests, "sleep", lambda _: (run.folder / "control" / "listening.json").unlink())
    monkeypatch.setattr(requests, "_ALIVE_S", 0)
    refused("control-not-training", run, "pause")
    trainer.close()
    assert "has ended (finished)" in refused("control-ended", run, "pause")
    assert run.control().text == "finished: no training listens"
    (run.folder / "status.json").unlink()
    identity = json.loads((run.folder / "run.json").read_text())
    identity["process"] |= {"started": 1.0, "ticks": 1}
    (run.folder / "run.json").write_text(json.dumps(identity))
    assert "is gone" in refused("control-ended", Run(run.folder), "pause")


@pytest.mark.parametrize(
    "answer",
    ['{"done": true}', "[]", '{"done": false}', '{"done": true, "text": "x", "state": "y", "changed": 3}'],
)
def test_an_answer_that_cannot_be_read(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained({}, {"epoch": 1})
    folder = trainer.run.folder / "control"
    (folder / "listening.json").write_text('{"session": "x", "state": "training"}')

    def write(_: float) -> None:
        (request,) = (folder / "requests").iterdir()
        (folder / "answers" / request.name).write_text(answer)

    monkeypatch.setattr(requests, "sleep", write)
    refused("control-garbled", trainer.run, "pause")


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is typed: the answer comes while the command waits."""

    def obey(_: float) -> None:
        trainer.callbacks.find(Control)._obey(trainer)

    def said(*words: str) -> str:
        capsys.readouterr()
        build_app()(["control", *words], standalone_mode=False)
        return capsys.readouterr().out

    lines: list[str] = []

    def ask(asked: Asked) -> None:
        monkeypatch.setattr(requests, "sleep", obey)
        lines.extend(
            said("latest", *words.split())
            for words in ("set lr=0.5 name=007", "", "checkpoint --json", "pause", "resume")
        )
        with pytest.raises(UsageError, match="alpha is 3"):
            said("latest", "set", "alpha=x")

    trainer = Asked({"epoch": 1, "lr": 0.01, "alpha": 3, "name": "x"}, quiet=True)
    trainer.logger.set_level("fatal")  # its lines go to the same stream
    Asked.plan = {4: ask}
    trainer.initial_exp("asked")
    trainer.train()
    at = f"{trainer.run.id} asked: "
    assert (
        lines[0]
        == f"{at}set lr 0.01 -> 0.5, name x -> 007 at step 5 (epoch 1); for what reads the parameters from here on\n"
    )
    assert lines[1].startswith(f"{at}training: step 5 of 6, epoch 1\n  lr          0.5\n  train/loss  ")
    assert json.loads(lines[2])["what"] == "checkpoint" and json.loads(lines[2])["run"] == trainer.run.id
    assert lines[3:] == [f"{at}paused at step 5 (epoch 1)\n", f"{at}goes on at step 5 (epoch 1)\n"]


@pytest.mark.parametrize("every", [-1, float("inf"), float("nan"), "1", True])
def test_how_often_it_looks_is_a_time(every: Any) -> None:
    with pytest.raises(UsageError, match="control-every"):
        Control(every)
