"""Tables of the recorder that grow while it records: many callables, signatures, instances; each call stays its own."""

from __future__ import annotations

from collections import Counter
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from luxmeter.calls.records import EVENT_DTYPE


def events_of(recorder: Any) -> np.ndarray[Any, Any]:
    found = np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)
    return found[found["callable"] != 0]


def test_more_callables_than_there_was_room_for(core: ModuleType) -> None:
    recorder = core.Recorder()
    wrapped = [recorder.wrap(lambda: None, recorder.add_callable(f"f{i}")) for i in range(3000)]
    recorder.start()
    for _ in range(2):
        for one in wrapped:
            one()
    recorder.stop()
    found = Counter(events_of(recorder)["callable"].tolist())
    assert len(found) == 3000 and set(found.values()) == {2}


def test_more_signatures_than_there_was_room_for(core: ModuleType) -> None:
    described: list[int] = []
    recorder = core.Recorder(
        max_signatures=10_000, on_signature=lambda c, s, args, kwargs, general: described.append(s)
    )
    wrapped = recorder.wrap(lambda *args: None, recorder.add_callable("f"))
    recorder.start()
    for _ in range(2):
        for i in range(3000):
            wrapped([None] * (i % 60), (None,) * (i // 60))
    recorder.stop()
    found = Counter(events_of(recorder)["signature"].tolist())
    assert len(found) == len(set(described)) == 3000 and set(found.values()) == {2}


def test_more_instances_than_there_was_room_for(core: ModuleType) -> None:
    class Model:
        def run(self) -> None:
            return None

    recorder, asked = core.Recorder(), []

    def resolve(instance: Any) -> int:
        asked.append(instance)
        return recorder.add_callable(f"model {len(asked)}")

    run = recorder.wrap_resolved(Model.run, resolve)
    recorder.start()
    models = [Model() for _ in range(500)]
    for _ in range(2):
        for model in models:
            run(model)
    del models[100:], model
    asked.clear()
    others = [Model() for _ in range(2000)]
    for model in (*models, *others):
        run(model)
    recorder.stop()
    assert len(asked) == 2000, "those that were known stay known, also where the table is made anew"
    found = Counter(events_of(recorder)["callable"].tolist())
    assert sorted(found.values()) == [1] * 2000 + [2] * 400 + [3] * 100


def test_what_is_no_site_is_told(core: ModuleType) -> None:
    recorder = core.Recorder()
    for number in (0, 1, -1, 2**40):
        with pytest.raises(ValueError, match=f"no site has the number {number}"):
            recorder.site(number)
