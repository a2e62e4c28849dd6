"""The socket beside a DuckDB file by which commands of the file's owner reach its holder.

Beside the resources of the API, for whatever name a command gives, it answers queries on the store
and backs it up: who may connect may read the file (see `data/store/handles/remote_store.py`).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Request
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from dashboard.api.app import build_api
from dashboard.api.http.authentication import named
from dashboard.api.http.context import ApiWorld
from dashboard.api.http.problems import problem_of
from dashboard.common.threads import Background
from dashboard.decisions.service import DecisionService
from data.base.errors import StoreError, TrimtabError
from data.store import Store
from data.store.engine.served_queries import decode
from data.store.handles.backup import back_up
from data.store.handles.remote_store import BACKUP, socket_address, socket_path

logger = logging.getLogger(__name__)
_BACKLOG = 64


def local_app(store: Store, service: DecisionService, clock: Callable[[], datetime]) -> Starlette:
    """Return the application behind the socket."""

    def hello(_request: Request) -> Response:
        fields = {"process": os.getpid(), "schema": store.schema, "losses": list(store.losses)}
        return JSONResponse(fields | {"now": clock().isoformat(), "backs_up": True})

    async def respond(request: Request, answer: Callable[[Any], Response]) -> Response:
        body = await request.body()
        try:
            return await run_in_threadpool(answer, decode(body))
        except TrimtabError as failure:
            return problem_of(failure)
        except (ValueError, KeyError, TypeError) as failure:
            return problem_of(StoreError(f"this is no query: {failure}"))

    async def query(request: Request) -> Response:
        def answer(content: Any) -> Response:
            form = request.path_params["form"]
            answer_bytes = store.answer_query(form, content["text"], content["values"])
            return Response(answer_bytes, media_type="application/octet-stream")

        return await respond(request, answer)

    async def backup(request: Request) -> Response:
        def answer(content: Any) -> Response:
            proofs = back_up(store, Path(content["file"]), progress=lambda *_state: None)
            return JSONResponse([asdict(proof) for proof in proofs])

        return await respond(request, answer)

    return Starlette(
        routes=[
            Route("/store", hello),
            Route(BACKUP, backup, methods=["POST"]),
            Route("/store/{form}", query, methods=["POST"]),
            Mount("/api/v1", build_api(local_world(store, service, clock))),
        ]
    )


def local_world(store: Store, service: DecisionService, clock: Callable[[], datetime]) -> ApiWorld:
    """Return the context of the API for whoever may open the file of the store."""
    return ApiWorld(
        reader=store.reader_for_pages(),
        service=service,
        clock=clock,
        caller=lambda request: named(request, "cli"),
    )


class LocalDoor(Background):
    """Answers on the socket beside the store until told to stop."""

    def __init__(self, app: Starlette, file: Path) -> None:
        super().__init__("trimtab-local-door")
        self._path = socket_path(file)
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._listening: socket.socket | None = None

    def ask_to_stop(self) -> None:
        """Let it end after the requests that it is at."""
        super().ask_to_stop()
        self._server.should_exit = True

    def start(self) -> None:
        """Listen, and begin to answer. Commands that come in between wait."""
        try:
            self._listening = _listen(self._path)
        except OSError as error:
            logger.warning("commands cannot reach this process by %s: %s", self._path, error)
        super().start()

    def _run(self) -> None:
        if self._listening is None:
            return
        try:
            asyncio.run(self._server.serve(sockets=[self._listening]))
        finally:
            self._listening.close()
            with suppress(OSError):
                self._path.unlink()


def _listen(path: Path) -> socket.socket:
    """Return a socket of the path that its owner alone may connect to. Errors: OSError.

    What stands there is of a process that held the store before, and has ended.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before anybody can connect: a socket takes the mode of its descriptor when it is bound.
        os.fchmod(listening.fileno(), 0o600)
        with socket_address(path) as address:
            listening.bind(address)
        path.chmod(0o600)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
