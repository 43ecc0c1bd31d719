"""The table of contenders that took turns with a bare loop: medians, and the interval of each one's ratio to it."""

from __future__ import annotations

import json
from statistics import median

Paired = tuple[list[float], list[float]]  # seconds of a bare loop and of a contender, turn by turn


def report(title: str, times: dict[str, list[Paired]], *, steps: int, goal: float) -> bool:
    """Print times[name][round], and as JSON; whether luxmeter's interval lies below the goal (true where it took no part).

    A round counts by the median ratio of its turns.
    """
    from luxmeter.stats import median_interval

    print(f"{title}: medians, and the interval of the paired ratio")
    rows, width = {}, max(map(len, times))
    for name, taken in times.items():
        ratio = median_interval(
            [median(o / b for b, o in zip(base, own, strict=True)) for base, own in taken]
        )
        step_us = median(turn for _, own in taken for turn in own) / steps * 1e6
        rows[name] = {"step_us": step_us, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high}
        said = f"{ratio.estimate:.3f}x of bare (95 %: {ratio.low:.3f} to {ratio.high:.3f})"
        print(f"  {name:{width}} {step_us:8.1f} us a step   {said}")
    is_met = "luxmeter" not in rows or rows["luxmeter"]["high"] <= goal
    if "luxmeter" in rows:
        print(f"upper end of luxmeter's interval: {rows['luxmeter']['high']:.3f} (goal: at most {goal})")
    print(json.dumps({"rows": rows, "goal": goal, "met": is_met}))
    return is_met
