"""What engines say of their requests, in the names that their documents give."""

from datetime import UTC, datetime

import numpy as np
import pytest

from collectors.readings.dcgm_readings import DroppedReadings, Series
from collectors.readings.exposition_text import parse_exposition
from collectors.readings.serving_metric_names import (
    HISTOGRAMS,
    ServingMetric,
    ServingSignal,
    series_names,
    serving_metrics,
    slot_functions,
)
from collectors.readings.serving_signals import (
    ServiceSample,
    service_samples,
)

AT = datetime(2026, 11, 24, 12, tzinfo=UTC)


def read(*lines: str, dropped: DroppedReadings | None = None) -> tuple[ServiceSample, ...]:
    """The samples of exposition lines."""
    counts = dropped or DroppedReadings()
    return service_samples(
        parse_exposition("\n".join(lines), AT, counts, metrics=slot_functions()), counts
    )


def known_signals(sample: ServiceSample) -> list[str]:
    """The names of the signals with a reading."""
    return [str(signal) for signal in ServingSignal if getattr(sample, signal) is not None]


def lines_of(metric: ServingMetric) -> list[str]:
    """Lines that give a row the reading 3, or 3 durations of 2 raw units each."""
    if metric.signal in HISTOGRAMS and metric.count_name:
        return [f"{metric.name} 6", f"{metric.count_name} 3"]
    if metric.signal in HISTOGRAMS:
        _bucket, total, count = series_names(metric)
        return [f"{total} 6", f"{count} 3"]
    labels = [
        ",".join(f'{name}="{value}"' for name, value in matched)
        for matched in (metric.matched, metric.divided_by)
    ]
    if metric.divided_by:
        return [f"{metric.name}{{{labels[0]}}} 1", f"{metric.name}{{{labels[1]}}} 4"]
    if metric.signal is ServingSignal.KV_CACHE:
        return [f"{metric.name} 0.25"]
    return [f"{metric.name}{{{labels[0]}}} 3"]


@pytest.mark.parametrize("metric", serving_metrics(), ids=lambda metric: metric.name)
def test_every_row_is_read_alone_in_its_unit(metric: ServingMetric) -> None:
    """No row depends on another, and durations are in seconds."""
    (found,) = (sample for sample in read(*lines_of(metric)) if sample.engine == metric.engine)
    reading = getattr(found, str(metric.signal))
    if metric.signal in HISTOGRAMS:
        assert reading.count == 3
        assert reading.sum_seconds == pytest.approx(6 * metric.factor)
    else:
        assert reading == (0.25 if metric.signal is ServingSignal.KV_CACHE else 3)


def test_what_an_engine_does_not_say_is_unknown() -> None:
    """None, never 0; and what says nothing of ours is no sample."""
    (found,) = read('vllm:num_requests_running{model_name="m"} 0')
    assert found.running_requests == 0
    assert known_signals(found) == ["running_requests"]
    assert found.waiting_requests is None
    assert read("vllm:iteration_tokens_total_sum 9", "up 1") == ()


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_a_renamed_metric_the_newest_name_is_read(*, newest_first: bool) -> None:
    """Releases in between publish both: they are one, whatever stands first."""
    lines = ["vllm:kv_cache_usage_perc 0.5", "vllm:gpu_cache_usage_perc 0.4"]
    (found,) = read(*(lines if newest_first else lines[::-1]))
    assert found.kv_cache_ratio == 0.5
    assert read(lines[1])[0].kv_cache_ratio == 0.4


def test_what_waits_before_and_in_the_tensorrt_backend_adds_up() -> None:
    """Triton hands requests on at once: its own pending count is 0 while its backend's wait."""
    backend = 'nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"}'
    pending = 'nv_inference_pending_request_count{model="m",version="1"}'
    other = 'nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 5'
    assert read(f"{backend} 7", f"{pending} 0", other)[0].waiting_requests == 7
    assert read(f"{backend} 7", f"{pending} 2", other)[0].waiting_requests == 9
    assert read(f"{pending} 2", other)[0].waiting_requests == 2


def test_newer_names_of_sglang_and_the_tokens_of_trtllm_serve_are_read() -> None:
    """Published, so never unknown; the gauge of requests retracted just now is no total."""
    (found,) = read(
        "sglang:inter_token_latency_seconds_sum 6",
        "sglang:inter_token_latency_seconds_count 3",
        "sglang:time_per_output_token_seconds_sum 9",
        "sglang:time_per_output_token_seconds_count 3",
        "sglang:queue_time_seconds_sum 4",
        "sglang:queue_time_seconds_count 1",
        "sglang:num_retracted_requests_total 5",
        "sglang:num_retracted_reqs 1",
    )
    assert found.per_token_seconds is not None
    assert found.per_token_seconds.sum_seconds == 6
    assert found.queue_wait_seconds is not None
    assert found.queue_wait_seconds.sum_seconds == 4
    assert found.preemptions_total == 5
    (served,) = read("trtllm_prompt_tokens_total 7", "trtllm_generation_tokens_total 8")
    assert (served.prompt_tokens_total, served.generation_tokens_total) == (7, 8)


def test_a_counter_under_both_names_is_one() -> None:
    """With and without `_total`."""
    (found,) = read("vllm:prompt_tokens_total 7", "vllm:prompt_tokens 7")
    assert found.prompt_tokens_total == 7


def test_engines_behind_one_address_add_up_and_shards_do_not() -> None:
    """Data-parallel engines have requests of their own; tensor-parallel ranks report the same."""
    (found,) = read(
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 5',
        'sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 5',
        'sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 2',
        'sglang:token_usage{dp_rank="0"} 0.2',
        'sglang:token_usage{dp_rank="1"} 0.9',
    )
    assert (found.running_requests, found.kv_cache_ratio) == (7, 0.9)


def test_replicas_are_told_apart_and_named_as_gpu_samples_name_them() -> None:
    """By model, pod and address; `exported_pod` is the workload, as for GPU series."""
    found = read(
        'vllm:num_requests_waiting{exported_namespace="ml",exported_pod="a-0",pod="x"} 1',
        'vllm:num_requests_waiting{namespace="ml",pod="a-1"} 2',
        'vllm:num_requests_waiting{instance="10.0.0.7:8000"} 3',
    )
    assert [(sample.job_id, sample.address, sample.waiting_requests) for sample in found] == [
        ("", "10.0.0.7:8000", 3), ("ml/a-0", "", 1), ("ml/a-1", "", 2),
    ]  # fmt: skip


def test_what_cannot_be_a_reading_is_dropped_and_counted() -> None:
    """A sentinel of -1, NaN, a cache fuller than full; the rest is kept."""
    dropped = DroppedReadings()
    (found,) = read(
        "vllm:num_requests_running -1",
        "vllm:num_requests_waiting NaN",
        "vllm:kv_cache_usage_perc 1.5",
        "vllm:num_preemptions_total 2",
        dropped=dropped,
    )
    assert known_signals(found) == ["preemptions_total"]
    assert dropped.as_pairs() == (("implausible", 3),)


@pytest.mark.parametrize("at_seconds", [-1.0, 0.0, 1e18, float("nan")])
def test_a_time_that_is_none_is_dropped(at_seconds: float) -> None:
    """As for GPU readings: before 2001 or after 2096."""
    dropped = DroppedReadings()
    series = Series(
        metric="tgi_queue_size",
        labels={},
        times=np.array([at_seconds]),
        values=np.array([1.0]),
    )
    assert service_samples([series], dropped) == ()
    assert dropped.as_pairs() == (("implausible", 1),)


def test_a_cache_without_blocks_has_no_ratio() -> None:
    """Used of a maximum of 0 is unknown."""
    name = "nv_trt_llm_kv_cache_block_metrics"
    used = f'{name}{{kv_cache_block_type="used"}} 0'
    assert read(used, f'{name}{{kv_cache_block_type="max"}} 0') == ()
    assert read(used) == ()


def test_a_cache_that_is_full_but_for_rounding_is_full() -> None:
    """Sums of floats end a little above 1; what is more than that is no ratio."""
    assert read("vllm:kv_cache_usage_perc 1.0000001")[0].kv_cache_ratio == 1.0
    assert read("vllm:kv_cache_usage_perc 1.00001") == ()


TWICE = ('job="vllm",endpoint="http"', 'job="podmonitor/chat",container="server",team="search"')
"""One pod by two jobs of Prometheus, of which one adds a label of its own."""


@pytest.mark.parametrize("place", ['pod="chat-0",namespace="ml",', 'instance="10.0.0.7:8000",'])
def test_an_engine_that_two_jobs_scrape_counts_once(place: str) -> None:
    """Its data-parallel engines and reasons of ending add up within a scrape, not over them."""
    lines = []
    for number, scrape in enumerate(TWICE):
        labels = f"{place}{scrape}"
        lines += [
            f'vllm:num_requests_running{{engine="0",{labels}}} {5 + number}',
            f'vllm:num_requests_running{{engine="1",{labels}}} 2',
            f'vllm:request_success_total{{finished_reason="stop",{labels}}} 40',
            f'vllm:request_success_total{{finished_reason="length",{labels}}} 60',
            f"vllm:e2e_request_latency_seconds_sum{{{labels}}} 300",
            f"vllm:e2e_request_latency_seconds_count{{{labels}}} 100",
        ]
    dropped = DroppedReadings()
    (found,) = read(*lines, dropped=dropped)
    assert (found.running_requests, found.finished_requests_total) == (8, 100)
    durations = found.request_seconds
    assert durations is not None
    assert (durations.count, durations.sum_seconds) == (100, 300)


def test_engines_of_which_no_place_is_told_are_not_one() -> None:
    """A saved text of two jobs, without pod and address: nothing says that they are the same."""
    lines = [f"vllm:num_requests_running{{{scrape}}} 4" for scrape in TWICE]
    assert read(*lines)[0].running_requests == 8


def test_a_container_of_another_port_is_an_engine_of_its_own() -> None:
    """Two engines of one pod have two addresses."""
    labels = 'pod="chat-0",namespace="ml",job="vllm"'
    found = read(
        f'vllm:num_requests_running{{{labels},container="a",instance="10.0.0.7:8000"}} 4',
        f'vllm:num_requests_running{{{labels},container="b",instance="10.0.0.7:8001"}} 4',
    )
    assert [sample.running_requests for sample in found] == [4, 4]
