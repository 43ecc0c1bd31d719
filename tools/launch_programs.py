"""Install mpirun and Slurm for `make test-launch`, where that may be done; say in a line what is skipped where not.

    python tools/launch_programs.py

Only the standard library is used. What is installed are Debian's packages; they are asked to start no service (where systemd runs, munge may).
"""

from __future__ import annotations

import os
import shutil
import subprocess

# A program -> the package that has it, and which tests need it.
WANTED = {
    "mpirun": ("openmpi-bin", "those with mpirun"),
    "srun": ("slurm-wlm", "those with Slurm"),
    "slurmctld": ("slurm-wlm", "those with Slurm"),
    "munged": ("munge", "those with Slurm"),
}
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"


def main() -> None:
    """Entry."""
    packages = sorted({WANTED[name][0] for name in missing()})
    why = install(packages) if packages else ""
    for name in missing():
        package, tests = WANTED[name]
        print(f"skipped: {tests} need {name} (Debian's {package}): {why or 'it is not there'}", flush=True)
    if not missing() and os.geteuid() != 0:
        print("skipped: those with Slurm: a Slurm of our own is started by root only", flush=True)


def missing() -> list[str]:
    """The programs that are not here."""
    return [name for name in WANTED if shutil.which(name, path=PATH) is None]


def install(packages: list[str]) -> str:
    """Why they could not be installed; empty if they are."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return "only root may install it"
    print(f"installing {' '.join(packages)} ...", flush=True)
    settings = {
        **os.environ,
        "DEBIAN_FRONTEND": "noninteractive",
        "RUNLEVEL": "1",
    }  # so that no service is started
    for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-q", *words], env=settings, capture_output=True, text=True, check=False
        )
    if done.returncode == 0:
        return ""
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return f"apt-get failed: {said[-1] if said else done.returncode}"


if __name__ == "__main__":
    main()
