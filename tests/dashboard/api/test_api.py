"""The HTTP API behind the guards of the pages: who is let in, what they see, what they may do."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from beds.api_clients import LOCAL, PROXY, THEIRS, clients, problem
from factories import make_collected, make_job
from starlette.testclient import TestClient

from dashboard.cli import main
from dashboard.decisions.decision_table import WishKind
from data.base.clock import utc_now
from data.store import Store

LISTS = ("jobs", "gpus", "nodes", "quotas", "sources", "urgent", "savings", "serving", "audit")
DOCUMENTS = ("plan", "idle", "forecasts", "memory", "energy", "statement", "reports/weekly")
OF_THE_FLEET = {"nodes", "sources", "plan", "statement"}
"""What names the jobs of others, and is not cut down to those of an owner."""


@pytest.mark.parametrize("name", [*LISTS, *DOCUMENTS])
def test_what_names_the_jobs_of_others_is_not_for_owners(
    name: str, as_: Callable[..., TestClient]
) -> None:
    """As the pages have it."""
    for who in ("vera", "ann", "alex"):
        assert as_(who).get(f"/api/v1/{name}").status_code == 200
    for_owners = as_("search").get(f"/api/v1/{name}")
    assert for_owners.status_code == (403 if name in OF_THE_FLEET else 200)
    problem(as_("somebody").get(f"/api/v1/{name}"), 403)


def test_owners_see_the_findings_of_their_own_jobs(as_: Callable[..., TestClient]) -> None:
    """What belongs to others is answered as what does not exist, whatever is asked of it."""
    mine = as_("search")
    assert [item["finding"] for item in mine.get("/api/v1/findings").json()["items"]] == ["TT-1"]
    assert len(as_("vera").get("/api/v1/findings").json()["items"]) == 2
    assert mine.get("/api/v1/findings/TT-1").status_code == 200
    other = problem(mine.get("/api/v1/findings/TT-2"), 404)
    none = problem(mine.get("/api/v1/findings/TT-9"), 404)
    assert _renamed(other) == none
    prefix = THEIRS.digest[:8]
    of_id = problem(mine.get(f"/api/v1/findings/{prefix}"), 404)
    assert {**of_id, "detail": ""} == {**none, "detail": ""}
    decided = mine.post("/api/v1/findings/TT-2/decisions", json={"decision": "approve"})
    missing = mine.post("/api/v1/findings/TT-9/decisions", json={"decision": "approve"})
    assert _renamed(problem(decided, 404)) == missing.json()
    for name in ("TT-2", "TT-9"):
        asked = mine.post(
            f"/api/v1/findings/{name}/decisions", json={"decision": "keep"},
            headers={"If-Match": '"x"'},
        )  # fmt: skip
        assert {**problem(asked, 404), "detail": ""} == {**none, "detail": ""}


def _renamed(found: dict[str, Any]) -> dict[str, Any]:
    """The problem, of TT-9 in the place of TT-2."""
    return dict(json.loads(json.dumps(found).replace("TT-2", "TT-9")))


def test_who_may_not_decide_does_not(store: Store, as_: Callable[..., TestClient]) -> None:
    """Each decision of a viewer, and of nobody, is refused and leaves no trace."""
    for kind in WishKind:
        wish = {"decision": str(kind)}
        if kind is WishKind.SNOOZE:
            wish["until"] = (utc_now() + timedelta(days=1)).isoformat()
        for who in ("vera", "somebody"):
            problem(as_(who).post("/api/v1/findings/TT-1/decisions", json=wish), 403)
    assert store.reader.audit() == ()


def test_a_decision_is_in_the_record_by_name(store: Store, as_: Callable[..., TestClient]) -> None:
    """As from a page; a second one is refused with the words of the command line."""
    wish = {"decision": "approve", "comment": "fine"}
    answer = as_("ann").post("/api/v1/findings/TT-1/decisions", json=wish)
    assert answer.status_code == 200
    told = answer.json()
    assert (told["finding"], told["state"], told["by"]) == ("TT-1", "approved", "ann")
    (entry,) = store.reader.audit()
    assert (entry.event, entry.actor, entry.detail) == ("approved", "ann", "fine")
    again = problem(as_("ann").post("/api/v1/findings/TT-1/decisions", json=wish), 409)
    assert "Only a proposed one" in again["hint"]
    assert again["error"] == "StalePlanError"


def test_if_match_binds_a_decision_to_what_was_read(
    store: Store, as_: Callable[..., TestClient]
) -> None:
    """A finding that changed meanwhile is not decided on."""
    ann, address = as_("ann"), "/api/v1/findings/TT-1"
    tag = ann.get(address).headers["ETag"]
    late = as_("alex").post(f"{address}/decisions", json={"decision": "reject"})
    assert late.status_code == 200
    wish = {"decision": "approve"}
    problem(ann.post(f"{address}/decisions", json=wish, headers={"If-Match": tag}), 412)
    assert len(store.reader.audit()) == 1


def test_a_tag_changes_with_all_that_is_done(as_: Callable[..., TestClient]) -> None:
    """A snooze that is moved is another snooze, though the state is the same."""
    ann, address = as_("ann"), "/api/v1/findings/TT-1"
    tags = set()
    for days in (1, 2, 2):
        until = (utc_now() + timedelta(days=days)).isoformat()
        wish = {"decision": "snooze", "until": until}
        assert ann.post(f"{address}/decisions", json=wish).status_code == 200
        tags.add(ann.get(address).headers["ETag"])
    assert len(tags) == 3
    reopened = ann.post(f"{address}/decisions", json={"decision": "reopen"})
    assert reopened.json()["state"] == "proposed"
    ann.post(f"{address}/decisions", json={"decision": "reject", "reason": "not-now"})
    reopened = ann.post(f"{address}/decisions", json={"decision": "reopen"})
    assert reopened.json()["state"] == ann.get(address).json()["finding"]["state"] == "reopened"
    problem(ann.post(f"{address}/decisions", json={"decision": "reopen"}), 409)


@pytest.mark.parametrize("name", [*LISTS, "findings/TT-1", "findings?limit=1000"])
def test_what_did_not_change_is_not_sent_again(
    store: Store, as_: Callable[..., TestClient], name: str
) -> None:
    """304 while the ETag holds, also asked by HEAD; the whole answer after a change."""
    ann, address = as_("ann"), f"/api/v1/{name}"
    first = ann.get(address)
    known = {"If-None-Match": f'"other", W/{first.headers["ETag"]}'}
    again = ann.get(address, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    head = ann.head(address)
    assert (head.status_code, head.headers["ETag"]) == (200, first.headers["ETag"])
    reject = {"decision": "reject", "reason": "not-now"}
    assert ann.post("/api/v1/findings/TT-1/decisions", json=reject).status_code == 200
    changed = ann.get(address, headers=known)
    if name.startswith(("findings", "audit")):
        assert changed.status_code == 200
        assert changed.content != first.content
    else:
        assert changed.status_code == 304


@pytest.mark.parametrize(
    "query",
    [
        "by=colour", "every=year", "from=2026-01-01T00:00:00Z", "to=2026-01-01T00:00:00",
        "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from=x&to=y", "start=1",
        "from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59-23:59",
        "from=2020-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "by=job&by=node",
    ],
)  # fmt: skip
def test_a_range_that_cannot_be_stated_is_refused(
    query: str, as_: Callable[..., TestClient]
) -> None:
    """By name, before anything is read."""
    problem(as_("vera").get(f"/api/v1/energy?{query}"), 422)


@pytest.mark.parametrize("offset", ["+00:00", "+01:00", "-03:30", "+00:01", "+14:00"])
@pytest.mark.parametrize(
    "path", ["reports/weekly?to={end}", "energy?from={start}&to={end}", "energy?to={end}"]
)
def test_a_time_of_any_offset_is_the_same_moment(
    path: str, offset: str, as_: Callable[..., TestClient]
) -> None:
    """A time is a moment, however it is written."""
    zone = datetime.fromisoformat(f"2026-01-15T00:00:00{offset}").tzinfo
    end = datetime.fromisoformat("2026-01-15T10:00:00+00:00")
    answers = [
        as_("vera").get(
            "/api/v1/"
            + path.format(
                start=quote((end - timedelta(days=1)).astimezone(tz).isoformat()),
                end=quote(end.astimezone(tz).isoformat()),
            )
        )
        for tz in (zone, UTC)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("query", ["state=opne", "state=", "kind=smaller", "risk=none"])
def test_a_word_that_no_finding_has_is_refused(
    query: str, as_: Callable[..., TestClient], store: Store, tmp_path: Path
) -> None:
    """A typing error is no empty list."""
    name, _, word = query.partition("=")
    assert name in problem(as_("vera").get(f"/api/v1/findings?{query}"), 422)["detail"]
    store.close()
    if name != "risk":
        url = f"duckdb:///{tmp_path}/t.duckdb"
        assert main(["--store", url, "findings", "list", f"--{name}={word}"]) == 2


def test_refusals_of_the_guards_are_problems(as_: Callable[..., TestClient]) -> None:
    """And say what is allowed."""
    vera = as_("vera")
    problem(vera.get("/api/v1/findings", headers={"Host": "evil.example"}), 421)
    problem(vera.get("/api/v1/findings", headers={"Origin": "https://evil.example"}), 403)
    problem(as_().get("/api/v1/findings"), 401)
    assert problem(vera.post("/api/v1/findings"), 405)
    assert vera.post("/api/v1/findings").headers["Allow"] == "GET"


@pytest.mark.parametrize(
    "wish",
    [
        {}, {"decision": "approve", "by": "alex"}, {"decision": "delete"}, {"decision": "snooze"},
        {"decision": "approve", "until": "2030-01-01T00:00:00Z"},
        {"decision": "snooze", "until": "2030-01-01T00:00:00"},
        {"decision": "reject", "reason": "because"}, {"decision": "approve", "reason": "not-now"},
        {"decision": "approve", "comment": "x" * 2001}, [], "approve", None, 1,
        {"decision": "reject", "comment": "\ud800"},
    ],
)  # fmt: skip
def test_what_a_wish_cannot_say_is_refused(
    wish: object, store: Store, as_: Callable[..., TestClient]
) -> None:
    """With the field named where there is one, and nothing is written."""
    body = json.dumps(wish)
    answer = as_("ann").post(
        "/api/v1/findings/TT-1/decisions", content=body,
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    problem(answer, 422)
    assert store.reader.audit() == ()


def test_the_header_of_the_middleware_cannot_be_sent(store: Store) -> None:
    """Neither past a proxy nor beside a token."""
    forged = {"X-Trimtab-Person": json.dumps({"name": "alex", "groups": []})}
    with clients(store, PROXY) as client:
        assert client("vera").get("/api/v1/", headers=forged).json()["role"] == "viewer"
        other = client(peer="203.0.113.9").get("/api/v1/", headers=forged)
        assert other.status_code == 403


def test_requests_of_other_sites_are_refused(store: Store) -> None:
    """On loopback whoever asks is the admin, so no foreign page may ask."""
    wish = {"decision": "approve"}
    address = "/api/v1/findings/TT-1/decisions"
    with clients(store, LOCAL) as client:
        page = client(peer="127.0.0.1")
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "http://localhost:9999"},
                        {"Origin": "null"}, {"Host": "evil.example"}):  # fmt: skip
            assert page.post(address, json=wish, headers=headers).status_code in (403, 421)
        assert store.reader.audit() == ()
        assert page.post("/", json=wish).status_code == 405
        assert page.put(address, json=wish).status_code == 405
        large = page.post(address, content=b"x" * 65_537)
        assert large.status_code == 413
        chunked = page.post(address, content=iter([b"{}"]))
        assert chunked.status_code == 411
        missing = problem(page.post(address, json=wish), 422)
        assert "needs the name" in missing["detail"]
        named = page.post(address, json=wish, headers={"X-Trimtab-By": "robin"})
        assert named.status_code == 200


def test_pages_of_a_list_tile_it(store: Store) -> None:
    """Each row once, in order, whatever the size of a page; no cursor of elsewhere is taken."""
    jobs = tuple(make_job(job_id=f"a/{number:02}", last_seen_at=utc_now()) for number in range(25))
    store.keep(make_collected(jobs=jobs, batch_id="more"))
    with clients(store, LOCAL) as client:
        page = client()
        whole = page.get("/api/v1/jobs?limit=1000").json()
        assert (whole["total"], whole["next"]) == (27, None)
        for limit in (1, 7, 26, 27):
            rows: list[Any] = []
            cursor: str | None = ""
            while cursor is not None:
                part = page.get("/api/v1/jobs", params={"limit": limit, "cursor": cursor}).json()
                assert len(part["items"]) <= limit
                rows += part["items"]
                cursor = part["next"]
            assert rows == whole["items"]
        for bad in ("x", "WzFd", "e30=", "é", "[" * 1500):
            problem(page.get("/api/v1/jobs", params={"limit": 1, "cursor": bad}), 400)
        problem(page.get("/api/v1/jobs?limit=1001"), 422)
        for unknown in ("jobs?limt=5", "findings?sate=open", "jobs?sort=saving"):
            name = unknown.partition("?")[2].partition("=")[0]
            assert name in problem(page.get(f"/api/v1/{unknown}"), 422)["detail"]


def test_the_api_says_what_commands_say(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Row by row and figure by figure."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with clients(store, LOCAL) as client:
        page = client()
        answers = {name: page.get(f"/api/v1/{name}").json()["items"] for name in LISTS}
        answers["findings"] = page.get("/api/v1/findings?all=true").json()["items"]
        one = page.get("/api/v1/findings/TT-1").json()
    store.close()
    words = {name: (name,) for name in LISTS} | {"audit": ("audit", "list")}
    words |= {"findings": ("findings", "list", "--all"), "serving": ("serving", "services")}
    del words["savings"]  # a document with a total
    for name, command in words.items():
        is_urgent = name == "urgent" and bool(answers[name])
        assert main(["--store", url, *command, "--format", "json"]) == 3 * is_urgent
        said = json.loads(capsys.readouterr().out)
        assert _utc(said) == _utc(answers[name]), name
    assert main(["--store", url, "findings", "show", "TT-1", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert _utc(said) == _utc(one["finding"] | {name: one[name] for name in ("record", "change")})


def _utc(value: Any) -> Any:
    """The value with one spelling of UTC."""
    return json.loads(json.dumps(value).replace("+00:00", "Z"))


def test_the_schema_is_whole_and_asks_nobody(store: Store) -> None:
    """OpenAPI 3.1 with every address, and no page that loads a foreign script."""
    with clients(store, LOCAL) as client:
        page = client()
        schema = page.get("/api/v1/openapi.json").json()
        assert schema["openapi"].startswith("3.1")
        assert {f"/{name}" for name in (*LISTS, "findings", "tokens")} <= set(schema["paths"])
        problem(page.get("/api/v1/redoc"), 404)


def test_the_documentation_names_every_address(store: Store) -> None:
    """And no other."""
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`((?:GET|POST|DELETE) /[^`]*)`", text))
    with clients(store, LOCAL) as client:
        paths = client().get("/api/v1/openapi.json").json()["paths"]
    assert told == {f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs}
