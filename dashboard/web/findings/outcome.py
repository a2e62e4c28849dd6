"""Present work on a finding, and its outcome."""

from collections.abc import Mapping

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.common.figures import range_text
from dashboard.web.access.identity import current_world
from data.base.units import MIB_PER_GIB
from data.records.commands import Measurement
from data.records.lifecycle import State
from data.store import StoredRecommendation
from data.store.engine.record_json import from_json

_TICK_SECONDS = 1.0


def watch(moving: Mapping[str, str]) -> None:
    """Draw the page anew as soon as one of the changes under way is in another state."""
    if moving:
        st.fragment(_look_again, run_every=_TICK_SECONDS)(dict(moving))


def _look_again(drawn: dict[str, str]) -> None:
    states = current_world().store.reader.states()
    if any(states.get(digest) != state for digest, state in drawn.items()):
        st.rerun()


def under_way(stored: StoredRecommendation) -> None:
    """Show what the worker does, a second apart."""
    st.fragment(_progress, run_every=_TICK_SECONDS)(stored.recommendation.digest)


def _progress(digest: str) -> None:
    reader = current_world().store.reader
    status = reader.commands(digest)[-1]
    rows = reader.journal(command_id=status.command.command_id)
    doing = f"{rows[-1].event}: {rows[-1].detail}" if rows else "waiting for the worker"
    st.progress(min(0.9, 0.1 + 0.15 * len(rows)), text=markdown(status.held or doing))


def show_outcome(stored: StoredRecommendation) -> None:
    """Show the outcome of the change, and its measured effect."""
    if stored.state in (State.PROPOSED, State.APPROVED, State.WRITTEN):
        return
    rows = current_world().store.reader.journal(digest=stored.recommendation.digest)
    entries = [row for row in rows if row.event in set(State) and row.detail]
    if entries:
        st.caption(markdown(f"{entries[-1].at:%Y-%m-%d %H:%M} UTC: {entries[-1].detail}"))
    measured = [row for row in rows if row.event in (State.VERIFIED, State.FELL_SHORT)]
    if measured:
        measurement = from_json(Measurement, measured[-1].record)
        st.caption(
            markdown(
                f"Measured over {measurement.hours:g} h: "
                f"{range_text(measurement.realised_gpu_hours)} of "
                f"{range_text(measurement.predicted_gpu_hours)} promised, "
                f"{range_text(measurement.realised_energy_kwh)} of "
                f"{range_text(measurement.predicted_energy_kwh)} promised."
                f"{_memory_text(measurement)}"
            )
        )


def _memory_text(measurement: Measurement) -> str:
    if measurement.memory_peak_mib is None or measurement.memory_limit_mib is None:
        return ""
    peak, limit = (
        measurement.memory_peak_mib / MIB_PER_GIB,
        measurement.memory_limit_mib / MIB_PER_GIB,
    )
    return f" Memory reached {peak:.1f} of the {limit:.1f} GiB that a program can have."
