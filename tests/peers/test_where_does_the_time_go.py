"""docs/where-does-the-time-go.md: its script and its commands, run as they stand there, and what they show."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.peers

PAGE = Path(__file__).parents[2] / "docs" / "where-does-the-time-go.md"


def blocks() -> list[tuple[str, str]]:
    """(language, text) of each block of code."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def script() -> str:
    """The script that is traced."""
    (text,) = (text for language, text in blocks() if language == "python")
    return text


def commands() -> dict[str, list[str]]:
    """Each command (a line that begins with `$ `) and the lines shown below it."""
    found: dict[str, list[str]] = {}
    for _, text in blocks():
        shown: list[str] = []
        for line in text.splitlines():
            if line.startswith("$ "):
                shown = found[line[2:]] = []
            else:
                shown.append(line)
    return found


def run(command: str) -> subprocess.CompletedProcess[str]:
    """As typed into a shell, with this environment's programs first."""
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parent / "no_torchvision"),
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=variables, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def counts(text: str | list[str]) -> list[int]:
    """Calls and APIs of the line over a table."""
    lines = text if isinstance(text, list) else text.splitlines()
    (found,) = (
        m
        for line in lines
        if (
            m := re.match(
                r"([\d,]+) calls of (\d+) APIs in [\d.]+ \w+, [\d.]+ \w+ of it outside them \(", line
            )
        )
    )
    return [int(found[1].replace(",", "")), int(found[2])]


def near(told: list[int]) -> Any:
    """A call more that is traced does not make the page untrue."""
    return pytest.approx(told, rel=0.02)


def rows(folder: str, by: str = "api") -> dict[str, dict[str, Any]]:
    """The table as the program itself tells it to machines."""
    done = run(f"luxmeter trace --from {folder} --by {by} --json")
    return {row["name"]: row for row in json.loads(done.stdout)}


def check_table(lines: list[str], known: dict[str, dict[str, Any]]) -> None:
    """Each row of a table on the page is one of the table, with that number of calls."""
    after = lines.index(next(line for line in lines if re.match("(api|module) .* total ", line))) + 1
    shown = list(itertools.takewhile(lambda line: not line.startswith(("...", "outside ")), lines[after:]))
    assert len(shown) >= 3
    for line in shown:
        words = re.split(r"\s{2,}|\s(?=[\d.,]+\s)", line)
        row = known[words[0]]
        numbers = [word for word in words[1:] if re.fullmatch(r"[\d,]+", word)]
        assert int(numbers[0].replace(",", "")) == row["n"], line


def test_the_script_and_the_commands_of_the_guide() -> None:
    told = commands()
    trace, page, modules, flat, folded, diff = told
    assert [command.split("#")[0].split()[:2] for command in told] == [["luxmeter", "trace"]] * 5 + [
        ["luxmeter", "diff"]
    ]
    name = trace.split()[-1]
    Path(name).write_text(script())

    done = run(trace)
    assert done.stdout.splitlines() == told[trace][:1], "the script's own output"
    assert counts(done.stderr) == near(counts(told[trace])), (
        "the page tells other counts: run it again and mend it"
    )
    place = r"\S*\.luxmeter/traces/[a-z0-9]{5}-[0-9]{8}-[0-9]{6}"
    ends = [re.sub(place, "PLACE", lines[-1]) for lines in (done.stderr.splitlines(), told[trace])]
    assert ends[0] == ends[1] and "PLACE" in ends[0]
    known = rows("latest")
    check_table(told[trace], known)
    check_table(done.stderr[done.stderr.index(" calls of ") :].splitlines(), known)
    assert {"torch.autograd.backward", "torch.addmm", "torch.optim.AdamW.step"} <= set(known)

    assert run(page).stderr.splitlines() == told[page]
    html = Path("train_gpt2.html").read_text("utf-8")
    _, tables = html.split("<h2>Hottest calls", 1)
    tabs = re.findall(r'<section data-tab="([^"]*)"', tables.partition("<h2>")[0])
    assert tabs == ["API", "Signature", "Module", "Line", "Function"]
    by_api = tables.partition('<section data-tab="Signature"')[0]
    assert set(re.findall(r'<tr data-name="([^"]*)"', by_api)) == set(known)
    flame, *steps = map(
        json.loads, re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    )
    labels: list[str] = []

    def walk(node: list[Any]) -> None:
        labels.append(node[0])
        *_, below = node
        assert sum(child[1] for child in below) <= node[1], "what is below takes no longer"
        for child in below:
            walk(child)

    walk(flame["root"])
    assert any("GPT2Block (GPT2LMHeadModel.transformer.h.0)" in label for label in labels)
    assert steps and all(step["title"].startswith("one training step of") for step in steps)

    done = run(modules)
    assert counts(done.stdout) == near(counts(told[modules]))
    by_module = rows("latest", "module")
    check_table(told[modules], by_module)
    check_table(done.stdout.splitlines(), by_module)

    run(flat)
    events = [e for e in json.loads(Path("small.perfetto.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert sum(e["name"] == "torch.autograd.backward" for e in events) <= 10
    assert 10 < len(events) < sum(row["n"] for row in known.values()), "the depth limits it"
    assert all(e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] > 0 for e in events)

    run(folded)
    stacks = [line.rpartition(" ") for line in Path("train_gpt2.folded").read_text().splitlines()]
    whole_ns = sum(row["self_ns"] for row in known.values())
    assert 0.5 < sum(int(ns) for _, _, ns in stacks) / whole_ns < 2
    assert any(stack.endswith(";torch.addmm") for stack, _, _ in stacks)

    run(trace)
    changed = json.loads(run(f"{diff.split('#')[0]} --json").stdout)["changes"]
    assert not {c["kind"] for c in changed} & {"new", "gone", "more", "fewer"}, "the same program"
    assert re.search(r"none differs by more than [\d.]+% beyond chance", run(diff).stdout)
