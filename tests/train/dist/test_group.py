"""Ranks that meet, and what each is told when they cannot."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
from typing import Any

import pytest
import torch
import torch.distributed
from forked_ranks import as_torchrun, free_port, together

from luxmeter.errors import LuxmeterError
from luxmeter.ranks import Rank, own_rank
from luxmeter.train.dist import (
    Group,
    agree,
    all_reduce,
    barrier,
    broadcast,
    broadcast_object,
    current_group,
    ensure_group,
    gather_objects,
    main_only,
    meeting,
    who_failed,
)
from luxmeter.train.dist.address import first_host, is_one_of_several, meeting_address

SOON_S = 1.0


def grouped() -> Any:
    first = ensure_group()
    assert ensure_group() == first == current_group()
    rank = torch.tensor([float(first.rank)])
    barrier()
    return {
        "group": first,
        "sum": all_reduce(rank.clone()).item(),
        "mean": all_reduce(rank.clone(), "mean").item(),
        "max": all_reduce(rank.clone(), "max").item(),
        "min": all_reduce(rank + 3, "min").item(),
        "from 1": broadcast(rank.clone(), src=1).item(),
        "object": broadcast_object({"of": first.rank}, src=1),
        "gathered": gather_objects(f"rank {first.rank}"),
        "main": main_only(lambda: "done")(),
        "no such rank": str(failing(lambda: broadcast_object(1, src=2))),
    }


def failing(work: Any) -> LuxmeterError:
    with pytest.raises(LuxmeterError) as caught:
        work()
    return caught.value


def test_ranks_meet_and_tell_each_other() -> None:
    first, second = together(grouped, as_torchrun(2, free_port()))
    assert first["group"] == Group(0, 0, 2, "gloo", "torchrun")
    assert second["group"] == Group(1, 1, 2, "gloo", "torchrun")
    for one in (first, second):
        assert (one["sum"], one["mean"], one["max"], one["min"], one["from 1"]) == (1, 0.5, 1, 3, 1)
        assert one["object"] == {"of": 1} and one["gathered"] == ["rank 0", "rank 1"]
        assert "[no-such-rank]" in one["no such rank"]
    assert (first["main"], second["main"]) == ("done", None)


def test_alone_everything_gives_what_it_was_given() -> None:
    assert ensure_group() == current_group() == Group(0, 0, 1, "", "none")
    tensor = torch.tensor([2.0])
    barrier()
    agree(config="one")
    assert all_reduce(tensor, "mean") is tensor and broadcast(tensor, src=3) is tensor
    assert (broadcast_object("x"), gather_objects("x"), main_only(lambda: 1)()) == ("x", ["x"], 1)
    assert who_failed() == ""
    assert not torch.distributed.is_initialized()


def test_a_reduction_that_is_none() -> None:
    assert failing(lambda: all_reduce(torch.ones(1), "median")).slug == "reduce-how"  # type: ignore[arg-type]
    assert failing(lambda: all_reduce(torch.ones(1, dtype=torch.int64), "mean")).slug == "mean-of-integers"


SLURM = {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "nowhere[1-2]"}  # fmt: skip
OPENMPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
MPICH = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("launcher", "rank", "local", "others"),
    [
        ("slurm", "SLURM_PROCID", "SLURM_LOCALID", {**SLURM, "SLURM_JOB_ID": "{pid}"}),
        ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", {**OPENMPI, "PMIX_NAMESPACE": "{pid}"}),
        ("mpich", "PMI_RANK", "MPI_LOCALRANKID", MPICH),
    ],
)  # fmt: skip
def test_other_launchers_give_no_address(launcher: str, rank: str, local: str, others: Any) -> None:
    shared = {key: text.format(pid=os.getpid()) for key, text in others.items()}
    found = together(grouped, [{**shared, rank: str(n), local: str(n)} for n in range(2)])
    assert [one["group"] for one in found] == [Group(n, n, 2, "gloo", launcher) for n in range(2)]
    assert found[1]["sum"] == 1


def address(launcher: str, rank: int = 0, world: int = 4, **env: str) -> str:
    return str(meeting_address(Rank(rank, world, rank, launcher), env))


def test_the_place_is_worked_out_of_the_job() -> None:
    many = {**SLURM, "SLURM_STEP_NUM_NODES": "2"}
    assert address("slurm", **many).startswith("nowhere1:") and address("slurm", **SLURM).startswith(
        "127.0.0.1:"
    )
    assert address("slurm", **many) == address("slurm", 3, **many)
    assert address("slurm", **many) != address("slurm", **{**many, "SLURM_STEP_ID": "1"})
    assert address("slurm", **many, MASTER_ADDR="a", MASTER_PORT="5") == "a:5"
    for said, first in {
        "a": "a",
        "a,b": "a",
        "gpu[07-09,12],x": "gpu07",
        "n[3]-ib": "n3-ib",
        "r-1": "r-1",
    }.items():
        assert first_host(said) == first
    for launcher, env, slug in [
        ("openmpi", {**OPENMPI, "PMIX_NAMESPACE": "1"}, "no-master"),  # two of four ranks are on this host
        ("openmpi", {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "no-master"),
        ("torchrun", {"MASTER_ADDR": "a", "MASTER_PORT": "70000"}, "master-port"),
        ("torchrun", {}, "no-master"),
    ]:  # fmt: skip
        assert failing(lambda launcher=launcher, env=env: address(launcher, **env)).slug == slug


def test_the_script_of_a_slurm_job_is_no_rank() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}
    assert not is_one_of_several(own_rank(batch), batch)
    assert is_one_of_several(own_rank({**batch, "SLURM_STEP_ID": "0"}), {**batch, "SLURM_STEP_ID": "0"})


def test_who_never_arrives_is_named_on_every_rank() -> None:
    for error in together(ensure_group, as_torchrun(4, free_port(), ranks=[0, 2]), SOON_S):
        assert error.slug == "ranks-missing", error
        assert error.what.startswith("Ranks 1 and 3 of 4 have not come to 127.0.0.1:")
    [error] = together(ensure_group, as_torchrun(2, free_port(), ranks=[1]), SOON_S)
    assert error.slug == "no-main-rank" and "Rank 1 of 2 does not reach rank 0 at 127.0.0.1" in error.what


def test_a_port_in_use() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen(1)
        port = other.getsockname()[1]
        [error] = together(ensure_group, as_torchrun(2, port, ranks=[0]), SOON_S)
    assert error.slug == "port-in-use" and f"127.0.0.1:{port}" in error.what


def test_a_port_where_something_else_listens_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the other ranks, if rank 0 finds the port in use: they need not wait as long as for a rank that may still come."""
    monkeypatch.setattr(meeting, "_ANSWERS_S", 0.5)
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen(1)
        port = other.getsockname()[1]
        [error] = together(ensure_group, as_torchrun(2, port, ranks=[1]), 30.0)
    assert error.slug == "no-main-rank"
    assert (
        f"at 127.0.0.1:{port} within 0.5 s: 127.0.0.1:{port} answers, but not as rank 0 does." in error.what
    )


def saying(timeout_s: float) -> str:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        failing(lambda: ensure_group(timeout_s))
    return said.getvalue()


def test_who_waits_says_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_SAYS_S", 0.0)
    [said] = together(saying, as_torchrun(3, free_port(), ranks=[0]), SOON_S)
    assert said.startswith("luxmeter: rank 0 of 3 waits for ranks 1 and 2 at 127.0.0.1:"), said
    [said] = together(saying, as_torchrun(3, free_port(), ranks=[1]), 3.0)
    assert (
        said.startswith("luxmeter: rank 1 of 3 waits for rank 0 at 127.0.0.1:") and said.count("\n") == 1
    ), said
    assert "known here" not in said
    elsewhere = [{**one, "MASTER_ADDR": "no-such-host.invalid"} for one in as_torchrun(3, 1, ranks=[1])]
    [said] = together(saying, elsewhere, SOON_S)
    assert "; no host no-such-host.invalid is known here\n" in said, said


@pytest.mark.parametrize(("rank", "size"), [("0", "two"), ("-1", "2"), ("0", "0"), ("0", "-2"), ("x", "2")])
def test_numbers_that_are_none_do_not_train_alone(
    monkeypatch: pytest.MonkeyPatch, rank: str, size: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    assert f"RANK is {rank!r} and WORLD_SIZE is {size!r}" in failing(ensure_group).what


def test_wrong_numbers() -> None:
    port = free_port()
    variables = [*as_torchrun(2, port, ranks=[0]), *as_torchrun(3, port, ranks=[1])]
    for error in together(ensure_group, variables, 20.0):
        assert error.slug == "world-size" and "Rank 0 is of 2 ranks, and rank 1 of 3." in error.what
    [error] = together(ensure_group, as_torchrun(2, free_port(), ranks=[2]))
    assert error.slug == "rank-number" and "rank 2 of 2" in error.what
    found = together(ensure_group, as_torchrun(3, free_port(), ranks=[0, 1, 1]), SOON_S)
    assert sorted(error.slug for error in found) == ["rank-twice", "ranks-missing", "ranks-missing"]


def agreeing(config: list[str]) -> None:
    rank = ensure_group().rank
    agree(torch=torch.__version__, config=config[rank])


def test_ranks_that_have_something_else() -> None:
    line = "model = dict(type='Net')\n"
    configs = [f"{line}lr = 0.1\n", f"{line}lr = 0.2\n", f"{line}lr = 0.1\n", f"{line}lr = 0.3\n"]
    errors = together(agreeing, as_torchrun(4, free_port()), configs)
    assert [error.slug for error in errors] == ["ranks-differ"] * 4
    assert {error.what for error in errors} == {
        "The ranks do not have the same config: ranks 0 and 2 have 'lr = 0.1' in line 2, "
        "rank 1 has 'lr = 0.2', rank 3 yet another."
    }


def killed_in_mid_collective() -> str:
    if ensure_group().rank == 2:
        barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    barrier()
    try:
        barrier()
    except RuntimeError:
        return who_failed()
    return "nothing"


def test_who_was_killed_is_known_to_the_others() -> None:
    said = together(killed_in_mid_collective, as_torchrun(4, free_port()))
    assert said[2] == -signal.SIGKILL
    assert {said[0], said[1], said[3]} == {"rank 2 has ended without a word"}
