"""The start time of a replica of a service, learnt from earlier starts."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from data.records.serving import ColdStart

LEAD_SHARE = 0.9
"""Share of the next starts that shall take no longer than what is led by."""
MIN_STARTS = round(LEAD_SHARE / (1 - LEAD_SHARE))
"""So many starts, whatever their distribution, are needed for the longest of them to say that."""
SOURCES = ("pods", "boards")


def cold_start(starts: Mapping[str, Sequence[float]], setting_seconds: float) -> ColdStart:
    """Return the cold start by the `starts` of each source, s; the setting while they are few.

    Of n starts the k-th shortest, k = LEAD_SHARE × (n + 1) rounded up: where starts come in no
    order, the next one takes no longer with a chance of k / (n + 1). Pods tell it more exactly.
    """
    for source in SOURCES:
        seconds = sorted(starts.get(source, ()))
        if len(seconds) >= MIN_STARTS:
            place = math.ceil(round(LEAD_SHARE * (len(seconds) + 1), 9))
            return ColdStart(
                seconds=seconds[place - 1],
                typical_seconds=float(np.median(seconds)),
                starts=len(seconds),
                source=source,
            )
    few = max((starts.get(source, ()) for source in SOURCES), key=len)
    return ColdStart(
        seconds=setting_seconds,
        typical_seconds=float(np.median(few)) if few else None,
        starts=len(few),
        source="setting",
    )
