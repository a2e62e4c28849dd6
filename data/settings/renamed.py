"""Settings that are gone, or a part of others: one more release knows them."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

logger = logging.getLogger(__name__)

_NO_CHAT = "messages link to the page on which a finding is decided"
_NO_CONTEXTS = "each further cluster is a table of clusters.others, with a file of its own"
_NO_TICKETS = "no ticket is opened; Jira and ServiceNow can make one of a mail (notify.mail_to)"
WITHOUT_EFFECT = {
    "access.oidc_cookie_secret": "the key is made of access.oidc_client_secret",
    "access.requests_per_minute": "a person may send 1200 requests a minute",
    "apply.min_energy_kwh": "a change must save 1 GPU-h or 1 kWh",
    "apply.min_gpu_hours": "a change must save 1 GPU-h or 1 kWh",
    "apply.poll_seconds": "a change under way is looked at every 2 s",
    "apply.throughput_loss_ratio": "a change falls short from a tenth less throughput on",
    "apply.verify_slots": "savings are measured after 8 slots",
    "apply.watch_minutes": "an applied change is watched for 30 min",
    "apply_git.branch_prefix": "branches of Trimtab begin with trimtab/",
    "apply_git.forge": "the end of apply_git.api_url says which forge it is",
    "apply_git.poll_seconds": "a request is looked at once a minute",
    "apply_git.timeout_seconds": "a git command or request may take 30 s",
    "apply_kubernetes.cut_seconds": "a node's MIG manager may take 15 min",
    "apply_kubernetes.timeout_seconds": "a request may take 30 s",
    "apply_power.lease_seconds": "a cap that is not renewed ends after 900 s",
    "apply_simulated.enabled": "simulated_fleet.state_file and apply.enabled let changes go there",
    "apply_slurm.mode": "changes go by slurmrestd where a token for it is given, else by scontrol",
    "apply_slurm.timeout_seconds": "a change may take 10 s, a look 30 s",
    "chat.people": _NO_CHAT,
    "chat.slack_answers": _NO_CHAT,
    "chat.slack_signing_secret": _NO_CHAT,
    "chat.teams_security_token": _NO_CHAT,
    "clusters.contexts": _NO_CONTEXTS,
    "clusters.selector": _NO_CONTEXTS,
    "energy.forecast_max_age_hours": "plans do without a forecast that is older than 36 h",
    "energy.hardware_life_years": "the footprint of a GPU is spread over 5 years",
    "energy.pue_uncertainty": "the PUE is taken as 0.1 off on either side",
    "grid.carbon_url": "a provider is asked at its own address; HTTPS_PROXY names a proxy",
    "grid.file": "what providers said stands in grid_forecast.json of the state folder",
    "grid.interval_minutes": "providers are asked once an hour",
    "grid.price": "day-ahead prices are ENTSO-E's where grid.price_zone is given",
    "grid.price_url": "ENTSO-E is asked where grid.price_zone is given; HTTPS_PROXY names a proxy",
    "grid.timeout_seconds": "a request may take 20 s",
    "kubernetes.page_size": "500 objects are asked for at once",
    "kubernetes.timeout_seconds": "a request may take 30 s",
    "nodes.hot_celsius": "a GPU is called hot from 85 °C on",
    "nodes.hot_memory_celsius": "a GPU's memory is called hot from 95 °C on",
    "nodes.min_off_minutes": "an empty node is planned to be off for an hour at least",
    "notify.attempts": "a message is tried 8 times",
    "notify.quiet_time": "messages go out at once; chats and mail programs have quiet hours",
    "notify.teams": "a namespace gets its own part of the weekly report: report.teams",
    "notify.ticket_events": _NO_TICKETS,
    "notify.ticket_kind": _NO_TICKETS,
    "notify.ticket_project": _NO_TICKETS,
    "notify.ticket_token": _NO_TICKETS,
    "notify.ticket_url": _NO_TICKETS,
    "notify.ticket_user": _NO_TICKETS,
    "notify.timeout_seconds": "a message may take 10 s",
    "nvml.interval_seconds": "`serve` reads every 10 s",
    "planning.entry_margin_ratio": "the margin is 10 %",
    "planning.expiry_hours": "a recommendation lasts 24 h",
    "planning.frozen_minutes": "a new plan keeps what the last one said for 30 min",
    "planning.grow_elastic_training": "training keeps the GPUs that it has",
    "planning.hysteresis_ratio": "a change must save twice what making it costs",
    "planning.idle_utilization_ratio": "a GPU counts as idle up to a utilization of 1 %",
    "planning.max_reading_age_minutes": "nothing is proposed from readings older than an hour",
    "planning.max_return_chance": "a job is stopped where its work returns at 10 % at most",
    "planning.min_coverage_ratio": "half of a job's history must be known",
    "planning.min_history_hours": "jobs of less than 6 h of known history borrow a forecast",
    "planning.rejected_days": "what was rejected is not proposed again for 30 days",
    "planning.series_seconds": "Prophet may take 60 s for one series",
    "planning.workers": "forecasts use every core",
    "prometheus.budget_seconds": "the requests of a collection may take 300 s",
    "prometheus.max_series": "100,000 series of a metric and day are read",
    "prometheus.timeout_seconds": "a request may take 30 s",
    "report.send_hour": "reports are sent from 7 o'clock on",
    "report.week_ends": "the reported week ends as Monday begins",
    "retention.forecast_hours": "superseded forecasts are kept for 6 h",
    "retention.plan_hours": "superseded plans on which nobody decided are kept for 24 h",
    "retention.undecided_days": "recommendations on which nobody decided are kept for 7 days",
    "serving.cold_start_minutes": "8 min are assumed until nine starts were seen",
    "serving.reactive_ratio": "the reactive rule fills a replica to 0.7",
    "serving.stale_minutes": "readings count for 30 min, or a cycle and 5 min",
    "simulated_fleet.seed": "the simulated fleet is that of seed 7",
    "simulated_fleet.slow_jobs": "training jobs of the simulated fleet keep their boards busy",
    "slurm.mig_layouts_file": "nodes of Slurm are cut by their administrators",
    "slurm.timeout_seconds": "a command or request may take 30 s",
    "statement.billing_account": "the billing account of FOCUS exports is trimtab",
    "statement.provider": "the provider of FOCUS exports is own fleet",
    "store.min_free_mib": "nothing is collected below 500 MiB of free space",
    "submit.keep_finished_hours": "Kubernetes deletes a finished job after a week",
    "submit.without_confirmation": "`trimtab submit --yes` submits without asking",
    "tenants.borrow_price": "a borrowed board costs 0.05 an hour",
    "tenants.guarantee_price": "a board missing of a guarantee costs 20 an hour",
}
"""A setting that is gone, as `section.field`, and what holds now."""


def _same(parts: Mapping[str, Any]) -> Any:
    return next(iter(parts.values()))


def _smtp_url(parts: Mapping[str, Any]) -> str:
    user = parts.get("notify.smtp_user", "")
    scheme = "smtp+starttls" if parts.get("notify.smtp_starttls") else "smtp"
    host = parts.get("notify.smtp_host", "127.0.0.1")
    who = f"{quote(user, safe='')}@" if user else ""
    return f"{scheme}://{who}{host}:{parts.get('notify.smtp_port', 25)}"


def _hours_zone(parts: Mapping[str, Any]) -> str:
    minutes = round(60 * _same(parts))
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Settings that are a part of another now: the kind of each, and the value that they make."""

    kinds: Mapping[str, type]
    value: Callable[[Mapping[str, Any]], Any] = _same
    are_paths: bool = False


MERGED: Mapping[str, Merge] = {
    "access.public_url": Merge(
        kinds={"access.oidc_redirect_uri": str},
        value=lambda parts: _same(parts).removesuffix("/oauth2callback"),
    ),
    "energy.hours_zone": Merge(kinds={"energy.hour_offset": float}, value=_hours_zone),
    "notify.smtp_url": Merge(
        kinds={
            "notify.smtp_host": str,
            "notify.smtp_port": int,
            "notify.smtp_starttls": bool,
            "notify.smtp_user": str,
        },
        value=_smtp_url,
    ),
    "slurm.bin_directory": Merge(kinds={"apply_slurm.bin_directory": str}, are_paths=True),
    "slurm.conf_file": Merge(kinds={"apply_slurm.conf_file": str}, are_paths=True),
    "slurm.rest_url": Merge(kinds={"apply_slurm.rest_url": str}),
}
"""A setting, and those of before that make its value where it is not given itself."""

MERGED_INTO = {old: name for name, merge in MERGED.items() for old in merge.kinds}


def with_merged(values: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    """Return values by name, each with its origin, in which no setting of before is left."""
    current = {name: value for name, value in values.items() if name not in MERGED_INTO}
    for name, merge in MERGED.items():
        parts = {old: values[old] for old in merge.kinds if old in values}
        if parts and name not in current:
            value = merge.value({old: value for old, (value, _origin) in parts.items()})
            current[name] = (value, next(iter(parts.values()))[1])
    return current


def has_no_effect(name: str, where: str) -> bool:
    """Return whether a setting is gone; log a warning where it is still given."""
    if name not in WITHOUT_EFFECT:
        return False
    warn_once(
        f"{name} in {where} has no effect any more: {WITHOUT_EFFECT[name]}. Delete it there, the "
        "next release refuses it"
    )
    return True


def warn_of_merged(name: str, where: str) -> None:
    """Log a warning where a setting is given that is a part of another now."""
    if name in MERGED_INTO:
        warn_once(
            f"{name} in {where} is a part of {MERGED_INTO[name]} now: write that, the next release "
            "refuses the old one"
        )


@cache
def warn_once(text: str) -> None:
    """Log a warning about settings, once in a process: a server reads them at every cycle."""
    logger.warning("%s", text)
