"""Everything about one run, for a terminal. Takes a run and a stream; texts of the run are made harmless."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import IO

from luxmeter.plain_text import one_line, plain
from luxmeter.render import NUMBER, Column, Table, counted, long_span, size, sparkline
from luxmeter.store import Run, flatten, records
from luxmeter.train import paused_at
from luxmeter.view.text.runs import value_text, when_text

_MOST_FILES, _MOST_LINES = 20, 10
_ERROR_LINES = 8
_INSTALLED = re.compile(
    r"[\\/](site|dist)-packages[\\/]|[\\/]lib[\\/]python3|<frozen "
)  # on whatever machine it ran


def write_page(
    run: Run, out: IO[str], *, width: int = 100, system: bool = False, ranks: bool = False
) -> None:
    """Identity, parameters, metrics with their curves, results, code, files, the end of the output."""
    _head(run, out)
    params = flatten(dict(run.params))
    if params:
        out.write("\nparameters\n")
        broad = min(32, max(len(one_line(key)) for key in params))
        for key, value in params.items():
            out.write(f"  {one_line(key):{broad}}  {value_text(value)}\n")
    _metrics(run, out, width=width, system=system, ranks=ranks)
    _results(run, out)
    _code(run, out)
    _files(run, out)
    _output(run, out)


def _head(run: Run, out: IO[str]) -> None:
    out.write(f"{head_line(run)}\n")
    for name, text in head_facts(run).items():
        out.write(f"  {name:8} {text}\n")
    if run.error:
        out.write("  error\n" + "".join(f"    {line}\n" for line in _error_lines(plain(run.error))))


def _error_lines(text: str) -> list[str]:
    """The end of a traceback, without the frames of installed packages if others are left."""
    lines = text.strip().splitlines()
    kept: list[str] = []
    left_out, is_foreign = 0, False
    for line in lines:
        if line.startswith("  File "):
            is_foreign = _INSTALLED.search(line) is not None
            left_out += is_foreign
        elif not line.startswith("  "):
            is_foreign = False
        if not is_foreign:
            kept.append(line)
    if not left_out or not any(line.startswith("  File ") for line in kept):
        return lines[-_ERROR_LINES:]
    frames = "1 frame" if left_out == 1 else f"{left_out} frames"
    return [*kept[-_ERROR_LINES:], f"({frames} in installed packages left out: --error shows all)"]


def head_line(run: Run) -> str:
    """Its id, its name and how it stands."""
    step = paused_at(run)
    paused = "" if step is None else f", paused at step {step}"
    return f"{run.id}  {one_line(run.name)}  {run.state}{paused}"


def head_facts(run: Run) -> dict[str, str]:
    """When, how and where it was made, and what people say of it."""
    lines = [
        ("began", f"{when_text(run.created_ns)}, took {long_span(run.duration)}"),
        ("command", command_text(run)),
        ("on", machine_text(run)),
        ("tags", one_line(" ".join(run.tags))),
        ("note", plain(run.note).replace("\n", "\n" + " " * 11)),
        ("parent", run.parent or ""),
        ("children", " ".join(run.children)),
        ("archived", "yes" if run.archived else ""),
        ("folder", str(run.folder)),
    ]
    return {name: text for name, text in lines if text}


def command_text(run: Run) -> str:
    """The program with its arguments and seed."""
    command = run.command
    if command is None:
        return ""
    what = ["-m", command.module] if command.module else [command.script or "(a notebook or console)"]
    seed = "" if command.seed is None else f"   (seed {command.seed})"
    return one_line(shlex.join([*what, *command.argv[1:]])) + seed


def machine_text(run: Run) -> str:
    """Where it ran and with which versions."""
    # What a run says it ran on may be anything that somebody put there.
    said = [run.environment.get(part) for part in ("machine", "packages")]
    machine, packages = (part if isinstance(part, dict) else {} for part in said)
    gpus = machine.get("gpus")
    facts = [run.identity["process"]["host"], machine.get("processor")]
    facts += gpus if isinstance(gpus, list | tuple) else []
    facts.append(f"python {machine['python']}" if machine.get("python") else "")
    facts += [f"{name} {packages[name]}" for name in ("torch", "mindspore", "numpy") if name in packages]
    return one_line(", ".join(str(fact) for fact in facts if fact))


def _metrics(run: Run, out: IO[str], *, width: int, system: bool, ranks: bool) -> None:
    table = metrics_table(run, room=max(10, min(40, width - 70)), system=system, ranks=ranks)
    if table.rows:
        out.write("\n")
        table.print(out)
    else:
        out.write("".join(f"{note}\n" for note in table.notes))


METRIC_COLUMNS = (
    Column("metric"),
    Column("n", NUMBER),
    Column("step", NUMBER),
    Column("last", NUMBER),
    Column("min", NUMBER),
    Column("max", NUMBER),
    Column("curve"),
)


def metrics_table(run: Run, *, room: int, system: bool = False, ranks: bool = False) -> Table:
    """Its metrics, each with its curve in `room` letters."""
    metrics, others, sources = run.metrics, run.ranks, run.sources
    if ranks:
        for rank in others:
            metrics |= {f"{key}@rank{rank}": told for key, told in run.metrics_of(rank).items()}
    shown = [key for key in metrics if system or not key.startswith(records.SYSTEM)]
    rows: list[Sequence[object]] = []
    for key in shown:
        m = metrics[key]
        curve = sparkline(run.metric(key).values.tolist(), room)
        values = [value_text(m[k]) for k in ("last", "min", "max")]
        told = [sources.get(key, "")] if sources else []
        rows.append([key, m["n"], m["last_step"], *values, *told, curve])
    notes = []
    hidden = len(metrics) - len(shown)
    if hidden:
        notes.append(f"{hidden} more of the machine's load (CPU, memory): --system shows them")
    if others and not ranks:
        who = f"rank {others[0]}" if len(others) == 1 else f"{len(others)} other ranks"
        notes.append(f"{who} logged too: --ranks shows it")
    told_by = [Column("from")] if sources else []
    return Table([*METRIC_COLUMNS[:-1], *told_by, METRIC_COLUMNS[-1]], rows, notes=notes)


def _results(run: Run, out: IO[str]) -> None:
    found = run.results()
    if not found:
        return
    out.write("\nresults\n")
    broad = max(len(result.name) for result in found)
    for result in found:
        out.write(f"  {result.name:{broad}}  {one_line(result.title)}\n")
    out.write(f"  (luxmeter show {run.id}/{found[0].name} shows one)\n")


def _code(run: Run, out: IO[str]) -> None:
    code = run.snapshot
    if code is None:
        return
    out.write(f"\ncode     {counted(len(code.files), 'file')} that ran, of {one_line(code.root)}\n")
    git = code.git or {}
    if git.get("error"):
        out.write(f"  git      {one_line(str(git['error']))}\n")
    elif git:
        dirty = " with uncommitted changes" if git.get("dirty") else ""
        out.write(
            f"  git      {str(git.get('commit') or 'no commit')[:12]} on {git.get('branch') or 'no branch'}{dirty}\n"
        )
    out.write(f"  (luxmeter code {run.id} shows it)\n")


def _files(run: Run, out: IO[str]) -> None:
    final = list(run.final_files.values())
    put = [name for name in run.files if name not in {f"{c.part}/{c.path}" for c in final}]
    held = set(run.put_files())  # a part of the experiment that lies in the run itself
    if final or put:
        out.write("\nfiles\n")
    for change in final[:_MOST_FILES]:
        is_here = change.kept or f"{change.part}/{change.path}" in held
        kept = "kept" if is_here else "not kept"
        out.write(
            f"  {one_line(f'{change.part}/{change.path}')}  {size(change.size_bytes)}, {kept}, {change.sha256[:12]}\n"
        )
    for name in put[: max(0, _MOST_FILES - len(final))]:
        out.write(f"  {one_line(name)}\n")
    rest = len(final) + len(put) - _MOST_FILES
    if rest > 0:
        out.write(f"  ... and {rest} more\n")


def _output(run: Run, out: IO[str]) -> None:
    lines = plain(run.log_text).splitlines()
    if lines:
        out.write(
            f"\noutput   the last {min(len(lines), _MOST_LINES)} of {len(lines)} lines (--log shows all)\n"
        )
        out.write("".join(f"  {line}\n" for line in lines[-_MOST_LINES:]))
