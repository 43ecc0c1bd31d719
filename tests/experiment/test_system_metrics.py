"""What the machine uses, sampled beside a run."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

import luxmeter as lux
from luxmeter.experiment.capture import system_metrics
from luxmeter.experiment.capture.system_metrics import SystemMeter


def test_sample() -> None:
    meter = SystemMeter()
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    found = meter.sample()
    assert {"system/cpu_percent", "system/memory_bytes", "system/process_memory_bytes"} <= set(found)
    assert 1e6 < found["system/process_memory_bytes"] < found["system/memory_bytes"] * 2
    assert found["system/process_cpu_percent"] > 0


def test_gpus_as_their_library_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trouble(Exception):
        pass

    def no_power(handle: int) -> float:
        raise Trouble

    library = SimpleNamespace(
        NVMLError=Trouble,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: b"Card",
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=50 + handle),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=1000),
        nvmlDeviceGetPowerUsage=no_power,
    )
    monkeypatch.setattr(system_metrics, "_nvml", lambda: library)
    assert system_metrics.gpu_names() == ["Card", "Card"]
    found = SystemMeter().sample()
    assert (found["system/gpu0_percent"], found["system/gpu1_percent"]) == (50.0, 51.0)
    assert found["system/gpu1_memory_bytes"] == 1000.0 and "system/gpu0_power_w" not in found


def test_samples_come_while_a_run_lives_and_can_be_left_out() -> None:
    with lux.Experiment("system", system_s=0.01, quiet=True, code=False) as exp:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            exp.flush()
            if exp.run.metrics.get("system/cpu_percent", {"n": 0})["n"] >= 2:
                break
            time.sleep(0.05)
    assert exp.run.metric("system/cpu_percent").to_arrow().num_rows >= 3  # and one at the end
    with lux.Experiment("system", system_s=0, quiet=True, code=False) as exp:
        exp.log({"loss": 1.0})
    assert set(exp.run.metrics) == {"loss"}
