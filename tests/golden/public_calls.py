"""Results of public calls over the inputs, as text. Only names of `luxmeter` itself and what they return are used."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Bench
from torch import nn

import luxmeter as lux


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic | torch.Tensor) else str(value)


def _frame(frame: Any) -> Any:
    """A pandas table by its columns, as JSON writes it: the same in every version of pandas."""
    return json.loads(frame.reset_index().to_json(orient="split", date_format="iso", double_precision=12))


def runs(_: Bench) -> str:
    found = lux.runs("name = parabola and param.lr < 1", sort="created", state=["finished"])
    tables = [
        _frame(frame)
        for frame in (found.params_frame(), found.metrics_frame(), found.points_frame("loss")[:30])
    ]
    return f"{found}\n{[str(run) for run in lux.runs()]}\n{len(lux.runs(lr=0.1))} {len(lux.runs(tags='golden'))}\n{_text(tables)}"


def run(_: Bench) -> str:
    net, one = lux.runs(tags="trained")[0], lux.runs(tags="base0")[0]
    child = lux.runs(name="net-eval")[0]
    loss = one.metric("loss")
    return _text(
        [one.id, one.name, one.state, one.params, one.flat_params, one.tags, one.note, one.archived, one.duration, one.created,
         one.error, one.command, one.metrics, one.files, one.changed_files, one.read_file("out/x.txt").decode(), one.log_text,
         list(one.code), str(loss), len(loss), loss.steps, loss.values, loss[-1], net.children, child.parent, net.files,
         lux.runs(state="failed")[0].error, sorted(one.environment)]
    )  # fmt: skip


def viewer(_: Bench) -> str:
    view = lux.ExperimentViewer()
    return _text([view.list(), view.recent(timedelta(days=36500)).keys(), view.exp_info("base0"), view.exp_code("base1"),
                  view.backtracking("ckpt"), view.backtracking("txt").keys()])  # fmt: skip


def trace_tables(_: Bench) -> str:
    found = lux.load_trace("trace-a")
    tables = {
        by: [asdict(row) for row in found.table(by)] for by in ("api", "module", "section", "thread", "rank")
    }
    return f"{found}\n{found.text('signature', top=5, width=100)}\n{found.notes()}\n{_text(tables)}{_text(found.cost())}"


def trace_tree(_: Bench) -> str:
    found = lux.load_trace("trace-a")
    events = found.events()
    counted = found.sql("select name, count(*) as n from calls group by name order by name").to_pylist()
    schema = [f"{field.name}: {field.type}" for field in events.schema]
    return f"{found.tree()}\n{_text([schema, events.num_rows, events.slice(0, 2).to_pylist(), counted])}"


def traced_now(_: Bench) -> str:
    """What a trace made now holds, on either core."""
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with lux.trace() as t:
        with t.section("forward"):
            loss = net(torch.ones(2, 4)).sum()
        loss.backward()
    return _text(
        [
            sorted([r.name, r.detail, r.n] for r in t.table(by))
            for by in ("api", "signature", "module", "section")
        ]
    )


def operators(_: Bench) -> str:
    found = lux.load_operators("ops.jsonl")
    again = lux.load_operators(found.save("again.jsonl"))
    lines = [
        [str(case), case.count, case.total_ns, case.size_bytes, list(case.where), found.share(case)]
        for case in found.top(4)
    ]
    return _text([repr(found), len(found), found.total_ns, found.coverage, again == found, lines,
                  repr(found.filter(name="*Linear*")), repr(lux.load_trace("trace-a").operators()),
                  Path("again.jsonl").read_bytes().split(b"\n")[1:] == Path("ops.jsonl").read_bytes().split(b"\n")[1:]])  # fmt: skip


def analyze(_: Bench) -> str:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10)
    )
    cost = lux.analyze(net, input_size=(2, 3, 4, 4), optimizer="adam", backward=True)
    bf16 = lux.analyze_model(net, input_size="2,3,4,4", dtype="bfloat16", backward=False)
    return f"{cost}\n" + _text(
        [cost.params, cost.macs, cost.flops, cost.backward_macs, cost.backward_flops, cost.weight_bytes, cost.unknown_ops,
         cost.module("0").macs, cost.memory.training_peak_bytes, cost.memory.optimizer_bytes, bf16.flops, bf16.weight_bytes]
    )  # fmt: skip


def flops_of(_: Bench) -> str:
    @torch.library.custom_op("golden::smooth", mutates_args=())
    def smooth(x: torch.Tensor, width: int) -> torch.Tensor:
        return nn.functional.avg_pool1d(x, width, stride=1)

    @smooth.register_fake
    def _(x: torch.Tensor, width: int) -> torch.Tensor:
        return x.new_empty(*x.shape[:-1], x.shape[-1] - width + 1)

    def model(x: torch.Tensor) -> torch.Tensor:
        return smooth(x, 5).relu()

    before = lux.analyze(model, torch.ones(2, 4, 100))
    lux.flops_of(smooth)(lambda x, width, *, out: width * out.numel())
    after = lux.analyze(model, torch.ones(2, 4, 100))
    return _text([before.flops, before.unknown_ops, after.flops, after.unknown_ops])


class _Optim(lux.BaseParams):
    lr: float = 0.1
    name: str = "SGD"


def params(_: Bench) -> str:
    given = lux.BaseParams({"epoch": 3, "layers": [8, 8], "pair": (1, 2), "none": None, "optim": _Optim()})
    given.choice("dataset", "cifar10", "svhn")
    given.arange("dropout", 0.5, 0, 1)
    Path("base.yaml").write_text("epoch: 20\noptim:\n  lr: 1e-2\n")
    given.from_args(["@base.yaml", "--optim.lr=0.3", "--layers=[4,4]", "--dataset=svhn"])
    said = [str(given), given.hash(), given.to_dict(), given.build_exp_name("demo", "optim.lr", "dataset")]
    for name in ("p.yaml", "p.json"):
        given.to_file(name)
        again = lux.BaseParams().from_file(name)
        said += [Path(name).read_text(), again.to_dict(), again.diff(given)]
    variants = list(given.grid_search({"optim.lr": [0.1, 0.3], "dropout": [0.0, 0.5]}))
    said += [[variant.hash() for variant in variants], given.diff(variants[0])]
    for wrong in (["--epochs=5"], ["--dropout=2"], ["--dataset=mnist"]):
        try:
            given.from_args(wrong)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return _text(said)


def meters(_: Bench) -> str:
    average = lux.AvgMeter(window=3)
    for step in range(6):
        meter = lux.Meter()
        meter.step = step
        meter.loss = torch.tensor(1 / (step + 1))
        meter.acc = step / 8
        meter.percent(meter.acc_)
        average.update(meter, weight=2)
    other = lux.AvgMeter()
    other.update({"acc": 1.0}, weight=12)
    loss = average.loss
    numbers = [loss.mean, loss.last, loss.min, loss.max, loss.windowed, loss.count, loss.weight]
    return f"{meter}\n{average}\n{numbers}\n{average.merge(other).acc.mean}\n"


def saver(bench: Bench) -> str:
    folder = lux.runs(tags="trained")[0].folder / "files" / "save"
    kept = lux.Saver(folder)
    found = kept.load_latest_checkpoint()
    kept.close()
    made = lux.Saver(bench.work / "saves", max_to_keep=2, metric="loss", mode="min")
    for step, loss in enumerate((0.9, 0.4, 0.6, 0.3, 0.5)):
        made.save_checkpoint(step, {"step": step, "w": torch.full((2,), loss)}, {"loss": loss})
    names = [Path(path).name for path in made.find_checkpoints()]
    best = made.load_best_checkpoint()
    made.close()
    return _text([found.checkpoint, found.info, names, best.checkpoint, best.info])


def seeds(_: Bench) -> str:
    before = lux.random.get_state()
    try:
        lux.random.fix_seed("golden")
        drawn = [random.random(), float(np.random.rand()), torch.rand(2).tolist()]
        order = [batch.tolist() for batch in lux.DataLoader(torch.arange(8), batch_size=3, shuffle=True)]
    finally:
        lux.random.set_state(before)
    return _text([drawn, order])


def experiment(bench: Bench) -> str:
    """A run made in this process: its record as the next reader finds it."""
    with lux.Experiment(
        "made-now", {"lr": 0.1}, tags=["now"], note="here", quiet=True, system_s=0, code=False, output=False
    ) as exp:
        exp.log({"loss": 1.0}, step=0)
        exp.log("loss", 0.5, step=1)
        exp.metric("said", "text", step=1)
        part = Path(exp.hold_exp_part("save", [".txt"]))
        (part / "a.txt").write_text("kept")
    found = exp.run
    tables = {name: found.table(name).schema.names for name in sorted(found.tables())}
    files = sorted(str(path.relative_to(found.folder)) for path in found.folder.rglob("*") if path.is_file())
    return _text(
        [
            exp.state,
            found.params,
            found.metrics,
            found.tags,
            tables,
            [name for name in files if "blobs" not in name and name[0] != "."],
        ]
    )


def folder_state(bench: Bench) -> str:
    data = bench.work / "data"
    data.mkdir()
    (data / "labels.txt").write_text("cat\n")
    kept = lux.Saver(bench.work / "saves")
    kept.save_state(1, data=lux.FolderState(data))
    (data / "labels.txt").write_text("spoilt")
    (data / "added.txt").write_text("later")
    kept.resume(data=lux.FolderState(data))
    kept.close()
    return _text({path.name: path.read_text() for path in sorted(data.iterdir())})


def settings(_: Bench) -> str:
    lux.globs.update("global", "datasets", "/data")
    lux.globs.update("local", "sizes", [1, 2])
    return _text(
        [
            dict(lux.globs),
            lux.globs["store.lost_after_s"],
            lux.globs.scope("local"),
            str(lux.globs.local_fn),
            lux.__all__,
        ]
    )


CALLS: dict[str, Callable[[Bench], str]] = {
    "runs": runs, "run": run, "viewer": viewer, "trace-tables": trace_tables, "trace-tree": trace_tree, "traced-now": traced_now,
    "operators": operators, "analyze": analyze, "flops-of": flops_of, "params": params, "meters": meters, "saver": saver,
    "seeds": seeds, "experiment": experiment, "folder-state": folder_state, "settings": settings,
}  # fmt: skip
