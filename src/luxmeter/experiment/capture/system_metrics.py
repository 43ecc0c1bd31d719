"""What the machine and this process use: CPU, memory, GPUs where there are any."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from typing import Any

import psutil

from luxmeter.loaded import loaded
from luxmeter.store import records


class SystemMeter:
    """Samples the machine. CPU shares are over the time since the last sample."""

    def __init__(self) -> None:
        self._process = psutil.Process(os.getpid())
        psutil.cpu_percent(None)  # the first call only sets the mark from which the next one measures
        self._process.cpu_percent(None)

    def sample(self) -> dict[str, float]:
        """The metrics of now, by key."""
        with self._process.oneshot():
            found = {
                "cpu_percent": psutil.cpu_percent(None),
                "memory_bytes": float(psutil.virtual_memory().used),
                "process_cpu_percent": self._process.cpu_percent(None),
                "process_memory_bytes": float(self._process.memory_info().rss),
            }
        found.update(_gpu_sample())
        return {records.SYSTEM + name: float(value) for name, value in found.items()}


def gpu_names() -> list[str]:
    """The names of the GPUs, as far as they can be told without touching them."""
    nvml = _nvml()
    if nvml is None:
        return []
    names = []
    with contextlib.suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            name = nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index))
            names.append(name.decode() if isinstance(name, bytes) else str(name))
    return names


def gpu_memory() -> list[tuple[int, int]]:
    """Bytes in use and bytes in all, of each GPU."""
    nvml = _nvml()
    found: list[tuple[int, int]] = []
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError):
            for index in range(nvml.nvmlDeviceGetCount()):
                memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(index))
                found.append((int(memory.used), int(memory.total)))
    return found


def _gpu_sample() -> dict[str, float]:
    nvml = _nvml()
    return _torch_sample() if nvml is None else _nvml_sample(nvml)


def _nvml_sample(nvml: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    with contextlib.suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            use, memory = nvml.nvmlDeviceGetUtilizationRates(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
            found[f"gpu{index}_percent"] = use.gpu
            found[f"gpu{index}_memory_bytes"] = memory.used
            with contextlib.suppress(nvml.NVMLError):  # some cards do not tell
                found[f"gpu{index}_power_w"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
                found[f"gpu{index}_temperature_c"] = nvml.nvmlDeviceGetTemperature(handle, 0)
    return found


def _torch_sample() -> dict[str, float]:
    """What torch itself holds, if the program uses an accelerator: we are never the first to wake a device."""
    torch = loaded("torch")
    accelerator = getattr(torch, "accelerator", None)
    if torch is None or accelerator is None:
        return {}
    found: dict[str, float] = {}
    with contextlib.suppress(Exception):  # backends differ in what they tell, and none may end a run
        device = accelerator.current_accelerator()
        module = None if device is None else torch.get_device_module(device.type)
        if module is None or not module.is_initialized():
            return {}
        for index in range(accelerator.device_count()):
            found[f"gpu{index}_memory_bytes"] = float(module.memory_reserved(index))
    return found


@functools.lru_cache(maxsize=1)
def _nvml() -> Any:
    """NVIDIA's own library, if it is installed and finds a driver."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
