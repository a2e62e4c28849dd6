"""The reason why the readings of a service teach nothing, and the fix."""

import numpy as np

from planner.serving.service_model import ServiceReadings

_SIGNALS_HINT = "docs/serving.md lists what is read of each engine"


def missing_signals_reason(readings: ServiceReadings) -> str:
    """Return the reason why readings teach nothing, '' where only requests are missing."""
    counters = (
        readings.finished, readings.timed, readings.waited, readings.prompt, readings.generated,
    )  # fmt: skip
    if not np.isfinite(readings.running).any():
        return (
            "the engine tells no requests at work: take a release that has such a metric, or "
            f"scrape the engine itself ({_SIGNALS_HINT})"
        )
    if not any(np.isfinite(counter).any() for counter in counters):
        return (
            "it is scraped too rarely, as no counter has two readings in five minutes: set the "
            "scrape_interval of its job (interval of its ServiceMonitor or PodMonitor) to 1m"
        )
    if not (np.isfinite(readings.finished) | np.isfinite(readings.timed)).any():
        return (
            "the engine tells no requests that ended: take a release that has such a metric "
            f"({_SIGNALS_HINT})"
        )
    if max(np.nansum(readings.finished), np.nansum(readings.timed)) > 0:
        return (
            "its requests end between two readings and are not timed: take a release that times "
            f"them ({_SIGNALS_HINT})"
        )
    if np.nansum(readings.running) + np.nansum(readings.waiting) > 0:
        return "no request has ended yet: a number follows the first that do"
    return ""
