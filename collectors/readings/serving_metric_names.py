"""Under which names inference engines publish what they serve, and what a reading is in our units.

One row per engine, signal and name. Where releases renamed a metric, the newest name stands first
and the first one that is there is read: releases in between publish both. Names are those of the
engines' own documents: vLLM (V0; V1, which dropped `gpu_` in 2025), SGLang, TGI, Triton and its
TensorRT-LLM backend, trtllm-serve, KServe's model server and Ray Serve. A signal that has no row
for an engine is not read of it and stays unknown, whether the engine publishes it or not.
"""

from dataclasses import dataclass
from enum import StrEnum

_MICRO = 1e-6
_MILLI = 0.001

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


def _metrics(
    engine: str, names: dict[ServingSignal, tuple[str, ...]], factor: float = 1.0
) -> tuple[ServingMetric, ...]:
    return tuple(
        ServingMetric(engine=engine, signal=signal, name=name, factor=factor)
        for signal, choices in names.items()
        for name in choices
    )


_S = ServingSignal
SERVING_METRICS: tuple[ServingMetric, ...] = (
    *_metrics(
        "vllm",
        {
            _S.RUNNING: ("vllm:num_requests_running",),
            _S.WAITING: ("vllm:num_requests_waiting",),
            _S.KV_CACHE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            _S.PROMPT: ("vllm:prompt_tokens",),
            _S.GENERATION: ("vllm:generation_tokens",),
            _S.PREEMPTIONS: ("vllm:num_preemptions",),
            _S.FINISHED: ("vllm:request_success",),
            _S.FIRST_TOKEN: ("vllm:time_to_first_token_seconds",),
            _S.PER_TOKEN: (
                "vllm:inter_token_latency_seconds",
                "vllm:time_per_output_token_seconds",
            ),
            _S.QUEUE_WAIT: ("vllm:request_queue_time_seconds",),
            _S.REQUEST: ("vllm:e2e_request_latency_seconds",),
        },
    ),
    *_metrics(
        "sglang",
        {
            _S.RUNNING: ("sglang:num_running_reqs",),
            _S.WAITING: ("sglang:num_queue_reqs",),
            _S.KV_CACHE: ("sglang:token_usage",),
            _S.PROMPT: ("sglang:prompt_tokens",),
            _S.GENERATION: ("sglang:generation_tokens",),
            _S.FINISHED: ("sglang:e2e_request_latency_seconds_count",),
            # `sglang:num_retracted_reqs` is a gauge that is set back, no total.
            _S.PREEMPTIONS: ("sglang:num_retracted_requests",),
            _S.FIRST_TOKEN: ("sglang:time_to_first_token_seconds",),
            _S.PER_TOKEN: (
                "sglang:inter_token_latency_seconds",
                "sglang:time_per_output_token_seconds",
            ),
            _S.QUEUE_WAIT: ("sglang:queue_time_seconds",),
            _S.REQUEST: ("sglang:e2e_request_latency_seconds",),
        },
    ),
    *_metrics(
        "tgi",
        {
            _S.RUNNING: ("tgi_batch_current_size",),
            _S.WAITING: ("tgi_queue_size",),
            # No counter of tokens: their histograms per request add them up when requests end.
            _S.PROMPT: ("tgi_request_input_length_sum",),
            _S.GENERATION: ("tgi_request_generated_tokens_sum",),
            _S.FINISHED: ("tgi_request_success",),
            _S.PER_TOKEN: ("tgi_request_mean_time_per_token_duration",),
            _S.QUEUE_WAIT: ("tgi_request_queue_duration",),
            _S.REQUEST: ("tgi_request_duration",),
        },
    ),
    *_metrics(
        "trtllm",
        {
            _S.RUNNING: ("trtllm_num_requests_running",),
            _S.WAITING: ("trtllm_num_requests_waiting",),
            _S.KV_CACHE: ("trtllm_kv_cache_utilization",),
            _S.PROMPT: ("trtllm_prompt_tokens",),
            _S.GENERATION: ("trtllm_generation_tokens",),
            _S.FINISHED: ("trtllm_request_success",),
            _S.FIRST_TOKEN: ("trtllm_time_to_first_token_seconds",),
            _S.PER_TOKEN: ("trtllm_time_per_output_token_seconds",),
            _S.QUEUE_WAIT: ("trtllm_request_queue_time_seconds",),
            _S.REQUEST: ("trtllm_e2e_request_latency_seconds",),
        },
    ),
    ServingMetric(
        engine="triton",
        signal=_S.RUNNING,
        name="nv_trt_llm_request_metrics",
        matched=(("request_type", "scheduled"),),
    ),
    ServingMetric(
        engine="triton",
        signal=_S.KV_CACHE,
        name="nv_trt_llm_kv_cache_block_metrics",
        matched=(("kv_cache_block_type", "used"),),
        divided_by=(("kv_cache_block_type", "max"),),
    ),
    ServingMetric(
        engine="triton",
        signal=_S.WAITING,
        name="nv_trt_llm_request_metrics",
        matched=(("request_type", "waiting"),),
    ),
    # Triton's own queue, in front of the backend's: what was handed on is not pending any more.
    ServingMetric(
        engine="triton", signal=_S.WAITING, name="nv_inference_pending_request_count", added=True
    ),
    *_metrics("triton", {_S.FINISHED: ("nv_inference_request_success",)}),
    ServingMetric(
        engine="triton",
        signal=_S.QUEUE_WAIT,
        name="nv_inference_queue_duration_us",
        factor=_MICRO,
        count_name="nv_inference_request_success",
    ),
    ServingMetric(
        engine="triton",
        signal=_S.REQUEST,
        name="nv_inference_request_duration_us",
        factor=_MICRO,
        count_name="nv_inference_request_success",
    ),
    *_metrics(
        "kserve",
        {
            _S.FINISHED: ("request_predict_seconds_count",),
            _S.REQUEST: ("request_predict_seconds",),
        },
    ),
    *_metrics(
        "ray_serve",
        {
            _S.RUNNING: ("ray_serve_replica_processing_queries",),
            _S.WAITING: ("ray_serve_deployment_queued_queries",),
            _S.FINISHED: ("ray_serve_deployment_request_counter",),
        },
    ),
    *_metrics(
        "ray_serve",
        {
            _S.QUEUE_WAIT: ("ray_serve_deployment_queuing_latency_ms",),
            _S.REQUEST: ("ray_serve_deployment_processing_latency_ms",),
        },
        _MILLI,
    ),
)
"""Of one engine and signal the first row with a reading is taken, and what is `added` to it."""

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


SLOT_FUNCTIONS = {
    name: "increase"
    if metric.signal in COUNTERS | HISTOGRAMS
    else ("max" if metric.signal is ServingSignal.KV_CACHE else "avg") + "_over_time"
    for metric in SERVING_METRICS
    for name in series_names(metric)
}
"""Functions of PromQL by which a series stands for a span of time."""
SERVING_NAMES = frozenset(name for metric in SERVING_METRICS for name in series_names(metric))
"""Every series that is read of an engine."""
