"""Types and words of options; nothing heavy is imported."""

import argparse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from dashboard.accounting.cost.groups import GROUPS

_FIRST_YEAR, _LAST_YEAR = 1970, 2200
JOB_FIELDS = ("namespace", "application", "owner", "user", "state", "kind", "cluster")
JOB_ORDERS = {
    "name": "name",
    "waste": "waste",
    "gpu-hours": "GPU-hours",
    "energy": "energy",
    "last-seen": "last seen",
}
"""Words of the option, and what `data.store.facts.job_sql` calls them."""
WHAT_IF_OPTIONS = ("headroom", "shortfall-price", "churn", "carbon-price", "electricity-price")
"""Options that `dashboard.cycle.what_if` can turn, and the sliders of the plan on Findings."""


def utc_time(text: str) -> datetime:
    """Read an ISO 8601 time with its zone, such as 2026-01-02T00:00:00Z, into UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no ISO 8601 time such as 2026-01-02T00:00:00Z"
        ) from None
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} lacks its zone; add Z for UTC")
    try:
        at = at.astimezone(UTC)
    except OverflowError:
        at = datetime.max.replace(tzinfo=UTC)
    # Further away, counting days from it leaves the calendar.
    if not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        raise argparse.ArgumentTypeError(f"{text!r} lies outside {_FIRST_YEAR} to {_LAST_YEAR}")
    return at


def row_count(text: str) -> int:
    """Read how many rows are shown at most: 1 or more."""
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows above 0")
    return int(text[:9])


def what_if_value(text: str) -> tuple[str, float]:
    """Read what a copy of the plan's problem is solved with: KNOB=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or name not in WHAT_IF_OPTIONS:
        raise argparse.ArgumentTypeError(
            f"{text!r}: give KNOB=VALUE, of {', '.join(WHAT_IF_OPTIONS)}"
        )
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number for {name}") from None


def statement_groups(text: str) -> tuple[str, ...]:
    """Read by what rows of the statement of cost are told apart, comma-separated."""
    groups = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [part for part in groups if part not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(GROUPS)}")
    return groups


TYPES: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "time": utc_time,
    "rows": row_count,
    "turned": what_if_value,
    "groups": statement_groups,
}
"""Types of options, as `commands.toml` names them."""
