"""Is the data fresh, did a source fail, what does the store hold."""

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.decisions.findings import OUTCOME_COLUMNS, findings_now, outcome_rows
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.admin.contradiction_section import contradiction_section
from dashboard.web.frame.alert_strip import urgent_section
from dashboard.web.frame.page import finding, table, tense
from data.base.counts import count_text
from data.facts.fleet import SourceState
from data.records.actions import Action
from data.store.engine.disk_space import MIN_FREE_MIB

_ALWAYS = ("kind", "found", "open")

world = current_world()
reader = world.reader
reports = reader.source_reports()
state = world.cycle_state()
failed = [report for report in reports if report.state is SourceState.FAILED]
finding(
    f"{len(failed)} of {count_text(len(reports), 'source')} failed in the last cycle."
    if failed
    else tense(
        f"{len(reports)} of {count_text(len(reports), 'source')} answered in the last cycle.",
        "All of it was imported.",
    )
    if reports
    else "No source has been asked yet."
)
urgent_section()
if state.last_error:
    st.error(markdown(state.last_error))
st.write(
    "A cycle runs now."
    if state.running
    else tense(
        "No cycle runs now.",
        "A recording is planned once, as of its end, and again after a further import.",
    )
)
if state.next_at is not None:
    st.write(f"The next one starts at {state.next_at:%Y-%m-%d %H:%M} UTC.")
if not reports:
    st.info("Name a source (`trimtab serve --help`), or `trimtab import FILE --map MAP.toml`.")
table(
    pd.DataFrame(
        [
            {
                "source": report.source,
                "state": str(report.state),
                "samples": report.samples,
                "up to": report.complete_until or report.window_end,
                "complete (%)": None
                if report.completeness_ratio is None
                else 100 * report.completeness_ratio,
                "past": report.past,
                "dropped": ", ".join(f"{count} {reason}" for reason, count in report.dropped),
                "reason": report.reason,
                "warnings": "; ".join(report.warnings),
            }
            for report in reports
        ]
    ),
    "sources",
)
outcomes = outcome_rows(findings_now(reader, now=world.clock()))
if outcomes and current_role() != "owner":
    st.header("Findings by outcome")
    rows = pd.DataFrame(outcomes, columns=list(OUTCOME_COLUMNS))
    dismissed, wrong = (rows[name].astype(int).sum() for name in ("dismissed", "false positive"))
    if dismissed:
        st.write(f"{count_text(dismissed, 'finding')} dismissed, {wrong} as false positive.")
    happened = [name for name in OUTCOME_COLUMNS if name in _ALWAYS or rows[name].astype(int).any()]
    titled = rows.assign(kind=[Action(kind).spec.title for kind in rows["kind"]])
    table(titled[happened], "outcomes", every=lambda: rows)
contradiction_section(reader, world.clock())
st.header("Store")
free = reader.free_mib()
if free is not None:
    (st.write if free >= MIN_FREE_MIB else st.error)(
        f"{free:,.0f} MiB are free on its disk; below {MIN_FREE_MIB:,.0f} MiB nothing is collected."
    )
counts = reader.counts()
with st.expander("Rows by table"):
    table(pd.DataFrame({"table": list(counts), "rows": list(counts.values())}), "store")
problems = reader.verify_audit()
st.write("The audit chain is intact." if not problems else markdown("; ".join(problems)))
