"""The month that all of the page Account is of."""

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import streamlit as st

from dashboard.accounting.cost.statement import month_of
from dashboard.web.access.identity import current_world
from dashboard.web.frame.address_filters import pick
from dashboard.web.frame.navigation import MONTH

_MONTHS = ("this month", "last month")


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A calendar month in report.timezone, [start, end): up to the newest sample, or the last."""

    start: datetime
    end: datetime
    zone: str
    is_last: bool

    @property
    def title(self) -> str:
        """The month in words."""
        return f"{self.start.astimezone(ZoneInfo(self.zone)):%B %Y}"

    @property
    def word(self) -> str:
        """Its name in an address."""
        return _MONTHS[self.is_last]


def ask_month() -> None:
    """Ask for the month."""
    pick("Month", _MONTHS, MONTH, seen=False)


def current_month() -> Month:
    """Return the month that the header asks for, the present one where it asks nothing."""
    world = current_world()
    settings = world.settings.settings
    end = min(world.clock(), world.reader.latest_sample_at() or world.clock())
    start = month_of(settings, end)
    is_last = st.session_state.get(MONTH) == _MONTHS[1]
    if is_last:
        start, end = month_of(settings, start), start
    return Month(start=start, end=end, zone=settings.report.timezone, is_last=is_last)
