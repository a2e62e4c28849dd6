"""The HTTP API behind the guards of the pages, on a store with a finding of each of two owners."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from beds.stores import cycle
from factories import make_collected, make_job, make_recommendation
from httpx2 import Response
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from dashboard.api.app import build_api
from dashboard.api.http.authentication import WebCallers
from dashboard.api.http.context import ApiWorld
from dashboard.decisions.service import DecisionService
from dashboard.mcp.server import MCP_PATH, AssistantDoor
from dashboard.web.access.request_filter import Admission
from dashboard.web.access.trusted_proxy import AuthMiddleware
from data.base.clock import utc_now
from data.settings.access import AccessSettings
from data.settings.all_settings import Settings
from data.store import Store, open_store

PROXY = AccessSettings(
    mode="proxy", proxy_addresses="10.0.0.5", default_role="none", viewers="vera",
    owners="search,vision", approvers="ann", admins="alex",
)  # fmt: skip
LOCAL = AccessSettings()
MINE = make_recommendation(job_id="search/chat", namespace="search")
THEIRS = make_recommendation(job_id="vision/detector", namespace="vision")
_SECONDS_KEPT = 120
_ADAPTERS: dict[tuple[Any, str], TypeAdapter[Any]] = {}


@contextmanager
def two_owners(folder: Path) -> Iterator[Store]:
    """A store with two jobs of two owners and a finding each: TT-1 of search, TT-2 of vision.

    It is as old as two minutes at most: it is made anew by then, and copied until then.
    """
    path = folder / "t.duckdb"
    path.write_bytes(_two_owners(int(time.monotonic() // _SECONDS_KEPT)))
    with open_store(f"duckdb:///{path}") as opened:
        yield opened


@lru_cache(maxsize=1)
def _two_owners(_period: int) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.duckdb"
        fill_two_owners(f"duckdb:///{path}")
        return path.read_bytes()


def fill_two_owners(url: str) -> None:
    """Keep the jobs and findings of `two_owners` in a store without any."""
    now = utc_now()
    jobs = tuple(
        make_job(
            job_id=advice.job_id,
            namespace=advice.namespace,
            owner=advice.namespace,
            gpu_count=advice.now.gpu_count,
            last_seen_at=now,
        )
        for advice in (MINE, THEIRS)
    )
    with open_store(url) as opened:
        opened.keep(make_collected(jobs=jobs))
        cycle(opened, 0, MINE, at=now)
        cycle(opened, 1, MINE, THEIRS, at=now + timedelta(seconds=1))


def _adapter_of(annotated: Any, **more: Any) -> TypeAdapter[Any]:
    """Return the adapter of a field, made once a process: two thirds of what an API takes to make.

    It is not changed by what uses it.
    """
    key = annotated.__origin__, repr((annotated.__metadata__, more))
    if key not in _ADAPTERS:
        _ADAPTERS[key] = TypeAdapter(annotated, **more)
    return _ADAPTERS[key]


def guarded_api(
    store: Store,
    access: AccessSettings,
    clock: Callable[[], datetime] = utc_now,
    *,
    settings: Settings | None = None,
    **service: Any,
) -> Starlette:
    """The API and the assistants' door behind the guards of the pages."""
    every = replace(settings or Settings(), access=access)
    decides = DecisionService(store=store, settings=lambda: every, clock=clock, **service)
    world = ApiWorld(
        reader=store.reader_for_pages(), service=decides, clock=clock,
        caller=WebCallers(decides, access.mode),
    )  # fmt: skip
    with patch("fastapi._compat.v2.TypeAdapter", _adapter_of):
        api = build_api(world)
    return Starlette(
        routes=[
            Mount("/api/v1", api),
            Route(MCP_PATH, AssistantDoor(world, api), methods=["POST"]),
        ],
        middleware=[
            Middleware(Admission, access=access, listens_on="127.0.0.1"),
            # Of local mode: these requests have no connection that the kernel could tell of.
            Middleware(
                AuthMiddleware, access=access, guarded=False, peer=lambda _scope: os.geteuid()
            ),
        ],
    )


@contextmanager
def clients(
    store: Store,
    access: AccessSettings,
    clock: Callable[[], datetime] = utc_now,
    **more: Any,
) -> Iterator[Callable[..., TestClient]]:
    """Make clients of the API: of a peer, as somebody whom the proxy names, by a token."""
    # Of its own, so that nobody is stopped who tests something else.
    folder = TemporaryDirectory()
    given = more.pop("settings", None) or Settings()
    own = replace(given, apply=replace(given.apply, stop_file=f"{folder.name}/stop"))
    app = guarded_api(store, access, clock, settings=own, **more)

    def client(name: str = "", *, token: str = "", peer: str = "10.0.0.5") -> TestClient:
        headers = {"X-Forwarded-User": name} if name else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        return TestClient(
            app, base_url="http://localhost", client=(peer, 1), headers=headers,
            raise_server_exceptions=False,
        )  # fmt: skip

    with folder:
        yield client


def problem(answer: Response, status: int) -> dict[str, Any]:
    """The problem of an answer that must be one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    return dict(found)
