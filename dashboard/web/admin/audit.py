"""The append-only record: who decided what, what the worker did, and the proof that it is whole."""

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import finding, table, tense
from data.base.counts import count_text

_SHOWN = 500

reader = current_world().reader
entries = reader.audit()
head = st.query_params.get("head", "")
problems = reader.verify_audit(head=head)
finding(
    f"The record was changed in {count_text(len(problems), 'entry or row', 'entries or rows')}."
    if problems
    else f"{count_text(len(entries), 'entry', 'entries')}, chain intact."
    if entries
    else tense(
        "Nothing has been decided yet.", "Nothing was decided, and of a recording nothing can be."
    )
)
for problem in problems:
    st.error(markdown(problem))
if entries:
    st.caption("The hash of the last entry. Kept elsewhere, it proves that nothing was cut off:")
    st.code(entries[-1].entry_hash, language=None)
    word = st.text_input("Search", key="audit-search").casefold()
    matches = [
        entry
        for entry in reversed(entries)
        if word in f"{entry.actor} {entry.event} {entry.digest} {entry.detail}".casefold()
    ]
    if len(matches) > _SHOWN:
        st.caption(f"The latest {_SHOWN} of {len(matches)}; `trimtab audit list` gives all.")
    table(
        pd.DataFrame(
            [
                {
                    "entry": entry.sequence,
                    "at": entry.at,
                    "who": entry.actor,
                    "what": entry.event,
                    "recommendation": entry.digest[:12],
                    "detail": entry.detail,
                    "covers": entry.covers,
                    "hash": entry.entry_hash[:12],
                }
                for entry in matches[:_SHOWN]
            ]
        ),
        "audit",
    )
