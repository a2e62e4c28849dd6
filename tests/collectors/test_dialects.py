"""Every exporter's dialect says the same fleet; no order of series and no replica shows."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._exporter_dialects import DIALECTS
from collectors.readings.dcgm_readings import DroppedReadings, Series, samples_of
from collectors.readings.device_labels import device_of, holder_of, node_of
from collectors.readings.exposition_text import parse_exposition, read_dcgm_text
from collectors.readings.metric_names import BY_NAME, EXPORTER_OF, EXPORTERS, FIELDS
from collectors.simulated.fleet import SimulatedFleet
from data.catalogue.gpu_catalogue import load_gpu_catalogue

RECORDED = Path(__file__).parents[1] / "recorded" / "dcgm-text"
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
CATALOGUE = load_gpu_catalogue()
METRICS = (
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_FB_USED",
)
WHOLE = {"dcgm-1.x", "nvidia-smi", "jobstats"}
WITHOUT = {
    "dcgm": {"power_limit_watts"},
    "dcgm-renamed-labels": {"power_limit_watts"},
    "dcgm-4.6": set(),
    "dcgm-4.9": set(),
    "dcgm-1.x": {"power_limit_watts"},
    "nvidia-smi": {"energy_joules"},
    "jobstats": {"energy_joules", "power_limit_watts"},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_reads_back_as_the_fleet(dialect: str) -> None:
    """Boards, instances, nodes, indices, memory, power, energy and limits are the fleet's own."""
    truth = SimulatedFleet(seed=7, nodes=1).at_times(np.array([int(AT.timestamp())]))
    if dialect in WHOLE:
        truth = truth[truth["mig_instance"] == ""]
    collected = read_dcgm_text(RECORDED / f"{dialect}.prom", AT, CATALOGUE)
    both = truth.merge(
        collected.samples, on=["gpu_uuid", "mig_instance"], suffixes=("", "_read"), how="outer"
    )
    assert len(both) == len(truth) == len(collected.samples)
    assert both["node"].eq(both["node_read"]).all()
    if dialect != "dcgm-1.x":  # it names no model
        assert both["gpu_model"].eq(both["gpu_model_read"]).all()
    assert both["gpu_index"].eq(both["gpu_index_read"]).all()
    for name in ("memory_used_mib", "memory_total_mib", "power_watts", "energy_joules",
                 "power_limit_watts"):  # fmt: skip
        if name in WITHOUT[dialect]:
            assert both[f"{name}_read"].isna().all(), name
        else:
            assert both[f"{name}_read"].tolist() == pytest.approx(both[name].tolist(), abs=1e-3)
    assert collected.report.dropped == ()


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name.startswith("dcgm")])
def test_holders_survive_every_renaming(dialect: str) -> None:
    """Pods are found as pod, exported_pod and pod_name."""
    truth = SimulatedFleet(seed=7, nodes=1).at_times(np.array([int(AT.timestamp())]))
    held = {row.gpu_uuid: row.job_id for row in truth.itertuples() if not row.mig_instance}
    samples = read_dcgm_text(RECORDED / f"{dialect}.prom", AT, CATALOGUE).samples
    found = {row.gpu_uuid: row.job_id for row in samples.itertuples() if not row.mig_instance}
    kubernetes = {uuid: job for uuid, job in held.items() if not job.startswith("slurm:")}
    assert {uuid: found[uuid] for uuid in kubernetes} == kubernetes
    assert any(kubernetes.values())


def test_a_field_has_one_meaning() -> None:
    """No name stands for two quantities or exporters, no quantity is there twice or nameless."""
    names = [name for exporter in EXPORTERS for name in (*exporter.meanings(), *exporter.infos)]
    assert len(names) == len(set(names)) == len(EXPORTER_OF)
    assert {field.quantity for field, _factor in BY_NAME.values()} == {
        field.quantity for field in FIELDS
    }
    assert len({field.quantity for field in FIELDS}) == len(FIELDS)


@st.composite
def series(draw: st.DrawFn) -> list[Series]:
    """Series of few boards, instances and jobs, which repeat and contradict one another."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        labels = {
            "UUID": draw(st.sampled_from(["GPU-a", "GPU-b"])),
            "GPU_I_ID": draw(st.sampled_from(["", "1", "2"])),
            "hpc_job": draw(st.sampled_from(["", "7", "8"])),
            "Hostname": draw(st.sampled_from(["", "n1", "n2"])),
            "prometheus_replica": draw(st.sampled_from(["a", "b"])),
        }
        times = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
        metric = draw(st.sampled_from(METRICS))
        values = draw(
            st.lists(
                st.sampled_from([0.0, 0.5, 1.0, 400.0, float("nan"), -1.0, 9.3e18]),
                min_size=len(times),
                max_size=len(times),
            )
        )
        found.append(
            Series(
                metric=metric, labels=labels, times=np.array(times, float), values=np.array(values)
            )
        )
    return found


@settings(max_examples=examples(60), deadline=None)
@given(found=series(), data=st.data())
def test_no_order_of_series_shows(found: list[Series], data: st.DataObject) -> None:
    """Any permutation, and every series twice, gives the same frame."""
    shuffled = data.draw(st.permutations(found))
    frames = [
        samples_of(group, CATALOGUE, DroppedReadings())
        for group in (found, shuffled, found + shuffled)
    ]
    key = ["sampled_at", "gpu_uuid", "mig_instance", "job_id"]
    ordered = [frame.sort_values(key).reset_index(drop=True) for frame in frames]
    pd.testing.assert_frame_equal(ordered[0], ordered[1])
    pd.testing.assert_frame_equal(ordered[0], ordered[2])


def test_gpu_util_of_a_mig_instance_is_no_utilization() -> None:
    """The exporter repeats 0 there; engine activity is the instance's own."""
    labels = 'gpu="0",UUID="GPU-a",GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"'
    text = f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 0\nDCGM_FI_DEV_FB_USED{{{labels}}} 10\n"
    samples = samples_of(
        parse_exposition(text, AT, DroppedReadings()), CATALOGUE, DroppedReadings()
    )
    assert samples["utilization_ratio"].isna().all()
    more = text + f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0.25\n"
    samples = samples_of(
        parse_exposition(more, AT, DroppedReadings()), CATALOGUE, DroppedReadings()
    )
    assert samples["utilization_ratio"].tolist() == [0.25]
    assert samples["utilization_signal"].tolist() == ["gr_engine_active"]


@pytest.mark.parametrize("raw", ["<<<NOT_SUPPORTED>>>", "[N/A]", "ERR!", "Unknown"])
def test_words_instead_of_numbers_are_counted(raw: str) -> None:
    """What DCGM and nvidia-smi write for no reading."""
    dropped = DroppedReadings()
    found = list(parse_exposition(f'DCGM_FI_DEV_POWER_USAGE{{UUID="GPU-a"}} {raw}', AT, dropped))
    assert found == []
    assert dropped.as_pairs() == (("no-number", 1),)


@pytest.mark.parametrize(
    ("labels", "board", "instance"),
    [
        ({"UUID": "MIG-GPU-ab12/3/0"}, "GPU-ab12", "3"),
        ({"UUID": "GPU-ab12::2"}, "GPU-ab12", ""),
        ({"uuid": "ab12"}, "GPU-ab12", ""),
        ({"gpu_uuid": "GPU-ab12"}, "GPU-ab12", ""),
        ({"uuid": "MIG-77", "minor_number": "0", "instance": "n1:9445"}, "n1/gpu0", "MIG-77"),
    ],
)
def test_boards_are_found_under_every_uuid(
    labels: dict[str, str], board: str, instance: str
) -> None:
    """Old and new MIG UUIDs, replicas, and exporters that leave the prefix out."""
    device = device_of(labels, CATALOGUE, {})
    assert device is not None
    assert (device.gpu_uuid, device.mig_instance) == (board, instance)


def test_a_series_without_a_board_is_none() -> None:
    """A MIG UUID alone does not tell its board, and nothing is guessed."""
    assert device_of({"uuid": "MIG-77"}, CATALOGUE, {}) is None
    assert device_of({"UUID": " "}, CATALOGUE, {}) is None


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"Hostname": "n1"}, "n1"),
        ({"hostname": "n1", "instance": "10.0.0.1:9400"}, "n1"),
        ({"Hostname": "nvidia-dcgm-exporter-abc", "node": "n1"}, "n1"),
        ({"Hostname": "dcgm-exporter-abc", "instance": "10.0.0.1:9400"}, "10.0.0.1"),
        ({}, ""),
    ],
)
def test_the_node_is_not_the_exporters_pod(labels: dict[str, str], node: str) -> None:
    """Without host naming Hostname is the exporter's own pod."""
    assert node_of(labels) == node


@pytest.mark.parametrize(
    ("labels", "holder"),
    [
        ({"jobid": "42"}, "slurm:42"),
        ({"jobid": "0"}, ""),
        ({"pod_name": "p", "pod_namespace": "n"}, "n/p"),
        ({"exported_pod": "", "pod": "p", "namespace": "n"}, ""),
        ({"pod": "nvidia-gpu-exporter-x", "namespace": "monitoring"}, ""),
        ({"pod": "p", "namespace": "n", "dra_claim_name": "claim"}, "n/p"),
    ],
)
def test_holders_of_every_exporter(labels: dict[str, str], holder: str) -> None:
    """Job 0 is no job, an empty pod is none, and an exporter holds no GPU."""
    assert holder_of(labels) == holder
