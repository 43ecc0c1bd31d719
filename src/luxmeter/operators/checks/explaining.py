"""The worker's second look at a failing input: made smaller if that was asked for, and written down as a script."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import warnings
from typing import Any

import torch

from luxmeter.operators.checks.comparing import allowed_of
from luxmeter.operators.checks.judging import Where, coarsest_of, judge
from luxmeter.operators.checks.script import script_of
from luxmeter.operators.checks.shrinking import shrunk
from luxmeter.operators.checks.trial import Trial
from luxmeter.operators.checks.work import signature_of, trial_at

_PATIENCE_S = 5  # with a smaller input that may hang instead


def explain(
    case: dict[str, Any], *, dtype: str, device: str, backend: str, backward: bool, seed: int, sample: int, part: str,
    reason: str, allowed: float | None, setup: list[str], shrink: bool, dies: bool,
) -> dict[str, Any]:  # fmt: skip
    """What is to be told of an error beside what a round told: signature, script, and the smallest input."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial = trial_at(case, dtype=dtype, seed=seed, device=device, sample=sample)
        if trial is None:
            return {}
        # What a test of one's own makes for itself is known from the round.
        found: dict[str, Any] = {} if trial.is_program else {"signature": signature_of(trial)}
        where = Where(device, backend, backward and not part.startswith("output"))
        drawn, first = trial, (reason, part, allowed)
        if shrink and dies:
            trial = shrunk(trial, lambda t: _kills(t, where, seed + sample))
            found["shrunk"] = signature_of(trial)
        elif shrink:
            trial = shrunk(trial, lambda t: _fails(t, where, seed + sample))
            judged = judge(trial, where, seed=seed + sample)
            found |= {
                "shrunk": signature_of(trial),
                **{k: getattr(judged, k) for k in ("reason", "part", "error", "allowed")},
            }
            reason, part, allowed = judged.reason, judged.part, judged.allowed
        title = f"{case['name']} in {dtype} on {device} ({backend})"

        def write(one: Trial, reason: str, part: str, allowed: float | None) -> str:
            narrow = coarsest_of(one)
            return script_of(
                one, case, title=title, said=reason.rstrip(".") or "It ends the process", dtype=dtype, device=device, backend=backend,
                seed=seed + sample, round_seed=seed, gradient=part.startswith("gradient"), narrow=narrow, setup=setup, dies=dies,
                allowed=allowed_of(narrow) if allowed is None else allowed, sampled=drawn,
            )  # fmt: skip

        # A smaller input that nothing can write down: the one that was drawn shows the error as well.
        script = write(trial, reason, part, allowed) or write(drawn, *first)
    return {**found, "script": script}


def _fails(trial: Trial, where: Where, seed: int) -> bool:
    """Whether it still gives something wrong, and does not just refuse what is no input any more."""
    try:
        found = judge(trial, where, seed=seed)
    except Exception:  # noqa: BLE001  (an input that nothing can be done with is none)
        return False
    return found.status == "failed"


def _kills(trial: Trial, where: Where, seed: int) -> bool:
    """Whether it ends a process: a child of this one."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            signal.alarm(_PATIENCE_S)
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            judge(trial, where, seed=seed)
        os._exit(0)
    _, end = os.waitpid(child, 0)
    return os.WIFSIGNALED(end) and os.WTERMSIG(end) != signal.SIGALRM
