"""Cost of tokens: those of each service beside the energy and money of its boards.

Energy and money are those of the statement of cost, so the services, the other jobs and what nobody
held add up to all boards.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import pandas as pd

from dashboard.accounting.cost.charges import NAMES_OF_UNHELD
from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.accounting.energy.periods import PeriodLength
from data.base.clock import floor_to_slot
from data.base.units import JOULES_PER_KWH, SECONDS_PER_HOUR
from data.settings.all_settings import Settings
from data.store import StoreReader
from data.store.handles.cached_reader import CachedReader

SPAN = timedelta(hours=24)
OTHER_JOBS = "other jobs"
_ROUNDING = 0.05
"""Board-hours without power that the statement, too, does not speak of."""
_AMOUNTS = ["hours", "gpu_kwh", "cost", "unpriced_hours", "unmeasured_hours"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenValue:
    """Use of boards by a holder in the span: board-hours, energy of its GPUs, money.

    Generated tokens and their ratios are of the `known_hours` in which every reading of the
    engines is there, and in each slot one of all boards of its replicas. What is None is unknown:
    `no_cost` and `no_energy` say why there is no ratio.
    Money and energy are of what is known of it.
    """

    holder: str
    board_hours: float
    gpu_kwh: float | None
    cost: float | None
    generation_tokens: float | None
    known_hours: int
    tokens_per_cost: float | None
    tokens_per_joule: float | None
    no_cost: str
    no_energy: str


def token_values(
    reader: StoreReader, settings: Settings, services: Collection[str], *, end: datetime
) -> tuple[TokenValue, ...]:
    """Return services by job id, other jobs, and what no job held, in the 24 whole hours to `end`.

    Together they are all boards that `reader` may see. Empty where no board's time is known.
    """
    until = floor_to_slot(end, SECONDS_PER_HOUR)
    start = until - SPAN
    charges = make_cost_statement(
        reader, settings, start=start, end=until, every=PeriodLength.HOUR
    ).charges
    if charges.empty:
        return ()
    parts = charges.assign(cost=charges[["gpu_cost", "electricity_cost"]].sum(axis=1, min_count=1))
    boards = reader.served_boards(start=start, end=until)
    service_of = dict(zip(boards["held_by"], boards["job_id"], strict=True))
    holders = parts["job"].map(lambda name: service_of.get(name, name))
    of_jobs = holders.where(holders.isin(set(services)), OTHER_JOBS)
    parts["held_by"] = of_jobs.where(parts["holder"] == "job", parts["job"])
    hours = parts.groupby(["held_by", "start"])[_AMOUNTS].sum(min_count=1).reset_index()
    tokens = reader.served_tokens(start=start, end=until).rename(
        columns={"job_id": "held_by", "hour_start": "start"}
    )
    read = boards.loc[boards["all_read"].astype(bool), ["job_id", "hour_start"]].drop_duplicates()
    read = read.rename(columns={"job_id": "held_by", "hour_start": "start"}).assign(all_read=True)
    for frame in (tokens, read):
        frame["start"] = frame["start"].astype(hours["start"].dtype)
    joined = hours.merge(tokens, on=["held_by", "start"], how="left")
    joined = joined.merge(read, on=["held_by", "start"], how="left")
    order = [*sorted(services), OTHER_JOBS, *NAMES_OF_UNHELD.values()]
    groups = dict(iter(joined.groupby("held_by")))
    return tuple(_value(holder, groups[holder]) for holder in order if holder in groups)


def cached_token_values(
    reader: StoreReader, settings: Settings, services: Collection[str], *, end: datetime
) -> tuple[TokenValue, ...]:
    """Return `token_values`, which a reader that remembers makes once while the data stay."""

    def make() -> tuple[TokenValue, ...]:
        return token_values(reader, settings, services, end=end)

    if not isinstance(reader, CachedReader):
        return make()
    return reader.remember(("token values", settings, frozenset(services), end), make)


def _value(holder: str, hours: pd.DataFrame) -> TokenValue:
    """Return the value of one holder from its hours."""
    mask = hours["generation_tokens"].notna()
    read = hours[mask & hours["all_read"].notna()]
    tokens = _total(read["generation_tokens"])
    cost, joules = _total(read["cost"]), _total(read["gpu_kwh"])
    unread = "" if len(read) else "its engines were read in no whole hour of boards that it held"
    if mask.any() and not len(read):
        unread = f"in none of the {mask.sum()} h of its engines were all its boards read throughout"
    unpriced, dark = (read[name].sum() for name in ("unpriced_hours", "unmeasured_hours"))
    no_cost = unread or (
        f"the price of {unpriced:.1f} board-hours is unknown: state it in statement.prices"
        if unpriced > 0 or not cost
        else ""
    )
    no_energy = unread or (
        f"no power was measured in {dark:.1f} board-hours" if dark > _ROUNDING or not joules else ""
    )
    return TokenValue(
        holder=holder,
        board_hours=float(hours["hours"].sum()),
        gpu_kwh=_total(hours["gpu_kwh"]),
        cost=_total(hours["cost"]),
        generation_tokens=tokens,
        known_hours=len(read),
        tokens_per_cost=None if no_cost or not cost or tokens is None else tokens / cost,
        tokens_per_joule=None
        if no_energy or not joules or tokens is None
        else tokens / (joules * JOULES_PER_KWH),
        no_cost=no_cost,
        no_energy=no_energy,
    )


def _total(values: "pd.Series[float]") -> float | None:
    total = values.sum(min_count=1)
    return None if pd.isna(total) else float(total)
