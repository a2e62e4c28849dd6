"""What is dismissed by pattern: not proposed, counted, in the record, and over at its end."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from beds.api_clients import MINE, PROXY, THEIRS, clients, problem, two_owners
from beds.demo_store import DEMO_END, make_demo
from beds.held_store import held
from beds.stores import cycle

from dashboard.cli import main
from dashboard.cycle.cooldowns import dismissed_targets
from dashboard.decisions.dismissals import active_patterns, dismiss_matching
from dashboard.decisions.findings import findings_now, outcome_rows
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError
from data.records.actions import Action
from data.records.commands import Person
from data.records.findings import DismissalPattern, DismissalReason
from data.store import Store, open_store
from planner.proposals.suppressions import rejected

ANN = Person(name="ann", via="cli")
TARGETS = {MINE.job_id: "search", "search/eval-3": "search", THEIRS.job_id: "vision", "node-1": ""}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """TT-1 of search, TT-2 of vision."""
    with two_owners(tmp_path) as opened:
        yield opened


def dismissed(store: Store, *, days: float = 30.0, **parts: str) -> DismissalPattern:
    """What was dismissed by pattern."""
    now = utc_now()
    return dismiss_matching(
        store, **parts, reason=DismissalReason.ACCEPTED_RISK, until=now + timedelta(days=days),
        by=ANN, now=now,
    )  # fmt: skip


def states(store: Store, *, later: timedelta = timedelta()) -> dict[str, tuple[str, str]]:
    """State and reason of each finding."""
    found = findings_now(store.reader, now=utc_now() + later)
    return {status.finding.reference: (status.state, status.reason) for status in found}


@pytest.mark.parametrize(
    ("parts", "meant"),
    [
        ({"namespace": "search"}, {MINE.job_id, "search/eval-3"}),
        ({"job": "search/eval-*"}, {"search/eval-3"}),
        ({"job": "*"}, set(TARGETS)),
        ({"job": "search"}, set()),
        ({"namespace": "search", "job": "vision/*"}, set()),
        ({"kind": "fewer-gpus"}, set(TARGETS)),
        ({"namespace": "vision", "kind": "fewer-gpus"}, {THEIRS.job_id}),
    ],
)
def test_a_pattern_holds_back_what_it_matches_and_no_more(
    parts: dict[str, str], meant: set[str], store: Store
) -> None:
    """By target and kind, whatever it would save, until its end."""
    made = dismissed(store, **parts)
    now = utc_now()
    kept = dismissed_targets(store.reader, TARGETS, now)
    kinds = {Action("fewer-gpus")} if "kind" in parts else set(Action)
    assert set(kept) == {(target, kind) for target in meant for kind in kinds}
    for target in TARGETS:
        said = rejected(kept, target, Action("fewer-gpus"), MINE.savings)
        assert bool(said) == (target in meant)
        assert not said or made.words in said
    assert dismissed_targets(store.reader, TARGETS, now + timedelta(days=31)) == {}


def test_what_is_dismissed_is_counted_with_its_reason(store: Store) -> None:
    """Also when the next cycle proposes it no more; over at the end of the time."""
    dismissed(store, namespace="search")
    assert states(store) == {"TT-1": ("dismissed", "accepted-risk"), "TT-2": ("open", "")}
    cycle(store, 2, THEIRS, at=utc_now())
    assert states(store)["TT-1"] == ("dismissed", "accepted-risk")
    (row,) = outcome_rows(findings_now(store.reader, now=utc_now()))
    assert (row["dismissed"], row["accepted risk"], row["open"]) == (1, 1, 1)
    assert states(store, later=timedelta(days=31))["TT-1"][0] != "dismissed"


def test_what_ended_long_before_is_not_dismissed_afterwards(store: Store) -> None:
    """It is resolved, and nobody spoke of it."""
    late = utc_now() + timedelta(days=3)
    cycle(store, 2, THEIRS, at=late)
    dismiss_matching(
        store, namespace="search", reason=DismissalReason.NOT_NOW, by=ANN, now=late,
        until=late + timedelta(days=1),
    )  # fmt: skip
    found = findings_now(store.reader, now=late)
    assert {status.finding.reference: status.state for status in found}["TT-1"] == "resolved"


def test_what_was_decided_stays_as_it_is(store: Store) -> None:
    """An approval is no open finding."""
    with clients(store, PROXY) as client:
        address = "/api/v1/findings/TT-1/decisions"
        assert client("ann").post(address, json={"decision": "approve"}).status_code == 200
    dismissed(store, namespace="search")
    assert states(store)["TT-1"] == ("approved", "")


@pytest.mark.parametrize(
    ("parts", "days"),
    [({}, 1), ({"kind": "smaller"}, 1), ({"job": "x"}, 0), ({"job": "x"}, 367)],
)
def test_what_is_no_pattern_is_refused(parts: dict[str, str], days: float, store: Store) -> None:
    """Nothing is written."""
    with pytest.raises(ChangeRefusedError):
        dismissed(store, days=days, **parts)
    assert store.reader.audit() == ()


def test_it_is_made_and_ended_over_http(store: Store) -> None:
    """By approvers and admins; it is in the record, which stays whole."""
    until = (utc_now() + timedelta(days=7)).isoformat()
    wish = {"namespace": "search", "reason": "not-now", "until": until, "comment": "a release"}
    with clients(store, PROXY) as client:
        for who in ("vera", "search", "somebody"):
            problem(client(who).post("/api/v1/dismissals", json=wish), 403)
        problem(client("ann").post("/api/v1/dismissals", json=wish | {"reason": ""}), 422)
        problem(client("ann").post("/api/v1/dismissals", json=wish | {"namespace": ""}), 422)
        made = client("ann").post("/api/v1/dismissals", json=wish)
        assert made.status_code == 201
        assert client("vera").get("/api/v1/dismissals").json() == [made.json()]
        shown = client("search").get("/api/v1/findings").json()["items"]
        assert [(entry["finding"], entry["state"]) for entry in shown] == [("TT-1", "dismissed")]
        address = f"/api/v1/dismissals/{made.json()['id']}"
        problem(client("vera").delete(address), 403)
        assert client("alex").delete(address).status_code == 200
        problem(client("alex").delete(address), 404)
        assert client("vera").get("/api/v1/dismissals").json() == []
    events = [(entry.event, entry.actor) for entry in store.reader.audit()]
    assert events == [("dismissed-matching", "ann"), ("dismissal-ended", "alex")]
    assert store.reader.verify_audit() == ()
    assert states(store)["TT-1"] == ("open", "")


@pytest.mark.parametrize("server", [False, True], ids=["file", "server"])
def test_it_is_made_listed_and_ended_by_commands(
    server: bool, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same, with the file and beside a server."""
    store.close()
    url = f"duckdb:///{tmp_path}/t.duckdb"
    given = ["--quiet", "--store", url, "findings"]
    by = ["--by", "robin"]

    def steps() -> None:
        why = ["--reason", "false-positive", "--comment", "known", *by]
        assert main([*given, "dismiss", "--matching", "job=search/*,kind=fewer-gpus", *why]) == 0
        capsys.readouterr()
        assert main([*given, "dismissals", "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["job"], row["kind"], row["by"]) == ("search/*", "fewer-gpus", "robin")
        for wrong in ("TT-1 --matching job=x", "", "--matching job", "--matching job=a,job=b",
                      "--matching owner=x", "--matching job=x --days 0"):  # fmt: skip
            assert main([*given, "dismiss", *wrong.split(), *why]) != 0
        assert main([*given, "reopen", "--matching", row["id"], *by]) == 0
        assert main([*given, "reopen", "--matching", row["id"], *by]) == 1

    if server:
        with held(url):
            steps()
    else:
        steps()
    with open_store(url) as opened:
        assert active_patterns(opened.reader, utc_now()) == ()
        assert len(opened.reader.audit()) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("demo_time")
def test_the_cycle_proposes_nothing_that_is_dismissed(tmp_path: Path) -> None:
    """The demo's idle jobs would be reclaimed; the rest of its plan is proposed."""
    url = f"duckdb:///{tmp_path}/demo.duckdb"
    with open_store(url) as opened:
        dismissed(opened, kind="reclaim")
    make_demo(url, DEMO_END)
    with open_store(url) as opened:
        found = findings_now(opened.reader, now=opened.reader.clock())
        plan = opened.reader.latest_plan()
    kinds = {str(status.finding.action) for status in found}
    assert kinds
    assert "reclaim" not in kinds
    assert plan is not None
    assert [job for job in plan.jobs if job.idle is not None and "kind=reclaim" in str(job.idle)]
