"""TorchWrapper's front door: run a function, and every torch call it makes is in `callRecords` and in a file.

wrapper = TorchWrapper({"out_dir": "./output", "format": "csv"})
wrapper.start(my_code)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from luxmeter.calls import Heard, Listener
from luxmeter.classic.api_names import getAPIName, getAttributes
from luxmeter.classic.record_files import FORMATS, NAMES, check_folder, parse_size, rows_of, write_files
from luxmeter.errors import UsageError, suggestion

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "TorchWrapper", "getAPIName", "getAttributes"]

T = TypeVar("T")
COLUMNS = ("API Name", "Total Time (ms)", "Call Number", "Start Timestamp", "Cost Time (ms)", "Arguments")


@dataclass(frozen=True)
class _Config:
    out_dir: str = "./output"
    format: str = "json"
    file_max_size: str = "128MB"
    file_name_spec: str = "timestamp"


class TorchWrapper:
    """Times the torch calls of a function. `callRecords`: API -> "TotalTime(ms)" and calls numbered from 1."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        known = [field.name for field in fields(_Config)]
        if not isinstance(config, Mapping | None):
            raise UsageError(
                "bad-wrapper-value", f"The config of TorchWrapper is {config!r}.", "Give a dict, or nothing."
            )
        for key in config or {}:
            if key not in known:
                raise UsageError(
                    "unknown-wrapper-key",
                    f"The config of TorchWrapper has no key {key!r}.",
                    suggestion(key, known) or f"It knows {', '.join(known)}.",
                )
        self._config = chosen = _Config(**(config or {}))
        if not isinstance(chosen.out_dir, str | os.PathLike):
            raise UsageError(
                "bad-wrapper-value",
                f"TorchWrapper cannot use out_dir={chosen.out_dir!r}.",
                "Give the path of a folder.",
            )
        for name, value, allowed in (
            ("format", chosen.format, FORMATS),
            ("file_name_spec", chosen.file_name_spec, NAMES),
        ):
            if value not in allowed:
                raise UsageError(
                    "bad-wrapper-value",
                    f"TorchWrapper cannot use {name}={value!r}.",
                    suggestion(str(value), allowed) or f"It knows {', '.join(allowed)}.",
                )
        self._most_bytes = parse_size(chosen.file_max_size)
        self.callRecords: dict[str, dict[Any, Any]] = {}
        self.files: list[Path] = []  # that the last start() wrote

    def start(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call the function, save the records, return its result. An exception passes on after they are saved."""
        folder = Path(self._config.out_dir)
        check_folder(folder)
        self.callRecords = {}
        listener = Listener(self._hear).start()
        try:
            return function(*args, **kwargs)
        finally:
            listener.stop()
            self.files = write_files(
                self.callRecords,
                folder,
                format=self._config.format,
                spec=self._config.file_name_spec,
                most_bytes=self._most_bytes,
                columns=COLUMNS,
            )

    def _hear(self, call: Heard) -> None:
        name = f"torch.{call.name}" if call.name.startswith("Tensor.") else call.name
        calls = self.callRecords.setdefault(name, {"TotalTime(ms)": 0.0})
        cost_ms = call.duration_ns / 1e6
        calls["TotalTime(ms)"] += cost_ms
        calls[len(calls)] = {
            "detailedAPIName": name,
            "StartTimestamp": call.started_at_ns,
            "CostTime(ms)": cost_ms,
            "Arguments": (tuple(described(v) for v in call.args), {k: described(v) for k, v in call.kwargs.items()}),
        }  # fmt: skip

    def getDFFormattedCallRecords(self) -> pd.DataFrame:
        """The records as a DataFrame with the columns API Name, Total Time (ms), Call Number, ..."""
        import pandas as pd

        return pd.DataFrame(list(rows_of(self.callRecords)), columns=list(COLUMNS))


class Text(str):
    """Stands for an object in Arguments; shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def described(value: Any) -> Any:
    """A tensor as `Tensor(shape, dtype, device)`, a scalar as it is, containers of them, otherwise the type's name."""
    import torch

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        try:
            return Text(f"Tensor({tuple(value.shape)}, {value.dtype}, {value.device})")
        except RuntimeError:  # a tensor that has no shape to tell (nested)
            return Text(f"Tensor({type(value).__name__})")
    if isinstance(value, list):
        return [described(v) for v in value]
    if isinstance(value, tuple):
        return tuple(described(v) for v in value)
    if isinstance(value, dict):
        return {str(k): described(v) for k, v in value.items()}
    if isinstance(value, complex | torch.dtype | torch.device | slice | torch.layout | torch.memory_format):
        return Text(value)
    return Text(value.__name__ if isinstance(value, type) else type(value).__name__)
