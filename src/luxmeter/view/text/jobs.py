"""Jobs of the queue, and trials of a sweep, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from luxmeter.literal import show
from luxmeter.render import NUMBER, Column, Table, long_span, number, size
from luxmeter.store import Job, Needs

if TYPE_CHECKING:
    from luxmeter.train import Trial


def job_table(jobs: Sequence[Job], *, now_ns: int) -> Table:
    """A row a job."""
    columns = [
        Column("job"), Column("state", is_state=True), Column("what", folds=20), Column("sweep", hidden="empty", goes=3),
        Column("needs", goes=2, hidden="empty"), Column("prio", hidden="same", goes=1), Column("after", hidden="empty", goes=4),
        Column("tries", hidden="empty", goes=1), Column("run", goes=5, hidden="empty"), Column("for", goes=6),
        Column("why", hidden="empty", folds=20),
    ]  # fmt: skip
    return Table(columns, [_row(job, now_ns) for job in jobs])


def _row(job: Job, now_ns: int) -> list[str]:
    since = job.created_ns if job.state == "queued" else job.started_ns
    took = None if since is None else ((job.ended_ns or now_ns) - since) / 1e9
    return [
        str(job.id), job.state, " ".join(job.typed), job.group, needs_text(job.needs), str(job.priority or ""),
        ",".join(map(str, job.after)), f"{job.attempt} of {job.retries + 1}" if job.retries else "", job.run,
        long_span(took), why(job),
    ]  # fmt: skip


def why(job: Job) -> str:
    """Why it is what it is; of a program that ended badly at least how."""
    return job.why or (
        f"exit code {job.exit_code}" if job.state == "failed" and job.exit_code is not None else ""
    )


def needs_text(needs: Needs) -> str:
    """`2 CPUs, 4.00 GiB, 1 GPU`; what every job needs is left out."""
    said = [f"{needs.cpus} CPUs"] if needs.cpus > 1 else []
    said += [size(needs.memory_bytes)] if needs.memory_bytes else []
    said += [f"{needs.gpus} GPU{'s' if needs.gpus != 1 else ''}"] if needs.gpus is not None else []
    return ", ".join(said)


def trial_table(trials: Sequence[Trial], metric: str) -> Table:
    """A row a trial, as they come: the values that were chosen, and the mean of its runs."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.point))
    columns = [
        Column("trial", goes=1), *map(Column, names), Column("state", is_state=True), Column("runs", NUMBER, hidden="same", goes=2),
        *([Column(metric, NUMBER)] if metric else []), Column("run", goes=3, hidden="empty"), Column("why", hidden="empty", folds=20),
    ]  # fmt: skip
    rows = [
        [
            str(trial.number), *(show(trial.point[n]) if n in trial.point else "" for n in names), trial.state,
            len(trial.values), *([trial.mean] if metric else []),
            trial.jobs[0].run if len(trial.jobs) == 1 else "", next(filter(None, map(why, trial.jobs)), ""),
        ]
        for trial in trials
    ]  # fmt: skip
    return Table(columns, rows)


def trial_records(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """For machines."""
    return [
        {
            "trial": trial.number, "point": dict(trial.point), "state": trial.state, "mean": trial.mean,
            "values": trial.values, "jobs": [job.id for job in trial.jobs], "runs": [job.run for job in trial.jobs if job.run],
        }
        for trial in trials
    ]  # fmt: skip


def best_line(name: str, ranked: Sequence[Trial], metric: str, mode: str) -> str:
    """What came of a sweep, in one line."""
    done = sum(trial.state == "done" for trial in ranked)
    best = ranked[0] if ranked and metric and ranked[0].mean is not None else None
    if best is None or best.mean is None:
        none = f"; no run has logged {metric}" if metric and done else ""
        return f"{name}: {done} of {len(ranked)} trials done{none}; luxmeter runs --tag {name} --group shows their runs"
    point = " ".join(f"{key}={show(value)}" for key, value in best.point.items())
    of = f", mean of {len(best.values)}" if len(best.values) > 1 else ""
    return f"{name}: {done} of {len(ranked)} trials done; best ({mode} {metric}): {point}, {number(best.mean)}{of}"
