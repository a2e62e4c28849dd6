"""What engines say of their requests, in the names that their documents give."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from collectors.readings.dcgm_readings import Dropped, Series
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
    LatencyHistogram,
    ServiceSample,
    read_serving_file,
    service_samples,
)
from dashboard.cli import main
from data.base.errors import UnexpectedAnswerError

AT = datetime(2026, 11, 24, 12, tzinfo=UTC)


def read(*lines: str, dropped: Dropped | None = None) -> tuple[ServiceSample, ...]:
    """The samples of exposition lines."""
    counts = dropped or Dropped()
    return service_samples(
        parse_exposition("\n".join(lines), AT, counts, metrics=slot_functions()), counts
    )


def lines_of(metric: ServingMetric) -> list[str]:
    """Lines that give a row the reading 3, or 3 durations of 2 raw units each."""
    if metric.signal in HISTOGRAMS and metric.count_name:
        return [f"{metric.name} 6", f"{metric.count_name} 3"]
    if metric.signal in HISTOGRAMS:
        bucket, total, count = series_names(metric)
        return [f'{bucket}{{le="4"}} 3', f"{total} 6", f"{count} 3"]
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
        assert reading.mean_seconds == pytest.approx(2 * metric.factor)
        assert all(bound == pytest.approx(4 * metric.factor) for bound, _count in reading.buckets)
    else:
        assert reading == (0.25 if metric.signal is ServingSignal.KV_CACHE else 3)


def test_what_an_engine_does_not_say_is_unknown() -> None:
    """None, never 0; and what says nothing of ours is no sample."""
    (found,) = read('vllm:num_requests_running{model_name="m"} 0')
    assert found.running_requests == 0
    assert found.signals() == ("running_requests",)
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
    assert found.per_token_seconds.mean_seconds == 2
    assert found.queue_wait_seconds is not None
    assert found.queue_wait_seconds.mean_seconds == 4
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
    dropped = Dropped()
    (found,) = read(
        "vllm:num_requests_running -1",
        "vllm:num_requests_waiting NaN",
        "vllm:kv_cache_usage_perc 1.5",
        "vllm:num_preemptions_total 2",
        dropped=dropped,
    )
    assert found.signals() == ("preemptions_total",)
    assert dropped.as_pairs() == (("implausible", 3),)


@pytest.mark.parametrize("at_seconds", [-1.0, 0.0, 1e18, float("nan")])
def test_a_time_that_is_none_is_dropped(at_seconds: float) -> None:
    """As for GPU readings: before 2001 or after 2096."""
    dropped = Dropped()
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


@pytest.mark.parametrize("bound", ["-1", "nan", "NaN", "-inf", "many"])
def test_a_bound_that_is_none_is_dropped_and_counted(bound: str) -> None:
    """A duration is never below 0, and NaN has no place among the others."""
    dropped = Dropped()
    name = "vllm:time_to_first_token_seconds"
    (found,) = read(
        f'{name}_bucket{{le="2"}} 8',
        f'{name}_bucket{{le="{bound}"}} 5',
        f'{name}_bucket{{le="1"}} 4',
        f'{name}_bucket{{le="+Inf"}} 8',
        dropped=dropped,
    )
    assert found.first_token_seconds is not None
    assert found.first_token_seconds.buckets == ((1.0, 4), (2.0, 8))
    assert found.first_token_seconds.quantile_seconds(0.25) == pytest.approx(0.5)
    assert dropped.as_pairs() == (("implausible", 1),)


def test_a_quantile_is_known_as_far_as_buckets_reach() -> None:
    """Linear within a bucket; beyond the last bound it is unknown."""
    found = LatencyHistogram(count=10, sum_seconds=None, buckets=((1.0, 2), (3.0, 6)))
    assert found.quantile_seconds(0.1) == pytest.approx(0.5)
    assert found.quantile_seconds(0.4) == pytest.approx(2.0)
    assert found.quantile_seconds(0.6) == pytest.approx(3.0)
    assert found.quantile_seconds(0.7) is None
    assert found.mean_seconds is None
    assert LatencyHistogram(count=0, sum_seconds=0, buckets=()).quantile_seconds(0.5) is None


def test_the_answer_of_prometheus_gives_the_same(tmp_path: Path) -> None:
    """A vector of the query API, with its own time."""
    answer = {
        "status": "success",
        "data": {
            "resultType": "vector",
            "result": [
                {
                    "metric": {"__name__": "sglang:num_queue_reqs", "pod": "s-0", "namespace": "n"},
                    "value": [1767614400.0, "12"],
                }
            ],
        },
    }
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer), encoding="utf-8")
    (found,) = read_serving_file(path, Dropped())
    assert (found.engine, found.job_id, found.waiting_requests) == ("sglang", "n/s-0", 12)
    assert found.sampled_at == datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_a_file_of_no_engine_is_refused(tmp_path: Path) -> None:
    """The file is named, and what would be read."""
    path = tmp_path / "node.prom"
    path.write_text("node_load1 0.5\n", encoding="utf-8")
    with pytest.raises(UnexpectedAnswerError, match=r"node\.prom holds no metric") as error:
        read_serving_file(path, Dropped())
    assert "vLLM" in str(error.value.hint)


@pytest.mark.parametrize("written", [0, -1, 5_000_000_000])
def test_a_file_of_an_impossible_time_is_read_as_of_now(tmp_path: Path, written: int) -> None:
    """Archives and images give files a time of 0: their readings are good."""
    path = tmp_path / "vllm.prom"
    path.write_text("vllm:num_requests_waiting 4\n", encoding="utf-8")
    os.utime(path, (written, written))
    (found,) = read_serving_file(path, Dropped())
    assert found.waiting_requests == 4
    assert found.sampled_at > datetime(2026, 1, 1, tzinfo=UTC)


def test_a_file_whose_readings_are_all_dropped_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine is known, its readings are none; what an earlier file dropped is not its own."""
    broken, good = tmp_path / "broken.prom", tmp_path / "good.prom"
    broken.write_text(
        "vllm:num_requests_running -1\nvllm:num_requests_waiting NaN\n", encoding="utf-8"
    )
    good.write_text("vllm:num_requests_running -1\nvllm:num_requests_waiting 3\n", encoding="utf-8")
    assert main(["serving", "signals", str(good), str(broken)]) == 1
    said = capsys.readouterr().err
    assert (
        "broken.prom holds no usable reading of an inference engine; dropped: 2 implausible" in said
    )
    assert "is known" not in said


def test_pod_and_address_have_columns_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scraped address is no job."""
    path = tmp_path / "vllm.prom"
    path.write_text(
        'vllm:num_requests_waiting{instance="10.0.0.7:8000"} 3\n'
        'vllm:num_requests_waiting{namespace="ml",pod="a-1"} 2\n',
        encoding="utf-8",
    )
    assert main(["serving", "signals", str(path), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["job"], row["address"]) for row in rows] == [
        (None, "10.0.0.7:8000"), ("ml/a-1", None),
    ]  # fmt: skip


def test_the_command_prints_a_row_per_replica(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown is null, and what was dropped is said."""
    path = tmp_path / "vllm.prom"
    path.write_text(
        'vllm:num_requests_waiting{model_name="m"} 4\n'
        'vllm:num_requests_running{model_name="m"} -1\n'
        'vllm:time_to_first_token_seconds_sum{model_name="m"} 3\n'
        'vllm:time_to_first_token_seconds_count{model_name="m"} 6\n',
        encoding="utf-8",
    )
    assert main(["serving", "signals", str(path), "--format", "json"]) == 0
    said = capsys.readouterr()
    (row,) = json.loads(said.out)
    assert (row["waiting"], row["running"], row["first_token_mean_s"]) == (4, None, 0.5)
    assert row["first_token_p95_s"] is None
    assert "dropped: 1 implausible" in said.err


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
            f'vllm:e2e_request_latency_seconds_bucket{{le="4",{labels}}} 90',
        ]
    dropped = Dropped()
    (found,) = read(*lines, dropped=dropped)
    assert (found.running_requests, found.finished_requests_total) == (8, 100)
    durations = found.request_seconds
    assert durations is not None
    assert (durations.count, durations.sum_seconds, durations.buckets) == (100, 300, ((4.0, 90),))


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
