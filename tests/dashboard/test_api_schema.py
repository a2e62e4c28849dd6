"""Requests drawn from the API's own schema, and hostile ones: no server error, no word unkept."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from beds.stores import cycle
from drawn import examples
from factories import make_collected, make_job, make_recommendation
from hypothesis import HealthCheck, given, settings
from reliability import Measured
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dashboard.api.app import ApiWorld, build_api
from dashboard.api.callers import web_caller
from dashboard.decision_service import DecisionService
from data.clock import utc_now
from data.settings import Settings
from data.store import open_store

_CHECKS = [
    checks.not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
]  # fmt: skip


_DRAWN = 500 if examples(100) == 100 else 16
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
            caller=partial(web_caller, service, "local"),
        )  # fmt: skip
        yield schemathesis.openapi.from_asgi("/openapi.json", build_api(world))


def _settings(folder: Path) -> Settings:
    from data.apply_settings import ApplySettings

    return Settings(apply=ApplySettings(directory=str(folder / "changes")))


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
        if case.operation.path == "/events" and case.query:
            case.query["seconds"] = 0  # what it would wait for is no other answer
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
