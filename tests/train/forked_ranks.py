"""Real processes that are the ranks of a group: forked, so that none has to import torch anew."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LIMIT_S = 300  # nothing here takes so long


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def as_torchrun(world: int, port: int, ranks: Sequence[int] | None = None) -> list[dict[str, str]]:
    """The variables of each rank."""
    given = range(world) if ranks is None else ranks
    return [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        for rank in given
    ]


def together(work: Callable[..., Any], variables: Sequence[Mapping[str, str]], *args: Any) -> list[Any]:
    """What `work(*args)` gave in a process for each set of variables: a value, the error it raised, or its exit code."""
    context = multiprocessing.get_context("fork")
    children = []
    sys.stdout.flush()
    sys.stderr.flush()
    for one in variables:
        ours, theirs = context.Pipe()
        child = context.Process(target=_run, args=(work, dict(one), theirs, args))
        child.start()
        theirs.close()
        children.append((child, ours))
    try:
        found = []
        for child, pipe in children:
            if not pipe.poll(LIMIT_S):
                raise AssertionError(f"{child.name} does not end")
            try:
                found.append(pipe.recv())
            except EOFError:
                child.join(LIMIT_S)
                found.append(child.exitcode)
        for child, _ in children:
            child.join(LIMIT_S)
            assert child.exitcode is not None, f"{child.name} does not end"
        return found
    finally:
        for child, pipe in children:
            pipe.close()
            child.kill()
            child.join()
            child.close()


def _run(work: Callable[..., Any], variables: dict[str, str], pipe: Any, args: Any) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ.update(variables)
    try:
        pipe.send(work(*args))
    except Exception as error:
        try:
            pipe.send(error)
        except Exception:
            pipe.send(RuntimeError(str(error)))
