"""Under which names inference engines publish what they serve, and what a reading is in our units.

serving_metrics.toml lists them. Where releases renamed a metric, the newest name stands first and
the first one that is there is read: releases in between publish both. Names are those of the
engines' own documents: vLLM (V0; V1, which dropped `gpu_` in 2025), SGLang, TGI, Triton and its
TensorRT-LLM backend, trtllm-serve, KServe's model server and Ray Serve. A signal that has no row
for an engine is not read of it and stays unknown, whether the engine publishes it or not.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

Matched = tuple[tuple[str, str], ...]
"""Labels that a series must have to be the one meant."""


class ServingSignal(StrEnum):
    """The signals that are read of an engine; the value is the field of `ServiceSample`."""

    RUNNING = "running_requests"
    WAITING = "waiting_requests"
    KV_CACHE = "kv_cache_ratio"
    PROMPT = "prompt_tokens_total"
    GENERATION = "generation_tokens_total"
    PREEMPTIONS = "preemptions_total"
    FINISHED = "finished_requests_total"
    FIRST_TOKEN = "first_token_seconds"  # noqa: S105 a signal, no password
    PER_TOKEN = "per_token_seconds"  # noqa: S105 a signal, no password
    QUEUE_WAIT = "queue_wait_seconds"
    REQUEST = "request_seconds"


COUNTERS = frozenset({
    ServingSignal.PROMPT, ServingSignal.GENERATION, ServingSignal.PREEMPTIONS,
    ServingSignal.FINISHED,
})  # fmt: skip
HISTOGRAMS = frozenset({
    ServingSignal.FIRST_TOKEN, ServingSignal.PER_TOKEN, ServingSignal.QUEUE_WAIT,
    ServingSignal.REQUEST,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMetric:
    """One name of one signal; `factor` turns a reading into our unit (s, tokens, 0..1).

    `matched` picks among the series of the name. `divided_by` picks the series of the same name
    that a reading is a share of. `count_name`: the durations stand in two counters, `name` the sum
    and this the number; else `name` is a histogram. `added`: a reading is added to that of the
    rows above, for requests that wait in one place and then in another.
    """

    engine: str
    signal: ServingSignal
    name: str
    factor: float = 1.0
    matched: Matched = ()
    divided_by: Matched = ()
    count_name: str = ""
    added: bool = False


@cache
def serving_metrics() -> tuple[ServingMetric, ...]:
    """Return every row of serving_metrics.toml.

    Of one engine and signal the first with a reading is taken, and what is `added` to it.
    """
    text = files("collectors.readings").joinpath("serving_metrics.toml").read_text("utf-8")
    return tuple(
        _metric(engine, ServingSignal(signal), {"name": row} if isinstance(row, str) else row)
        for engine, signals in tomllib.loads(text).items()
        for signal, rows in signals.items()
        for row in rows
    )


def _metric(engine: str, signal: ServingSignal, row: Mapping[str, Any]) -> ServingMetric:
    labels = {name: tuple(row.get(name, {}).items()) for name in ("matched", "divided_by")}
    return ServingMetric(engine=engine, signal=signal, **{**row, **labels})


MODEL_LABELS = ("model_name", "model", "deployment")
SHARD_LABELS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
"""Shards of one engine report the same requests; data-parallel engines (`dp_rank`) their own."""
SCRAPE_LABELS = ("job", "endpoint", "container", "service", "prometheus", "prometheus_replica")
"""Labels of a scrape by Prometheus and its operator; all scrapes of one engine tell the same."""


def series_names(metric: ServingMetric) -> tuple[str, ...]:
    """Return the names of the series that a row is read from."""
    if metric.signal in COUNTERS:
        # Client libraries disagree whether a counter is shown with its suffix.
        return metric.name, f"{metric.name}_total"
    if metric.signal not in HISTOGRAMS:
        return (metric.name,)
    if metric.count_name:
        return metric.name, metric.count_name
    return tuple(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))


@cache
def slot_functions() -> dict[str, str]:
    """Return the function of PromQL by which each series that is read stands for a span of time."""
    return {
        name: "increase"
        if metric.signal in COUNTERS | HISTOGRAMS
        else ("max" if metric.signal is ServingSignal.KV_CACHE else "avg") + "_over_time"
        for metric in serving_metrics()
        for name in series_names(metric)
    }
