"""The worker's part of a check: one round of one case, and what is to be told of a failing input."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import traceback
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from luxmeter.errors import UsageError
from luxmeter.frames import users_frames
from luxmeter.nested import tensors_of
from luxmeter.operators.checks.judging import Judged, Where, judge
from luxmeter.operators.checks.sources import load, trials_of
from luxmeter.operators.checks.trial import Trial
from luxmeter.operators.inputs import NOT_REPLAYABLE
from luxmeter.signature import describe

_LOADING_S, _TELL_S = 600, 1.0  # what is imported may take so long, and is told of so often
MARK = "luxmeter check at sample "  # the last such line tells where a worker died
_MOST_DETAILS = 3  # tracebacks of one round; further errors have their line


def check_round(
    case: dict[str, Any],
    *,
    dtype: str,
    device: str,
    backend: str,
    backward: bool,
    seed: int,
    samples: int | None = None,
) -> dict[str, Any]:
    """One round: how many trials passed, failed and were missed, every error, and the worst of what is right."""
    torch.set_num_threads(1)
    where = Where(device, backend, backward)
    errors: list[dict[str, Any]] = []
    excused: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    times: list[int] = []
    worst, largest, elements = 0.0, "", -1
    reason = ""
    try:
        for number, trial in _numbered(case, dtype, seed, device, samples):
            found = judge(trial, where, seed=seed + number)
            counts[found.status] += 1
            if found.status == "failed":
                errors.append(_error(trial, found, number, seed, len(errors) < _MOST_DETAILS))
            elif found.status == "missed":
                reason = reason or found.reason
            else:
                worst = max(worst, found.ratio)
                times.append(found.forward_ns)
            if found.excused:
                excused[found.excused] += 1
            size = sum(t.numel() for t in tensors_of((trial.args, dict(trial.kwargs), trial.given)))
            if size > elements:
                largest, elements = trial, size  # type: ignore[assignment]
    except Missed as missed:
        counts["missed"] += 1
        reason = str(missed)
    return {
        "counts": dict(counts), "errors": errors, "excused": dict(excused), "reason": reason, "worst": worst,
        "time_us": statistics.median(times) / 1e3 if times else None,
        "largest": signature_of(largest) if isinstance(largest, Trial) else "", "elements": max(0, elements),
    }  # fmt: skip


class Missed(Exception):
    """The case cannot be made here; the message says why."""


def _numbered(
    case: dict[str, Any], dtype: str, seed: int, device: str, samples: int | None
) -> Iterator[tuple[int, Trial]]:
    """The trials of a round with their numbers; each is told before it runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _alive():
            load(case["source"])
        made = trials_of(case, dtype=dtype, seed=seed, device=device)
        number = 0
        while samples is None or number < samples:
            try:
                trial = next(made)
            except StopIteration:
                return
            except NotImplementedError as error:
                raise Missed(str(error)) from error
            except RuntimeError as error:
                if "NVIDIA driver" in str(
                    error
                ):  # some samples ask what the GPU can do, in a CUDA build without one
                    return
                raise
            except UsageError as error:
                if error.slug not in (*NOT_REPLAYABLE, "operator-gone"):
                    raise
                raise Missed(error.what) from error
            os.write(2, f"{MARK}{number}\n".encode())
            yield number, trial
            number += 1


@contextlib.contextmanager
def _alive() -> Iterator[None]:
    """What takes long in here is no hang of a case: the time that an input may take begins afterwards."""
    done = threading.Event()

    def tell() -> None:
        for _ in range(int(_LOADING_S / _TELL_S)):
            if done.wait(_TELL_S):
                return
            os.write(2, f"{MARK}none\n".encode())

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _error(trial: Trial, found: Judged, number: int, seed: int, in_full: bool) -> dict[str, Any]:
    return {
        "sample": number, "seed": seed, "signature": signature_of(trial), "part": found.part, "reason": found.reason,
        "error": found.error, "allowed": found.allowed, "traceback": found.detail if in_full else "",
    }  # fmt: skip


def signature_of(trial: Trial) -> str:
    """What the trial is given, in a line."""
    try:
        return str(describe((*trial.args, *trial.given), dict(trial.kwargs)))[:400]
    except Exception:  # noqa: BLE001  (an input of a kind that cannot be described hides no error)
        return ""


def trial_at(case: dict[str, Any], *, dtype: str, seed: int, device: str, sample: int) -> Trial | None:
    """The trial of this number, made again."""
    for number, trial in _numbered(case, dtype, seed, device, None):
        if number == sample:
            return trial
    return None


def list_cases(source: str, path: str = "", root: str = "") -> dict[str, Any]:
    """The cases of a source; of a file that cannot be imported, why."""
    if source == "program":
        from luxmeter.operators.checks.sources import programs

        try:
            return {"cases": programs.list_cases(path, root)}
        except (Exception, SystemExit, unittest.SkipTest) as error:  # noqa: BLE001  (whatever importing a file may raise)
            said = f"{type(error).__name__}: {error}"
            api = programs.folder_api(path, root)
            shown = "".join(
                traceback.format_exception(
                    type(error), error, users_frames(error.__traceback__, str(Path(path).parent))
                )
            )
            return {"cases": [], "api": api, "problem": said, "traceback": shown[-8000:]}
    from luxmeter.operators.checks.sources import module_database, opinfo, optimizer_database

    made = {"opinfo": opinfo, "module": module_database, "optimizer": optimizer_database}[source]
    return {"cases": made.cases()}


def dtypes_of(cases: list[dict[str, Any]], dtype: str, device: str) -> list[str]:
    """The dtype that each case is checked in; empty: it has none."""
    import importlib

    from luxmeter.operators.checks.sources import MODULES

    found = []
    for case in cases:
        module = importlib.import_module(f"luxmeter.operators.checks.sources.{MODULES[case['source']]}")
        found.append(module.dtype_of(case, dtype, device))
    return found


def has_device(device: str) -> str:
    """Why there is no such device here; empty if there is one."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return ""
