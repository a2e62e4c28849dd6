"""Measured savings of approvals: predicted against realised, per recommendation and in total."""

from datetime import datetime

import pandas as pd
import streamlit as st

from dashboard.accounting.savings.daily_savings import NO_YEAR, RunRate, summed
from dashboard.accounting.savings.ledger import ledger, total_energy, total_gpu_hours
from dashboard.common.figures import range_text
from dashboard.web.access.identity import current_world
from dashboard.web.findings.daily_savings import measured_to, saved_days
from dashboard.web.frame.month import current_month
from dashboard.web.frame.page import figures, finding, money_note, show_link, table, tense
from dashboard.web.frame.scope import scoped_jobs
from data.base.counts import count_text
from data.records.recommendations import Range, Recommendation

jobs, month = scoped_jobs(), current_month()


def is_in_scope(change: Recommendation) -> bool:
    """Return whether a change is one of the jobs that are looked at."""
    return jobs is None or change.job_id in jobs


def in_month(at: datetime) -> bool:
    """Return whether a time is in the month; the present one goes on after the newest sample."""
    return month.start <= at and (not month.is_last or at < month.end)


rows = tuple(
    row
    for row in ledger(current_world().reader, now=current_world().clock())
    if is_in_scope(row.recommendation) and in_month(row.applied_at)
)
gpu_hours, energy = total_gpu_hours(rows), total_energy(rows)


def rate_figures(rate: RunRate) -> dict[str, Range | tuple[str, str]]:
    """Return the savings of the changes that stand, a day and in a year at that rate."""
    why = "a part of it is unknown" if rate.changes else "no change stands"
    day, year = rate.per_day, rate.per_year
    return {
        "money saved a day now": day.money or ("—", why),
        "money a year at that rate": year.money
        or ("—", why if rate.lasting_changes or not rate.changes else NO_YEAR),
        "GPU-hours saved a day now": day.gpu_hours or ("—", why),
        "site energy saved a day now": day.energy_kwh or ("—", why),
    }


if not rows:
    finding(
        tense(
            f"Nothing was applied in {month.title}.",
            "Nothing was applied, and nothing from a recording can be.",
        )
    )
    if words := tense("Approve and apply a finding", ""):
        show_link("findings", words)
elif gpu_hours.realised is None:
    finding(
        f"{count_text(len(rows), 'change is', 'changes are')} applied; none can be measured yet."
    )
else:
    finding(
        f"{gpu_hours.measured} of {count_text(len(rows), 'applied change')} measured: saved "
        f"{range_text(gpu_hours.realised)} of {range_text(gpu_hours.predicted)} promised."
    )
days = [day for day in saved_days() if is_in_scope(day.recommendation) and in_month(day.start)]
until = None if month.is_last else measured_to()  # a rate of now is not of a month that is over
for every in summed(days, "all", at=until):
    figures(
        {
            "money saved to date": every.money or ("—", "a part of it is unknown"),
            "GPU-hours saved to date": every.gpu_hours or ("—", "not measured yet"),
            "site energy saved to date": every.energy_kwh or ("—", "power was not reported"),
            "days in part unknown": (
                str(every.unknown_days),
                f"of {count_text(every.days, 'day')} of changes",
            ),
        }
    )
    if (rate := every.run_rate) is not None:
        figures(rate_figures(rate))
        st.caption(rate.standing)
if rows:
    st.header("The first hours after each change")
    figures(
        {
            "GPU-hours saved": gpu_hours.realised or ("—", "not measured yet"),
            "promised for the same hours": gpu_hours.predicted or ("—", "not measured yet"),
            "site energy saved": energy.realised
            or ("—", "power was not reported" if gpu_hours.realised else "not measured yet"),
            "changes without figures": (
                str(gpu_hours.unknown),
                "unknown is not counted as zero" if gpu_hours.unknown else "",
            ),
        }
    )
    st.caption(
        "Measured over the slots after a change: what the job would have had and drawn without "
        "it, read off the day before at the demand since, minus what it did. Boards given up stay "
        "powered. The range is 80 % (docs/recommendations.md)."
    )
    table(
        pd.DataFrame(
            [
                {
                    "finding": row.reference,
                    "id": row.recommendation.recommendation_id,
                    "job": row.recommendation.job_id,
                    "state": row.state,
                    "applied": row.applied_at,
                    "hours": entry.hours if (entry := row.measurement) else None,
                    "promised": range_text(entry.predicted_gpu_hours if entry else None),
                    "saved": range_text(entry.realised_gpu_hours if entry else None),
                    "energy promised": range_text(entry.predicted_energy_kwh if entry else None),
                    "energy saved": range_text(entry.realised_energy_kwh if entry else None),
                    "emissions saved": range_text(
                        entry.realised_emissions_kgco2e if entry else None
                    ),
                    "throughput": entry.throughput_ratio if entry else None,
                    "unknown because": row.reason,
                }
                for row in rows
            ]
        ),
        "savings",
        links={"finding": "findings?finding=", "job": "jobs?job="},
    )
if days:
    st.header("To date")
    st.caption(
        "Every day from each change until it ends, against the same job without it. A job that was "
        "stopped counts for the horizon of what was promised. A day now is read off the newest day "
        f"and the one before{money_note()}."
    )
    table(
        pd.DataFrame(
            [
                {
                    "finding": saved_sum.name,
                    "days": saved_sum.days,
                    "GPU-hours saved": range_text(saved_sum.gpu_hours),
                    "promised": range_text(saved_sum.promised_gpu_hours),
                    "energy saved": range_text(saved_sum.energy_kwh),
                    "emissions saved": range_text(saved_sum.emissions_kgco2e),
                    "money saved": range_text(saved_sum.money),
                    "days in part unknown": saved_sum.unknown_days,
                    "money a day now": range_text(rate.per_day.money if rate else None),
                    "GPU-hours a day now": range_text(rate.per_day.gpu_hours if rate else None),
                }
                for saved_sum in summed(days, "finding", at=until)
                for rate in [saved_sum.run_rate]
            ]
        ),
        "to date",
        links={"finding": "findings?finding="},
    )
