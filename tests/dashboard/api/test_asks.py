"""What is worked out when it is asked, asked twice, or asked too often."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.api_clients import LOCAL, MINE, PROXY, clients, problem
from beds.file_cluster import FileApplier, FileCluster
from beds.same_figures import differences
from starlette.testclient import TestClient

from dashboard.api.http import context
from dashboard.api.http.rate_limits import (
    IdempotentRequests,
    KeyTakenError,
    RequestInProgressError,
    RequestLimit,
    TooManyRequestsError,
)
from dashboard.cli import main
from data.settings.all_settings import Settings
from data.settings.submission import SubmitSettings
from data.store import Store

ESTIMATE = "/api/v1/estimate?model=llama3-8b&batch=8&seq=2048"
JOB = """
name = "tiny"
command = ["train.py"]
[model]
name = "tinyllama-1.1b"
[training]
global_batch = 8
sequence_length = 2048
"""


@pytest.mark.parametrize("address", ["what-if", "estimate?model=llama3-8b&batch=8&seq=2048",
                                     "submissions"])  # fmt: skip
def test_questions_are_for_who_may_see_the_jobs_of_others(
    address: str, as_: Callable[..., TestClient]
) -> None:
    """What else waits, and what is free, is of everybody."""
    problem(as_("search").get(f"/api/v1/{address}"), 403)
    problem(as_("somebody").get(f"/api/v1/{address}"), 403)


def test_an_estimate_is_that_of_the_command(
    as_: Callable[..., TestClient], store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plan by plan, with each option by its name."""
    more = "&gpus=16&micro-batch=1&tokens=1e9&top=3&lengths=fixed"
    told = as_("vera").get(ESTIMATE + more).json()
    store.close()
    words = "estimate llama3-8b --batch 8 --seq 2048 --gpus 16 --micro-batch 1 --tokens 1e9"
    words += " --top 3 --lengths fixed --format json"
    assert main(["--quiet", "--store", f"duckdb:///{tmp_path}/t.duckdb", *words.split()]) == 0
    assert differences(told, json.loads(capsys.readouterr().out)) == []
    assert len(told["plans"]) == 3


def test_no_file_of_the_server_is_read_for_an_estimate(
    as_: Callable[..., TestClient], tmp_path: Path
) -> None:
    """A model is a name; a path is no name, whether there is a file or not."""
    there = tmp_path / "config.json"
    there.write_text("{}")
    vera = as_("vera")
    for path in (there, tmp_path / "none.json", "../t.duckdb"):
        said = problem(vera.get("/api/v1/estimate", params={"model": str(path), "batch": 8,
                                                           "seq": 8}), 422)  # fmt: skip
        assert "model" in said["detail"]
    problem(vera.get(ESTIMATE + "&batches=8"), 422)
    problem(vera.get(ESTIMATE.replace("batch=8", "batch=0")), 422)


def test_knobs_out_of_range_are_refused(as_: Callable[..., TestClient]) -> None:
    """By name; before the first plan there is nothing to compare with."""
    vera = as_("vera")
    for knob in ("headroom=-1", "headroom=nan", "headroom=inf", "volume=11", "churn=x"):
        assert knob.partition("=")[0] in problem(vera.get(f"/api/v1/what-if?{knob}"), 422)["detail"]


def test_a_viewer_sees_the_text_of_a_change_and_its_target_is_not_asked(
    store: Store, tmp_path: Path
) -> None:
    """Who may decide sees the steps as they would be sent; an approval may be bound to them."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({MINE.job_id: {"gpus": str(MINE.now.gpu_count), "model": "x", "note": ""}})
    looked = []

    class Seen(FileApplier):
        def look(self, *given: object, **named: object):  # type: ignore[no-untyped-def]
            looked.append(given)
            return super().look(*given, **named)  # type: ignore[arg-type]

    address = "/api/v1/findings/TT-1"
    with clients(store, PROXY, appliers=lambda _settings: (Seen(cluster),)) as client:
        seen = client("vera").get(f"{address}/preview").json()
        assert (seen["live"], looked) == (None, [])
        assert "only owners, approvers and admins" in seen["not_live"]
        assert "nvidia.com~1gpu" in seen["change"]
        live = client("ann").get(f"{address}/preview").json()["live"]
        first = live["steps"][0]
        assert (first["field"], first["before"]) == ("gpus", str(MINE.now.gpu_count))
        assert live["rehearsed"]
        assert cluster.read(MINE.job_id)["log"] == []  # type: ignore[index]
        problem(client("search").get("/api/v1/findings/TT-2/preview"), 404)
        wish = {"decision": "approve", "change_digest": live["change_digest"]}
        problem(client("ann").post(f"{address}/decisions", json=wish), 409)
        shown = f"/api/v1/findings/{seen['recommendation_id']}/decisions"
        assert client("ann").post(shown, json=wish).status_code == 200
        cluster.remove(MINE.job_id)
        gone = client("ann").get(f"{address}/preview").json()
        assert gone["live"] is None
        assert MINE.job_id in gone["not_live"]


def test_who_may_not_submit_is_refused_before_a_cluster_is_asked(
    as_: Callable[..., TestClient],
) -> None:
    """And the model is none of the server's files."""
    for who, status in (("vera", 403), ("search", 403), ("ann", 422)):
        for address, more in (("submissions/preview", {}), ("submissions", {"digest": "0" * 64})):
            asked = as_(who).post(f"/api/v1/{address}", json={"job": JOB} | more)
            problem(asked, status)
    named = JOB.replace('name = "tinyllama-1.1b"', 'config = "/etc/hostname"')
    said = problem(as_("ann").post("/api/v1/submissions/preview", json={"job": named}), 422)
    assert "names a file" in said["detail"]
    problem(as_("ann").post("/api/v1/submissions/preview", json={"job": "a = "}), 422)


def test_nothing_is_sent_while_submission_is_off(store: Store) -> None:
    """Though the job could be shown."""
    wish = {"job": JOB, "digest": "0" * 64}
    with clients(store, PROXY) as client:
        said = problem(client("ann").post("/api/v1/submissions", json=wish), 422)
        assert "switched off" in said["hint"]
    on = Settings(access=PROXY, submit=SubmitSettings(enabled=True))
    with clients(store, PROXY, settings=on) as client:
        said = problem(client("ann").post("/api/v1/submissions", json=wish), 422)
        assert "no cluster that takes jobs is configured" in said["detail"]
    assert store.reader.submissions() == ()


def test_what_is_asked_twice_under_a_key_is_done_once(
    store: Store, as_: Callable[..., TestClient]
) -> None:
    """The second answer is the first, though the finding changed; another ask needs another key."""
    ann, address = as_("ann"), "/api/v1/findings/TT-1/decisions"
    key = {"Idempotency-Key": "k1", "If-Match": ann.get("/api/v1/findings/TT-1").headers["ETag"]}
    first = ann.post(address, json={"decision": "approve"}, headers=key)
    again = ann.post(address, json={"decision": "approve"}, headers=key)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert [entry.event for entry in store.reader.audit()] == ["approved"]
    problem(ann.post(address, json={"decision": "reject"}, headers=key), 422)
    problem(as_("alex").post(address, json={"decision": "approve"}, headers=key), 412)
    late = {"Idempotency-Key": "k2"}
    problem(ann.post(address, json={"decision": "approve"}, headers=late), 409)
    assert ann.post(address, json={"decision": "reject"}, headers=late).status_code == 200
    problem(ann.post(address, json={}, headers={"Idempotency-Key": ""}), 422)


def test_a_key_is_of_one_ask_at_a_time() -> None:
    """While it is being done, and after it failed."""
    asks = IdempotentRequests()

    def meanwhile() -> str:
        with pytest.raises(RequestInProgressError):
            asks.once("ann", "k", "a", lambda: "twice")
        with pytest.raises(KeyTakenError):
            asks.once("ann", "k", "b", lambda: "other")
        assert asks.once("alex", "k", "b", lambda: "theirs") == "theirs"
        return "once"

    assert asks.once("ann", "k", "a", meanwhile) == "once"
    with pytest.raises(ZeroDivisionError):
        asks.once("ann", "failed", "a", lambda: 1 / 0)
    assert asks.once("ann", "failed", "b", lambda: 2.0) == 2.0
    assert asks.once("ann", None, "a", lambda: 1) == 1
    assert asks.once("ann", None, "a", lambda: 2) == 2
    for number in range(2000):
        asks.once("ann", str(number), "a", lambda: "done")
    assert asks.once("ann", "0", "a", lambda: "forgotten") == "forgotten"
    assert asks.once("ann", "1999", "a", lambda: "again") == "done"


def test_a_caller_has_so_many_requests_a_minute() -> None:
    """All at once or spread; others have theirs."""
    now = [0.0]
    limit = RequestLimit(lambda: now[0])
    for _ in range(6):
        limit.take("ann", 6)
    with pytest.raises(TooManyRequestsError) as refused:
        limit.take("ann", 6)
    assert refused.value.retry_after_seconds in (10, 11)
    limit.take("alex", 6)
    for _ in range(12):
        now[0] += 10.0
        limit.take("ann", 6)
        with pytest.raises(TooManyRequestsError):
            limit.take("ann", 6)


def test_who_asks_too_often_is_told_when_to_ask_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By person and by token; alone on loopback there is no limit."""
    monkeypatch.setattr(context, "REQUESTS_PER_MINUTE", 3)
    with clients(store, PROXY) as client:
        for _ in range(3):
            assert client("vera").get("/api/v1/").status_code == 200
        refused = client("vera").get("/api/v1/")
        assert "3 requests in a minute" in problem(refused, 429)["detail"]
        assert 1 <= int(refused.headers["Retry-After"]) <= 21
        assert client("ann").get("/api/v1/").status_code == 200
        made = client("alex").post("/api/v1/tokens", json={"person": "vera"}).json()
        assert client(token=made["token"]).get("/api/v1/").status_code == 200
    with clients(store, LOCAL) as client:
        assert {client().get("/api/v1/").status_code for _ in range(9)} == {200}
