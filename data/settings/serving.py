"""Settings of inference services: what they promise, and how long a replica takes to start."""

from dataclasses import dataclass

from data.settings.fields import Section, documented, fixed


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
    # Readings older than this give no number of replicas (`load_settings`: longer in long cycles).
    stale_minutes: float = fixed(30.0)
    named_on_metrics: bool = documented(
        False,
        "give trimtab_required_replicas and trimtab_job_idle_seconds on /metrics, which shows "
        "their names without a sign-in",
    )
