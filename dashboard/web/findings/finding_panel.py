"""The open finding: what can be decided, why, what would change exactly, and what became of it."""

from typing import Literal

import pandas as pd
import streamlit as st

from dashboard.apply.worker.guards import taken_gpus
from dashboard.charts.forecast_band import forecast_band
from dashboard.common.escaping import markdown
from dashboard.common.figures import range_text, samples_text
from dashboard.common.replay_clock import NOT_APPLIED
from dashboard.decisions.decision_table import WishKind
from dashboard.decisions.service import Preview
from dashboard.resources.rows import record_of
from dashboard.resources.whole_finding import advice_steps
from dashboard.web.access.identity import current_world, signed_in
from dashboard.web.findings.actions import ADVICE_LABELS, offered, refusal_reason
from dashboard.web.findings.decision_dialog import decision_button, preview_key
from dashboard.web.findings.finding_rows import InboxRow, interrupts
from dashboard.web.findings.outcome import show_outcome, under_way
from dashboard.web.frame.action_button import action_button
from dashboard.web.frame.page import UNKNOWN, chart, money_note, show_link, table, tense
from data.base.counts import count_text
from data.base.errors import TrimtabError
from data.base.units import MIB_PER_GIB
from data.records.actions import FOR_MEMORY
from data.records.forecasts import DemandForecast, Quantity
from data.records.lifecycle import OPEN, State
from data.records.recommendations import Recommendation
from data.store import StoredRecommendation

_NOTICEABLE_HOURS = 0.01
_STEPS_PIXELS = 320
_FORWARD_WISHES = (
    WishKind.APPROVE_AND_APPLY, WishKind.APPROVE, WishKind.APPLY, WishKind.WRITE
)  # fmt: skip
_Colour = Literal["violet", "green", "blue", "red", "gray"]
_COLOURS: dict[str, _Colour] = {
    **dict.fromkeys(("proposed", "open"), "violet"),
    **dict.fromkeys(("approved", "applied", "verified", "kept"), "green"),
    **dict.fromkeys(("written", "applying", "rolling-back"), "blue"),
    **dict.fromkeys(("rejected", "failing", "fell-short", "refused", "unknown"), "red"),
}
_COLOUR_BY_SIGN = {"-": "red", "+": "green"}
_PREVIEW_STATES = frozenset({State.PROPOSED, State.APPROVED, State.WRITTEN})


def finding_panel(row: InboxRow) -> None:
    """Show one finding with its buttons, its reason, its change and its record."""
    stored = row.status.revision
    if stored is None:
        return
    revision = row.revision
    with st.container(border=True, key=f"finding-{row.reference}"):
        with st.container(
            horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
        ):
            st.header(
                f"{row.reference} · {revision.action.spec.title} · {markdown(revision.target)}",
                anchor=False,
                width="content",
            )
            with st.container(horizontal=True, vertical_alignment="center", width="content"):
                if revision.job_id:
                    show_link("job", "Open the job", job=revision.job_id)
                st.badge(markdown(row.state), color=_COLOURS.get(stored.state, "gray"))
        if not revision.is_advice:
            now = markdown(revision.now.describe())
            st.markdown(f"{now} → **{markdown(revision.summary)}**")
        _decisions(stored)
        if stored.state in OPEN:
            under_way(stored)
        show_outcome(stored)
        if not revision.is_advice:
            st.markdown(markdown(worth_text(revision)))
        st.caption(markdown(blast_text(row)))
        if row.status.apply_first:
            st.caption(f"Apply {', '.join(row.status.apply_first)} first.")
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
    wishes = offered(service, stored)
    if person is None or not wishes:
        return
    refusals = {wish: refusal_reason(service, wish, stored, person) for wish in wishes}
    allowed = [wish for wish in wishes if not refusals[wish]]
    digest = stored.recommendation.digest
    with st.container(horizontal=True):
        for place, wish in enumerate(allowed):
            decision_button(
                wish,
                ((stored.reference, stored.recommendation),),
                key=f"{wish}-{digest[:12]}",
                advice=ADVICE_LABELS.get(wish, "") if stored.recommendation.is_advice else "",
                primary=place == 0 and (wish in _FORWARD_WISHES or stored.recommendation.is_advice),
            )
    for why in dict.fromkeys(filter(None, refusals.values())):
        st.caption(markdown(why))
    if service.settings().changes_simulation and service.can_apply(stored.recommendation):
        st.caption("Applied to the simulated cluster: no real job is touched.")


def worth_text(revision: Recommendation) -> str:
    """Return the savings of a change over its horizon, with a note on prices, and its effect."""
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
    over = f"in {savings.horizon_hours:.4g} h{money_note()}"
    return f"{saves} {amount} {over}. {effect_text(revision)}".rstrip()


def blast_text(row: InboxRow) -> str:
    """Return the reach of the change, whether it can be undone, and how sure it is."""
    item = row.revision
    expires = f"{tense('Expires', 'Would have expired on')} {item.expires_at:%Y-%m-%d %H:%M} UTC."
    if item.is_advice:
        return (
            f"Advice, confidence {item.confidence}: it changes nothing by itself, a person does it "
            f"by hand. {expires}"
        )
    gpu_count = taken_gpus(item)
    moved = dict(item.evidence.factors).get("starts again elsewhere", "")
    touched = "1 job" if item.job_id else "no job"
    if moved:
        touched = f"jobs on the node, which start again elsewhere ({moved})"
    gpus = f", {gpu_count} of its {count_text(item.now.gpu_count, 'GPU')}" if gpu_count else ""
    stops = "its work is interrupted" if interrupts(item) else "its work goes on"
    stops = "their work is interrupted" if moved else stops
    undone = "cannot be undone" if item.cancels_job else "can be rolled back"
    where = f" of namespace {item.namespace}" if item.namespace else ""
    return (
        f"Risk {item.risk}, confidence {item.confidence}. Touches {touched}{where}{gpus}; {stops}; "
        f"{undone}. {expires}"
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
        st.write(markdown(revision.why))
        if revision.job_id:
            show_demand(revision, "open")
    with change:
        if revision.is_advice:
            st.markdown("**What to do**")
            st.write(markdown(revision.change or revision.summary))
            if how := advice_steps(revision):
                st.code(how, language="yaml", wrap_lines=True, height=_STEPS_PIXELS)
        else:
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


def show_demand(recommendation: Recommendation, key: str) -> None:
    """Show the demand or memory that led to it against what is held and what is forecast."""
    world = current_world()
    history = world.reader.job_history(
        recommendation.job_id,
        start=recommendation.evidence.window_start,
        end=recommendation.evidence.window_end,
        slot_seconds=world.settings.settings.planning.slot_minutes * 60,
    )
    column = "memory_used_mib" if recommendation.action in FOR_MEMORY else "effective_gpus"
    if history[column].isna().all():
        return
    stored = world.reader.forecast(recommendation.job_id, plan_id=recommendation.plan_id)
    forecast = stored if isinstance(stored, DemandForecast) else None
    if recommendation.action in FOR_MEMORY:
        job = world.reader.job(recommendation.job_id)
        limit = None if job is None or job.gpu_memory_mib is None else job.gpu_memory_mib
        figure = forecast_band(
            history,
            column,
            y_title="GiB per GPU",
            forecast=forecast,
            path=forecast.path(Quantity.MEMORY) if forecast else None,
            limit=None if limit is None else limit / MIB_PER_GIB,
            scale=1 / MIB_PER_GIB,
        )
    else:
        figure = forecast_band(
            history,
            column,
            y_title="effective GPUs",
            forecast=forecast,
            path=forecast.path(Quantity.EFFECTIVE_GPUS) if forecast else None,
            steps=[recommendation.proposed.gpu_count] * len(forecast.slot_starts)
            if forecast
            else None,
            limit=float(recommendation.now.gpu_count),
        )
    chart(figure, f"{key}-demand")


def evidence_rows(recommendation: Recommendation) -> dict[str, str]:
    """Return every figure and factor that it rests on."""
    evidence = recommendation.evidence
    utilization, memory = evidence.utilization_p95_ratio, evidence.memory_max_mib
    power = evidence.power_mean_watts
    return {
        "signal": evidence.signal or UNKNOWN,
        "samples": samples_text(evidence),
        "utilization p95": UNKNOWN if utilization is None else f"{100 * utilization:.1f} %",
        "largest memory": UNKNOWN if memory is None else f"{memory / 1024:.1f} GiB per GPU",
        "power, mean": UNKNOWN if power is None else f"{power:,.0f} W",
        "forecast": f"{evidence.forecast_model}, backtest loss "
        f"{_loss(evidence.backtest_error)} against {_loss(evidence.backtest_baseline)} of "
        "seasonal-naive",
        "may be changed": evidence.elasticity or UNKNOWN,
        "doubts": "; ".join(evidence.flags) or "none",
        "plan": f"certified gap {100 * evidence.plan_gap_ratio:.2f} %",
        "assumed": "; ".join(f"{name} = {value}" for name, value in evidence.assumed) or "nothing",
        "fallbacks": "; ".join(evidence.fallbacks) or "none",
        **dict(evidence.factors),
    }


def _loss(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g} GPU"


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
        text, colour = markdown(" ".join(line.split())), _COLOUR_BY_SIGN.get(line[:1])
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
    if person is None or stored.state not in _PREVIEW_STATES:
        return
    wish = WishKind.APPROVE if stored.state == State.PROPOSED else WishKind.APPLY
    if refusal_reason(service, wish, stored, person):
        return
    action_button(
        "Look at the target",
        key=f"look-{revision.digest[:12]}",
        then=lambda _answers: _look(revision.digest),
        hint="Asks the cluster and works out the steps. An approval is then bound to them.",
    )
    refused = st.session_state.pop(f"refused-{revision.digest}", "")
    if refused:
        st.error(markdown(refused))


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
        st.caption(markdown(note))
    for refusal in reply.refusals:
        st.error(markdown(refusal))
    for field, intended, answered in reply.differences:
        st.error(markdown(f"{field}: {intended} is meant, the target would store {answered}"))


def _file_text(revision: Recommendation) -> None:
    """Show the text of the change file, or why there is none."""
    try:
        text = current_world().decision_service.change_text(revision.digest)
    except TrimtabError as error:
        st.warning(markdown(str(error)))
        return
    with st.expander("The change file"):
        st.code(text, language=None, wrap_lines=True)
