"""Recordings for tests of right-sizing rules."""

from typing import Any

import numpy as np

from benchmarks.rightsizing.past import Past
from benchmarks.rightsizing.replay import Recorded


def make_past(usage: Any, **changes: Any) -> Past:
    """A past of hourly samples, steps of an hour, levels 0..9, every job of one cohort."""
    rows = np.atleast_2d(np.asarray(usage, dtype=np.float64))
    values: dict[str, Any] = {
        "usage": rows,
        "limits": np.full(len(rows), np.nan),
        "levels": np.tile(np.arange(10.0), (len(rows), 1)),
        "sample_hours": 1.0,
        "samples_per_step": 1,
        "cohorts": np.zeros(len(rows), dtype=np.int64),
    }
    return Past(**(values | changes))


def make_recorded(usage: Any, **changes: Any) -> Recorded:
    """A recording of steps of two hourly samples, levels 0..9, judged from the second step on."""
    rows = np.atleast_2d(np.asarray(usage, dtype=np.float64))
    values: dict[str, Any] = {
        "usage": rows,
        "levels": np.tile(np.arange(10.0), (len(rows), 1)),
        "sample_hours": 1.0,
        "samples_per_step": 2,
        "first_step": 1,
        "warm_up_samples": 1,
    }
    return Recorded(**(values | changes))
