"""What KEDA's metrics-api scaler reads of our API, by the contract that KEDA publishes.

`Scaler` does what keda.sh/docs/latest/scalers/metrics-api and pkg/scalers/metrics_api_scaler.go of
kedacore/keda say: one GET with the token as Bearer, an error for any status but 200, and the value
at a GJSON path, which must be a number. KEDA itself does not run here.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.api_clients import PROXY, clients
from factories import NOW, make_collected, make_job, make_plan
from starlette.testclient import TestClient

from collectors.kubernetes.workloads import Workload
from data.records.serving import ServiceOutlook
from data.store import Store, open_store

EXAMPLE = Path(__file__).parents[3] / "deploy/keda/scaledobject-api.yaml"
WORKLOAD = Workload(namespace="search", kind="Deployment", name="chat").job_id
ACCESS = replace(PROXY, allowed_hosts="trimtab.trimtab.svc")
CHAT = ServiceOutlook(
    job_id=WORKLOAD, namespace="search", service="chat", engine="vllm", model="m", read_until=NOW,
    replicas=3, running_requests=20.0, waiting_requests=None, requests_per_second=5.0,
    slot_starts=(NOW, NOW + timedelta(minutes=10)), required_replicas=(4, 6),
)  # fmt: skip
OTHERS = tuple(
    replace(CHAT, job_id=f"{WORKLOAD}{end}", service=f"chat{end}", required_replicas=(9, 9))
    for end in ("-large", "/0")
)
MUTE = replace(CHAT, job_id="search/mute", service="mute", required_replicas=(), slot_starts=())


class ScalerError(Exception):
    """What KEDA would log, and give the HPA no value for."""


@dataclass
class Scaler:
    """One metrics-api trigger, with the parameters of its authentication."""

    metadata: dict[str, str]
    auth: dict[str, str]
    client: TestClient

    def value(self) -> float:
        """GetMetricsAndActivity: the value that the HPA divides by targetValue."""
        headers = {}
        if self.metadata.get("authMode") == "bearer":
            headers = {"Authorization": f"Bearer {self.auth['token']}"}
        answer = self.client.get(self.metadata["url"], headers=headers)
        if answer.status_code != 200:
            raise ScalerError(f"{answer.url.path}: api returned {answer.status_code}")
        found = gjson(answer.content, self.metadata["valueLocation"])
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ScalerError(f"valueLocation must point to value of type number got: {found!r}")
        return float(found)

    @property
    def average_per_replica(self) -> float:
        """`targetValue`, of the metric type AverageValue unless another is stated."""
        assert self.metadata.get("metricType", "AverageValue") == "AverageValue"
        return float(self.metadata["targetValue"])


def gjson(body: bytes, path: str) -> Any:
    """The value at a path of names and of `#(field=="text")`, the first equal; None without one."""
    found = json.loads(body)
    for part in re.findall(r'#\([^"]*"[^"]*"\)|[^.]+', path):
        query = re.fullmatch(r'#\((\w+)=="([^"]*)"\)', part)
        if query and isinstance(found, list):
            found = next((row for row in found if row.get(query[1]) == query[2]), None)
        elif isinstance(found, dict):
            found = found.get(part)
        else:
            return None
    return found


@pytest.fixture
def times() -> list[datetime]:
    """The time of the server; the last counts."""
    return [NOW]


@pytest.fixture
def as_(tmp_path: Path, times: list[datetime]) -> Iterator[Callable[..., TestClient]]:
    """Clients of a server that knows four services, of which one has no number."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        fill(store)
        with clients(store, ACCESS, lambda: times[-1]) as client:
            yield client


def fill(store: Store) -> None:
    """Keep a cycle that foresaw the services of jobs of one owner."""
    services = (*OTHERS, CHAT, MUTE)
    jobs = tuple(make_job(entry.job_id, namespace="search", owner="search") for entry in services)
    store.keep(make_collected(jobs=jobs))
    store.keep_cycle(
        cycle_id="c", started_at=NOW, finished_at=NOW, forecasts=(), serving=services,
        plan=replace(make_plan(), plan_id="0" * 64), recommendations=(),
    )  # fmt: skip


def example(client: Callable[..., TestClient], token: str, **changes: str) -> Scaler:
    """The trigger of the example, with the parameters that its TriggerAuthentication takes."""
    documents = list(yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")))
    by_kind = {entry["kind"]: entry for entry in documents}
    trigger = by_kind["ScaledObject"]["spec"]["triggers"][0]
    assert trigger["type"] == "metrics-api"
    assert (
        trigger["authenticationRef"]["name"] == by_kind["TriggerAuthentication"]["metadata"]["name"]
    )
    (reference,) = by_kind["TriggerAuthentication"]["spec"]["secretTargetRef"]
    assert reference["name"] == by_kind["Secret"]["metadata"]["name"]
    secret = by_kind["Secret"]["stringData"] | {reference["key"]: token}
    return Scaler(
        metadata=trigger["metadata"] | changes,
        auth={reference["parameter"]: secret[reference["key"]]},
        client=client(peer="203.0.113.9"),
    )


def made_token(client: Callable[..., TestClient], person: str = "vera") -> dict[str, Any]:
    """A viewer's token, as `trimtab token make` makes it."""
    answer = client("alex").post("/api/v1/tokens", json={"person": person, "role": "viewer"})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_the_example_gives_the_replicas_that_are_required(
    as_: Callable[..., TestClient], times: list[datetime]
) -> None:
    """From another host and by its name in the cluster; one replica per unit, slot by slot."""
    scaler = example(as_, made_token(as_)["token"])
    assert scaler.value() == 4.0
    assert scaler.value() / scaler.average_per_replica == 4.0
    times.append(NOW + timedelta(minutes=10))
    assert scaler.value() == 6.0


def test_names_alike_are_told_apart(as_: Callable[..., TestClient]) -> None:
    """Others come before it in the answer."""
    token = made_token(as_)["token"]
    for entry in OTHERS:
        path = f'items.#(job_id=="{entry.job_id}").required_replicas'
        assert example(as_, token, valueLocation=path).value() == 9.0


@pytest.mark.parametrize("minutes", [31, -1])
def test_stale_readings_are_an_error_and_no_wish_for_none(
    as_: Callable[..., TestClient], times: list[datetime], minutes: int
) -> None:
    """null, which is no number: KEDA gives the HPA no value, and the HPA removes no replica."""
    scaler = example(as_, made_token(as_)["token"])
    times.append(NOW + timedelta(minutes=minutes))
    with pytest.raises(ScalerError, match="of type number got: None"):
        scaler.value()


@pytest.mark.parametrize("job_id", ["search/mute", "search/deployment/gone"])
def test_a_service_without_a_number_is_an_error(
    as_: Callable[..., TestClient], job_id: str
) -> None:
    """Of which too little is known, and that is not there."""
    path = f'items.#(job_id=="{job_id}").required_replicas'
    with pytest.raises(ScalerError, match="of type number got: None"):
        example(as_, made_token(as_)["token"], valueLocation=path).value()


def test_a_token_that_ends_is_an_error(
    as_: Callable[..., TestClient], times: list[datetime]
) -> None:
    """401 when it was revoked and when it is wrong; without one nobody is known."""
    made = made_token(as_)
    scaler = example(as_, made["token"])
    assert scaler.value() == 4.0
    assert as_("alex").delete(f"/api/v1/tokens/{made['token_id']}").status_code == 200
    wrong, none = example(as_, "trimtab_" + "A" * 43), example(as_, "x", authMode="none")
    for other, status in ((scaler, 401), (wrong, 401), (none, 403)):
        with pytest.raises(ScalerError, match=f"/api/v1/serving: api returned {status}"):
            other.value()


def test_an_owner_of_other_jobs_gets_no_number(as_: Callable[..., TestClient]) -> None:
    """The owner of these does."""
    assert example(as_, made_token(as_, "search")["token"]).value() == 4.0
    with pytest.raises(ScalerError, match="of type number got: None"):
        example(as_, made_token(as_, "vision")["token"]).value()


def test_a_name_that_the_server_does_not_answer_to_is_an_error(
    as_: Callable[..., TestClient],
) -> None:
    """access.allowed_hosts lists the name by which KEDA asks."""
    scaler = example(as_, made_token(as_)["token"], url="http://other.svc:8501/api/v1/serving")
    with pytest.raises(ScalerError, match="api returned 421"):
        scaler.value()
