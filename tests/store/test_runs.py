"""A run from its beginning to its end, and everything read back."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from luxmeter.errors import StoreError, UsageError
from luxmeter.store import File, Histogram, Image, Lab, Run, Text, activate, active_run


def test_everything_comes_back(lab: Lab) -> None:
    params = {"lr": 0.1, "optim": {"betas": (0.9, 0.999), "name": "adam"}, "none": None, "nan": float("inf")}
    with lab.create_run("mnist", params=params, environment={"python": "3.11"}, tags=["best"]) as run:
        for step in range(100):
            run.log({"loss": 1 / (step + 1), "acc": step / 100}, step=step)
        run.put_file("notes/plan.txt", "hello")
        blob = run.put_blob(b"content")
    found = lab.find("latest")
    assert found.id == run.id
    assert found.params == params
    assert found.environment == {"python": "3.11"}
    assert found.state == "finished"
    assert found.tags == ["best"]
    assert found.metric("loss").to_arrow()["value"].to_pylist() == [1 / (step + 1) for step in range(100)]
    assert found.metric("loss").to_arrow()["step"].to_pylist() == list(range(100))
    assert found.metrics["acc"] == {"n": 100, "last": 0.99, "last_step": 99, "min": 0.0, "max": 0.99}
    assert found.file("notes/plan.txt").read_text() == "hello"
    assert found.put_files() == ["notes/plan.txt"]
    assert found.blob(blob) == b"content"
    assert len(found.records("metrics")) == len(found.frame("metrics")) == 200


def test_ended_run_is_parquet_and_complete_in_itself(lab: Lab, tmp_path: Path) -> None:
    with lab.create_run("a") as run:
        run.metric("loss", 0.5, 3)
        run.metric("picture", Image(np.zeros((4, 4))))
    assert not list(run.folder.rglob("*.arrows"))
    import shutil

    copy = tmp_path / "elsewhere" / run.id
    shutil.copytree(run.folder, copy)
    shutil.rmtree(lab.folder)
    read = Run(copy)
    assert read.metric("loss").to_arrow()["value"].to_pylist() == [0.5]
    assert read.blob(read.objects("picture")[0]["blob"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (True, 1.0),
        (0.25, 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7.0),
        (np.array([2.0]), 2.0),
        (torch.tensor(0.5), 0.5),
        (torch.tensor([0.5], requires_grad=True), 0.5),
        (torch.tensor(3), 3.0),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (float("inf"), math.inf),
        (float("-inf"), -math.inf),
    ],
)
def test_numbers_of_all_kinds_are_points(lab: Lab, value: object, expected: float) -> None:
    with lab.create_run("a") as run:
        run.metric("x", value, 0)
    assert lab.find("latest").metric("x").to_arrow()["value"].to_pylist() == [expected]


def test_nan_is_kept_and_not_the_least(lab: Lab) -> None:
    with lab.create_run("a") as run:
        for value in (1.0, float("nan"), 3.0):
            run.metric("x", value)
    found = lab.find("latest")
    assert math.isnan(found.metric("x").to_arrow()["value"].to_pylist()[1])
    assert found.metric("x").to_arrow()["step"].to_pylist() == [0, 1, 2]
    assert (found.metrics["x"]["min"], found.metrics["x"]["max"]) == (1.0, 3.0)
    assert lab.runs()[0].metrics["x"]["last"] == 3.0


def test_objects_of_all_kinds(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(b"123")
    with lab.create_run("a") as run:
        run.log(
            {"words": "hello", "more": Text("a\nb"), "hist": Histogram(torch.arange(10.0), bins=5)}, step=4
        )
        run.log({"small": [1, 2, 3], "tensor": torch.ones(2, 2), "large": np.zeros(5000)}, step=4)
        run.log({"image": Image(torch.rand(3, 8, 6)), "file": File(file), "path": file}, step=4)
    rows = {row["key"]: row for row in lab.find("latest").objects()}
    assert rows["words"]["text"] == "hello"
    assert rows["hist"]["text"]["counts"] == [2, 2, 2, 2, 2]
    assert rows["small"]["text"]["values"] == [1, 2, 3]
    assert rows["tensor"]["text"] == {"dtype": "float32", "shape": [2, 2], "values": [[1.0, 1.0], [1.0, 1.0]]}
    assert rows["large"]["suffix"] == ".npy"
    found = lab.find("latest")
    assert found.blob(rows["file"]["blob"]) == found.blob(rows["path"]["blob"]) == b"123"
    assert all(row["step"] == 4 for row in rows.values())


def test_image_is_a_real_png(lab: Lab) -> None:
    import io

    from PIL import Image as Pillow

    picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    read = np.asarray(Pillow.open(io.BytesIO(Image(picture).png)))
    assert (read == picture).all()
    grey = np.asarray(Pillow.open(io.BytesIO(Image(np.array([[0.0, 1.0]])).png)))
    assert grey.tolist() == [[0, 255]]


@pytest.mark.parametrize("value", [object(), {"a": 1}, 1 + 2j, 10**400, [object()], torch.nn.Linear(1, 1)])
def test_what_cannot_be_stored_names_its_key(lab: Lab, value: object) -> None:
    with lab.create_run("a") as run:
        with pytest.raises(UsageError, match=r"'my_key'.*value-not-storable"):
            run.log({"my_key": value}, step=1)
        run.metric("after", 1.0)  # the run goes on
    assert lab.find("latest").metrics["after"]["n"] == 1


def test_steps(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run.metric("x", 1.0)
        run.metric("x", 1.0)
        run.metric("y", 1.0, np.int64(5))
        run.metric("y", 1.0, torch.tensor(6))
        with pytest.raises(UsageError, match="step-not-integer"):
            run.metric("y", 1.0, 1.5)
    assert lab.find("latest").metric("x").to_arrow()["step"].to_pylist() == [0, 1]
    assert lab.find("latest").metric("y").to_arrow()["step"].to_pylist() == [5, 6]


def test_ends(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError), lab.create_run("fails"):
        1 / 0
    failed = lab.find("fails")
    assert failed.state == "failed"
    assert "ZeroDivisionError" in failed.error
    with pytest.raises(KeyboardInterrupt), lab.create_run("stops"):
        raise KeyboardInterrupt
    assert lab.find("stops").state == "interrupted"
    run = lab.create_run("living")
    assert lab.find("living").state == "running"
    assert lab.runs("state = running")[0].id == run.id
    run.finish()
    run.finish()
    assert lab.find("living").state == "finished"
    with pytest.raises(StoreError, match="run-ended"):
        run.metric("x", 1.0)
    with pytest.raises(StoreError, match="run-ended"):
        run.metric("x", "text")


def test_threads_lose_no_point(lab: Lab) -> None:
    with lab.create_run("a") as run:

        def work(number: int) -> None:
            for step in range(5000):
                run.metric(f"m{number}", float(step), step)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = lab.find("latest")
    for number in range(8):
        assert found.metric(f"m{number}").to_arrow()["step"].to_pylist() == list(range(5000))


def test_follow_gives_each_row_once(lab: Lab) -> None:
    run = lab.create_run("a")
    follower = lab.find(run.id).follow()
    assert follower.new() is None
    seen: list[int] = []
    for part in range(5):
        for step in range(part * 10, part * 10 + 10):
            run.log({"x": float(step), "y": 0.0}, step=step)
        run.flush()
        if part in (1, 3):
            seen += follower.new()["step"].to_pylist()
    run.finish()  # sorted by key and compacted: the follower still knows what it gave
    seen += follower.new()["step"].to_pylist()
    assert sorted(seen) == sorted([*range(50), *range(50)])
    assert follower.new() is None


def test_names_outside_are_refused(lab: Lab) -> None:
    with lab.create_run("a") as run:
        for name in ("../x", "/etc/x", "a/../../x", "", "a\\b"):
            with pytest.raises(UsageError, match="name-outside"):
                run.put_file(name, b"")


def test_a_run_that_another_thread_ended_is_not_active_any_more(lab: Lab) -> None:
    entered = activate(lab.create_run("a"))
    run = entered.__enter__()

    def end() -> None:
        run.finish()
        with pytest.raises(ValueError, match="different Context"):
            entered.__exit__(None, None, None)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert active_run() is None


def test_active_run_is_known_in_threads_too(lab: Lab) -> None:
    assert active_run() is None
    with lab.create_run("outer") as outer, activate(outer):
        seen = []
        thread = threading.Thread(target=lambda: seen.append(active_run()))
        thread.start()
        thread.join()
        assert seen == [outer]
        with lab.create_run("inner") as inner, activate(inner):
            assert active_run() is inner
        assert active_run() is outer
    assert active_run() is None


def test_blobs_are_kept_once(lab: Lab) -> None:
    with lab.create_run("a") as first, lab.create_run("b") as second:
        name = first.put_blob(b"same")
        assert second.put_blob(b"same") == name
    paths = list(lab.folder.rglob(name))
    assert len(paths) == 3  # the pool and two links
    assert len({path.stat().st_ino for path in paths}) == 1
    paths[1].unlink()
    paths[1].write_bytes(b"other")
    with pytest.raises(StoreError, match="blob-damaged"):
        Run(paths[1].parent.parent.parent).blob(name)


def test_files_are_plain_json(lab: Lab) -> None:
    with lab.create_run("a", params={"x": (1, float("nan"))}) as run:
        pass
    text = (run.folder / "params.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"x": {"$tuple": [1, {"$float": "nan"}]}}
