"""Closed months of drawn and recorded fleets beside the bills that were forecast of them.

Each bill is made as `trimtab statement --budgets` makes it, by `month_row` from rows by day. A
drawn fleet has teams whose demand has weekends, likeness of days, drift and jumps, boards that are
bought and returned now and then, and a PUE within the range of the settings.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from dashboard.accounting.cost.budgets import BudgetRow, month_row
from dashboard.accounting.cost.statement import CostRow, CostStatement
from dashboard.accounting.energy.periods import Calendar, PeriodLength
from data.settings.all_settings import Settings
from data.settings.energy import PUE_UNCERTAINTY
from data.settings.statements import GpuPrice, StatementSettings

Floats = npt.NDArray[np.float64]
FLEETS, SEED, DAYS = 60, 63, 210
HISTORY = 56
_PRICE, _POWER_PRICE = 2.5, 0.2
_REST_KW, _WORK_KW = 0.07, 0.45
_BEGIN = date(2026, 1, 1)
_DAY = timedelta(days=1)
_SETTINGS = Settings(
    statement=StatementSettings(prices=(GpuPrice(gpu_model="H100-SXM5-80GB", per_gpu_hour=_PRICE),))
)
_SERVER_DAYS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What each day cost and drew: money of boards and of power, kWh of the site at central PUE.

    `pue` is the true one over the central.
    """

    kind: str
    begin: date
    boards: Floats
    kwh: Floats
    pue: float = 1.0

    def row(self, day: int) -> CostRow:
        """Return the day as a statement of cost has it."""
        start = datetime.combine(self.begin + day * _DAY, datetime.min.time(), tzinfo=UTC)
        kwh = float(self.kwh[day])
        return CostRow(
            start=start, end=start + _DAY, names=(), board_hours=0.0, used_hours=0.0,
            idle_hours=0.0, shared_hours=0.0, unclear_hours=0.0, free_hours=0.0,
            unattributed_hours=0.0, gpu_kwh=None, site_kwh=kwh, unpriced_hours=0.0,
            unmeasured_hours=0.0, gpu_cost=float(self.boards[day]),
            electricity_cost=_POWER_PRICE * kwh,
        )  # fmt: skip


def drawn_bills() -> Iterator[Bill]:
    """Yield the bills of teams and of the fleets that they make."""
    random = np.random.default_rng(SEED)
    for _fleet in range(FLEETS):
        pue = 1 + random.uniform(-1, 1) * PUE_UNCERTAINTY / _SETTINGS.energy.pue
        teams = [_demand(random) for _team in range(random.integers(2, 7))]
        for gpus in teams:
            yield _bill("drawn, team", _BEGIN, gpus, gpus, pue)
        wanted = np.sum(teams, axis=0)
        bought = np.full(DAYS, 1.1 * wanted[:HISTORY].max())
        changes = random.poisson(DAYS / 150)
        for _change in range(changes):
            bought[random.integers(DAYS) :] *= 1 + random.normal(0, 0.12)
        kind = "drawn, fleet that buys or returns boards" if changes else "drawn, fleet of one size"
        yield _bill(kind, _BEGIN, bought, np.minimum(wanted, bought), pue)


def _demand(random: np.random.Generator) -> Floats:
    keep, spread = random.uniform(0.5, 0.95), random.uniform(0.05, 0.35)
    likeness = np.zeros(DAYS)
    for day in range(1, DAYS):
        likeness[day] = keep * likeness[day - 1] + random.normal(0, spread * np.sqrt(1 - keep**2))
    jumps = np.zeros(DAYS)
    for _jump in range(random.poisson(DAYS / 90)):
        jumps[random.integers(DAYS) :] += random.normal(0, 0.3)
    drift = np.cumsum(random.normal(0, random.uniform(0, 0.015), DAYS))
    weekend = 1 - random.uniform(0, 0.5) * (np.arange(DAYS) % 7 >= 5)
    return np.asarray(random.lognormal(4, 1) * weekend * np.exp(likeness + drift + jumps))


def _bill(kind: str, begin: date, boards: Floats, used: Floats, pue: float = 1.0) -> Bill:
    """Return the bill of boards, of which so many are at work on each day."""
    kilowatts = _REST_KW * boards + (_WORK_KW - _REST_KW) * used
    kwh = 24 * kilowatts * _SETTINGS.energy.pue
    return Bill(kind=kind, begin=begin, boards=24 * _PRICE * boards, kwh=kwh, pue=pue)


def recorded_bills(folder: Path) -> Iterator[Bill]:
    """Yield the bills of Helios, of its boards, and of six servers; price and power are stated."""
    helios = pd.read_parquet(folder / "helios_venus" / "venus_10min.parquet").set_index("time")
    running = helios["running_gpu_est"] - helios["running_gpu_est"].min()
    days = running.resample("1D").mean()[:-1]
    nodes = pd.read_csv(folder / "helios_venus" / "vc_config.csv")["nodes"].sum()
    used = days.to_numpy(float)
    begin = days.index[0].date()
    yield _bill("Helios, jobs", begin, used, used)
    yield _bill("Helios, fleet", begin, np.full(len(used), 8.0 * nodes), used)
    servers = pd.read_parquet(folder / "facility" / "biohpc_gpu_hourly.parquet")
    for _server, rows in servers.groupby("server"):
        times = pd.to_datetime(rows["time_local"])
        hours = rows.set_index(times)["gpu_power_avg_w"]
        hours = hours[~hours.index.duplicated()].sort_index().asfreq("h")
        watts = hours.resample("1D").mean().where(hours.resample("1D").count() >= 12)
        for _gap, part in watts.dropna().groupby(watts.isna().cumsum()[watts.notna()]):
            if len(part) >= _SERVER_DAYS:
                kwh = part.to_numpy(float) * 24 / 1000
                yield Bill(
                    kind="servers, power", begin=part.index[0].date(), boards=0 * kwh, kwh=kwh
                )


def bill_lines(folder: Path) -> Iterator[str]:
    """Yield by kind of bill and month how often the interval held, and the error of its centre."""
    outcomes = [
        (bill.kind, *outcome)
        for bill in (*drawn_bills(), *recorded_bills(folder))
        for outcome in _outcomes(bill)
    ]
    frame = pd.DataFrame(outcomes, columns=["kind", "month", "unit", "inside", "error"])
    for names, part in frame.groupby(["kind", "month", "unit"], sort=False):
        yield (
            f"| {' | '.join(map(str, names))} | {len(part)} | {100 * part['inside'].mean():.0f} % "
            f"| {100 * part['error'].mean():.1f} % |"
        )


def _outcomes(bill: Bill) -> Iterator[tuple[str, str, bool, float]]:
    """Yield each closed month: which, in what, whether it lay inside, and the centre's error."""
    rows = [bill.row(day) for day in range(len(bill.kwh))]
    months = pd.Series(range(len(rows)), index=[row.start.date().replace(day=1) for row in rows])
    for number in range(len(rows)):
        today = bill.begin + number * _DAY
        if number < HISTORY + 1 or today.day not in (2, 16):
            continue
        made = _made(rows[:number])
        month = today.replace(day=1)
        following = (month + timedelta(days=32)).replace(day=1)
        asked = [(f"running, on day {today.day}", month, made.month_end, made.kwh)]
        if today.day == 16:
            asked.append(("next, from day 16", following, made.next_month, made.next_kwh))
        for name, first, money, kwh in asked:
            days = months[months.index == first].to_numpy()
            if len(days) < pd.Timestamp(first).days_in_month:
                continue
            power = float(bill.kwh[days].sum()) * bill.pue
            spent = float(bill.boards[days].sum()) + _POWER_PRICE * power
            for unit, told, actual in (("EUR", money, spent), ("kWh", kwh, power)):
                if told is not None and actual > 0 and (unit == "EUR") == bool(bill.boards.any()):
                    inside = told.low <= actual <= told.high
                    yield name, unit, inside, abs(told.central / actual - 1)


def _made(rows: list[CostRow]) -> BudgetRow:
    end = rows[-1].end
    statement = CostStatement(
        start=rows[0].start, end=end, as_of=end, by=(), tenant_is="namespace",
        calendar=Calendar(every=PeriodLength.DAY), currency="EUR", rows=tuple(rows),
        total=replace(rows[0]), unobserved_hours=0.0, invoices=(), charges=pd.DataFrame(),
    )  # fmt: skip
    return month_row("", rows[-100:], statement, _SETTINGS)
