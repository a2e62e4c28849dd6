"""Requests drawn from the API's own schema, and hostile ones: no server error, no word unkept."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from beds.stores import cycle
from drawn import examples
from factories import make_collected, make_job, make_recommendation
from hostile.payloads import PAYLOADS
from hypothesis import HealthCheck, given, settings
from reliability import Measured
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from dashboard.api.app import build_api
from dashboard.api.http.authentication import WebCallers
from dashboard.api.http.context import ApiWorld
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.settings.all_settings import Settings
from data.store import open_store

_CHECKS = [
    checks.not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
]  # fmt: skip


_DRAWN = 200 if examples(100) == 100 else 4
"""Requests of an operation: ten thousand in all at the slow end, few in every run."""


@pytest.fixture(scope="module")
def api_schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The schema of the API on a store with a job and a finding; everybody is an admin."""
    folder = tmp_path_factory.mktemp("schema")
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        now = utc_now()
        store.keep(make_collected(jobs=(make_job(last_seen_at=now),)))
        cycle(store, 0, make_recommendation(), at=now)
        service = DecisionService(store=store, settings=partial(_settings, folder))
        world = ApiWorld(
            reader=store.reader_for_pages(), service=service, clock=utc_now,
            caller=WebCallers(service, "local"),
        )  # fmt: skip
        yield schemathesis.openapi.from_asgi("/openapi.json", build_api(world))


def _settings(folder: Path) -> Settings:
    from data.settings.apply import ApplySettings

    return Settings(
        apply=ApplySettings(directory=str(folder / "changes"), stop_file=str(folder / "stop"))
    )


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_every_request_has_an_answer_of_the_schema(
    mode: GenerationMode, api_schema: Any, measured: Measured
) -> None:
    """Status, type and shape are what the schema says; nothing is answered by 500."""
    count = 0

    def answered(case: Any) -> None:
        nonlocal count
        count += 1
        response = case.call(headers={"X-Trimtab-By": "robin"})
        case.validate_response(response, checks=_CHECKS)

    for found in api_schema.get_all_operations():
        operation = found.ok()
        raw = operation.definition.raw
        if mode is GenerationMode.NEGATIVE and not (raw.get("parameters") or "requestBody" in raw):
            continue  # nothing can be wrong with it
        drawn = given(case=operation.as_strategy(generation_mode=mode))(answered)
        settings(max_examples=_DRAWN, suppress_health_check=list(HealthCheck))(drawn)()
    measured(f"{count} requests")
    assert count > 10 * _DRAWN


def _with(text: str, operation: Mapping[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """Requests of an operation with a text in each place that takes one, the others left out."""
    parameters = operation.get("parameters", [])
    inside = [parameter["name"] for parameter in parameters if parameter["in"] == "path"]
    address = path.format(**dict.fromkeys(inside, quote(text, safe="")))
    for parameter in parameters:
        if parameter["in"] == "query":
            yield {"url": address, "params": {parameter["name"]: text}}
        elif parameter["in"] == "header":
            value = text.encode("utf-8", "surrogatepass")
            yield {"url": address, "headers": {parameter["name"]: value}}
    if "requestBody" in operation:
        for body in (text, [text], {}):
            yield {"url": address, "json": body}
        for good, field in _FIELDS:
            yield {"url": address, "json": good | {field: text}}
    yield {"url": address}


_FIELDS = [
    *(({"decision": "reject"}, field) for field in ("decision", "comment", "reason", "until")),
    *(({"person": "x"}, field) for field in ("person", "role", "days")),
    *(({"job": 'name = "x"'}, field) for field in ("job", "target", "model_shape", "digest")),
    *(
        ({"job": "*", "reason": "not-now", "until": "2030-01-01T00:00:00Z"}, field)
        for field in ("namespace", "job", "kind", "reason", "until", "comment")
    ),
]
"""A body that an operation may take, and the field of it in which a text stands."""


@pytest.mark.hypothesis
def test_no_hostile_text_is_more_than_a_text(api_schema: Any, measured: Measured) -> None:
    """In every place of every request: no server error, and an answer that is no page.

    Ten thousand requests at the slow end, some hundred in every run.
    """
    app = api_schema.app
    paths = TestClient(app).get("/openapi.json").json()["paths"]
    client = TestClient(app, headers={"X-Trimtab-By": "robin"}, raise_server_exceptions=False)
    every = (
        *(payload.text for payload in PAYLOADS),
        "\0",
        "x" * 3000,
        "TT-" + "9" * 30,
        "[" * 3000,
    )
    count = 0
    for number, (path, method) in enumerate((p, m) for p in paths for m in paths[p]):
        step = 30 if _DRAWN > 100 else 300
        for text in every[number % step :: step]:
            for request in _with(text, paths[path][method], path):
                answer = client.request(method.upper(), **request)
                count += 1
                assert answer.status_code < 500 or answer.status_code == 503, (method, request)
                kind = answer.headers.get("content-type", "")
                is_safe = kind.startswith(("application/", "text/event-stream"))
                assert is_safe or (path, kind) == ("/score.svg", "image/svg+xml"), (method, request)
    measured(f"{count} requests")
    assert count > 10 * len(paths)
