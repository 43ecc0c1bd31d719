"""The table of contenders that took turns with a bare loop: medians, and the interval of each one's ratio to it."""

from __future__ import annotations

import json


def report(title: str, times: dict[str, list[float]], *, steps: int, goal: float) -> bool:
    """Print it, and as JSON; whether luxmeter's interval lies below the goal (true where it took no part)."""
    from luxmeter.stats import median_interval

    print(f"{title}: medians, and the interval of the paired ratio")
    rows, width = {}, max(map(len, times))
    for name, taken in times.items():
        ratio = median_interval([own / base for own, base in zip(taken, times["bare"], strict=True)])
        step_us = sorted(taken)[len(taken) // 2] / steps * 1e6
        rows[name] = {"step_us": step_us, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high}
        said = f"   {ratio.estimate:.3f}x of bare (95 %: {ratio.low:.3f} to {ratio.high:.3f})"
        print(f"  {name:{width}} {step_us:8.1f} us a step{said if name != 'bare' else ''}")
    is_met = "luxmeter" not in rows or rows["luxmeter"]["high"] <= goal
    if "luxmeter" in rows:
        print(f"upper end of luxmeter's interval: {rows['luxmeter']['high']:.3f} (goal: at most {goal})")
    print(json.dumps({"rows": rows, "goal": goal, "met": is_met}))
    return is_met
