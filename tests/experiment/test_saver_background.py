"""Writing in the background: consistent copies, errors brought back, kills, forks, exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import CheckpointError
from luxmeter.experiment.checkpoint import format as checkpoint_format


class Gate:
    """Holds the background thread just before it writes, until opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.reached = threading.Semaphore(0)
        real = checkpoint_format.Snapshot.write

        def write(snapshot: checkpoint_format.Snapshot, file: IO[bytes]) -> str:
            self.reached.release()
            assert self.opened.wait(30)
            return real(snapshot, file)

        monkeypatch.setattr(checkpoint_format.Snapshot, "write", write)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Gate(monkeypatch)
    yield made
    made.opened.set()


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_the_copy_is_of_the_moment_of_saving(gate: Gate, format: Any) -> None:
    saver = lux.Saver("s", format=format)
    state = {
        "w": torch.zeros(1000),
        "strided": torch.zeros(10, 10)[:, ::2],
        "list": [1, {"a": 2}],
        "bytes": bytearray(100),
    }
    saver.save_checkpoint(1, state)
    state["w"].fill_(9)
    state["strided"].fill_(9)
    state["list"][1]["a"] = 9
    state["bytes"][0] = 9
    saver.save_checkpoint(2, state)
    state["w"].fill_(7)
    gate.opened.set()
    first, second = saver.load_checkpoint(1).checkpoint, saver.load_checkpoint(2).checkpoint
    assert first["w"].sum() == 0 and first["strided"].sum() == 0
    assert first["list"] == [1, {"a": 2}] and first["bytes"] == bytearray(100)
    assert second["w"].sum() == 9000 and second["bytes"][0] == 9


def test_a_save_returns_before_it_is_written_and_find_waits(gate: Gate) -> None:
    saver = lux.Saver("s")
    path = Path(saver.save_checkpoint(1, {"a": 1}))
    assert gate.reached.acquire(timeout=30)
    assert not path.exists()
    found: list[list[str]] = []
    finder = threading.Thread(target=lambda: found.append(lux.Saver("s").find_checkpoints()))
    finder.start()
    finder.join(0.05)
    assert found == []  # it waits, although it belongs to another Saver of the same folder
    gate.opened.set()
    finder.join(30)
    assert found == [[str(path)]]


def test_memory_is_bounded_by_waiting(gate: Gate) -> None:
    saver = lux.Saver("s", max_pending=2, max_to_keep=None)
    saver.save_checkpoint(1, {})
    saver.save_checkpoint(2, {})
    third = threading.Thread(target=lambda: saver.save_checkpoint(3, {}))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    gate.opened.set()
    third.join(30)
    assert len(saver.find_checkpoints()) == 3


def test_the_memory_of_the_copy_is_used_again() -> None:
    saver = lux.Saver("s")
    state = {"w": torch.zeros(1000)}
    addresses = set()
    for step in range(4):
        saver.save_checkpoint(step, state)
        saver.flush()
        addresses.add(saver._arenas[0]._memory.data_ptr())
    assert len(addresses) == 1 and len(saver._arenas) == 1
    saver.close()
    assert saver._arenas == []
    saver.save_checkpoint(9, state)
    assert torch.equal(saver.load_latest_checkpoint().checkpoint["w"], state["w"])


def test_errors_of_the_background_come_back_at_the_next_call() -> None:
    saver = lux.Saver("s")
    saver.save_checkpoint(1, {"a": 1})
    saver.flush()
    Path("s/000002.ckpt").mkdir()  # the rename onto it must fail
    saver.save_checkpoint(2, {"a": 2})
    with pytest.raises(CheckpointError, match=r"was not written: .*checkpoint-write-failed"):
        saver.find_checkpoints()
    Path("s/000002.ckpt").rmdir()
    assert [Path(path).name for path in saver.find_checkpoints()] == ["000001.ckpt"]  # told once
    assert not list(Path("s").glob(".*.tmp")) and not Path("s/000002.ckpt.json").exists()
    saver.save_checkpoint(2, {"a": 2})
    assert saver.load_latest_checkpoint().checkpoint == {"a": 2}


def test_in_the_foreground_errors_are_raised_at_once() -> None:
    Path("s").write_text("a file")
    with pytest.raises(OSError):
        lux.Saver("s", background=False).save_checkpoint(1, {})


def test_an_interrupted_write_leaves_the_earlier_file(monkeypatch: pytest.MonkeyPatch) -> None:
    saver = lux.Saver("s", background=False)
    saver.save_checkpoint(1, {"a": "old"}, {"i": "old"})
    real = checkpoint_format._hashed_write

    def interrupted(file: IO[bytes], parts: list[Any]) -> str:
        real(file, parts)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_format, "_hashed_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saver.save_checkpoint(1, {"a": "new"})
    assert saver.load_latest_checkpoint() == ({"a": "old"}, {"i": "old"})
    assert sorted(path.name for path in Path("s").iterdir()) == ["000001.ckpt", "000001.ckpt.json"]


def test_killed_between_side_car_and_file_the_old_file_is_still_sound() -> None:
    """The side-car of a file that is being replaced describes both."""
    from luxmeter.experiment.checkpoint import folder as checkpoint_folder

    saver = lux.Saver("s", background=False)
    saver.save_checkpoint(1, {"a": "old"}, {"i": "old"})
    old = Path("s/000001.ckpt").read_bytes()
    saver.save_checkpoint(1, {"a": "new"}, {"i": "new"})
    assert saver.load_latest_checkpoint() == ({"a": "new"}, {"i": "new"})
    Path("s/000001.ckpt").write_bytes(old)  # as if the second rename had not come
    assert saver.load_latest_checkpoint() == ({"a": "old"}, {"i": "old"})
    assert len(checkpoint_folder.list_files(Path("s"), "checkpoint")[0].records) == 2


def save_for_ever(folder: str, step: int, told: int) -> None:
    torch.set_num_threads(1)
    saver = lux.Saver(folder, max_to_keep=3, max_pending=1)
    while True:
        step += 1
        saver.save_checkpoint(step, {"w": torch.full((200_000,), float(step)), "step": step}, {"step": step})
        os.write(told, f"{step}\n".encode())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kill_9_while_writing_leaves_every_earlier_checkpoint_intact() -> None:
    step = 0
    for round_number in range(8):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                save_for_ever("s", step, writing)
            finally:
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as told:
            for _ in range(4 + round_number % 3):
                step = int(told.readline())
            os.kill(child, signal.SIGKILL)  # at whatever it is doing
            _, status = os.waitpid(child, 0)
            rest = told.read().split()
        assert os.WTERMSIG(status) == signal.SIGKILL
        step = int(rest[-1]) if rest else step
        saver = lux.Saver("s")
        files = saver.find_checkpoints()
        assert files
        for path in files:  # none is damaged: an error would fail the test
            checkpoint, info = saver.load(path)
            assert checkpoint["step"] == info["step"] and bool((checkpoint["w"] == info["step"]).all())
        assert saver.load_latest_checkpoint().info["step"] >= step - 2  # at most those under way are lost
        assert not list(Path("s").glob(".*.tmp"))  # the new Saver took the leftovers away


def test_exit_writes_what_is_pending_and_tells_of_errors() -> None:
    Path("file").write_text("a file where a folder should be")
    code = (
        "import torch, luxmeter as lux\n"
        "saver = lux.Saver('s')\n"
        "for i in range(3): saver.save_checkpoint(i, {'w': torch.full((300_000,), float(i))})\n"
        "wrong = lux.Saver('file')\n"
        "wrong.save_checkpoint(1, {})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert lux.Saver("s").load_latest_checkpoint().checkpoint["w"][0] == 2
    assert "the last checkpoint was not written" in done.stderr


def test_ctrl_c_ends_cleanly_with_the_last_save_written() -> None:
    code = (
        "import time, torch, luxmeter as lux\n"
        "lux.Saver('s').save_checkpoint(1, {'w': torch.ones(300_000)}, {'step': 1})\n"
        "print('saved', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert lux.Saver("s").load_latest_checkpoint().info == {"step": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_saving_neither_hangs_nor_writes_twice(gate: Gate) -> None:
    saver = lux.Saver("s", max_to_keep=None)
    saver.save_checkpoint(1, {"by": "parent"})
    assert gate.reached.acquire(timeout=30)
    child = os.fork()
    if child == 0:  # the job under way is the parent's: the child must not wait for it
        gate.opened.set()
        code = 1
        try:
            saver.save_checkpoint(2, {"by": "child"})
            code = 0 if len(saver.find_checkpoints()) == 1 else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 30
    done = (0, -1)
    while time.monotonic() < deadline and not (done := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(0.01)
    gate.opened.set()
    assert done == (child, 0)
    assert {path: saver.load(path).checkpoint["by"] for path in saver.find_checkpoints()} == {
        str(Path("s/000001.ckpt")): "parent",
        str(Path("s/000002.ckpt")): "child",
    }


def test_many_threads_save_at_once() -> None:
    saver = lux.Saver("s", max_to_keep=None)
    threads = [
        threading.Thread(
            target=lambda n=n: [
                saver.save_checkpoint(n * 10 + i, {"n": torch.full((100,), n)}) for i in range(5)
            ]
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(saver.find_checkpoints()) == 20
    for n in range(4):
        assert bool((saver.load_checkpoint(n * 10 + 3).checkpoint["n"] == n).all())


def big_training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(512, 512)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model: torch.nn.Module, optim: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 512)).square().sum().backward()
    optim.step()
    optim.zero_grad()


@pytest.mark.parametrize("whole", [True, False])
def test_states_of_models_are_lent_and_the_copy_is_still_of_that_moment(gate: Gate, whole: bool) -> None:
    model, optim = big_training()
    train(model, optim)
    weight, moment = model.weight.detach().clone(), optim.state[model.weight]["exp_avg"].clone()
    saver = lux.Saver("s")
    if whole:
        saver.save_state(1, model=model, optim=optim)
    else:
        saver.save_checkpoint(
            1, {"parts": {"model": {"state": model.state_dict()}, "optim": {"state": optim.state_dict()}}}
        )
    # Lent, not copied: otherwise this test shows nothing.
    assert torch._C._is_cow_tensor(model.weight)
    assert torch._C._is_cow_tensor(optim.state[model.weight]["exp_avg"])
    train(model, optim)
    with torch.no_grad():
        model.weight.fill_(7.0)
    gate.opened.set()
    parts = saver.load_latest_checkpoint().checkpoint["parts"]
    assert torch.equal(parts["model"]["state"]["weight"], weight)
    assert torch.equal(parts["optim"]["state"]["state"][0]["exp_avg"], moment)
    assert bool((model.weight == 7.0).all())


def test_lending_ends_without_a_copy_when_the_file_is_written() -> None:
    model, optim = big_training()
    train(model, optim)
    saver = lux.Saver("s")
    saver.save_state(1, model=model, optim=optim)
    saver.flush()
    before = torch._C._data_address(model.weight)
    train(model, optim)
    assert torch._C._data_address(model.weight) == before


@pytest.mark.parametrize("whole", [True, False])
def test_memory_that_others_look_at_is_copied_at_once_and_stays_theirs(gate: Gate, whole: bool) -> None:
    model, _ = big_training()
    array = model.weight.detach().numpy()
    shared = torch.nn.Parameter(torch.zeros(512, 512).share_memory_())  # type: ignore[no-untyped-call]
    model.register_parameter("shared", shared)
    weight = model.weight.detach().clone()
    saver = lux.Saver("s")
    if whole:
        saver.save_state(1, model=model)
    else:
        saver.save_checkpoint(1, {"parts": {"model": {"state": model.state_dict()}}})
    array[:] = 3.0  # past torch
    with torch.no_grad():
        model.weight.add_(1)
        shared.add_(1)
    assert bool((array == 4.0).all()) and shared.is_shared()
    gate.opened.set()
    saved = saver.load_latest_checkpoint().checkpoint["parts"]["model"]["state"]
    assert torch.equal(saved["weight"], weight) and not saved["shared"].any()


@pytest.mark.parametrize("look", ["numpy", "variable", "detached"])
def test_a_tensor_that_the_caller_knows_is_copied_at_once(gate: Gate, look: str) -> None:
    tensor = torch.zeros(512, 512)
    state = {"w": tensor, "inner": {1: torch.zeros(512, 512)}}
    array = (tensor.detach() if look == "detached" else tensor).numpy()
    inner = state["inner"][1].numpy()
    if look != "variable":
        del tensor
    saver = lux.Saver("s")
    saver.save_checkpoint(1, state)
    array[:] = 1.0
    inner[:] = 1.0
    state["w"].add_(1)
    assert bool((array == 2.0).all())  # numpy and torch still look at the same memory
    gate.opened.set()
    loaded = saver.load_latest_checkpoint().checkpoint
    assert not loaded["w"].any() and not loaded["inner"][1].any()
