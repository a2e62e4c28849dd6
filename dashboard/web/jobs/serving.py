"""Inference services: demand against what their replicas carry, and the replicas needed ahead."""

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
import streamlit as st

from dashboard.charts.serving_lines import demand_against_capacity, replicas_against_need
from dashboard.common.escaping import markdown
from dashboard.resources.rows import ServiceRow, service_row
from dashboard.serving.outlook import service_history
from dashboard.serving.token_cost import TokenValue, cached_token_values
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.frame.page import (
    UNKNOWN,
    chart,
    empty_state,
    figures,
    finding,
    measured,
    number,
    show_link,
    table,
    tense,
)
from dashboard.web.frame.scope import scoped_jobs
from data.base.counts import count_text
from data.base.errors import sentence
from data.records.serving import ServiceOutlook
from planner.serving.cold_start import MIN_STARTS

# What needs a look comes first.
_STATES = ("late", "short", "rising", "stale", "unknown", "spare", "enough")
_BAD_STATES = frozenset(_STATES[:3])
_HEADINGS = {
    "state": "state now",
    "replicas_needed": "needed now",
    "replicas_needed_max": "needed, highest in 6 h",
    "running_requests": "at work",
    "waiting_requests": "waiting",
    "kv_cache_percent": "KV-cache (%)",
    "generation_tokens_per_second": "generated tokens/s",
    "requests_per_second": "requests/s",
    "late_minutes": "late, 24 h (min)",
}
_MAX_ROWS = 500
_NO_ENGINE = (
    "No inference engine was read in the latest cycle. Let the Prometheus of `prometheus.url` "
    "scrape the /metrics of your engines at least every two minutes, beside the GPU metrics: "
    "vLLM, SGLang, TGI, TensorRT-LLM, Triton, KServe and Ray Serve are known."
)
_NO_JOB = "its metrics name no pod, so its GPUs are unknown"
_BOARDS = "GPUs of your jobs" if current_role() == "owner" else "all GPUs"
world = current_world()
reader, settings = world.reader, world.settings.settings
Services = list[tuple[ServiceOutlook, ServiceRow]]


def key_of(row: ServiceRow) -> str:
    """Return a service's name in the address: its job, else the model of replicas without one."""
    return row.job_id or f"model {row.service}"


def services_now(now: datetime) -> Services:
    """Return the services that are looked at, what needs a look first."""
    jobs = scoped_jobs()
    pairs = [
        (outlook, service_row(outlook, settings.serving, now))
        for outlook in reader.serving_outlook()
        if jobs is None or outlook.job_id in jobs
    ]
    return sorted(
        pairs, key=lambda pair: (_STATES.index(pair[1].state), -(pair[1].running_requests or 0.0))
    )


def rows_of(rows: Sequence[ServiceRow]) -> pd.DataFrame:
    """Return services as a table; what was never reported stays empty."""
    return pd.DataFrame(
        {
            "service": row.service,
            "state": row.state,
            "replicas": row.replicas,
            "replicas_needed": row.required_replicas,
            "replicas_needed_max": row.max_required_replicas,
            "requests_per_second": row.requests_per_second,
            "running_requests": row.running_requests,
            "waiting_requests": row.waiting_requests,
            "late_minutes": row.late_minutes,
            "kv_cache_percent": None if row.kv_cache_ratio is None else 100 * row.kv_cache_ratio,
            "generation_tokens_per_second": row.generation_tokens_per_second,
            "reason": row.reason,
            "namespace": row.namespace,
            "job": row.job_id,
            "engine": row.engine,
            "model": row.model,
        }
        for row in rows
    )


def total(values: Sequence[float | None], unit: str) -> tuple[str, str]:
    """Return the sum of what is known, and of how many services it is not."""
    numbers = [value for value in values if value is not None]
    missing = len(values) - len(numbers)
    note = f"without {count_text(missing, 'service')} of which it is unknown" if missing else ""
    return number(sum(numbers) if numbers else None, unit), note


def show_answer(rows: Sequence[ServiceRow]) -> None:
    """Open the page with what the services need, and their sums."""
    worse = [row for row in rows if row.state in _BAD_STATES]
    names = ", ".join(f"{row.service} ({row.state})" for row in worse[:3])
    more = f" and {len(worse) - 3} more" if len(worse) > 3 else ""
    replicas = count_text(sum(row.replicas for row in rows), "replica")
    who = count_text(len(rows), "inference service")
    runs = tense("runs" if len(rows) == 1 else "run", "ran")
    unsized = sum(row.required_replicas is None for row in rows)
    if worse:
        need = "needs" if len(worse) == 1 else "need"
        text = f"{len(worse)} {need} more or soon will: {names}{more}"
    else:
        text = "none needs more in the next hours" if unsized < len(rows) else ""
    if unsized:
        unknown = f"of {unsized} it is not known how many they need"
        text = f"{text}; {unknown}" if text else unknown
    finding(f"{who} {runs} on {replicas}; {text}.")
    figures(
        {
            "requests": total([row.requests_per_second for row in rows], "/s"),
            "generated tokens": total([row.generation_tokens_per_second for row in rows], "/s"),
            "replicas needed now": total([row.required_replicas for row in rows], ""),
            "requests waiting": total([row.waiting_requests for row in rows], ""),
        }
    )


def open_service(row: ServiceRow) -> None:
    """Let the page draw this service below; the address says which."""
    st.query_params["service"] = key_of(row)


def opened(services: Services) -> tuple[ServiceOutlook, ServiceRow]:
    """Return the service that the address names, else the first."""
    query = st.query_params.get("service", "")
    match = next((pair for pair in services if key_of(pair[1]) == query), None)
    if query and match is None:
        st.warning(markdown(f"Service {query} is not among these; another is shown."))
    return match or services[0]


_STARTS = {
    "pods": "nine of ten of the last {count}, from being put on a node to being ready, took no "
    "longer; half took {typical}",
    "boards": "nine of ten of the last {count}, from the first reading of their GPUs to the "
    "first tokens served, took no longer; half took {typical}",
    "setting": "assumed until {enough} starts were seen; so far {count}",
}


def cold_start_text(row: ServiceRow) -> tuple[str, str]:
    """Return the time that a replica takes to start, and where that is from."""
    seconds, typical = row.cold_start_seconds, row.cold_start_typical_seconds
    if seconds is None:
        return measured(None, "min", "not told by the latest cycle")
    source = _STARTS[row.cold_start_source].format(
        count=row.starts_seen,
        enough=MIN_STARTS,
        typical=number(None if typical is None else typical / 60, "min"),
    )
    return number(seconds / 60, "min"), source


def tokens_text(value: TokenValue) -> tuple[str, str]:
    """Return the tokens of a unit of money, below them those of a joule, or why not."""
    cost, why = measured(value.tokens_per_cost, "", value.no_cost)
    joule, why_not = measured(value.tokens_per_joule, "per joule", value.no_energy)
    return cost, "; ".join(filter(None, (why, f"per joule: {why_not}" if why_not else joule)))


def figures_of_one(row: ServiceRow, value: TokenValue | None) -> None:
    """Show what one service carries, how long requests waited too long, what its tokens cost."""
    late = None if row.late_minutes is None else float(row.late_minutes)
    no_value = _NO_JOB if not row.job_id else "no GPU of it was read in 24 h"
    currency = settings.energy.currency
    figures(
        {
            "its replicas carry": measured(
                row.carried_per_second, "requests/s", "needs requests at work, and those that ended"
            ),
            "a replica starts within": cold_start_text(row),
            "requests waited too long": (
                number(late, "min"),
                f"of {row.judged_minutes / 60:.3g} h known: on average over "
                f"{settings.serving.wait_seconds:g} s in five minutes"
                if late is not None
                else "the engine tells no waits and no queue",
            ),
            f"generated tokens per {currency}": (
                (UNKNOWN, no_value) if value is None else tokens_text(value)
            ),
        }
    )


def show_one(outlook: ServiceOutlook, row: ServiceRow, value: TokenValue | None) -> None:
    """Show one service: demand against capacity, replicas against need."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(markdown(row.service or "(no name)"), width="content")
        if row.job_id:
            show_link("job", "Open the job", job=row.job_id)
    texts = [f"{row.engine} {row.model}".strip(), f"state: {row.state}", row.reason]
    texts.append(f"read until {row.read_until:%Y-%m-%d %H:%M} UTC")
    if row.slots_per_replica is not None and not row.seen_full:
        texts.append("no replica was ever seen full: it may carry more")
    reads, writes = row.prompt_tokens_carried, row.generation_tokens_carried
    if reads is not None and writes is not None:
        texts.append(
            f"a replica that only reads carries {number(reads, 'prompt tokens/s')}, one that only "
            f"writes {number(writes, 'generated tokens/s')}"
        )
    st.caption(markdown("; ".join(text for text in texts if text)))
    figures_of_one(row, value)
    history = service_history(reader, outlook, settings.serving)
    if history.empty:
        st.caption("What its engine told in the last day is not kept.")
    st.markdown("**Demand against what the replicas there carry**")
    chart(demand_against_capacity(history, outlook), "service-demand")
    st.markdown("**Replicas there and needed**")
    chart(replicas_against_need(history, outlook), "service-replicas")
    if not outlook.rates_q95:
        st.caption(markdown(f"No forecast: {sentence(outlook.reason or 'too little is known')}"))


def value_rows(values: Sequence[TokenValue]) -> pd.DataFrame:
    """Return holders of boards as a table, their sum first."""
    currency = settings.energy.currency
    rows = pd.DataFrame(
        {
            "holder": value.holder,
            "GPU-hours": value.board_hours,
            "energy of GPUs (kWh)": value.gpu_kwh,
            f"cost ({currency})": value.cost,
            "generated tokens": value.generation_tokens,
            "whole hours read": value.known_hours,
            f"tokens per {currency}": value.tokens_per_cost,
            "tokens per joule": value.tokens_per_joule,
            "unknown because": "; ".join(
                dict.fromkeys(filter(None, (value.no_cost, value.no_energy)))
            )
            if value.holder in services_held
            else "",
        }
        for value in values
    )
    sums = rows.iloc[:, 1:4].sum(min_count=1)
    return pd.concat([pd.DataFrame([{"holder": _BOARDS, **sums}]), rows], ignore_index=True)


recording = reader.recording()
now = world.clock() if recording is None else recording.end
services = [] if empty_state() else services_now(now)
services_held = {row.job_id for _outlook, row in services if row.job_id}
if not services and reader.latest_sample_at() is not None:
    finding("No inference service is known.")
    st.info(_NO_ENGINE)
if services:
    listed = [row for _outlook, row in services]
    show_answer(listed)
    table(
        rows_of(listed[:_MAX_ROWS]),
        "services",
        every=lambda: rows_of(listed),
        headings=_HEADINGS,
        links={"job": "jobs?job="},
        opens=lambda place: open_service(listed[place]),
    )
    end = reader.latest_sample_at() or now
    values = cached_token_values(reader, settings, services_held, end=end)
    outlook, row = opened(services)
    show_one(outlook, row, next((value for value in values if value.holder == row.job_id), None))
    if values:
        with st.expander("Tokens, energy and cost of the last 24 whole hours"):
            table(value_rows(values), "tokens")
            st.caption(
                f"The rows add up to {_BOARDS}. Ratios are of the hours in which the engines, and "
                "all GPUs of their replicas, were read in every five minutes; cost is of GPUs "
                "and electricity, as on Account."
            )
