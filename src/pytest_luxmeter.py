"""The pytest fixture `cost_budget`: holds a model and a step to a cost, without timing. See docs/keep-it-cheap-in-ci.md.

pytest imports this file in every session, whether the fixture is used or not: so it stands beside the package, and what it needs is
loaded by the first test that asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from luxmeter.model import CostBudget


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """pytest rewrites the assertions of every package that comes with a plug-in. Those of luxmeter are left as they are: a rewritten
    module is imported more slowly, and cannot be run by runpy."""
    marked: set[str] = getattr(getattr(pluginmanager, "rewrite_hook", None), "_must_rewrite", set())
    marked.discard("luxmeter")


@pytest.fixture
def cost_budget() -> CostBudget:
    """Asserts what a model and a step may cost: `cost_budget.model(net, x, macs=...)`, `with cost_budget.step(no_sync=True):`."""
    from luxmeter.model import CostBudget

    return CostBudget()
