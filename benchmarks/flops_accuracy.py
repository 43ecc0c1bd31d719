"""Are the counts right? Published GMACs and parameter counts, our numbers and the peers' in one run.

    python benchmarks/flops_accuracy.py                            torchvision's table, 200 rows of timm's
    python benchmarks/flops_accuracy.py --peers-below inf          the peers count the largest models, too: an hour more
    python benchmarks/flops_accuracy.py --only vit --only swin     only models whose names begin so
    python benchmarks/flops_accuracy.py --counter luxmeter --timm all
    python benchmarks/flops_accuracy.py --resume counted.jsonl     keep every count as it comes, and go on from there

Ours counts every row on meta. The peers, and ours with data, run every model for real: rows up to --peers-below GMACs,
and each count says of how many rows. Each counter has a worker process, each count a time limit: what hangs or crashes
is one missing number. Ctrl-C shows what was counted so far. Of the peers those that are installed are compared; torchvision==0.28.0 is needed
(without its dependencies, beside a CPU torch), timm for its table. Ends with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import statistics
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import luxmeter as lux
from counters.flop_counters import COUNTERS, OURS, build
from luxmeter.isolate import Outcome, Pool
from luxmeter.progress import track

HERE = Path(__file__).parent
PUBLISHED = HERE / "data" / "published_gmacs.json"
TOLERANCE = 0.01
HALF_A_DIGIT = {
    "torchvision": 0.0005,
    "timm": 0.005,
}  # a published number is not known better than it is rounded
HARD_FOR_ALL = ("vit_", "swin_", "maxvit_")
MEMORY_BYTES = 16 << 30
GOAL = 10.0


class Row(NamedTuple):
    """A line of a published table. `params` is exact, or rounded to millions with two decimals."""

    table: str
    model: str
    size: int
    params: float
    gmacs: float

    def right(self, one: dict[str, Any]) -> bool:
        """Within the tolerance, or as near as the published rounding can tell. Some of timm's have norms in them."""
        ways = ("macs", "with_norms") if self.table == "timm" else ("macs",)
        room = max(TOLERANCE * self.gmacs, HALF_A_DIGIT[self.table])
        return any(abs(one[way] / 1e9 - self.gmacs) <= room for way in ways if way in one)

    def same_params(self, params: int) -> bool:
        if self.table == "torchvision":
            return params == self.params
        return abs(params / 1e6 - self.params) <= 0.0050001


Counts = dict[tuple[str, str, str], dict[str, Any]]  # (table, model, counter) -> what was counted, or why not


def published(*, only: list[str], below: float, timm: int | None) -> list[Row]:
    """The rows asked for: torchvision's, and `timm` of timm's (None: all), spread over its families."""
    data = json.loads(PUBLISHED.read_text())
    tables = {
        table: [Row(table, model, int(size), params, gmacs) for model, (size, params, gmacs) in part["models"].items()]
        for table, part in data.items()
    }  # fmt: skip
    rows = [*tables["torchvision"], *_spread(tables["timm"], timm)]
    return [r for r in rows if r.gmacs <= below and (not only or r.model.startswith(tuple(only)))]


def _spread(rows: list[Row], most: int | None) -> list[Row]:
    """One of each family, then a second of each, and so on: the tables have families of one and of a hundred."""
    families: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found = re.match(r"[a-z]+", row.model)
        families[found[0] if found else ""].append(row)
    turns = [(turn, row) for family in families.values() for turn, row in enumerate(family)]
    return [row for _, row in sorted(turns, key=lambda pair: pair[0])[:most]]


def count_all(
    rows: list[Row], counters: Iterable[str], counts: Counts, *, limit_s: float, keep: Path | None
) -> bool:
    """Count what is missing in `counts`, and keep each count as it comes. True if it was stopped early."""
    for counter in counters:
        todo = [r for r in rows if (r.table, r.model, counter) not in counts]
        asked = [{"table": r.table, "model": r.model, "size": r.size, "counter": counter} for r in todo]
        with Pool(paths=[str(HERE)], preload=["torch"], memory_bytes=MEMORY_BYTES) as pool:
            outcomes = pool.map("counters.flop_counters:count", asked, timeout_s=limit_s)
            steps = track(outcomes, f"counting with {counter}", total=len(todo))
            for number, outcome in steps:
                row, one = todo[number], _row_of(outcome)
                counts[row.table, row.model, counter] = one
                steps.note(row.model)
                _say(row, counter, one)
                if keep is not None:
                    line = {"table": row.table, "model": row.model, "counter": counter, **one}
                    with keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                if one["status"] == "absent":
                    break
        if steps.interrupted:
            return True
    return False


def _row_of(outcome: Outcome) -> dict[str, Any]:
    if outcome.status != "ok":
        why = outcome.reason.splitlines()[0][:200] if outcome.reason else ""
        return {"status": outcome.status, "why": why, "taken_s": round(outcome.taken_s, 2)}
    if "absent" in outcome.value:
        return {"status": "absent", "why": outcome.value["absent"]}
    return {"status": "ok", **outcome.value, "taken_s": round(outcome.taken_s, 2)}


def _say(row: Row, counter: str, one: dict[str, Any]) -> None:
    said = f"{one['macs'] / 1e9:10.3f}" if one["status"] == "ok" else f"{one['status']}: {one['why']}"
    wrong = "" if row.right(one) else "  !"
    if "params" in one and not row.same_params(one["params"]):
        wrong += f"  parameters {one['params']:,} and not {row.params:,}"
    print(f"{counter:15} {row.table:11} {row.model:40} {row.gmacs:10.3f} {said}{wrong}", flush=True)


def read_saved(path: Path | None) -> Counts:
    """What an earlier run kept, without a torn last line; what ran out of time or crashed is tried again."""
    counts: Counts = {}
    if path is not None and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                one = json.loads(line)
            except ValueError:
                continue
            if one["status"] not in ("timeout", "crashed"):
                counts[one.pop("table"), one.pop("model"), one.pop("counter")] = one
    return counts


def summary(rows: list[Row], counts: Counts, table: str) -> dict[str, dict[str, Any]]:
    """By counter: how many models were tried, how many are right, which are not, and what stopped."""
    lines: dict[str, dict[str, Any]] = {}
    for counter in COUNTERS:
        seen = {
            r: counts[k] for r in rows if r.table == table and (k := (r.table, r.model, counter)) in counts
        }
        seen = {
            r: one
            for r, one in seen.items()
            if one["status"] != "absent" and "LookupError" not in one.get("why", "")
        }
        if not seen:
            continue
        missed = [r.model for r, one in seen.items() if not r.right(one)]
        ended = Counter(one["status"] for one in seen.values() if one["status"] != "ok")
        lines[counter] = {
            "models": len(seen),
            "right": len(seen) - len(missed),
            "missed": missed,
            "ended": dict(ended),
        }
        if counter in OURS:
            counted = {r: one for r, one in seen.items() if one["status"] == "ok"}
            lines[counter]["params_differ"] = [
                r.model for r, one in counted.items() if not r.same_params(one["params"])
            ]
            lines[counter]["unknown"] = sorted({op for one in counted.values() for op in one["unknown"]})
    return lines


def show(table: str, lines: dict[str, dict[str, Any]]) -> None:
    print(f"\nwithin {TOLERANCE:.0%} of {table}'s published GMACs (or as near as their rounding can tell)")
    for counter, line in lines.items():
        missed = ", ".join(line["missed"][:8]) + (
            f" and {len(line['missed']) - 8} more" if len(line["missed"]) > 8 else ""
        )
        ended = ", ".join(f"{n} {status}" for status, n in line["ended"].items())
        print(
            f"  {counter:15} {line['right']:4} of {line['models']:4}  {f'({ended}) ' if ended else ''}{missed}"
        )
        if line.get("params_differ"):
            print(f"  {'':15} parameters differ: {', '.join(line['params_differ'][:12])}")
        if line.get("unknown"):
            print(f"  {'':15} unknown operators: {', '.join(line['unknown'][:12])}")


def best_peer(rows: list[Row], counts: Counts) -> str:
    """Ours and the best peer on the same rows of torchvision's table: those that all of them were given."""
    right: dict[str, set[str]] = defaultdict(set)
    given: dict[str, set[str]] = defaultdict(set)
    for row in (r for r in rows if r.table == "torchvision"):
        for counter in COUNTERS:
            one = counts.get((row.table, row.model, counter))
            if one is not None and one["status"] != "absent":
                given[counter].add(row.model)
                if row.right(one):
                    right[counter].add(row.model)
    peers = [counter for counter in given if counter not in OURS]
    if not peers or "luxmeter" not in given:
        return ""
    same = set.intersection(*given.values())
    best = max(peers, key=lambda counter: len(right[counter] & same))
    ours = len(right["luxmeter"] & same)
    return f"of the {len(same)} rows that all counted: luxmeter {ours} right, {best} {len(right[best] & same)} (best peer)"


def speed(rounds: int = 15) -> dict[str, float]:
    """ResNet-50, batch 1, 224x224: torchinfo.summary as it comes and lux.analyze as it comes, in turns; one thread.

    Medians of processor time, so that what else runs on the machine does not decide; beside them the clock's.
    torchinfo's run is on the CPU with weights (its way of working); it can run a model on meta too: also shown.
    """
    try:
        import torchinfo
    except ImportError:
        return {}
    size = (1, 3, 224, 224)
    model, without_data = (
        build("torchvision", "resnet50", 224),
        build("torchvision", "resnet50", 224, device="meta"),
    )
    runs: dict[str, Callable[[], Any]] = {
        "torchinfo": lambda: torchinfo.summary(model, input_size=size, verbose=0),
        "torchinfo on meta": lambda: torchinfo.summary(
            without_data, input_size=size, device="meta", verbose=0
        ),
        "luxmeter": lambda: lux.analyze(without_data, input_size=size),
        "luxmeter, weights with data": lambda: lux.analyze(model, input_size=size),
        "luxmeter, training too": lambda: lux.analyze(without_data, input_size=size, backward=True),
    }
    cpu: dict[str, list[float]] = defaultdict(list)
    wall: dict[str, list[float]] = defaultdict(list)
    for turn in range(rounds + 2):
        for name, run in runs.items():
            gc.collect()  # nobody pays for another's garbage
            started, start = time.perf_counter(), time.process_time()
            run()
            if turn > 1:  # two rounds to warm up
                cpu[name].append(1e3 * (time.process_time() - start))
                wall[name].append(1e3 * (time.perf_counter() - started))
    found: dict[str, float] = {}
    for name in runs:
        found[f"{name} ms"] = statistics.median(cpu[name])
        found[f"{name} ms by the clock"] = statistics.median(wall[name])
    for name in [n for n in runs if n.startswith("luxmeter")]:
        found[f"ratio {name}"] = found["torchinfo ms"] / found[f"{name} ms"]
    found["ratio luxmeter by the clock"] = (
        found["torchinfo ms by the clock"] / found["luxmeter ms by the clock"]
    )
    found["ratio luxmeter to torchinfo on meta"] = found["torchinfo on meta ms"] / found["luxmeter ms"]
    return found


def goals(lines: dict[str, dict[str, Any]], times: dict[str, float]) -> dict[str, bool | None]:
    """Goal -> met; None where it was not measured."""
    ours, real = lines.get("luxmeter"), lines.get("luxmeter (cpu)")
    return {
        "every torchvision model within 1 %": None if ours is None else not ours["missed"],
        "parameters exactly equal": None if ours is None else not ours["params_differ"],
        "no unknown operator": None if ours is None else not ours["unknown"],
        "ViT, Swin and MaxViT right when run on the CPU": (
            None if real is None else not [n for n in real["missed"] if n.startswith(HARD_FOR_ALL)]
        ),
        f"ResNet-50 on meta {GOAL:g}x faster than torchinfo's run": times["ratio luxmeter"] >= GOAL
        if times
        else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only models that begin so; repeat for more",
    )
    add("--counter", action="append", default=[], choices=COUNTERS, help="only this counter; repeat for more")
    add("--below", type=float, default=float("inf"), metavar="GMACS", help="only models up to so many GMACs")
    add("--timm", default="200", metavar="N", help="so many rows of timm's table, or all (ours counts them)")
    add(
        "--peers-below",
        type=float,
        default=25.0,
        metavar="GMACS",
        help="what runs for real counts models up to so many GMACs (default 25, inf: all)",
    )
    add("--timm-peers", action="store_true", help="the peers count timm's rows too: hours")
    add("--limit", type=float, default=120.0, metavar="SECONDS", help="for each count")
    add(
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep every count in FILE as it comes; go on from what is there",
    )
    add("--json", type=Path, metavar="FILE", help="write the numbers for machines")
    add("--no-speed", action="store_true", help="leave the race with torchinfo out")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    timm = None if options.timm == "all" else int(options.timm)
    rows = published(only=options.only, below=options.below, timm=timm)
    counts = read_saved(options.resume)
    counters = options.counter or COUNTERS
    times = {} if options.no_speed else speed()
    for name, value in times.items():
        print(f"  {name}: {value:.1f}{'x' if 'ratio' in name else ''}")
    vision = [r for r in rows if r.table == "torchvision"]
    limit: dict[str, Any] = {"limit_s": options.limit, "keep": options.resume}
    mine = [c for c in counters if c == "luxmeter"]
    stopped = count_all(rows, mine, counts, **limit)
    if not stopped:
        rest = [c for c in counters if c not in mine]
        real = [r for r in (rows if options.timm_peers else vision) if r.gmacs <= options.peers_below]
        stopped = count_all(real, rest, counts, **limit)
    lines = {table: summary(rows, counts, table) for table in ("torchvision", "timm")}
    for table, found in lines.items():
        if found:
            show(table, found)
    print(best_peer(rows, counts))
    reached = goals(lines["torchvision"], times)
    print("\nstopped early; the counts so far are above" if stopped else "")
    for goal, met in reached.items():
        print(f"  {'not measured' if met is None else 'met' if met else 'MISSED':12}  {goal}")
    if options.json:
        options.json.write_text(json.dumps({"summary": lines, "speed": times, "goals": reached}, indent=1))
    return 1 if False in reached.values() else 0


if __name__ == "__main__":
    sys.exit(main())
