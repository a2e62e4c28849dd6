"""Heat of racks: what their boards and hosts draw, which is what cooling takes away, and ahead.

All electric power of a rack becomes heat. Of the boards it is measured; that of hosts is a stated
share of it (power.host_ratio), that of cooling and losses the site's (energy.pue - 1) of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import GroupForecast, GroupKind, Quantity
from data.settings.all_settings import Settings
from data.settings.fleet import PowerDomain
from data.store import StoreReader

if TYPE_CHECKING:
    from forecasting.series.group_series import GroupSeries

HISTORY_DAYS = 28
_HOURS_AHEAD = 24
_KILO = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A rack: its heat in the newest whole hour, and in the 24 h ahead as the latest cycle foresaw.

    In kW, of boards and hosts; None is unknown. `limit_kw` is that of its power domain at the hour
    of the peak, `peak_at`; as in plans it is one of boards, and `over_limit` says whether q95 of
    their power exceeds it in an hour ahead.
    `cooling_kwh` is what cooling and losses of the site take for it in these 24 h.
    """

    rack: str
    boards: int
    heat_kw: float | None
    mean_kw: float | None
    peak_at: datetime | None
    peak_kw: float | None
    peak_q95_kw: float | None
    limit_kw: float
    over_limit: bool | None
    cooling_kwh: float | None
    counts: str


def rack_forecasts(
    reader: StoreReader, domains: Sequence[PowerDomain], as_of: datetime
) -> "tuple[GroupSeries, ...]":
    """Return the power of each rack by the hour, to be forecast; nothing without power domains."""
    if not domains:
        return ()
    from forecasting.series.rack_series import rack_history, rack_series

    power = reader.node_power(start=as_of - timedelta(days=HISTORY_DAYS), end=as_of)
    return tuple(rack_series(rack_history(power, domains), SECONDS_PER_HOUR))


def heat_rows(reader: StoreReader, settings: Settings) -> tuple[HeatRow, ...]:
    """Return a row for each power domain of the settings, in their order."""
    domains = settings.power.domains
    end = reader.latest_sample_at()
    if not domains or end is None:
        return ()
    from forecasting.series.rack_series import rack_history

    history = rack_history(reader.node_power(start=end - timedelta(hours=3), end=end), domains)
    ahead = {
        group.name: group
        for group in reader.group_forecasts()
        if group.kind is GroupKind.RACK and group.by_hour
    }
    rows = []
    for domain in domains:
        hours = history[history["name"] == domain.name]
        newest = None if hours.empty else hours.iloc[-1]
        rows.append(
            _row(
                domain,
                0 if newest is None else int(newest["boards"]),
                None if newest is None else float(newest["power_watts"]),
                ahead.get(domain.name),
                settings,
            )
        )
    return tuple(rows)


def _row(
    domain: PowerDomain,
    boards: int,
    watts: float | None,
    ahead: GroupForecast | None,
    settings: Settings,
) -> HeatRow:
    ratio = 1 + settings.power.host_ratio
    factor = ratio / _KILO
    path = ahead.path(Quantity.POWER) if ahead is not None else None
    peak = mean = upper = over = at = None
    if ahead is not None and path is not None:
        middle, high = path.q50[:_HOURS_AHEAD], (path.q95 or path.q90)[:_HOURS_AHEAD]
        hour = max(range(len(middle)), key=lambda index: high[index])
        at, peak, upper = ahead.slot_starts[hour], middle[hour] * factor, high[hour] * factor
        mean = sum(middle) / len(middle) * factor
        over = any(
            value / _KILO > domain.limit_at(start)
            for value, start in zip(high, ahead.slot_starts, strict=False)
        )
    return HeatRow(
        rack=domain.name,
        boards=boards,
        heat_kw=None if watts is None else watts * factor,
        mean_kw=mean,
        peak_at=at,
        peak_kw=peak,
        peak_q95_kw=upper,
        limit_kw=domain.limit_kw if at is None else domain.limit_at(at),
        over_limit=over,
        cooling_kwh=None if mean is None else mean * _HOURS_AHEAD * (settings.energy.pue - 1),
        counts="boards alone" if ratio == 1 else f"boards and hosts ({ratio:g} times the boards)",
    )
