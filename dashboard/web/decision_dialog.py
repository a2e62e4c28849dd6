"""The one dialog in which people decide, about one finding or many.

What is asked is kept in the session until it is answered, with the digests of what was shown: a
redraw of the page neither closes the dialog nor changes what it is about. A press is a command
written to the store within its callback, before the page is drawn; that the callback runs whatever
else is pressed is seen to by `kept_clicks`.
"""

from dataclasses import dataclass

import streamlit as st

from dashboard.decision_service import Preview
from dashboard.figure_text import count_text, range_text
from dashboard.savings import sum_of
from dashboard.web.identity import acting, known_name, remember_name, signed_in
from dashboard.web.inbox_rows import HOURS_A_DAY, interrupts
from dashboard.web.page import plain
from dashboard.web.session import current_world
from dashboard.web.verbs import (
    SNOOZES,
    VERBS,
    Given,
    Verb,
    needs_confirmation,
    needs_tick,
    why_refused,
)
from data.errors import TrimtabError
from data.records.commands import Person
from data.records.decisions import Range
from data.records.findings import DismissalReason
from data.store import StoredRecommendation

_ASKED, _TOLD = "decision-asked", "decision-told"
_NAME, _COMMENT, _REASON = "decision-name", "decision-comment", "decision-reason"
_SNOOZE, _TICK = "decision-snooze", "decision-tick"
_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAsked:
    """What a person is asked: a verb, and the digests of what was shown."""

    verb: str
    digests: tuple[str, ...]


def preview_key(digest: str) -> str:
    """Return where the session keeps the change that a person was shown for a recommendation."""
    return f"preview-{digest}"


def press(verb: str, digests: tuple[str, ...]) -> None:
    """Hear the press of a button: act at once where nothing has to be asked, else ask."""
    world = current_world()
    st.session_state.pop(_TOLD, None)
    asked = DecisionAsked(verb=verb, digests=digests)
    local = world.decision_service.settings().access.mode == "local"
    nameless = local and not known_name()
    if nameless or len(digests) > 1 or _confirms(asked):
        st.session_state[_ASKED] = asked
        return
    _act(asked)


def _confirms(asked: DecisionAsked) -> bool:
    service = current_world().decision_service
    try:
        said = [service.stored(digest).recommendation for digest in asked.digests]
    except TrimtabError:
        return True
    return any(needs_confirmation(asked.verb, proposal) for proposal in said)


def decision_dialog() -> None:
    """Draw the dialog while something is asked, and say what was refused of what was asked last."""
    asked: DecisionAsked | None = st.session_state.get(_ASKED)
    if asked is None:
        for refusal in st.session_state.get(_TOLD, ()):
            st.error(plain(refusal))
        return
    count = "" if len(asked.digests) == 1 else f" {count_text(len(asked.digests), 'finding')}"
    st.dialog(f"{VERBS[asked.verb].label}{count}?", width="medium", on_dismiss=_forget)(_ask)(asked)


def _forget() -> None:
    st.session_state.pop(_ASKED, None)
    st.session_state.pop(_TOLD, None)


def _ask(asked: DecisionAsked) -> None:
    """Show what will happen and what is refused, and ask for what the verb needs."""
    if st.session_state.get(_ASKED) != asked:
        st.rerun()
    service, verb = current_world().decision_service, VERBS[asked.verb]
    access = service.settings().access
    person = signed_in(access)
    if person is None:
        st.error("Sign in to decide.")
        return
    allowed, refused = _parted(asked, person)
    _summary(verb, allowed, refused)
    if access.mode == "local" and not known_name():
        st.text_input("Your name", key=_NAME, placeholder="kept until this tab is closed")
    _fields(verb)
    ticked = True
    if needs_tick(asked.verb, [stored.recommendation for stored in allowed]):
        ticked = st.checkbox("I have read it: the work of the job may be interrupted.", key=_TICK)
    for refusal in st.session_state.get(_TOLD, ()):
        st.error(plain(refusal))
    about = "-".join(digest[:12] for digest in asked.digests[:_NAMED])
    label = verb.label if len(asked.digests) == 1 else f"{verb.label} {len(allowed)}"
    with st.container(horizontal=True):
        st.button(
            f"Confirm: {label[0].lower()}{label[1:]}",
            type="primary",
            key=f"confirm-{asked.verb}-{about}",
            on_click=_act,
            args=(DecisionAsked(verb=asked.verb, digests=tuple(map(_digest, allowed))),),
            disabled=not allowed or not ticked,
        )
        st.button("Cancel", key="decision-cancel", on_click=_forget)


def _digest(stored: StoredRecommendation) -> str:
    return stored.recommendation.digest


def _parted(
    asked: DecisionAsked, person: Person
) -> tuple[list[StoredRecommendation], list[tuple[str, str]]]:
    """Return what the verb can be done with, and (finding, why not) of the others."""
    service, verb = current_world().decision_service, VERBS[asked.verb]
    allowed, refused = [], []
    for digest in asked.digests:
        try:
            stored = service.stored(digest)
        except TrimtabError as error:
            refused.append((digest[:12], str(error)))
            continue
        why = why_refused(service, verb, stored, person)
        if why:
            refused.append((stored.reference, why))
        else:
            allowed.append(stored)
    return allowed, refused


def _summary(
    verb: Verb, allowed: list[StoredRecommendation], refused: list[tuple[str, str]]
) -> None:
    """Say what will become of what: in all, by risk, and one line a finding."""
    found = [stored.recommendation for stored in allowed]
    if found:
        money = _sum([said.savings.cost for said in found], found[0].savings.horizon_hours)
        energy = _sum([said.savings.energy_kwh for said in found], found[0].savings.horizon_hours)
        risks = ", ".join(
            f"{count} {risk}"
            for risk in ("high", "medium", "low")
            if (count := sum(said.risk == risk for said in found))
        )
        st.markdown(
            plain(
                f"{count_text(len(found), 'change')} will be {verb.done}. "
                f"{'It saves' if len(found) == 1 else 'Together they save'} {money} and {energy} "
                f"a day. Risk: {risks}."
            )
        )
    for stored in allowed[:_NAMED]:
        said = stored.recommendation
        stops = " · its work is interrupted" if verb.changes and interrupts(said) else ""
        st.markdown(
            plain(
                f"{stored.reference} {said.target}: {said.now.describe()} → {said.summary}{stops}"
            )
        )
    if len(allowed) > _NAMED:
        st.caption(f"and {len(allowed) - _NAMED} more")
    for name, why in refused[:_NAMED]:
        st.warning(plain(f"{name} is refused: {why}."))
    if len(refused) > _NAMED:
        st.warning(f"and {len(refused) - _NAMED} more are refused")


def _sum(parts: list[Range | None], horizon_hours: float) -> str:
    known = [part for part in parts if part is not None]
    if not known or horizon_hours <= 0:
        return "an unknown amount"
    lacking = "" if len(known) == len(parts) else f" (unknown of {len(parts) - len(known)})"
    whole = sum_of([part.times(HOURS_A_DAY / horizon_hours) for part in known])
    return f"{range_text(whole)}{lacking}"


def _fields(verb: Verb) -> None:
    if "snooze" in verb.asks:
        lengths = list(SNOOZES)
        st.radio("For", lengths, lengths.index("a week"), key=_SNOOZE, horizontal=True)
    if "reason" in verb.asks:
        st.selectbox(
            "Reason",
            list(DismissalReason),
            index=None,
            key=_REASON,
            format_func=lambda chosen: chosen.replace("-", " "),
            placeholder="none given",
        )
    if "comment" in verb.asks:
        st.text_input("Comment", key=_COMMENT)


def _act(asked: DecisionAsked) -> None:
    """Run in the callback of the press: write first, draw later. Nothing refused ends the rest."""
    held, service = st.session_state, current_world().decision_service
    person = acting(service.settings().access, _NAME)
    if person is None:
        return
    refusals, done = [], 0
    for digest in asked.digests:
        preview: Preview | None = held.get(preview_key(digest))
        reason = held.get(_REASON)
        given = Given(
            person=person,
            remark=str(held.get(_COMMENT, "")),
            shown=preview.change.digest if preview else "",
            reason=None if reason is None else DismissalReason(reason),
            snooze=SNOOZES[str(held.get(_SNOOZE) or "a week")],
        )
        name = digest[:12]
        try:
            stored = service.stored(digest)
            name = stored.reference
            VERBS[asked.verb].act(service, stored, given)
        except TrimtabError as error:
            refusals.append(f"{name}: {error}")
            continue
        done += 1
    held[_TOLD] = tuple(refusals)
    if done:
        remember_name(person.name)
        held.pop(_ASKED, None)
