"""MIG instances as exporters name them: by label, by an info series, by a number on the node."""

from datetime import UTC, datetime

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.readings.dcgm_readings import DroppedReadings, samples_of
from collectors.readings.device_labels import device_of
from collectors.readings.exposition_text import parse_exposition
from data.catalogue.gpu_catalogue import load_gpu_catalogue

AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
CATALOGUE = load_gpu_catalogue()
SMI = (
    'nvidia_smi_gpu_info{uuid="ab12",name="NVIDIA H100 80GB HBM3",index="3"} 1',
    'nvidia_smi_gpu_info{uuid="ab12",name="NVIDIA H100 80GB HBM3",index="2"} 1',
    'nvidia_smi_mig_info{uuid="ab12",gpu_instance_id="2",mig_uuid="x",profile="1c.3g.40gb"} 1',
    'nvidia_smi_mig_info{uuid="ab12",gpu_instance_id="2",mig_uuid="y",profile="1c.3g.40gb"} 1',
    'nvidia_smi_mig_memory_used_bytes{uuid="ab12",gpu_instance_id="2"} 1.048576e+07',
    'nvidia_smi_mig_memory_total_bytes{uuid="ab12",gpu_instance_id="2"} 1.048576e+08',
    'nvidia_smi_memory_used_bytes{uuid="ab12"} 2.097152e+07',
    'nvidia_smi_power_draw_watts{uuid="ab12"} 300',
    'nvidia_smi_energy_joules_total{uuid="ab12"} 5000',
)


def samples(lines: tuple[str, ...]) -> pd.DataFrame:
    """The samples of exposition lines, by instance."""
    dropped = DroppedReadings()
    found = samples_of(parse_exposition("\n".join(lines), AT, dropped), CATALOGUE, dropped)
    assert dropped.as_pairs() == ()
    return found.set_index("mig_instance").sort_index()


def test_memory_of_an_instance_is_not_the_boards() -> None:
    """nvidia_gpu_exporter names the instance by a label, its profile on an info series."""
    found = samples(SMI)
    assert found.index.tolist() == ["", "2"]
    assert found["gpu_uuid"].tolist() == ["GPU-ab12"] * 2
    assert found["gpu_model"].tolist() == ["H100-SXM5-80GB"] * 2
    assert found["memory_used_mib"].tolist() == [20.0, 10.0]
    assert found["memory_total_mib"].iloc[1] == 100.0
    assert found["mig_profile"].tolist() == ["", "3g.40gb"]
    assert found.loc["", ["power_watts", "energy_joules"]].tolist() == [300.0, 5000.0]
    assert found.loc["2", ["power_watts", "energy_joules"]].isna().all()


@given(st.permutations(SMI))
def test_no_order_of_info_series_shows(lines: list[str]) -> None:
    """Not even where two of them contradict one another."""
    pd.testing.assert_frame_equal(samples(tuple(lines)), samples(SMI))


@pytest.mark.parametrize("uuid", ["nvidia0/gi1/vgpu0", "nvidia0/gi1"])
def test_a_numbered_instance_is_one_of_its_node(uuid: str) -> None:
    """The number of a board means nothing without the node."""
    device = device_of({"UUID": uuid, "node": "n1"}, CATALOGUE, {})
    assert device is not None
    assert (device.gpu_uuid, device.mig_instance, device.gpu_index) == ("n1/gpu0", "1", "0")
    assert device_of({"UUID": uuid}, CATALOGUE, {}) is None
