"""Resources that are lists of what is known now, in pages of rows."""

from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from dashboard.api.http.cached_responses import response
from dashboard.api.http.context import ApiWorld
from dashboard.api.http.pagination import Keyed, PageOfRows, PageQuery, keyed, page_of
from dashboard.resources.listings import LISTINGS, Listing


def add_lists(api: FastAPI, world: ApiWorld, *, anyone: Any, viewer: Any) -> None:
    """Add the resources: to `anyone` what they may see of each, to `viewer` what is the fleet's."""

    def lists(name: str, listed: Listing, who_may: Any) -> None:
        def ordered(mine: ApiWorld) -> list[Keyed[Any]]:
            def read() -> list[Keyed[Any]]:
                entries = listed.read(mine.reader, mine.service.settings(), mine.clock)
                return keyed(entries, listed.key)

            return mine.cache.get((name,), read)

        def rows(request: Request, who: who_may, query: Annotated[PageQuery, Query()]) -> Response:
            mine = world.of(who)

            def make() -> PageOfRows[Any]:
                return page_of(ordered(mine), listed.row, query)

            return response(request, mine.page((name, query), make, keep=query.is_first()))

        model = PageOfRows[listed.kind]  # type: ignore[name-defined]
        api.get(f"/{name}", name=name, summary=listed.about, response_model=model)(rows)

    for name, listed in LISTINGS.items():
        lists(name, listed, anyone if listed.anyone else viewer)
