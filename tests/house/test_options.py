"""An option is declared once, and has one name from the command line to the core; twins that Python needs are compared."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
import typer

from luxmeter.calls.options import TraceOptions, TraceSettings
from luxmeter.errors import UsageError
from luxmeter.experiment.options import ExperimentOptions, ExperimentSettings, RerunOptions
from luxmeter.experiment.reproduce.rerun import start_rerun
from luxmeter.operators.checks.options import CheckOptions, CheckSettings
from luxmeter.operators.mini import bench_model
from luxmeter.operators.options import BenchOptions, BenchSettings
from luxmeter.options import at_least, checked_options, declared, option
from luxmeter.train.options import TrainerOptions, TrainerSettings
from luxmeter.train.queue.options import JobOptions, SweepOptions, WorkerOptions
from luxmeter.view.cli import build_app
from luxmeter.view.notebook import BY, _options, load_ipython_extension
from luxmeter.view.startup import Request, read_request

DOCS = Path(__file__).parent.parent.parent / "docs"
TWINS = {
    TraceOptions: TraceSettings,
    ExperimentOptions: ExperimentSettings,
    BenchOptions: BenchSettings,
    CheckOptions: CheckSettings,
    TrainerOptions: TrainerSettings,
}
COMMANDS = [
    ("trace", Request), ("run", ExperimentOptions), ("bench", BenchOptions), ("check", CheckOptions), ("rerun", RerunOptions), ("reproduce", RerunOptions),
    ("queue add", JobOptions), ("queue work", WorkerOptions), ("sweep", SweepOptions), ("sweep", JobOptions), ("sweep", WorkerOptions),
]  # fmt: skip


def faults_of_twin(options: type, settings: type) -> list[str]:
    """Where the keyword arguments, as mypy knows them, differ from the declaration."""
    one = {name: str(kind) for name, kind in options.__annotations__.items()}
    two = {
        name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in settings.__annotations__.items()
    }
    return sorted(
        f"{name}: {one.get(name)}, {two.get(name)}" for name in {*one, *two} if one.get(name) != two.get(name)
    )


@pytest.mark.parametrize("options", TWINS, ids=lambda o: o.__name__)
def test_keyword_arguments_are_those_declared(options: type) -> None:
    assert faults_of_twin(options, TWINS[options]) == []


def test_a_planted_difference_of_twins_is_found() -> None:
    @dataclass(frozen=True)
    class One:
        same: int = option(1, "The same.")
        other: int = option(1, "Another type.")
        lacking: int = option(1, "Only here.")

    class Two(TypedDict, total=False):
        same: int
        other: str
        more: bool

    assert faults_of_twin(One, Two) == ["lacking: int, None", "more: None, bool", "other: int, str"]


def faults_of_command(parameters: Iterable[Any], options: type) -> list[str]:
    """Where a command's options have another name, default or help than the declaration."""
    known, faults = declared(options), []
    for parameter in parameters:
        said = known.get(parameter.name)
        if said is None:
            continue
        if parameter.opts[-1] not in (
            f"--{said.name}".replace("_", "-"),
            f"--{said.name[:-1]}",
            f"--no-{said.name}".replace("_", "-"),
        ):
            faults.append(f"{parameter.opts} is {said.name} in Python")
        if said.help.lower()[:-1] not in parameter.help.lower():
            faults.append(f"{said.name}: {parameter.help}")
        default = ",".join(said.default) if isinstance(said.default, tuple) else said.default
        if str(parameter.default) != str(default) and not said.many and default is not True:
            faults.append(f"{said.name}: {parameter.default!r} is {default!r} in Python")
    return faults


@pytest.mark.parametrize(("name", "options"), COMMANDS)
def test_a_command_has_the_declared_options(name: str, options: type) -> None:
    command: Any = typer.main.get_command(build_app())
    for word in name.split():
        command = command.commands[word]
    assert faults_of_command(command.params, options) == []
    taken = {parameter.name for parameter in command.params} & set(declared(options))
    assert len(taken) >= {RerunOptions: 4, WorkerOptions: 2}.get(options, 7)
    own = set(inspect.signature(inspect.unwrap(command.callback)).parameters)
    assert not own & set(declared(options)), "an option is declared a second time"


def test_a_planted_difference_of_a_command_is_found() -> None:
    app = typer.Typer()

    @app.command()
    def trace(
        sample: int = typer.Option(2, "--every", help="Each n-th."),
        only: list[str] = typer.Option(
            [], "--only", help="Record these only: a pattern (torch.*) or a YAML list."
        ),
    ) -> None: ...

    assert faults_of_command(typer.main.get_command(app).params, TraceOptions) == [
        "['--every'] is sample in Python",
        "sample: Each n-th.",
        "sample: 2 is 1 in Python",
    ]


def test_where_a_result_is_written_has_one_name() -> None:
    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    said = {name: p.opts for name, command in commands.items() for p in command.params if "-o" in p.opts}
    assert said.pop("trace") == ["-o", "--keep"]  # where the trace itself rests: keep= of lux.trace
    assert len(said) >= 4
    assert {name for name, opts in said.items() if opts != ["-o", "--out"]} == set()


def test_a_rerun_takes_the_declared_options() -> None:
    known = declared(RerunOptions)
    same = {n: p.default for n, p in inspect.signature(start_rerun).parameters.items() if n in known}
    assert same == {name: option.default for name, option in known.items()}


def test_a_mini_model_takes_what_bench_takes() -> None:
    known = declared(BenchOptions)
    same = {n: p.default for n, p in inspect.signature(bench_model).parameters.items() if n in known}
    assert set(same) == {"kernels", "threads", "budget_s", "resume", "quiet"}
    assert same == {name: known[name].default for name in same}


def test_the_magic_takes_options_of_a_trace() -> None:
    from luxmeter.calls.table import BY as GROUPINGS

    taken = {action.dest: action.option_strings for action in _options()._actions}
    assert {n: tuple(f) for n, f in taken.items() if n not in ("by", "top", "result")} == {
        name: declared(TraceOptions)[name].flags for name in taken if name not in ("by", "top", "result")
    }
    assert BY == GROUPINGS
    page = Path(inspect.getfile(load_ipython_extension)).read_text(encoding="utf-8")
    assert all(f"[{flags[0]}" in page for flags in taken.values()), "its help names them"


def undocumented(options: Mapping[str, Any], page: str, form: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [name for name in options if not re.search(form.format(name=name), text)]


def test_the_pages_name_every_option() -> None:
    assert undocumented(declared(TraceOptions), "tracing.md", r"`{name}=") == []
    assert undocumented(declared(BenchOptions), "benchmarking-operators.md", r"`{name}\b") == []
    assert undocumented(declared(CheckOptions), "check.md", r"`{name}\b") == []
    assert undocumented(declared(ExperimentOptions), "experiments.md", r"\b{name}=") == []
    assert undocumented(declared(TrainerOptions), "trainer.md", r"`{name}=") == []
    assert undocumented({"no_such_option": 0}, "tracing.md", r"`{name}=") == ["no_such_option"]


@pytest.mark.parametrize("options", [*TWINS, Request], ids=lambda o: o.__name__)
def test_what_is_declared_is_checked(options: type) -> None:
    for name, each in declared(options).items():
        assert each.help.endswith(".") or each.name == "keep", name
        assert each.wrong(each.default) == "", f"{name} refuses its default"
        if Any not in each.types:
            assert each.wrong(object()) != "", name


@dataclass(frozen=True)
class Made:
    flag: bool = option(False, "A flag.")
    count: int = option(1, "A number.", check=at_least(1))
    texts: tuple[str, ...] = option((), "Texts.", read=lambda given: tuple(given.split(",")))
    mode: Literal["min", "max"] | None = option(None, "One of a few.")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"flga": True}, "no option 'flga'. Did you mean 'flag'?"),
        ({"other": 1}, "It knows flag, count, texts, mode."),
        ({"flag": 3}, "cannot use flag=3. Give true or false."),
        ({"count": 0}, "cannot use count=0. Give 1 or more."),
        ({"count": 1.5}, "cannot use count=1.5. Give a whole number."),
        ({"count": True}, "cannot use count=True"),
        ({"mode": "best"}, "cannot use mode='best'. Give min or max or none."),
    ],
)
def test_what_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        checked_options(Made, given, who="make()", unknown="unknown-trace-option", bad="bad-trace-option")
    assert said in str(refused.value)


def test_what_is_taken() -> None:
    made = checked_options(Made, {"texts": "a,b", "count": 2}, who="make()", unknown="u", bad="b")
    assert made == Made(count=2, texts=("a", "b"))


def test_the_variable_knows_every_option_of_a_trace() -> None:
    assert read_request("strides=true max_pending=7 also=timm") == Request(
        strides=True, max_pending=7, also=("timm",)
    )
