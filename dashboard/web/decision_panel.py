"""What can be done with a recommendation now, and what is being done: the foot of its card.

A click is a command written to the store within the callback, before the page is drawn; that the
callback runs whatever else is pressed is seen to by `kept_clicks`. What the page then shows comes
from the store.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import streamlit as st

from dashboard.decision_service import Preview
from dashboard.figure_text import range_text
from dashboard.findings import HELD_BACK
from dashboard.recording import NOT_APPLIED
from dashboard.web.identity import acting, local_name, remember_name, signed_in
from dashboard.web.page import plain
from dashboard.web.session import current_world
from data.errors import TrimtabError
from data.records.commands import Measurement, Person
from data.records.decisions import Decision
from data.records.findings import DismissalReason
from data.records.lifecycle import OPEN, REVERSIBLE, STANDING, State
from data.store import StoredRecommendation
from data.store.record_json import from_json
from data.units import MIB_PER_GIB

_TICK_SECONDS = 1.0
_SNOOZE = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a click was made with: who, their remark, the digest of the change they were shown.

    `reason` is why it is rejected, None when none was chosen.
    """

    person: Person
    remark: str
    shown: str
    reason: DismissalReason | None = None


Action = Callable[[Given], object]


def decision_panel(stored: StoredRecommendation, key: str) -> None:
    """Show what the recommendation's state allows the person to do."""
    if st.session_state.pop(f"{key}-acted", False):
        st.rerun()
    state = State(stored.state)
    if current_world().reader.recording() is not None:
        if state is State.PROPOSED:
            st.caption(NOT_APPLIED)
        return
    if state is State.PROPOSED:
        _change(stored, key)
        _buttons(stored, key, _proposed(stored), remarks=True)
    _after_a_decision(stored, key, state)
    _last_refusal(key)


def _after_a_decision(stored: StoredRecommendation, key: str, state: State) -> None:
    if state in HELD_BACK - REVERSIBLE:
        _buttons(stored, key, {"Reopen": _reopen(stored)})
    elif state in (State.APPROVED, State.WRITTEN):
        _change(stored, key, expanded=state is State.APPROVED)
        _buttons(stored, key, _approved(stored))
    elif state in OPEN:
        _under_way(stored, key)
        if state is State.APPLYING:
            _buttons(stored, key, {"Roll back": _roll_back(stored)})
    elif state in REVERSIBLE:
        _outcome(stored)
        _buttons(stored, key, _standing(stored))
    elif state in (State.REFUSED, State.TARGET_GONE):
        _outcome(stored)


def _proposed(stored: StoredRecommendation) -> dict[str, Action]:
    decision_service, digest = current_world().decision_service, _digest(stored)
    actions: dict[str, Action] = {
        "Approve": lambda given: decision_service.decide(
            digest, Decision.APPROVED, given.person, given.remark, given.shown
        ),
        "Reject": lambda given: decision_service.decide(
            digest, Decision.REJECTED, given.person, given.remark, reason=given.reason
        ),
        "Snooze a week": lambda given: decision_service.snooze(
            digest, decision_service.clock() + _SNOOZE, given.person, given.remark
        ),
    }
    if decision_service.can_apply(stored.recommendation):
        actions["Approve and apply"] = lambda given: decision_service.approve_and_apply(
            digest, given.person, given.remark, given.shown
        )
    return actions


def _approved(stored: StoredRecommendation) -> dict[str, Action]:
    decision_service, digest = current_world().decision_service, _digest(stored)
    if decision_service.can_apply(stored.recommendation):
        return {"Apply": lambda given: decision_service.apply(digest, given.person)}
    if stored.state == State.WRITTEN or not _has_change_text(stored):
        return {}
    return {
        "Write the change file": lambda given: decision_service.write_change(digest, given.person)
    }


def _standing(stored: StoredRecommendation) -> dict[str, Action]:
    decision_service, digest = current_world().decision_service, _digest(stored)
    actions: dict[str, Action] = {}
    if State(stored.state) in HELD_BACK:
        actions["Reopen"] = _reopen(stored)
    if decision_service.can_apply(stored.recommendation) and not stored.recommendation.cancels_job:
        word = "Undo the rollback" if stored.state == State.ROLLED_BACK else "Roll back"
        actions[word] = _roll_back(stored)
    if State(stored.state) in STANDING - {State.KEPT}:
        actions["Keep"] = lambda given: decision_service.decide(digest, Decision.KEPT, given.person)
    return actions


def _reopen(stored: StoredRecommendation) -> Action:
    decision_service, digest = current_world().decision_service, _digest(stored)
    return lambda given: decision_service.reopen(digest, given.person, given.remark)


def _roll_back(stored: StoredRecommendation) -> Action:
    decision_service, again = current_world().decision_service, stored.state == State.ROLLED_BACK
    return lambda given: decision_service.roll_back(_digest(stored), given.person, again=again)


def _buttons(
    stored: StoredRecommendation, key: str, actions: dict[str, Action], *, remarks: bool = False
) -> None:
    """Show a button per action, or why the person may not decide."""
    decision_service = current_world().decision_service
    access = decision_service.settings().access
    person = signed_in(access)
    if person is None or not actions:
        return
    why_not = decision_service.why_not(person, stored.recommendation, approving=remarks)
    if why_not:
        st.caption(plain(why_not))
        return
    name, comment, reason = st.columns([1, 2, 1])
    if access.mode == "local":
        with name:
            local_name(f"{key}-by")
    if remarks:
        comment.text_input("Comment", key=f"{key}-comment")
        reason.selectbox(
            "Reason, when rejected",
            list(DismissalReason),
            index=None,
            key=f"{key}-reason",
            format_func=lambda chosen: chosen.replace("-", " "),
            placeholder="none given",
        )
    if decision_service.settings().apply_simulated.enabled and decision_service.can_apply(
        stored.recommendation
    ):
        st.caption("Applied to the simulated cluster: no real job is touched.")
    with st.container(horizontal=True):
        for label, action in actions.items():
            st.button(
                label, key=f"{key}-{label}", on_click=_act, args=(key, action), type="secondary"
            )


def _act(key: str, action: Action) -> None:
    """Run in the callback of the click: write first, draw later."""
    given = _given(key)
    if given is None:
        return
    try:
        action(given)
    except TrimtabError as error:
        st.session_state[f"{key}-refused"] = str(error)
        return
    remember_name(given.person.name)
    st.session_state[f"{key}-acted"] = True


def _given(key: str) -> Given | None:
    """Read what the click was made with."""
    held = st.session_state
    person = acting(current_world().decision_service.settings().access, f"{key}-by")
    if person is None:
        return None
    preview: Preview | None = held.get(f"{key}-preview")
    reason = held.get(f"{key}-reason")
    return Given(
        person=person,
        remark=str(held.get(f"{key}-comment", "")),
        shown=preview.change.digest if preview else "",
        reason=None if reason is None else DismissalReason(reason),
    )


def _change(stored: StoredRecommendation, key: str, *, expanded: bool = False) -> None:
    """Show the exact change: from a fresh look at the target, or the text of the change file."""
    decision_service, digest = current_world().decision_service, _digest(stored)
    person = signed_in(decision_service.settings().access)
    proposed = stored.state == State.PROPOSED
    if not decision_service.can_apply(stored.recommendation):
        if not proposed:
            with st.expander("Change", expanded=expanded):
                _show_text(digest)
        return
    if person is None or decision_service.why_not(
        person, stored.recommendation, approving=proposed
    ):
        return
    with st.expander("Change", key=f"{key}-change", expanded=expanded):
        st.button(
            "Look at the target",
            key=f"{key}-look",
            on_click=_look,
            args=(key, digest),
            help="Asks the cluster and works out the steps. An approval is then bound to them.",
        )
        preview: Preview | None = st.session_state.get(f"{key}-preview")
        if preview is not None:
            _show_preview(preview)


def _look(key: str, digest: str) -> None:
    st.session_state.pop(f"{key}-preview", None)
    decision_service = current_world().decision_service
    person = acting(decision_service.settings().access, f"{key}-by")
    if person is None:
        return
    try:
        st.session_state[f"{key}-preview"] = decision_service.preview(digest, person)
    except TrimtabError as error:
        st.session_state[f"{key}-refused"] = str(error)


def _show_preview(preview: Preview) -> None:
    change, said = preview.change, preview.rehearsal
    st.code("\n".join(step.text for step in change.steps), language=None)
    st.dataframe(
        {
            "field": [step.field for step in change.steps],
            "now": [step.before or "" for step in change.steps],
            "then": [step.after or "" for step in change.steps],
        },
        hide_index=True,
    )
    for note in (*change.notes, *said.warnings):
        st.caption(plain(note))
    for refusal in said.refusals:
        st.error(plain(refusal))
    for field, intended, answered in said.differences:
        st.error(plain(f"{field}: {intended} is meant, the target would store {answered}"))


def _has_change_text(stored: StoredRecommendation) -> bool:
    try:
        current_world().decision_service.change_text(_digest(stored))
    except TrimtabError:
        return False
    return True


def _show_text(digest: str) -> None:
    try:
        st.code(current_world().decision_service.change_text(digest), language=None)
    except TrimtabError as error:
        st.warning(plain(str(error)))


def _under_way(stored: StoredRecommendation, key: str) -> None:
    """Show what the worker does, a second apart, and draw the page anew when it is done."""
    live = st.fragment(_live, run_every=_TICK_SECONDS)
    live(_digest(stored), stored.state)


def _live(digest: str, drawn: str) -> None:
    reader = current_world().store.reader
    if reader.recommendation(digest, now=current_world().clock()).state != drawn:
        st.rerun()
    status = reader.commands(digest)[-1]
    rows = reader.journal(command_id=status.command.command_id)
    doing = f"{rows[-1].event}: {rows[-1].detail}" if rows else "waiting for the worker"
    st.progress(min(0.9, 0.1 + 0.15 * len(rows)), text=plain(status.held or doing))


def _outcome(stored: StoredRecommendation) -> None:
    """Say what came of the change, and what it was measured to bring."""
    rows = current_world().store.reader.journal(digest=_digest(stored))
    told = [row for row in rows if row.event in set(State) and row.detail]
    if told:
        st.caption(plain(f"{told[-1].at:%Y-%m-%d %H:%M} UTC: {told[-1].detail}"))
    measured = [row for row in rows if row.event in (State.VERIFIED, State.FELL_SHORT)]
    if measured:
        one = from_json(Measurement, measured[-1].record)
        st.caption(
            plain(
                f"Measured over {one.hours:g} h: {range_text(one.realised_gpu_hours)} of "
                f"{range_text(one.predicted_gpu_hours)} promised, "
                f"{range_text(one.realised_energy_kwh)} of "
                f"{range_text(one.predicted_energy_kwh)} promised.{_memory_text(one)}"
            )
        )


def _memory_text(one: Measurement) -> str:
    if one.memory_peak_mib is None or one.memory_limit_mib is None:
        return ""
    peak, limit = one.memory_peak_mib / MIB_PER_GIB, one.memory_limit_mib / MIB_PER_GIB
    return f" Memory reached {peak:.1f} of the {limit:.1f} GiB that a program can have."


def _digest(stored: StoredRecommendation) -> str:
    return stored.recommendation.digest


def _last_refusal(key: str) -> None:
    refused = st.session_state.pop(f"{key}-refused", "")
    if refused:
        st.error(plain(refused))
