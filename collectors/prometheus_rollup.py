"""What a sample of a step should stand for, said in PromQL, so that the server does the work.

An instant every minute of a gauge scraped every 15 s throws three of four readings away. Where
the server holds several readings a step, it is asked for their mean, of memory for the largest,
of counters and limits for the last.
"""

from collectors.metric_dialects import BY_NAME, ReadingKind
from collectors.serving_dialects import SLOT_FUNCTIONS

_SEVERAL = 1.9
"""Readings a step from which on a roll-up is worth asking for; below, windows could stay empty."""


def pushed_down(metric: str, vector: str, step_seconds: int, scrape_seconds: float | None) -> str:
    """Return the expression whose value at a step stands for the step before it.

    `vector` is the metric with its matchers. The window is a millisecond shorter than the step:
    servers before Prometheus 3 count both of its ends. Without a known scrape interval, or with
    less than two readings a step, the instant itself is asked for.
    """
    if scrape_seconds is None or step_seconds < _SEVERAL * scrape_seconds:
        return vector
    return f"{_function(metric)}({vector}[{step_seconds * 1000 - 1}ms])"


def _function(metric: str) -> str:
    if metric in SLOT_FUNCTIONS:
        return SLOT_FUNCTIONS[metric]
    meaning = BY_NAME.get(metric)
    if (
        meaning is None
        or meaning[0].kind is not ReadingKind.GAUGE
        or "limit" in meaning[0].quantity
    ):
        return "last_over_time"
    return "max_over_time" if meaning[0].quantity.startswith("memory") else "avg_over_time"
