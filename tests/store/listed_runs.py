"""Runs to list, and what is asked about them."""

from __future__ import annotations

import pytest

from luxmeter.store import Lab

in_both_databases = pytest.mark.parametrize("lab", ["sqlite", "postgresql"], indirect=True)

FILTERS = [
    "",
    "param.lr < 0.5",
    "param.lr <= 0.1 and metric.acc > 0.3",
    "param.lr > 0.001 and param.lr < 0.5 and metric.acc >= 0",
    "param.lr != 0.1 and param.text ~ '*a*'",
    "param.text = 'b' or metric.acc.max > 0.5",
    "not (param.lr = 0.1) and name != b",
    "metric.acc.n = 1 and not tag = best",
    "metric.acc.last_step = 1 and tag = best and state = finished",
    "param.text < 'b'",
    "param.flag = true and duration < 100",
    "param.absent = 1 and metric.acc > 0",
]
SORTS = ["-created", "created", "-metric.acc", "metric.acc,name", "-param.lr", "param.text", "name,-created"]


def make(lab: Lab, name: str, *, tags: tuple[str, ...] = (), **params: object) -> str:
    """A run with these parameters; `acc` is logged too."""
    with lab.create_run(name, params=params, tags=tags) as run:
        if "acc" in params:
            run.metric("acc", params["acc"], 1)
    return run.id


def make_varied(lab: Lab) -> None:
    """Runs with and without each parameter and metric, values of both kinds, no number among the metrics, ties."""
    make(lab, "a", lr=0.1, acc=0.9, text="a-b", flag=True, tags=("best",))
    make(lab, "b", lr=0.01, acc=0.4, text="B")
    make(lab, "b", lr="auto", acc=0.4, text="ab", tags=("best", "other"))
    make(lab, "c", lr=1, text="b")
    make(lab, "Ä", acc=float("nan"), flag=False)
    make(lab, "a_%", lr=0.1, acc=-1.0, text="a b")
    make(lab, "none")
