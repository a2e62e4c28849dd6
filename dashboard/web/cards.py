"""A recommendation as a card: what, for whom, savings, risk, evidence, decision."""

import streamlit as st

from dashboard.web.page import plain, range_text
from dashboard.web.session import current_world
from data.errors import TrimtabError
from data.records.decisions import Decision
from data.store import StoredRecommendation

_TITLES = {
    "fewer-gpus": "Fewer GPUs",
    "smaller-gpu": "Smaller GPU",
    "mig-slice": "MIG slice",
    "power-cap": "Power cap",
    "reclaim": "Reclaim idle GPU",
}


def card(stored: StoredRecommendation, place: str) -> None:
    """Show one recommendation with its buttons; `place` keeps the keys of two pages apart."""
    one = stored.recommendation
    key = f"{place}-{one.recommendation_id}"
    with st.container(border=True):
        title, state = st.columns([4, 1])
        title.markdown(
            f"**{_TITLES[one.action]}** · {plain(one.job_id)}  \n"
            f"{plain(one.now.describe())} → **{plain(one.proposed.describe())}**"
        )
        by = f" by {stored.decided_by}" if stored.decided_by else ""
        state.markdown(plain(f"{stored.state}{by}"))
        cells = st.columns(4)
        for cell, (label, value) in zip(
            cells,
            (
                ("cost", one.savings.cost),
                ("GPU-hours", one.savings.gpu_hours),
                ("energy", one.savings.energy_kwh),
                ("emissions", one.savings.emissions_kgco2e),
            ),
            strict=True,
        ):
            cell.caption(f"saves {label} in {one.savings.horizon_hours:g} h")
            cell.write(range_text(value))
        st.caption(
            plain(
                f"Risk {one.risk}. Confidence {one.confidence}. "
                f"Expires {one.expires_at:%Y-%m-%d %H:%M} UTC. {one.recommendation_id}"
            )
        )
        _why(stored, key)
        _buttons(stored, key)


def _why(stored: StoredRecommendation, key: str) -> None:
    one, evidence = stored.recommendation, stored.recommendation.evidence
    with st.expander("Why"):
        st.write(plain(one.why))
        utilization = evidence.utilization_p95_ratio
        lines = {
            "signal": evidence.signal,
            "samples": f"{evidence.samples:,} from {evidence.window_start:%Y-%m-%d %H:%M} to "
            f"{evidence.window_end:%Y-%m-%d %H:%M} UTC, "
            f"{100 * evidence.completeness_ratio:.1f} % complete",
            "utilization p95": "—" if utilization is None else f"{100 * utilization:.1f} %",
            "largest memory": "—"
            if evidence.memory_max_mib is None
            else f"{evidence.memory_max_mib / 1024:.1f} GiB per GPU",
            "forecast": f"{evidence.forecast_model}, backtest loss "
            f"{_loss(evidence.backtest_error)} against {_loss(evidence.backtest_baseline)} of "
            "seasonal-naive",
            "plan": f"certified gap {100 * evidence.plan_gap_ratio:.2f} %",
            "assumed": "; ".join(f"{name} = {value}" for name, value in evidence.assumed) or "—",
            "fallbacks": "; ".join(evidence.fallbacks) or "—",
            **dict(evidence.factors),
        }
        st.dataframe(
            {"": list(lines), "evidence": list(lines.values())},
            hide_index=True,
            key=f"{key}-evidence",
        )
        st.caption(f"digest {one.digest}")


def _loss(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g} GPU"


def _buttons(stored: StoredRecommendation, key: str) -> None:
    world = current_world()
    digest = stored.recommendation.digest
    if stored.state == "proposed":
        name, comment, yes, no = st.columns([2, 3, 1, 1], vertical_alignment="bottom")
        by = name.text_input("Your name", key=f"{key}-by")
        remark = comment.text_input("Comment", key=f"{key}-comment")
        for cell, label, decision in (
            (yes, "Approve", Decision.APPROVED),
            (no, "Reject", Decision.REJECTED),
        ):
            if cell.button(label, key=f"{key}-{decision}"):
                _attempt(lambda chosen=decision: world.decide(digest, chosen, by, remark))
    elif stored.state in ("approved", "written"):
        with st.expander("Change", expanded=stored.state == "approved"):
            try:
                st.code(world.preview(digest), language=None)
            except TrimtabError as error:
                st.warning(plain(str(error)))
                return
            if stored.state == "approved" and st.button(
                "Write the change file", key=f"{key}-write"
            ):
                _attempt(lambda: world.write_change(digest, stored.decided_by))


def _attempt(action: "object") -> None:
    """Run a decision and show what the store then says."""
    try:
        action()  # type: ignore[operator]
    except TrimtabError as error:
        st.error(plain(str(error)))
        return
    st.rerun()
