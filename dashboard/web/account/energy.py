"""Energy & ESG: how much, by whom, by which method and factors, and what is not known."""

import json
from dataclasses import asdict
from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.accounting.energy.build import calendar_of, make_statement, tenant_key
from dashboard.accounting.energy.export import factor_rows, statement_csv, statement_document
from dashboard.accounting.energy.periods import PeriodLength
from dashboard.accounting.energy.statement import WORK_UNIT, EsgStatement, GroupBy
from dashboard.charts.energy_stack import energy_stack
from dashboard.common.escaping import markdown
from dashboard.common.figures import range_text
from dashboard.web.access.identity import current_world
from dashboard.web.account.energy_parts import (
    SHOWN,
    comparable,
    figure_of,
    measured_of,
    page_of_group,
    row_opens,
    rows_shown,
    stack_parts,
)
from dashboard.web.frame.action_button import File, file_buttons
from dashboard.web.frame.address_filters import pick
from dashboard.web.frame.month import current_month
from dashboard.web.frame.page import chart, empty_state, figures, finding, opener_by_name, table
from dashboard.web.frame.scope import asks_for, current_scope, scoped_jobs
from data.base.counts import count_text

_BY = (GroupBy.TENANT, GroupBy.OWNER, GroupBy.JOB, GroupBy.MODEL, GroupBy.NODE, GroupBy.CLUSTER)
_MAX_HOURLY = timedelta(days=14)
"""Bars of an hour are too thin to see over a longer range."""
_FACTOR_COLUMNS = ("kind", "name", "value", "year", "source")

world = current_world()
reader = world.reader
settings = world.settings.settings


month = current_month()


def groups_offered() -> list[str]:
    """Return the names of what energy can be told apart by."""
    # What single jobs used is not told apart by node.
    left_out = {GroupBy.NODE} if current_scope().chosen else set()
    if not asks_for("cluster", reader.job_choices()):
        left_out.add(GroupBy.CLUSTER)
    return [entry.value for entry in _BY if entry not in left_out]


def answer_of(statement: EsgStatement) -> str:
    """Return the page's sentence."""
    total = statement.total
    if not total.board_hours:
        return f"No GPU was allocated or watched in {month.title}."
    if total.gpu_energy_kwh is None:
        return f"Power was never reported in {month.title}, so energy and emissions are unknown."
    market = f" ({range_text(total.market_kgco2e)} market-based)" if total.market_kgco2e else ""
    share = statement.completeness_ratio
    measured = "" if share is None else f"; {100 * share:.1f} % of the GPU-time was measured"
    return (
        f"{whose()} used {range_text(total.gpu_energy_kwh)} in {month.title}{_largest(statement)}; "
        f"with the site's overhead that is {range_text(total.location_kgco2e)} "
        f"location-based{market}{measured}."
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
    with st.container(horizontal=True, vertical_alignment="bottom"):
        by = GroupBy(pick("By", groups_offered(), "by"))
        every = PeriodLength(
            pick("Bars", [PeriodLength.HOUR, PeriodLength.DAY, PeriodLength.WEEK], "every", usual=1)
        )
        measure = pick("Show", SHOWN, "show")
    if every is PeriodLength.HOUR and month.end - month.start > _MAX_HOURLY:
        st.caption(f"Hours are shown for at most {_MAX_HOURLY.days} days; these are days.")
        every = PeriodLength.DAY
    jobs = scoped_jobs()
    tenant_is = tenant_key(settings)

    def statement_every(every: PeriodLength) -> EsgStatement:
        """Return the statement as asked for, in periods of that length."""
        return make_statement(
            reader,
            start=month.start,
            end=month.end,
            settings=settings,
            by=by,
            calendar=calendar_of(settings, every),
            jobs=jobs,
        )

    statement = statement_every(every)
    before = make_statement(
        reader,
        start=month.start - (month.end - month.start),
        end=month.start,
        settings=settings,
        jobs=jobs,
    )
    past = before.total if comparable(statement, before) else None
    with answer:
        finding(answer_of(statement))
        quantities = (
            ("GPUs", "gpu_energy_kwh", "power was never reported"),
            ("emissions, location-based", "location_kgco2e", "power was never reported"),
            ("embodied, besides", "embodied_kgco2e", "no model has a known footprint"),
            (f"SCI, per {WORK_UNIT}", "sci_gco2e", "no work of a known footprint"),
        )
        nothing = "" if statement.total.board_hours else "no GPU was allocated or watched"
        figures(
            {
                title: figure_of(name, statement.total, past, reason=nothing or reason)
                for title, name, reason in quantities
            }
        )
    quantity, unit = (
        ("GPU energy", "kWh")
        if measure == SHOWN[0]
        else (f"emissions, {measure.split()[1]}", "kgCO2e")
    )
    parts = stack_parts(statement, measure)
    if any(part.value is not None for part in parts):
        stack = energy_stack(
            parts,
            quantity=quantity,
            unit=unit,
            period=f"{every.value} ({settings.report.timezone})",
            measured=list(measured_of(statement)),
        )
        chart(stack, "energy", opens=opener_by_name(*page_of_group(by, tenant_is)))
    table(
        rows_shown(statement),
        f"energy-by-{by.value}",
        headings={"idle": "idle GPU-hours"},
        opens=row_opens(statement, tenant_is),
    )
    st.caption(
        "Exactly, with all bounds and hours: by hour as CSV, the whole statement with method and "
        "factors as JSON. The same by command: "
        f"`trimtab energy --by {by.value} --every hour --format csv`."
    )
    file_buttons(
        File(
            label="Hourly CSV",
            make=lambda: statement_csv(statement_every(PeriodLength.HOUR)),
            name=f"energy-by-{by.value}-hourly.csv",
            kind="text/csv",
            key="hourly-csv",
        ),
        File(
            label="Statement JSON",
            make=lambda: json.dumps(asdict(statement_document(statement)), ensure_ascii=False),
            name=f"energy-statement-{month.end:%Y-%m-%d}.json",
            kind="application/json",
            key="statement-json",
        ),
    )
    for line in statement.unknown:
        st.markdown(f"* Unknown: {markdown(line)}")
    if statement.unit_scores:
        st.header("Per million tokens")
        table(
            pd.DataFrame(
                {"job": score.job_id, "tokens": score.tokens, "SCI": range_text(score.sci_gco2e)}
                for score in statement.unit_scores
            ),
            "energy-per-token",
        )
    apart = reader.energy_disagreements(start=month.start, end=month.end)
    if len(apart) and jobs is None:
        st.warning(
            f"On {count_text(len(apart), 'GPU')} the energy counter and the integral of power "
            "differ by more than a tenth: check the sensors before quoting the energy."
        )
        table(apart, "energy-disagreements")
    texts = [
        {name: str(row.get(name) or "") for name in _FACTOR_COLUMNS}
        for row in factor_rows(statement)
    ]
    with st.expander("Method and factors"):
        table(pd.DataFrame(texts), "energy-factors", prose={"value": 420, "source": 300})
