"""Resources that are one object each, of the table of resources."""

import threading
from dataclasses import replace
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from pydantic_core import to_json

from dashboard.accounting.energy.score import score_badge
from dashboard.api.http.cached_responses import Document, document, response
from dashboard.api.http.context import ApiWorld
from dashboard.api.http.rate_limits import TooManyRequestsError
from dashboard.resources.documents import DOCUMENTS, SCORE
from dashboard.resources.resource import NoQuery, Resource

_BUSY_SECONDS = 5


def add_documents(api: FastAPI, world: ApiWorld, *, anyone: Any, viewer: Any) -> None:
    """Add the resources: to `anyone` what they may see of each, to `viewer` what is the fleet's."""
    for resource in DOCUMENTS:
        _add(api, world, resource, anyone if resource.anyone else viewer)
    _add_badge(api, world, viewer)


def _add_badge(api: FastAPI, world: ApiWorld, who_may: Any) -> None:
    """Add the score as a picture, which takes no parameter."""

    def badge(request: Request, who: who_may, _query: Annotated[NoQuery, Query()]) -> Response:
        view = world.view(who)

        def compute() -> Document:
            body = score_badge(SCORE.read(view, SCORE.query()))
            return replace(document(body), kind="image/svg+xml")

        return response(request, world.of(who).cache.get(("badge", view.settings), compute))

    api.get("/score.svg", summary="The score as a badge", response_class=Response)(badge)


def _add(api: FastAPI, world: ApiWorld, resource: Resource[Any, Any], who_may: Any) -> None:
    working = threading.Lock() if resource.alone else None
    query_type = resource.query

    def answer(
        request: Request,
        who: who_may,
        query: Annotated[query_type, Query()],  # type: ignore[valid-type]
    ) -> Response:
        view = world.view(who)

        def compute() -> Document:
            if working is not None and not working.acquire(blocking=False):
                raise TooManyRequestsError(
                    f"another {resource.name} is being solved",
                    retry_after_seconds=_BUSY_SECONDS,
                )
            try:
                return document(to_json(resource.read(view, query), inf_nan_mode="null"))
            finally:
                if working is not None:
                    working.release()

        cache = world.of(who).cache
        return response(request, cache.get((resource.name, query, view.settings), compute))

    route = api.get(
        f"/{resource.name}",
        name=resource.name,
        summary=resource.about,
        response_model=resource.kind,
    )
    route(answer)
