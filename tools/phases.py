"""Run the phases of `make test` one after another, and say how long each took.

    python tools/phases.py "lint=make lint" "tests=.venv/bin/python -m pytest"

All phases are run even if one fails; the exit code tells whether all passed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time


def main() -> None:
    """Entry."""
    results: list[tuple[str, float, int]] = []
    for argument in sys.argv[1:]:
        name, _, command = argument.partition("=")
        print(f"\n=== {name}: {command}", flush=True)
        start = time.monotonic()
        code = subprocess.run(shlex.split(command), check=False).returncode
        results.append((name, time.monotonic() - start, code))
        if code < 0 or code == 130:
            break  # Ctrl-C: the rest is not wanted
    print("\n=== phases")
    for name, seconds, code in results:
        print(f"{name:24} {seconds:7.1f} s   {'ok' if code == 0 else f'FAILED (exit code {code})'}")
    print(f"{'all':24} {sum(seconds for _, seconds, _ in results):7.1f} s", flush=True)
    sys.exit(0 if all(code == 0 for *_, code in results) else 1)


if __name__ == "__main__":
    main()
