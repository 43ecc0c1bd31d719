"""Make src/luxmeter/operators/counterparts/data.json: what MindSpore has for each operator of torch, run and compared.

    .venv-mindspore/bin/python tools/counterparts/make.py [--only PATTERN] [--check]

Names are found by rule (the same name in mint, ops, Tensor, nn) or by hand (by_hand.py); whatever is
found is run beside torch on torch's own test samples, in processes that may die. Takes six minutes on two cores. Needs
the package expecttest, which `make mindspore` installs. `--check` writes nothing, says what would change, and exits with
1 if that is more than which wrong values a differing operator gives.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from by_hand import BY_HAND

from luxmeter.files import write_file
from luxmeter.isolate import Pool
from luxmeter.operators.counterparts import DATA, VERSION, Counterpart, Target, to_json

_AT_ONCE = 20  # operators in one process
_CRASHES = 3  # samples of one target that may kill the process before it is given up
_KEPT = 3  # targets of one operator
_ORDER = ["equal", "random", "partly", "dtype", "shape", "value", "raises", "crashes", "hangs"]
# Where a name of torch may be found, by the space it is in.
_HOMES = {
    "torch": ("mindspore.mint", "mindspore.ops", "Tensor", "mindspore.mint.nn.functional"),
    "torch.nn": ("mindspore.mint.nn", "mindspore.nn"),
    "torch.nn.functional": ("mindspore.mint.nn.functional", "mindspore.ops", "mindspore.mint", "Tensor"),
    "torch.linalg": ("mindspore.mint.linalg", "mindspore.ops", "mindspore.mint"),
    "torch.special": ("mindspore.mint.special", "mindspore.ops", "mindspore.mint"),
    "torch.fft": ("mindspore.ops",),
    "torch.signal.windows": ("mindspore.ops",),
    "Tensor": ("Tensor", "mindspore.mint", "mindspore.ops"),
}


def candidates(op: str) -> list[Any]:
    """Where to look for it: what was written down by hand, then the same name elsewhere."""
    space, _, name = op.rpartition(".")
    found: list[Any] = list(BY_HAND.get(op, ()))  # these come first where they agree on as many samples
    homes = ("Tensor",) if name.endswith("_") else _HOMES.get(space, ())
    known = {t["name"] if isinstance(t, dict) else t for t in found}
    return found + [f"{home}.{name}" for home in homes if f"{home}.{name}" not in known]


class Verifier:
    """Operators in, entries out, whatever dies on the way."""

    def __init__(self, pool: Pool, most: int) -> None:
        self._pool, self._most = pool, most

    def entries(self, todo: list[list[Any]]) -> Iterator[Counterpart]:
        """One entry for each, in their order."""
        waiting = list(todo)
        while waiting:
            answer = self._apart([self._item(what, candidates(what[0])) for what in waiting[:_AT_ONCE]])
            done = answer["results"]
            for what, found in zip(waiting, done, strict=False):
                yield judged(what[0], found["targets"], found.get("failed", ""))
            waiting = waiting[len(done) :]
            if answer["died"] and waiting:
                what = waiting.pop(0)
                tried = [t for target in candidates(what[0]) for t in self._alone(what, target)]
                yield judged(what[0], tried)

    def _alone(self, what: list[Any], target: Any) -> list[dict[str, Any]]:
        """One target by itself, samples that kill the process left out one by one."""
        skip: list[int] = []
        while True:
            answer = self._apart([{**self._item(what, [target]), "skip": skip}])
            if answer["results"]:
                return list(answer["results"][0]["targets"])
            if answer["at"] is None or answer["died"] == "timeout" or len(skip) == _CRASHES:
                name = target if isinstance(target, str) else target["name"]
                status = "hangs" if answer["died"] == "timeout" else "crashes"
                return [{"name": name, "how": "same", "names": {}, "fixed": {}, "samples": 0, "agree": 0,
                         "status": status, "why": answer["died"], "error": 0.0}]  # fmt: skip
            skip.append(answer["at"][1])

    def _item(self, what: list[Any], targets: list[Any]) -> dict[str, Any]:
        return {"what": what, "targets": targets, "most": self._most}

    def _apart(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        outcome = self._pool.run("apart:verify_apart", {"items": items}, timeout_s=3600)
        if outcome.status != "ok":
            sys.exit(f"the process that verifies failed: {outcome.reason}\n{outcome.detail}{outcome.output}")
        answer: dict[str, Any] = outcome.value
        return answer


def judged(op: str, tried: list[dict[str, Any]], failed: str = "") -> Counterpart:
    """The best target says what the operator's status is."""
    ranked = sorted(
        tried, key=lambda t: (_ORDER.index(t["status"]) > 1, -t["agree"], _ORDER.index(t["status"]))
    )
    useful = [t for i, t in enumerate(ranked) if i == 0 or t["agree"]]
    if failed:
        return Counterpart(op, "absent", why=f"not compared: {failed}")
    if not useful:
        return Counterpart(op, "absent", why="no API of this name in MindSpore")
    if not useful[0]["samples"] and useful[0]["status"] == "raises":
        return Counterpart(op, "absent", why="torch has no samples for it")
    best = useful[0]
    targets = tuple(
        Target(t["name"], t["how"], tuple(t["names"].items()), tuple(t["fixed"].items()), t["samples"], t["agree"],
               t["status"], t["why"])
        for t in (useful[:1] if best["status"] == "equal" else useful[:_KEPT])
    )  # fmt: skip
    return Counterpart(
        op, best["status"], targets, best["why"], float(f"{best['error']:.1e}") if best["agree"] else None
    )


def main() -> None:
    """Make or check the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="*", help="names of torch, e.g. 'torch.nn.functional.*'; the rest stays"
    )
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and mindspore")
    parser.add_argument("--most", type=int, default=16, help="samples of each operator")
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit with 1 if it would say something else"
    )
    options = parser.parse_args()
    before: dict[str, Any] = json.loads(DATA.read_text())["operators"] if DATA.exists() else {}
    after = {} if options.only == "*" else dict(before)
    env = {"GLOG_v": "4", "OMP_NUM_THREADS": "1"}
    with Pool(
        python=options.python,
        preload=["apart"],
        paths=[str(Path(__file__).parent)],
        env=env,
        start_timeout_s=600,
    ) as pool:
        versions = pool.run("verify:versions", timeout_s=60).value
        todo = list(pool.run("verify:names_with_samples", timeout_s=600).value)
        todo += [[name, [], False] for name in pool.run("cell_samples:modules_with_samples").value]
        todo = [what for what in todo if fnmatch.fnmatchcase(what[0], options.only)]
        for number, entry in enumerate(Verifier(pool, options.most).entries(todo)):
            after[entry.op] = to_json(entry)
            if number % 25 == 0 or entry.status in ("crashes", "hangs"):
                sys.stderr.write(f"{number}/{len(todo)} {entry.op}: {entry.status}\n")
                save(DATA.with_suffix(".part"), versions, after)
    DATA.with_suffix(".part").unlink(missing_ok=True)
    changed = [op for op in {**before, **after} if before.get(op) != after.get(op)]
    sys.stdout.write(f"{dict(Counter(e['status'] for e in after.values()))}, {len(changed)} changed\n")
    if options.check:
        sys.stdout.write("".join(f"{op}: {before.get(op)} -> {after.get(op)}\n" for op in changed))
        sys.exit(any(matters(before.get(op), after.get(op)) for op in changed))
    save(DATA, versions, after)


def matters(before: dict[str, Any] | None, after: dict[str, Any] | None) -> bool:
    """Whether a change says something: some kernels read memory that nobody wrote, and are wrong otherwise each time."""
    return before is None or after is None or not before["status"] == after["status"] == "value"


def save(path: Path, versions: dict[str, str], entries: dict[str, Any]) -> None:
    """One line an operator, so that a change shows as one."""
    head = json.dumps({"what": "luxmeter counterparts", "version": VERSION, **versions})[:-1]
    lines = ",\n".join(f"{json.dumps(op)}: {json.dumps(entries[op])}" for op in sorted(entries))
    write_file(path, f'{head}, "operators": {{\n{lines}\n}}}}\n'.encode())


if __name__ == "__main__":
    main()
