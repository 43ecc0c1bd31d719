"""Registry, ranks, progress, errors and the environment."""

from __future__ import annotations

import io
import json
import os
import pickle
import shlex
import signal
import sys
import warnings
from pathlib import Path

import pytest

from luxmeter import environment, ranks
from luxmeter.errors import LuxmeterError, LuxmeterWarning, StoreError, UsageError, suggestion, warn_once
from luxmeter.files import from_json, to_json
from luxmeter.progress import track
from luxmeter.registry import Registry


def test_errors_say_what_and_what_next() -> None:
    error = StoreError("the-slug", "It broke at 3.", "Mend it.")
    assert str(error) == "It broke at 3. Mend it. [the-slug]"
    assert isinstance(error, LuxmeterError)
    again = pickle.loads(pickle.dumps(error))
    assert (again.slug, again.what, again.next_step) == ("the-slug", "It broke at 3.", "Mend it.")


def test_warnings_come_once_a_key() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for key in ("a", "a", "b"):
            warn_once("some-slug", "What.", "Next.", key=key)
    assert [w.category for w in seen] == [LuxmeterWarning] * 2


def test_no_message_steers_a_terminal() -> None:
    said = "a lab sets it to \x1b[31mred\u202egnp.exe\x9b"
    error = StoreError("the-slug", said, "Mend it.")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_once("some-slug", said, "Next.", key="steering")
    for text in (str(error), str(seen[0].message)):
        assert r"\x1b[31mred\u202egnp.exe\x9b" in text and "\x1b" not in text and "\u202e" not in text
    assert pickle.loads(pickle.dumps(error)).what == said


def test_suggestions() -> None:
    assert suggestion("epcoh", ["epoch", "batch"]) == "Did you mean 'epoch'?"
    assert suggestion("zzz", ["epoch"]) == ""


def test_registry() -> None:
    registry: Registry[type] = Registry("block")

    @registry.register("conv")
    class Conv:
        pass

    assert registry.get("conv") is Conv
    assert "conv" in registry and list(registry) == ["conv"] and len(registry) == 1
    with pytest.raises(UsageError, match=r"no block called 'cnov'.*Did you mean 'conv'"):
        registry.get("cnov")
    with pytest.raises(UsageError, match="name-taken"):
        registry.register("conv", int)
    registry.register("conv", int, replace=True)
    assert registry.get("conv") is int


def test_registry_reads_entry_points() -> None:
    registry: Registry[object] = Registry("command", group="console_scripts")
    assert "luxmeter" in registry
    assert callable(registry.get("luxmeter"))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (0, 1, 0, "none")),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1, "torchrun")),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, (2, 4, 0, "slurm")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2, 1, "openmpi")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2, 1, "mpich")),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 2, 1, "torchrun")),
        ({"RANK": "x", "WORLD_SIZE": "2"}, (0, 1, 0, "none")),
    ],
)
def test_ranks(env: dict[str, str], expected: tuple[int, int, int, str]) -> None:
    place = ranks.own_rank(env)
    assert (place.rank, place.world_size, place.local_rank, place.launcher) == expected


def test_progress_in_a_pipe_is_two_lines() -> None:
    stream = io.StringIO()
    assert list(track([1, 2, 3], "counting", stream=stream)) == [1, 2, 3]
    assert stream.getvalue() == "counting (3) ...\ncounting: done, 3 of 3\n"


def test_ctrl_c_keeps_what_is_done() -> None:
    stream = io.StringIO()
    before = signal.getsignal(signal.SIGINT)
    done = []
    loop = track(range(10), "work", stream=stream)
    for i in loop:
        if i == 3:
            os.kill(os.getpid(), signal.SIGINT)
        done.append(i)
    assert done == [0, 1, 2, 3]
    assert loop.interrupted
    assert "stopped early, 4 of 10" in stream.getvalue()
    assert signal.getsignal(signal.SIGINT) is before


def test_second_ctrl_c_is_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        for _ in track(range(10), "work", stream=io.StringIO()):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_environment_tells_the_truth() -> None:
    import numpy

    assert environment.versions(("numpy", "no-such-package")) == {
        "numpy": numpy.__version__,
        "no-such-package": None,
    }
    assert environment.extras()["tensorboard"] == {"tensorboard": True}
    assert environment.machine()["threads"] == os.cpu_count()
    assert environment.installed()["numpy"] == numpy.__version__
    assert set(environment.collect()) == {"machine", "load", "packages", "executable"}


@pytest.mark.parametrize(
    "value",
    [
        {"a": (1, [2, (3,)])},
        {"$tuple": 1},
        {"$float": "x", "b": 2},
        [float("-inf")],
        {"x": {"$repr": 1}},
        "x",
        None,
    ],
)
def test_json_gives_back_types(value: object) -> None:
    assert from_json(to_json(value)) == value


@pytest.mark.parametrize(
    ("origin", "given"),
    [
        (None, "luxmeter==1.2"),  # from an index
        ({"url": "file:///w/luxmeter-1.2-py3-none-any.whl", "archive_info": {}}, "luxmeter==1.2"),
        ({"url": "file:///w/luxmeter-1.2.tar.gz", "archive_info": {}}, "file:///w/luxmeter-1.2.tar.gz"),
        ({"url": "file:///w/a%20b", "dir_info": {}}, "file:///w/a%20b"),
        (
            {"url": "https://x/y", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "z"},
            "git+https://x/y@abc#subdirectory=z",
        ),
    ],
)
def test_how_luxmeter_is_built_anew(
    origin: dict[str, object] | None, given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command doctor prints; tests/flows/test_wheel.py follows it (make soak)."""
    installed = tmp_path / "luxmeter-1.2.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: luxmeter\nVersion: 1.2\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "luxmeter" / "environment.py"))
    words = shlex.split(environment.reinstall_command())
    assert words[0] == sys.executable and words[-1] == given
    assert {"--force-reinstall", "--no-cache-dir", "--no-deps"} < set(words)
