"""parallel="fsdp" in real processes: what it computes, and the checkpoints that each rank writes a part of."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_ranks import as_torchrun, together
from many_ranks import Said, of, run_ranks
from small_training import Noisy, Small, same, saving
from torch import nn

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterError, LuxmeterWarning, UsageError
from luxmeter.experiment.checkpoint.format import Snapshot
from luxmeter.store import Run
from luxmeter.train import NaNGuard

ONE: dict[str, Any] = {"quiet": True}
FSDP: dict[str, Any] = {"quiet": True, "agree_every": 1, "parallel": "fsdp"}
DDP: dict[str, Any] = {**FSDP, "parallel": "ddp"}
ALL: dict[str, Any] = {"accumulate": 2, "clip_norm": 0.5, "ema": 0.9}


class Block(nn.Module):
    """A unit: two of them stand in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(7, 7), nn.LayerNorm(7)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        return xs + self.norm(torch.tanh(self.inner(xs)))  # type: ignore[no-any-return]


class Net(nn.Module):
    """With blocks, rows that do not come out even, a scalar, a buffer, and a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 7)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.batch_norm = nn.BatchNorm1d(7)
        self.back = nn.Linear(7, 7, bias=False)
        self.again = nn.Linear(7, 7)
        self.again.weight = self.back.weight
        self.scale = nn.Parameter(torch.ones(()))
        self.last = nn.Linear(7, 3)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(xs)
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.again(torch.tanh(self.back(self.batch_norm(hidden))))
        return self.last(hidden * self.scale)  # type: ignore[no-any-return]


class Even(Small):
    """Nothing is drawn, and every batch has its place: what two ranks compute together one process can compute, too."""

    batch = 4

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = Net()
        self.model.batch_norm.eval()
        self.model.batch_norm.requires_grad_(False)
        self.model.batch_norm.train = lambda mode=True: self.model.batch_norm  # type: ignore[method-assign]
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        if self.options.schedule:
            self.schedule = torch.optim.lr_scheduler.StepLR(self.optim, 1, 0.5)
        data = torch.utils.data.TensorDataset(Noisy().xs, Noisy().ys)
        self.regist_databundler(
            train=self.loader(data, batch_size=self.batch, shuffle=True),
            eval=lux.DataLoader(torch.utils.data.Subset(data, range(9)), batch_size=2),  # five batches
        )


class Wide(Even):
    batch = 8


class Drawing(Small):
    """With dropout and running means: what goes on bit by bit."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.model = nn.Sequential(Net(), nn.Dropout(0.3), nn.Linear(3, 3))
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=0.01)


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights; of a sharded model from all ranks, which each have to ask."""
    found: dict[str, Any] = model.state_dict()
    return {
        name: (one.full_tensor() if hasattr(one, "full_tensor") else one).clone()
        for name, one in found.items()
    }


def facts(trainer: Any) -> dict[str, Any]:
    return {
        "weights": whole(trainer.model),
        "losses": trainer.losses,
        "meter": trainer.meter.to_dict(),
        "eval": trainer.meters["eval"].to_dict(),
        "step": trainer.position.global_step,
        "run": str(trainer.run.folder),
        "rows": {
            name: len(one.to_local())
            for name, one in trainer.model.named_parameters()
            if hasattr(one, "to_local")
        },
    }


def trained(kind: type[Small], name: str, options: dict[str, Any] = FSDP, **train: Any) -> Any:
    trainer = kind({"epoch": 2}, **options)
    trainer.initial_exp(name if name.startswith("/") else f"./{name}")
    try:
        trainer.train(**train)
    finally:
        trainer.close()
    return trainer


def computed(name: str, kind: type[Small], options: dict[str, Any]) -> Callable[[int], Any]:
    return lambda rank: facts(trained(kind, name, options))


def resumed(name: str, options: dict[str, Any], steps: Collection[int]) -> Callable[[int], Any]:
    """In one go; and from checkpoints saved behind these steps, as if the processes had been killed there."""

    def made(rank: int) -> Any:
        first = trained(saving(Drawing), f"{name}-saved", {**options, "max_to_keep": None})
        found: dict[str, Any] = {
            "whole": facts(trained(Drawing, f"{name}-whole", options)),
            "saved": facts(first),
            "again": [],
        }
        torch.distributed.barrier()
        for path in first.saver.find_checkpoints():
            step = int(Path(path).name[:6])
            if step in steps:
                torch.rand(3)  # whatever was drawn before does not count
                found["again"].append((step, facts(trained(Drawing, f"{name}-again", options, resume=path))))
        return found

    return made


def refused(kind: type[Small], options: dict[str, Any]) -> Callable[[int], Any]:
    """What is said to a training that cannot be; on every rank."""

    def made(rank: int) -> Any:
        with pytest.raises(UsageError) as found:
            trained(kind, "refused", options)
        return str(found.value)

    return made


class ByParts(Even):
    def train_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: Any
    ) -> Any:
        return self.cross(self.model.last(self.model.first(batch_data[0])), batch_data[1])


class Holding(Even):
    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.to_look_at = self.model.last.weight


class Exact(Even):
    def initial_callback(self) -> None:
        super().initial_callback()
        NaNGuard(exact=True).hook(self)


class Stepped(Even):
    """Its optimizer has a state before anything is sharded."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        self.cross(self.model(Noisy().xs), Noisy().ys).backward()
        self.optim.step()
        self.optim.zero_grad()


class WideStepped(Stepped):
    batch = 8


class Lost(Even):
    def initial_callback(self) -> None:
        super().initial_callback()
        NaNGuard(gradients=True).hook(self)

    def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
        loss = super().train_batch(eidx, idx, global_step, *rest)
        is_lost = os.environ["RANK"] == "1" and global_step == 2
        return loss * float("nan") if is_lost else loss


def lost(rank: int) -> Any:
    with pytest.raises(LuxmeterError) as found:
        trained(Lost, "lost")
    return str(found.value)


class Asked(Drawing):
    def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
        if os.environ["RANK"] == "1" and global_step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return super().train_batch(eidx, idx, global_step, *rest)


def interrupted(rank: int) -> Any:
    trainer = Asked({"epoch": 2}, **FSDP)
    trainer.initial_exp("./asked")
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    torch.distributed.barrier()
    return facts(trained(Drawing, "goes-on", resume=str(Path("asked/Asked/save").absolute())))


def predicted(rank: int) -> Any:
    """Each rank of data of its own, of another length; by blocks that are named."""
    trainer = Even({"epoch": 1}, **{**FSDP, "shard_units": ("Linear", "LayerNorm")})
    trainer.initial_exp("./predicted")
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(Noisy().xs), batch_size=8)
    some = [batch[0] for batch in data][: 1 + 2 * rank]
    found = torch.cat(trainer.predict(iter(some)))
    shards = trainer._training.shards
    assert shards is not None
    said = {"said": found, "units": len(shards.units), "cost": ""}
    with pytest.raises(UsageError) as error:
        trainer.cost()
    trainer.close()
    return {**said, "cost": str(error.value)}


def goes_on(kind: type[Small], source: str, options: dict[str, Any]) -> Callable[[int], Any]:
    def made(rank: int) -> Any:
        trainer = kind({"epoch": 2}, **options)
        trainer.initial_exp("./goes-on")
        trainer.load_checkpoint(source)
        loaded = {
            "loaded": whole(trainer.model),
            "moments": moments(trainer),
            "at": trainer.position.global_step,
        }
        trainer.train()
        trainer.close()
        return {**facts(trainer), **loaded}

    return made


def moments(trainer: Any) -> list[torch.Tensor]:
    """What the optimizer remembers of each parameter."""
    found = [trainer.optim.state[one] for group in trainer.optim.param_groups for one in group["params"]]
    every = [value for one in found for value in one.values()]
    return [(one.full_tensor() if hasattr(one, "full_tensor") else one).clone() for one in every]


TWO: dict[str, Callable[[int], Any]] = {
    "plain": computed("plain", saving(Even), FSDP),
    "accumulated": computed("accumulated", Even, {**FSDP, **ALL, "schedule": "epoch"}),
    "stepped": computed("stepped", Stepped, {**FSDP, "clip_value": 0.01}),
    "bfloat16": computed("bfloat16", Even, {**FSDP, "amp": "bfloat16"}),
    # Behind a batch whose gradients wait, and before what an epoch leaves over.
    "resumed": resumed("resumed", {**FSDP, **ALL}, (1, 3)),
    "compile": refused(Even, {**FSDP, "compile": True}),
    "float16": refused(Even, {**FSDP, "amp": "float16"}),
    "units": refused(Even, {**FSDP, "shard_units": "Blok"}),
    "no fsdp": refused(Even, {**DDP, "shard_units": "Block"}),
    "by parts": refused(ByParts, FSDP),
    "holding": refused(Holding, FSDP),
    "exact": refused(Exact, FSDP),
    "lost": lost,
    "drawing": computed("drawing", Drawing, FSDP),
    "interrupted": interrupted,
    "predicted": predicted,
    "from one": goes_on(Drawing, "one.ckpt", {**FSDP, **ALL}),
    "to ddp": goes_on(Drawing, "resumed-saved/Saving/save/000001.ckpt", {**DDP, **ALL}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def two(folder: Path) -> Said:
    place = folder / "two"
    place.mkdir()
    with pytest.MonkeyPatch.context() as patch:  # before the fork: what one process saved
        patch.setenv("LUXMETER_HOME", str(folder / "lab"))
        one = trained(Drawing, str(folder / "one"), {**ONE, **ALL}, steps=3)
    for path in Path(one.saver.folder).glob("000003.ckpt*"):
        shutil.copy(path, place / path.name.replace("000003", "one"))
    torch.save({"weights": whole(one.model), "moments": moments(one)}, folder / "one.pt")
    return run_ranks(2, TWO, place)


def close(
    found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], *, but: Collection[str] = ()
) -> None:
    assert found.keys() == wanted.keys() > set(but)
    for name in wanted.keys() - set(but):
        value = wanted[name]
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("plain", Wide, {}),
        ("accumulated", Wide, {**ALL, "schedule": "epoch"}),
        ("stepped", WideStepped, {"clip_value": 0.01}),
    ],
)
def test_two_ranks_compute_what_one_process_does(
    two: Said, name: str, kind: type[Small], options: dict[str, Any]
) -> None:
    first, second = of(two, name)
    alone = facts(trained(kind, "alone", {**ONE, **options}))
    assert first["step"] == second["step"] == alone["step"] == 6
    assert same(first["weights"], second["weights"]) and first["eval"] == second["eval"]
    assert first["run"] == second["run"]
    close(first["weights"], alone["weights"])
    assert first["meter"] == pytest.approx(alone["meter"], rel=1e-4)
    assert first["eval"] == pytest.approx(alone["eval"])
    assert first["rows"]["first.weight"] == 4 and second["rows"]["first.weight"] == 3
    assert "scale" not in first["rows"]


def test_in_mixed_precision(two: Said) -> None:
    first, second = of(two, "bfloat16")
    alone = facts(trained(Wide, "alone", {**ONE, "amp": "bfloat16"}))
    assert same(first["weights"], second["weights"])
    assert first["meter"] == pytest.approx(alone["meter"], rel=0.02)
    assert not same(first["weights"], of(two, "plain")[0]["weights"])


def test_resumed_bit_by_bit(two: Said) -> None:
    resumed_alike(of(two, "resumed"))


def test_of_the_checkpoints_three_stay_whole(two: Said, folder: Path) -> None:
    of(two, "plain")
    files = (folder / "two" / "plain" / "Saving" / "save").iterdir()
    kept = Counter(one.name.partition(".ckpt")[0] for one in files)
    assert kept == {"000004": 6, "000005": 6, "000006": 6}  # itself and two shards, each with its side-car


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compile", "a sharded model is not compiled (compile=True)."),
        ("float16", "torch does not scale gradients of which some are sharded."),
        ("units", "shard_units names 'Blok', and model has no such module inside it. Did you mean 'Block'?"),
        ("no fsdp", "shard_units is set, but parallel is 'ddp'"),
        ("by parts", "uses weights of a sharded model outside of a call of it"),
        ("holding", "Holding.to_look_at is a parameter of a model"),
        ("exact", "NaNGuard(exact=True) keeps a copy of all weights"),
    ],
)
def test_what_cannot_be_is_said_on_every_rank(two: Said, name: str, text: str) -> None:
    for said in of(two, name):
        assert text in said and "\n" not in said, said


def test_a_nan_on_one_rank_ends_all(two: Said) -> None:
    first, second = of(two, "lost")
    assert "not finite on rank 1" in first and "is nan" in second


def test_ctrl_c_on_one_rank(two: Said) -> None:
    for again, wanted in zip(of(two, "interrupted"), of(two, "drawing"), strict=True):
        assert again["losses"] == wanted["losses"][2:] and same(again["weights"], wanted["weights"])


def test_ranks_that_predict_unlike_numbers_of_batches(two: Said) -> None:
    first, second = of(two, "predicted")
    alone = Even({"epoch": 1}, **ONE)
    alone.initial_exp("./alone")
    wanted = alone.predict(Noisy().xs)
    assert len(first["said"]) == 8 and len(second["said"]) == 24
    torch.testing.assert_close(first["said"], wanted[:8])
    torch.testing.assert_close(second["said"], wanted)
    assert first["units"] == 6  # two norms, and six layers but those two that share a weight
    assert "[fsdp-unfit]" in first["cost"]
    alone.close()


def test_a_checkpoint_of_one_process_goes_on_in_two(two: Said, folder: Path) -> None:
    saved = torch.load(folder / "one.pt")
    for said in of(two, "from one"):
        assert same(said["loaded"], saved["weights"])
        assert all(map(torch.equal, said["moments"], saved["moments"])) and len(saved["moments"]) > 30
        assert said["step"] == 3 + 2 + 3  # half of six batches is one and a half of three


def test_a_checkpoint_of_shards_goes_on_in_replicas(two: Said) -> None:
    """With gradients that waited, which are whole on each rank in both."""
    sharded = of(two, "resumed")[0]["whole"]
    first, second = of(two, "to ddp")
    assert first["at"] == 1 and first["step"] == 6
    assert same(first["weights"], second["weights"])
    # Whatever this bias is, the batch norm behind it takes it away: its gradient is a rounding error, which AdamW makes a step of.
    close(first["weights"], sharded["weights"], but=("0.blocks.1.norm.bias", "0.batch_norm.running_mean"))


def test_a_checkpoint_of_two_ranks_goes_on_in_one_process(two: Said, folder: Path) -> None:
    made = of(two, "resumed")[0]
    save = folder / "two" / "resumed-saved" / "Saving" / "save"
    trainer = Drawing({"epoch": 2}, **{**ONE, **ALL, "parallel": "fsdp"})
    trainer.initial_exp("./one")
    trainer.load_checkpoint(save / "000006.ckpt")
    assert same(whole(trainer.model), made["saved"]["weights"])
    assert trainer.eval().to_dict() == pytest.approx(made["saved"]["eval"])  # type: ignore[union-attr]  # by the averages
    trainer.load_checkpoint(save / "000002.ckpt")
    assert (trainer.position.idx, trainer.position.global_step) == (4, 2)  # of six batches of four
    trainer.train()
    assert trainer.position.global_step == 2 + 2 + 6
    assert any("in one process nothing is sharded" in told for told in trainer._training.told)
    trainer.close()


def resumed_alike(found: list[Any]) -> None:
    assert found[0]["whole"]["losses"] != found[1]["whole"]["losses"]  # each has data of its own
    for one in found:
        assert one["saved"]["losses"] == one["whole"]["losses"]  # saving changes nothing
        assert one["again"]
        for step, again in one["again"]:
            assert again["losses"] == one["whole"]["losses"][step:], step
            assert same(again["weights"], one["whole"]["weights"]), step
            assert again["eval"] == one["whole"]["eval"]


# -- the files ----------------------------------------------------------------------------------------------------------


class Marks:
    """Pickled, it makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def saved(two: Said, folder: Path, tmp_path: Path) -> Path:
    """The last two checkpoints that two ranks have written, to be spoilt."""
    of(two, "resumed")
    place = tmp_path / "save"
    place.mkdir()
    for one in (folder / "two" / "resumed-saved" / "Saving" / "save").glob("00000[56].*"):
        shutil.copy(one, place)
    return place


def shard(place: Path, rank: int) -> Path:
    [found] = place.glob(f"000006.ckpt.{rank}-of-2.*.shard")
    return found


def as_if_written(path: Path) -> None:
    """The side-car of what is there now."""
    side_car = path.with_name(f"{path.name}.json")
    body = path.read_bytes()
    said = {**json.loads(side_car.read_text()), "sha256": sha256(body).hexdigest(), "size_bytes": len(body)}
    side_car.write_text(json.dumps(said))


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_nothing_in_a_file_is_run(saved: Path, tmp_path: Path, protocol: int) -> None:
    body = pickle.dumps(Marks(tmp_path / "was-run"), protocol)
    for path in (shard(saved, 1), saved / ".metadata"):  # where torch's own checkpoints have a pickle
        path.write_bytes(body)
    as_if_written(shard(saved, 1))
    with pytest.raises(CheckpointError) as error:
        lux.Saver(saved).load_checkpoint(6)
    assert error.value.slug == "checkpoint-damaged"
    with pytest.warns(LuxmeterWarning, match="000005.ckpt is loaded instead"):
        assert lux.Saver(saved).load_latest_checkpoint().checkpoint["step"] == 5
    main = saved / "000006.ckpt"
    torch.save({"luxmeter_shards": [shard(saved, 0).name], "parts": Marks(tmp_path / "was-run")}, main)
    as_if_written(main)
    with pytest.raises(CheckpointError) as error:
        lux.Saver(saved).load_checkpoint(6)
    assert error.value.slug == "checkpoint-unsafe"
    assert not (tmp_path / "was-run").exists()
    pickle.loads(body)  # it would have been
    assert (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    "names", [["../000005.ckpt.0-of-2.0.a-1-00000000.shard"], ["/etc/passwd"], "x", [3], [None]]
)
def test_shards_lie_beside_their_checkpoint(saved: Path, names: Any) -> None:
    saver = lux.Saver(saved)
    saver.save_checkpoint(7, {"luxmeter_shards": names})
    with pytest.raises(CheckpointError) as error:
        saver.load_checkpoint(7)
    assert error.value.slug == "checkpoint-damaged" and "what it calls its shards are none" in str(
        error.value
    )


def spoil_gone(path: Path) -> None:
    path.unlink()


def spoil_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def spoil_other(path: Path) -> None:
    """Sound in itself, but the shard of another rank."""
    shutil.copy(shard(path.parent, 0), path)
    as_if_written(path)


@pytest.mark.parametrize("spoil", [spoil_gone, spoil_cut, spoil_other])
def test_a_checkpoint_that_lacks_a_shard_is_damaged(saved: Path, spoil: Callable[[Path], None]) -> None:
    spoil(shard(saved, 1))
    with pytest.raises(CheckpointError) as error:
        lux.Saver(saved).load_checkpoint(6)
    assert error.value.slug == "checkpoint-damaged"


def test_shards_go_with_their_checkpoint_and_with_those_who_wrote_no_more(saved: Path) -> None:
    saver = lux.Saver(saved)
    saver.remove(saved / "000005.ckpt")
    assert not list(saved.glob("000005*"))
    whole_again = saver.load_checkpoint(6).checkpoint
    left = (
        saved / "000009.ckpt.1-of-2.0.elsewhere-1-00000000.shard"
    )  # of a process on another host: it may yet come
    shutil.copy(shard(saved, 1), left)
    saver.save_checkpoint(6, whole_again)  # by one process, in its place: the shards belong to nothing
    saver.close()
    lux.Saver(saved)
    assert sorted(one.name for one in saved.iterdir()) == ["000006.ckpt", "000006.ckpt.json", left.name]
    again = lux.Saver(saved).load_checkpoint(6).checkpoint
    assert same(again["parts"]["model"]["state"], whole_again["parts"]["model"]["state"])


# -- started again ------------------------------------------------------------------------------------------------------


def job(folder: str, attempt: int, dies: bool) -> Any:
    """A training that saves behind each step; in its first attempt rank 1 is killed while it writes its third shard."""
    os.environ.update(
        LUXMETER_HOME=f"{folder}/lab",
        HOME=folder,
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT=str(attempt),
    )
    os.chdir(folder)
    write, written = Snapshot.write, []

    def killed(self: Snapshot, file: Any) -> Any:
        written.append(file.name)
        if len(written) == 3:
            file.write(b"torn")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return write(self, file)

    if dies and os.environ["RANK"] == "1":
        Snapshot.write = killed  # type: ignore[method-assign]  # of a forked process
    trainer = saving(Drawing)({"epoch": 2}, **{**FSDP, "max_to_keep": None})
    trainer.initial_exp("job")
    trainer.train()
    trainer.close()
    found = facts(trainer)
    return {**found, "weights": {name: one.tolist() for name, one in found["weights"].items()}}


def test_ranks_that_are_started_again_go_on_in_their_run(two: Said, tmp_path: Path) -> None:
    """Killed in the middle of a save: that checkpoint is none. The launcher's store, which outlives the ranks, is here."""
    (tmp_path / "killed").mkdir()
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def attempt(number: int) -> list[Any]:
        return together(job, as_torchrun(2, store.port), str(tmp_path / "killed"), number, number == 0)

    first = attempt(0)
    assert first[1] == -signal.SIGKILL and isinstance(first[0], Exception), first
    [run] = (tmp_path / "killed" / "lab" / "runs").iterdir()
    assert Run(run).state == "failed"
    save = run / "files" / "save"
    names = [one.name for one in sorted(save.glob("*.ckpt"))]
    assert names == ["000001.ckpt", "000002.ckpt"] and list(save.glob("000003.ckpt.0-of-2*.shard"))
    second = attempt(1)
    for again, wanted in zip(second, of(two, "drawing"), strict=True):
        assert isinstance(again, dict), second
        assert again["losses"] == wanted["losses"][2:]
        assert again["weights"] == {name: one.tolist() for name, one in wanted["weights"].items()}
        assert again["run"] == str(run)
    assert not [one for one in save.iterdir() if "tmp" in one.name or not one.name.startswith("0000")]
    assert len(list(save.glob("000003*"))) == 6  # of the second attempt alone
    found = Run(run)
    assert found.state == "finished"
    assert list((tmp_path / "killed" / "lab" / "runs").iterdir()) == [run]
    assert set(found.metric("train/loss").steps) >= set(range(6))
