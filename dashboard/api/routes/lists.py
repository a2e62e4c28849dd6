"""Resources that are lists of what is known now, in pages of rows."""

from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from dashboard.api.http.cached_responses import response
from dashboard.api.http.context import ApiWorld
from dashboard.api.http.pagination import PageOfRows, PageQuery, page_of
from dashboard.resources.alerts import AlertWish, acknowledge
from dashboard.resources.listings import LISTINGS, Listing
from dashboard.resources.rows import UrgentRow
from dashboard.resources.selection import Selection
from data.base.rows import row_of


class ListQuery(PageQuery, Selection):
    """The rows of a list that are asked for, their order, and the page of them."""

    def selection(self) -> Selection:
        """Return which rows, in which order."""
        return Selection.model_construct(**self.model_dump(include=set(Selection.model_fields)))


def add_lists(api: FastAPI, world: ApiWorld, *, anyone: Any, viewer: Any) -> None:
    """Add the resources: to `anyone` what they may see of each, to `viewer` what is the fleet's."""

    def lists(name: str, listed: Listing, who_may: Any) -> None:
        def rows(request: Request, who: who_may, query: Annotated[ListQuery, Query()]) -> Response:
            mine, view = world.of(who), world.view(who)
            selection = query.selection()
            place = (name, mine.reader.version(record=True) if listed.of_record else ())

            def make() -> PageOfRows[Any]:
                rows = mine.cache.get((*place, selection), lambda: listed.ordered(view, selection))
                return page_of(rows, listed.row, query)

            return response(request, mine.page((*place, query), make, keep=query.is_first()))

        model = PageOfRows[listed.kind]  # type: ignore[name-defined]
        api.get(f"/{name}", name=name, summary=listed.about, response_model=model)(rows)

    for name, listed in LISTINGS.items():
        lists(name, listed, anyone if listed.anyone else viewer)

    @api.post("/urgent")
    def take_on(wish: AlertWish, who: anyone) -> UrgentRow:
        """Acknowledge an alert: the caller looks after it."""
        return row_of(UrgentRow, acknowledge(world.service, world.of(who).reader, wish, who.person))
