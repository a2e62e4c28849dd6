"""A job that names no GPU: the plans that fit, what its memory is made of, and its submission."""

import pandas as pd
import streamlit as st

from dashboard.charts.memory_bars import MemoryBar, memory_bars
from dashboard.common.escaping import markdown
from dashboard.submission.estimates.estimate import (
    LIMIT,
    Offers,
    breakdown_rows,
    chosen_types,
    fit_figures,
    offered,
    plan_row,
)
from dashboard.submission.job.feasible_plans import (
    calibration_of,
    family_of,
    limit_warning,
    plans_for,
)
from dashboard.submission.job.fleet import SubmissionFleet, catalogue_types, fleet_of_store
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.submit.proposal import host_need
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import chart, finding, table
from dashboard.web.new_job.new_job_form import asked_job
from dashboard.web.new_job.new_job_submission import submission_part
from data.base.counts import count_text
from data.base.errors import sentence
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.training_plans import GpuType, TrainingPlan

_SHOWN = 20
_OF_PLANS = {
    "data": "data parallel",
    "tensor": "tensor parallel",
    "pipeline": "pipeline stages",
    "accumulation": "accumulation (steps)",
    "told": "told to the command",
}

world = current_world()
settings = world.settings.settings
reader = world.store.reader


def plans_of(
    job: JobFile,
    types: tuple[GpuType, ...],
    calibration: Calibration,
    fleet: SubmissionFleet | None,
) -> Offers:
    """The plans of this very question: found once, not at every click on the page."""
    question = (job, types, calibration, fleet)
    if st.session_state.get("new-job-question") != question:
        most = settings.submit.max_gpus
        fitting = plans_for(job, types, max_gpus=most, calibration=calibration)
        st.session_state["new-job-plans"] = offered(fitting, fleet, host_need(job))
        st.session_state["new-job-question"] = question
    offers: Offers = st.session_state["new-job-plans"]
    return offers


def bar(plan: TrainingPlan) -> MemoryBar:
    """The best plan of a GPU type as a bar."""
    figures = fit_figures(plan.job, plan.estimate)
    return MemoryBar(
        label=f"{plan.gpus} × {plan.gpu_type}",
        parts=tuple((row["part"], row["gib"]) for row in breakdown_rows(plan.estimate)),
        limit_gib=figures["usable_gib"],
        bound_gib=figures["p95_gib"],
    )


answer = st.container()
job = asked_job()
if job is None:
    with answer:
        finding("Describe a job; no GPU has to be named.")
else:
    catalogue = load_gpu_catalogue()
    fleet = fleet_of_store(reader, catalogue)
    local_types = fleet.gpu_types(catalogue)
    family = family_of(job.training_job)
    offers = plans_of(
        job,
        chosen_types(local_types or catalogue_types(catalogue), ()),
        calibration_of(family, reader.measured_peaks(family)),
        fleet if local_types else None,
    )
    plans = offers.shown
    first = plans[0].plan
    types = len({offer.plan.gpu_type for offer in offers.plans})
    of_types: dict[str, TrainingPlan] = {}
    for offer in plans:
        of_types.setdefault(offer.plan.gpu_type, offer.plan)
    with answer:
        finding(
            f"{job.name} fits in {count_text(len(plans), 'way')} on "
            f"{count_text(types, 'GPU type')} with a probability of {LIMIT} or more; the first: "
            f"{plans[0].text}."
            if offers.plans
            else f"{job.name}: {sentence(offers.warning)}"
        )
    if offers.plans and offers.warning:
        st.warning(markdown(offers.warning))
    if late := limit_warning(first, job.tokens, job.time_limit_hours, whose="the time limit"):
        st.warning(markdown(late))
    origin = "the fleet in the store" if local_types else "the catalogue: the store knows no fleet"
    gaps = first.estimate.missing
    st.caption(
        markdown(
            f"GPU types of {origin}. Tier {first.estimate.tier}: "
            + (f"nobody stated {', '.join(gaps)}." if gaps else "all that decides is stated.")
        )
    )
    for gap in job.assumed:
        st.caption(markdown(f"The config did not state it: {gap}"))
    st.header("Memory of the best plan per GPU type")
    chart(memory_bars([bar(training_plan) for training_plan in of_types.values()]), "memory-bars")
    st.header("Plans")
    rows = [plan_row(offer, tokens=job.tokens) for offer in plans[:_SHOWN]]
    table(pd.DataFrame(rows), "plans", headings=_OF_PLANS)
    if len(plans) > _SHOWN:
        st.caption(f"The best {_SHOWN} of {len(plans)}.")
    if offers.plans and offers.remark:
        st.caption(markdown(offers.remark))
    with st.expander("What its memory is made of"):
        gpu_type = st.selectbox("GPU type", list(of_types), key="breakdown-type")
        st.write(f"At the event that binds, {of_types[gpu_type].estimate.binding_event}:")
        table(pd.DataFrame(breakdown_rows(of_types[gpu_type].estimate)), "breakdown")
    submission_part(job)
