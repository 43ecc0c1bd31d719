"""The READMEs are true: same snippets in both languages, each snippet runs, every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
ENGLISH, CHINESE = REPOSITORY / "README.md", REPOSITORY / "README.zh.md"
PAGES = [ENGLISH, CHINESE, REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of one language, in order."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [code for tongue, code in fenced if tongue == language]


def test_both_languages_have_the_same_snippets() -> None:
    for language in ("python", "console", ""):
        assert blocks(ENGLISH, language) == blocks(CHINESE, language)


@pytest.mark.parametrize("page", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    for snippet in blocks(page, "python"):
        done = subprocess.run(
            [sys.executable, "-c", snippet], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        if "lux.trace" in snippet:
            assert "torch.optim.Adam.step" in done.stdout
            assert done.stdout.strip().endswith("9610")


def test_the_shown_table_is_as_it_is_printed_today() -> None:
    """But for its numbers."""

    def above(text: str) -> tuple[str, list[str]]:
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("api "))
        return re.sub(r"[\d.]+( [num]?s\b)?", "N", lines[at - 1]), lines[at].split()

    done = subprocess.run(
        [sys.executable, "-c", blocks(ENGLISH, "python")[0]], capture_output=True, text=True, check=True
    )
    assert above(done.stdout) == above(ENGLISH.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    said = re.sub(r"^(```+).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", said):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_make_targets_of_the_documents_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`?\bmake ([a-z][a-z-]+)`", page.read_text(encoding="utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"
