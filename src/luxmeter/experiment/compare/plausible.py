"""How plausible it is that a difference between two runs changes what they compute: a judgement by kind and name."""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from luxmeter.described import told_apart
from luxmeter.experiment.compare.diff import Change, RunDiff
from luxmeter.experiment.query.source_code import FileDiff, captured_tree, read_source
from luxmeter.store import Run, records

CANNOT = 0.05  # at or below: practically cannot change a result

# By the last part of the name, first match wins.
_PARAMS = {
    "*dir": 0.03, "*path": 0.3, "*folder": 0.03, "*name": 0.1, "out*": 0.03, "log*": 0.03, "save*": 0.03, "print*": 0.03,
    "verbose": 0.02, "*workers": 0.1, "eidx": 0.02, "idx": 0.02, "global_step": 0.02, "device": 0.3, "tags": 0.02, "note*": 0.02,
    "data*": 0.9, "lr*": 1.0, "learning_rate": 1.0, "optim*": 1.0, "*": 0.8,
}  # fmt: skip
_PACKAGES = {
    "torch": 0.5, "torchvision": 0.3, "numpy": 0.3, "mindspore": 0.5, "scipy": 0.2, "scikit-learn": 0.3, "transformers": 0.4,
    "datasets": 0.3, "tokenizers": 0.3, "lightning": 0.3, "pytorch-lightning": 0.3, "accelerate": 0.3, "timm": 0.4, "jax*": 0.4,
    "nvidia-*": 0.3, "triton": 0.2, "pip": 0.0, "setuptools": 0.0, "wheel": 0.0, "pytest*": 0.0, "ruff": 0.0, "mypy*": 0.0, "*": 0.08,
}  # fmt: skip
_MACHINE = {
    "gpus*": 0.4,
    "processor": 0.2,
    "python": 0.15,
    "threads": 0.15,
    "cores": 0.1,
    "machine": 0.3,
    "*": 0.03,
}
_VARIABLES = {
    "*_NUM_THREADS": 0.15, "CUBLAS_*": 0.2, "CUDA_VISIBLE_DEVICES": 0.1, "CUDNN_*": 0.2, "PYTHONHASHSEED": 0.2, "TORCH*": 0.2,
    "PYTORCH_*": 0.15, "WORLD_SIZE": 0.6, "*": 0.03,
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One difference that may explain another. `weight` orders; above 1 only with evidence from other runs."""

    kind: str  # parameter, seed, code, package, machine, variable or command
    name: str
    what: str
    weight: float
    why: str
    evidence: str = ""


def candidates(diff: RunDiff) -> list[Candidate]:
    """Every difference, with how plausible it is that it matters."""
    found = [_parameter(change) for change in diff.params]
    ran = {*captured_tree(diff.a).files, *captured_tree(diff.b).files}
    found += [_code(file, diff, ran) for file in diff.code]
    for change in diff.environment:
        table = {"package": _PACKAGES, "machine": _MACHINE, "variable": _VARIABLES}[change.kind]
        weight = _weight(change.name, table)
        found.append(
            Candidate(change.kind, change.name, _shown(change), weight, _of_environment(change.kind))
        )
    known = bool(diff.params) or bool(diff.a.params)
    for change in diff.command:
        if change.name == "seed" and not any(c.kind == "seed" for c in found):
            found.append(
                Candidate("seed", "seed", _shown(change), 0.2, "decides what is drawn, not what is meant")
            )
        elif change.name != "seed":
            weight = CANNOT if known else 0.5  # what the script was told is in its parameters, if it has them
            found.append(
                Candidate("command", change.name, _shown(change), weight, "what the script was told")
            )
    return found


def _parameter(change: Change) -> Candidate:
    last = change.name.rpartition(".")[2].lower()
    if last in records.SEED_NAMES:
        return Candidate("seed", change.name, _shown(change), 0.2, "decides what is drawn, not what is meant")
    weight = _weight(last, _PARAMS)
    why = (
        "a parameter of the computation"
        if weight > 0.3
        else "by its name it names a place or a manner, not a method"
    )
    return Candidate("parameter", change.name, _shown(change), weight, why)


def _code(file: FileDiff, diff: RunDiff, ran: set[str]) -> Candidate:
    counted = (
        f"{file.path} (+{file.added} -{file.removed})"
        if file.kind == "changed"
        else f"{file.path} ({file.kind})"
    )
    suffix = Path(file.path).suffix
    if suffix == ".py" and file.kind == "changed" and _same_program(diff.a, diff.b, file.path):
        return Candidate("code", file.path, counted, 0.01, "comments or layout only")
    if file.path in ran:
        return Candidate("code", file.path, counted, 0.9, "code that ran")
    if suffix in (".yaml", ".yml", ".toml", ".json", ".ini", ".cfg", ".sh"):
        return Candidate("code", file.path, counted, 0.4, "a file of settings, if the program reads it")
    if suffix in (".py", ".ipynb", ".cu", ".cpp", ".c"):
        return Candidate("code", file.path, counted, 0.1, "code, but not imported by either run")
    return Candidate("code", file.path, counted, 0.02, "not a program")


def _same_program(a: Run, b: Run, path: str) -> bool:
    """Whether both texts parse to the same program."""
    try:
        one, two = (ast.dump(ast.parse(read_source(run, path))) for run in (a, b))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return one == two


def _weight(name: str, table: Mapping[str, float]) -> float:
    return next(weight for pattern, weight in table.items() if fnmatch.fnmatchcase(name, pattern))


def _shown(change: Change) -> str:
    return f"{change.name} {' -> '.join(told_apart(change.a, change.b, _short))}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _of_environment(kind: str) -> str:
    return {
        "package": "another version may compute otherwise",
        "machine": "another machine may round otherwise",
        "variable": "may change threads or algorithms",
    }[kind]
