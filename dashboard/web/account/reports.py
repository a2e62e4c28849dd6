"""The weekly report: read it here, take it along in four forms."""

from functools import partial

import pandas as pd
import streamlit as st

from dashboard.charts.forecast_band import fleet_timeline
from dashboard.common.rights import role_of
from dashboard.reports.render.html_report import render_html, render_json, render_markdown
from dashboard.reports.render.pdf_file import render_pdf
from dashboard.reports.week.editions import WHOLE, Edition, own_edition
from dashboard.reports.week.week import Week, last_whole_week, week_to
from dashboard.reports.week.weekly_report import WeeklyReport, make_weekly_report
from dashboard.web.access.identity import current_world, signed_in
from dashboard.web.frame.action_button import File, file_buttons
from dashboard.web.frame.address_filters import pick
from dashboard.web.frame.month import current_month
from dashboard.web.frame.page import chart, empty_state, finding, table

_FORMS = (
    ("HTML", "html", "text/html", render_html),
    ("PDF", "pdf", "application/pdf", render_pdf),
    ("Markdown", "md", "text/markdown", render_markdown),
    ("JSON", "json", "application/json", render_json),
)
world = current_world()
reader = world.reader
settings = world.settings.settings


def edition() -> Edition:
    """Return the edition for the person who looks: an owner's has their own jobs alone."""
    access = world.decision_service.settings().access
    person = signed_in(access)
    is_owner = person is not None and role_of(person, access) == "owner"
    return own_edition(person.name) if person is not None and is_owner else WHOLE


def report_of(week: Week) -> WeeklyReport:
    """Read the facts of the week, or give what was read until something is written."""
    return reader.remember(
        ("weekly report", week),
        lambda: make_weekly_report(reader, week=week, settings=settings, edition=edition()),
        decisions=True,
    )


if not empty_state():
    newest = current_month().end
    weeks = {
        "last 168 hours": week_to(newest, settings.report.timezone),
        "last whole week": last_whole_week(newest, settings.report),
    }
    answer = st.container()
    week = weeks[pick("Week", list(weeks), "week")]
    report = report_of(week)
    with answer:
        finding(report.finding)
    st.caption(f"{week.text(week.start)} to {week.text(week.end)}, {week.length}.")
    file_buttons(
        *(
            File(
                label=title,
                make=partial(render, report),
                name=f"trimtab-{week.name}.{form}",
                kind=kind,
                key=form,
            )
            for title, form, kind, render in _FORMS
        )
    )
    st.caption(
        "The same by command: `trimtab report weekly --last-week --format pdf --out week.pdf`."
    )
    if not report.fleet.empty:
        chart(fleet_timeline(report.fleet), "fleet")
    st.header("Allocated but idle")
    rows = [
        {
            "namespace": row.shown_names[0],
            "owner": row.shown_names[1],
            "GPU-hours allocated": row.gpu_hours,
            "idle GPU-hours": row.idle_gpu_hours,
            "idle (%)": 100 * row.idle_ratio,
            f"cost of idle GPUs{report.left_out_of_prices} ({report.currency})": row.rent,
            "models without a price": ", ".join(row.unpriced_models),
            "largest job": row.largest_job,
        }
        for row in report.waste
    ]
    if rows:
        table(pd.DataFrame(rows), "held-and-idle")
    else:
        st.write(report.no_waste)
