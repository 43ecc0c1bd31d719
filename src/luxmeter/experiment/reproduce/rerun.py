"""A run's program once more: its code in a folder of its own, its command, its seed and random state, a new run.

The code comes from the git snapshot as a worktree (nothing of the user's HEAD, index, branches or files is touched),
or from the run's blobs. Nothing goes through a shell.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from luxmeter import scratch
from luxmeter.errors import StoreError, UsageError
from luxmeter.experiment import lineage
from luxmeter.experiment.capture import redaction
from luxmeter.experiment.capture.git import git_agrees, git_text
from luxmeter.experiment.query import source_code
from luxmeter.experiment.reproduce import handover
from luxmeter.experiment.reproduce.entries import check_entries, is_control
from luxmeter.experiment.reproduce.rollback import roll_back
from luxmeter.store import Command, Lab, Run, inside, is_own

# Variables of the run that decide numbers; everything else is this machine's own.
_DECIDING = (
    "PYTHONHASHSEED", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)  # fmt: skip


@dataclass(frozen=True)
class Rerun:
    """What came of it. `run` is the new run; `folder` where the code lay (still there only if it was to be kept)."""

    run: Run
    returncode: int
    folder: Path
    command: tuple[str, ...]
    left_out: tuple[str, ...]  # large files beside the code that the snapshot only names


@dataclass(frozen=True)
class Plan:
    """How to start a run's program."""

    argv: tuple[str, ...]  # behind the script
    script: str | None  # in the new folder, or absolute
    module: str | None
    cwd: Path
    by_luxmeter: bool  # the script knows nothing of us: `luxmeter run` keeps its run


def start_rerun(
    run: Run,
    lab: Lab,
    *,
    arguments: Sequence[str] | None = None,
    folder: Path | None = None,
    links: Sequence[str] = (),
    python: str = "",
    random_state: bool = True,
    quiet: bool = False,
    trust: bool = False,
) -> Rerun:
    """Start it again and wait for its end. `arguments` replace those of the command; `folder` is kept, else a
    temporary one is made and removed; `links` are paths of the project (data) to be linked into it. `trust` lets a
    run's program start that was not made here by this user."""
    command = _startable(run, trust=trust)
    with _checkout(run, folder, links) as checkout:
        plan = make_plan(run, command, checkout, arguments)
        words = _command(plan, run, checkout, python or sys.executable)
        with handover.handed_over(run, random_state=random_state) as file:
            output = subprocess.DEVNULL if quiet else _stderr()
            returncode = _wait(words, plan.cwd, _variables(run, lab, checkout, file), output=output)
            made = handover.run_made(file, run.name)
        if made is None:
            raise StoreError(
                "no-run-made",
                f"The program of run {run.id} ended with {returncode} and made no run.",
                "Look at what it printed; it must reach lux.Experiment, or be started by luxmeter run.",
            )
        code = run.snapshot
        left_out = tuple(code.git.get("left_out", ())) if code and code.git else ()
        return Rerun(made, returncode, checkout, tuple(words), left_out)


def start_for_job(
    run: Run,
    lab: Lab,
    job: Mapping[str, Any],
    *,
    folder: Path | None = None,
    links: Sequence[str] = (),
    python: str = "",
    output: int | None = None,
    trust: bool = False,
) -> int:
    """Start a run's program, with its code and command, for something else: it makes no run and finds the job by `job_given`.

    Its output goes to a file's number, by default to stderr. Returns its exit code.
    """
    command = _startable(run, trust=trust)
    with _checkout(run, folder, links) as checkout:
        plan = replace(make_plan(run, command, checkout), by_luxmeter=False)
        words = _command(plan, run, checkout, python or sys.executable)
        with handover.handed_over(run, random_state=True, job=job) as file:
            variables = _variables(run, lab, checkout, file)
            return _wait(words, plan.cwd, variables, output=_stderr() if output is None else output)


@contextlib.contextmanager
def _checkout(run: Run, folder: Path | None, links: Sequence[str]) -> Iterator[Path]:
    """The run's code with what it needs beside it."""
    with code_of(run, folder) as checkout:
        for name in links:
            _link(run, checkout, name)
        for watched in _watched(run, checkout):
            Path(watched).mkdir(
                parents=True, exist_ok=True
            )  # where it wrote to: git keeps no empty or ignored folder
        yield checkout


@contextlib.contextmanager
def code_of(run: Run, folder: Path | None = None) -> Iterator[Path]:
    """A folder with the run's code: `folder`, which must be empty and stays, or a temporary one."""
    code = run.snapshot
    if code is None or not (code.files or code.git):
        raise StoreError(
            "no-code-kept", f"Run {run.id} keeps no code.", "Runs made by lux.Experiment or luxmeter run do."
        )
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise UsageError(
            "folder-not-empty",
            f"There is something in {folder} already.",
            "Name a folder that is not there yet.",
        )
    temporary = None if folder else scratch.make("rerun")
    checkout = folder.absolute() if folder else (temporary or Path()) / _folder_name(code.root)
    tree = source_code.whole_tree(run)
    snapshot = str(code.git.get("snapshot", "")) if code.git else ""
    is_worktree = tree.repository is not None and git_agrees(tree.repository, "cat-file", "-e", snapshot)
    try:
        if is_worktree and tree.repository is not None:
            # What ran but is not in the tree: a submodule's files, ignored ones.
            besides = [path for path in code.files if path not in tree.files]
            check_entries(besides, {}, checkout)
            git_text(
                tree.repository, "worktree", "add", "--quiet", "--detach", "--force", str(checkout), snapshot
            )
            for path in besides:
                target = inside(checkout, path)
                if not target.parent.resolve().is_relative_to(checkout.resolve()) or target.is_symlink():
                    raise StoreError(
                        "link-outside",
                        f"{path} of this run's code lies behind a link.",
                        "It was not written.",
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(run.blob(code.files[path]))
        else:
            roll_back(run, checkout, checkpoints=False)
        yield checkout
    finally:
        if temporary is not None:
            if is_worktree and tree.repository is not None:
                git_agrees(tree.repository, "worktree", "remove", "--force", "--force", str(checkout))
            scratch.remove(temporary)


def _folder_name(root: str) -> str:
    """The project folder's own name where it can be one: the text comes out of a file."""
    name = Path(root).name
    return name if re.fullmatch(r"[\w-][\w. -]*", name) and not is_control(name) else "code"


def make_plan(run: Run, command: Command, checkout: Path, arguments: Sequence[str] | None = None) -> Plan:
    """Where and how to start it: paths inside the project become paths inside `checkout`."""
    code = run.snapshot
    root = Path(code.root) if code else Path(command.cwd)
    cwd = Path(command.cwd)
    below = cwd.relative_to(root) if cwd.is_relative_to(root) and ".." not in cwd.parts else None
    inner = cwd if below is None else checkout / below
    if not inner.is_dir():
        inner = checkout
    script = command.script
    if script is not None and not Path(script).is_absolute():
        script = str(inside(checkout, script))
    argv = tuple(command.argv[1:] if arguments is None else arguments)
    return Plan(argv, script, command.module, inner, by_luxmeter=command.by == "luxmeter run")


def import_roots(files: Sequence[str]) -> list[str]:
    """The folders that must be searched so that these files are found as they were: above each topmost package."""
    packages = {str(Path(name).parent) for name in files if Path(name).name == "__init__.py"}
    roots: dict[str, None] = {}
    for name in files:
        folder = Path(name).parent
        while str(folder) in packages:
            folder = folder.parent
        roots[str(folder)] = None
    return sorted(roots)


def _startable(run: Run, *, trust: bool) -> Command:
    command = run.command
    if command is None or (command.script is None and command.module is None) or command.interactive:
        what = (
            "was made in a notebook or a console" if command and command.interactive else "keeps no command"
        )
        raise StoreError(
            "not-startable",
            f"Run {run.id} {what}: there is no script to start again.",
            "luxmeter code shows its code, luxmeter rollback --to brings it into a folder.",
        )
    if not trust and not is_own(run.identity, run.folder):
        raise UsageError(
            "code-from-elsewhere",
            f"Run {run.id} was not made here by you, and its program would run with your rights: "
            f"{' '.join(map(str, command.argv))[:200]!r}.",
            f"Look at it with luxmeter code {run.id}; if you trust it, add --trust.",
        )
    return command


def _command(plan: Plan, run: Run, checkout: Path, python: str) -> list[str]:
    hidden = [word for word in plan.argv if redaction.HIDDEN in word]
    if hidden:
        raise UsageError(
            "argument-hidden",
            f"The command of run {run.id} had a secret in it, which is not kept: {hidden[0]}.",
            "Give it anew: luxmeter rerun RUN name=value.",
        )
    before = [python]
    if plan.by_luxmeter:
        before += ["-m", "luxmeter", "run", "--name", run.name]
        before += [word for folder in _watched(run, checkout) for word in ("--watch", folder)]
    if plan.module is not None:
        return [*before, "-m", plan.module, *plan.argv]
    if plan.script is None or not Path(plan.script).is_file():
        raise StoreError(
            "script-missing",
            f"The script {plan.script} is not among the code of the run.",
            "It lay outside of the project; put it back where it was.",
        )
    return [*before, plan.script, *plan.argv]


def _watched(run: Run, checkout: Path) -> list[str]:
    """The folders of the project that were watched, as far as something happened in them."""
    code = run.snapshot
    root = code.root if code else ""
    folders = dict.fromkeys(change.folder for change in run.changed_files)
    below = [Path(f).relative_to(root) for f in folders if root and Path(f).is_relative_to(root)]
    return [str(inside(checkout, folder)) if folder.parts else str(checkout) for folder in below]


def _variables(run: Run, lab: Lab, checkout: Path, order: Path) -> dict[str, str]:
    recorded = run.environment.get("variables", {})
    deciding = {
        name: str(recorded[name]) for name in _DECIDING if isinstance(recorded, Mapping) and name in recorded
    }
    code = run.snapshot
    paths = [str(checkout / root) for root in import_roots(list(code.files) if code else [])]
    variables = program_variables(lab, paths, order)
    return {**{k: v for k, v in variables.items() if k not in _DECIDING}, **deciding}


def program_variables(lab: Lab, paths: Sequence[str], order: Path) -> dict[str, str]:
    """The variables of a program whose code lies in a folder of its own; Python looks for modules in `paths` first."""
    # Its runs lie in none of ours.
    variables = {k: v for k, v in os.environ.items() if k != lineage.VARIABLE}
    # In front of everything: a project installed in place would otherwise give its present code, not that of the run.
    before = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        **variables,
        "LUXMETER_HOME": str(lab.folder),
        handover.VARIABLE: str(order),
        "PYTHONPATH": os.pathsep.join([*paths, *before]),
    }


def _wait(words: list[str], cwd: Path, variables: dict[str, str], *, output: int | None) -> int:
    """Wait for the program. What it prints goes to stderr: stdout is for the result."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        child = subprocess.Popen(
            words, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    except OSError as error:
        raise StoreError(
            "program-not-started",
            f"{words[0]} cannot be started: {error.strerror}.",
            "Name one with --python.",
        ) from error
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise


def _stderr() -> int | None:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return subprocess.DEVNULL  # a notebook's stream has no file: the output is in the new run's log


def _link(run: Run, checkout: Path, name: str) -> None:
    code = run.snapshot
    source = inside(Path(code.root if code else "."), name)
    target = inside(checkout, name)
    if not source.exists():
        raise UsageError(
            "nothing-to-link",
            f"There is no {name} in {source.parent}.",
            "Name a path below the project's folder.",
        )
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
