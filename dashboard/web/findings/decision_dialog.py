"""The one dialog in which people decide, about one finding or many.

What is asked is kept in the session until it is answered, with the digests of what was shown: a
redraw of the page neither closes the dialog nor changes what it is about. The button posts to the
HTTP API, which asks for every right again.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

import streamlit as st

from dashboard.accounting.savings.ledger import sum_of
from dashboard.accounting.savings.shown_money import a_day, as_shown
from dashboard.common.escaping import markdown
from dashboard.common.figures import range_text
from dashboard.decisions.decision_table import DECISIONS, DecisionRow, WishKind
from dashboard.decisions.service import Preview
from dashboard.web.access.identity import current_world, known_name, remember_name, signed_in
from dashboard.web.findings.actions import (
    ADVICE_LABELS,
    SNOOZES,
    needs_confirmation,
    needs_tick,
    refusal_reason,
)
from dashboard.web.findings.finding_rows import interrupts
from dashboard.web.frame.action_button import (
    FormField,
    Post,
    PressOutcome,
    action_button,
    name_field,
)
from dashboard.web.frame.page import money_note
from data.base.counts import count_text
from data.base.errors import TrimtabError, sentence
from data.records.commands import Person
from data.records.findings import DismissalReason
from data.records.recommendations import Range, Recommendation, in_named_order
from data.store import StoredRecommendation

_ASKED, _TOLD = "decision-asked", "decision-told"
_NAMED, _LIST_PIXELS = 8, 320
_TICK = (
    FormField(
        name="read", label="I have read it: the work of the job may be interrupted.", kind="tick"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionQuestion:
    """Question to a person: a decision, the digests of what was shown, and when it was.

    `advice` are the words on the button of one piece of advice, '' of all else.
    """

    wish: WishKind
    digests: tuple[str, ...]
    at: datetime
    advice: str = ""

    @property
    def label(self) -> str:
        """Its words for people."""
        return self.advice or DECISIONS[self.wish].label


def preview_key(digest: str) -> str:
    """Return the session's key of the change that a person was shown for a recommendation."""
    return f"preview-{digest}"


def decision_button(
    wish: WishKind,
    targets: tuple[tuple[str, Recommendation], ...],
    *,
    key: str,
    label: str = "",
    advice: str = "",
    primary: bool = False,
    wide: bool = False,
) -> None:
    """Draw the button of a decision: it posts at once where nothing has to be asked, else it asks.

    `targets` are the references and the findings that it is about.
    """
    digests = tuple(revision.digest for _reference, revision in targets)
    draw = partial(
        action_button, label or advice or DECISIONS[wish].label, key=key, primary=primary, wide=wide
    )
    is_done = advice == ADVICE_LABELS[WishKind.REJECT]
    asks = not is_done and (len(targets) != 1 or needs_confirmation(wish, targets[0][1]))
    if name_field() or asks:
        draw(then=lambda _answers: _open(wish, digests, advice))
    else:
        draw(then=_hear, posts=[_post(wish, *targets[0], done=is_done)], by=known_name())


def _open(wish: WishKind, digests: tuple[str, ...], advice: str) -> None:
    now = current_world().decision_service.clock()
    st.session_state.pop(_TOLD, None)
    st.session_state[_ASKED] = DecisionQuestion(wish=wish, digests=digests, at=now, advice=advice)


def _post(wish: WishKind, reference: str, revision: Recommendation, *, done: bool) -> Post:
    """Return the request to the API: for the change that was shown, where one was."""
    path = f"api/v1/findings/{revision.digest}/decisions"
    preview: Preview | None = st.session_state.get(preview_key(revision.digest))
    further = {}
    if preview and DECISIONS[wish].approves:
        further = {"change_digest": preview.change.digest}
    if done:
        further = {"reason": str(DismissalReason.DONE)}
    return Post(name=reference, path=path, body={"decision": str(wish)} | further)


def _hear(answers: PressOutcome) -> None:
    """Take in what came of a press: the dialog closes unless all of it was refused."""
    if answers.done:
        remember_name(answers.by)
        st.session_state.pop(_ASKED, None)
    st.session_state[_TOLD] = answers.refused


def decision_dialog() -> None:
    """Draw the dialog while something is asked, and say what was refused of what was asked last."""
    query: DecisionQuestion | None = st.session_state.get(_ASKED)
    if query is None:
        for refusal in st.session_state.get(_TOLD, ()):
            st.error(markdown(refusal))
        return
    count = "" if len(query.digests) == 1 else f" {count_text(len(query.digests), 'finding')}"
    st.dialog(f"{query.label}{count}?", width="medium", on_dismiss=_forget)(_ask)(query)


def _forget() -> None:
    st.session_state.pop(_ASKED, None)
    st.session_state.pop(_TOLD, None)


def _ask(query: DecisionQuestion) -> None:
    """Show what will happen and what is refused, and ask for what the decision needs."""
    if st.session_state.get(_ASKED) != query:
        st.rerun()
    service, row = current_world().decision_service, DECISIONS[query.wish]
    access = service.settings().access
    person = signed_in(access)
    if person is None:
        st.error("Sign in to decide.")
        return
    allowed, refused = _parted(query, person)
    _summary(row, allowed, refused)
    for refusal in st.session_state.get(_TOLD, ()):
        st.error(markdown(refusal))
    revisions = [stored.recommendation for stored in allowed]
    ticks = _TICK if needs_tick(query.wish, revisions) else ()
    label = query.label if len(query.digests) == 1 else f"{query.label} {len(allowed)}"
    is_done = query.advice == ADVICE_LABELS[WishKind.REJECT]
    about = "-".join(digest[:12] for digest in query.digests[:_NAMED])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        action_button(
            f"Confirm: {label[0].lower()}{label[1:]}",
            # Another one for other findings: no tick and no reason is left over from the last.
            key=f"confirm-{query.wish}-{about}",
            then=_hear,
            posts=[
                _post(query.wish, stored.reference, stored.recommendation, done=is_done)
                for stored in allowed
            ],
            fields=(*_fields(row, query.at, reason=not is_done), *ticks),
            by=known_name(),
            primary=True,
            disabled=not allowed,
            wide=True,
        )
        action_button("Cancel", key="decision-cancel", then=lambda _answers: _forget())


def _parted(
    query: DecisionQuestion, person: Person
) -> tuple[list[StoredRecommendation], list[tuple[str, str]]]:
    """Return the findings that can be decided on, and (finding, why not) of the others."""
    service = current_world().decision_service
    allowed, refused = [], []
    for digest in query.digests:
        try:
            stored = service.stored(digest)
        except TrimtabError as error:
            refused.append((digest[:12], str(error)))
            continue
        why = refusal_reason(service, query.wish, stored, person)
        if why:
            refused.append((stored.reference, why))
        else:
            allowed.append(stored)
    order = in_named_order([stored.recommendation for stored in allowed])
    return sorted(allowed, key=lambda stored: order.index(stored.recommendation)), refused


def _summary(
    row: DecisionRow, allowed: list[StoredRecommendation], refused: list[tuple[str, str]]
) -> None:
    """Show the result to expect: in all, by risk, and one line a finding."""
    every = [as_shown(entry.recommendation, current_world().settings.settings) for entry in allowed]
    items = [item for item in every if not item.is_advice]
    back = row.wish is WishKind.ROLL_BACK
    verbs = ("It gives up", "Together they give up") if back else ("It saves", "Together they save")
    if items:
        money = _sum([a_day(item.savings.cost, item) for item in items]) + money_note()
        energy = _sum([a_day(item.savings.energy_kwh, item) for item in items])
        risks = ", ".join(
            f"{count} {risk}"
            for risk in ("high", "medium", "low")
            if (count := sum(item.risk == risk for item in items))
        )
        st.markdown(
            markdown(
                f"{count_text(len(items), 'change')} will be {row.done}. "
                f"{verbs[len(items) > 1]} {money} and {energy} a day. Risk: {risks}."
            )
        )
    # Whoever confirms has seen each name: a long list scrolls.
    many = len(allowed) + len(refused) > _NAMED
    with st.container(height=_LIST_PIXELS if many else "content", border=many):
        for stored in allowed:
            item = stored.recommendation
            stops = " · its work is interrupted" if row.changes and interrupts(item) else ""
            before, after = item.now.describe(), item.summary
            if back:
                before, after = item.proposed.describe() or after, before
            st.markdown(markdown(f"{stored.reference} {item.target}: {before} → {after}{stops}"))
        for name, why in refused:
            st.warning(markdown(f"{name} is refused: {sentence(why)}"))


def _sum(parts: list[Range | None]) -> str:
    amounts = [part for part in parts if part is not None]
    if not amounts:
        return "an unknown amount"
    note = "" if len(amounts) == len(parts) else f" (unknown of {len(parts) - len(amounts)})"
    return f"{range_text(sum_of(amounts))}{note}"


def _fields(row: DecisionRow, at: datetime, *, reason: bool) -> list[FormField]:
    """Return the fields to ask for: the name where nobody knows it, and what a decision needs."""
    fields = list(name_field())
    if "until" in row.fields:
        ends = {title: (at + length).isoformat() for title, length in SNOOZES.items()}
        options = tuple((end, title) for title, end in ends.items())
        fields.append(
            FormField(
                name="until", label="For", kind="radio", options=options, choice=ends["a week"]
            )
        )
    if reason and "reason" in row.fields:
        reasons = tuple((str(reason), reason.replace("-", " ")) for reason in DismissalReason)
        none = ("", "none given")
        fields.append(
            FormField(name="reason", label="Reason", kind="select", options=(none, *reasons))
        )
    if "comment" in row.fields:
        fields.append(FormField(name="comment", label="Comment"))
    return fields
