"""`torbencher`, `bencherDebugger` and `SingleTester` by their old names and configurations; `luxmeter check` does the work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from luxmeter.csv_text import csv_text
from luxmeter.errors import UsageError, suggestion
from luxmeter.files import write_file
from luxmeter.operators import CheckResult, check

_DEFAULTS: dict[str, Any] = {
    "seed": None, "devices": ["cpu"], "test_modules": [], "format": "json", "num_epoches": 1, "including_success": False,
    "result_file": "test_results.csv", "testcase_dir": "src/testcase",
}  # fmt: skip
_COLUMNS = ("errors", "error_details", "failures", "failure_details", "status", "testcase")


class _Runner:
    """A configuration of old, checked. `testcase_dir` is the folder of test cases, where Torbencher had its own."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        for key in config:
            if key not in _DEFAULTS:
                raise UsageError(
                    "unknown-torbencher-key",
                    f"The config of {type(self).__name__} has no key {key!r}.",
                    suggestion(key, _DEFAULTS) or f"It knows {', '.join(_DEFAULTS)}.",
                )
        self.config = {**_DEFAULTS, **config}
        if self.config["format"] != "json":
            raise UsageError(
                "torbencher-format",
                f"{type(self).__name__} cannot write {self.config['format']!r}.",
                "Use format: json.",
            )

    def _checked(self) -> CheckResult:
        config = self.config
        seed = config["seed"] if config["seed"] is not None else time.time_ns() % 2**31
        return check(
            Path(config["testcase_dir"]), rounds=config["num_epoches"], device=list(config["devices"]),
            only=list(config["test_modules"]), seed=seed, backward=False,
        )  # fmt: skip


class torbencher(_Runner):
    """`torbencher(config).run()`: what each API gave on each device, as Torbencher's README shows it."""

    def run(self) -> dict[str, Any]:
        """Start time, machine, version, and for each device how many APIs passed, failed and were missed, with details."""
        result = self._checked()
        machine = result.environment.get("machine", {})
        return {
            "start_time": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(result.started)),
            "cpu": machine.get("processor", ""),
            "memory": f"{machine.get('memory_bytes', 0) / 2**30:.2f} GB",
            "test_modules": self.config["test_modules"] or "all",
            "version": result.environment.get("packages", {}).get("torch", ""),
            "results": [self._of_device(result, device) for device in self.config["devices"]],
        }

    def _of_device(self, result: CheckResult, device: str) -> dict[str, Any]:
        rows = [row for row in result if row.device == device]
        apis: dict[str, list[str]] = {}
        detail: dict[str, dict[str, Any]] = {}
        for row in rows:
            package, _, name = row.api.rpartition(".")
            apis.setdefault(row.api, []).append(row.status)
            if row.status == "missed":
                detail.setdefault(package, {}).setdefault(name, "missed")
                continue
            said: Any = [(row.time_us or 0.0) / 1e3, row.largest] if row.status == "passed" else row.status
            cases = detail.setdefault(package, {}).setdefault(name, {})
            if isinstance(cases, dict):
                cases[row.name.rpartition(".")[2]] = said
        whole = [_status_of(statuses) for statuses in apis.values()]
        hours, rest = divmod(result.taken_s, 3600)
        return {
            "device": device, "cost": f"{int(hours):02}:{int(rest // 60):02}:{rest % 60:06.3f}", "packages": len(detail), "apis": len(apis),
            "api_passed": whole.count("passed"), "api_failed": whole.count("failed"), "api_missed": whole.count("missed"),
            "detail": detail,
        }  # fmt: skip


def _status_of(statuses: list[str]) -> str:
    """Of an API by its cases."""
    if any(status in ("failed", "crashed", "hung") for status in statuses):
        return "failed"
    return "passed" if "passed" in statuses else "missed"


class bencherDebugger(_Runner):
    """`bencherDebugger(config).run()`: every error of every round in a table, `result_file`."""

    def run(self) -> CheckResult:
        """Run all cases for `num_epoches` rounds and write the table; the result is given back, too."""
        result = self._checked()
        lines: list[Sequence[Any]] = [_COLUMNS]
        for row in result:
            if row.status == "passed" and not self.config["including_success"]:
                continue
            raised = [e for e in row.errors if e.traceback]
            wrong = [e for e in row.errors if not e.traceback]
            said = {
                "errors": len(raised), "error_details": "\n".join(e.traceback for e in raised), "failures": len(wrong),
                "failure_details": "\n".join(e.reason for e in wrong), "testcase": row.name,
                "status": {"passed": "Success", "failed": "Failed", "missed": "Missed"}.get(row.status, row.status),
            }  # fmt: skip
            lines.append([said[name] for name in _COLUMNS])
        write_file(Path(self.config["result_file"]), csv_text(lines).encode())
        return result


class SingleTester:
    """`SingleTester().run(case, device="cuda", seed=443)`: one class of test cases."""

    def run(
        self, testcase: type, device: str = "cpu", seed: int | None = None, debug: bool = True
    ) -> bool | int:
        """True if it passed, False if it gave something else than the CPU, -1 if it raised, -2 if it was missed."""
        result = check(
            testcase,
            device=device,
            seed=443 if seed is None else seed,
            backward=False,
            quiet=not debug,
            workers=1,
        )
        if debug:
            result.show(everything=True)
        if all(row.status == "missed" for row in result):
            return -2
        if any(error.traceback for _, error in result.errors):
            return -1
        return result.ok
