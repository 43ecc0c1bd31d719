"""Who listens hears each call as it ends, with its arguments, and nothing else."""

from __future__ import annotations

import pytest
import torch

from luxmeter.calls.listen import Heard, Listener

pytestmark = pytest.mark.usefixtures("core_name")


def test_a_call_is_heard_with_its_arguments_and_after_what_is_waited_for() -> None:
    heard: list[Heard] = []
    waited: list[int] = []
    x = torch.ones(2)
    listener = Listener(
        heard.append, after=lambda: waited.append(len(heard)), only=["torch.add", "torch.sin"]
    ).start()
    try:
        torch.add(x, 1, alpha=3)
        with pytest.raises(TypeError):
            torch.sin("no tensor")  # type: ignore[arg-type]
    finally:
        listener.stop()
    (add, sin) = heard
    assert (add.name, add.kwargs, add.raised, add.framework) == ("torch.add", {"alpha": 3}, False, "torch")
    assert add.args[0] is x and add.duration_ns > 0 and sin.raised
    assert waited == [0, 1]  # before it is told, and once for each


def test_what_runs_the_users_code_is_no_call_and_what_it_calls_is() -> None:
    heard: list[str] = []
    listener = Listener(lambda one: heard.append(one.name)).start()
    try:
        torch.func.vmap(torch.sin)(torch.ones(2))
    finally:
        listener.stop()
    assert "torch.func.vmap" not in heard and "torch.sin" in heard


def test_nothing_is_heard_of_what_the_listener_calls_or_of_what_comes_after_its_end() -> None:
    heard: list[str] = []

    def hear(one: Heard) -> None:
        heard.append(one.name)
        torch.cos(torch.ones(1))

    before, listener = torch.sin, Listener(hear).start()
    try:
        kept = torch.sin
        x = torch.ones(2)
        kept(x)
    finally:
        listener.stop()
    listener.stop()  # a second time is nothing
    assert kept(x).equal(torch.sin(x)) and torch.sin is before
    assert heard == ["torch.ones", "torch.sin"]
