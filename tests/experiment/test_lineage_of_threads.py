"""Experiments in threads are nobody's children but the main thread's, and leave the environment as it was."""

from __future__ import annotations

import os
import threading

import luxmeter as lux
from luxmeter.experiment import lineage


def begun_in_threads(count: int) -> dict[str, str | None]:
    """The parent of each experiment, all of them open at once."""
    found: dict[str, str | None] = {}
    one_by_one, all_open = threading.Lock(), threading.Barrier(count)

    def work(name: str) -> None:
        with one_by_one:
            experiment = lux.Experiment(name, quiet=True)
            experiment.__enter__()
            found[name] = experiment.run.identity["parent"]
        all_open.wait()
        experiment.__exit__(None, None, None)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_threads_are_no_parents_of_each_other() -> None:
    assert set(begun_in_threads(8).values()) == {None}
    assert lineage.VARIABLE not in os.environ


def test_what_the_main_thread_began_is_their_parent() -> None:
    with lux.Experiment("outer", quiet=True) as outer:
        assert set(begun_in_threads(3).values()) == {outer.id}
        assert os.environ[lineage.VARIABLE] == str(outer.folder)
    assert lineage.VARIABLE not in os.environ
