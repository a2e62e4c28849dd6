"""The exact change: removed and added lines, and the steps of a fresh look."""

import streamlit as st

from dashboard.decisions.decision_table import WishKind
from dashboard.decisions.service import Preview
from dashboard.web.access.identity import signed_in
from dashboard.web.access.session import current_world
from dashboard.web.findings.actions import why_refused
from dashboard.web.findings.decision_dialog import preview_key
from dashboard.web.frame.action_button import action_button
from dashboard.web.frame.page import plain
from data.base.errors import TrimtabError
from data.records.lifecycle import State
from data.records.recommendations import Recommendation
from data.store import StoredRecommendation

_COLOURS = {"-": "red", "+": "green"}
_LOOKED_AT = frozenset({State.PROPOSED, State.APPROVED, State.WRITTEN})


def change_lines(revision: Recommendation) -> list[str]:
    """Return the change of configuration as the lines of a diff, one side each."""
    now, then = revision.now.describe(), revision.proposed.describe()
    lines = [f"- {now}"] if now else []
    lines += [f"+ {then}"] if then and then != now else []
    lines += [f"+ {revision.change}"] if revision.change and revision.change != then else []
    return lines + [f"+ {name} = {value}" for name, value in revision.details]


def step_lines(preview: Preview) -> list[str]:
    """Return the steps as the lines of a diff."""
    lines = []
    for step in preview.change.steps:
        lines += step.text.splitlines()
        lines += [f"- {step.field}: {step.before}"] if step.before is not None else []
        lines += [f"+ {step.field}: {step.after}"] if step.after is not None else []
    return lines


def diff_text(lines: list[str]) -> str:
    """Return a diff as Markdown: removed on red, added on green, in the page's own dark text.

    The colours that Streamlit gives to a diff as code are too pale to read on a light page. No
    value begins a line of its own.
    """
    parts = []
    for line in lines:
        text, colour = plain(" ".join(line.split())), _COLOURS.get(line[:1])
        parts.append(f":{colour}-background[{text}]" if colour else f"**{text}**")
    return "  \n".join(parts)


def change_panel(stored: StoredRecommendation) -> None:
    """Show the change: from a fresh look at the target, or as the change file has it."""
    revision, service = stored.recommendation, current_world().decision_service
    preview: Preview | None = st.session_state.get(preview_key(revision.digest))
    lines = step_lines(preview) if preview else change_lines(revision)
    st.markdown(diff_text(lines))
    if preview is not None:
        _said_by_target(preview)
    if not service.can_apply(revision):
        _file_text(revision)
        return
    person = signed_in(service.settings().access)
    if person is None or stored.state not in _LOOKED_AT:
        return
    wish = WishKind.APPROVE if stored.state == State.PROPOSED else WishKind.APPLY
    if why_refused(service, wish, stored, person):
        return
    action_button(
        "Look at the target",
        key=f"look-{revision.digest[:12]}",
        then=lambda _answers: _look(revision.digest),
        hint="Asks the cluster and works out the steps. An approval is then bound to them.",
    )
    refused = st.session_state.pop(f"refused-{revision.digest}", "")
    if refused:
        st.error(plain(refused))


def _look(digest: str) -> None:
    st.session_state.pop(preview_key(digest), None)
    service = current_world().decision_service
    person = signed_in(service.settings().access)
    if person is None:
        return
    try:
        st.session_state[preview_key(digest)] = service.preview(digest, person)
    except TrimtabError as error:
        st.session_state[f"refused-{digest}"] = str(error)


def _said_by_target(preview: Preview) -> None:
    change, reply = preview.change, preview.rehearsal
    for note in (*change.notes, *reply.warnings):
        st.caption(plain(note))
    for refusal in reply.refusals:
        st.error(plain(refusal))
    for field, intended, answered in reply.differences:
        st.error(plain(f"{field}: {intended} is meant, the target would store {answered}"))


def _file_text(revision: Recommendation) -> None:
    """Show the text of the change file, or why there is none."""
    try:
        text = current_world().decision_service.change_text(revision.digest)
    except TrimtabError as error:
        st.warning(plain(str(error)))
        return
    with st.expander("The change file"):
        st.code(text, language=None, wrap_lines=True)
