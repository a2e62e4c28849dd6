"""The counters that other readings of their board contradict, on Admin."""

from datetime import datetime

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.frame.page import table
from data.base.counts import count_text
from data.records.contradictions import FIX
from data.store.handles.cached_reader import CachedReader


def contradiction_section(reader: CachedReader, now: datetime) -> None:
    """Show which counters were contradicted in the last day of readings; nothing where none was."""
    counters = reader.contradicted_counters(end=reader.latest_sample_at() or now)
    if not counters:
        return
    st.header("Readings that contradict each other")
    boards = count_text(len({entry.gpu_uuid for entry in counters}), "GPU")
    st.error(
        markdown(
            f"On {boards} a counter shows what the other readings rule out. It is unknown for that "
            f"time, and no change is proposed for the jobs on them. {FIX}"
        )
    )
    rows = [
        {
            "node": entry.node,
            "gpu_index": entry.gpu_index,
            "counter": entry.term,
            "showed (%)": 100 * entry.reading,
            "beside": entry.evidence,
            "slots of five minutes": entry.slots,
            "since": entry.first_at,
            "until": entry.last_at,
            "gpu_uuid": entry.gpu_uuid,
            "mig_instance": entry.mig_instance,
        }
        for entry in counters
    ]
    table(pd.DataFrame(rows), "contradictions")
