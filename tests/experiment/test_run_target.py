"""What the callbacks of other trainers write into a run: parameters that are added, files, with and without an experiment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from luxmeter import Experiment
from luxmeter.errors import UsageError
from luxmeter.experiment.integrations.target import RunTarget
from luxmeter.store import Lab, activate


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab.open(tmp_path / "lab")
    yield lab
    lab.close()


def test_a_run_of_its_own_is_begun_and_ended(lab: Lab) -> None:
    target = RunTarget("bert", settings={"lab": lab, "quiet": True, "tags": ["callback"]})
    target.begin(name="other", params={"lr": 0.1, "api_key": "123"})
    target.add_params({"lr": 0.5, "model": {"layers": 2}})
    target.add_params({"model": {"layers": 3, "width": 8}})
    target.put_file("made/args.json", "{}")
    target.log({"loss": 1.0}, 1)
    target.end()
    run = lab.find("bert")
    assert run.state == "finished" and run.tags == ["callback"]
    assert run.params == {"lr": 0.1, "api_key": "(hidden)", "model": {"layers": 2, "width": 8}}
    assert (run.folder / "files" / "made" / "args.json").read_text() == "{}"
    assert [row.name for row in lab.runs("param.model.width = 8")] == ["bert"]


def test_a_run_that_goes_on_keeps_what_it_had(lab: Lab) -> None:
    with Experiment("outer", {"lr": 0.1}, lab=lab, quiet=True) as experiment:
        target = RunTarget(experiment)
        target.begin(name="inner", params={"lr": 0.5, "epochs": 3})
        target.end()
        assert experiment.state == "running"
    assert lab.find("outer").params == {"lr": 0.1, "epochs": 3}
    with lab.create_run("plain", params={"seed": 1}) as run, activate(run):
        target = RunTarget()
        target.begin(name="inner", params={"epochs": 3})
        target.put_file("args.json", "{}")
        target.end()
    assert lab.find("plain").params == {"seed": 1, "epochs": 3}
    assert (lab.find("plain").folder / "files" / "args.json").is_file()


def test_an_option_that_no_experiment_has_is_refused(lab: Lab) -> None:
    target = RunTarget("bert", settings={"lab": lab, "tag": ["x"]})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(UsageError, match=r"no option 'tag'. Did you mean 'tags'"):
        target.begin(name="other", params={})
