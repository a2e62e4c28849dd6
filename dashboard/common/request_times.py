"""Times that callers send: of any offset, and in UTC from there on."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)


def _in_utc(at: datetime) -> datetime:
    return at.astimezone(UTC)


Moment = Annotated[AwareDatetime, Field(ge=_EARLIEST, le=_LATEST), AfterValidator(_in_utc)]
"""A time with an offset, in this century or the next, as UTC."""
