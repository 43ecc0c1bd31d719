"""Cases x dtypes x devices x backends, in rounds, in warm workers: `luxmeter.operators.check`."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from luxmeter import environment
from luxmeter.errors import UsageError, near_names
from luxmeter.files import refuse_unwritable
from luxmeter.isolate import Outcome, Pool
from luxmeter.operators.backends import BACKENDS, preload_of
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.checks.options import CheckOptions, CheckSettings, make_options
from luxmeter.operators.checks.records import CheckError, CheckResult, CheckRow, load_check, merged, put_check
from luxmeter.operators.checks.sources import captured
from luxmeter.operators.checks.work import MARK
from luxmeter.operators.dtypes import float_dtype
from luxmeter.progress import track
from luxmeter.supported import check_torch

DATABASES = {"opinfo": "opinfo", "modules": "module", "optimizers": "optimizer"}
_WORK = "luxmeter.operators.checks.work"
_SELDOM = 20.0  # times as long as writing rows down takes, they are not written again
_COMPUTE = ("torch", "onnxruntime", "mindspore", "numpy")
_LISTING_S = 120.0  # an import of a file, or of torch's databases, may take that long

CheckSource: TypeAlias = str | Path | Case | Operators | Callable[..., Any] | type


def check(*sources: CheckSource, **settings: Unpack[CheckSettings]) -> CheckResult:
    """Run operators for rounds of random inputs, and compare each with the CPU in a higher precision.

    Sources: `"opinfo"`, `"modules"`, `"optimizers"` (torch's databases; without any source, all three), operators
    that were captured, files or folders of test classes and functions, or such a class or function itself. Settings are the
    fields of `CheckOptions`. A crash or a hang is a row. Ctrl-C keeps what is done; `resume=FILE` goes on from there.
    Inside a run the result is put into it.

    >>> result = check("opinfo", only=["torch.nn.functional"], rounds=3)  # doctest: +SKIP
    """
    check_torch()
    options = make_options(settings)
    _refuse(options)
    kept = _Resumed(options.resume)
    with ExitStack() as stack:
        pools = _Pools(options, stack)
        cases, problems = _cases(sources or tuple(DATABASES), options, pools)
        jobs = _jobs(cases, options, pools)
        result = _Run(options, pools).run(jobs, problems, kept)
    return put_check(result)


def _refuse(options: CheckOptions) -> None:
    """What cannot be checked, before anything is."""
    for name, given in (
        ("dtypes", options.dtypes),
        ("device", options.devices),
        ("backends", options.backends),
    ):
        if not given:
            raise UsageError(
                "bad-check-option", f"check() cannot use an empty {name}.", "Name one, or leave it out."
            )
    for dtype in options.dtypes:
        if float_dtype(dtype) == "recorded":
            raise UsageError(
                "unknown-dtype", "A check needs a dtype, not 'recorded'.", "Give fp32, bf16, fp16 or fp64."
            )
    for backend in options.backends:
        BACKENDS.get(backend)
        options.python_for(backend)
    if options.workers is not None and options.workers < 1:
        raise UsageError(
            "bad-check-option", f"check() cannot use workers={options.workers}.", "Give 1 or more."
        )
    if options.samples is not None and options.samples < 1:
        raise UsageError(
            "bad-check-option", f"check() cannot use samples={options.samples}.", "Give 1 or more."
        )
    if options.timeout_s is not None and options.timeout_s <= 0:
        raise UsageError(
            "bad-check-option", f"check() cannot use timeout_s={options.timeout_s}.", "Give seconds above 0."
        )
    for device in options.devices:
        if device.partition(":")[0] == "meta":
            raise UsageError("check-device", "The device 'meta' computes nothing.", "Give one that does.")
    for name in options.setup:
        if name.endswith(".py") and not Path(name).is_file():
            raise UsageError("check-setup", f"There is no file {name} to import first.", "Check the path.")


class _Pools:
    """Workers of every interpreter that is needed; each imports the setup first."""

    def __init__(self, options: CheckOptions, stack: ExitStack) -> None:
        self._options, self._stack = options, stack
        self._pools: dict[str, Pool] = {}
        self._said: dict[str, dict[str, Any]] = {}

    def of(self, backend: str) -> Pool:
        """The pool a backend's cases run in."""
        python = self._options.python_for(backend)
        if python not in self._pools:
            files = [Path(s).resolve() for s in self._options.setup if s.endswith(".py")]
            names = [Path(s).stem if s.endswith(".py") else s for s in self._options.setup]
            made = Pool(
                workers=self._options.worker_count, python=python, paths=[str(f.parent) for f in files],
                preload=[*names, _WORK, *preload_of(backend)],
            )  # fmt: skip
            self._pools[python] = self._stack.enter_context(made)
        return self._pools[python]

    def versions(self, backend: str) -> dict[str, Any]:
        """Of what computes there, as the interpreter that a backend's cases run in has it."""
        python = self._options.python_for(backend)
        if python not in self._said:
            if python == sys.executable:
                self._said[python] = {"packages": environment.installed()}
            else:
                outcome = self.of(backend).run("luxmeter.operators.work:versions", timeout_s=_LISTING_S)
                self._said[python] = outcome.value if outcome.status == "ok" else {"packages": {}}
        return {name: self._said[python]["packages"].get(name) for name in _COMPUTE}

    def environment(self) -> dict[str, Any]:
        """Machine and versions: those of the interpreter that is checked; of others, that backends have, beside them."""
        others = {python: said for python, said in self._said.items() if python != sys.executable}
        asked = others.get(self._options.python, {})
        return {**environment.collect(), **({"interpreters": others} if others else {}), **asked}

    def ask(self, work: str, **args: Any) -> Any:
        """A question to a worker of the interpreter that is checked."""
        try:
            outcome = self.of("eager").run(f"{_WORK}:{work}", args, timeout_s=_LISTING_S)
        except UsageError as error:
            if error.slug != "worker-did-not-start" or not self._options.setup:
                raise
            raise UsageError(
                "check-setup",
                f"The setup {', '.join(self._options.setup)} cannot be imported. {error.what}",
                "Mend it.",
            ) from error
        if outcome.status != "ok":
            said = outcome.detail.strip().splitlines()[-1] if outcome.detail else outcome.reason
            raise UsageError(
                "check-worker", f"A worker cannot say what there is to check: {said}.", "See docs/check.md."
            )
        return outcome.value


# -- what there is to do --------------------------------------------------------------------------------------------


def _cases(
    sources: Sequence[CheckSource], options: CheckOptions, pools: _Pools
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cases of all sources that the filter leaves, and the files that could not be imported."""
    found: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    for source in sources:
        if isinstance(source, Case | Operators):
            found += captured.cases([source] if isinstance(source, Case) else source)
        elif isinstance(source, str) and source in DATABASES:
            found += pools.ask("list_cases", source=DATABASES[source])["cases"]
        elif callable(source):
            found += _of_callable(source, pools)
        else:
            made, bad = _of_path(Path(source), pools)
            found += made
            problems += bad
    if not found and problems:
        first = problems[0]
        raise _not_importable(first["path"], first)
    if not found:
        raise UsageError(
            "nothing-to-check",
            f"There are no cases to check in {', '.join(map(_named, sources))}.",
            "A test is a method test_... of a unittest.TestCase, or a function test_..., in a .py file."
            if all(isinstance(source, str | Path) for source in sources)
            else "Give operators, or a source that has some: opinfo, modules, optimizers, a file.",
        )
    # A file says which API its cases are of by where it lies; of one that does not, nothing is known.
    asked = [
        p
        for p in problems
        if not options.only or not p.get("api") or any(_matches(p, o) for o in options.only)
    ]
    return _chosen(found, options.only), asked


def _named(source: CheckSource) -> str:
    return str(source) if isinstance(source, str | Path) else f"the {type(source).__name__}"


def _chosen(cases: list[dict[str, Any]], only: Sequence[str]) -> list[dict[str, Any]]:
    """Those of a module or of a name; each pattern must choose some."""
    if not only:
        return cases
    kept = []
    for pattern in only:
        matching = [case for case in cases if _matches(case, pattern)]
        if not matching:
            names = {
                n
                for case in cases
                for n in (
                    case["api"],
                    case["name"],
                    case["api"].rpartition(".")[0],
                    case["api"].rpartition(".")[2],
                )
            }
            raise UsageError(
                "no-such-case",
                f"None of the {len(cases)} cases is of a module or a name {pattern!r}.",
                near_names(pattern, names)
                or "Give a module (torch.nn.functional), a name (torch.cos) or a pattern ('*conv*').",
            )
        kept += matching
    return list({json.dumps(case, sort_keys=True): case for case in kept}.values())


def _matches(case: dict[str, Any], pattern: str) -> bool:
    names = (case["api"], case["name"], case["api"].rpartition(".")[2])
    return any(fnmatch.fnmatchcase(name, pattern) for name in names) or case["api"].startswith(f"{pattern}.")


def _of_callable(source: Any, pools: _Pools) -> list[dict[str, Any]]:
    """The cases of one class or function."""
    import inspect

    try:
        file = inspect.getsourcefile(source)
    except (TypeError, OSError):  # typed into a prompt, or built in
        file = None
    if file is None or "<locals>" in source.__qualname__:
        raise UsageError(
            "check-import",
            f"{source!r} cannot be imported by a worker.",
            "Define it at the top of a file of its own.",
        )
    made, problems = _of_path(Path(file), pools)
    if problems:
        raise _not_importable(file, problems[0])
    name = source.__qualname__
    mine = [c for c in made if c.get("program", "").partition(".")[0] == name]
    if not mine:
        raise UsageError(
            "check-import",
            f"{name} of {file} is no test.",
            "Give a unittest.TestCase, or a function whose name begins with test_.",
        )
    return mine


def _of_path(path: Path, pools: _Pools) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cases of a file, or of all files of a folder; and what could not be imported."""
    if not path.exists():
        raise UsageError(
            "check-source", f"There is nothing to check called {str(path)!r}.",
            near_names(str(path), DATABASES) or f"Give {', '.join(DATABASES)}, an operators file, a trace, or a file or folder of tests.",
        )  # fmt: skip
    root = path.resolve() if path.is_dir() else path.resolve().parent
    files = (
        sorted(p for p in root.rglob("*.py") if p.name != "__init__.py")
        if path.is_dir()
        else [path.resolve()]
    )
    asked = [{"source": "program", "path": str(p), "root": str(root)} for p in files]
    answers: dict[int, Outcome] = dict(
        pools.of("eager").map(f"{_WORK}:list_cases", asked, timeout_s=_LISTING_S)
    )
    found: list[dict[str, Any]] = []
    problems = []
    for number, one in enumerate(asked):
        outcome = answers[number]
        said: dict[str, Any] = (
            outcome.value
            if outcome.status == "ok"
            else {"cases": [], "problem": outcome.reason, "traceback": outcome.output}
        )
        found += said["cases"]
        if "problem" in said:
            problems.append({"path": one["path"], "name": str(files[number].relative_to(root)), **said})
    if not path.is_dir() and problems:
        raise _not_importable(path, problems[0])
    return found, problems


def _not_importable(path: str | Path, problem: dict[str, Any]) -> UsageError:
    """With the user's own lines of the traceback below; a process that died left none."""
    said = f"{path} cannot be imported: {problem['problem'].rstrip('.')}."
    lines = problem["traceback"].strip()
    return UsageError("check-import", f"{said}\n{lines}\n" if lines else said, "Mend it, or leave it out.")


@dataclass(frozen=True)
class _Job:
    """One row to be."""

    base: dict[str, Any]
    args: dict[str, Any]
    missed: str = ""


def _jobs(cases: list[dict[str, Any]], options: CheckOptions, pools: _Pools) -> list[_Job]:
    jobs = []
    for device in options.devices:
        absent = pools.ask("has_device", device=device)
        if absent:
            raise UsageError(
                "check-device",
                f"There is no device {device!r} here: {absent}.",
                "A plug-in is imported with setup=.",
            )
        for dtype in map(float_dtype, options.dtypes):
            kinds = pools.ask("dtypes_of", cases=cases, dtype=dtype, device=device)
            for case, kind in zip(cases, kinds, strict=True):
                for backend in options.backends:
                    jobs.append(_job(case, kind, dtype, device, backend, options, pools))
    return list({job.base["key"]: job for job in jobs}.values())


def _job(
    case: dict[str, Any], kind: str, dtype: str, device: str, backend: str, options: CheckOptions, pools: _Pools
) -> _Job:  # fmt: skip
    args = {
        "case": case,
        "dtype": kind or dtype,
        "device": device,
        "backend": backend,
        "backward": options.backward,
        "samples": options.samples,
    }
    # Another torch, or a file that was changed since, is another question: what `resume` kept answers it not.
    files = [name for name in (*options.setup, case.get("file", "")) if name.endswith(".py")]
    where = [options.python_for(backend), pools.versions(backend), [_content(name) for name in files]]
    key = _hash([args, options.rounds, options.seed, list(options.setup), where])
    base = {"name": case["name"], "api": case["api"], "source": case["source"], "dtype": kind or dtype, "device": device,
            "backend": backend, "key": key}  # fmt: skip
    missed = case.get("missed", "") or ("" if kind else f"it does not take {dtype}")
    return _Job(base, args, missed)


def _content(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def seed_of(seed: int, name: str, round_: int) -> int:
    """The seed of a round of a case: the same whatever else is checked."""
    return int(_hash([seed, name, round_])[:7], 16)


# -- doing it -------------------------------------------------------------------------------------------------------


class _Run:
    """Does the jobs, keeps what is done, and looks closer at what failed."""

    def __init__(self, options: CheckOptions, pools: _Pools) -> None:
        self._options, self._pools = options, pools
        self._rounds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._started = time.time()

    def run(self, jobs: list[_Job], problems: list[dict[str, Any]], kept: _Resumed) -> CheckResult:
        """A row for each job; after Ctrl-C, for those that were done."""
        rows: dict[str, CheckRow] = {}
        machine = self._pools.environment()
        for job in jobs:
            if job.base["key"] in kept.rows:
                rows[job.base["key"]] = kept.rows[job.base["key"]]
            elif job.missed:
                rows[job.base["key"]] = CheckRow(**job.base, status="missed", reason=job.missed)
        waiting = [job for job in jobs if job.base["key"] not in rows]
        interrupted = False
        try:
            for backend in self._options.backends:
                interrupted = interrupted or self._do(
                    [job for job in waiting if job.base["backend"] == backend],
                    backend,
                    rows,
                    kept,
                    machine,
                    problems,
                )
        except KeyboardInterrupt:  # the second one: what is at hand is given up, what is done is not
            interrupted = True
        result = self._result(
            jobs, rows, problems, machine, complete=len(rows) == len(jobs) and not interrupted
        )
        kept.write(result)
        return result if self._options.including_success else result.without_success()

    def _do(
        self, jobs: list[_Job], backend: str, rows: dict[str, CheckRow], kept: _Resumed, machine: dict[str, Any],
        problems: list[dict[str, Any]],
    ) -> bool:  # fmt: skip
        """Whether it was interrupted."""
        if not jobs:
            return False
        pool = self._pools.of(backend)
        numbers: list[tuple[_Job, int]] = []
        work = pool.map(
            f"{_WORK}:check_round",
            self._items(jobs, numbers),
            timeout_s=self._options.patience_s(backend),
            alive=MARK,
        )
        total = len(jobs) * self._options.rounds
        progress = track(
            self._outcomes(work, numbers), f"checking on {backend}", total=total, quiet=self._options.quiet
        )
        for job in progress:
            progress.note(f"{job.base['name']} {job.base['dtype']}"[:60])
            done = self._rounds[job.base["key"]]
            if len(done) == self._options.rounds:
                row = merged(job.base, done)
                rows[job.base["key"]] = row
                if kept.is_due():
                    kept.write(self._result([], rows, problems, machine, complete=False))
        if not progress.interrupted:
            for job in jobs:  # those that hung have fewer rounds
                if job.base["key"] not in rows:
                    rows[job.base["key"]] = merged(job.base, self._rounds[job.base["key"]])
            self._explain(jobs, rows, pool, backend)
        return progress.interrupted

    def _items(self, jobs: list[_Job], numbers: list[tuple[_Job, int]]) -> Iterator[dict[str, Any]]:
        for job in jobs:
            for round_ in range(self._options.rounds):
                if any(done["ended"] == "hung" for done in self._rounds[job.base["key"]]):
                    break  # it would hang again, for as long
                numbers.append((job, round_))
                yield {**job.args, "seed": seed_of(self._options.seed, job.base["name"], round_)}

    def _outcomes(
        self, work: Iterator[tuple[int, Outcome]], numbers: list[tuple[_Job, int]]
    ) -> Iterator[_Job]:
        """The job of each round that ended, with what it gave noted down."""
        for number, outcome in work:
            job, round_ = numbers[number]
            self._rounds[job.base["key"]].append(self._round(job, round_, outcome))
            yield job

    def _round(self, job: _Job, round_: int, outcome: Outcome) -> dict[str, Any]:
        ended = {"ok": "ok", "crashed": "crashed", "timeout": "hung", "error": "failed"}[outcome.status]
        if outcome.status == "ok":
            return {**outcome.value, "round": round_, "ended": ended}
        at = [line for line in outcome.output.splitlines() if line.startswith(MARK)]
        printed = "\n".join(line for line in outcome.output.splitlines() if not line.startswith(MARK))
        error = {
            "sample": int(at[-1].removeprefix(MARK)) if at and at[-1].removeprefix(MARK).isdigit() else -1,
            "seed": seed_of(self._options.seed, job.base["name"], round_),
            "reason": outcome.reason.strip().partition("\n")[0],
            "traceback": (outcome.detail or printed)[-8000:],
        }  # fmt: skip
        return {"round": round_, "ended": ended, "errors": [error], "counts": {"failed": 1}}

    def _explain(self, jobs: list[_Job], rows: dict[str, CheckRow], pool: Pool, backend: str) -> None:
        """The first error of each row with a script that shows it, and with the smallest input if that was asked for."""
        wrong = [
            job
            for job in jobs
            if (row := rows.get(job.base["key"])) and row.errors and row.errors[0].sample >= 0
        ]
        if not wrong:
            return
        asked = [self._question(job, rows[job.base["key"]]) for job in wrong]
        work = pool.map(
            "luxmeter.operators.checks.explaining:explain", asked, timeout_s=self._options.patience_s(backend)
        )
        for number, outcome in track(work, "looking closer", total=len(wrong), quiet=self._options.quiet):
            if outcome.status == "ok":
                key = wrong[number].base["key"]
                first, *others = rows[key].errors
                first = replace(first, **outcome.value)
                rows[key] = replace(rows[key], reason=first.reason, errors=(first, *others))

    def _question(self, job: _Job, row: CheckRow) -> dict[str, Any]:
        first = row.errors[0]
        setup = [str(Path(s).resolve()) if s.endswith(".py") else s for s in self._options.setup]
        # A smaller input that may end the process is tried in a fork, and a device does not outlive one.
        forks = job.args["device"] == "cpu" and job.args["backend"] == "eager" and hasattr(os, "fork")
        shrinkable = row.status == "failed" or (row.status == "crashed" and forks)
        shrinkable = shrinkable and row.source != "program"  # which makes its inputs itself
        return {
            **{k: job.args[k] for k in ("case", "dtype", "device", "backend", "backward")},
            "seed": first.seed, "sample": first.sample, "part": first.part, "setup": setup, "reason": first.reason,
            "allowed": first.allowed, "shrink": self._options.shrink and shrinkable, "dies": row.status in ("crashed", "hung"),
        }  # fmt: skip

    def _result(
        self, jobs: list[_Job], rows: dict[str, CheckRow], problems: Iterable[dict[str, Any]], machine: dict[str, Any],
        *, complete: bool,
    ) -> CheckResult:  # fmt: skip
        ordered = (
            [rows[job.base["key"]] for job in jobs if job.base["key"] in rows]
            if jobs
            else list(rows.values())
        )
        ordered += [_unimportable(p, self._options) for p in problems]
        options = self._options
        said = {
            "rounds": options.rounds, "dtypes": list(options.dtypes), "device": list(options.devices), "backends": list(options.backends),
            "only": list(options.only), "samples": options.samples, "backward": options.backward, "seed": options.seed,
            "including_success": options.including_success, "setup": list(options.setup), "shrink": options.shrink,
        }  # fmt: skip
        return CheckResult(
            tuple(ordered), machine, said, self._started, time.time() - self._started, complete
        )


def _unimportable(problem: dict[str, Any], options: CheckOptions) -> CheckRow:
    error = CheckError(
        0, -1, options.seed, f"cannot be imported: {problem['problem']}", traceback=problem["traceback"]
    )
    return CheckRow(
        name=problem["name"], api=problem["name"], source="program", dtype=float_dtype(options.dtypes[0]), device=options.devices[0],
        backend=options.backends[0], status="failed", reason=error.reason, failed=1, errors=(error,),
    )  # fmt: skip


class _Resumed:
    """The file behind `resume`: rows are never lost, and keeping them takes little of the time."""

    def __init__(self, path: str | Path | None) -> None:
        self._path = path
        self._all: dict[str, CheckRow] = {}
        if path is not None:
            refuse_unwritable(Path(path))
        if path is not None and Path(path).exists():
            self._all = {row.key: row for row in _found_in(path) if row.key}
        self.rows = dict(self._all)
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether it is time to write."""
        return self._path is not None and time.monotonic() >= self._next

    def write(self, result: CheckResult) -> None:
        """What there is, with the rows of earlier calls; one that was asked anew, of a file or torch that changed, has gone."""
        if self._path is None:
            return
        start = time.monotonic()
        there = {_asked(row) for row in result}
        others = tuple(row for row in self._all.values() if _asked(row) not in there)
        replace(result, rows=(*result.rows, *others)).to_json(self._path)
        self._next = time.monotonic() + _SELDOM * (time.monotonic() - start)


def _found_in(path: str | Path) -> CheckResult:
    try:
        return load_check(path)
    except UsageError as error:
        if error.slug != "check-damaged":
            raise
        raise UsageError(
            "check-damaged", error.what, "Give --resume another name, or remove the file and check all anew."
        ) from error


def _asked(row: CheckRow) -> tuple[str, ...]:
    return row.name, row.source, row.dtype, row.device, row.backend
