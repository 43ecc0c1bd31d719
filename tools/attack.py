"""Damages and forges every kind of file that Luxmeter reads, kills commands at random moments, and checks four sentences:
no process crashes, no exception but our own comes out, no value comes back silently altered, nothing outside of the lab is touched.

    python tools/attack.py                                    # 10,000 files, 200 commands, 1,000 kills: about an hour
    python tools/attack.py --files 300 --commands 10 --kills 20 --seed 7
    python tools/attack.py --only trace --files 500           # one kind

Every trial has a number; with the seed it is the same trial again: --seed 1 --from 1234 --files 1. Prints a Markdown table,
then each violation. Ends with 1 if there is one. Each batch runs in a forked child, which a trial may crash.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import luxmeter as lux
from luxmeter.calls import load_trace, packed
from luxmeter.calls.core import load as load_core
from luxmeter.calls.device_time import SCHEMA as DEVICE_SCHEMA
from luxmeter.calls.records import EVENT_DTYPE
from luxmeter.errors import LuxmeterError, LuxmeterWarning, UsageError, forget_warnings
from luxmeter.experiment import (
    Params,
    Saver,
    TensorBoardFiles,
    drop_project,
    get_rng_state,
    import_tensorboard,
    lay_out,
    set_rng_state,
    stored_names,
    stored_project,
)
from luxmeter.experiment.checkpoint.format import read_file, write_file
from luxmeter.experiment.checkpoint.shards import Taken, shard_names
from luxmeter.experiment.reproduce import handover
from luxmeter.experiment.seed import start_state
from luxmeter.experiment.transfer.archive import export_run, import_run
from luxmeter.experiment.transfer.origin import Origin
from luxmeter.model import load_cost, load_score, load_search
from luxmeter.model.plainnet import Budget, SearchOptions, search
from luxmeter.operators import diff_benchmarks, diff_checks
from luxmeter.operators.checks.records import load_check
from luxmeter.operators.foreign.load import load_foreign
from luxmeter.operators.mini import read_model_file
from luxmeter.operators.results import load_benchmark
from luxmeter.process import Process
from luxmeter.settings import globs
from luxmeter.store import (
    FinishedRun,
    Job,
    JobTable,
    Lab,
    Run,
    SegmentWriter,
    compact,
    damage_of_lab,
    read_sealed,
    read_segments,
    run_of_job,
    tell_ranks,
    write_sealed,
)
from luxmeter.train import Evaluation, FailedStep, Queue, load_evaluation
from luxmeter.train.checkpoints import save_folder
from luxmeter.train.queue.begin import claimed_by
from luxmeter.train.queue.engines.on_node import ended_code
from luxmeter.train.queue.jobs import Wanted, drop_unused_code
from luxmeter.train.queue.worker import line_of_job
from luxmeter.train.requests import Mailbox, Request, read_listening
from luxmeter.train.run_evaluation import checkpoint_of, trainer_record
from luxmeter.view.cli import main
from luxmeter.view.cli.search import show_search
from luxmeter.view.cli.show import _show_score
from luxmeter.view.pages.check import check_page
from luxmeter.view.text.run import write_page

INPUTS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "inputs"
BATCH = 25
TRIAL_S = 60  # longer is hanging
MEMORY_BYTES = 24 << 30  # of addresses: torch alone takes some


@dataclass(frozen=True)
class Target:
    """A kind of file: where its specimen lies, how it is read (to a text that tells every value), and whether a checksum covers it.

    With `parts`, what is read may be less than what was written, if a warning says so.
    """

    name: str
    specimen: Path  # a file, or the folder in which one is damaged
    read: Callable[[Path], Any]
    summed: bool = False
    parts: bool = False
    pattern: str = "*"
    forged: Callable[[Path, random.Random], str] | None = (
        None  # makes the file anew, with values somebody chose
    )


@dataclass
class Tally:
    """What came of the trials of one attack."""

    trials: int = 0
    refused: int = 0
    violations: list[str] = field(default_factory=list)


# -- specimens ------------------------------------------------------------------------------------------------------


def make_specimens(place: Path) -> list[Target]:
    """One file of each kind, made by Luxmeter itself."""
    lab = Lab.open(place / "lab")
    with lab.create_run("ended", params={"lr": 0.1, "layers": [1, 2], "name": "a"}, tags=["best"]) as run:
        for step in range(60):
            run.log({"loss": 1.0 / (step + 1), "acc": step / 60}, step=step)
        run.metric("note", "some text", 3)
        run.put_blob(b"print('code')\n" * 20)
        ended = run.id
    segments = lab.folder / "runs" / ended
    going = place / "segments"
    shutil.copytree(segments, going)
    shutil.rmtree(going / "tables")
    table = Run(segments).table("metrics")
    writer = SegmentWriter(going / "tables" / "metrics")
    for start in range(0, table.num_rows, 20):
        writer.append(table.slice(start, 20))
    writer.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lux.trace(keep=place / "trace") as trace:
            model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
            for _ in range(5):
                model(torch.ones(2, 4)).sum().backward()
        lux.load_trace(place / "trace").operators().save(place / "ops.jsonl")
        del trace
    _put_device_times(place / "trace")
    shutil.copytree(place / "trace", place / "growing")
    for folded in (place / "growing").glob("*/events/*.parquet"):
        pieces = SegmentWriter(folded.with_suffix(""))
        for _ in range(3):  # a flush each: the same events thrice
            pieces.append(read_sealed(folded))
        pieces.close()
        folded.unlink()
    state = {
        "model": model.state_dict(),
        "step": 7,
        "lists": list(range(100)),
        "text": "a" * 100,
        "raw": b"\0\1" * 50,
    }
    write_file(place / "state.safetensors", state)
    write_file(place / "state.pt", state, format="torch")
    exports = {}
    for ending in (".zip", ".tar", ".tar.gz", ".tar.zst", ""):
        exports[ending] = export_run(lab.find(ended), place / f"export{ending}")
    lab.close()  # an index that is closed later would look like one that was touched
    for ending in ("json", "yaml", "toml"):
        Params({"lr": 0.1, "deep": {"a": [1, 2]}}).to_file(place / f"params.{ending}")
    _write_sharded(place / "sharded")
    (place / "logs").mkdir()
    call = {"ph": "X", "name": "aten::add", "ts": 1, "dur": 2, "args": {"Input Dims": [[2, 3], [2, 3], []],
            "Input type": ["float", "float", "Scalar"], "Input Strides": [[3, 1], [3, 1], []], "Concrete Inputs": ["", "", "1"]}}  # fmt: skip
    (place / "logs" / "chrome.json").write_text(json.dumps({"traceEvents": [call] * 3}))
    (place / "logs" / "operators.txt").write_text(
        "Operator: aten.add.Tensor\ncnt: 3, ((T([2, 3], f32), T([2, 3], f32, stride=(1, 2))), {'alpha': 2})\n"
    )
    asked = place / "asked" / "control" / "requests"
    asked.mkdir(parents=True)
    (asked.parent / "answers").mkdir()
    (asked / "a.json").write_text(
        json.dumps({"format": 1, "what": "set", "changes": {"lr": "0.1"}, "to": "", "by": "a@b"})
    )
    (asked.parent / "listening.json").write_text(
        json.dumps({"format": 1, "session": "a", "state": "training", "step": 3, "steps": 9, "since_ns": 1})
    )
    board = TensorBoardFiles(place / "board")
    for step in range(30):
        board.log({"loss": 1.0 / (step + 1)}, step)
    board.close()
    for name in ("bench", "check"):
        shutil.copy(INPUTS / f"{name}-a.json", place / f"{name}.json")
    lux.analyze(torch.nn.Linear(4, 8), torch.ones(2, 4)).to_json(place / "cost.json")
    saver = Saver(place / "saver", metric="loss", mode="min")
    for step in range(3):
        info = {"loss": 1.0 / (step + 1), "words": [1, {"a": "b"}]}
        saver.save_state(step, info=info, **_training())
    saver.close()
    shutil.copytree(INPUTS / "lab", place / "recorded")
    for folder in (place / "recorded" / "runs").iterdir():
        try:
            _record_of(folder)
        except LuxmeterError:  # one of them is damaged already
            shutil.rmtree(folder)
    queue = Lab.open(place / "queue")
    with JobTable(queue.folder, queue.id).change() as change:
        for number in range(3):
            change.put(
                Job(number + 1, "a.py", "script", ("--lr", "0.1"), "/", "/", "c", "python", 1, group="g")
            )
    shutil.copytree(lab.folder, place / "listed")
    Lab.open(place / "listed").runs()
    _make_records(place)
    (place / "settings").mkdir()
    (place / "settings" / "settings.json").write_text(
        json.dumps({"a": 1, "core": "c", "store.lost_after_s": 5.0})
    )

    targets = [
        Target("segments of a run", going, _run_text, summed=True, parts=True, pattern="*.arrows"),
        Target("Parquet of a run", segments, _run_text, summed=True, parts=True, pattern="*.parquet"),
        Target("small files of a run", segments, _run_text, pattern="*.json"),
        Target(
            "blobs of a run", segments, _blob_text, summed=True, pattern="????????????????????????????????*"
        ),
        Target("trace: events", place / "trace", _trace_text, summed=True, parts=True, pattern="0*.parquet"),
        Target("trace: growing", place / "growing", _trace_text, summed=True, parts=True, pattern="*.arrows"),
        Target(
            "trace: device", place / "trace", _trace_text, summed=True, parts=True, pattern="table.parquet"
        ),
        Target("trace: packed events", place / "trace", _trace_text, forged=_forged_events),
        Target("trace: packed events, growing", place / "growing", _trace_text, forged=_forged_events),
        Target("trace: device's times", place / "trace", _trace_text, forged=_forged_device_times),
        Target("trace: names", place / "trace", _trace_text, summed=True, parts=True, pattern="words.jsonl"),
        Target("trace: end", place / "trace", _trace_text, summed=True, pattern="end.json"),
        Target("trace: identity", place / "trace", _trace_text, pattern="trace.json"),
        Target("operators", place / "ops.jsonl", _operators_text),
        Target("checkpoint", place / "state.safetensors", _state_text),
        Target("checkpoint (torch)", place / "state.pt", _state_text),
        Target("checkpoint in shards", place / "sharded", _sharded_text, pattern="*"),
        Target("checkpoint in shards: values", place / "sharded", _sharded_text, forged=_forged_shards),
        Target("parameters", place / "params.json", _params_text),
        Target("parameters (YAML)", place / "params.yaml", _params_text),
        Target("parameters (TOML)", place / "params.toml", _params_text),
        Target("logs of other tools", place / "logs", _logs_text),
        Target("requests to a training", place / "asked", _asked_text, pattern="*.json"),
        Target("pages of the app", lab.folder, _app_text, pattern="*[!k]"),
        Target("settings", place / "settings", _settings_text, pattern="settings.json"),
        Target("benchmark", place / "bench.json", _benchmark_text),
        Target("check", place / "check.json", _check_text),
        Target("model's cost", place / "cost.json", _cost_text),
        Target("side-car of a checkpoint", place / "saver", _saver_text, pattern="*.json"),
        Target(
            "checkpoint of a folder",
            place / "saver",
            _each_checkpoint_text,
            summed=True,
            parts=True,
            pattern="*.ckpt",
        ),
        Target("state of a training", place / "saver", _resumed_text, forged=_forged_state),
        Target("records of runs", place / "recorded" / "runs", _records_text, pattern="*.json"),
        Target("score", place / "zen.json", _score_text),
        Target("state of a search", place / "search.json", _search_text),
        Target("evaluation", place / "eval.json", _evaluation_text),
        Target("mini-model", place / "mini", _mini_text),
        Target("mini-model: values", place / "mini", _mini_text, forged=_forged_mini),
        Target("failed step", place / "trained", _failed_step_text, pattern="step.json"),
        Target("failed step: state", place / "trained", _failed_step_text, forged=_forged_step_state),
        Target("record of a Trainer", place / "trained", _trainer_text, pattern="trainer.json"),
        Target("code of a queued job", place / "queued", _job_code_text, pattern="code.json"),
        Target("what a job left", place / "queued", _job_left_text, pattern="*ed.json"),
        Target("jobs of a queue", place / "queued", _queued_text, forged=_forged_jobs),
        Target("note of an import", place / "noted", _imported_text, pattern="import.json"),
        Target("random state", place / "drawn", _random_text, pattern="*n*"),
        Target("runs of a job's ranks", place / "ranks", _ranks_text, pattern="*.json"),
        Target("queue", place / "queue", _queue_text, pattern="jobs.sqlite"),
        Target("index", place / "listed", _index_text, pattern="*.sqlite"),
        Target("as a trace, checkpoint, export", place / "state.pt", _as_all),
    ]
    targets += [
        Target(f"export {ending or 'folder'}", target, _import_text, summed=True)
        for ending, target in exports.items()
    ]
    if any((place / "board").rglob("*tfevents*")):
        targets.append(Target("TensorBoard", place / "board", _board_text, pattern="*tfevents*"))
    return targets


def _run_text(folder: Path) -> Any:
    run = Run(folder)
    rows = [tuple(row.values()) for row in run.table("metrics").to_pylist()]
    said = (
        run.params,
        run.tags,
        run.name,
        run.state,
        run.metrics,
        run.environment,
        run.code,
        run.log_text,
        run.note,
    )
    objects = (
        [repr(sorted(row.items(), key=str)) for row in run.objects()]
        if (folder / "tables" / "objects").exists()
        else []
    )
    return [*map(repr, sorted(rows, key=repr)), *objects], repr(said) if not (
        folder / "tables" / "metrics"
    ).exists() else ""


def _blob_text(folder: Path) -> Any:
    run = Run(folder)
    return [], repr(
        [
            run.blob(path.name)
            for path in sorted((folder / "blobs").glob("*/*"))
            if not path.name.startswith(".")
        ]
    )


def _trace_text(folder: Path) -> Any:
    """The rows of its table, and of each event what no loss beside it changes."""
    trace = load_trace(folder)
    table = trace.table()
    rows = [repr((row.name, row.n)) for row in table.rows]
    str(table), [str(case) for case in trace.operators()]
    for look in (trace.tree, trace.steps, trace.source, trace.stragglers, trace.notes, trace.html):
        with contextlib.suppress(LuxmeterError):
            str(look())
    with contextlib.suppress(LuxmeterError):
        events = trace.events().to_pydict()
        ends = np.array([events["start_ns"], events["duration_ns"], events["own_ns"]], dtype=np.int64).sum(0)
        device = events.get("device_ns", [None] * len(ends))
        rows += map(
            repr,
            zip(events["name"], events["start_ns"], ends.tolist(), events["thread"], device, strict=True),
        )
    return rows, ""


def _put_device_times(trace: Path) -> None:
    """As from an accelerator: a row for each of some events."""
    events = load_trace(trace).events().to_pydict()
    for process in trace.glob("rank*"):
        columns = [[events[name][i] for i in range(20)] for name in ("thread", "start_ns")]
        columns += [[0] * 20, list(range(0, 2000, 100)), [50] * 20, [1024] * 20, [2048] * 20]
        writer = SegmentWriter(process / "device" / "0000")
        writer.append(pa.record_batch([pa.array(one, pa.int64()) for one in columns], schema=DEVICE_SCHEMA))
        writer.close()
        compact(process / "device" / "0000")


def _hostile_numbers(values: Any, rng: random.Random) -> None:
    """Change some elements of an array to what numbers can be at most, at least, or at all."""
    limits = np.iinfo(values.dtype)
    for _ in range(rng.choice([1, 3, 100])):
        values[rng.randrange(len(values))] = rng.choice(
            [
                0,
                1,
                limits.max,
                limits.min,
                limits.max - 1,
                rng.randrange(limits.min, limits.max),
                1 << rng.randrange(15),
            ]
        )


def _other_columns(table: pa.Table, rng: random.Random) -> pa.Table:
    """A column of another type, with nulls, under another name, or not there."""
    at = rng.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    other = rng.choice(["type", "nulls", "name", "gone", "texts", "none"])
    if other == "gone" and table.num_columns > 1:
        return table.remove_column(at)
    if other == "name":
        return table.rename_columns(["\ud7ff\x1b[31m" if n == name else n for n in table.column_names])
    if other == "none":
        return table.slice(0, 0)
    made: Any = {
        "nulls": lambda: pa.nulls(len(column), column.type),
        "texts": lambda: pa.array(["\u202e"] * len(column)),
    }.get(other, lambda: pa.array([rng.random()] * len(column)))()
    return table.set_column(at, name, made)


def _lay_down(file: Path, table: pa.Table) -> None:
    """As Luxmeter does, with every checksum."""
    if file.suffix == ".parquet":
        write_sealed(file, table, {})
        return
    folder = file.parent
    file.unlink()
    writer = SegmentWriter(folder)
    writer.append(table)
    writer.close()


def _forged_events(folder: Path, rng: random.Random) -> str:
    core = load_core()[0]
    file = rng.choice(sorted(p for p in folder.glob("*/events/**/*.*") if p.is_file()))
    table = read_sealed(file) if file.suffix == ".parquet" else read_segments(file.parent)
    assert table is not None
    pieces = table.column(packed.COLUMN).to_pylist()
    how = rng.choice(["bytes", "values", "values", "columns", "unpacked"])
    if how == "bytes":
        at = rng.randrange(len(pieces))
        piece = bytearray(pieces[at])
        for _ in range(rng.choice([1, 2, 20])):
            piece[rng.randrange(len(piece))] = rng.randrange(256)
        pieces[at] = bytes(piece)
    else:
        events = np.frombuffer(b"".join(map(core.unpack, pieces)), EVENT_DTYPE).copy()
        for name in rng.sample(list(EVENT_DTYPE.names or ()), rng.choice([1, 2, 12])):
            _hostile_numbers(events[name], rng)
        pieces = core.pack(events.tobytes())
        if how == "unpacked":  # format 2
            columns = {name: np.ascontiguousarray(events[name]) for name in EVENT_DTYPE.names or ()}
            _lay_down(file, _other_columns(pa.table(columns), rng))
            return f"forged {how}"
    table = pa.Table.from_batches([packed.to_batch(pieces)])
    _lay_down(file, _other_columns(table, rng) if how == "columns" else table)
    return f"forged {how}"


def _forged_device_times(folder: Path, rng: random.Random) -> str:
    [file] = folder.glob("*/device/0000/table.parquet")
    columns = {name: np.array(column) for name, column in read_sealed(file).to_pydict().items()}
    for name in rng.sample(list(columns), rng.choice([1, 3, 7])):
        _hostile_numbers(columns[name], rng)
    table = pa.table(columns)
    _lay_down(file, _other_columns(table, rng) if rng.random() < 0.4 else table)
    return "forged"


def _write_sharded(folder: Path) -> None:
    """A checkpoint of two ranks, as they lay it down."""
    folder.mkdir()
    main = folder / "000003.ckpt"
    names = shard_names(main.name, 2, "abcdef01.host-1-1")
    rows = torch.arange(20.0).reshape(10, 2)
    for rank, name in enumerate(names):
        start = rank * 5
        taken = Taken(
            None, {"model.w": rows[start : start + 5].clone()}, {"model.w": start}, {"seen": [rank, "a"]}
        )
        write_file(folder / name, taken.shard(rank, 2))
    tensor = {"luxmeter_sharded": "model.w", "shape": [10, 2], "dtype": torch.float32}
    write_file(
        main, {"step": 3, "model": {"w": tensor}, "own": {"luxmeter_own": True}, "luxmeter_shards": names}
    )


def _sharded_text(folder: Path) -> Any:
    return [], repr(Saver(folder).load_checkpoint(3))


def _forged_shards(folder: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(folder.iterdir()))
    state = read_file(file)
    _put_hostile(state, rng)
    with contextlib.suppress(LuxmeterError):  # what no file of ours can hold
        write_file(file, state)
    return "forged"


def _logs_text(folder: Path) -> Any:
    return [], repr(
        [[str(case) for case in load_foreign(file).operators] for file in sorted(folder.iterdir())]
    )


def _asked_text(folder: Path) -> Any:
    """What a training sees: every file is a request or an error of ours."""
    box = Mailbox(folder)
    said: list[Any] = []
    with contextlib.suppress(LuxmeterError):
        said.append(read_listening(folder))
    for found in box.take():
        if isinstance(found, Request):
            said.append((found.what, dict(found.changes), found.by, found.session))
            box.answer(found, {"done": False, "slug": "a", "text": "b", "next": "c"})
    return [], repr(said)


def _app_text(folder: Path) -> Any:
    """Every page that `luxmeter ui` has of a lab: an answer, never a failure of the server."""
    from starlette.testclient import TestClient

    from luxmeter.view.app.server import build

    ask = TestClient(
        build(folder, edit=False, hosts=("127.0.0.1:8265",), token="", port=8265),
        base_url="http://127.0.0.1:8265",
    )
    runs = [path.name for path in (folder / "runs").iterdir() if not path.name.startswith(".")]
    pages = ["/", "/runs", "/runs?q=loss<1", "/traces"]
    for run in runs:
        pages += [f"/run/{run}{rest}" for rest in ("", "/points", "/code", "/log", "/output.txt", "/files", "/files?path=run.json",
                  "/files/run.json", "/trace")] + [f"/compare?run={run}&run={run}"]  # fmt: skip
    for page in pages:
        answer = ask.get(page)
        if answer.status_code >= 500:
            text = re.sub(r"<[^>]*>|\s+", " ", answer.text)
            raise RuntimeError(f"{page.replace(runs[0], 'RUN') if runs else page}: {text[-200:]}")
    return [], ""


def _operators_text(path: Path) -> Any:
    return [], "\n".join(str(case) for case in lux.load_operators(path))


def _state_text(path: Path) -> Any:
    return [], repr(read_file(path))


def _params_text(path: Path) -> Any:
    return [], repr(Params.from_json(path))


def _settings_text(folder: Path) -> Any:
    (
        globs.of_lab("core", folder),
        globs.of_lab("store.lost_after_s", folder),
        globs.of_lab("store.url", folder),
    )
    return [], ""


def _benchmark_text(path: Path) -> Any:
    found = load_benchmark(path)
    against = diff_benchmarks(found, load_benchmark(INPUTS / "bench-b.json"))
    return [], repr((str(found.table()), str(against.table())))


def _check_text(path: Path) -> Any:
    found = load_check(path)
    return [], repr(
        (str(found.table()), check_page(found), diff_checks(found, load_check(INPUTS / "check-b.json")))
    )


def _cost_text(path: Path) -> Any:
    return [], repr(load_cost(path).to_dict())


def _training() -> dict[str, Any]:
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 2)
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "epoch": 3,
    }


def _saver_text(folder: Path) -> Any:
    saver = Saver(folder, metric="loss", mode="min")
    best = repr(saver.load_best_checkpoint()) if saver.find_checkpoints() else ""
    return [best], repr(saver.load_latest_checkpoint())


def _each_checkpoint_text(folder: Path) -> Any:
    saver, rows = Saver(folder), []
    for step in range(3):
        try:
            rows.append(repr((step, saver.load_checkpoint(step))))
        except LuxmeterError as error:
            warnings.warn(LuxmeterWarning(str(error)), stacklevel=1)  # it is said
    return rows, ""


def _resumed_text(folder: Path) -> Any:
    parts = _training()
    del parts["epoch"]  # a plain value, which resume() hands back
    return [], repr(Saver(folder).resume(**parts))


def _forged_state(folder: Path, rng: random.Random) -> str:
    path = max(folder.glob("*.ckpt"))
    state = read_file(path)
    if rng.random() < 0.8:  # thousands of numbers, which would be most of what is hit
        state["random"] = None
    _put_hostile(state, rng)
    try:
        write_file(path, state)
    except LuxmeterError:  # what no file of ours can hold
        write_file(path, {"luxmeter_state": 1})
    path.with_name(f"{path.name}.json").unlink()
    return "forged"


def _records_text(folder: Path) -> Any:
    return [], repr([_record_of(run) for run in sorted(folder.iterdir())])


def _record_of(folder: Path) -> Any:
    run = Run(folder)
    shown = io.StringIO()
    write_page(run, shown)
    loaded = []
    for result in run.results():
        with contextlib.suppress(LuxmeterError):
            loaded.append(str(result.load()))
    return run.record(), run.snapshot, run.variant, run.seed, run.code, loaded, shown.getvalue()


def _queue_text(folder: Path) -> Any:
    lab = Lab.open(folder)
    return [], repr([job.record() for job in JobTable(lab.folder, lab.id).jobs()])


def _index_text(folder: Path) -> Any:
    with contextlib.closing(Lab.open(folder)) as lab:
        return [], repr([(row.record(), row.params) for row in lab.runs("", archived=None)])


def _make_records(place: Path) -> None:
    """Small files that no reader above has: of scores, searches, trainings, a queue with its code, imports, ranks."""
    scored = {"format": "luxmeter.score", "format_version": 1, "score": "zen", "model": "A", "scores": [1.5, 2.5],
              "mode": "stationary", "input_size": [2, 3, 8, 8], "seed": 0}  # fmt: skip
    (place / "zen.json").write_text(json.dumps(scored))
    search(
        "SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,8,1,8,1)", budget=Budget(params=1e6), state=place / "search.json",
        options=SearchOptions(population=2, generations=1, input_size=(2, 3, 8, 8), tries=2), keep=False, quiet=True,
    )  # fmt: skip
    Evaluation(
        "a-1", "A", "eval", "000001.ckpt", 1, 1, "cpu", {"acc": 0.5}, {"acc": "50%"}, ("a note",)
    ).save(place / "eval.json")
    mini = {"model": "torch.nn:Linear", "model_init_params": ["a", "b"], "input_params": [["n", "a"]],
            "input_scales": {"n": [1, 2], "a": 4, "b": [3]}, "job_configs": [["fp32", "pt"]], "integer_inputs": {}, "kernels": False}  # fmt: skip
    (place / "mini").mkdir()
    (place / "mini" / "mini.yaml").write_text(json.dumps(mini))  # JSON is YAML

    with Lab.open(place / "trained").create_run("train") as run:
        saver = Saver(run.folder / "checkpoints", background=False)
        saver.save_state(3, **_training())
        record = {"format": 1, "class": "__main__:A", "options": {"steps": "3"}, "save": "checkpoints"}
        run.put_file("trainer.json", json.dumps(record))
        step = run.folder / "files" / "nan-000003"
        failing = {"random": get_rng_state(), "batch": [torch.ones(2)], "modes": {"model": [True]}}
        Saver(step, background=False).save_state(3, kind="keypoint", random=False, failing=failing)
        where: dict[str, Any] = {
            "module": "luxmeter.experiment.params.params",
            "name": "Params",
            "file": None,
            "folders": [],
        }
        record = {"format": 1, "step": 3, "epoch": 1, "batch": 2, "first": 3, "what": "loss", "value": "nan", "run": run.id,
                  "params": where, "is_exact": True}  # fmt: skip
        run.put_file("nan-000003/step.json", json.dumps(record))
        run.put_file("nan-000003/values.json", Params({"lr": 0.1}).to_json())

    project = place.parent / "here"
    (project / "script.py").write_text("print(1)\n")
    (project / "lib").mkdir()
    (project / "lib" / "a.py").write_text("a = 1\n")
    (project / "link.py").symlink_to("script.py")
    lab = Lab.open(place / "queued")
    queue = Queue(lab)
    [job] = queue.add(project / "script.py", [Wanted(())])
    going = queue.folder / "going" / f"{job.id}-{job.run}"
    going.mkdir(parents=True)
    process = dict(vars(Process.here()))
    (going / "ended.json").write_text(json.dumps({"code": 0}))
    (going / "claimed.json").write_text(json.dumps(process))
    (queue.folder / "code" / job.code / "held.json").write_text(json.dumps(process))
    queue.close()
    lab.close()

    lab = Lab.open(place / "noted")
    origin = Origin("tool", "here", "key", "content", {"a": 1})
    origin.bring(
        lab,
        FinishedRun(id=origin.run_id(0), name="a", created_ns=0, ended_ns=1, params={"lr": 1}),
    )
    lab.close()
    (place / "drawn" / "files").mkdir(parents=True)
    lux.RndManager(place / "drawn").mark("a")
    (place / "drawn" / "files" / "random.json").write_text(json.dumps(start_state.take()))
    lab = Lab.open(place / "ranks")
    with lab.create_run("all") as run:
        tell_ranks(lab.folder, "key", "all", run.id)
        os.environ.pop("LUXMETER_PARENT", None)


def _score_text(path: Path) -> Any:
    for as_json in (False, True):
        _show_score(path, as_json)
    return [], repr(load_score(path))


def _search_text(path: Path) -> Any:
    found = load_search(path)
    for as_json in (False, True):
        show_search(found, top=3, as_json=as_json)
    return [], repr(found)


def _evaluation_text(path: Path) -> Any:
    found = load_evaluation(path)
    return [], repr((found.title, str(found), found.to_dict(), found._repr_html_()))


def _mini_text(folder: Path) -> Any:
    """What would be measured, and nothing of it."""
    return [], repr(read_model_file(folder / "mini.yaml"))


def _forged_mini(folder: Path, rng: random.Random) -> str:
    said = json.loads((folder / "mini.yaml").read_text())
    _put_hostile(said, rng)
    with contextlib.suppress(UnicodeEncodeError):
        (folder / "mini.yaml").write_text(json.dumps(said, ensure_ascii=rng.random() < 0.5))
    return "forged"


def _one_run(folder: Path) -> Run:
    [path] = (one for one in (folder / "runs").iterdir() if not one.name.startswith("."))
    return Run(path, folder)


def _failed_step_text(folder: Path) -> Any:
    """Looked at, its parameters included; a module that it names is not imported, for its run is none of ours here."""
    step = FailedStep(_one_run(folder).folder / "files" / "nan-000003")
    said = repr((step.batch, step.record))
    with contextlib.suppress(LuxmeterError):
        said += repr(step.params)
    step.record["params"]["module"] = "this"
    with contextlib.suppress(LuxmeterError):
        said += repr(step.params)
    if "this" in sys.modules:
        raise RuntimeError("a file decided what is imported")
    return [], said


def _forged_step_state(folder: Path, rng: random.Random) -> str:
    [path] = (_one_run(folder).folder / "files" / "nan-000003").glob("keep.*.ckpt")
    state = read_file(path)
    if rng.random() < 0.8:
        state["parts"]["failing"]["value"]["random"] = None
    _put_hostile(state, rng)
    try:
        write_file(path, state)
    except LuxmeterError:  # what no file of ours can hold
        write_file(path, {"luxmeter_state": 1})
    path.with_name(f"{path.name}.json").unlink()
    return "forged"


def _trainer_text(folder: Path) -> Any:
    run = _one_run(folder)
    place = save_folder(run)
    return [], repr(
        (trainer_record(run), checkpoint_of(run, "latest"), Saver(place, cleans=False).find_checkpoints())
    )


def _job_code_text(folder: Path) -> Any:
    """Laid out in a folder of its own, and forgotten."""
    lab = Lab.open(folder)
    laid = folder.with_name("laid")
    [name] = stored_names(lab)
    try:
        code = stored_project(lab, name)
        lay_out(lab, code, laid)
        files = sorted(path.relative_to(laid).as_posix() for path in laid.rglob("*"))
    finally:
        drop_project(lab, name)
    if stored_names(lab):
        raise RuntimeError("it is not forgotten")
    return [], repr((files, code))


def _job_left_text(folder: Path) -> Any:
    going = next((folder / "queue" / "going").iterdir())
    said = repr((ended_code(going), claimed_by(going / "claimed.json")))
    [code] = (folder / "queue" / "code").iterdir()
    (code / "held.json").rename(code / "held-1.json")
    drop_unused_code(Queue(Lab.open(folder)))
    return [], said


def _forged_jobs(folder: Path, rng: random.Random) -> str:
    with contextlib.closing(sqlite3.connect(folder / "queue" / "jobs.sqlite")) as database, database:
        [text] = database.execute("select job from luxmeter_jobs").fetchone()
        said = json.loads(text)
        if rng.random() < 0.2:  # a folder is called after it
            said["run"] = rng.choice(["a-1", "x/../../../../../outside", "../../.."])
        _put_hostile(said, rng)
        database.execute("update luxmeter_jobs set job = ?", [json.dumps(said)])
    (folder / "queue" / "going" / "1-x").mkdir()
    return "forged"


def _queued_text(folder: Path) -> Any:
    queue = Queue(Lab.open(folder))
    jobs = queue.table.jobs()
    said = repr([(job.record(), line_of_job("ended", job), queue.log_file(job)) for job in jobs])
    for job in jobs:
        with contextlib.suppress(UsageError):  # it has ended
            queue.cancel(job, force=True)
    return [], said


def _imported_text(folder: Path) -> Any:
    origin = Origin("tool", "here", "key", "other content")
    run = FinishedRun(id=origin.run_id(0), name="a", created_ns=0, ended_ns=1)
    return [], origin.bring(Lab.open(folder), run)


def _random_text(folder: Path) -> Any:
    before = get_rng_state()
    try:
        handover._random_from = folder
        handover.random_at_start()
        marks = lux.RndManager(folder)
        return [], repr((marks.marks(), marks.mark("a"), marks.state_dict()))
    finally:
        set_rng_state(before)


def _ranks_text(folder: Path) -> Any:
    lab = Lab.open(folder)
    found = run_of_job(lab.folder, "key", "all")
    if found is not None and found.parent != lab.folder / "runs":
        raise RuntimeError(f"a run outside: {found}")
    tell_ranks(lab.folder, "key", "all", "a-1")
    return [], repr(found)


def _import_text(path: Path) -> Any:
    place = path.with_name("target")
    shutil.rmtree(place, ignore_errors=True)
    taken = import_run(Lab.open(place), path)
    files = {p.relative_to(taken.folder).as_posix(): p for p in taken.folder.rglob("[!.]*") if p.is_file()}
    return [], repr({name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in sorted(files.items())})


def _board_text(folder: Path) -> Any:
    place = folder.with_name("target")
    shutil.rmtree(place, ignore_errors=True)
    lab = Lab.open(place)
    for run_id in import_tensorboard(lab, folder):
        str(lab.find(run_id).metrics)
    return [], ""


def _as_all(path: Path) -> Any:
    """One file given to every reader."""
    for read in (
        read_file,
        load_trace,
        lux.load_operators,
        load_benchmark,
        load_check,
        Params.from_json,
        _import_text,
    ):
        with contextlib.suppress(LuxmeterError):
            read(path)
    return [], ""


# -- damage and forgery ---------------------------------------------------------------------------------------------

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, float("nan"), float("inf"), "", "x" * 100_000, "../../../escaped",
    "/etc/passwd", "\ud800", "\x1b[31m\u202e", "=1+1", "..", ".git/config", [], {}, [[]], {"$tuple": 3}, {"$float": "x"}, {"$value": []},
    {"$type": {}}, {"$dict": 1}, [1] * 5000, "C:\\x", "a\0b", [None], {"": ""}, -0.0,
)  # fmt: skip


def _nested() -> Any:
    value: Any = 1
    for _ in range(300):
        value = [value]
    return value


def damage(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """What a disk, a network or a full partition make of it."""
    kind = rng.choice(["bit", "bit", "bit", "bytes", "cut", "lost", "come", "zeros", "twice", "swapped"])
    at = rng.randrange(len(data)) if data else 0
    size = rng.choice([1, 2, 7, 16, 100, 512, 4096])
    if kind == "bit" and data:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :], f"bit at {at}"
    if kind == "bytes":
        return data[:at] + rng.randbytes(min(size, len(data) - at)) + data[
            at + size :
        ], f"{size} bytes at {at}"
    if kind == "cut":
        return data[:at], f"cut at {at}"
    if kind == "lost":
        return data[:at] + data[at + size :], f"{size} lost at {at}"
    if kind == "come":
        return data[:at] + rng.randbytes(size) + data[at:], f"{size} come at {at}"
    if kind == "zeros":
        return data[:at] + bytes(min(size, len(data) - at)) + data[at + size :], f"{size} zeros at {at}"
    if kind == "twice":
        return data[:at] + data[max(0, at - size) : at] + data[at:], f"{size} twice at {at}"
    return data[at:] + data[:at], f"turned at {at}"


def forge(data: bytes, rng: random.Random) -> tuple[bytes, str] | None:
    """JSON whose values somebody chose; None if it is no JSON."""
    lines = data.split(b"\n") if data.startswith(b"{") and b"\n{" in data else [data]
    which = rng.randrange(len(lines))
    try:
        said = json.loads(lines[which])
    except ValueError:
        return None
    if isinstance(said, dict):
        for name in ("sum", "$sum"):  # as who forges would
            said.pop(name, None)
    if not _put_hostile(said, rng):
        return None
    text = json.dumps(said)
    if rng.random() < 0.05:  # deeper than Python follows
        text = text.replace(": ", ": " + "[" * 100_000 + "]" * 100_000 + ', "more": ', 1)
    if rng.random() < 0.05:  # a number that is none of JSON's, and beyond every integer
        text = re.sub(r": \d+", ": 1e400", text, count=1)
    lines[which] = text.encode("utf-8", "surrogatepass")
    return b"\n".join(lines), "forged"


def _put_hostile(said: Any, rng: random.Random) -> bool:
    """Change some values, or take them away; False if there are none."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in list(items):
            places.append((value, key))
            walk(inner)

    walk(said)
    for _ in range(rng.choice([1, 1, 2, 5]) if places else 0):
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and rng.random() < 0.15:
            holder.pop(key, None)
        else:
            holder[key] = rng.choice([*HOSTILE, _nested()])
    return bool(places)


# -- one trial ------------------------------------------------------------------------------------------------------


def trial(
    target: Target,
    number: int,
    seed: int,
    place: Path,
    good: Any,
    *,
    run: Callable[[Path], Any] | None = None,
) -> str:
    """Damage a copy and read it: "" if all sentences hold and it was read, "refused", or what was violated."""
    rng = random.Random(f"{seed} {target.name} {number}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    copy = place / target.specimen.name
    if target.specimen.is_dir():
        shutil.copytree(target.specimen, copy)
        files = sorted(p for p in copy.rglob(target.pattern) if p.is_file() and not p.name.startswith("."))
        file = rng.choice(files)
    else:
        shutil.copy(target.specimen, copy)
        file = copy
    if target.forged is not None:
        how = target.forged(copy, rng)
        forged: tuple[bytes, str] | None = (b"", how)
        made = b""
    else:
        data = file.read_bytes()
        forged = forge(data, rng) if rng.random() < 0.5 else None
        made, how = forged or damage(data, rng)
        file.chmod(0o644)
        file.write_bytes(made)
    said = f"{target.name} #{number} ({file.name}: {how})"
    forget_warnings()
    signal.alarm(TRIAL_S)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = (run or target.read)(copy)
    except LuxmeterError:
        return "refused"
    except Exception as error:  # noqa: BLE001 - what this is for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{said}: raw {type(error).__name__}: {str(error)[:120]!r} at {Path(where.filename).name}:{where.lineno}"
    finally:
        signal.alarm(0)
    if run is not None or not target.summed or forged:
        return ""
    told = any(issubclass(one.category, LuxmeterWarning) for one in warned)
    if found == good:
        return ""
    if target.parts:
        (rows, rest), (whole, good_rest) = found, good
        altered = _added(rows, whole, target) or rest != good_rest
        torn = not made or any(word in how for word in ("cut", "lost", "turned", "zeros"))
        if not altered and (told or torn):
            return ""
        return f"{said}: {'altered' if altered else 'less, and nothing was said'}"
    return f"{said}: silently altered"


def _added(rows: list[str], whole: list[str], target: Target) -> bool:
    """Whether there is anything that was not written. Of a trace the names may be gone: `(luxmeter)`'s; and the device's times."""
    if not target.name.startswith("trace"):
        return bool(Counter(rows) - Counter(whole))
    found, there = ([eval(row) for row in one] for one in (rows, whole))  # noqa: S307 - our own repr
    names = {row[0]: row[1] for row in there if len(row) == 2}
    if any(len(row) == 2 and row[1] > names.get(row[0], 0) and row[0] != "(luxmeter)" for row in found):
        return True
    events = Counter(row for row in there if len(row) > 2)
    for row in (row for row in found if len(row) > 2):
        fits = [
            one
            for one in events
            if one[1:4] == row[1:4] and row[0] in (one[0], "(luxmeter)") and row[4] in (one[4], None)
        ]
        if not fits:
            return True
        events[fits[0]] -= 1
        if not events[fits[0]]:
            del events[fits[0]]
    return False


# -- batches in children --------------------------------------------------------------------------------------------


def in_child(work: Callable[[Callable[[str], None]], None]) -> tuple[list[str], int]:
    """Run `work(tell)` in a forked child; what it told, and its exit status."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        try:
            with os.fdopen(write, "w", errors="backslashreplace") as out:

                def tell(text: str) -> None:
                    out.write(text.replace("\n", " ") + "\n")
                    out.flush()

                work(tell)
        except BaseException:  # noqa: BLE001
            os._exit(77)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="backslashreplace") as lines:
        told = lines.read().splitlines()
    return told, os.waitpid(pid, 0)[1]


def files_attack(targets: list[Target], count: int, seed: int, first: int, place: Path) -> dict[str, Tally]:
    """`count` damaged or forged files, evenly over the kinds."""
    tallies = {target.name: Tally() for target in targets}
    goods: dict[str, Any] = {}
    for target in targets:
        if target.summed:
            shutil.rmtree(place / "trial", ignore_errors=True)
            (place / "trial").mkdir()
            copy = place / "trial" / target.specimen.name
            (shutil.copytree if target.specimen.is_dir() else shutil.copy)(target.specimen, copy)
            goods[target.name] = target.read(copy)
    for place_of, target in enumerate(targets):
        each = max(1, count // len(targets) + (place_of < count % len(targets)))
        tally, number = tallies[target.name], first
        while number < first + each:
            numbers = range(number, min(number + BATCH, first + each))

            def work(tell: Callable[[str], None], numbers: range = numbers, target: Target = target) -> None:
                for one in numbers:
                    tell(trial(target, one, seed, place / "trial", goods.get(target.name)))

            told, status = in_child(work)
            for one in told:
                tally.trials += 1
                tally.refused += one == "refused"
                if one not in ("", "refused"):
                    tally.violations.append(one)
            sys.stderr.write("".join(f"{one}\n" for one in told if one not in ("", "refused")))
            number += len(told)
            if status:
                tally.trials += 1
                tally.violations.append(f"{target.name} #{number}: the process ended with status {status}")
                number += 1
    return tallies


COMMANDS: dict[str, Callable[[Path], list[list[str]]]] = {
    "segments of a run": lambda p: [
        ["show", str(p)],
        ["diff", str(p), str(p)],
    ],
    "Parquet of a run": lambda p: [
        ["show", str(p), "--json"],
        ["export", str(p), "-o", str(p.with_name("o.zip"))],
    ],
    "small files of a run": lambda p: [["show", str(p)], ["diff", str(p), str(p)], ["code", str(p)]],
    "trace: events": lambda p: [["show", str(p)], ["ops", str(p)]],
    "trace: names": lambda p: [
        ["ops", str(p), "--json"],
        ["show", str(p)],
    ],
    "trace: end": lambda p: [["show", str(p)]],
    "operators": lambda p: [["ops", str(p)]],
    "settings": lambda p: [["config", "-l"], ["runs"]],
    "export .zip": lambda p: [["import", str(p)]],
    "export .tar.gz": lambda p: [["import", str(p)]],
    "export .tar.zst": lambda p: [["import", str(p)]],
    "TensorBoard": lambda p: [["import", "tensorboard", str(p)]],
}


def command(words: list[str]) -> str:
    """Run one command here; what it violated."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["luxmeter", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        return (
            ""
            if code in (0, 1, 2) and "Traceback" not in err.getvalue()
            else f"ended with {end.code}: {err.getvalue()[-150:]}"
        )
    return ""


def commands_attack(targets: list[Target], count: int, seed: int, first: int, place: Path) -> Tally:
    """Commands on damaged files."""
    tally = Tally()
    chosen = [target for target in targets if target.name in COMMANDS]
    for number in range(first, first + count):
        target = chosen[number % len(chosen)]

        def work(tell: Callable[[str], None], number: int = number, target: Target = target) -> None:
            def run(path: Path) -> None:
                home = path if target.name == "settings" else place / "trial" / "home"
                if target.name == "settings":
                    (path / "lab.json").write_text((place / "specimens" / "lab" / "lab.json").read_text())
                    (path / "runs").mkdir(exist_ok=True)
                os.environ["LUXMETER_HOME"] = str(home)
                choices = COMMANDS[target.name](path)
                words = choices[number % len(choices)]
                if violated := command(words):
                    raise RuntimeError(f"{' '.join(words[:2])}: {violated}")

            tell(trial(target, number, seed, place / "trial", None, run=run))

        told, status = in_child(work)
        tally.trials += 1
        for one in told:
            tally.refused += one == "refused"
            if one not in ("", "refused"):
                tally.violations.append(one)
        if status:
            tally.violations.append(
                f"command #{number} on {target.name}: the process ended with status {status}"
            )
    return tally


KILLED: dict[str, Callable[[Path, str], list[str]]] = {
    "log": lambda p, run: [],
    "import": lambda p, run: ["import", str(p / "specimens" / "export.tar.gz")],
    "export": lambda p, run: ["export", run, "-o", str(p / "trial" / "out.zip")],
    "gc": lambda p, run: ["gc"],
    "reindex": lambda p, run: ["reindex"],
    "tag": lambda p, run: ["tag", run, "seen"],
    "note": lambda p, run: ["note", run, "a note"],
    "rm": lambda p, run: ["rm", run],
    "archive": lambda p, run: ["archive", run],
    "config": lambda p, run: ["config", "--local", "a", "2"],
    "rollback": lambda p, run: ["rollback", run, "--to", str(p / "trial" / "back")],
}


def kills_attack(count: int, seed: int, first: int, place: Path) -> Tally:
    """Commands killed at random moments; then the lab must be whole."""
    tally, names = Tally(), list(KILLED)
    took: dict[str, float] = {}
    for number in range(first, first + count):
        rng = random.Random(f"{seed} kill {number}")
        name = names[number % len(names)]
        shutil.rmtree(place / "trial", ignore_errors=True)
        shutil.copytree(place / "specimens" / "lab", place / "trial" / "lab")
        lab = place / "trial" / "lab"
        [run] = [path.name for path in (lab / "runs").iterdir() if not path.name.startswith(".")]
        before = _run_text(lab / "runs" / run)

        def work(lab: Path = lab, name: str = name, run: str = run) -> None:
            os.environ["LUXMETER_HOME"] = str(lab)
            if name == "log":
                with Lab.open(lab).create_run("new") as made:
                    for step in range(3000):
                        made.log({"x": float(step)}, step=step)
            else:
                command(KILLED[name](place, run))

        for kill in (False, True) if name not in took else (True,):
            begun = time.monotonic()
            pid = os.fork()
            if pid == 0:
                null = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(null, stream)
                with contextlib.suppress(BaseException):
                    work()
                os._exit(0)
            if kill:
                time.sleep(rng.random() * took[name])
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            if not kill:
                took[name] = time.monotonic() - begun
                shutil.rmtree(place / "trial", ignore_errors=True)
                shutil.copytree(place / "specimens" / "lab", place / "trial" / "lab")

        def look(
            tell: Callable[[str], None],
            lab: Path = lab,
            name: str = name,
            run: str = run,
            before: Any = before,
        ) -> None:
            os.environ["LUXMETER_HOME"] = str(lab)
            opened = Lab.open(lab)
            listed = {row.id: row.state for row in opened.runs(archived=None)}
            if "damaged" in listed.values():
                tell(f"a run is damaged: {listed}")
            there = [path for path in (lab / "runs" / run, lab / "trash" / run) if path.exists()]
            if len(there) != 1:
                tell(f"the run is in {len(there)} places")
            elif _run_text(there[0])[0] != before[0]:
                tell("the run has other rows")
            for row in opened.runs(archived=None):
                found = Run(lab / "runs" / row.id)
                steps = found.table("metrics")["step"].to_pylist() if row.name == "new" else []
                if steps != list(range(len(steps))):
                    tell("a hole in what was logged")
            opened.gc(older_than_s=0)
            left = [one for one in damage_of_lab(lab) if "never begun" not in one.what]
            if left:
                tell(f"damage stays after gc: {left[:2]}")

        told, status = in_child(look)
        tally.trials += 1
        tally.violations += [f"kill #{number} of {name}: {one}" for one in told]
        if status:
            tally.violations.append(
                f"kill #{number} of {name}: looking at the lab ended with status {status}"
            )
    return tally


# -- nothing outside -----------------------------------------------------------------------------------------------


def _listing(*folders: Path) -> Iterator[str]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_relative_to(folder / "lab" / "index"):
                continue  # of the lab in force: whoever asks for a run brings it up to date
            yield f"{path} {path.stat().st_size if path.is_file() else ''}"


def attack(
    files: int, commands: int, kills: int, *, seed: int = 1, first: int = 0, only: str = ""
) -> tuple[str, list[str]]:
    """All of it: the table, and the violations."""
    root = Path(tempfile.mkdtemp(prefix="lux-attack-"))
    for name in ("home", "outside", "tmp", "here", "specimens"):
        (root / name).mkdir()
    (root / "outside" / "canary").write_text("alive")
    environment = {"HOME": str(root / "home"), "XDG_CONFIG_HOME": str(root / "home" / ".config"), "TMPDIR": str(root / "tmp"),
                   "LUXMETER_HOME": str(root / "specimens" / "lab")}  # fmt: skip
    was = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    before_temp, tempfile.tempdir = tempfile.tempdir, str(root / "tmp")
    here = Path.cwd()
    os.chdir(root / "here")
    torch.set_num_threads(1)
    try:
        targets = [t for t in make_specimens(root / "specimens") if only in t.name]
        outside = [root / "outside", root / "specimens", root / "here", root / "home"]
        before = list(_listing(*outside))
        tallies = files_attack(targets, files, seed, first, root) if files else {}
        if commands:
            tallies["commands on damaged files"] = commands_attack(targets, commands, seed, first, root)
        if kills:
            tallies["kills"] = kills_attack(kills, seed, first, root)
        touched = set(_listing(*outside)) ^ set(before)
    finally:
        os.chdir(here)
        tempfile.tempdir = before_temp
        for name, value in was.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(root, ignore_errors=True)
    violations = [one for tally in tallies.values() for one in tally.violations]
    violations += [f"outside of the lab: {one.removeprefix(str(root))}" for one in sorted(touched)]
    lines = ["| attack | trials | refused with a word | violations |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {t.trials:,} | {t.refused:,} | {len(t.violations)} |" for name, t in tallies.items()
    ]
    total = sum(t.trials for t in tallies.values())
    lines.append(f"| **all** | **{total:,}** | | **{len(violations)}** |")
    return "\n".join(lines), violations


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    table, violated = attack(
        given.files, given.commands, given.kills, seed=given.seed, first=given.first, only=given.only
    )
    sys.stdout.write("\n".join([table, "", *violated, ""]))
    raise SystemExit(1 if violated else 0)
