"""The `luxmeter` command: one file a verb."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    raise SystemExit("luxmeter: no commands yet")
