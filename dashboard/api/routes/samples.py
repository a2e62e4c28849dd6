"""Samples behind the figures: readings, and the slots that they were counted as, page by page."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import Field

from dashboard.api.http.context import ApiWorld
from dashboard.api.http.pagination import PageOfRows, PageQuery, bad_cursor, cursor_of, key_after
from dashboard.common.request_times import Moment
from dashboard.resources.sample_rows import (
    ReadingRow,
    SlotRow,
    reading_rows,
    slot_rows,
    traced_range,
)
from data.base.clock import require_utc
from data.store.facts.traced_reader import Place, TracedRange


class ReadingQuery(PageQuery):
    """The readings of a board; without a range, of the day before its newest sample."""

    gpu: Annotated[str, Field(min_length=1, max_length=200, description="UUID of the board")]
    start: Annotated[Moment | None, Field(alias="from")] = None
    end: Annotated[Moment | None, Field(alias="to")] = None


class SlotQuery(PageQuery):
    """The slots of a board, of a job, or of a board while it was the job's."""

    gpu: Annotated[str, Field(max_length=200, description="UUID of the board")] = ""
    job: Annotated[str, Field(max_length=500, description="id of the job")] = ""
    start: Annotated[Moment | None, Field(alias="from")] = None
    end: Annotated[Moment | None, Field(alias="to")] = None


def add_traces(api: FastAPI, world: ApiWorld, *, anyone: Any, viewer: Any) -> None:
    """Add the resources: slots to `anyone`, of their own jobs; readings, which name no job, not."""

    @api.get("/samples")
    def samples(_who: viewer, query: Annotated[ReadingQuery, Query()]) -> PageOfRows[ReadingRow]:
        """Return the readings of a board as collected."""
        reader = world.reader
        span = traced_range(reader, start=query.start, end=query.end, gpu_uuid=query.gpu)
        return _page(reading_rows, reader.count_readings, world, span, query)

    @api.get("/slots")
    def slots(who: anyone, query: Annotated[SlotQuery, Query()]) -> PageOfRows[SlotRow]:
        """Return what each five minutes of a device were counted as: whose, how long, its J."""
        mine = world.of(who)
        span = traced_range(
            mine.reader, start=query.start, end=query.end, gpu_uuid=query.gpu, job_id=query.job
        )
        return _page(slot_rows, mine.reader.count_slots, mine, span, query)


def _page(
    rows: Callable[..., list[Any]],
    count: Callable[[TracedRange], int],
    mine: ApiWorld,
    span: TracedRange,
    query: PageQuery,
) -> PageOfRows[Any]:
    rows_found = rows(mine.reader, span, most=query.limit + 1, after=_place(query.cursor))
    items = rows_found[: query.limit]
    more = len(rows_found) > query.limit
    at, *names = items[-1].place if more else (span.end,)
    return PageOfRows(
        items=items,
        total=count(span),
        next=cursor_of((at.isoformat(), *names)) if more else None,
    )


def _place(cursor: str) -> Place | None:
    """Return the place that a cursor names. Errors: BadCursorError."""
    key = key_after(cursor)
    if key is None:
        return None
    try:
        text, board, instance, job, holder = (str(part) for part in key)
        at = datetime.fromisoformat(text)
        require_utc("cursor", at)
    except ValueError as error:
        raise bad_cursor() from error
    return at, board, instance, job, holder
