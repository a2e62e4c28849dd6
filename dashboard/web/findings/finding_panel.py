"""The open finding: what can be decided, why, what would change exactly, and what became of it."""

from typing import Literal

import pandas as pd
import streamlit as st

from dashboard.apply.worker.guards import taken_gpus
from dashboard.common.figures import range_text
from dashboard.common.replay_clock import NOT_APPLIED
from dashboard.resources.rows import record_of
from dashboard.web.access.identity import signed_in
from dashboard.web.access.session import current_world
from dashboard.web.findings.actions import VERBS, offered, why_refused
from dashboard.web.findings.change_panel import change_panel
from dashboard.web.findings.decision_dialog import verb_button
from dashboard.web.findings.evidence import evidence_rows, show_demand
from dashboard.web.findings.finding_rows import InboxRow, interrupts
from dashboard.web.findings.outcome import show_outcome, under_way
from dashboard.web.frame.page import plain, table, tense, way
from data.base.counts import count_text
from data.records.lifecycle import OPEN, State
from data.records.recommendations import Recommendation
from data.store import StoredRecommendation

_NOTICEABLE_HOURS = 0.01
_FORWARD = ("approve-and-apply", "approve", "apply", "write")
_Colour = Literal["violet", "green", "blue", "red", "gray"]
_COLOURS: dict[str, _Colour] = {
    **dict.fromkeys(("proposed", "open"), "violet"),
    **dict.fromkeys(("approved", "applied", "verified", "kept"), "green"),
    **dict.fromkeys(("written", "applying", "rolling-back"), "blue"),
    **dict.fromkeys(("rejected", "failing", "fell-short", "refused", "unknown"), "red"),
}


def finding_panel(row: InboxRow) -> None:
    """Show one finding with its buttons, its reason, its change and its record."""
    stored = row.status.revision
    if stored is None:
        return
    revision = row.said
    with st.container(border=True, key=f"finding-{row.reference}"):
        with st.container(
            horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
        ):
            st.subheader(
                f"{row.reference} · {revision.action.spec.title} · {plain(revision.target)}",
                anchor=False,
                width="content",
            )
            with st.container(horizontal=True, vertical_alignment="center", width="content"):
                if revision.job_id:
                    way("job", "Open the job", id=revision.job_id)
                st.badge(plain(row.state), color=_COLOURS.get(stored.state, "gray"))
        st.markdown(f"{plain(revision.now.describe())} → **{plain(revision.summary)}**")
        _decisions(stored)
        if stored.state in OPEN:
            under_way(stored)
        show_outcome(stored)
        st.markdown(plain(worth_text(revision)))
        st.caption(plain(blast_text(row)))
        _why_and_change(stored)
        _details(stored, row.number)


def _decisions(stored: StoredRecommendation) -> None:
    """Show what may be done, the first button as the main one, and why the rest may not."""
    world = current_world()
    service = world.decision_service
    if world.reader.recording() is not None:
        if stored.state == State.PROPOSED:
            st.caption(NOT_APPLIED)
        return
    person = signed_in(service.settings().access)
    names = offered(service, stored)
    if person is None or not names:
        return
    refusals = {name: why_refused(service, VERBS[name], stored, person) for name in names}
    allowed = [name for name in names if not refusals[name]]
    digest = stored.recommendation.digest
    with st.container(horizontal=True):
        for place, name in enumerate(allowed):
            verb_button(
                name,
                ((stored.reference, stored.recommendation),),
                key=f"{name}-{digest[:12]}",
                primary=place == 0 and name in _FORWARD,
            )
    for why in dict.fromkeys(filter(None, refusals.values())):
        st.caption(plain(why))
    if service.settings().changes_simulation and service.can_apply(stored.recommendation):
        st.caption("Applied to the simulated cluster: no real job is touched.")


def worth_text(revision: Recommendation) -> str:
    """Return the savings of a change over its horizon, with risk, confidence and time."""
    savings = revision.savings
    parts = [
        range_text(part)
        for part in (savings.cost, savings.gpu_hours, savings.energy_kwh, savings.emissions_kgco2e)
        if part is not None
    ]
    market = savings.market_emissions_kgco2e
    if market is not None:
        parts.append(f"{range_text(market)} market-based")
    saves = tense("Saves", "Would have saved")
    amount = ", ".join(parts) if parts else "an unknown amount"
    effect = effect_text(revision)
    return f"{saves} {amount} in {savings.horizon_hours:.4g} h." + (f" {effect}" if effect else "")


def blast_text(row: InboxRow) -> str:
    """Return the reach of the change, whether it can be undone, and how sure it is."""
    item = row.said
    gpu_count = taken_gpus(item)
    moved = dict(item.evidence.factors).get("starts again elsewhere", "")
    touched = "1 job" if item.job_id else "no job"
    if moved:
        touched = f"jobs on the node, which start again elsewhere ({moved})"
    gpus = f", {gpu_count} of its {count_text(item.now.gpu_count, 'GPU')}" if gpu_count else ""
    stops = "its work is interrupted" if interrupts(item) else "its work goes on"
    stops = "their work is interrupted" if moved else stops
    undone = "cannot be undone" if item.cancels_job else "can be rolled back"
    if item.is_advice:
        stops, undone = "it changes nothing by itself", "a person does it by hand"
    where = f" of namespace {item.namespace}" if item.namespace else ""
    return (
        f"Risk {item.risk}, confidence {item.confidence}. Touches {touched}{where}{gpus}; {stops}; "
        f"{undone}. {tense('Expires', 'Would have expired on')} {item.expires_at:%Y-%m-%d %H:%M} "
        f"UTC."
    )


def effect_text(recommendation: Recommendation) -> str:
    """Return when a change holds, what making it takes, and by how much work is done later."""
    sentences = []
    if recommendation.transition is not None and recommendation.transition.seconds.high > 0:
        seconds = recommendation.transition.seconds
        parts = ", ".join(what for what, _seconds in recommendation.transition.parts)
        sentences.append(
            f"The change takes {seconds.central:.0f} ({seconds.low:.0f}–{seconds.high:.0f}) s "
            f"({parts}); it is counted in the savings."
        )
    if recommendation.transition is not None and recommendation.transition.queue:
        sentences.append(f"Expected wait in the queue {recommendation.transition.queue}.")
    if recommendation.delay_hours is not None:
        later = recommendation.delay_hours
        hours = [later.central, later.low, later.high]
        word = "later"
        if later.high < 0:
            hours, word = [-later.central, -later.high, -later.low], "earlier"
        sentences.append(
            f"Its work may be done {hours[0]:.2g} ({hours[1]:.2g}–{hours[2]:.2g}) h {word}."
            if abs(later.high) >= _NOTICEABLE_HOURS
            else "Its work is done as early as now."
        )
    return " ".join(sentences)


def _why_and_change(stored: StoredRecommendation) -> None:
    revision = stored.recommendation
    why, change = st.columns([3, 2])
    with why:
        st.markdown("**Why**")
        st.write(plain(revision.why))
        if revision.job_id:
            show_demand(revision, "open")
    with change:
        st.markdown("**What changes**")
        change_panel(stored)


def _details(stored: StoredRecommendation, number: int) -> None:
    """Keep the evidence and the record of the finding folded."""
    revision = stored.recommendation
    evidence = st.expander("Evidence", key="open-evidence", on_change="rerun")
    if evidence.open:
        rows = evidence_rows(revision)
        with evidence:
            st.dataframe({"what": list(rows), "evidence": list(rows.values())}, hide_index=True)
            st.caption(f"{revision.recommendation_id} · digest {revision.digest}")
    record = st.expander("Record", key="open-record", on_change="rerun")
    if record.open:
        entries = record_of(current_world().store.reader, number)
        with record:
            if not entries:
                st.write("Nothing has been decided about it yet.")
                return
            events = [
                {"at": row.at, "who": row.by, "what": row.event, "detail": row.detail}
                for row in entries
            ]
            table(pd.DataFrame(events), "record", exported=False)
