"""A real Slurm of one node, in a folder of its own, for as long as the tests run. Needs root: slurmd starts jobs as their user."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

from luxmeter.process import dying_with

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")
CPUS = 2
MARK = "LUXMETER_TEST_MARK"  # in the environment of every process that a test starts
_CONF = """\
ClusterName=luxmeter
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why no Slurm can be started here; empty if it can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)} here (Debian's slurm-wlm and munge have them)"
    return "" if os.geteuid() == 0 else "a Slurm of our own needs root"


class SlurmCluster:
    """munged, slurmctld and slurmd, and all they wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # its path is short: a socket lies in it
        self.conf = folder / "slurm.conf"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start it, and wait until the node takes jobs."""
        for name in ("spool", "state"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        host = socket.gethostname().partition(".")[0]
        self.conf.write_text(
            _CONF.format(
                host=host, folder=self.folder, cpus=CPUS, controller_port=_free_port(), node_port=_free_port()
            )
        )
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        munge = {name: f"--{name}={self.folder}/munge.{name[:-5]}" for name in ("key-file", "pid-file", "log-file", "seed-file")}  # fmt: skip
        self._run(
            "munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *munge.values()
        )
        self._until(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._run("slurmctld", "-D", "-f", str(self.conf))
        self._run("slurmd", "-D", "-f", str(self.conf), "-N", host)
        self._until(self._is_up, "the node")

    def end(self) -> None:
        """End it, with all jobs."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["scancel", "--user=root", "--signal=KILL", "--full"],
                env=self.variables, capture_output=True, timeout=20, check=False,
            )  # fmt: skip
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs to use it."""
        kept = {name: value for name, value in os.environ.items() if name != MARK}  # it outlives a test
        return {**kept, "SLURM_CONF": str(self.conf)}

    def _run(self, *words: str) -> None:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        program = shutil.which(words[0], path=path)
        assert program is not None
        with (self.folder / f"{words[0]}.out").open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [program, *words[1:]],
                    env=self.variables, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                    preexec_fn=dying_with(os.getpid()),
                )
            )  # fmt: skip

    def _is_up(self) -> bool:
        asked = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"],
            env=self.variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return asked.stdout.strip() == "idle"

    def _until(self, holds: object, what: str) -> None:
        end = time.monotonic() + 60
        while not holds():  # type: ignore[operator]
            if time.monotonic() > end or any(p.poll() is not None for p in self._processes):
                logs = "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in self.folder.glob("*.[lo][ou][gt]"))  # fmt: skip
                self.end()
                raise RuntimeError(f"{what} of Slurm does not start\n{logs}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])
