"""Keeps what providers say of the grid's hours ahead in a file, in the form of a forecast file.

A provider that does not answer leaves what was said before in force, of carbon and price together,
until that is too old (`MAX_AGE_HOURS`); the log and `trimtab doctor` name it.
"""

import json
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from collectors.grid.providers import Hours, carbon_ahead, price_ahead
from data.base.errors import CollectorError
from data.catalogue.grid_forecast import current_outlook
from data.settings.all_settings import Settings
from data.store.engine.private_files import make_folder, write_private

logger = logging.getLogger(__name__)

_INTERVAL = timedelta(hours=1)
"""Providers issue about once an hour, and count requests."""


def refresh_grid(settings: Settings, now: datetime) -> tuple[str, ...]:
    """Ask the providers where what they said is old; give what failed. Nothing is raised."""
    grid = settings.grid
    if not grid.in_use or settings.energy.forecast_file:
        return ()
    before = current_outlook(settings, now).forecast
    if before and now - before.issued_at < _INTERVAL:
        return ()
    failed: list[str] = []

    def hours_of(ask: Callable[[], Hours]) -> Hours:
        try:
            return ask()
        except CollectorError as error:
            failed.append(str(error))
            return {}

    carbon = hours_of(lambda: carbon_ahead(grid, now)) if grid.carbon else {}
    currency = settings.energy.currency
    price = hours_of(lambda: price_ahead(grid, now, currency)) if grid.price else {}
    if (carbon or price) and not (failed and before):
        try:
            _keep(Path(grid.file), now, carbon, price)
        except OSError as error:
            failed.append(f"{grid.file} cannot be written: {error.strerror}")
    for why in failed:
        logger.warning("the grid's hours ahead: %s", why)
    return tuple(failed)


def _keep(path: Path, now: datetime, carbon: Hours, price: Hours) -> None:
    """Write an issue: at every time that either tells of, what holds then. Errors: OSError."""
    times = sorted(carbon.keys() | price.keys())
    columns = {"gco2e_per_kwh": _at(carbon, times), "price_per_kwh": _at(price, times)}
    rows = [
        {"issued_at": now.isoformat(), "time": at.isoformat()}
        | {name: values[at] for name, values in columns.items() if at in values}
        for at in times
    ]
    make_folder(path.parent)
    write_private(path, json.dumps(rows).encode())


def _at(hours: Hours, times: Sequence[datetime]) -> Hours:
    """Return the value at each of the ascending times: nothing before the first and past the last.

    A value holds for the shortest of the steps.
    """
    starts = sorted(hours)
    step = min((later - earlier for earlier, later in pairwise(starts)), default=timedelta(hours=1))
    hours_at: Hours = {}
    past = -1
    for at in times:
        while past + 1 < len(starts) and starts[past + 1] <= at:
            past += 1
        if past >= 0 and at < starts[past] + step:
            hours_at[at] = hours[starts[past]]
    return hours_at
