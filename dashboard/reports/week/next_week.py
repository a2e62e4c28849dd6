"""Forecast need of the coming week, day by day, against the present boards."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from dashboard.reports.week.editions import WHOLE, Edition, EditionKind
from dashboard.reports.week.week import Week
from data.records.forecasts import GroupForecast, GroupKind, QuantilePath, Quantity
from data.records.recommendations import Range

_GROUPS = {EditionKind.FLEET: GroupKind.FLEET, EditionKind.NAMESPACE: GroupKind.NAMESPACE}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayAhead:
    """One day of the zone: mean of the hours' q10, q50, q90, and the hour whose q90 is largest.

    `hours` tells how many hours of the day the forecast covers.
    """

    day: date
    hours: int
    wanted: Range | None
    used: Range | None
    peak_wanted: float | None
    peak_at: datetime | None


def days_ahead(
    groups: Sequence[GroupForecast], week: Week, edition: Edition = WHOLE
) -> tuple[DayAhead, ...]:
    """Return the days that the hourly forecast of the fleet or namespace reaches; none without one.

    The mean of the hours' quantiles is wider than the quantile of the day's mean, since hours are
    not perfectly tied to one another: a cautious range.
    """
    key = _GROUPS.get(edition.kind), edition.name or "fleet"
    fleet = next(
        (group for group in groups if (group.kind, group.name) == key and group.by_hour), None
    )
    if fleet is None:
        return ()
    hours_of: dict[date, list[int]] = {}
    for index, at in enumerate(fleet.slot_starts):
        hours_of.setdefault(week.date_of(at), []).append(index)
    demand = fleet.path(Quantity.ALLOCATED_GPUS)
    used = fleet.path(Quantity.EFFECTIVE_GPUS)
    rows = []
    for day, hours in sorted(hours_of.items()):
        peak = None if demand is None else max(hours, key=lambda hour: demand.q90[hour])
        rows.append(
            DayAhead(
                day=day,
                hours=len(hours),
                wanted=_mean(demand, hours),
                used=_mean(used, hours),
                peak_wanted=None if demand is None or peak is None else demand.q90[peak],
                peak_at=None if peak is None else fleet.slot_starts[peak],
            )
        )
    return tuple(rows)


def _mean(path: QuantilePath | None, hours: Sequence[int]) -> Range | None:
    if path is None:
        return None
    low, central, high = (
        sum(level[hour] for hour in hours) / len(hours) for level in (path.q10, path.q50, path.q90)
    )
    return Range(low=low, central=central, high=high, unit="GPU")
