"""Headings of the columns of tables: people's words and the unit.

The rows, and so the files made of them, keep the names that programs read; here alone each is told
in the words of docs/vocabulary.md. A name without an entry is in people's words already.
"""

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

HEADINGS: Mapping[str, str] = {
    # boards and nodes
    "gpu_uuid": "UUID",
    "gpu_index": "GPU",
    "gpu_model": "GPU model",
    "gpus": "GPUs",
    "boards": "GPUs",
    "mig_profiles": "MIG instances",
    "jobs": "allocated to",
    "allocated_ratio": "allocated (%)",
    "used_ratio": "in use (%)",
    "memory_used_mib": "memory used, largest (MiB)",
    "memory_total_mib": "memory (MiB)",
    "power_watts": "power, mean (W)",
    "temperature_celsius": "temperature (°C)",
    "above_usual_celsius": "above its usual (°C)",
    "memory_temperature_celsius": "of memory (°C)",
    "clock_mhz": "SM clock, mean (MHz)",
    "throttled_ratio": "slowed (%)",
    "uncorrected_errors": "memory errors",
    "remapped_rows": "rows remapped",
    "remap_failed": "remapping failed",
    "last_seen_at": "last seen",
    "counter_kwh": "energy counter (kWh)",
    "power_kwh": "power integral (kWh)",
    "jumps": "jumps not believed",
    "xid": "XID",
    "first_seen_at": "first shown",
    "next_step": "what to do",
    # plans
    "job_id": "job",
    "slots": "length (slots)",
    "off_hours": "off (h)",
    "off": "off in slots",
    "lower_bound": "lower bound",
    "gap": "gap (%)",
    "planned_mean": "planned, mean (GPUs)",
    "borrowed_now": "borrowed now (GPUs)",
    "borrowed_mean": "borrowed, mean (GPUs)",
    "lent_mean": "lent, mean (GPUs)",
    # memory of a job that is not sent yet
    "gpu": "GPU model",
    "micro_batch": "micro-batch",
    "p50_gib": "memory, p50 (GiB)",
    "p95_gib": "memory, p95 (GiB)",
    "p99_gib": "memory, p99 (GiB)",
    "usable_gib": "usable of a GPU (GiB)",
    "fit_probability": "fits with a probability of",
    "memory_gib": "of a GPU (GiB)",
    "binding_event": "binding event",
    "speed_per_gpu": "speed per GPU (relative)",
    "speed_is": "speed is",
    "gib": "GiB",
    # energy, savings, runs
    "kWh": "energy (kWh)",
    "kWh, 24 h": "energy, 24 h (kWh)",
    "utilization_ratio": "utilization, 24 h",
    "memory_ratio": "memory of a GPU",
    "hours": "length (h)",
    "throughput": "throughput, of the promise",
    "peak allocated, q90": "peak allocated, q90 (GPUs)",
}
_PERCENT = {"allocated_ratio", "used_ratio", "throttled_ratio", "gap"}
_BARS = {"utilization_ratio", "memory_ratio"}
_WIDTHS = {"limited by": 170}
"""Pixels of columns of a few words, which Streamlit would cut."""
_LARGE = 1_000
_NOTHING = 1e-9
_COST = re.compile(r"cost_([a-z]+)_per_work")


def heading(name: str) -> str:
    """Return the heading of a column on a page."""
    cost = _COST.fullmatch(name)
    return f"cost per work ({cost[1].upper()})" if cost else HEADINGS.get(name, name)


def column_settings(
    rows: pd.DataFrame, *, other: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return Streamlit's settings of a table's columns: heading, shares in %, times in UTC.

    `other` are headings of this table alone: with its currency, or of a word that means something
    else in another table.
    """
    titles = other or {}
    names = [str(name) for name in rows.columns]
    return {name: _column(name, titles.get(name) or heading(name), rows[name]) for name in names}


def _is_large(values: "pd.Series[Any]") -> bool:
    """Return whether separators of thousands make a column readable, and take no digit away."""
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return False
    numbers = values.dropna().astype(float)
    # "localized" keeps three decimals at most: of a small share it would tell nothing.
    is_kept = ((numbers - numbers.round(3)).abs() < _NOTHING).all()
    return bool(len(numbers) and is_kept and numbers.abs().max() >= _LARGE)


def _column(name: str, title: str, values: "pd.Series[Any]") -> Any:
    if pd.api.types.is_datetime64_any_dtype(values):
        form = "YYYY-MM-DD HH:mm:ss" if values.dt.second.any() else "YYYY-MM-DD HH:mm"
        return st.column_config.DatetimeColumn(f"{title} (UTC)", format=form, timezone="UTC")
    if name in _BARS:
        return st.column_config.ProgressColumn(title, format="percent", width=105)
    if name in _PERCENT:
        return st.column_config.NumberColumn(title, format="percent")
    if _is_large(values):
        return st.column_config.NumberColumn(title, format="localized")
    return st.column_config.Column(title, width=_WIDTHS.get(name))
