"""One git command, byte by byte. The user's configuration decides nothing: no hooks, no pager, no lock on the index."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from luxmeter.errors import StoreError


def git_bytes(root: Path, *words: str, env: dict[str, str] | None = None, given: bytes = b"") -> bytes:
    """What the command prints; an error with git's own words if it refuses."""
    done = _run(root, words, env, given)
    if done.returncode:
        raise StoreError(
            "git-refused",
            f"git {words[0]} in {root} failed: {done.stderr.decode(errors='replace').strip()}.",
            "Mend what git names, then try again.",
        )
    return done.stdout


def git_text(root: Path, *words: str, env: dict[str, str] | None = None, given: str = "") -> str:
    """As `git_bytes`, as text without the last newline; names that are no UTF-8 survive a way there and back."""
    data = git_bytes(root, *words, env=env, given=given.encode("utf-8", "surrogateescape"))
    return data.decode("utf-8", "surrogateescape").rstrip("\n")


def git_agrees(root: Path, *words: str) -> bool:
    """Whether the command succeeds; False too where there is no git."""
    try:
        return _run(root, words, None, b"").returncode == 0
    except OSError:
        return False


def _run(
    root: Path, words: tuple[str, ...], env: dict[str, str] | None, given: bytes
) -> subprocess.CompletedProcess[bytes]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **(env or {}),
    }
    settings = (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.quotePath=false",
        "commit.gpgSign=false",
    )
    return subprocess.run(
        ["git", *(word for each in settings for word in ("-c", each)), *words],
        cwd=root,
        env=environment,
        input=given,
        capture_output=True,
        check=False,
    )
