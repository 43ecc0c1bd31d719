"""What a page shows of a trace adds up to its time, and says of the time outside what the tables say."""

from __future__ import annotations

import json
import re
import time

import torch

import luxmeter as lux
from luxmeter.calls import KINDS, OUTSIDE, RECORDING, TraceResult
from luxmeter.render import Flame
from luxmeter.view.pages.trace import flame_card, flame_of, split_html


def traced() -> TraceResult:
    """Sections in none and in each other, gaps in both, calls within a function of the user's, and kinds of calls that are new."""
    model, x = torch.nn.Linear(4, 4), torch.ones(3, 4)
    with lux.trace() as t:
        time.sleep(0.001)
        with t.section("train"):
            for n in range(3):
                with t.section("forward"):
                    y = model(x[:n]).relu()
                time.sleep(0.001)
                y.sum().backward()

        def evaluate() -> None:
            with t.section("within a call"):
                time.sleep(0.001)
                model(x).exp()

        t.wrap(evaluate, span=True)()
    return t.result


def walk(node: Flame) -> list[Flame]:
    return [node, *(below for child in node.children for below in walk(child))]


def test_a_flame_graph_holds_all_the_time_and_each_moment_once(core_name: str) -> None:
    result = traced()
    main, flame = result.outside().main, flame_of(result)
    assert main is not None and flame.value_ns == main.wall_ns
    drawn = [node for node in walk(flame) if node.n == 0]
    assert sum(node.value_ns for node in drawn if node.kind == OUTSIDE) == main.outside_ns > 0
    assert sum(node.value_ns for node in drawn if node.kind == RECORDING) == main.describing_ns > 0
    for node in walk(flame):
        assert sum(child.value_ns for child in node.children) <= node.value_ns, node.name
    holders = {
        node.name
        for node in walk(flame)
        if any(child.kind == OUTSIDE and not child.n for child in node.children)
    }
    assert holders == {"all", "train", "train/forward"}, "a section within a call is in that call"


def test_table_split_and_graph_say_the_same_of_the_time_outside(core_name: str) -> None:
    result = traced()
    main, split = result.outside().main, result.split(step=False)
    assert main is not None and split is not None
    assert dict(split.parts)[OUTSIDE] == main.outside_ns == result.table().as_table().rows[-1][4]
    assert dict(split.parts)[RECORDING] == main.describing_ns and split.total_ns == main.wall_ns
    said = main.lines()[0]
    assert said in result.table().text()
    found = re.search(r'<script type="application/json">(.*?)</script>', str(flame_card(result)))
    assert found is not None and json.loads(found[1])["groundSaid"] == said
    shown = str(split_html(result))
    assert KINDS[OUTSIDE] in shown and "MainThread" in shown
