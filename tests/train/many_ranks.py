"""Scenarios that real ranks go through: one group of forked processes makes them one after the other, with gloo."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from forked_ranks import as_torchrun, free_port, together

Scenario = Callable[[int], Any]  # of the rank; what it returns is looked at in the test
Said = list[dict[str, Any]]  # by rank: what each scenario returned, or the text of its error


def run_ranks(ranks: int, scenarios: Mapping[str, Scenario], folder: Path) -> Said:
    """Go through them all."""
    folder.mkdir(parents=True, exist_ok=True)
    together(_go_through, as_torchrun(ranks, free_port()), scenarios, folder)
    said = [folder / f"said-{rank}.pt" for rank in range(ranks)]
    return [torch.load(one, weights_only=False) if one.is_file() else {} for one in said]


def of(said: Said, name: str) -> list[Any]:
    """What each rank said of a scenario."""
    for rank, one in enumerate(said):
        assert name in one, f"rank {rank} ended before {name}; it came to {list(one)}"
        text = one[name]
        assert not (isinstance(text, str) and text.startswith("Traceback")), f"rank {rank}: {text}"
    return [one[name] for one in said]


def _go_through(scenarios: Mapping[str, Scenario], folder: Path) -> None:
    rank = int(os.environ["RANK"])
    os.environ.update(
        LUXMETER_HOME=str(folder / "lab"), HOME=str(folder), XDG_CONFIG_HOME=str(folder / ".config")
    )
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    said: dict[str, Any] = {}
    for name, scenario in scenarios.items():
        try:
            said[name] = scenario(rank)
        except BaseException:  # the test shows it
            said[name] = traceback.format_exc()
        torch.save(said, folder / f"said-{rank}.pt")
    torch.distributed.destroy_process_group()
