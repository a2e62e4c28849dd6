"""Energy & ESG: how much, by whom, by which method and factors, and what is not known."""

import json
from dataclasses import asdict

import pandas as pd
import streamlit as st

from dashboard.accounting.energy.build import calendar_of, make_statement, tenant_key
from dashboard.accounting.energy.export import factor_rows, statement_csv, statement_document
from dashboard.accounting.energy.periods import Every
from dashboard.accounting.energy.statement import WORK_UNIT, EsgStatement
from dashboard.charts.energy_stack import energy_stack
from dashboard.common.escaping import markdown
from dashboard.common.figures import range_text
from dashboard.web.access.identity import current_world
from dashboard.web.account.energy_choice import SHOWN, ask_energy_choice
from dashboard.web.account.energy_parts import (
    comparable,
    figure_of,
    measured_of,
    row_opens,
    rows_shown,
    stack_parts,
    way_of,
)
from dashboard.web.frame.action_button import File, file_buttons
from dashboard.web.frame.page import chart, empty_state, figures, finding, goes_by_name, table
from dashboard.web.frame.scope import current_scope, scoped_jobs
from data.base.counts import count_text

_TOLD = ("kind", "name", "value", "year", "source")

world = current_world()
reader = world.reader
settings = world.settings.settings


def answer_of(statement: EsgStatement, days: int) -> str:
    """Return the page's sentence."""
    total = statement.total
    if not total.board_hours:
        return f"No GPU was held or watched in {days} d."
    if total.gpu_energy_kwh is None:
        return "Power was never reported in this time, so energy and emissions are unknown."
    market = f" ({range_text(total.market_kgco2e)} market-based)" if total.market_kgco2e else ""
    share = statement.completeness_ratio
    measured = "" if share is None else f"; {100 * share:.1f} % of the board-time was measured"
    return (
        f"{whose()} used {range_text(total.gpu_energy_kwh)} in {days} d{_largest(statement)}; with "
        f"the site's overhead that is {range_text(total.location_kgco2e)} location-based{market}"
        f"{measured}."
    )


def whose() -> str:
    """Name the GPUs: all, or those that the chosen jobs held."""
    filters = current_scope().describe()
    return f"The GPUs of jobs of {filters}" if filters else "The GPUs"


def _largest(statement: EsgStatement) -> str:
    """Return the largest user and its share, in words."""
    first, total = next(iter(statement.groups), None), statement.total.gpu_energy_kwh
    if first is None or first.gpu_energy_kwh is None or total is None or not total.central:
        return ""
    share = 100 * first.gpu_energy_kwh.central / total.central
    return f", {share:.0f} % of it {first.name}"


if not empty_state():
    answer = st.container()
    newest = min(world.clock(), reader.latest_sample_at() or world.clock())
    choice = ask_energy_choice(newest, settings.report.timezone, current_scope())
    jobs = scoped_jobs()
    tenant_is = tenant_key(settings)

    def statement_every(every: Every) -> EsgStatement:
        """Return the statement as asked for, in periods of that length."""
        return make_statement(
            reader,
            start=choice.start,
            end=choice.end,
            settings=settings,
            by=choice.by,
            calendar=calendar_of(settings, every),
            jobs=jobs,
        )

    statement = statement_every(choice.every)
    before = make_statement(
        reader,
        start=choice.start - (choice.end - choice.start),
        end=choice.start,
        settings=settings,
        jobs=jobs,
    )
    past = before.total if comparable(statement, before) else None
    with answer:
        finding(answer_of(statement, choice.days))
        quantities = (
            ("GPU boards", "gpu_energy_kwh", "power was never reported"),
            ("emissions, location-based", "location_kgco2e", "power was never reported"),
            ("embodied, besides", "embodied_kgco2e", "no model has a known footprint"),
            (f"SCI, per {WORK_UNIT}", "sci_gco2e", "no work of a known footprint"),
        )
        nothing = "" if statement.total.board_hours else "no GPU was held or watched"
        figures(
            {
                title: figure_of(name, statement.total, past, reason=nothing or reason)
                for title, name, reason in quantities
            }
        )
    quantity, unit = (
        ("GPU energy", "kWh")
        if choice.quantity == SHOWN[0]
        else (f"emissions, {choice.quantity.split()[1]}", "kgCO2e")
    )
    parts = stack_parts(statement, choice.quantity)
    if any(part.value is not None for part in parts):
        stack = energy_stack(
            parts,
            quantity=quantity,
            unit=unit,
            period=f"{choice.every.value} ({settings.report.timezone})",
            measured=list(measured_of(statement)),
        )
        chart(stack, "energy", opens=goes_by_name(*way_of(choice.by, tenant_is)))
    table(
        rows_shown(statement),
        f"energy-by-{choice.by.value}",
        headings={"idle": "idle GPU-hours"},
        opens=row_opens(statement, tenant_is),
    )
    st.caption(
        "Exactly, with all bounds and hours: by hour as CSV, the whole statement with method and "
        "factors as JSON. The same by command: "
        f"`trimtab energy --by {choice.by.value} --every hour --format csv`."
    )
    file_buttons(
        File(
            label="Hourly CSV",
            make=lambda: statement_csv(statement_every(Every.HOUR)),
            name=f"energy-by-{choice.by.value}-hourly.csv",
            kind="text/csv",
            key="hourly-csv",
        ),
        File(
            label="Statement JSON",
            make=lambda: json.dumps(asdict(statement_document(statement)), ensure_ascii=False),
            name=f"energy-statement-{choice.end:%Y-%m-%d}.json",
            kind="application/json",
            key="statement-json",
        ),
    )
    for line in statement.unknown:
        st.markdown(f"* Unknown: {markdown(line)}")
    if statement.unit_scores:
        st.subheader("Per million tokens")
        table(
            pd.DataFrame(
                {
                    "job": score.job_id,
                    "tokens": score.tokens,
                    "SCI": range_text(score.sci_gco2e),
                }
                for score in statement.unit_scores
            ),
            "energy-per-token",
        )
    apart = reader.energy_disagreements(start=choice.start, end=choice.end)
    if len(apart) and jobs is None:
        st.warning(
            f"On {count_text(len(apart), 'board')} the energy counter and the integral of power "
            "differ by more than a tenth: check the sensors before quoting the energy."
        )
        table(apart, "energy-disagreements")
    st.subheader("Method and factors")
    texts = [{name: str(row.get(name) or "") for name in _TOLD} for row in factor_rows(statement)]
    table(pd.DataFrame(texts), "energy-factors", prose={"value": 420, "source": 300})
