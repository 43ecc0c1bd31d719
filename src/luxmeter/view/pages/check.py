"""A check as one HTML page that needs nothing else: what is wrong with its scripts, all cases, what was excused."""

from __future__ import annotations

from luxmeter.operators import CheckResult
from luxmeter.render import PageTable, page

MOST_ROWS = 5000


def check_page(result: CheckResult) -> str:
    """The page's HTML, complete in itself."""
    machine, packages = result.environment.get("machine", {}), result.environment.get("packages", {})
    facts = [
        result.title,
        f"torch {packages.get('torch', 'unknown')} on {machine.get('processor', 'an unknown processor')}, seed {result.options.get('seed')}",
        f"{result.taken_s:.0f} s",
    ]
    errors = result.errors
    tables = [
        PageTable(
            "Errors",
            ["case", "dtype", "device", "backend", "status", "round", "sample", "seed", "given", "smallest", "part", "error",
             "allowed", "reason", "traceback", "script"],
            [[row.name, row.dtype, row.device, row.backend, row.status, e.round, e.sample, e.seed, e.signature, e.shrunk, e.part,
              e.error, e.allowed, e.reason, e.traceback, e.script] for row, e in errors[:MOST_ROWS]],
            left_out=max(0, len(errors) - MOST_ROWS),
        ),
        PageTable(
            "Cases",
            ["case", "dtype", "device", "backend", "status", "rounds", "samples", "wrong", "worst / allowed", "us", "elements",
             "given most", "reason"],
            [[r.name, r.dtype, r.device, r.backend, r.status, r.rounds, r.samples, r.failed, round(r.worst, 4),
              None if r.time_us is None else round(r.time_us, 2), r.elements, r.largest, r.reason] for r in result.rows[:MOST_ROWS]],
            left_out=max(0, len(result.rows) - MOST_ROWS),
        ),
        PageTable("Excused", ["samples", "reason"], [[n, why] for why, n in result.excused().items()]),
    ]  # fmt: skip
    return page("Does it compute right?", facts=facts, tables=[t for t in tables if t.rows])
