"""The kill switch of all applying: looked at, thrown and set back."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from dashboard.api.http.context import ApiWorld
from dashboard.decisions.requests import MAX_REMARK


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


def add_switch(api: FastAPI, world: ApiWorld, anyone: Any) -> None:
    """Add the resource; `anyone` lets in who has a role."""

    def row() -> SwitchRow:
        found = world.service.stopped()
        return (
            SwitchRow(stopped=False) if found is None else SwitchRow(stopped=True, **asdict(found))
        )

    @api.get("/stop")
    def stopped(_who: anyone) -> SwitchRow:
        """Return whether all applying is stopped."""
        return row()

    @api.post("/stop")
    def stop(wish: StopWish, who: anyone) -> SwitchRow:
        """Stop all applying at once: whoever is let in may."""
        world.service.stop(who.person, wish.reason)
        return row()

    @api.delete("/stop")
    def resume(who: anyone) -> SwitchRow:
        """Let applying go on, as an admin."""
        world.service.resume(who.person)
        return row()
