"""What jobs say of their progress through Kubernetes and Prometheus, and what is no progress."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beds.faulty_server import answers_series, faulty_server
from beds.prometheus import backfill, running_prometheus
from hypothesis import given
from hypothesis import strategies as st

from collectors.kubernetes.client import Inventory
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.readings.dcgm_readings import DroppedReadings, Series
from collectors.readings.reported_progress import IMPLAUSIBLE, progress_of, share_done
from collectors.shared.collector import Window
from data.base.errors import SettingsError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import PrometheusSettings

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
TOLD = "2026-01-05T11:58:00Z"
NOTE = "trainer.opendatahub.io/trainerStatus"
_ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
)


class Reading:
    """A cluster with one workload and its pod, read already."""

    name = "bed"

    def __init__(self, kind: str, document: dict[str, Any]) -> None:
        pod = {
            "metadata": {
                "name": "p", "namespace": "ml", "uid": "u",
                "ownerReferences": [{"kind": kind, "name": "w", "controller": True}],
            },
            "spec": {
                "nodeName": "n1",
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            "status": {"phase": "Running", "startTime": "2026-01-05T10:00:00Z"},
        }  # fmt: skip
        about = {"name": "w", "namespace": "ml"} | document.pop("metadata", {})
        self.found = Inventory(objects={"Pod": [pod], kind: [{"metadata": about} | document]})

    def inventory(self) -> Inventory:
        """Return it."""
        return self.found


def told(kind: str, **document: Any) -> Collected:
    """What the collector makes of such a workload."""
    collector = KubernetesCollector(Reading(kind, document), load_gpu_catalogue())  # type: ignore[arg-type]
    return collector.collect(Window(start=NOW - timedelta(hours=1), end=NOW))


def only(collected: Collected) -> tuple[str, datetime, float]:
    """The only report."""
    (row,) = collected.progress.to_dict("records")
    return row["label_id"], row["reported_at"].to_pydatetime(), row["done_ratio"]


def test_kubeflow_trainer_tells_per_cent() -> None:
    """Field names of TrainerStatus, trainer.kubeflow.org/v1alpha1 (KEP 2779)."""
    status = {"progressPercentage": 45, "estimatedRemainingSeconds": 7, "lastUpdatedTime": TOLD}
    found = only(told("TrainJob", status={"trainerStatus": status}))
    assert found == ("ml/trainjob/w", NOW - timedelta(minutes=2), 0.45)


def test_open_data_hub_tells_steps_in_an_annotation() -> None:
    """Steps of all steps are finer than per cent; field names of its AnnotationStatus."""
    status = {
        "progressPercentage": 12, "currentStep": 1234, "totalSteps": 10_000,
        "lastUpdatedTime": TOLD,
    }  # fmt: skip
    found = told("TrainJob", metadata={"annotations": {NOTE: json.dumps(status)}})
    assert only(found)[2] == 0.1234


@pytest.mark.parametrize(
    ("spec", "share"),
    [
        ({"completions": 8, "parallelism": 2}, 0.375),
        ({"completions": 8}, 0.375),
        ({"completions": 8, "parallelism": 8, "completionMode": "Indexed"}, None),
        ({"parallelism": 2}, None),
        ({"completions": 8, "parallelism": 2, "successPolicy": {"rules": []}}, None),
        ({"completions": 2, "parallelism": 1}, None),
    ],
)
def test_a_job_counts_its_completions(spec: dict[str, Any], share: float | None) -> None:
    """Where they are done one after the other; more than all of them is none."""
    frame = told("Job", spec=spec, status={"succeeded": 3}).progress
    assert list(frame["done_ratio"]) == ([] if share is None else [share])


@pytest.mark.parametrize(
    "status",
    [
        {"progressPercentage": 101}, {"progressPercentage": -1}, {"progressPercentage": "45"},
        {"progressPercentage": True}, {"progressPercentage": float("nan")},
        {"currentStep": 1, "totalSteps": 0}, {"currentStep": 9, "totalSteps": 5},
        {"currentStep": None, "totalSteps": 5},
        {"progressPercentage": 45, "lastUpdatedTime": "2026-01-05T12:06:00Z"},
    ],
)  # fmt: skip
def test_what_is_no_share_is_dropped_and_counted(status: dict[str, Any]) -> None:
    """A total of 0, steps above their total, other types, and a clock that is ahead."""
    found = told("TrainJob", status={"trainerStatus": {"lastUpdatedTime": TOLD} | status})
    assert found.progress.empty
    assert dict(found.report.dropped)[IMPLAUSIBLE] == 1


@given(_ANY, st.one_of(st.text(), st.just("[" * 99_999), _ANY.map(json.dumps)))
@pytest.mark.usefixtures("no_garbage")
def test_no_status_or_annotation_breaks_a_collection(status: Any, note: str) -> None:
    """Whatever stands there, the job is known and a share lies within 0 and 1."""
    found = told(
        "TrainJob", metadata={"annotations": {NOTE: note}}, status={"trainerStatus": status}
    )
    assert [job.job_id for job in found.jobs] == ["ml/trainjob/w"]
    assert found.progress["done_ratio"].between(0, 1).all()


@given(_ANY, _ANY)
def test_a_share_of_anything_is_none_or_a_share(done: Any, total: Any) -> None:
    """Also of infinite, huge and negative numbers."""
    share = share_done(done, total)
    assert share is None or 0 <= share <= 1


def series(values: list[float], **labels: str) -> Series:
    """A series of five-minute readings up to NOW."""
    times = NOW.timestamp() - 300.0 * np.arange(len(values))[::-1]
    return Series(metric="m", labels=labels, times=times, values=np.array(values))


def test_two_metrics_of_equal_labels_make_a_share() -> None:
    """Ranks of one pod report the same: the furthest tells; a total of 0 is counted."""
    pod = {"namespace": "ml", "pod": "p"}
    dropped = DroppedReadings()
    frame = progress_of(
        [series([10.0, 20.0], rank="0", **pod), series([10.0, 19.0], rank="1", **pod)],
        [series([0.0, 100.0], rank="0", **pod), series([0.0, 100.0], rank="1", **pod)],
        dropped,
    )
    assert frame.drop(columns="checkpoint_at").to_dict("records") == [
        {"label_id": "ml/p", "reported_at": pd.Timestamp(NOW), "done_ratio": 0.2}
    ]
    assert dropped.counts == {IMPLAUSIBLE: 2}


def test_a_metric_alone_is_a_share_and_needs_a_holder() -> None:
    """NaN and above 1 are none; a series that names no job tells nothing."""
    dropped = DroppedReadings()
    frame = progress_of(
        [series([0.25, float("nan"), 1.5], hpc_job="7"), series([0.5])], None, dropped
    )
    assert list(frame["label_id"]) == ["slurm:7"]
    assert list(frame["done_ratio"]) == [0.25]
    assert dropped.counts == {IMPLAUSIBLE: 2, "progress-of-nobody": 1}


def test_a_checkpoint_is_a_time_before_it_was_told() -> None:
    """Seconds of Unix; 0 says that none was written yet, the future or milliseconds are no time."""
    at = NOW.timestamp()
    dropped = DroppedReadings()
    times = [0.0, at - 900, at + 60, 1000 * at, float("nan")]
    frame = progress_of(
        [series([0.2], namespace="ml", pod="p")],
        None,
        dropped,
        [series(times, hpc_job="7"), series([at - 60], namespace="ml", pod="p"), series([at])],
    )
    told = {
        row.label_id: (row.checkpoint_at, row.done_ratio)
        for row in frame.itertuples()
        if not pd.isna(row.checkpoint_at)
    }
    assert told["ml/p"] == (pd.Timestamp(NOW) - pd.Timedelta("1min"), 0.2)
    assert told["slurm:7"][0] == pd.Timestamp(NOW) - pd.Timedelta("15min")
    assert np.isnan(told["slurm:7"][1])
    assert len(frame) == 2
    assert dropped.counts == {IMPLAUSIBLE: 3, "progress-of-nobody": 1}


def test_metrics_are_asked_for_by_the_names_of_the_settings() -> None:
    """Once each where both are there, and not at all where the server has none."""
    power, pair = "DCGM_FI_DEV_POWER_USAGE", ("steps_done", "steps_in_all")
    board = {"UUID": "GPU-0", "Hostname": "n1", "namespace": "ml", "pod": "p"}
    answered = {"metric": board, "values": [[NOW.timestamp(), "300.0"]]}
    for names, asked in (((power,), 0), ((power, *pair), 2), ((power, "saved_steps_at"), 1)):
        with faulty_server(answers_series(answered), names=names) as server:
            settings = PrometheusSettings(
                url=server.url,
                progress_metric=pair[0],
                progress_total_metric=pair[1],
                checkpoint_metric="saved_steps_at",
            )
            collector = PrometheusDcgmCollector(
                PrometheusClient(settings), settings, load_gpu_catalogue()
            )
            found = collector.collect(Window(start=NOW - timedelta(minutes=30), end=NOW))
            assert sum("steps_" in text for text in map(str, server.asked)) == asked
        assert list(found.progress["done_ratio"]) == [1.0] * (asked // 2)


@pytest.mark.prometheus
def test_a_real_prometheus_tells_steps_at_the_ends_of_slots(tmp_path: Path) -> None:
    """A step every six seconds of 10,000, and none in the slot in which the job was not there."""
    labels = '{namespace="ml",pod="p"}'
    seconds = [number for number in range(0, 1801, 15) if not 885 < number < 1500]

    def lines() -> Iterator[str]:
        for name, value in (
            ("steps", None),
            ("steps_in_all", 10_000),
            ("DCGM_FI_DEV_POWER_USAGE", 300),
        ):
            yield f"# TYPE {name} gauge\n"
            for number in seconds:
                at = NOW.timestamp() - 1800 + number
                yield f"{name}{labels} {number / 6 if value is None else value} {at}\n"
        yield "# EOF\n"

    backfill(lines(), tmp_path)
    with running_prometheus(tmp_path) as url:
        settings = PrometheusSettings(
            url=url, progress_metric="steps", progress_total_metric="steps_in_all"
        )
        collector = PrometheusDcgmCollector(
            PrometheusClient(settings), settings, load_gpu_catalogue()
        )
        found = collector.collect(Window(start=NOW - timedelta(minutes=30), end=NOW)).progress
    assert set(found["label_id"]) == {"ml/p"}
    assert list(found["done_ratio"] * 60_000) == pytest.approx([300, 600, 885, 1500, 1800])


@pytest.mark.prometheus
def test_a_real_prometheus_tells_the_last_checkpoint(tmp_path: Path) -> None:
    """A job writes one every 10 min and tells its time, and no progress."""

    def lines() -> Iterator[str]:
        for name in ("saved_at", "DCGM_FI_DEV_POWER_USAGE"):
            yield f"# TYPE {name} gauge\n"
            for number in range(0, 1801, 15):
                at = NOW.timestamp() - 1800 + number
                value = at // 600 * 600 if name == "saved_at" else 300
                yield f'{name}{{namespace="ml",pod="p"}} {value} {at}\n'
        yield "# EOF\n"

    backfill(lines(), tmp_path)
    with running_prometheus(tmp_path) as url:
        settings = PrometheusSettings(url=url, checkpoint_metric="saved_at")
        collector = PrometheusDcgmCollector(
            PrometheusClient(settings), settings, load_gpu_catalogue()
        )
        found = collector.collect(Window(start=NOW - timedelta(minutes=30), end=NOW)).progress
    since = [NOW - at for at in found["checkpoint_at"]]
    assert [age / timedelta(minutes=1) for age in since] == [30, 20, 20, 10, 10, 0]
    assert found["done_ratio"].isna().all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("progress_metric", "a{b}"),
        ("progress_metric", "1a"),
        ("progress_total_metric", "total"),
        ("checkpoint_metric", "a b"),
    ],
)
def test_a_wrong_name_is_refused_with_the_setting_and_its_value(name: str, value: str) -> None:
    """A total needs the metric that it is the total of."""
    with pytest.raises(SettingsError, match=f"prometheus.{name} is '{value}'"):
        PrometheusSettings(**{name: value})  # type: ignore[arg-type]
