"""Threads, exceptions, transforms, checkpoints, worker processes, ranks: seen, and running as without a trace."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seen import Seen, bits, unchanged
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, Dataset

import luxmeter as lux

CORES = pytest.mark.parametrize("core", ["c", "python"])


@CORES
def test_threads_have_their_own_depth(core: str):
    start = threading.Barrier(5)

    def work() -> None:
        start.wait()
        for _ in range(50):
            nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2))
            torch.sin(torch.ones(1))

    with unchanged(), Seen(core) as seen:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        work_here = nn.Linear(2, 2)
        for _ in range(50):
            work_here(torch.ones(1, 2))
        for thread in threads:
            thread.join()
    found = seen.calls()
    assert (
        found["torch.sin"] == 200
        and found["torch.nn.functional.linear"] == 200
        and found["torch.nn.Linear"] == 50
    )
    assert found["torch.ones"] == 4 * 50 * 3 + 50


@CORES
def test_hooks_in_the_backward_are_inside_it(core: str):
    hooked = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda gradient: hooked.append(gradient * 2))
    with Seen(core) as seen:
        (x * 3).sum().backward()
    assert len(hooked) == 1 and torch.equal(hooked[0], torch.full((2,), 6.0))
    assert seen.calls() == {"Tensor.__mul__": 1, "Tensor.sum": 1, "Tensor.backward": 1}


@CORES
def test_exceptions_pass_untouched_and_are_flagged(core: str):
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.matmul(x, torch.ones(7))

    with unchanged(), Seen(core) as seen:
        with pytest.raises(RuntimeError, match="size mismatch") as raised:
            Failing()(torch.ones(2, 3))
        with pytest.raises(TypeError):
            torch.sin()
        with pytest.raises(KeyError):
            F.relu(Raises())
        torch.cos(torch.ones(1))
    assert "forward" in [entry.name for entry in raised.traceback]
    assert core == "python" or raised.traceback[-1].name == "forward"  # the C core leaves no frame of its own
    assert seen.raised() == {
        f"{__name__}.Failing": 1,
        "torch.matmul": 1,
        "torch.sin": 1,
        "torch.nn.functional.relu": 1,
    }
    assert seen.calls()["torch.cos"] == 1  # top level again


class Raises:
    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        raise KeyError("mine")


@CORES
def test_transforms_of_functions(core: str):
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w).sum()

    def everything() -> Any:
        w, x = torch.linspace(0, 1, 3), torch.arange(6.0).reshape(2, 3)
        per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
        out, pull = torch.func.vjp(loss, w, x)
        return [
            per_sample(w, x), torch.func.jacrev(loss)(w, x), torch.func.jacfwd(loss)(w, x), torch.func.hessian(loss)(w, x), out, pull(out),
            torch.func.jvp(loss, (w, x), (w, x)), torch.vmap(torch.sin)(x), torch.autograd.functional.jacobian(torch.sin, w),
            torch.func.functional_call(nn.Linear(3, 1), {"weight": torch.ones(1, 3), "bias": torch.zeros(1)}, (x,)),
        ]  # fmt: skip

    expected = bits(everything())
    with unchanged(), Seen(core) as seen:
        result = everything()
    assert bits(result) == expected
    spans = seen.counts() - seen.calls()
    assert (
        spans["torch.func.vmap"] >= 2
        and spans["torch.func.grad"] >= 1
        and spans["torch.func.functional_call"] == 1
    )
    assert (
        seen.calls()["torch.tanh"] >= 4 and seen.calls()["Tensor.__matmul__"] >= 4
    )  # the bodies hide nothing


@CORES
@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpoints(core: str, reentrant: bool):
    def step() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.ReLU())
        x = torch.ones(2, 4, requires_grad=True)
        y = checkpoint(lambda v: torch.sin(model(v)), x, use_reentrant=reentrant)
        z = checkpoint_sequential(model, 2, x, use_reentrant=reentrant)
        (y.sum() + z.sum()).backward()
        return y, z, x.grad, [p.grad for p in model.parameters()]

    expected = bits(step())
    with unchanged(), Seen(core) as seen:
        result = step()
    assert bits(result) == expected
    spans = seen.counts() - seen.calls()
    assert (
        spans["torch.utils.checkpoint.checkpoint"] >= 1
        and spans["torch.utils.checkpoint.checkpoint_sequential"] == 1
    )
    # The forward passes are the user's; what the backward computes again is inside it.
    assert (
        seen.calls()["torch.sin"] == 1
        and seen.calls()["torch.nn.Linear"] == 4
        and seen.calls()["Tensor.backward"] == 1
    )


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index)).tanh()


@pytest.mark.slow
@CORES
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_workers_are_merged_into_one_result(
    core: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LUXMETER_CORE", core)
    loader = DataLoader(Images(), batch_size=2, num_workers=2, multiprocessing_context=method)
    expected = bits(list(loader))
    with unchanged(), lux.trace(keep=tmp_path / "t") as trace:
        batches = list(loader)
    assert bits(batches) == expected
    table = lux.load_trace(tmp_path / "t").table()
    assert table["torch.full"].n == 8 and table["Tensor.tanh"].n == 8  # all of them in the workers
    assert table["next(DataLoader)"].n == 5 and table["iter(DataLoader)"].n == 1
    assert trace.table()["torch.full"].n == 8


def rank_main(rank: int, port: int, folder: str, core: str, results: Any) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LUXMETER_CORE": core,
    }
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")

    def train() -> Any:
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(
            nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.full((2, 4), float(rank + 1))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        total = torch.ones(1) * rank
        torch.distributed.all_reduce(total)
        return bits([list(model.parameters()), total])

    expected = train()
    with lux.trace(keep=folder):
        got = train()
    results.put((rank, got == expected))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@CORES
def test_two_ranks_of_ddp(core: str, tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    ranks = [
        context.Process(target=rank_main, args=(rank, port, str(tmp_path / "t"), core, results))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(240)
    assert [process.exitcode for process in ranks] == [0, 0]
    assert sorted(results.get() for _ in range(2)) == [(0, True), (1, True)]
    merged = lux.load_trace(tmp_path / "t")
    assert merged.table()["torch.nn.Linear"].n == 12 and merged.table()["torch.distributed.all_reduce"].n == 2
    assert merged.table()["torch.optim.SGD.step"].n == 6
    by_rank = merged.sql(
        "select rank, count(*) n from calls where name = 'torch.nn.Linear' group by 1 order by 1"
    ).to_pylist()
    assert by_rank == [{"rank": 0, "n": 6}, {"rank": 1, "n": 6}]


@pytest.mark.one_core("which names are bound is the patcher's matter, and importing Dynamo takes seconds")
def test_a_name_imported_under_tracing_stays_timed_when_torch_imports_lazily() -> None:
    """`luxmeter trace`: the script's `from torch import relu` binds a stand-in; the first optimizer imports Dynamo."""
    code = """
import torch, luxmeter as lux
trace = lux.trace()
trace.start()
exec("from torch import relu, sigmoid")
x = torch.ones(2)
relu(x)
optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
import torch._dynamo
relu(x), sigmoid(x)
trace.stop()
counts = {row.name: row.n for row in trace.table()}
print(counts["torch.relu"], counts["torch.sigmoid"], type(relu).__name__, relu is torch.relu)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "1", "builtin_function_or_method", "True"]
