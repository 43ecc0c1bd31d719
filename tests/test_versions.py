"""tools/versions.py: its rows are the page's, pip's settings reach uv, and a result changes its own line only."""

from __future__ import annotations

import datetime
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "versions.py"


@pytest.fixture
def versions(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL.parent))
    spec = importlib.util.spec_from_file_location("versions_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "versions_tool", module)
    spec.loader.exec_module(module)
    return module


def test_every_row_has_one_line_on_the_page(versions):
    lines = [line.split(" | ")[0] for line in versions.PAGE.read_text(encoding="utf-8").splitlines()]
    assert [line[2:] for line in lines if line[2:] in {row.name for row in versions.ROWS}] == [
        row.name for row in versions.ROWS
    ]


def test_every_test_it_names_is_there(versions):
    assert all((versions.ROOT / name).exists() for name in versions.TESTS)
    assert {"tests/calls", "tests/experiment/test_saver.py", "tests/experiment/test_folder_state.py"} <= set(
        versions.TESTS
    )


def test_pip_settings_reach_uv(versions):
    listed = "\n".join(
        [
            ":env:.find-links='/wheels /more'",
            ":env:.disable-pip-version-check='1'",
            "global.extra-index-url='\\nhttps://one.invalid/simple\\nfile:///two/simple'",
            "global.find-links='/overruled'",
            "global.index-url='https://zero.invalid/simple'",
            "install.cert='/ca.crt'",
        ]
    )
    assert versions.uv_settings(listed) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INDEX": "https://one.invalid/simple file:///two/simple",
        "UV_DEFAULT_INDEX": "https://zero.invalid/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/ca.crt",
    }
    assert versions.uv_settings("") == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_pip_itself_lists_its_settings_like_that(versions, tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nextra-index-url =\n    https://one.invalid\n    https://two.invalid\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")} | {"PIP_CONFIG_FILE": str(config)}
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert versions.uv_settings(listed)["UV_INDEX"] == "https://one.invalid https://two.invalid"


def test_paths_a_chroot_has_to_see(versions, tmp_path):
    for name in ("index/simple", "wheels"):
        (tmp_path / name).mkdir(parents=True)
    settings = {
        "UV_INDEX": f"https://one.invalid file://{tmp_path}/index/simple",
        "UV_FIND_LINKS": f"{tmp_path}/wheels,/not/there",
    }
    assert versions.local_paths(settings) == [f"{tmp_path}/index", f"{tmp_path}/wheels"]


def test_a_result_changes_its_own_line_only(versions):
    page = versions.PAGE.read_text(encoding="utf-8")
    row = next(row for row in versions.ROWS if row.name == "torch-2.10")
    result = versions.Result(
        row, "3 passed, 1 failed", good=False, python="3.11.7", torch="2.10.0+cu128", core="c"
    )
    changed = [
        (old, new)
        for old, new in zip(page.splitlines(), versions.written(page, result).splitlines(), strict=True)
        if old != new
    ]
    assert len(changed) == 1
    assert changed[0][0].startswith("| torch-2.10 |")
    today = datetime.date.today().isoformat()
    assert changed[0][1] == f"| torch-2.10 | 3.11.7 | 2.10.0+cu128 | c | 3 passed, 1 failed | {today} |"
    skipped = versions.Result(row, "skipped: no Python", good=True, ran=False)
    assert versions.written(page, skipped) == page
    with pytest.raises(SystemExit, match=r"0 lines for the row torch-2\.10"):
        versions.written("nothing", result)


@pytest.mark.parametrize(
    ("last", "counts"),
    [
        ("= 2 failed, 1502 passed, 3 skipped, 6 warnings, 1 error in 9.55s (0:15:29) =", "2 failed, 1502 passed, 3 skipped, 1 error"),
        ("INTERNALERROR> OSError", "INTERNALERROR> OSError"),
        ("", "nothing was said"),
    ],
)  # fmt: skip
def test_the_counts_of_pytest(versions, last, counts):
    assert versions.counted(f"1 passed\n{last}\n\n" if last else "") == counts


def test_an_unknown_row_is_refused_before_anything_is_made():
    done = subprocess.run([sys.executable, TOOL, "torch-1.0"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no row torch-1.0; there are torch-2.8, " in done.stderr


def test_what_fails_says_what_it_said(versions, tmp_path):
    with pytest.raises(versions.Failed, match="the reason"):
        versions.call(["sh", "-c", "echo the reason; exit 3"], {}, cwd=tmp_path)


def test_nothing_lives_on_after_an_interruption(versions, tmp_path):
    """Also what the command itself started."""

    def interrupt(line):
        pids.append(int(line))
        raise KeyboardInterrupt

    pids = []
    with pytest.raises(KeyboardInterrupt):
        versions.call(["sh", "-c", "sleep 600 & echo $!; wait"], {}, cwd=tmp_path, heard=interrupt)
    [pid] = pids
    status = Path(f"/proc/{pid}/stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
