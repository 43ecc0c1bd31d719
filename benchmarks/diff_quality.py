"""Can a comparison of two benchmarks be relied on? False alarms where nothing changed, and a slowdown of one operator found.

Simulated: each repetition makes two benchmarks of `--operators` operators. Their times are stretches of real ones (heavy tails, drift,
neighbours that resemble each other), at levels that differ from session to session as real sessions did, second looks included.
Asked: how many repetitions call any change (all of them are false: the false discovery rate), and how often one operator of B,
made `--slowdown` slower, is called slower.
Real: pairs of benchmarks of the same operators, one after the other, nothing changed; and one in which one operator really takes
`--slowdown` longer (it waits, in the worker, after each call).

    python benchmarks/diff_quality.py [--turns] [--find 0.05] [--seed 0] [--operators 500] [--repetitions 200] [--real 3] [--budget-s 120] [--clock wall|cpu] [--keep DIR]

`--turns` asks the same of benchmarks that are measured in turns (`luxmeter bench --against`). A simulated pair is then made of rounds that
real pairs had, all operators of a round together, drawn without repetition; which side was A is drawn for each round. Real pairs without a
change are measured to the end for this, and rows are left out afterwards, where a comparison would have left them out (`--find`).
With `--keep` real benchmarks are kept in the folder and used again: `--real 0` takes what is there. Without options a small sample.
On a machine with other work on it `--clock cpu` measures by the thread's own time, which does not count the time that others had the
processor; then operators are measured by the same timer, in a process for each benchmark, but not by `lux.bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import luxmeter as lux
from luxmeter.isolate import Pool
from luxmeter.operators import BenchResult, bench_against, diff_benchmarks, load_benchmark, measure
from luxmeter.operators.diff import BenchDiff
from luxmeter.operators.inputs import make_call
from luxmeter.operators.options import BenchSettings
from luxmeter.operators.results import Row
from luxmeter.operators.turns import ROUNDS_BEFORE
from luxmeter.operators.weighing import turns_of
from luxmeter.stats import Floats
from luxmeter.verdict import log_ratios, still_open

TARGET_CI = 0.005
STATED = 0.05
SECOND_LOOKS = 48
SMALLEST = 0.02
SLOWED = "torch.mm"


def operators(most: int) -> lux.Operators:
    """Operators of sixty names in ten sizes, from 1 us to some ms."""
    torch.manual_seed(0)
    with lux.trace() as t:
        for n in (4, 16, 48, 96, 160, 224, 320, 448, 640, 768):
            _call_all(n)
    made = {"torch.rand", "torch.randint"}
    cases = [case for case in t.operators() if case.op not in made]
    order = np.random.default_rng(0).permutation(len(cases))
    return lux.Operators([cases[i] for i in order[:most]])


def _call_all(n: int) -> None:
    a, b, v = torch.rand(n, n), torch.rand(n, n), torch.rand(n * 8)
    mask, ids, side = a > 0.5, torch.randint(0, n, (n,)), max(8, n // 8)
    image, kernel, deep = torch.rand(2, 8, side, side), torch.rand(8, 8, 3, 3), torch.rand(8, 1, 3, 3)
    rows, q = torch.rand(4, max(8, n // 4), 32), torch.rand(1, 4, max(8, n // 4), 16)
    for two in (
        torch.add,
        torch.mul,
        torch.sub,
        torch.div,
        torch.maximum,
        torch.minimum,
        torch.pow,
        torch.atan2,
        torch.mm,
        torch.fmod,
    ):
        two(a, b)
    for one in (torch.exp, torch.log1p, torch.sin, torch.tanh, torch.sigmoid, torch.sqrt, torch.rsqrt, torch.abs, torch.erf, torch.floor,
                torch.neg, F.relu, F.gelu, F.silu, F.softplus, F.elu, F.hardswish):  # fmt: skip
        one(a)
    for over in (
        torch.sum,
        torch.mean,
        torch.amax,
        torch.argmax,
        torch.std,
        torch.cumsum,
        torch.softmax,
        torch.logsumexp,
        torch.sort,
        torch.prod,
    ):
        over(a, 1)
    (
        F.layer_norm(rows, (32,)),
        F.softmax(v, 0),
        F.log_softmax(a, 1),
        torch.where(mask, a, b),
        a.masked_fill(mask, 0.0),
    )
    (
        torch.cat([a, b]),
        torch.stack([a, b]),
        a.index_select(0, ids),
        torch.gather(a, 1, ids[:, None]),
        torch.clamp(v, 0.2, 0.8),
    )
    (
        F.conv2d(image, kernel, padding=1),
        F.conv2d(image, deep, padding=1, groups=8),
        F.max_pool2d(image, 2),
        F.avg_pool2d(image, 2),
    )
    (
        F.embedding(ids, b),
        F.linear(rows, torch.rand(64, 32)),
        torch.bmm(rows, rows.transpose(1, 2)),
        F.cross_entropy(a, ids),
    )
    F.scaled_dot_product_attention(q, q, q), torch.topk(a, 3), torch.addmm(a, a, b), F.group_norm(image, 4)
    F.interpolate(image, scale_factor=2.0), F.batch_norm(image, torch.rand(8), torch.rand(8) + 0.5)


# -- simulated


@dataclass(frozen=True)
class Noise:
    """What real benchmarks of the same operators tell: each one's series as multiples of their median, and how levels differ."""

    rows: list[Row]
    series: list[list[Floats]]
    levels: list[Floats]  # of each operator: the logarithms of its medians, over sessions, around their mean

    @classmethod
    def of(cls, results: list[BenchResult]) -> Noise:
        """From two or more."""
        rows, series, levels = [], [], []
        for same in zip(*results, strict=True):
            if not all(len(row.times_s) > 20 for row in same):
                continue
            looks = [
                np.array(times) for row in same for times in (row.times_s, row.again_s) if len(times) > 20
            ]
            medians = np.log([np.median(look) for look in looks])
            # Deviations from a mean of few are too small by this.
            levels.append((medians - medians.mean()) * np.sqrt(len(looks) / max(1, len(looks) - 1)))
            series.append([look / np.median(look) for look in looks])
            rows.append(same[0])
        return cls(rows, series, levels)

    def look(self, i: int, rng: np.random.Generator, *, slower: float = 0.0) -> tuple[float, ...]:
        """One look at operator i: a real series begun anywhere, at a level of a real session."""
        found = self.series[i][rng.integers(len(self.series[i]))]
        level = self.levels[i][rng.integers(len(self.levels[i]))] * rng.choice([-1.0, 1.0])
        base = float(self.rows[i].median_us or 1.0) * 1e-6
        times = np.roll(found, rng.integers(len(found))) * base * np.exp(level) * (1 + slower)
        return tuple(times.tolist())

    def benchmark(
        self, chosen: np.ndarray[Any, Any], rng: np.random.Generator, *, slowed: int = -1, by: float = 0.0
    ) -> BenchResult:
        """A benchmark of the chosen operators; the one at the place `slowed` takes longer."""
        again = set(
            np.linspace(0, len(chosen) - 1, min(SECOND_LOOKS, len(chosen) // 4 or 1))
            .round()
            .astype(int)
            .tolist()
        )
        rows = []
        for place, i in enumerate(chosen.tolist()):
            more = by if place == slowed else 0.0
            times = self.look(i, rng, slower=more)
            second = self.look(i, rng, slower=more) if place in again else ()
            rows.append(
                replace(self.rows[i], op=f"op{place}", times_s=times, again_s=second, n=len(times),
                        median_us=float(np.median(times)) * 1e6)
            )  # fmt: skip
        return BenchResult(tuple(rows), noise_floor=0.0)


def simulate(
    noise: Noise, *, operators: int, repetitions: int, slowdown: float, seed: int = 0
) -> dict[str, Any]:
    """Repetitions with nothing changed, and with one operator of B slower."""
    rng = np.random.default_rng(seed)
    alarms, found, covered, wrong = [], 0, 0, []
    for turn in range(repetitions):
        chosen = rng.integers(0, len(noise.rows), operators)
        a, b = noise.benchmark(chosen, rng), noise.benchmark(chosen, rng)
        same = diff_benchmarks(a, b, smallest=SMALLEST, share_of_errors=STATED)
        alarms.append(len(same.of("slower")) + len(same.of("faster")))
        verdict = same.verdict
        covered += verdict is not None and verdict.low <= 0 <= verdict.high
        slowed = int(rng.integers(operators))
        worse = noise.benchmark(chosen, rng, slowed=slowed, by=slowdown)
        called = diff_benchmarks(a, worse, smallest=SMALLEST, share_of_errors=STATED)
        slower = {c.op for c in called.of("slower")}
        found += f"op{slowed}" in slower
        wrong.append(len(slower - {f"op{slowed}"}) + len(called.of("faster")))
        if (turn + 1) % 20 == 0:
            print(f"{turn + 1} of {repetitions}: {np.mean(np.array(alarms) > 0):.1%} with an alarm, "
                  f"slowdown found in {found / (turn + 1):.1%}", flush=True)  # fmt: skip
    called_at_all = [w + 1 for w in wrong]
    return {
        "operators": operators, "repetitions": repetitions, "with_alarm": float(np.mean(np.array(alarms) > 0)),
        "alarms_per_operator": float(np.mean(alarms) / operators), "power": found / repetitions,
        "false_of_called_beside_a_true_one": float(np.mean([w / n for w, n in zip(wrong, called_at_all, strict=True)])),
        "verdict_has_zero": covered / repetitions,
    }  # fmt: skip


@dataclass(frozen=True)
class Rounds:
    """Of real pairs measured in turns: the operators that all have, and of each round the turns of every one of them, A's and B's."""

    rows: list[Row]
    rounds: list[list[tuple[tuple[float, ...], tuple[float, ...]]]]
    of_a_pair: int

    @classmethod
    def of(cls, pairs: list[tuple[BenchResult, BenchResult]]) -> Rounds:
        """From one or more."""
        counts = [max(len(row.turns_s) for row in a) for a, _ in pairs]
        whole = [
            i for i, same in enumerate(zip(*(zip(a, b, strict=True) for a, b in pairs), strict=True))
            if all(len(x.turns_s) == len(y.turns_s) == n for (x, y), n in zip(same, counts, strict=True))
        ]  # fmt: skip
        rounds = [
            [(a.rows[i].turns_s[k], b.rows[i].turns_s[k]) for i in whole]
            for (a, b), n in zip(pairs, counts, strict=True)
            for k in range(n)
        ]
        return cls([pairs[0][0].rows[i] for i in whole], rounds, min(counts))

    def pair(self, chosen: np.ndarray[Any, Any], rng: np.random.Generator) -> tuple[list[Row], list[Row]]:
        """The chosen operators on two sides between which nothing changed."""
        drawn = rng.choice(len(self.rounds), self.of_a_pair, replace=False)
        swapped = rng.integers(0, 2, self.of_a_pair)
        sides: list[list[Row]] = [[], []]
        for place, i in enumerate(chosen.tolist()):
            turns = [
                self.rounds[k][i][::-1] if s else self.rounds[k][i]
                for k, s in zip(drawn, swapped, strict=True)
            ]
            for number, rows in enumerate(sides):
                taken = tuple(one[number] for one in turns)
                rows.append(replace(self.rows[i], op=f"op{place}", turns_s=taken))
        return sides[0], sides[1]


def as_left_out(a: list[Row], b: list[Row], find: float) -> tuple[list[Row], list[Row]]:
    """The two as they would be, had their rounds looked for such a change only (`bench_against`)."""
    ratios = [log_ratios(turns_of(x, y)) for x, y in zip(a, b, strict=True)]
    kept = [len(r) for r in ratios]
    todo = [i for i, n in enumerate(kept) if n == max(kept)]
    for number in range(ROUNDS_BEFORE, max(kept)):
        if not todo or not find:
            break
        is_open = still_open([ratios[i][:number] for i in todo], find)
        kept = [
            number if i in {j for j, o in zip(todo, is_open, strict=True) if not o} else n
            for i, n in enumerate(kept)
        ]
        todo = [i for i, o in zip(todo, is_open, strict=True) if o]
    cut = (
        [replace(row, turns_s=row.turns_s[:n]) for row, n in zip(side, kept, strict=True)] for side in (a, b)
    )
    one, two = cut
    return one, two


def simulate_turns(
    noise: Rounds, *, operators: int, repetitions: int, slowdown: float, find: float, seed: int = 0
) -> dict[str, Any]:
    """`simulate` for pairs that were measured in turns."""
    rng = np.random.default_rng(seed)
    operators = min(operators, len(noise.rows))
    alarms, found, covered, wrong, visits, said = [], 0, 0, [], 0, 0
    for turn in range(repetitions):
        chosen = rng.choice(len(noise.rows), operators, replace=False)
        a, b = noise.pair(chosen, rng)
        same = _compared_in_turns(a, b, find)
        visits += sum(len(row.turns_s) for row in as_left_out(a, b, find)[0])
        alarms.append(len(same.of("slower")) + len(same.of("faster")))
        verdict = same.verdict
        covered += verdict is not None and verdict.low <= 0 <= verdict.high
        slowed = int(rng.integers(operators))
        slow = tuple(tuple(t * (1 + slowdown) for t in turns) for turns in b[slowed].turns_s)
        b[slowed] = replace(b[slowed], turns_s=slow)
        said += (same.changes[[c.op for c in same.changes].index(f"op{slowed}")].finds or np.inf) <= slowdown
        called = _compared_in_turns(a, b, find)
        slower = {c.op for c in called.of("slower")}
        found += f"op{slowed}" in slower
        wrong.append(len(slower - {f"op{slowed}"}) + len(called.of("faster")))
        if (turn + 1) % 20 == 0:
            print(f"{turn + 1} of {repetitions}: {np.mean(np.array(alarms) > 0):.1%} with an alarm, "
                  f"slowdown found in {found / (turn + 1):.1%}", flush=True)  # fmt: skip
    return {
        "find": find, "seed": seed, "of_all_rounds_measured": visits / (repetitions * operators * noise.of_a_pair),
        "rows_that_say_they_would_show_it": said / repetitions,
        "operators": operators, "rounds": noise.of_a_pair, "of_real_rounds": len(noise.rounds), "repetitions": repetitions,
        "with_alarm": float(np.mean(np.array(alarms) > 0)), "alarms_per_operator": float(np.mean(alarms) / operators),
        "power": found / repetitions, "false_of_called_beside_a_true_one": float(np.mean([w / (w + 1) for w in wrong])),
        "verdict_has_zero": covered / repetitions,
    }  # fmt: skip


def _compared_in_turns(a: list[Row], b: list[Row], find: float) -> BenchDiff:
    one, two = (
        BenchResult(tuple(rows), noise_floor=None, together="simulated", find=find)
        for rows in as_left_out(a, b, find)
    )
    return diff_benchmarks(one, two, smallest=SMALLEST, share_of_errors=STATED)


# -- real


class SlowedEager:
    """Eager torch, but one operator takes longer: after each call it waits for a share of the call's time."""

    def prepare(self, call: Any, *, backward: bool, threads: int) -> Any:
        """The call, or the call and a wait."""
        from luxmeter.operators.backends import Prepared

        by = float(os.environ["SLOWED_BY"])
        if call.op != SLOWED or not by:
            return Prepared(call.run)
        clock, run = (
            time.perf_counter_ns,
            call.run,
        )  # a wait that keeps the processor busy: every clock sees it

        def slower() -> Any:
            begin = clock()
            result = run()
            until = clock()
            until += int((until - begin) * by)
            while clock() < until:
                pass
            return result

        return Prepared(slower)


def measured(
    ops: lux.Operators, options: argparse.Namespace, *, budget_s: float, slower: float = 0.0
) -> BenchResult:
    """A real benchmark; with `slower`, one operator of it takes so much longer."""
    if options.clock == "wall":
        settings: Any = {"budget_s": budget_s, "target_ci": TARGET_CI, "quiet": True}
        if not slower:
            return lux.bench(ops, **settings)
        here, env = [str(Path(__file__).parent)], {"SLOWED_BY": str(slower)}
        with Pool(preload=["luxmeter.operators.work", "slowed_eager"], paths=here, env=env) as pool:
            return lux.bench(ops, pool=pool, **settings)
    with tempfile.TemporaryDirectory() as folder:
        file, out = ops.save(Path(folder) / "ops.jsonl"), Path(folder) / "out.json"
        env = {**os.environ, "SLOWED_BY": str(slower)}
        for again in ("", "again"):  # each in a process of its own
            command = [sys.executable, __file__, "--session", str(file), str(out), str(budget_s), again]
            subprocess.run(command, check=True, env=env)
        return load_benchmark(out)


def measured_in_turns(
    ops: lux.Operators, *, budget_s: float, find: float, slower: float = 0.0
) -> tuple[BenchResult, BenchResult]:
    """Two real benchmarks in turns; with `slower`, one operator of the second takes so much longer."""
    os.chdir(Path(__file__).parent)  # where workers find what they import first
    sides: list[BenchSettings] = [{"env": {"SLOWED_BY": str(by)}} for by in (0.0, slower)]
    return bench_against(
        ops, sides[1], find=find, **sides[0], setup="slowed_eager", budget_s=budget_s, quiet=True
    )


def session(file: str, out: str, budget_s: str, again: str) -> None:
    """All operators of a file by the thread's own clock; or some of them again, into the same file."""
    ops, target = list(lux.load_operators(file)), Path(out)
    torch.set_num_threads(1)
    rows = list(load_benchmark(target)) if again else []
    looks = (
        np.linspace(0, len(ops) - 1, min(SECOND_LOOKS, max(3, len(ops) // 4))).round().astype(int).tolist()
    )
    each_s = float(budget_s) / (len(ops) + 0.5 * len(looks))
    backend = SlowedEager()
    for place in looks if again else range(len(ops)):
        run = backend.prepare(make_call(ops[place]), backward=False, threads=1).run
        with torch.no_grad():
            found = measure(
                run, budget_s=each_s / (2 if again else 1), target_ci=TARGET_CI, clock=time.thread_time_ns
            )
        if again:
            rows[place] = replace(rows[place], again_s=found.times_s)
            continue
        rows.append(
            Row(ops[place].op, str(ops[place].signature), "", "fp32", "eager", n=len(found.times_s), median_us=found.median_s * 1e6,
                times_s=found.times_s, traced_calls=ops[place].count, traced_ns=ops[place].total_ns)
        )  # fmt: skip
    BenchResult(tuple(rows), noise_floor=0.0).to_json(target)


def real_pairs(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Benchmarks of the same operators, one after the other."""
    ops = operators(options.operators)
    found = []
    for number in range(options.real):
        if options.turns:
            pair = list(measured_in_turns(ops, budget_s=options.budget_s, find=0.0))
        else:
            pair = [measured(ops, options, budget_s=options.budget_s) for _ in range(2)]
        for result in pair:
            result.to_json(folder / f"real-{len(list(folder.glob('real-*.json'))):03d}.json")
        found.append(compared(pair[0], pair[1], options.find))
        print(f"real pair {number + 1} of {options.real}: {found[-1]}", flush=True)
    return found


def compared(a: BenchResult, b: BenchResult, find: float = 0.0) -> dict[str, Any]:
    """What is called between two."""
    if a.together:
        one, two = as_left_out(list(a.rows), list(b.rows), find)
        a, b = replace(a, rows=tuple(one), find=find), replace(b, rows=tuple(two), find=find)
    called = diff_benchmarks(a, b, smallest=SMALLEST, share_of_errors=STATED)
    w = called.wander
    return {
        "operators": len(a), "slower": len(called.of("slower")), "faster": len(called.of("faster")),
        "same": len(called.of("same")), "unclear": len(called.of("unclear")), "wander": round(w.each, 4), "rounds": called.rounds,
        "finds": called.finds, "verdict": called.verdict.sentence if called.verdict else "",
    }  # fmt: skip


def real_slowdown(options: argparse.Namespace) -> dict[str, Any]:
    """One operator made really slower in B's workers: is it found, and it alone?"""
    every = operators(500)
    mine = [c for c in every if c.op == SLOWED and c.size_bytes > 40_000][:1]
    ops = lux.Operators([*mine, *(c for c in every if c.op != SLOWED)][: options.slowed_operators])
    if options.turns:
        a, b = measured_in_turns(ops, budget_s=options.budget_s, find=options.find, slower=options.slowdown)
    else:
        a, b = (
            measured(ops, options, budget_s=options.budget_s / 4, slower=by) for by in (0.0, options.slowdown)
        )
    called = diff_benchmarks(a, b, smallest=SMALLEST, share_of_errors=STATED)
    found = [(c.op, f"{c.relative:+.1%}", c.why) for c in called.of("slower")]
    return {"operators": len(ops), "injected": SLOWED, "slower": found, "faster": len(called.of("faster")),
            "wander": round(called.wander.each, 4), "rounds": called.rounds, "finds": called.finds}  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--session"]:
        session(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operators", type=int, default=60)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--real", type=int, default=1, help="pairs of real benchmarks")
    parser.add_argument("--budget-s", type=float, default=20.0, help="of a real benchmark")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--turns", action="store_true", help="measured in turns, not one after the other")
    parser.add_argument("--find", type=float, default=0.05, help="the change that rounds look for, in turns")
    parser.add_argument("--seed", type=int, default=0, help="of what is simulated")
    parser.add_argument("--slowdown", type=float, default=0.05)
    parser.add_argument(
        "--slowed-operators", type=int, default=40, help="in the real run with a slowdown; 0 leaves it out"
    )
    parser.add_argument("--keep", type=Path, help="where real benchmarks are kept")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} threads", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        report: dict[str, Any] = {"real": real_pairs(options, folder)}
        kept = [load_benchmark(path) for path in sorted(folder.glob("real-*.json"))]
        if not options.real:
            report["real"] = [
                compared(a, b, options.find) for a, b in zip(kept[::2], kept[1::2], strict=False)
            ]
    if options.slowed_operators:
        report["real_slowdown"] = real_slowdown(options)
    if options.repetitions:
        asked = {name: getattr(options, name) for name in ("operators", "repetitions", "slowdown", "seed")}
        if options.turns:
            pairs = list(zip(kept[::2], kept[1::2], strict=True))
            report["simulated"] = simulate_turns(Rounds.of(pairs), **asked, find=options.find)
        else:
            report["simulated"] = simulate(Noise.of(kept), **asked)
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    met = report.get("simulated", {})
    if met:
        print(f"false alarms: {met['with_alarm']:.1%} of repetitions (stated: at most {STATED:.0%}); "
              f"power: {met['power']:.1%} (goal: 95%)")  # fmt: skip


if __name__ == "__main__":
    main()
