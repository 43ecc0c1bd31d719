"""No file in the way of another, every message explained, every package pinned."""

from __future__ import annotations

import ast
import re
import textwrap
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import luxmeter

SOURCE = Path(luxmeter.__file__).parent
REPOSITORY = Path(__file__).parent.parent.parent


def test_benchmarks_do_not_shadow_standard_modules() -> None:
    import sys

    names = {path.stem for path in (REPOSITORY / "benchmarks").rglob("*.py")}
    assert not names & sys.stdlib_module_names


def raised_slugs(source: Path = SOURCE) -> dict[str, str]:
    """Every slug in the source -> where it is raised."""
    found: dict[str, str] = {}
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in ("checked_options", "read_fields"):
                handed_on = [k.value.value for k in node.keywords if k.arg in ("unknown", "bad")]  # type: ignore[attr-defined]
                found |= dict.fromkeys(handed_on, f"{path.relative_to(source)}:{node.lineno}")
            if not (name == "warn_once" or (name.endswith("Error") and name in LUXMETER_ERRORS)):
                continue
            if not node.args or isinstance(node.args[0], ast.Name | ast.Starred):
                continue  # handed on: the literal stands where it was made
            first = node.args[0]
            assert isinstance(first, ast.Constant) and isinstance(first.value, str), (
                f"{path.name}:{node.lineno}"
            )
            found[first.value] = f"{path.relative_to(source)}:{node.lineno}"
        text = path.read_text(encoding="utf-8")
        for slug in re.findall(r'\.complain\(\s*"([a-z-]+)"', text):
            found[slug] = path.name
    return found


def error_classes() -> set[str]:
    import luxmeter.errors

    base = luxmeter.errors.LuxmeterError
    return {n for n, v in vars(luxmeter.errors).items() if isinstance(v, type) and issubclass(v, base)}


LUXMETER_ERRORS = error_classes()


def faults_of_messages(text: str, raised: dict[str, str]) -> list[str]:
    """What is raised and not explained, explained and never raised, explained twice or with a heading alone."""
    explained = re.findall(r"^### ([a-z0-9-]+)$", text, re.MULTILINE)
    bodies = re.findall(r"^### ([a-z0-9-]+)\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return [
        *(f"{slug} is not explained: {where}" for slug, where in raised.items() if slug not in explained),
        *(f"{slug} is explained, but never raised" for slug in sorted(set(explained) - set(raised))),
        *(f"{slug} is explained twice" for slug in sorted(set(explained)) if explained.count(slug) > 1),
        *(f"{slug} has no text behind its heading" for slug, body in bodies if len(body.split()) < 6),
    ]


def test_every_message_is_explained() -> None:
    text = (REPOSITORY / "docs" / "messages.md").read_text(encoding="utf-8")
    assert faults_of_messages(text, raised_slugs()) == []


RAISING = """
    def work(error):
        if error:
            raise UsageError("said-here", "It failed.", "Try again.")
        warn_once("warned-here", "It is slow.", "Wait.")
        parser.complain("complained-here", 1)
        checked_options(Options, {}, who="work()", unknown="unknown-here", bad="bad-here")
        raise ValueError("not ours")
"""
SLUGS = ("said-here", "warned-here", "complained-here", "unknown-here", "bad-here")
EXPLAINED = "\n".join(f"### {slug}\nWhat happened, and what is to be done.\n" for slug in SLUGS)


def test_a_planted_fault_of_messages_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(textwrap.dedent(RAISING))
    raised = raised_slugs(tmp_path)
    assert set(raised) == set(SLUGS)
    assert faults_of_messages(EXPLAINED, raised) == []
    for slug in SLUGS:
        (fault,) = faults_of_messages(EXPLAINED.replace(f"### {slug}\n", "### of-old\n"), raised)[:1]
        assert fault.startswith(f"{slug} is not explained: x.py")
    more = f"{EXPLAINED}### of-old\nNobody says this any more now.\n### bad-here\nToo short.\n"
    assert faults_of_messages(more, raised) == [
        "of-old is explained, but never raised",
        "bad-here is explained twice",
        "bad-here has no text behind its heading",
    ]


def unpinned(extras: set[str], constraints: str) -> list[str]:
    """What comes with luxmeter[extras] here and no line of the constraints pins."""
    pinned = {canonicalize_name(line.partition("==")[0]) for line in constraints.splitlines() if "==" in line}
    seen: set[tuple[str, frozenset[str]]] = set()
    missing: set[str] = set()
    to_visit = [("luxmeter", frozenset(extras))]
    while to_visit:
        name, wanted = to_visit.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        if name != "luxmeter" and name not in pinned:
            missing.add(name)
        try:
            lines = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
                to_visit.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return sorted(missing)


def test_everything_that_make_setup_installs_is_pinned() -> None:
    """Else two machines differ, and a release of somebody else's turns main red."""
    constraints = (REPOSITORY / "constraints.txt").read_text()
    assert unpinned({"dev"}, constraints) == []
    assert unpinned({"dev"}, constraints.replace("starlette==", "starlight==")) == ["starlette"]
