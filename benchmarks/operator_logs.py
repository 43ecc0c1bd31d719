"""How much of real operator logs is read and replayed.

    python benchmarks/operator_logs.py DIR [--dtype fp32] [--limit-mb 64] [--sample N] [--json FILE]

DIR holds PyTorch's operator-input logs (*.txt; `Operator:` and `cnt:` lines). Every distinct input that needs at most
64 MB is made up and run once, each in a worker process. The public logs were recorded in fp16 on GPUs; a CPU without
half-precision units takes minutes for some of those, so fp32 is the default; `--dtype recorded` keeps what was logged.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch

from luxmeter.isolate import Pool
from luxmeter.operators.case import Case, Operators, case_from_json, case_to_json
from luxmeter.operators.dtypes import in_dtype
from luxmeter.operators.foreign.load import load_foreign
from luxmeter.operators.inputs import outputs_of, replay

# What PyTorch's own replay of these logs leaves out.
SKIPPED_THERE = (
    "embedding", "gather", "nll_loss", "index", "scatter_", "masked_fill_", "convolution",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--limit-mb", type=float, default=64)
    parser.add_argument("--sample", type=int, help="replay only so many, drawn at random")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases, entries, problems, files = read(options.folder)
    if not entries:
        parser.error(
            f"{options.folder} holds no operator-input logs (*.txt with lines such as `Operator: aten.add.Tensor`)"
        )
    print(
        f"{files} logs, {entries} inputs: {entries - len(problems)} parsed ({1 - len(problems) / entries:.2%})"
    )
    for problem in problems[:10]:
        print(f"  not parsed: {problem}")
    small = [c for c in cases if c.size_bytes <= options.limit_mb * 2**20]
    print(
        f"{len(cases)} distinct inputs of {len({c.op for c in cases})} operators, {len(small)} up to {options.limit_mb:g} MB"
    )
    if options.sample:
        small = random.Random(0).sample(small, min(options.sample, len(small)))
    failures = replay_all(small, options)
    done = len(small) - len(failures)
    print(f"replayed in {options.dtype}: {done} of {len(small)} ({done / len(small):.2%})")
    there = [c for c in small if any(f".{name}" in c.op for name in SKIPPED_THERE)]
    lost = sum(any(f".{name}" in op for name in SKIPPED_THERE) for op, _, _ in failures)
    if there:
        print(
            f"of the {len(there)} that PyTorch's own tool skips: {len(there) - lost} ({1 - lost / len(there):.2%})"
        )
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for op, status, reason in failures:
        reasons[op][f"{status}: {reason[:110]}"] += 1
    for op, seen in sorted(reasons.items()):
        for reason, n in seen.most_common(2):
            print(f"  {op}: {n} x {reason}")
    if options.json:
        said = {"entries": entries, "parsed": entries - len(problems), "distinct": len(cases),
                "tried": len(small), "replayed": done, "dtype": options.dtype, "failures": failures}  # fmt: skip
        options.json.write_text(json.dumps(said, indent=1))


def read(folder: Path) -> tuple[Operators, int, list[str], int]:
    """(distinct cases, inputs in all logs, what could not be parsed, logs)."""
    cases: list[Case] = []
    problems: list[str] = []
    entries = 0
    files = []
    for file in sorted(folder.rglob("*.txt")):
        if "Operator: " not in file.read_text(errors="replace"):
            print(f"  no log: {file}")
            continue
        files.append(file)
        captured = load_foreign(file)
        cases += captured.operators
        entries += captured.entries
        problems += [f"{p.place}: {p.why}" for p in captured.problems]
    return Operators(cases), entries, problems, len(files)


def replay_all(cases: list[Case], options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(operator, status, reason) of each case that did not run."""
    failures = []
    here = [str(Path(__file__).parent)]
    with Pool(workers=options.workers, preload=["operator_logs"], paths=here) as pool:
        items = ({"case": case_to_json(in_dtype(case, options.dtype))} for case in cases)
        for n, (number, outcome) in enumerate(
            pool.map("operator_logs:replay_one", items, timeout_s=options.timeout), 1
        ):
            if outcome.status != "ok":
                failures.append((cases[number].op, outcome.status, outcome.reason))
            if n % 1000 == 0:
                print(f"  {n} run, {len(failures)} failed", flush=True)
    return failures


def replay_one(case: dict[str, Any], *, seed: int = 0, threads: int = 1) -> dict[str, Any]:
    """In a worker: the case as JSON, its outputs as text."""
    torch.set_num_threads(threads)
    read = case_from_json(case)
    grad = any(t.requires_grad for t in read.signature.tensors())
    with torch.set_grad_enabled(grad):
        return {"outputs": outputs_of(replay(read, seed=seed))}


if __name__ == "__main__":
    main()
