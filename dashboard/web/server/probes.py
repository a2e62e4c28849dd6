"""Answers for machines without a sign-in: alive, ready, and the metrics.

Whoever reaches the port may ask as often as they like, so each answer is one for all who ask.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from dashboard.accounting.savings.shown_money import as_shown
from dashboard.api.http.own_threads import SharedAnswer
from dashboard.web.access.context import WebWorld
from dashboard.web.server.prometheus_metrics import OwnMetrics
from data.base.errors import TrimtabError
from forecasting.distributed.ray_driver import absence_reason

_RAY_SECONDS = 0.5
"""A probe waits for no more than a second."""


def probes(world: WebWorld) -> list[Route]:
    """Return the routes."""

    def readiness() -> dict[str, Any]:
        try:
            latest = world.store.reader.latest_sample_at()
        except TrimtabError as error:
            return {"ready": False, "reason": str(error)}
        document = {
            "ready": True,
            "newest_sample_at": None if latest is None else latest.isoformat(),
        }
        address = world.settings.settings.ray.address
        why = absence_reason(address, _RAY_SECONDS) if address else ""
        return document | ({"ray": f"no head answers at ray.address: {why}"} if why else {})

    store_readiness = SharedAnswer(readiness)
    own_metrics = OwnMetrics(
        world.store.reader,
        world.cycle_state,
        world.decision_service.stopped,
        lambda: world.decision_service.settings().serving,
        lambda each: as_shown(each, world.decision_service.settings()),
    )
    exposition = SharedAnswer(lambda: own_metrics.exposition(world.clock()))

    async def live(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_request: Request) -> Response:
        document, state = await store_readiness.get(), world.cycle_state()
        if document["ready"]:
            document = document | {"cycle_running": state.running, "last_error": state.last_error}
        return JSONResponse(document, status_code=200 if document["ready"] else 503)

    async def metrics(_request: Request) -> Response:
        return Response(await exposition.get(), media_type="text/plain; version=0.0.4")

    return [Route("/livez", live), Route("/readyz", ready), Route("/metrics", metrics)]
