"""Findings last: one number through all cycles, what people said of it, and what follows."""

import csv
import io
import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from beds.stores import cycle
from factories import NOW, make_plan, make_recommendation

from dashboard.cli import main
from dashboard.cycle.cooldowns import rejections
from dashboard.decisions import approvals, findings
from dashboard.decisions.findings import FindingStatus, findings_now, outcome_rows
from dashboard.resources.rows import finding_row
from dashboard.resources.whole_finding import advice_steps
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, StalePlanError, StoreError
from data.records.actions import Action
from data.records.findings import DismissalReason, number_of
from data.records.recommendations import APPLY_FIRST
from data.settings.all_settings import RetentionSettings, Settings
from data.store import Store

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def status(store: Store, reference: str, now: datetime) -> FindingStatus:
    """Where a finding stands."""
    (found,) = (
        finding_status
        for finding_status in findings_now(store.reader, now=now)
        if finding_status.finding.reference == reference
    )
    return found


def test_a_number_outlives_the_cycles(store: Store) -> None:
    """The same kind for the same target keeps it; another kind or target has its own."""
    first = make_recommendation()
    other_kind = make_recommendation(action=Action.POWER_CAP)
    other_job = make_recommendation(job_id="search/other")
    cycle(store, 1, first, other_kind)
    cycle(store, 2, other_job)
    (third,) = cycle(store, 3, replace(first, why="another reading"))
    found = {
        finding_status.finding.reference: finding_status
        for finding_status in findings_now(store.reader, now=NOW + 3 * HOUR)
    }
    assert {
        name: (entry.finding.target, entry.finding.action, entry.state)
        for name, entry in found.items()
    } == {
        "TT-1": (first.job_id, Action.FEWER_GPUS, "open"),
        "TT-2": (first.job_id, Action.POWER_CAP, "resolved"),
        "TT-3": ("search/other", Action.FEWER_GPUS, "resolved"),
    }
    one = found["TT-1"]
    assert (one.finding.opened_at, one.finding.seen_at) == (NOW + HOUR, NOW + 3 * HOUR)
    assert one.revision is not None
    assert one.revision.recommendation.digest == third.digest
    for text in ("TT-1", "tt-1", " tT-1 "):
        assert store.reader.recommendation(text, now=NOW).recommendation == third


@pytest.mark.parametrize("decided", ["open", "approved", "dismissed", "gone"])
def test_what_is_to_be_applied_first_is_named_by_its_number(store: Store, decided: str) -> None:
    """As long as it is open: what is decided or proposed no more is waited for by nobody."""
    idle = make_recommendation(job_id="a/idle", action=Action.RECLAIM)
    node = make_recommendation(
        job_id="", action=Action.CONSOLIDATE, details=(("node", "n1"),), job_name="n1"
    )
    grows = make_recommendation(job_id="b/grows", action=Action.SCALE_OUT)
    names = "a/idle (reclaim), n1 (consolidate), c/unknown (reclaim)"
    factors = ((APPLY_FIRST, names), *grows.evidence.factors)
    grows = replace(grows, evidence=replace(grows.evidence, factors=factors))
    first, _node, _grows = cycle(store, 1, idle, node, grows)
    now = NOW + HOUR
    if decided == "approved":
        approvals.approve(store, first.digest, by="Kim", now=now)
    elif decided == "dismissed":
        approvals.reject(store, first.digest, by="Kim", comment="no", now=now)
    elif decided == "gone":
        cycle(store, 2, node, grows)
    found = {row.finding.target: row for row in findings_now(store.reader, now=now + HOUR)}
    wanted = [found["a/idle"].finding.reference] * (decided == "open")
    wanted += [found["n1"].finding.reference]
    assert list(found["b/grows"].apply_first) == wanted
    assert finding_row(found["b/grows"], Settings()).apply_first == found["b/grows"].apply_first
    assert found["n1"].apply_first == ()


@pytest.mark.parametrize("text", ["TT-0", "TT-01", "TT--1", "TT-1x", "1", "TT-", "TT-" + "9" * 30])
def test_what_names_no_finding(text: str) -> None:
    """A number is written in one way."""
    assert number_of(text) == 0


def test_what_was_said_yes_to_is_what_is_meant(store: Store) -> None:
    """A newer revision does not take the number from the one that is approved."""
    (first,) = cycle(store, 1, make_recommendation())
    approvals.approve(store, "TT-1", by="Kim", now=NOW + HOUR)
    cycle(store, 2, make_recommendation(why="again"))
    found = status(store, "TT-1", NOW + 2 * HOUR)
    assert found.state == "approved"
    assert store.reader.recommendation("TT-1", now=NOW + 2 * HOUR).recommendation == first


def test_a_snoozed_finding_is_not_proposed_before_its_time(store: Store) -> None:
    """Whatever it would save; then it comes up again, or sooner when it is reopened."""
    (one,) = cycle(store, 1, make_recommendation())
    findings.snooze(store, "TT-1", by="Kim", now=NOW + HOUR, until=NOW + DAY, comment="release")
    assert store.reader.recommendation("TT-1", now=NOW + HOUR).state == "snoozed"
    with pytest.raises(StalePlanError, match="is snoozed"):
        approvals.approve(store, "TT-1", by="Kim", now=NOW + HOUR)
    held = rejections(store.reader, NOW + 2 * HOUR, 30.0)
    larger = replace(one.savings, cost=None)
    assert "snoozed on" in held[one.target, one.action].holds(larger)
    cycle(store, 2)
    found = status(store, "TT-1", NOW + 2 * HOUR)
    assert (found.state, found.until) == ("snoozed", NOW + DAY)
    assert rejections(store.reader, NOW + DAY, 30.0) == {}
    assert status(store, "TT-1", NOW + DAY).state == "resolved"
    findings.reopen(store, "TT-1", by="Kim", now=NOW + 3 * HOUR)
    assert rejections(store.reader, NOW + 3 * HOUR, 30.0) == {}
    assert store.reader.verify_audit() == ()
    assert [entry.event for entry in store.reader.entries_about(1)] == ["snoozed", "reopened"]


def test_a_dismissal_is_counted_by_its_reason(store: Store) -> None:
    """States add up to what was found, reasons to what was dismissed."""
    kinds = [Action.FEWER_GPUS, Action.RECLAIM]
    made = cycle(
        store,
        1,
        *(
            make_recommendation(job_id=f"a/{number}", action=kind)
            for kind in kinds
            for number in range(len(DismissalReason))
        ),
    )
    now = NOW + HOUR
    for recommendation, reason in zip(made, (*DismissalReason, None), strict=False):
        approvals.reject(store, recommendation.digest, by="Kim", now=now, reason=reason)
    findings.snooze(store, made[6].digest, by="Kim", now=now, until=now + DAY)
    rows = {row["kind"]: row for row in outcome_rows(findings_now(store.reader, now=now))}
    fewer, reclaim = rows["fewer-gpus"], rows["reclaim"]
    assert [fewer[reason.replace("-", " ")] for reason in DismissalReason] == [1] * 5
    assert (fewer["found"], fewer["dismissed"], fewer["no reason"]) == (5, 5, 0)
    counted = ("found", "dismissed", "no reason", "snoozed", "open")
    assert [reclaim[name] for name in counted] == [5, 1, 1, 1, 3]


def test_a_dismissed_finding_is_reopened(store: Store) -> None:
    """Its kind may be proposed again from then on, and a new dismissal holds anew."""
    (one,) = cycle(store, 1, make_recommendation())
    reason = DismissalReason.ACCEPTED_RISK
    approvals.reject(store, "TT-1", by="Kim", now=NOW + HOUR, reason=reason)
    found = status(store, "TT-1", NOW + HOUR)
    assert (found.state, found.reason) == ("dismissed", reason)
    assert set(rejections(store.reader, NOW + HOUR, 30.0)) == {(one.target, one.action)}
    findings.reopen(store, "TT-1", by="Kim", now=NOW + 2 * HOUR)
    assert status(store, "TT-1", NOW + 2 * HOUR).state == "reopened"
    with pytest.raises(StalePlanError, match="reopened already"):
        findings.reopen(store, "TT-1", by="Kim", now=NOW + 2 * HOUR)
    assert rejections(store.reader, NOW + 2 * HOUR, 30.0) == {}
    (again,) = cycle(store, 3, make_recommendation(why="again"))
    assert status(store, "TT-1", NOW + 3 * HOUR).state == "open"
    approvals.reject(store, "TT-1", by="Kim", now=NOW + 4 * HOUR)
    found = status(store, "TT-1", NOW + 4 * HOUR)
    assert (found.state, found.reason) == ("dismissed", "")
    held = rejections(store.reader, NOW + 4 * HOUR, 30.0)[one.target, one.action]
    assert (held.recommendation, held.at) == (again, NOW + 4 * HOUR)


@pytest.mark.parametrize("days", [0, -1, 367, 10_000])
def test_a_snooze_has_an_end_within_a_year(store: Store, days: int) -> None:
    """What is never to come up is dismissed instead."""
    cycle(store, 1, make_recommendation())
    now = NOW + HOUR
    with pytest.raises(ChangeRefusedError, match="cannot be snoozed until"):
        findings.snooze(store, "TT-1", by="Kim", now=now, until=now + days * DAY)
    assert store.reader.audit() == ()


def test_what_nothing_holds_back_is_not_reopened(store: Store) -> None:
    """Nor is what nobody found."""
    cycle(store, 1, make_recommendation())
    with pytest.raises(StalePlanError, match="is proposed"):
        findings.reopen(store, "TT-1", by="Kim", now=NOW + HOUR)
    with pytest.raises(StoreError, match="TT-2"):
        findings.reopen(store, "TT-2", by="Kim", now=NOW + HOUR)
    for name in ("TT-2", "abcdef", "a"):
        with pytest.raises(StoreError, match="names no finding"):
            store.reader.finding_number(name)


def test_a_revision_that_was_spoken_of_is_kept(store: Store) -> None:
    """The record names it, so that it is not removed with what nobody decided on."""
    (one, _other) = cycle(store, 1, make_recommendation(), make_recommendation(job_id="b/1"))
    findings.snooze(store, one.digest, by="Kim", now=NOW + HOUR, until=NOW + DAY)
    cycle(store, 2)
    store.forget(RetentionSettings(), NOW + 30 * DAY)
    assert [found.finding.seen_at for found in findings_now(store.reader, now=NOW)] == [
        None,
        NOW + HOUR,
    ]
    assert store.reader.verify_audit() == ()


def test_the_command_line_speaks_of_findings(
    store_url: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """List, snooze, dismiss, show, reopen; numbers in either case."""
    now = utc_now()
    plan = make_plan()
    made = [
        make_recommendation(
            plan_id=plan.plan_id, job_id=f"a/{number}", job_name=f"run of {number}",
            namespace=f"team-{number}", created_at=now, expires_at=now + DAY,
        )
        for number in range(3)
    ]  # fmt: skip
    store.keep_cycle(
        cycle_id="c1", started_at=now, finished_at=now, forecasts=(),
        plan=plan, recommendations=made,
    )  # fmt: skip
    store.close()

    def run(*words: str) -> str:
        assert main(["--store", store_url, "--quiet", *words]) == 0
        return capsys.readouterr().out

    run("findings", "snooze", "tt-1", "--days", "2", "--by", "Kim")
    run("findings", "dismiss", "TT-2", "--reason", "false-positive", "--by", "Kim")
    listed = json.loads(run("findings", "list", "--format", "json"))
    assert [(entry["finding"], entry["state"]) for entry in listed] == [
        ("TT-1", "snoozed"), ("TT-2", "dismissed"), ("TT-3", "open"),
    ]  # fmt: skip
    table = csv.DictReader(io.StringIO(run("findings", "list", "--format", "csv")))
    assert [(entry["finding"], entry["name"], entry["namespace"]) for entry in table] == [
        (f"TT-{number + 1}", f"run of {number}", f"team-{number}") for number in range(3)
    ]
    shown = run("findings", "show", "TT-3")
    assert "run of 2" in shown
    assert "team-2" in shown
    chosen = json.loads(run("findings", "list", "--team", "team-1", "--format", "json"))
    assert [entry["finding"] for entry in chosen] == ["TT-2"]
    shown = json.loads(run("findings", "show", "TT-2", "--format", "json"))
    assert [entry["event"] for entry in shown["record"]] == ["dismissed", "rejected"]
    assert shown["reason"] == "false-positive"
    run("findings", "reopen", "TT-1", "--by", "Kim")
    assert "TT-1" in run("findings", "list", "--state", "open")
    assert main(["--store", store_url, "findings", "snooze", "TT-3", "--days", "0", "--by", "K"])
    assert "cannot be snoozed for 0 days" in capsys.readouterr().err


def test_the_steps_of_advice_come_before_the_jobs_of_each_board() -> None:
    """On the card as in the command; advice without steps has none."""
    details = (("boards", "a + b; c + d"), ("steps", "1. label the node"))
    assert advice_steps(make_recommendation(details=details)).split("\n") == [
        "1. label the node",
        "",
        "The jobs of each board:",
        "a + b",
        "c + d",
    ]
    assert advice_steps(make_recommendation()) == ""
