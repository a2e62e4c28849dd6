"""Stores of one engine for whole stories: empty, or a copy of one that was filled once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

import pytest
from beds.postgres import PostgresBed
from factories import NOW, make_plan
from sqlalchemy.engine import make_url

from data.records.recommendations import Recommendation
from data.store import Store, open_store
from data.store.engine.dialects import is_postgres

DUCKDB, POSTGRES = "duckdb", "postgres"
ENGINES = [DUCKDB, pytest.param(POSTGRES, marks=pytest.mark.postgres)]
"""For every test that runs on both."""

on_both_engines = pytest.mark.parametrize("engine", ENGINES, indirect=True, scope="session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Makes the stores of an engine; PostgreSQL starts with the first that needs it."""

    engine: str
    server: Callable[[], PostgresBed]

    @contextmanager
    def empty(self, folder: Path) -> Iterator[str]:
        """The address of a store without tables; on DuckDB its file stays in the folder."""
        if self.engine == DUCKDB:
            yield f"duckdb:///{folder}/trimtab.duckdb"
        else:
            with self.server().database() as url:
                yield url

    @contextmanager
    def copy_of(self, url: str, folder: Path) -> Iterator[str]:
        """The address of a copy of a store that nobody has open."""
        if self.engine == DUCKDB:
            path = copy(url.removeprefix("duckdb:///"), folder / "trimtab.duckdb")
            yield f"duckdb:///{path}"
        else:
            with self.server().database(template=str(make_url(url).database)) as own:
                yield own


def empty(_store: Store) -> None:
    """Leave the store without rows."""


@contextmanager
def filled(url: str, fill: Callable[[Store], object] = empty) -> Iterator[Store]:
    """A fresh store as `fill`, a function of a module, leaves one: by default an empty one.

    On DuckDB it is a copy of one that is made once a process, which takes longer than many a test.
    """
    is_duckdb = url.startswith("duckdb")
    if is_duckdb:
        Path(url.removeprefix("duckdb:///")).write_bytes(_file_of(fill))
    with open_store(url) as store:
        if not is_duckdb:
            fill(store)
        yield store


@lru_cache(maxsize=8)
def _file_of(fill: Callable[[Store], object]) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.duckdb"
        with open_store(f"duckdb:///{path}") as store:
            fill(store)
        return path.read_bytes()


_UNDONE_BY = {
    22: ("DROP TABLE contradictions",),
    23: ("DROP TABLE sign_ins",),
    24: ("DROP TABLE group_hours", "DROP TABLE job_slots"),
    25: (
        "DROP TABLE kept_slots",
        "ALTER TABLE group_hours ADD COLUMN slot_seconds INTEGER DEFAULT 3600",
        "ALTER TABLE job_slots ADD COLUMN slot_seconds INTEGER DEFAULT 900",
    ),
    27: ("CREATE TABLE prepared_answers (place BIGINT PRIMARY KEY)",),
    28: ("ALTER TABLE job_progress DROP COLUMN checkpoint_at",),
}


def back_to_schema(store: Store, version: int) -> None:
    """Make the store what a Trimtab of that schema (20 or later) would have left."""
    with store._engine.begin() as connection:
        for number, statements in reversed(_UNDONE_BY.items()):
            for statement in statements if number > version else ():
                connection.exec_driver_sql(statement)
        if version < 21 and is_postgres(connection):
            connection.exec_driver_sql("DROP FUNCTION require_entry CASCADE")
        connection.exec_driver_sql(f"DELETE FROM schema_version WHERE version > {version}")  # noqa: S608


def cycle(
    store: Store, number: int, *found: Recommendation, at: datetime | None = None
) -> tuple[Recommendation, ...]:
    """Keep the cycle of an hour with its recommendations, which are given as of that hour."""
    at = at or NOW + number * timedelta(hours=1)
    plan = replace(make_plan(), plan_id=f"{number:064d}")
    made = tuple(
        replace(
            recommendation, plan_id=plan.plan_id, created_at=at, expires_at=at + timedelta(days=1)
        )
        for recommendation in found
    )
    store.keep_cycle(
        cycle_id=f"c{number}", started_at=at, finished_at=at, forecasts=(),
        plan=plan, recommendations=made,
    )  # fmt: skip
    return made
