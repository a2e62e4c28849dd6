"""The boards that a job holds, each a way to it on the page Fleet."""

from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.web.access.identity import current_role
from dashboard.web.frame.page import goes_to, table
from data.facts.jobs import Job
from data.store.handles.cached_reader import CachedReader

_BOARDS = 100


def show_boards(reader: CachedReader, job: Job, end: datetime) -> None:
    """Show the boards that the job holds; a click on one opens it on Fleet."""
    if current_role() == "owner":  # the page Fleet is not theirs
        return
    boards = [
        gpu
        for gpu in reader.gpus(start=end - timedelta(hours=1), end=end)
        if job.job_id in gpu.holders
    ]
    if not boards:
        return
    st.subheader("Boards")
    rows = pd.DataFrame(
        {
            "node": gpu.node,
            "gpu_uuid": gpu.gpu_uuid,
            "gpu_model": f"{gpu.gpu_model} {gpu.mig_profile}".rstrip(),
        }
        for gpu in boards[:_BOARDS]
    )
    places = [{"q": gpu.node, "gpu": gpu.gpu_uuid} for gpu in boards]
    table(rows, "held-boards", exported=False, opens=goes_to("fleet", places))
    if len(boards) > _BOARDS:
        st.caption(f"{_BOARDS} of {len(boards):,} boards are listed.")
