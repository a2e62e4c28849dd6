"""The phases of a training job as its page shows them."""

from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.charts.job_lines import phase_segments
from dashboard.common.escaping import markdown
from dashboard.web.frame.page import chart
from data.base.errors import sentence
from data.base.units import SECONDS_PER_DAY, SLOT_SECONDS
from data.facts.jobs import Job, WorkloadKind
from data.store import StoreReader
from forecasting.phases.detect import find_phases
from forecasting.phases.records import Phases, Signal

_DAYS = 7


def job_phases(reader: StoreReader, job: Job, end: datetime) -> None:
    """Show warm-up, work and dips of a training job, from its power, else its activity."""
    if job.kind is not WorkloadKind.TRAINING:
        return
    rows = reader.job_history(
        job.job_id, start=end - timedelta(days=_DAYS), end=end, slot_seconds=SLOT_SECONDS
    )
    for column, signal in (("power_watts", Signal.POWER), ("effective_gpus", Signal.ACTIVITY)):
        measured = rows[rows[column].notna()]
        if not measured.empty:
            _show(measured.set_index("slot_start")[column], signal)
            return


def _show(values: "pd.Series[float]", signal: Signal) -> None:
    grid = pd.date_range(values.index[0], values.index[-1], freq=f"{SLOT_SECONDS}s")
    regular = values.reindex(grid)
    phases = find_phases(regular.to_numpy(dtype=float), float(SLOT_SECONDS), signal=signal)
    st.subheader("Phases")
    chart(phase_segments([at.to_pydatetime() for at in grid], regular.tolist(), phases), "phases")
    now = phases.segments[-1]
    since = f"Latest: {now.kind}, since {grid[now.start]:%Y-%m-%d %H:%M} UTC. "
    st.caption(markdown(since + _epoch_line(phases)))


def _epoch_line(phases: Phases) -> str:
    epoch = phases.epoch
    notes = "".join(f" {note[:1].upper()}{note[1:]}." for note in phases.notes)
    if epoch.seconds is None:
        return f"Epoch unknown: {sentence(epoch.reason)}{notes}"
    period = (
        f"{epoch.seconds / 60:.0f} min"
        if epoch.seconds < SECONDS_PER_DAY / 12
        else f"{epoch.seconds / 3600:.1f} h"
    )
    return f"Dips come back every {period}: {sentence(epoch.reason)}{notes}"
