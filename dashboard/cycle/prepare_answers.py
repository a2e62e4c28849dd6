"""Asks at the end of a cycle what pages ask first, so that the store keeps the answers.

Each question is asked by the function that the page or the API uses, with no filter chosen.
`tests/dashboard/test_prepared.py` opens the pages and checks that none of them is asked anew.
"""

import logging
from datetime import datetime, timedelta

from dashboard.accounting.cost.cost_cache import kept_book
from dashboard.accounting.cost.statement import month_of
from dashboard.accounting.energy.build import calendar_of, make_statement
from dashboard.accounting.energy.periods import Every
from dashboard.accounting.energy.statement import GroupBy
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_energy import weekly_energy
from dashboard.serving.token_cost import token_values
from data.base.errors import TrimtabError
from data.base.units import SECONDS_PER_HOUR
from data.catalogue.carbon_table import load_carbon_table
from data.settings.all_settings import Settings
from data.store import Store, StoreReader
from data.store.handles.answer_recorder import prepare

logger = logging.getLogger(__name__)
USUAL_DAYS = 7
"""The range that a page opens with."""
_DAY = timedelta(days=1)


def prepare_answers(store: Store, settings: Settings, *, now: datetime) -> None:
    """Keep the answers for the pages of the newest batch and cycle.

    A failure is logged, no error: the cycle is kept already, and pages then make their own.
    """
    try:
        count = prepare(store, lambda reader: _ask(reader, settings, now), at=now)
    except TrimtabError as error:
        logger.warning("no answers are prepared for the pages: %s", error)
    else:
        logger.info("%d answers are prepared for the pages", count)


def _ask(reader: StoreReader, settings: Settings, now: datetime) -> None:
    reader.job_choices()
    reader.forecast_summary()
    end = reader.latest_sample_at()
    if end is None:
        return
    start = end - timedelta(days=USUAL_DAYS)
    reader.fleet_history(start=start, end=end, slot_seconds=SECONDS_PER_HOUR)  # Overview
    reader.group_history(start=start, end=end, slot_seconds=SECONDS_PER_HOUR)  # its week ahead
    for since, until, by in (
        (end - _DAY, end, GroupBy.MODEL),
        (end - 2 * _DAY, end - _DAY, GroupBy.FLEET),
    ):
        make_statement(reader, start=since, end=until, settings=settings, by=by)  # Overview
    newest = min(now, end)
    start = month_of(settings, newest)
    make_statement(
        reader,
        start=start,
        end=newest,
        settings=settings,
        by=GroupBy.TENANT,
        calendar=calendar_of(settings, Every.DAY),
    )  # Energy
    make_statement(reader, start=start - (newest - start), end=start, settings=settings)
    week = week_to(newest, settings.report.timezone)  # Reports
    reader.job_holders(seen_since=week.start)
    carbon = load_carbon_table().get(settings.energy.region)
    weekly_energy(reader, week=week, settings=settings, carbon=carbon, jobs=None)
    kept_book(reader, settings, now=now)  # Costs
    if reader.serving_outlook():
        token_values(reader, settings, (), end=end)  # Serving
