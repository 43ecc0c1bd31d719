"""No file in the way of another, and every message explained."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import luxmeter

SOURCE = Path(luxmeter.__file__).parent
REPOSITORY = Path(__file__).parent.parent.parent


def test_benchmarks_do_not_shadow_standard_modules() -> None:
    import sys

    names = {path.stem for path in (REPOSITORY / "benchmarks").rglob("*.py")}
    assert not names & sys.stdlib_module_names


def raised_slugs() -> dict[str, str]:
    """Every slug in the source -> where it is raised."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name == "checked_options":
                handed_on = [k.value.value for k in node.keywords if k.arg in ("unknown", "bad")]  # type: ignore[attr-defined]
                found |= dict.fromkeys(handed_on, f"{path.relative_to(SOURCE)}:{node.lineno}")
            if not (name == "warn_once" or (name.endswith("Error") and name in LUXMETER_ERRORS)):
                continue
            if not node.args or isinstance(node.args[0], ast.Name | ast.Starred):
                continue  # handed on: the literal stands where it was made
            first = node.args[0]
            assert isinstance(first, ast.Constant) and isinstance(first.value, str), (
                f"{path.name}:{node.lineno}"
            )
            found[first.value] = f"{path.relative_to(SOURCE)}:{node.lineno}"
        text = path.read_text(encoding="utf-8")
        for slug in re.findall(r'\.complain\(\s*"([a-z-]+)"', text):
            found[slug] = path.name
    return found


def error_classes() -> set[str]:
    import luxmeter.errors

    base = luxmeter.errors.LuxmeterError
    return {n for n, v in vars(luxmeter.errors).items() if isinstance(v, type) and issubclass(v, base)}


LUXMETER_ERRORS = error_classes()


def test_every_message_is_explained() -> None:
    text = (REPOSITORY / "docs" / "messages.md").read_text(encoding="utf-8")
    explained = re.findall(r"^### ([a-z0-9-]+)$", text, re.MULTILINE)
    assert len(explained) == len(set(explained)), "a message is explained twice"
    raised = raised_slugs()
    missing = {slug: where for slug, where in raised.items() if slug not in explained}
    assert not missing, f"not explained in docs/messages.md: {missing}"
    stale = set(explained) - set(raised)
    assert not stale, f"explained, but never raised: {stale}"


def test_every_message_has_text_behind_its_heading() -> None:
    text = (REPOSITORY / "docs" / "messages.md").read_text(encoding="utf-8")
    for slug, body in re.findall(r"^### ([a-z0-9-]+)\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL):
        assert len(body.split()) >= 6, slug
