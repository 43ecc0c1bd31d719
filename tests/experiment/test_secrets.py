"""Keys, tokens and passwords are neither captured nor written down; what only looks a little like one is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from luxmeter.described import described
from luxmeter.experiment.capture.git import git_text
from luxmeter.experiment.capture.redaction import HIDDEN, hide_argv, hide_params
from luxmeter.experiment.capture.secrets import is_secret_file
from luxmeter.store import Lab

GITHUB, AWS = (
    "gh" + "p_" + "a1B2" * 9,
    "AKIA" + "IOSFODNN7" + "ABCDEFG",
)  # in pieces: scanners read tests, too
KEY = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_key", "x1"), ("openai_key", "x1"), ("wandb_key", "x1"), ("huggingface_token", "x1"), ("pass", "x1"), ("db_pw", "x1"),
        ("userPassword", "x1"), ("accessToken", "x1"), ("dbPass", "x1"), ("header", "Bearer abcdefgh12345678"), ("a", GITHUB),
        ("url", "https://x1token@host/a"), ("url", "https://me:x1@host/a"), ("url", "https://host/a?token=x1&b=2"),
        ("url", "https://s3/b?X-Amz-Signature=x1&X-Amz-Credential=x1"), ("urls", ["https://host/?sig=x1"]), ("api_tokens", ["x1", "x2"]),
        ("secrets", ("x1", {"a": "x1"})), ("nested", {"deeper": [{"password": "x1"}]}), ("text", f"use {AWS} for it"),
        ("authorization", "Basic x1"), ("command", "curl -H 'Authorization: token x1abcdef'"), ("azure", "a=b;AccountKey=x1" + "a" * 30 + "==;c=d"),
        ("hook", "https://hooks.slack.com" + "/services/T00/B00/x1" + "a" * 20),
    ],
)  # fmt: skip
def test_values_that_are_hidden(name: str, value: Any) -> None:
    shown = str(hide_params(described({name: value})))
    assert HIDDEN in shown and "x1" not in shown and GITHUB not in shown and AWS not in shown
    assert "Bearer abc" not in shown


def test_all_below_credentials_is_hidden() -> None:
    found = hide_params({"credentials": {"user": "me", "parts": [1, 2], "none": None, "on": True}})
    assert found == {"credentials": {"user": HIDDEN, "parts": HIDDEN, "none": None, "on": True}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 5), ("pad_token", "<pad>"), ("tokenizer", "bert"), ("two_pass", True), ("forward_pass", 3), ("key", "loss"),
        ("sort_key", "name"), ("monkey", "a"), ("password", None), ("url", "https://host/path?page=2"), ("url", "ssh://git@host/a.git"),
        ("bypass", "no"), ("text", "Basic training of a bearer"), ("passes", "two"), ("keys", ["a", "b"]), ("sha", "a" * 64),
        ("authorization", True), ("authorizations", "all"), ("text", "Authorization is off"),
    ],
)  # fmt: skip
def test_values_that_stay(name: str, value: Any) -> None:
    assert hide_params({name: value}) == {name: value}


def test_command_lines() -> None:
    words = ["t.py", "--pass", "x1", "--key", "x1", "--lr", "0.1", "--hf-token=x1", "pw=x1", "https://x1@h/?token=x1", "key=loss", "--two-pass"]  # fmt: skip
    shown = hide_argv(words)
    assert "x1" not in " ".join(shown)
    assert shown[5:7] == ["--lr", "0.1"] and shown[-2:] == ["key=loss", "--two-pass"]


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", "prod.env", "id_rsa", "id_ed25519", "secrets.yaml", "server.pem", "a.key", "credentials.json", ".netrc",
     ".pypirc", "service-account.json", "token.txt", "my_secrets.toml", "passwords.txt", "kaggle.json", ".ssh/config",
     ".aws/config"],
)  # fmt: skip
def test_files_told_by_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    assert is_secret_file(tmp_path / name)


@pytest.mark.parametrize(
    "name",
    [
        "train.py",
        ".env.example",
        "id_rsa.pub",
        "tokenizer.json",
        "environment.yaml",
        "keys.py",
        "secretary.txt",
        "key.py",
        "tokens.py",
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("import torch  # sk-learn, hf_transfer, a token\n")
    assert not is_secret_file(tmp_path / name)


def test_a_run_leaves_them_out_and_says_so(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    script = "import luxmeter as lux, notes\nwith lux.Experiment('small') as e:\n    e.log({'x': 1.0})\n"
    (project / "train.py").write_text(script)
    (project / "notes.py").write_text(f"TOKEN = '{GITHUB}'\n")
    (project / ".env").write_text("PASSWORD=hunter2\n")
    (project / "deploy.txt").write_text(KEY)
    (project / "data.yaml").write_text("a: 1\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=project,
        env={**os.environ, "LUXMETER_HOME": str(tmp_path / "lab")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "being secrets: " in done.stderr + done.stdout
    [row] = Lab.open(tmp_path / "lab").runs()
    run = Lab.open(tmp_path / "lab").find(row.id)
    assert run.snapshot is not None and run.snapshot.git is not None
    assert set(run.snapshot.git["secrets"]) == {".env", "deploy.txt", "notes.py"}
    listed = git_text(project, "ls-tree", "-r", "--name-only", run.snapshot.git["snapshot"]).split()
    assert set(listed) == {"train.py", "data.yaml"} and set(run.code) == {"train.py"}
    for path in (tmp_path / "lab").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert GITHUB.encode() not in data and b"hunter2" not in data and b"OPENSSH" not in data, path
