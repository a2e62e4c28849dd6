"""Server-sent events: entries of the record, and cycles that ended.

The id of an event is the sequence of the record, so who comes back with Last-Event-ID misses no
entry. A stream ends by itself, and its right is asked again before anything more is told.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, ConfigDict, Field

from dashboard.api.http.context import ApiWorld, Caller
from dashboard.api.http.rate_limits import TooManyRequestsError
from dashboard.resources.rows import audit_row
from data.base.errors import NotAllowedError
from data.records.commands import AuditEntry

_MOST_STREAMS, _MOST_OF_A_CALLER = 64, 8
_BATCH = 100
_PAUSE_SECONDS = 1.0
_BUSY_SECONDS = 60
Sequence = Annotated[int, Field(ge=0, le=2**53)]


class EventQuery(BaseModel):
    """From where on, and for how long; Last-Event-ID counts before `after`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[Sequence | None, Field(description="sequence of the record; now")] = None
    seconds: Annotated[float, Field(ge=0, le=3600, description="0: only what there is")] = 900.0


def add_events(api: FastAPI, world: ApiWorld, anyone: Any) -> None:
    """Add the resource; owners are told of their own findings."""
    streams = Counter[str]()

    async def seat(who: anyone) -> AsyncIterator[Caller]:
        name = who.person.name
        # The first of each caller is never refused: others could take all there are.
        crowded = streams[name] > 0 and streams.total() >= _MOST_STREAMS
        if streams[name] >= _MOST_OF_A_CALLER or crowded:
            raise TooManyRequestsError(
                f"{streams[name]} streams of {name} are open, of {streams.total()}",
                retry_after_seconds=_BUSY_SECONDS,
            )
        streams[name] += 1
        try:
            yield who
        finally:
            streams[name] -= 1

    @api.get("/events", response_class=EventSourceResponse)
    async def events(
        request: Request,
        query: Annotated[EventQuery, Query()],
        _who: Annotated[Any, Depends(seat)],
        last_event_id: Annotated[Sequence | None, Header()] = None,
    ) -> AsyncIterator[ServerSentEvent]:
        """Tell the entries of the record as they are made, and the cycles as they end."""
        after = query.after if last_event_id is None else last_event_id
        async for event in _events(world, request, after, query.seconds):
            yield event


async def _events(
    world: ApiWorld, request: Request, after: int | None, seconds: float
) -> AsyncIterator[ServerSentEvent]:
    end = anyio.current_time() + seconds
    version = await run_sync(_version, world)
    cycle, position = version[1], version[2] if after is None else after
    while True:
        entries: tuple[AuditEntry, ...] = ()
        if version[2] > position:
            news = await run_sync(_news, world, request, position)
            if news is None:
                return
            entries, visible = news
            for event in visible:
                yield event
            position = entries[-1].sequence if entries else position
        if version[1] != cycle:
            cycle = version[1]
            yield ServerSentEvent(event="cycle", data={"cycle": cycle}, id=str(position))
        if len(entries) < _BATCH:
            if anyio.current_time() >= end:
                return
            await anyio.sleep(_PAUSE_SECONDS)
        version = await run_sync(_version, world)


def _version(world: ApiWorld) -> tuple[int, int, int]:
    """Return the newest batch, cycle and entry of the record."""
    batch, cycle, _decision, entry = world.reader.version(record=True)
    return batch or 0, cycle or 0, entry or 0


def _news(
    world: ApiWorld, request: Request, position: int
) -> tuple[tuple[AuditEntry, ...], list[ServerSentEvent]] | None:
    """Return the next entries, and those that who asks may see; None where nobody does any more."""
    try:
        who = world.known(request)
    except NotAllowedError:
        return None
    entries = world.reader.entries_after(position, _BATCH)
    return entries, list(_visible(world, who, entries))


def _visible(
    world: ApiWorld, who: Caller, entries: Iterable[AuditEntry]
) -> Iterable[ServerSentEvent]:
    mine = None
    if who.role == "owner":
        mine = {status.finding.number for status in world.findings(who)}
    for entry in entries:
        about = world.reader.finding_about(entry.digest)
        if mine is None or (about is not None and about.number in mine):
            reference = "" if about is None else about.reference
            fields = asdict(audit_row(entry)) | {"finding": reference}
            yield ServerSentEvent(event="record", data=fields, id=str(entry.sequence))
