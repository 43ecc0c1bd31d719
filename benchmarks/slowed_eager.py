"""Imported by a worker of benchmarks/diff_quality.py: eager torch with one operator that takes longer. Prints nothing alone."""

from __future__ import annotations

import os

from luxmeter.operators.backends import BACKENDS

if "SLOWED_BY" in os.environ:
    from diff_quality import SlowedEager

    BACKENDS.register("eager", SlowedEager, replace=True)
