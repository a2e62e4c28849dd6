"""The score: the share of bought GPU-hours that did work, and all that they are made of.

The hours are those of the statement of energy, so that they add up to every other statement's.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from dashboard.accounting.energy.build import asked_statement
from dashboard.accounting.energy.statement import EsgStatement, Holder
from data.base.clock import ceil_to_slot
from data.base.units import SLOT_SECONDS
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store import StoreReader

_PERCENT, _POINTS = "%", "points"
_LEAST_BEFORE = 0.5
"""The score is compared with a time before if so many of its board-hours were watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Bought GPU-hours of [start, end): the seven others add up to `bought_hours`.

    Jobs held those worked, idle, contradicted and unread; of the last two, and of what nobody known
    held (`unattributed`) or nobody saw (`unobserved`), the activity is unknown. `share` is worked
    of known; its low counts the unknown as no work, its high as work. `before` is that of as long a
    time before, None where less than half of it was watched, `change` the difference. None where
    nothing is known.
    """

    start: datetime
    end: datetime
    share: Range | None
    before: Range | None
    change: Range | None
    bought_hours: float
    worked_hours: float
    idle_hours: float
    free_hours: float
    contradicted_hours: float
    unread_hours: float
    unattributed_hours: float
    unobserved_hours: float


def asked_score(
    reader: StoreReader, settings: Settings, *, start: datetime | None, end: datetime | None
) -> Score:
    """Return the score of a range, without one of the 7 days before the newest sample.

    Errors: BadRangeError.
    """

    def statement(start: datetime | None, end: datetime | None) -> EsgStatement:
        return asked_statement(reader, settings, by="tenant", every="total", start=start, end=end)

    now = statement(start, end)
    hours = _hours(reader, now)
    as_long_before = ceil_to_slot(now.start - (now.end - now.start), SLOT_SECONDS)
    before = _hours(reader, statement(as_long_before, now.start))
    watched = before["bought_hours"] - before["unobserved_hours"]
    share = _share(hours)
    share_before = _share(before) if watched >= _LEAST_BEFORE * hours["bought_hours"] else None
    change = None
    if share is not None and share_before is not None:
        change = Range(
            low=share.low - share_before.high,
            central=share.central - share_before.central,
            high=share.high - share_before.low,
            unit=_POINTS,
        )
    return Score(
        start=now.start, end=now.end, share=share, before=share_before, change=change, **hours
    )


def _hours(reader: StoreReader, statement: EsgStatement) -> dict[str, float]:
    held_by: dict[Holder, float] = defaultdict(float)
    for row in statement.groups:
        held_by[row.holder] += row.board_hours
    work = sum(row.used_gpu_hours or 0.0 for row in statement.groups)
    idle = sum(row.idle_gpu_hours or 0.0 for row in statement.groups)
    unclear = max(0.0, held_by[Holder.JOB] - work - idle)
    doubtful = reader.contradicted_hours(start=statement.start, end=statement.end)
    contradicted = min(unclear, doubtful)
    return {
        "bought_hours": sum(held_by.values()),
        "worked_hours": work,
        "idle_hours": idle,
        "free_hours": held_by[Holder.FREE],
        "contradicted_hours": contradicted,
        "unread_hours": unclear - contradicted,
        "unattributed_hours": held_by[Holder.UNATTRIBUTED],
        "unobserved_hours": held_by[Holder.MISSING],
    }


def _share(hours: dict[str, float]) -> Range | None:
    total, work = hours["bought_hours"], hours["worked_hours"]
    certain = work + hours["idle_hours"] + hours["free_hours"]
    if certain <= 0:
        return None
    low, central, high = (
        min(100.0, 100 * part)
        for part in (work / total, work / certain, (work + max(0.0, total - certain)) / total)
    )
    return Range(low=min(low, central), central=central, high=max(high, central), unit=_PERCENT)


def score_badge(score: Score) -> bytes:
    """Return the score as a picture for other pages. It holds numbers alone, and no name."""
    share = score.share
    text = (
        "unknown" if share is None else f"{share.central:.0f} % ({share.low:.0f}–{share.high:.0f})"
    )
    return _BADGE.format(
        text=text, hours=f"{score.start:%Y-%m-%d} to {score.end:%Y-%m-%d}"
    ).encode()


_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="210" height="20" role="img" \
aria-label="GPU-hours at work: {text}"><title>GPU-hours at work, {hours}: {text}</title>
<rect width="120" height="20" fill="#444"/><rect x="120" width="90" height="20" fill="#1f6f8b"/>
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">\
<text x="60" y="14">GPU-hours at work</text><text x="165" y="14">{text}</text></g></svg>
"""
