"""Real ranks, one of which sleeps: it is named, and the collective in which the others waited for it.

A sleep of 50 ms a step stands far above what processes that share a machine make each other wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from many_ranks import run_ranks
from small_training import Noisy, Small
from torch import nn

import luxmeter as lux
from luxmeter.calls import Stragglers
from luxmeter.errors import UsageError
from luxmeter.store import Run
from luxmeter.train.dist import ensure_group

ONE_CORE = "what is read is the trace's folder, which both cores write alike; each more would take seconds of real ranks"
NAP_S, STEPS = 0.05, 6
Steps = Callable[[Callable[[bool], None]], None]  # is given what sleeps, if this is the rank for it


def traced(name: str, steps: Steps, sleeper: int) -> Callable[[int], Any]:
    """Each rank traces its steps into one folder."""

    def scenario(rank: int) -> str:
        ensure_group()
        dist.barrier()
        with lux.trace(keep=name):
            dist.barrier()

            def nap(is_so: bool) -> None:
                time.sleep(NAP_S if is_so and rank == sleeper else 0)

            steps(nap)
        dist.barrier()
        return str(Path(name).absolute())

    return scenario


def plain(nap: Callable[[bool], None]) -> None:
    for _ in range(STEPS):
        nap(True)
        dist.all_reduce(torch.ones(10))
        dist.barrier()


def apart(nap: Callable[[bool], None]) -> None:
    """Each works for itself, and they meet behind it: backward is nobody's waiting."""
    weight = torch.ones(10, requires_grad=True)
    for _ in range(STEPS):
        nap(True)
        (weight * 2).sum().backward()
        dist.all_reduce(weight.grad)


def asynchronous(nap: Callable[[bool], None]) -> None:
    for _ in range(STEPS):
        nap(True)
        work = dist.all_reduce(torch.ones(10), async_op=True)
        work.wait()


def messages(nap: Callable[[bool], None]) -> None:
    """Around in a ring: each sends to the next one, and receives from the one before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(STEPS):
        nap(True)
        there, here = (
            dist.P2POp(dist.isend, torch.ones(3), (rank + 1) % ranks),
            dist.P2POp(dist.irecv, torch.zeros(3), (rank - 1) % ranks),
        )
        for work in dist.batch_isend_irecv([there, here]):
            work.wait()


def balanced(nap: Callable[[bool], None]) -> None:
    for _ in range(STEPS):
        time.sleep(NAP_S)
        dist.all_reduce(torch.ones(10))


def ddp(where: str, *, buffers: bool = False) -> Steps:
    def steps(nap: Callable[[bool], None]) -> None:
        layers = [nn.Linear(8, 8), *([nn.BatchNorm1d(8)] if buffers else []), nn.Linear(8, 2)]
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
        for _ in range(STEPS):
            nap(where == "data")
            loss = model(torch.ones(4, 8)).sum()
            nap(where == "forward")
            loss.backward()

    return steps


class Slow(Small):
    """Rank 1 reads its data slowly. Twelve batches an epoch, and no buffers: nothing but gradients is sent."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = nn.Linear(6, 3)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.regist_databundler(train=lux.DataLoader(Noisy(96), batch_size=4), eval=[], test=[])

    def train_batch(self, *given: Any) -> Any:
        if dist.get_rank() == 1:
            time.sleep(NAP_S)
        return super().train_batch(*given)


def trainer(rank: int) -> str:
    made = Slow({"epoch": 1}, quiet=True)
    made.initial_exp("slow")
    made.train(trace=range(1, 1 + STEPS))
    assert made.experiment is not None
    made.experiment.log({"seen": 10.0 + rank}, step=3)  # each rank its own
    found = str(made.run.folder)
    made.close()
    return found


def in_experiment(rank: int) -> str:
    """A trace without a place of its own, in an experiment that rank 0 alone makes a run of."""
    with lux.Experiment("here", quiet=True, code=False, system_s=0) as exp:
        with lux.trace() as trace:
            dist.barrier()
        dist.barrier()
        assert exp.id == "" or rank == 0
    return str(trace.folder)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    scenarios = {
        "plain": traced("plain", plain, 2),
        "apart": traced("apart", apart, 1),
        "asynchronous": traced("asynchronous", asynchronous, 1),
        "messages": traced("messages", messages, 2),
        "balanced": traced("balanced", balanced, 1),
        "data": traced("data", ddp("data"), 1),
        "forward": traced("forward", ddp("forward"), 2),
    }
    return run_ranks(3, scenarios, tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    scenarios = {
        "plain": traced("plain", plain, 0),
        "buffers": traced("buffers", ddp("data", buffers=True), 0),
        "trainer": trainer,
        "in_experiment": in_experiment,
    }
    return run_ranks(2, scenarios, tmp_path_factory.mktemp("two"))


def stragglers(said: list[dict[str, Any]], name: str) -> Stragglers:
    assert all(not one[name].startswith("Traceback") for one in said), said
    return lux.load_trace(said[0][name]).stragglers()


@pytest.mark.parametrize(
    ("name", "rank", "where"),
    [
        ("plain", 2, "torch.distributed.all_reduce"),
        ("apart", 1, "torch.distributed.all_reduce"),
        ("asynchronous", 1, "torch.distributed.all_reduce"),
        ("messages", 2, "torch.distributed.send/recv"),
        ("data", 1, "Tensor.backward"),
        ("forward", 2, "Tensor.backward"),
    ],
)
def test_of_three(three: list[dict[str, Any]], name: str, rank: int, where: str) -> None:
    found = stragglers(three, name)
    assert found.worst is not None and (found.worst.rank, found.worst.most_in) == (rank, where), str(found)
    assert found.ranks[0] == found.worst and len(found.ranks) == 3
    assert found.collectives[0].last >= STEPS - 1, str(found)  # again and again, not once


def test_nobody_of_three_that_work_alike(three: list[dict[str, Any]]) -> None:
    found = stragglers(three, "balanced")
    assert found.calls >= STEPS and found.worst is None, str(found)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("plain", "torch.distributed.all_reduce"),
        ("buffers", "torch.distributed._broadcast_coalesced"),  # the others wait for the buffers of rank 0
    ],
)
def test_of_two(two: list[dict[str, Any]], name: str, where: str) -> None:
    found = stragglers(two, name)
    assert found.worst is not None and (found.worst.rank, found.worst.most_in) == (0, where), str(found)


def test_of_a_training(two: list[dict[str, Any]]) -> None:
    run = Run(Path(two[0]["trainer"]))
    assert run.trace is not None
    found = run.trace.stragglers()
    assert found.worst is not None and found.worst.rank == 1, str(found)
    assert found.worst.most_in == "Tensor.backward", str(found)
    assert str(run.trace).endswith(found.line) and found.line.startswith("rank 1 made rank 0 wait ")


def test_a_trace_is_read_by_rank(two: list[dict[str, Any]]) -> None:
    trace = lux.load_trace(two[0]["plain"])
    assert trace.ranks == [0, 1]
    each = [trace.table(rank=rank)["torch.distributed.all_reduce"].n for rank in (0, 1)]
    assert each == [STEPS, STEPS] and trace.table()["torch.distributed.all_reduce"].n == 2 * STEPS
    assert {row.name for row in trace.table("rank")} == {"rank 0", "rank 1"}
    assert all(row.name.endswith(("(rank 0)", "(rank 1)")) for row in trace.table("thread"))
    assert trace.tree(rank=1)["torch.distributed.all_reduce"].n == STEPS
    with pytest.raises(UsageError, match="trace-without-rank"):
        trace.table(rank=2)


def test_a_trace_in_an_experiment_is_one_of_all_ranks(two: list[dict[str, Any]]) -> None:
    place = two[0]["in_experiment"]
    assert place == two[1]["in_experiment"] and Path(place).parent.name == "calls", two
    assert lux.load_trace(place).ranks == [0, 1]


def test_what_each_rank_logs_lies_in_one_run(two: list[dict[str, Any]]) -> None:
    assert two[0]["trainer"] == two[1]["trainer"]
    run = Run(Path(two[0]["trainer"]))
    assert run.ranks == [1]
    assert [p.value for p in run.metric("seen")] == [10.0]
    assert [p.value for p in run.metric("seen", rank=1)] == [11.0]
    # Losses of steps and averages are logged by rank 0, as ever.
    assert "train/loss" in run.metrics and not [
        key for key in run.metrics_of(1) if key.startswith(("train/", "eval/"))
    ]
