"""Benchmarks read folders whose series are short and of unequal lengths."""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._rightsizing_peaks import peak_tables
from benchmarks.demand_sets import HELIOS_SUMS
from benchmarks.forecast_pods import pod_tables


def keep_short_pods(data: Path) -> None:
    """Keep pods of one to three hours in the layout of the recorded ones."""
    pods = [
        pd.DataFrame({"pod": f"pod-{length}", "t_est_real_s": np.arange(length) * 300})
        for length in (12, 24, 36)
    ]
    pd.concat(pods).assign(gpu_util_pct=50.0, gpu_mem_used_bytes=2.0**30).to_parquet(
        data / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet"
    )


def test_series_too_short_for_a_window_are_named_and_not_judged(tmp_path: Path) -> None:
    """Ten days of a cluster, nine of Helios less two hours, and pods of one to three hours."""
    for name in ("philly", "helios_venus", "alibaba_genai_pods"):
        (tmp_path / name).mkdir()
    hours = pd.date_range("2017-10-02", periods=240, freq="h")
    pd.DataFrame({"hour": hours, "gpu_demand": 4.0, "cluster": "a"}).to_parquet(
        tmp_path / "philly" / "hourly_gpu_demand_by_vc.parquet"
    )
    times = pd.date_range("2020-04-01", periods=9 * 144 - 12, freq="10min")
    pd.DataFrame({"time": times} | dict.fromkeys((*HELIOS_SUMS, "running_gpu_est"), 3)).to_parquet(
        tmp_path / "helios_venus" / "venus_10min.parquet"
    )
    keep_short_pods(tmp_path)
    lines, said = peak_tables(tmp_path)
    assert [line for line in lines if line.endswith("| 0 | – | – |")] == lines[-5:]
    assert len(said) == 5
    assert all(line.endswith("not judged, no series is long enough") for line in said)


def test_pods_too_short_to_forecast_are_not_judged(tmp_path: Path) -> None:
    """Every table has its rows, with a dash for what no pod is long enough for."""
    (tmp_path / "alibaba_genai_pods").mkdir()
    keep_short_pods(tmp_path)
    rows = [line for line in pod_tables(tmp_path) if "| 0 | –" in line]
    assert len(rows) == 14
