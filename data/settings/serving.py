"""Settings of inference services: what they promise, and how long a replica takes to start."""

from dataclasses import dataclass

from data.base.units import SLOT_SECONDS
from data.settings.fields import Section, documented


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSettings(Section, name="serving"):
    """The replicas that inference services need. Used where Prometheus scrapes their engines."""

    wait_seconds: float = documented(
        2.0, "how long a request may wait for its admission, s", minimum=0, maximum=3600
    )
    wait_ratio: float = documented(
        0.99,
        "share of requests that must start within it, over ten minutes",
        above=0,
        maximum=0.9999,
    )
    stale_minutes: float = documented(
        30.0, "no number of replicas from readings older than this, min", above=0, maximum=1440
    )
    named_on_metrics: bool = documented(
        False,
        "give trimtab_required_replicas and trimtab_job_idle_seconds on /metrics, which shows "
        "their names without a sign-in",
    )


def without_number(serving: ServingSettings, cycle_minutes: float) -> str:
    """Return the reason why services lack numbers in a part of a cycle and the fix, else ''."""
    needed = cycle_minutes + SLOT_SECONDS / 60
    if serving.stale_minutes >= needed:
        return ""
    return (
        f"serving.stale_minutes = {serving.stale_minutes:g} is less than serve.cycle_minutes = "
        f"{cycle_minutes:g} and the {SLOT_SECONDS // 60} min of a reading: services have no number "
        f"of replicas for a part of each cycle. Set serving.stale_minutes to {needed:g} or more, "
        "or serve.cycle_minutes to less"
    )
