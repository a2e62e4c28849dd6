"""Names that settings had before, and settings that are gone: one more release knows them."""

import logging
from functools import cache
from typing import Any

logger = logging.getLogger(__name__)

RENAMED = {
    "apply.minimum_energy_kwh": "apply.min_energy_kwh",
    "apply.minimum_gpu_hours": "apply.min_gpu_hours",
    "apply.patience_minutes": "apply.rollout_timeout_minutes",
    "fleet.enabled": "simulated_fleet.enabled",
    "fleet.nodes": "simulated_fleet.nodes",
    "fleet.seed": "simulated_fleet.seed",
    "fleet.state_file": "simulated_fleet.state_file",
    "nodes.fire_up_minutes": "nodes.boot_minutes",
    "nodes.minimum_off_minutes": "nodes.min_off_minutes",
    "planning.frozen_slots": "planning.frozen_minutes",
    "planning.minimum_saving_ratio": "planning.min_saving_ratio",
    "power.over_price_per_kwh": "power.over_limit_penalty_per_kwh",
    "submit.largest_gpus": "submit.max_gpus",
    "tenants.over_price": "tenants.over_quota_penalty",
}
"""The old name of a setting, as `section.field`, and the new one."""

WITHOUT_EFFECT = {
    "access.requests_per_minute": "a person may send 1200 requests a minute",
    "apply_git.branch_prefix": "branches of Trimtab begin with trimtab/",
    "apply_git.forge": "the end of apply_git.api_url says which forge it is",
    "apply_git.poll_seconds": "a request is looked at once a minute",
    "apply_git.timeout_seconds": "a git command or request may take 30 s",
    "apply_kubernetes.cut_seconds": "a node's MIG manager may take 15 min",
    "apply_kubernetes.timeout_seconds": "a request may take 30 s",
    "apply_power.lease_seconds": "a cap that is not renewed ends after 900 s",
    "apply_slurm.timeout_seconds": "a change may take 10 s, a look 30 s",
    "energy.forecast_max_age_hours": "plans do without a forecast that is older than 36 h",
    "energy.hardware_life_years": "the footprint of a GPU is spread over 5 years",
    "energy.pue_uncertainty": "the PUE is taken as 0.1 off on either side",
    "grid.interval_minutes": "providers are asked once an hour",
    "grid.price": "day-ahead prices are ENTSO-E's where grid.price_url is given",
    "grid.timeout_seconds": "a request may take 20 s",
    "kubernetes.page_size": "500 objects are asked for at once",
    "kubernetes.timeout_seconds": "a request may take 30 s",
    "nodes.hot_celsius": "a GPU is called hot from 85 °C on",
    "nodes.hot_memory_celsius": "a GPU's memory is called hot from 95 °C on",
    "notify.attempts": "a message is tried 8 times",
    "notify.ticket_kind": "tickets go to Jira where notify.ticket_project is given",
    "notify.timeout_seconds": "a message may take 10 s",
    "nvml.interval_seconds": "`serve` reads every 10 s",
    "planning.entry_margin_ratio": "the margin is 10 %",
    "planning.hysteresis_ratio": "a change must save twice what making it costs",
    "planning.idle_utilization_ratio": "a GPU counts as idle up to a utilization of 1 %",
    "planning.max_reading_age_minutes": "nothing is proposed from readings older than an hour",
    "planning.max_return_chance": "a job is stopped where its work returns with a chance of 10 %",
    "planning.min_coverage_ratio": "half of a job's history must be known",
    "planning.min_history_hours": "jobs of less than 6 h of known history borrow a forecast",
    "planning.minimum_coverage_ratio": "half of a job's history must be known",
    "planning.minimum_history_hours": "jobs of less than 6 h of known history borrow a forecast",
    "planning.series_seconds": "Prophet may take 60 s for one series",
    "planning.workers": "forecasts use every core",
    "prometheus.budget_seconds": "the requests of a collection may take 300 s",
    "prometheus.max_series": "100,000 series of a metric and day are read",
    "prometheus.most_series": "100,000 series of a metric and day are read",
    "prometheus.timeout_seconds": "a request may take 30 s",
    "retention.forecast_hours": "superseded forecasts are kept for 6 h",
    "retention.plan_hours": "superseded plans on which nobody decided are kept for 24 h",
    "retention.undecided_days": "recommendations on which nobody decided are kept for 7 days",
    "serving.cold_start_minutes": "8 min are assumed until nine starts were seen",
    "serving.reactive_ratio": "the reactive rule fills a replica to 0.7",
    "simulated_fleet.slow_jobs": "training jobs of the simulated fleet keep their boards busy",
    "slurm.timeout_seconds": "a command or request may take 30 s",
    "store.least_free_mib": "nothing is collected below 500 MiB of free space",
    "store.min_free_mib": "nothing is collected below 500 MiB of free space",
    "submit.keep_finished_hours": "Kubernetes deletes a finished job after a week",
    "tenants.borrow_price": "a borrowed board costs 0.05 an hour",
    "tenants.guarantee_price": "a board missing of a guarantee costs 20 an hour",
}
"""A setting that is gone, as `section.field`, and what holds now."""

_COUNTED_SLOTS = ("planning.frozen_slots",)


class Slots(int):
    """A value of a setting that counted slots and counts minutes now."""


def current_value(name: str, value: Any) -> Any:
    """Return a value that was given under any name, marked where that name counted slots."""
    return Slots(value) if name in _COUNTED_SLOTS else value


def in_minutes(value: Any, slot_minutes: int) -> Any:
    """Return a value with slots turned to minutes."""
    return value * slot_minutes if isinstance(value, Slots) else value


def has_no_effect(name: str, where: str) -> bool:
    """Return whether a setting is gone; log a warning where it is still given."""
    if name not in WITHOUT_EFFECT:
        return False
    warn_once(
        f"{name} in {where} has no effect any more: {WITHOUT_EFFECT[name]}. Delete it there, the "
        "next release refuses it"
    )
    return True


def current_name(name: str, where: str) -> str:
    """Return the name that a setting has now; log a warning where an old one is used."""
    if name not in RENAMED:
        return name
    warn_once(
        f"{name} in {where} is now {RENAMED[name]}: write the new name, the next release refuses "
        "the old one"
    )
    return RENAMED[name]


@cache
def warn_once(text: str) -> None:
    """Log a warning about settings, once in a process: a server reads them at every cycle."""
    logger.warning("%s", text)
