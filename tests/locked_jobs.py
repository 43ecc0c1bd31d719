"""A job that tells who runs beside itself: for tests that kill what runs it, here and on Ray and Slurm."""

from __future__ import annotations

from pathlib import Path

# Called with its number, a folder and, if it is to end by itself, seconds; else it goes on until there is a file `go`. Each number
# holds a lock while it runs: who finds it held runs twice at once.
LOCKED = """
import fcntl, os, sys, time
number, folder, *seconds = sys.argv[1:]
lock = open(f"{folder}/{number}.lock", "w")
note = os.open(f"{folder}/noted", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    os.write(note, f"twice {number}\\n".encode())
os.write(note, f"began {number}\\n".encode())
for one in seconds:
    time.sleep(float(one))
while not seconds and not os.path.exists(f"{folder}/go"):
    time.sleep(0.05)
os.write(note, f"ended {number}\\n".encode())
"""


def noted(folder: Path) -> list[str]:
    """What jobs wrote down, in order."""
    file = folder / "noted"
    return file.read_text().splitlines() if file.is_file() else []
