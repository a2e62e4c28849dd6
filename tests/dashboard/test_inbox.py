"""The rows of the inbox: what is chosen, in which order, and what stays where it was."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from factories import NOW, make_job, make_range, make_recommendation

from dashboard.accounting.savings.daily_savings import SavedSum
from dashboard.accounting.savings.shown_money import a_day
from dashboard.decisions.decision_table import DECISIONS, WishKind
from dashboard.decisions.finding_filter import FindingChoice, FindingOrder
from dashboard.decisions.findings import DISMISSED, OPEN, RESOLVED, FindingStatus
from dashboard.web.findings.actions import needs_confirmation, needs_tick
from dashboard.web.findings.finding_panel import change_lines, diff_text
from dashboard.web.findings.finding_rows import (
    STATES,
    InboxRow,
    age_text,
    choice_of_state,
    chosen_rows,
    inbox_rows,
    state_of,
    steady,
)
from data.facts.cluster_names import MAIN_CLUSTER
from data.records.actions import Action, Risk
from data.records.findings import DismissalReason, Finding
from data.records.lifecycle import TRANSITIONS, LifecycleEvent, State
from data.settings.all_settings import Settings
from data.store import StoredRecommendation

TO_DECIDE = choice_of_state("to decide")
SAVED = SavedSum(
    name="TT-1",
    days=1,
    unknown_days=0,
    gpu_hours=make_range(4, "GPU-h"),
    promised_gpu_hours=None,
    energy_kwh=None,
    promised_energy_kwh=None,
    emissions_kgco2e=None,
    money=make_range(8, "EUR"),
    run_rate=None,
)


def status(number: int, state: str = OPEN, *, revised: bool = True, **said: Any) -> FindingStatus:
    """A finding of a job of Ada's in a state; `said` are fields of its newest revision."""
    recommendation = make_recommendation(job_id=f"ml/job-{number}", **said)
    kept = {OPEN: State.PROPOSED, DISMISSED: State.REJECTED, RESOLVED: State.SUPERSEDED}
    return FindingStatus(
        finding=Finding(
            number=number,
            target=recommendation.target,
            action=recommendation.action,
            opened_at=NOW - timedelta(days=number),
            seen_at=NOW,
        ),
        state=state,
        reason="not-now" if state == DISMISSED else "",
        until=NOW + timedelta(days=7) if state == State.SNOOZED else None,
        revision=StoredRecommendation(
            recommendation=recommendation,
            state=str(kept.get(state, state)),
            decided_by="" if state == OPEN else "Kim",
            decided_at=None,
            comment="",
            finding=number,
        )
        if revised
        else None,
        events=(),
        job=replace(make_job("ml/x"), owner="ada"),
    )


def listed(*found: FindingStatus, **changes: Any) -> tuple[InboxRow, ...]:
    """Rows of findings."""
    values: dict[str, Any] = {"urgent": frozenset(), "saved": {}} | changes
    return inbox_rows(found, Settings(), **values)


def money(amount: float) -> Any:
    """Savings of so much in two days."""
    savings = make_recommendation().savings
    return replace(savings, horizon_hours=48, cost=make_range(amount, "EUR"))


def test_a_saving_is_told_a_day_and_unknown_stays_unknown() -> None:
    """The horizon is divided out; what no factor is known of is not zero."""
    (row,) = listed(status(1, savings=money(120)))
    assert row.worth is not None
    assert (row.worth.central, row.energy_a_day) == (60, None)


def test_urgent_comes_first_then_money() -> None:
    """A job that runs out of memory costs, and stands above all that saves."""
    rows = listed(
        status(1, savings=money(10)),
        status(2, savings=money(90)),
        status(3, action=Action.LARGER_GPU, savings=money(1)),
        status(4, savings=money(5)),
        urgent=frozenset({"TT-4"}),
    )
    by_urgency = [row.number for row in chosen_rows(rows, TO_DECIDE)]
    assert by_urgency == [3, 4, 2, 1]
    by_money = chosen_rows(rows, TO_DECIDE, FindingOrder.SAVING)
    assert [row.number for row in by_money] == [2, 1, 4, 3]
    oldest = chosen_rows(rows, TO_DECIDE, FindingOrder.OLDEST)
    assert [row.number for row in oldest] == [4, 3, 2, 1]
    urgent = chosen_rows(rows, TO_DECIDE, urgent=True)
    assert [row.number for row in urgent] == [3, 4]


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        (TO_DECIDE, [1, 2]),
        (FindingChoice(all=True), [1, 2, 3, 4]),
        (choice_of_state("all"), [1, 2, 3, 4]),
        (choice_of_state("snoozed or dismissed"), [3, 4]),
        (FindingChoice(all=True, search="JOB-3"), [3]),
        (replace(TO_DECIDE, search="tt-2"), [2]),
        (replace(TO_DECIDE, search="Fewer gpus"), [1, 2]),
        (replace(TO_DECIDE, owner="ada", risk=Risk.LOW), [2]),
        (replace(TO_DECIDE, kind=Action.FEWER_GPUS, owner="ada"), [1, 2]),
        (replace(TO_DECIDE, model=make_job("ml/x").gpu_model, cluster=MAIN_CLUSTER), [1, 2]),
        (replace(TO_DECIDE, model="another"), []),
        (replace(TO_DECIDE, cluster="another"), []),
        (replace(TO_DECIDE, account="another"), []),
        (replace(TO_DECIDE, team="another"), []),
    ],
)
def test_filters_choose(choice: FindingChoice, numbers: list[int]) -> None:
    """All of them have to fit; the search reads number, target, owner and text in any case."""
    rows = listed(
        status(1),
        status(2, risk=Risk.LOW),
        status(3, DISMISSED),
        status(4, State.SNOOZED),
        status(5, RESOLVED, revised=False),
    )
    assert sorted(row.number for row in chosen_rows(rows, choice)) == numbers


def test_rows_stand_still_while_one_decides() -> None:
    """What no longer fits stays in its place, and what is new comes at the end."""
    rows = listed(status(1, State.APPROVED), status(2), status(3))
    wanted = chosen_rows(rows, TO_DECIDE)
    assert [row.number for row in wanted] == [2, 3]
    assert steady(wanted, [1, 2], rows) == [1, 2, 3]
    assert steady(wanted, [9, 2, 1], rows) == [2, 1, 3]


def test_a_row_says_what_became_of_it() -> None:
    """Who decided, until when, why, and what it has earned so far."""
    rows = listed(
        status(1, State.VERIFIED),
        status(2, State.SNOOZED),
        status(3, DISMISSED),
        status(4),
        saved={"TT-1": SAVED},
    )
    until = f"{NOW + timedelta(days=7):%Y-%m-%d}"
    told = [row.state for row in rows]
    assert told[0].startswith("verified by Kim, saved 8")
    assert told[1:] == [f"snoozed until {until}", "dismissed by Kim: not now", "to decide"]
    by_hand = replace(rows[2].status, reason=DismissalReason.DONE)
    assert replace(rows[2], status=by_hand).state == "done by Kim"


def test_every_state_has_its_place_in_the_filter() -> None:
    """No finding is in none of the choices, and an address of old leads to one."""
    timed = {State.EXPIRED, State.SUPERSEDED, State.PROPOSED, State.REJECTED}
    for state in {OPEN, DISMISSED, RESOLVED, *State} - timed:
        assert state_of(str(state)) in STATES[:-1]
        rows = listed(status(1, str(state)))
        assert chosen_rows(rows, choice_of_state(state_of(str(state)))), state
    assert state_of("proposed") == "to decide"
    assert state_of("rejected") == "snoozed or dismissed"
    assert state_of("<b>") == "to decide"


def test_risk_decides_how_much_is_asked() -> None:
    """Low: nothing more; medium: once more; high, where a cluster changes: a tick as well."""
    low, medium, high = (make_recommendation(risk=risk) for risk in Risk)
    assert not needs_confirmation(WishKind.APPROVE_AND_APPLY, low)
    assert needs_confirmation(WishKind.APPROVE_AND_APPLY, medium)
    assert needs_confirmation(WishKind.APPLY, high)
    assert needs_confirmation(WishKind.REJECT, low)
    assert not needs_confirmation(WishKind.ROLL_BACK, high)
    assert needs_tick(WishKind.APPROVE_AND_APPLY, [low, high])
    assert not needs_tick(WishKind.APPROVE_AND_APPLY, [low, medium])
    assert not needs_tick(WishKind.APPROVE, [high])


def test_every_decision_is_of_a_state() -> None:
    """None is offered for what a newer plan has replaced."""
    assert all(row.states for row in DECISIONS.values())
    assert not any(State.SUPERSEDED in row.states for row in DECISIONS.values())


@pytest.mark.parametrize(
    ("event", "wishes"),
    [
        (LifecycleEvent.APPROVED, (WishKind.APPROVE, WishKind.APPROVE_AND_APPLY)),
        (LifecycleEvent.REJECTED, (WishKind.REJECT,)),
        (LifecycleEvent.WRITTEN, (WishKind.WRITE,)),
        (LifecycleEvent.KEPT, (WishKind.KEEP,)),
        (LifecycleEvent.APPLY_ASKED, (WishKind.APPLY,)),
        (LifecycleEvent.ROLLBACK_ASKED, (WishKind.ROLL_BACK, WishKind.MAKE_AGAIN)),
    ],
)
def test_what_a_person_may_do_has_its_button(
    event: LifecycleEvent, wishes: tuple[WishKind, ...]
) -> None:
    """In every state that the event may follow and that it ends."""
    follows = {state for state, after in TRANSITIONS.items() if after.get(event, state) != state}
    assert all(DECISIONS[wish].label for wish in wishes)
    offered = frozenset[State]().union(*(DECISIONS[wish].states for wish in wishes))
    assert follows <= offered


def test_a_change_is_a_diff() -> None:
    """What is held is removed, what is proposed is added."""
    lines = change_lines(make_recommendation())
    assert [line[:5] for line in lines] == ["- 4 ×", "+ 2 ×"]
    text = diff_text([*lines, "scale it\n- 9 × nothing"])
    assert re.findall(r":(\w+)-background", text) == ["red", "green"]
    assert len(text.splitlines()) == 3


def test_an_age_is_told_as_people_say_it() -> None:
    """Hours for two days, then days."""
    assert age_text(NOW - timedelta(hours=47), NOW) == "47 h"
    assert age_text(NOW - timedelta(days=12), NOW) == "12 d"


@pytest.mark.parametrize(
    ("hours", "money"),
    [(0.5, 12.0), (2, 12.0), (23.75, 12.0), (24, 12.0), (48, 6.0), (168, 12 / 7)],
)
def test_a_job_saves_within_a_day_no_more_than_until_its_end(hours: float, money: float) -> None:
    """A saving over the rest of a job is no rate: what ends in two hours is not saved twelve times.

    Bounds and centre alike.
    """
    savings = replace(make_recommendation().savings, horizon_hours=hours)
    cost = make_range(12.0, "EUR")
    within = a_day(cost, make_recommendation(savings=savings))
    assert within is not None
    assert within.central == pytest.approx(money)
    assert within.high / within.central == pytest.approx(cost.high / cost.central)
