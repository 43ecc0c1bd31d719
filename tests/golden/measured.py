"""Commands that measure, or make a run anew: what does not vary in what they say. Numbers that were measured become `~`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from commands import STRUCTURE
from harness import Bench

_TAKEN = re.compile(r"\d[\d.,]* ?(?:ns|us|ms|s|min)\b")
_COUNTS = ("n", "params", "macs", "flops", "bytes", "threads", "calls", "seed", "steps", "generation", "generations", "layers",
           "sub_layers", "format", "last_step", "step", "exit_code", "batch", "population", "raised")  # fmt: skip


def structure(value: Any, key: str = "") -> Any:
    """Names, words and counts as they are; every other number as `~`."""
    if isinstance(value, dict):
        return {name: structure(held, name) for name, held in value.items()}
    if isinstance(value, list):
        return [structure(held, key) for held in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "~" if is_number and key not in _COUNTS else value


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _untimed(text: str) -> str:
    return _TAKEN.sub("~", text)


def doctor(bench: Bench) -> str:
    """Which parts are looked at; what they hold is this machine's."""
    seen = bench.json("doctor")
    store = seen.pop("store")
    seen.pop("problems")
    _, text, _ = bench.luxmeter("doctor")
    titles = [
        line.strip() for line in text.splitlines() if line and line.split()[0] in (*seen, "recorder", "store")
    ]
    return _text(
        {"parts": {part: list(held) for part, held in seen.items()}, "store": store, "titles": titles}
    )


def run(bench: Bench) -> str:
    """A script that knows nothing of it becomes a run."""
    code, out, err = bench.process(
        "run",
        "--tag",
        "new",
        "--note",
        "made now",
        "--param",
        "width=8",
        "--system-s",
        "0",
        "plain.py",
        "--lr",
        "0.3",
    )
    err = re.sub(r"plain [a-z0-9]{5} finished", "plain <new> finished", err)
    shown = bench.json("show", "new")
    for part in ("environment", "process", "created", "duration"):
        shown[part] = sorted(shown[part]) if isinstance(shown[part], dict) else "~"
    return f"exit code {code}\n{out}{_untimed(err)}{_text(shown)}"


def trace(bench: Bench) -> str:
    """The calls of a script, how often and with what."""
    code, out, err = bench.process("trace", "-o", "new", "infer.py", "2")
    said = [code, out, _untimed(err.splitlines()[-1])]
    for by in ("api", "signature", "module"):
        rows = bench.json("trace", "--from", "new", "--by", by)
        said.append(sorted((structure(row) for row in rows), key=json.dumps))
    return _text(said)


def bench_(bench: Bench) -> str:
    """The rows of a benchmark: which, in which columns, with which costs."""
    code, out, _ = bench.luxmeter(
        "bench",
        "ops.jsonl",
        "--name",
        "*Linear*",
        "--scale",
        "batch=1,2",
        "--budget-s",
        "0.5",
        "--json",
        "-o",
        "rows.csv",
    )
    rows = json.loads(out)
    for row in rows["rows"]:
        row.update(
            n="~",
            status="ok or doubtful" if row["status"] in ("ok", "doubtful") else row["status"],
            reason="~",
        )
    rows["environment"] = _keys({**rows["environment"], "packages": {}})
    rows["notes"] = "~"
    columns = (bench.work / "rows.csv").read_text().splitlines()[0]
    return _text([code, structure(rows), columns])


def zen(bench: Bench) -> str:
    """Size and score of a structure; the score itself follows the machine's arithmetic."""
    said = [
        structure(bench.json("zen", STRUCTURE, "-i", "2,3,8,8", "--repeat", "2", "--score", s))
        for s in ("zen", "naswot")
    ]
    return _text(said) + re.sub(
        r"\d+\.\d+", "~", bench.luxmeter("zen", STRUCTURE, "-i", "2,3,8,8", "--repeat", "2")[1]
    )


def search(bench: Bench) -> str:
    """A short search, kept as a run."""
    words = [
        "search",
        STRUCTURE,
        "-i",
        "2,3,8,8",
        "--params",
        "1e5",
        "--population",
        "2",
        "--generations",
        "1",
    ]
    found = bench.json(*words)
    kept = bench.json("runs", "--name", "search*")
    return _text(
        {
            "says": _keys(found),
            "kept": [
                {"name": row["name"], "params": row["params"], "metrics": sorted(row["metrics"])}
                for row in kept
            ],
        }
    )


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _keys(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_keys(value[0])] if value else []
    return type(value).__name__


def reproduce(bench: Bench) -> str:
    """The same code, command and seed once more: the same numbers."""
    code, out, err = bench.luxmeter("reproduce", "base0", "--trust", "--folder", "again", "--quiet")
    found = bench.json("reproduce", "plain", "--trust")  # has no metric: nothing to compare
    return f"exit code {code}\n{out}{err}{_text(found)}"


def rerun(bench: Bench) -> str:
    """The same code with another parameter."""
    found = bench.json("rerun", "base0", "lr=0.2", "--trust")
    kept = bench.json("show", found["again"])
    left = {key: kept[key] for key in ("name", "state", "parent", "params", "metrics", "tags", "files")}
    return f"{_text(found)}{_text(left)}"


def model_latency(bench: Bench) -> str:
    """What is measured of a model beside what is counted."""
    found = bench.json("model", "net.py:small", "-i", "1,3,8,8", "--latency", "-b", "2", "--forward-only")
    return _text(_keys(found))


MEASURED: dict[str, Callable[[Bench], str]] = {
    "doctor": doctor, "run": run, "trace": trace, "bench": bench_, "zen": zen, "search": search, "reproduce": reproduce,
    "rerun": rerun, "model-latency": model_latency,
}  # fmt: skip
