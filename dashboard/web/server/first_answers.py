"""Answers for the next visitor: what the pages ask first, asked before anybody comes.

Each question is asked by the function that a page uses, with no filter chosen, of the reader that
all pages share: it remembers the answers until the data change.
`tests/dashboard/test_first_answers.py` opens the pages and checks that none of them is asked anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from dashboard.accounting.cost.cost_cache import cached_book
from dashboard.accounting.cost.statement import month_of
from dashboard.accounting.energy.build import calendar_of, make_statement
from dashboard.accounting.energy.periods import PeriodLength
from dashboard.accounting.energy.score import asked_score
from dashboard.accounting.energy.statement import GroupBy
from dashboard.common.threads import Loop
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_energy import weekly_energy
from dashboard.serving.token_cost import token_values
from dashboard.web.access.context import WebWorld
from dashboard.web.frame.scope import USUAL_DAYS
from data.base.units import SECONDS_PER_HOUR

_PAUSE = timedelta(seconds=5)
_DAY = timedelta(days=1)


def asking_first(world: WebWorld) -> Loop:
    """Return the thread that asks whenever a batch or cycle was stored."""
    asks = _Asks(world)
    loop = Loop("trimtab-answers", asks.ask_when_changed, _PAUSE)
    asks.stopping = lambda: loop.stopping
    return loop


@dataclass(slots=True)
class _Asks:
    world: WebWorld
    stopping: Callable[[], bool] = bool
    _version: tuple[int | None, ...] | None = field(default=None, init=False)

    def ask_when_changed(self) -> bool:
        """Ask if the data have changed since, once no cycle is at work. Errors: TrimtabError."""
        version = self.world.reader.version()
        if version != self._version and not self.world.cycle_state().doing:
            self._version = version  # a failure is not asked for again before the next change
            for ask in first_questions(self.world):
                if self.stopping():
                    break
                ask()
        return False


def first_questions(world: WebWorld) -> Iterator[Callable[[], object]]:
    """Yield the questions that pages ask first."""
    reader, settings = world.reader, world.settings.settings
    yield from (reader.job_choices, reader.forecast_summary)
    end = reader.latest_sample_at()
    if end is None:
        return
    stated = partial(make_statement, reader, settings=settings)
    span = {"start": end - timedelta(days=USUAL_DAYS), "end": end}
    yield partial(reader.fleet_history, **span, slot_seconds=SECONDS_PER_HOUR)  # Overview
    yield partial(reader.group_history, **span, slot_seconds=SECONDS_PER_HOUR)  # its week ahead
    yield partial(asked_score, reader, settings, start=None, end=end)  # Overview
    yield partial(stated, start=end - _DAY, end=end, by=GroupBy.MODEL)
    yield partial(stated, start=end - 2 * _DAY, end=end - _DAY, by=GroupBy.FLEET)
    newest = min(world.clock(), end)
    start = month_of(settings, newest)
    days = calendar_of(settings, PeriodLength.DAY)
    yield partial(stated, start=start, end=newest, by=GroupBy.TENANT, calendar=days)  # Energy
    yield partial(stated, start=start - (newest - start), end=start)
    week = week_to(newest, settings.report.timezone)  # Reports
    yield partial(reader.job_holders, seen_since=week.start)
    yield partial(weekly_energy, reader, week=week, settings=settings, jobs=None)
    yield partial(cached_book, reader, settings, now=newest)  # Costs
    if reader.serving_outlook():
        yield partial(token_values, reader, settings, (), end=end)  # Serving
