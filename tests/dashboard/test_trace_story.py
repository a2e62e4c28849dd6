"""A recorded trace becomes forecasts, a plan and recommendations that can be followed back.

The trace has the layout of the Alibaba GenAI pod trace (docs/examples/alibaba-genai.toml); the
real one is read as well where it lies beside the repository.
"""

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from dashboard.cli import main

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs/examples/alibaba-genai.toml"
REAL = ROOT.parent / "shared/data/alibaba_genai_pods/pod_gpu_timeseries.parquet"

_UNUSED = """
with slots as (
    select job_id, time_bucket(interval 15 minute, sampled_at) as slot,
        max(utilization_ratio) > 0.05 as busy
    from samples group by all
), pods as (
    select job_id, min(slot) as first, max(slot) as last, sum(busy::int) as busy_slots,
        max(slot) filter (busy) as worked_at
    from slots group by all
)
select job_id from pods, (select max(slot) as now from slots)
where last >= now - interval 15 minute and first <= now - interval 22 hour and busy_slots < 4
    and (worked_at is null or worked_at < now - interval 4 hour)
"""
"""The services that did nothing for their day and for its last four hours, by hand."""


def generated_trace(path: Path) -> Path:
    """Twelve pods for a day at one minute: busy, bursty, idle, gappy and very short ones."""
    rng = np.random.default_rng(5)
    frames = []
    for index in range(12):
        minutes = np.arange(2 if index == 11 else 1440)
        level = 0.0 if index % 3 == 0 else 8.0 * index
        util = np.clip(level + rng.normal(0, 6, len(minutes)) * (level > 0), 0, 100)
        if index == 4:
            util[100:400] = np.nan
        memory = np.full(len(minutes), (2 + index) * 1024.0**3)
        frames.append(
            pd.DataFrame(
                {
                    "pod": f"{index:012x}",
                    "t_anon_s": (minutes * 57).astype("int32"),
                    "t_est_real_s": (minutes * 60).astype("int32"),
                    "gpu_util_pct": util.astype("float32"),
                    "gpu_mem_used_bytes": memory,
                    "host_mem_util_frac": np.float32(0.2),
                }
            )
        )
    pd.concat(frames).to_parquet(path)
    return path


def sources() -> list[Any]:
    """The generated trace, and the real one where it is at hand."""
    real = [pytest.param(REAL, 102, id="real", marks=pytest.mark.slow)] if REAL.is_file() else []
    return [pytest.param(None, 12, id="generated"), *real]


@pytest.mark.parametrize(("trace", "pods"), sources())
def test_every_pod_is_accounted_for_and_totals_reconcile(
    trace: Path | None, pods: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One forecast or skip reason per pod; evidence and savings equal a hand-written SQL check."""
    path = trace or generated_trace(tmp_path / "trace.parquet")
    store = tmp_path / "t.duckdb"
    arguments = ["--quiet", "--store", f"duckdb:///{store}"]
    assert main([*arguments, "import", str(path), "--map", str(MAP)]) == 0
    capsys.readouterr()
    assert main([*arguments, "cycle", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)

    forecasts = document["forecasts"]
    assert len({entry["job_id"] for entry in forecasts}) == len(forecasts) == pods
    assert all(entry["skipped"] or entry["quantities"] for entry in forecasts)
    # The advice on shared boards is of a model's boards, and its evidence of all jobs.
    of_jobs = [entry for entry in document["recommendations"] if entry["action"] != "co-locate"]
    accounted = {entry["target"] for entry in of_jobs} | set(document["kept"])
    assert accounted == {entry["job_id"] for entry in forecasts}

    plan = document["plan"]
    assert plan["lower_bound"] <= plan["cost"] <= plan["cost_of_now"] + 1e-6
    assert plan["gap"] == pytest.approx((plan["cost"] - plan["lower_bound"]) / plan["cost"])

    database = duckdb.connect(str(store), read_only=True)
    try:
        raw = duckdb.sql(f"select count(*) from read_parquet('{path}')").fetchone()  # noqa: S608
        kept = database.execute("select count(*), count(distinct job_id) from samples").fetchone()
        assert raw is not None
        assert kept == (raw[0], pods)
        for forecast in forecasts:
            counted = database.execute(
                "select count(*) from samples where job_id = ?", [forecast["job_id"]]
            ).fetchone()
            assert counted == (forecast["samples"],)
        for recommendation in of_jobs:
            evidence = recommendation["evidence"]
            found = database.execute(
                "select count(*), max(memory_used_mib) from samples where job_id = ?"
                " and sampled_at between ? and ?",
                [recommendation["target"], evidence["window_start"], evidence["window_end"]],
            ).fetchone()
            assert found is not None
            assert found[0] == evidence["samples"]
            assert found[1] == pytest.approx(evidence["memory_max_mib"])
            assert recommendation["savings"]["energy_kwh"] is None, "the trace has no power"
            assert evidence["assumed"], "the map's constants must be shown as assumed"
        unused = {job_id for (job_id,) in database.execute(_UNUSED).fetchall()}
    finally:
        database.close()
    assert trace or len(unused) == 4, "four pods of the generated trace do nothing"
    stopped = {
        recommendation["target"]
        for recommendation in document["recommendations"]
        if recommendation["action"] == "reclaim"
    }
    assert stopped == unused, "what worked for an hour of its day is not stopped by night"


def test_importing_twice_keeps_every_sample_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A repeated import changes nothing."""
    path = generated_trace(tmp_path / "trace.parquet")
    arguments = ["--quiet", "--store", f"duckdb:///{tmp_path}/t.duckdb", "import", str(path)]
    assert main([*arguments, "--map", str(MAP)]) == 0
    first = capsys.readouterr().out
    assert main([*arguments, "--map", str(MAP)]) == 0
    assert first.startswith("15,842 new samples")
    assert capsys.readouterr().out.startswith("0 new samples")


def test_a_job_keeps_its_reason_from_cycle_to_cycle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three cycles of steady pods: one reason each, and the states of idle GPUs add up."""
    path, url = generated_trace(tmp_path / "trace.parquet"), f"duckdb:///{tmp_path}/t.duckdb"
    arguments = ["--quiet", "--store", url]
    assert main([*arguments, "import", str(path), "--map", str(MAP)]) == 0
    reasons = []
    for minute in (10, 25, 40):  # after 22 hours, from which on idle pods are reclaimed
        now = f"2026-01-05T23:{minute}:00Z"
        capsys.readouterr()
        assert main([*arguments, "cycle", "--now", now, "--format", "json"]) == 0
        kept = json.loads(capsys.readouterr().out)["kept"]
        assert main([*arguments, "findings", "idle", "--format", "json"]) == 0
        rows = {row["job"]: row for row in json.loads(capsys.readouterr().out)}
        for job, row in rows.items():
            if row["idle"] is None:
                continue
            states = row["freed"] + row["after"] + row["peaks"] + row["stays"]
            assert states == pytest.approx(row["idle"], abs=1e-6)
            assert bool(row["because"]) == (row["stays"] > 1e-6)
            assert not row["reason"] or row["reason"] == kept.get(job, row["reason"])
        assert any(row["change"] == "Share GPUs" for row in rows.values())
        reasons.append({job: (row["because"], row["change"]) for job, row in rows.items()})
    assert reasons[0] == reasons[1] == reasons[2]
