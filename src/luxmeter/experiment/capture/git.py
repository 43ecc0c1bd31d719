"""One git command, byte by byte. The user's configuration decides nothing: no hooks, no pager, no lock on the index.

What the repository's own configuration names is never started: it may have come from elsewhere. Filters of the user's
own configuration (git-lfs) work.
"""

from __future__ import annotations

import functools
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
        "GIT_NO_LAZY_FETCH": "1",
        **(env or {}),
    }
    settings = {**_SETTINGS, **_harmless(root, _changed_ns(root))}
    environment["GIT_CONFIG_COUNT"] = str(len(settings))  # not as words: a name may hold a "="
    for number, (name, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return subprocess.run(
        ["git", *words],
        cwd=root,
        env=environment,
        input=given,
        capture_output=True,
        check=False,
    )


_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "commit.gpgSign": "false",
    "protocol.allow": "never",  # nor is a missing object fetched
    "protocol.ext.allow": "never",
    "protocol.file.allow": "never",
}
_PROGRAMS = r"^(filter|merge|protocol)\..*\.(clean|smudge|process|required|driver|allow)$"


@functools.lru_cache(maxsize=64)
def _harmless(root: Path, changed_ns: int) -> dict[str, str]:
    """What the repository sets that would start a program, as the user's own configuration has it: mostly not at all."""
    words = ("git", "config", "--includes", "--show-scope", "-z", "--get-regexp", _PROGRAMS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, check=False)
    parts = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    users: dict[str, str] = {}
    repositorys: dict[str, str] = {}
    for scope, setting in zip(parts[::2], parts[1::2], strict=False):
        name, _, value = setting.partition("\n")
        (users if scope in ("system", "global") else repositorys)[name] = value
    usual = {"allow": "never", "required": "false"}
    return {name: users.get(name, usual.get(name.rpartition(".")[2], "")) for name in repositorys}


def _changed_ns(root: Path) -> int:
    """When the repository's configuration was changed."""
    try:
        return (root / ".git" / "config").stat().st_mtime_ns
    except OSError:  # a worktree, whose configuration lies elsewhere; or none
        return 0
