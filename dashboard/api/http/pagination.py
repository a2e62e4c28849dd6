"""Long lists in pages: a cursor is the sort key of the last row that was given."""

import base64
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from data.base.errors import TrimtabError

Row = TypeVar("Row")
MAX_ROWS = 1000


class PageQuery(BaseModel):
    """Which page of a list is asked for. A parameter that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="rows of a page")] = 100
    cursor: Annotated[
        str, Field(max_length=2000, description="`next` of the page before; '' for the first")
    ] = ""

    def is_first(self) -> bool:
        """Return whether it is what is asked for again and again."""
        return not self.cursor


class PageOfRows(BaseModel, Generic[Row]):
    """Rows in order; `next` is the cursor of the page after this one, None on the last."""

    items: list[Row]
    total: int
    next: str | None


class BadCursorError(TrimtabError):
    """A cursor that no page gave."""


Keyed = tuple[tuple[Any, ...], Row]
"""A row behind its key, which is of numbers and texts and of one row only."""


def keyed(rows: Iterable[Row], key: Callable[[Row], tuple[Any, ...]]) -> list[Keyed[Row]]:
    """Return the rows in the order of their keys, with these."""
    return sorted(((key(row), row) for row in rows), key=lambda pair: pair[0])


def page_of(
    ordered: Sequence[Keyed[Any]], row_of: Callable[[Any], Row], query: PageQuery
) -> PageOfRows[Row]:
    """Return one page of what is ordered, each made to a row.

    Rows that come or go between two pages are given once or not at all, never twice. Errors:
    BadCursorError.
    """
    begun, limit = key_after(query.cursor), query.limit
    try:
        start = 0 if begun is None else bisect_right(ordered, begun, key=lambda pair: pair[0])
    except TypeError as error:
        raise bad_cursor() from error
    page = ordered[start : start + limit]
    token = cursor_of(page[-1][0]) if len(ordered) > start + limit else None
    return PageOfRows(items=[row_of(row) for _key, row in page], total=len(ordered), next=token)


def cursor_of(key: tuple[Any, ...]) -> str:
    """Return the cursor of the page after the row with this key."""
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode()


def key_after(cursor: str) -> tuple[Any, ...] | None:
    """Return the key of the last row that was given, None for the first page.

    Errors: BadCursorError.
    """
    if not cursor:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, RecursionError) as error:
        raise bad_cursor() from error
    if not isinstance(key, list):
        raise bad_cursor()
    return tuple(key)


def bad_cursor() -> BadCursorError:
    """Return the answer to a cursor that no page gave."""
    return BadCursorError("this is no cursor of such a list", "Begin again without `cursor`.")
