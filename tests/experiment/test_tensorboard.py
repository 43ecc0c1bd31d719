"""TensorBoard's event files: the real package reads ours, and we read what it and torch write."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter

import luxmeter as lux
from luxmeter.errors import LuxmeterWarning, UsageError
from luxmeter.experiment.transfer.tensorboard import (
    TensorBoardFiles,
    export_run,
    import_tensorboard,
    save_tensorboard_images,
    scalars,
)
from luxmeter.experiment.transfer.tensorboard_events import read_run, read_runs
from luxmeter.store import Histogram, Image, Lab, Text


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    opened = Lab.open(tmp_path / "lab")
    yield opened
    opened.close()


def event_file(folder: Path) -> Path:
    (path,) = folder.glob("*tfevents*")
    return path


def write_with_torch(folder: Path) -> None:
    writer = SummaryWriter(str(folder))
    for step in range(5):
        writer.add_scalar("train/loss", 1.0 / (step + 1), step)
    writer.add_image("sample", np.full((3, 4, 6), 0.5, np.float32), 2)
    writer.add_histogram("weights", np.arange(100.0), 3)
    writer.add_text("note", "first <b>line</b>", 1)
    writer.close()


def test_tensorboard_reads_our_scalars(tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path / "tb", clock=lambda: 1700000000.25) as files:
        for step in range(3):
            files.log({"loss": 1.5 * step, "acc": step}, step)
        files.log({"odd": math.inf}, 3)
    seen = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [(e.step, e.value, e.wall_time) for e in seen.Scalars("loss")] == [
        (0, 0.0, 1700000000.25),
        (1, 1.5, 1700000000.25),
        (2, 3.0, 1700000000.25),
    ]
    assert [e.value for e in seen.Scalars("acc")] == [0, 1, 2]
    assert seen.Scalars("odd")[0].value == math.inf


def test_tensorboard_reads_our_images_histograms_and_texts(tmp_path: Path) -> None:
    png = Image(np.zeros((4, 6, 3), np.uint8)).png
    with TensorBoardFiles(tmp_path) as files:
        files.log(
            {
                "img": Image(png),
                "w": Histogram(np.arange(100.0), bins=10),
                "said": Text("hello"),
                "s": "plain",
            },
            4,
        )
    seen = EventAccumulator(str(tmp_path)).Reload()
    (image,) = seen.Images("img")
    assert (image.width, image.height, image.encoded_image_string) == (6, 4, png)
    (histogram,) = seen.Histograms("w")
    assert histogram.histogram_value.num == 100
    assert histogram.histogram_value.sum == pytest.approx(4950)
    assert list(histogram.histogram_value.bucket) == [10.0] * 10
    assert tensor_util.make_ndarray(seen.Tensors("said/text_summary")[0].tensor_proto)[0] == b"hello"
    assert seen.Tensors("s/text_summary")[0].step == 4


def test_tensorboard_reads_our_hyperparameters(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TensorBoardFiles(tmp_path) as files:
        files.set_params(
            {"optim": {"lr": 0.1, "name": "sgd"}, "nesterov": True, "sizes": (1, 2), "none": None}
        )
        raise RuntimeError
    content = EventAccumulator(str(tmp_path)).Reload().summary_metadata
    start = HParamsPluginData.FromString(content["_hparams_/session_start_info"].plugin_data.content)
    read = {k: getattr(v, v.WhichOneof("kind")) for k, v in start.session_start_info.hparams.items()}
    assert read == {"optim.lr": 0.1, "optim.name": "sgd", "nesterov": True, "sizes": "(1, 2)"}
    end = HParamsPluginData.FromString(content["_hparams_/session_end_info"].plugin_data.content)
    assert end.session_end_info.status == 2  # failure


def test_steps_are_counted_when_none_is_given_and_nothing_follows_the_end(tmp_path: Path) -> None:
    files = TensorBoardFiles(tmp_path)
    files.log({"a": 1.0})
    files.log({"a": 2.0})
    files.flush()
    assert [e.step for e in EventAccumulator(str(tmp_path)).Reload().Scalars("a")] == [0, 1]
    files.close()
    files.close()
    files.log({"a": 3.0})
    assert len(EventAccumulator(str(tmp_path)).Reload().Scalars("a")) == 2


def test_what_has_no_form_is_left_out_with_a_word(tmp_path: Path) -> None:
    with TensorBoardFiles(tmp_path) as files, pytest.warns(LuxmeterWarning, match="tensorboard-no-form"):
        files.log({"array": [1.0, 2.0], "loss": 1.0}, 0)
    assert [e.value for e in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")] == [1.0]


def test_two_writers_of_one_folder_and_a_fork_have_files_of_their_own(tmp_path: Path) -> None:
    first, second = TensorBoardFiles(tmp_path), TensorBoardFiles(tmp_path)
    first.log({"a": 1.0}, 0)
    child = os.fork()
    if child == 0:  # the child's points must neither be lost nor repeat the parent's
        first.log({"a": 2.0}, 1)
        first.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    second.log({"a": 3.0}, 2)
    first.close()
    second.close()
    assert len(list(tmp_path.glob("*tfevents*"))) == 3
    assert sorted(read_run(tmp_path).points[1::4]) == [1.0, 2.0, 3.0]


def test_import_what_torch_wrote(tmp_path: Path, lab: Lab) -> None:
    write_with_torch(tmp_path / "tb" / "lr0.1")
    write_with_torch(tmp_path / "tb" / "lr0.2" / "inner")
    ids = import_tensorboard(lab, tmp_path / "tb")
    assert sorted(row.name for row in lab.runs()) == ["lr0.1", "lr0.2/inner"]
    run = lab.find(ids[0])
    assert run.state == "finished" and run.tags == ["tensorboard"]
    seen = EventAccumulator(str(tmp_path / "tb" / "lr0.1")).Reload().Scalars("train/loss")
    points = run.metric("train/loss").to_arrow().to_pylist()
    assert [(p["step"], p["value"]) for p in points] == [(e.step, e.value) for e in seen]
    assert [p["time_ns"] for p in points] == [int(e.wall_time * 1e9) for e in seen]
    assert run.created_ns <= points[0]["time_ns"] <= run.ended_ns
    kinds = {row["key"]: row for row in run.objects()}
    assert run.blob(kinds["sample"]["blob"]).startswith(b"\x89PNG") and kinds["sample"]["step"] == 2
    assert kinds["note"]["text"] == "first <b>line</b>"
    spread = kinds["weights"]["text"]
    assert sum(spread["counts"]) == 100 and spread["mean"] == pytest.approx(49.5)
    assert len(spread["edges"]) == len(spread["counts"]) + 1
    assert spread["edges"] == sorted(spread["edges"]) and spread["edges"][-1] <= 99.0
    assert lab.runs("metric.train/loss < 0.3")


def test_importing_again_adds_nothing_and_a_grown_run_is_brought_up_to_date(tmp_path: Path, lab: Lab) -> None:
    folder = tmp_path / "tb" / "a"
    files = TensorBoardFiles(folder)
    files.log({"loss": 1.0}, 0)
    files.flush()
    (run_id,) = import_tensorboard(lab, tmp_path / "tb")
    stamp = (lab.find(run_id).folder / "run.json").stat().st_mtime_ns
    assert import_tensorboard(lab, tmp_path / "tb") == [run_id]
    assert (lab.find(run_id).folder / "run.json").stat().st_mtime_ns == stamp, "it was written again"
    shutil.copytree(tmp_path / "tb", tmp_path / "copy" / "elsewhere")
    assert import_tensorboard(lab, tmp_path / "copy") == [run_id], "a copy is the same run"
    lab.find(run_id).marks.tag("mine")
    files.log({"loss": 0.5}, 1)
    files.close()
    assert import_tensorboard(lab, tmp_path / "tb") == [run_id]
    assert lab.find(run_id).metric("loss").to_arrow()["value"].to_pylist() == [1.0, 0.5]
    assert "mine" in lab.find(run_id).tags
    assert len(lab.runs()) == 1
    assert not [p for p in (lab.folder / "runs").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("cut", [1, 5, 13, 30])
def test_a_torn_end_loses_only_the_last_record(tmp_path: Path, lab: Lab, cut: int) -> None:
    write_with_torch(tmp_path / "tb")
    with TensorBoardFiles(tmp_path / "ours") as files:
        for step in range(4):
            files.log({"loss": float(step)}, step)
    path = event_file(tmp_path / "ours")
    path.write_bytes(path.read_bytes()[:-cut])
    (run_id,) = import_tensorboard(lab, tmp_path / "ours")
    assert lab.find(run_id).metric("loss").to_arrow()["value"].to_pylist() == [0.0, 1.0, 2.0]


def test_a_damaged_record_is_passed_over_and_said(tmp_path: Path, lab: Lab) -> None:
    with TensorBoardFiles(tmp_path / "tb") as files:
        for step in range(3):
            files.log({"loss": float(step)}, step)
    path = event_file(tmp_path / "tb")
    data = bytearray(path.read_bytes())
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += 16 + struct.unpack("<Q", data[at : at + 8])[0]
    data[starts[2] + 14] ^= 0xFF  # in the body of step 1
    path.write_bytes(bytes(data))
    with pytest.warns(LuxmeterWarning, match="event-file-damaged"):
        (run_id,) = import_tensorboard(lab, tmp_path / "tb")
    assert lab.find(run_id).metric("loss").to_arrow()["value"].to_pylist() == [0.0, 2.0]
    data[starts[1] + 3] ^= 0xFF  # a length: where the next record begins is unknown
    path.write_bytes(bytes(data))
    assert read_run(tmp_path / "tb").points == []


@pytest.mark.parametrize("content", [b"", b"\0", b"not an event file at all, only text"])
def test_a_file_without_any_record_is_no_run(tmp_path: Path, lab: Lab, content: bytes) -> None:
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.1").write_bytes(content)
    assert import_tensorboard(lab, tmp_path / "tb") == []


def test_a_folder_without_event_files_is_an_error(tmp_path: Path, lab: Lab) -> None:
    for place in (tmp_path / "home", tmp_path / "missing"):
        with pytest.raises(UsageError, match="no-event-files"):
            import_tensorboard(lab, place)


def test_hparams_of_torch_belong_to_the_run_they_were_added_to(tmp_path: Path, lab: Lab) -> None:
    writer = SummaryWriter(str(tmp_path / "tb"))
    writer.add_scalar("loss", 0.5, 0)
    writer.add_hparams({"lr": 0.1, "layers": 3, "name": "x", "on": True}, {"best": 0.9})
    writer.close()
    (run_id,) = import_tensorboard(lab, tmp_path / "tb")
    run = lab.find(run_id)
    assert run.params == {"lr": 0.1, "layers": 3, "name": "x", "on": True}
    assert set(run.metrics) == {"loss", "best"}


def test_what_a_resumed_training_logged_again_counts_once(tmp_path: Path) -> None:
    first = SummaryWriter(str(tmp_path))
    for step in range(6):
        first.add_scalar("loss", 1.0, step)
    first.close()
    again = SummaryWriter(str(tmp_path), purge_step=3, filename_suffix=".later")
    for step in range(3, 6):
        again.add_scalar("loss", 2.0, step)
    again.close()
    flat = read_run(tmp_path).points
    assert sorted(zip(flat[2::4], flat[1::4], strict=True)) == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 2),
    ]


def test_what_tensorflow_2_writes_is_read(tmp_path: Path) -> None:
    """Tensors with a plugin's name, which only the first value of a tag carries."""

    def value(tag: str, array: object, plugin: str = "") -> Summary.Value:
        made = Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(array))
        made.metadata.plugin_data.plugin_name = plugin
        return made

    png = Image(np.zeros((2, 3), np.uint8)).png
    values = [
        (value("loss", np.float32(0.5), "scalars"), 0),
        (value("loss", np.float32(0.25)), 1),
        (value("img", [b"3", b"2", png, png], "images"), 0),
        (value("w", np.array([[0.0, 1.0, 4.0], [1.0, 2.0, 6.0]]), "histograms"), 0),
        (value("said", [b"caf\xc3\xa9"], "text"), 0),
        (value("curve", np.zeros((6, 4), np.float32), "pr_curves"), 0),
    ]
    with open(tmp_path / "events.out.tfevents.1.host.v2", "wb") as file:
        writer = RecordWriter(file)
        for made, step in values:
            writer.write(Event(wall_time=1.5, step=step, summary=Summary(value=[made])).SerializeToString())
    run = read_run(tmp_path)
    assert run.points == ["loss", 0.5, 0, 1500000000, "loss", 0.25, 1, 1500000000]
    kinds = [(key, stored.kind) for key, _, _, stored in run.objects]
    assert kinds == [("img", "image"), ("img", "image"), ("w", "histogram"), ("said", "text")]
    histogram = json.loads(run.objects[2][3].text)
    assert (histogram["counts"], histogram["edges"], histogram["mean"]) == ([4, 6], [0, 1, 2], 1.1)
    assert json.loads(run.objects[3][3].text) == "café"
    assert run.left_out == {"pr_curves": 1}


def test_curves_and_images_are_taken_out(tmp_path: Path) -> None:
    write_with_torch(tmp_path / "tb" / "a")
    with TensorBoardFiles(tmp_path / "tb" / "b") as files:
        files.log({"../evil": Image(np.zeros((2, 2), np.uint8)), "loss": 1.0}, 0)
        files.log({"../evil": Image(np.ones((2, 2), np.uint8))}, 0)
    frame = scalars(tmp_path / "tb")
    assert list(frame.columns) == ["run", "key", "step", "value", "time_ns"]
    assert frame.groupby(["run", "key"]).size().to_dict() == {("a", "train/loss"): 5, ("b", "loss"): 1}
    assert len(scalars(tmp_path / "tb", ["loss"])) == 1
    images = save_tensorboard_images(tmp_path / "tb", tmp_path / "out")
    assert len(images) == 3 and all(path.read_bytes().startswith(b"\x89PNG") for path in images)
    assert all(path.resolve().is_relative_to(tmp_path / "out") for path in images)
    assert save_tensorboard_images(tmp_path / "tb", tmp_path / "one", keys=["sample"]) == [
        tmp_path / "one" / "a" / "sample" / "00000002.png"
    ]


def test_two_runs_that_begin_alike_stay_two(tmp_path: Path, lab: Lab) -> None:
    for name, loss in (("a", 1.0), ("b", 2.0)):
        with TensorBoardFiles(tmp_path / "tb" / name, clock=lambda: 1.0) as files:
            files.log({"loss": loss}, 0)
    ids = import_tensorboard(lab, tmp_path / "tb")
    assert len(set(ids)) == 2 and import_tensorboard(lab, tmp_path / "tb") == ids
    assert [run.name for run in read_runs(tmp_path / "tb")] == ["a", "b"]


def test_a_kept_run_becomes_an_event_file_and_comes_back(tmp_path: Path, lab: Lab) -> None:
    with lab.create_run("net", params={"lr": 0.1, "name": "x"}) as run:
        for step in range(4):
            run.log({"loss": 1.0 / (step + 1), "acc": float(step)}, step)
        run.log({"img": Image(np.zeros((2, 3), np.uint8)), "said": "hello", "array": [1, 2]}, 3)
    kept = lab.find(run.id)
    export_run(kept, tmp_path / "tb")
    seen = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [(e.step, e.value) for e in seen.Scalars("acc")] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert seen.Images("img")[0].step == 3
    back = read_run(tmp_path / "tb")
    assert back.params == {"lr": 0.1, "name": "x"} and back.status == "success"
    times = kept.metric("loss").to_arrow()["time_ns"].to_pylist()
    theirs = [back.points[i + 3] for i in range(0, len(back.points), 4) if back.points[i] == "loss"]
    assert theirs == pytest.approx(times, abs=1000)  # a double of seconds keeps a quarter of a microsecond


def test_an_experiment_writes_event_files_on_request(tmp_path: Path) -> None:
    with lux.Experiment("toy", {"lr": 0.1}, tensorboard=tmp_path / "tb", quiet=True) as exp:
        exp.log({"loss": 0.5, "acc": 0.25}, step=3)
        exp.log("loss", 0.25, step=4)
        exp.metric("acc", 0.75, 4)
    seen = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [(e.step, e.value) for e in seen.Scalars("loss")] == [(3, 0.5), (4, 0.25)]
    assert [(e.step, e.value) for e in seen.Scalars("acc")] == [(3, 0.25), (4, 0.75)]
    assert [p.value for p in lux.runs("toy")[0].metric("loss")] == [0.5, 0.25]
