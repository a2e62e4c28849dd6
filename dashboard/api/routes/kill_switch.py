"""The kill switch of all applying: looked at, thrown and set back.

It has threads and a limit of requests of its own: nothing else that is asked delays it.
"""

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from dashboard.api.http.context import ApiWorld, Caller
from dashboard.api.http.own_threads import OwnThreads
from data.records.commands import MAX_REMARK

_THREADS = 4


class StopWish(BaseModel):
    """Why all applying is stopped."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Annotated[str, Field(max_length=MAX_REMARK)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRow:
    """Whether applying is stopped, and by whom, when and why; unknown is empty."""

    stopped: bool
    by: str = ""
    at: str = ""
    reason: str = ""


def add_switch(api: FastAPI, world: ApiWorld) -> None:
    """Add the resource."""
    threads = OwnThreads(_THREADS)

    async def anyone(request: Request) -> Caller:
        return await threads.run(world.counted, request, "stop")

    Anyone = Annotated[Caller, Depends(anyone)]  # noqa: N806 - a type

    def row() -> SwitchRow:
        stop = world.service.stopped()
        return SwitchRow(stopped=False) if stop is None else SwitchRow(stopped=True, **asdict(stop))

    @api.get("/stop")
    async def stopped(_who: Anyone) -> SwitchRow:
        """Return whether all applying is stopped."""
        return await threads.run(row)

    @api.post("/stop")
    async def stop(wish: StopWish, who: Anyone) -> SwitchRow:
        """Stop all applying at once: whoever is let in may."""

        def stop_now() -> SwitchRow:
            world.service.stop(who.person, wish.reason)
            return row()

        return await threads.run(stop_now)

    @api.delete("/stop")
    async def resume(who: Anyone) -> SwitchRow:
        """Let applying go on, as an admin."""
        await threads.run(world.service.resume, who.person)
        return await threads.run(row)
