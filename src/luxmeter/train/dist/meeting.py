"""The ranks of a job sign in where they meet. Rank 0 sees who is there, and all go on, or all hear what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.process import Process
from luxmeter.ranks import Rank
from luxmeter.train.dist.address import Address
from luxmeter.train.dist.agreement import numbered

_LOOKS_EVERY_S = 0.02
_SAYS_S = 15.0  # after which a rank says for whom it waits
_ANSWERS_S = 30.0  # for who listens where rank 0 should, to answer as it does
_READING_S = 5.0  # for the others to hear what is wrong, before the store goes with rank 0
_met: tuple[int, Meeting] | None = None  # and in which process: a forked one is no rank


@dataclass(frozen=True)
class SignIn:
    """What a rank says of itself."""

    rank: int
    world_size: int
    launcher: str
    process: dict[str, Any]
    device: str  # which GPU


@dataclass(frozen=True)
class Meeting:
    """Ranks that have met: what they share, and who they are."""

    own: Rank
    store: Any
    ranks: tuple[SignIn, ...]
    outlives_ranks: bool = False  # the store, which is their launcher's

    @property
    def backend(self) -> str:
        """NCCL beside gloo if every rank has a GPU of its own."""
        devices = {one.device for one in self.ranks if one.device}
        return "cpu:gloo,cuda:nccl" if len(devices) == len(self.ranks) else "gloo"


def current_meeting() -> Meeting | None:
    """Whom this process has met, if it has."""
    return _met[1] if _met is not None and _met[0] == os.getpid() else None


def meet(own: Rank, address: Address, timeout_s: float) -> Meeting:
    """Sign in, and wait for the others. What is wrong is raised on every rank that is there."""
    global _met
    if not 0 <= own.rank < own.world_size:
        raise UsageError(
            "rank-number",
            f"This process is told to be rank {own.rank} of {own.world_size}.",
            f"Ranks are numbered from 0 to {own.world_size - 1}: check what started it.",
        )
    deadline = time.monotonic() + timeout_s
    is_host = own.rank == 0 and not address.by_launcher
    store = part_of(_store(own, address, timeout_s, is_host=is_host), f"luxmeter/{address.attempt}")
    mine = json.dumps(asdict(_sign_in(own)))
    try:
        there = store.compare_set(_key(own.rank), "", mine).decode()
        if there != mine:
            raise LuxmeterError(
                "rank-twice",
                f"Two processes are rank {own.rank} of the job at {address}: {_named(there)} and {_named(mine)}.",
                "Give each process another RANK, and each job another MASTER_PORT.",
            )
        if own.rank == 0:
            _look_who_is_there(store, own, address, deadline, timeout_s, waits=is_host)
        else:
            _hear_what_is_wrong(store, own, address, deadline, timeout_s)
        ranks = tuple(SignIn(**json.loads(store.get(_key(rank)))) for rank in range(own.world_size))
    except RuntimeError as error:
        raise _no_main_rank(own, address, timeout_s, error) from error
    met = Meeting(own, store, ranks, address.by_launcher)
    _met = os.getpid(), met
    return met


def part_of(store: Any, name: str) -> Any:
    """A part of a store, whose names are its own."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    return PrefixStore(name, store)


def note(name: str, value: Any) -> None:
    """Leave a note for later attempts of this job: torchrun starts all ranks again when one fails, and its store outlives them.

    Where rank 0 keeps the store there are none: nothing is left.
    """
    store = _of_job()
    if store is not None:
        store.set(name, json.dumps(value))


def recall(name: str) -> Any:
    """What an earlier attempt noted; None if there was none."""
    store = _of_job()
    return json.loads(store.get(name)) if store is not None and store.check([name]) else None


def _of_job() -> Any:
    """The store of all attempts of a job, and of no other job that meets there."""
    met = current_meeting()
    if met is None or not met.outlives_ranks:
        return None
    return part_of(met.store.underlying_store, f"luxmeter/job/{os.environ.get('TORCHELASTIC_RUN_ID', '')}")


def _store(own: Rank, address: Address, timeout_s: float, *, is_host: bool) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    made: list[Any] = []

    def make() -> None:
        try:
            made.append(
                TCPStore(
                    address.host,
                    address.port,
                    is_master=is_host,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=timeout_s),
                )
            )
        except Exception as error:  # noqa: BLE001 - raised below
            made.append(error)

    # In a thread: at a port where something else listens and says nothing, torch waits forever.
    thread = threading.Thread(target=make, name="luxmeter-meeting", daemon=True)
    thread.start()
    began, listens_since, is_said = time.monotonic(), None, False
    while not made and (now := time.monotonic()) < began + timeout_s + 10:
        thread.join(0.5)
        if made or is_host:
            continue
        if not is_said and now > began + _SAYS_S:
            is_said = True
            unknown = "" if _is_known(address) else f"; no host {address.host} is known here"
            _say(
                f"rank {own.rank} of {own.world_size} waits for rank 0 at {address}, {timeout_s:g} s at most{unknown}"
            )
        if listens_since is None and _listens(address):
            listens_since = now
        if listens_since is not None and now > listens_since + _ANSWERS_S:
            timeout_s = _ANSWERS_S
            break
    [found] = made or [TimeoutError(f"{address} answers, but not as rank 0 does")]
    if not isinstance(found, Exception):
        return found
    if is_host and "EADDRINUSE" in str(found):
        raise LuxmeterError(
            "port-in-use",
            f"Rank 0 cannot listen at {address}: another program does.",
            "Set MASTER_PORT to a free port, or end what is left of a job before.",
        ) from found
    raise _no_main_rank(own, address, timeout_s, found) from found


def _is_known(address: Address) -> bool:
    """Whether its host has an address: a name may still get one."""
    try:
        return bool(socket.getaddrinfo(address.host, address.port))
    except OSError:
        return False


def _listens(address: Address) -> bool:
    """Whether any program does at that port."""
    try:
        with socket.create_connection((address.host, address.port), timeout=1.0):
            return True
    except OSError:
        return False


def _say(text: str) -> None:
    sys.stderr.write(f"luxmeter: {text}\n")
    sys.stderr.flush()


def _sign_in(own: Rank) -> SignIn:
    import torch

    device = ""
    if torch.cuda.is_available():
        number = (
            own.local_rank % torch.cuda.device_count()
        )  # a launcher may let each see one of its own alone
        device = str(torch.cuda.get_device_properties(number).uuid)
    return SignIn(own.rank, own.world_size, own.launcher, asdict(Process.here()), device)


def _look_who_is_there(
    store: Any, own: Rank, address: Address, deadline: float, timeout_s: float, *, waits: bool
) -> None:
    """On rank 0: who has signed in; what is wrong is written down, too."""
    try:
        missing = list(range(1, own.world_size))
        says_at = time.monotonic() + _SAYS_S
        while missing:
            missing = [rank for rank in missing if not _is_right(store, own, rank)]
            if not missing:
                break
            if time.monotonic() > deadline:
                raise _missing(own, address, missing, timeout_s)
            if time.monotonic() > says_at:
                says_at = float("inf")
                _say(
                    f"rank 0 of {own.world_size} waits for {numbered(missing)} at {address}, {timeout_s:g} s at most"
                )
            time.sleep(_LOOKS_EVERY_S)
    except LuxmeterError as error:
        store.set("verdict", json.dumps([error.slug, error.what, error.next_step]))
        if waits:
            present = sum(store.check([_key(rank)]) for rank in range(1, own.world_size))
            end = time.monotonic() + _READING_S
            while store.add("read", 0) < present and time.monotonic() < end:
                time.sleep(_LOOKS_EVERY_S)
        raise
    store.set("verdict", json.dumps([]))


def _is_right(store: Any, own: Rank, rank: int) -> bool:
    """Whether it is there; one that is there and is not of this job is an error."""
    if not store.check([_key(rank)]):
        return False
    other = SignIn(**json.loads(store.get(_key(rank))))
    if other.world_size != own.world_size:
        raise LuxmeterError(
            "world-size",
            f"Rank 0 is of {own.world_size} ranks, and rank {rank} of {other.world_size}.",
            "Start all of them with the same number (--processes, --nproc-per-node, WORLD_SIZE).",
        )
    return True


def _hear_what_is_wrong(store: Any, own: Rank, address: Address, deadline: float, timeout_s: float) -> None:
    while not store.check(["verdict"]):
        if time.monotonic() > deadline + _READING_S:
            missing = [rank for rank in range(own.world_size) if not store.check([_key(rank)])]
            raise _missing(own, address, missing or [0], timeout_s)
        time.sleep(_LOOKS_EVERY_S)
    wrong: Sequence[str] = json.loads(store.get("verdict"))
    if wrong:
        with contextlib.suppress(RuntimeError):
            store.add("read", 1)
        raise LuxmeterError(*wrong)


def _missing(own: Rank, address: Address, missing: Sequence[int], timeout_s: float) -> LuxmeterError:
    verb = "has" if len(missing) == 1 else "have"
    who = numbered(missing)
    return LuxmeterError(
        "ranks-missing",
        f"{who[0].upper()}{who[1:]} of {own.world_size} {verb} not come to {address} within {timeout_s:g} s.",
        "See what became of them (their output, their host), and whether they can reach that address.",
    )


def _no_main_rank(own: Rank, address: Address, timeout_s: float, error: Exception) -> LuxmeterError:
    said = " ".join(str(error).partition("\n")[0].split())
    keeper = "the launcher's store" if address.by_launcher else "rank 0"
    return LuxmeterError(
        "no-main-rank",
        f"Rank {own.rank} of {own.world_size} does not reach {keeper} at {address} within {timeout_s:g} s: {said}.",
        "See whether rank 0 runs, and whether MASTER_ADDR and MASTER_PORT are its host and port.",
    )


def _key(rank: int) -> str:
    return f"here/{rank}"


def _named(text: str) -> str:
    process = json.loads(text)["process"]
    where = "" if process["host"] == socket.gethostname() else f" on {process['host']}"
    return f"process {process['pid']}{where}"
