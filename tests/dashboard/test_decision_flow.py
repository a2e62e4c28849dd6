"""From a cycle to a change file: approve, refuse, write once, record."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.apply_bench import propose
from beds.demo_store import demo_day
from beds.stores import filled
from factories import (
    H100,
    NOW,
    make_collected,
    make_job,
    make_plan,
    make_range,
    make_recommendation,
    make_samples,
)

from dashboard.cli import main
from dashboard.decisions import approvals
from dashboard.decisions.repeat_proposals import as_proposed_now
from data.base.errors import ApprovalMissingError, ChangeRefusedError, StalePlanError
from data.records.actions import ADVICE, Action
from data.records.plans import Configuration
from data.records.recommendations import Recommendation, Savings
from data.store import Store

LATER = NOW + timedelta(hours=1)


def fill(store: Store) -> None:
    """Keep one job on four boards and one recommendation for it."""
    store.keep(make_collected(make_samples(gpus=4), (make_job(gpu_count=4),)))
    propose(store, make_recommendation())


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store with one job and its recommendation."""
    with filled(store_url, fill) as opened:
        yield opened


DIGEST = make_recommendation().digest


def test_an_approved_recommendation_becomes_the_previewed_file(
    store: Store, tmp_path: Path
) -> None:
    """Approve, write, write again: one file, two decisions, an intact chain."""
    approval = approvals.approve(store, DIGEST[:12], by="A. Reader", now=LATER, comment="go")
    assert approval.digest == DIGEST
    preview = approvals.preview(store.reader, make_recommendation())
    for _time in range(2):
        path = approvals.write_approved(store, DIGEST, by="A. Reader", now=LATER, folder=tmp_path)
        assert path.read_text(encoding="utf-8") == preview.text
    assert [entry.event for entry in store.reader.audit()] == ["approved", "written"]
    assert store.reader.verify_audit() == ()


def test_nothing_is_written_without_an_approval(store: Store, tmp_path: Path) -> None:
    """The proposal alone changes nothing."""
    with pytest.raises(ApprovalMissingError):
        approvals.write_approved(store, DIGEST, by="A", now=LATER, folder=tmp_path / "changes")
    assert not (tmp_path / "changes").exists()


@pytest.mark.parametrize("is_written", [False, True])
def test_a_rejected_recommendation_cannot_be_written(
    store: Store, tmp_path: Path, is_written: bool
) -> None:
    """A later no wins over an earlier yes, whether its change file was written before or not."""
    approvals.approve(store, DIGEST, by="A", now=LATER)
    if is_written:
        approvals.write_approved(store, DIGEST, by="A", now=LATER, folder=tmp_path)
    approvals.reject(store, DIGEST, by="B", now=LATER, comment="not this week")
    with pytest.raises(ApprovalMissingError):
        approvals.write_approved(store, DIGEST, by="A", now=LATER, folder=tmp_path)


def test_an_expired_recommendation_is_refused(store: Store, tmp_path: Path) -> None:
    """An approval does not outlive the recommendation."""
    approvals.approve(store, DIGEST, by="A", now=LATER)
    with pytest.raises(StalePlanError, match="expired"):
        approvals.write_approved(
            store, DIGEST, by="A", now=NOW + timedelta(hours=25), folder=tmp_path
        )


def test_a_job_that_changed_since_is_refused(store: Store, tmp_path: Path) -> None:
    """The plan saw four boards; now it is two."""
    approvals.approve(store, DIGEST, by="A", now=LATER)
    changed = make_job(gpu_count=2, last_seen_at=LATER)
    store.keep(make_collected(make_samples(end=LATER), (changed,), batch_id="later"))
    with pytest.raises(StalePlanError, match="the plan saw"):
        approvals.write_approved(store, DIGEST, by="A", now=LATER, folder=tmp_path)


def again(store: Store, plan_id: str = "p2", **changes: Any) -> Recommendation:
    """The recommendation of a newer plan, an hour later."""
    newer = replace(make_recommendation(**changes), plan_id=plan_id, created_at=LATER)
    store.keep_cycle(
        cycle_id=f"c-{plan_id}",
        started_at=LATER,
        finished_at=LATER,
        forecasts=(),
        plan=replace(make_plan(), plan_id=plan_id),
        recommendations=(newer,),
    )
    return newer


@pytest.mark.parametrize("action", [action for action in Action if action.spec.of_node])
def test_an_approved_change_of_a_node_becomes_a_file(
    store: Store, tmp_path: Path, action: Action
) -> None:
    """It names no job: who runs it looks at the node."""
    layout = (("node", "n1"), ("mig_layout", "all-1g.10gb"))
    details = layout if action is Action.MIG_LAYOUT else layout[:1]
    found = again(store, action=action, job_id="", job_name="n1", details=details)
    approvals.approve(store, found.digest, by="A", now=LATER)
    path = approvals.write_approved(store, found.digest, by="A", now=LATER, folder=tmp_path)
    assert "kubectl cordon n1" in path.read_text(encoding="utf-8")


def saving(cost: float) -> Savings:
    """Another central saving; the range that was shown is 108 to 132 EUR."""
    return replace(make_recommendation().savings, cost=make_range(cost, "EUR"))


def test_what_is_proposed_again_is_approved_by_its_older_name(store: Store, tmp_path: Path) -> None:
    """Every cycle gives new names; a mail or a page of an hour ago still names the change."""
    shown = make_recommendation().savings.cost
    assert shown is not None
    newer = again(store, savings=saving(shown.high - 0.01))
    assert newer.digest != DIGEST
    assert approvals.approve(store, DIGEST[:12], by="A", now=LATER).digest == newer.digest
    approvals.write_approved(store, DIGEST, by="A", now=LATER, folder=tmp_path)
    assert [entry.digest for entry in store.reader.audit()] == [newer.digest] * 2
    with pytest.raises(StalePlanError, match="is written"):
        approvals.approve(store, DIGEST, by="B", now=LATER)
    assert store.reader.recommendation(newer.digest, now=LATER).state == "written"


@pytest.mark.parametrize(
    "changes",
    [
        {"proposed": Configuration(gpu_model=H100, gpu_count=3)},
        {"now": Configuration(gpu_model=H100, gpu_count=8)},
        {"job_id": "search/other"},
        {"details": (("partition", "other"),)},
        {"savings": saving(1.0)},
        {"savings": saving(1_000.0)},
    ],
)
def test_another_change_has_to_be_looked_at_again(store: Store, changes: dict[str, Any]) -> None:
    """Of another size, of another target, or with a saving outside the range that was shown."""
    again(store, **changes)
    with pytest.raises(StalePlanError, match="superseded"):
        approvals.approve(store, DIGEST, by="A", now=LATER)


@pytest.mark.parametrize("action", sorted(ADVICE))
def test_advice_is_the_same_whatever_amount_it_names(store: Store, action: Action) -> None:
    """It changes nothing by itself: saying yes to 4 more GPUs an hour ago is no no to 5 now."""
    first = again(store, action=action, change="4 more", job_id="", job_name=H100)
    newer = again(store, "p3", action=action, change="5 more", job_id="", job_name=H100)
    assert as_proposed_now(store, first.digest, LATER).recommendation.digest == newer.digest


@pytest.mark.parametrize("name", ["TT-1", "tt-1"])
def test_a_change_that_was_shown_is_approved_by_the_id_that_came_with_it(
    store: Store, name: str
) -> None:
    """A finding has other recommendations with every plan: what to send instead is told."""
    shown = make_recommendation().recommendation_id
    with pytest.raises(StalePlanError) as refused:
        approvals.approve(store, name, by="A", now=LATER, change_digest="abc")
    assert "superseded" not in refused.value.message
    assert "TT-1 names a finding" in refused.value.message
    assert "recommendation_id" in refused.value.hint
    assert shown in refused.value.hint
    assert store.reader.audit() == ()
    assert approvals.approve(store, shown, by="A", now=LATER, change_digest="abc").digest == DIGEST


def test_a_change_that_was_shown_is_no_change_of_a_newer_plan(store: Store) -> None:
    """Who saw the exact change of the older one has to look at the newer one's."""
    newer = again(store)
    with pytest.raises(StalePlanError, match=newer.recommendation_id):
        approvals.approve(store, DIGEST, by="A", now=LATER, change_digest="abc")
    assert store.reader.audit() == ()


@pytest.mark.parametrize("name", ["", "   ", "\t\n"])
def test_a_decision_needs_a_name(store: Store, name: str) -> None:
    """Somebody decides, or nobody does."""
    with pytest.raises(ChangeRefusedError, match="name"):
        approvals.approve(store, DIGEST, by=name, now=LATER)


def test_approving_twice_is_refused(store: Store) -> None:
    """The second click finds it approved."""
    approvals.approve(store, DIGEST, by="A", now=LATER)
    with pytest.raises(StalePlanError, match="is approved"):
        approvals.approve(store, DIGEST, by="B", now=LATER)


@pytest.mark.parametrize("action", sorted(ADVICE))
def test_advice_is_not_approved(store: Store, action: Action) -> None:
    """No applier makes it: the refusal says what a person does instead, and nothing is recorded."""
    advice = again(store, action=action, job_id="", job_name=H100)
    with pytest.raises(ChangeRefusedError, match="is advice") as refusal:
        approvals.approve(store, advice.digest, by="A", now=LATER)
    assert advice.summary in refusal.value.hint
    assert store.reader.recommendation(advice.digest, now=LATER).state == "proposed"


@pytest.mark.slow
@pytest.mark.usefixtures("demo_time")
def test_the_commands_do_the_same(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Demo --once, list, approve, apply, audit verify, and the report."""
    arguments = ["--quiet", "--store", demo_day(tmp_path_factory.mktemp("demo"))]
    capsys.readouterr()
    assert main([*arguments, "findings", "list", "--format", "json"]) == 0
    listed = [
        load
        for load in json.loads(capsys.readouterr().out)
        if load["action"] in ("reclaim", "fewer-gpus", "mig-slice")
    ]
    chosen = listed[0]["revision"]["id"]
    assert main([*arguments, "findings", "apply", chosen, "--by", "A"]) == 1
    assert "approve" in capsys.readouterr().err
    assert main([*arguments, "findings", "approve", chosen, "--by", "A"]) == 0
    capsys.readouterr()
    settings = tmp_path / "t.toml"
    settings.write_text(f'[apply]\ndirectory = "{tmp_path}/changes"\n')
    with_settings = ["--settings", str(settings), *arguments]
    assert main([*with_settings, "findings", "apply", chosen, "--by", "A"]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert listed[0]["revision"]["digest"] in written.read_text(encoding="utf-8")
    assert main([*arguments, "audit", "verify"]) == 0
    assert "2 entries, chain intact" in capsys.readouterr().out
    for command in (
        ["jobs"],
        ["gpus"],
        ["sources"],
        ["forecast"],
        ["forecast", "--by", "group"],
        ["plan"],
        ["settings"],
    ):
        for form in ("table", "json", "csv"):
            assert main([*arguments, *command, "--format", form]) == 0
            assert capsys.readouterr().out
    assert main([*arguments, "findings", "show", chosen]) == 0
    assert main([*arguments, "report", "weekly"]) == 0
    assert "Energy and emissions" in capsys.readouterr().out


def test_a_changed_digest_is_another_recommendation(store: Store) -> None:
    """Nothing but the exact digest is approved."""
    other = replace(make_recommendation(), why="something else")
    with pytest.raises(Exception, match="no recommendation"):
        approvals.approve(store, other.digest, by="A", now=LATER)
