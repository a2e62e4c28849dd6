"""Records and frames for tests: real values, one place to change them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd

from data.facts.collected import Collected
from data.facts.columns import SAMPLES, check_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import digest_of
from data.facts.jobs import Job, Platform, WorkloadKind
from data.facts.quotas import Quota, QuotaKind
from data.records.actions import Action, Risk
from data.records.commands import JournalRow
from data.records.memory import MemoryAdvice, MemoryFinding, MemoryOutlook, MemoryRemedy
from data.records.plans import Configuration, JobPlan, Plan
from data.records.recommendations import Evidence, Range, Recommendation, Savings

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
H100 = "H100-SXM5-80GB"


def make_job(job_id: str = "search/ranker-0", **changes: Any) -> Job:
    """A Kubernetes inference job with one H100."""
    values: dict[str, Any] = {
        "job_id": job_id,
        "name": job_id.partition("/")[2] or job_id,
        "namespace": job_id.partition("/")[0],
        "owner": "search",
        "platform": Platform.KUBERNETES,
        "kind": WorkloadKind.INFERENCE,
        "gpu_model": H100,
        "gpu_count": 1,
        "mig_profile": "",
        "gpu_memory_mib": 81559.0,
        "first_seen_at": NOW - timedelta(days=1),
        "last_seen_at": NOW,
        "source": "test",
    }
    return Job(**(values | changes))


def make_samples(
    *,
    gpus: int = 1,
    minutes: int = 60,
    job_id: str = "search/ranker-0",
    end: datetime = NOW,
    **columns: Any,
) -> pd.DataFrame:
    """One sample a minute per board up to `end`; `columns` replaces whole columns."""
    times = pd.date_range(end=end, periods=minutes, freq="1min").as_unit("us")
    values: dict[str, Any] = {
        "sampled_at": np.tile(times, gpus),
        "gpu_uuid": np.repeat([f"GPU-{index:04d}" for index in range(gpus)], minutes),
        "node": "node-1",
        "gpu_model": H100,
        "job_id": job_id,
        "utilization_ratio": 0.5,
        "utilization_signal": "sm_active",
        "memory_used_mib": 20_000.0,
        "memory_total_mib": 81_559.0,
        "power_watts": 400.0,
    }
    frame = pd.DataFrame(values | columns)
    frame["sampled_at"] = pd.to_datetime(frame["sampled_at"], utc=True).astype(
        "datetime64[us, UTC]"
    )
    return check_frame(frame, SAMPLES)


def make_collected(
    samples: pd.DataFrame | None = None, jobs: tuple[Job, ...] | None = None, **changes: Any
) -> Collected:
    """What one source gave: by default an hour of one board."""
    frame = make_samples() if samples is None else samples
    report = SourceReport(
        source="test",
        state=SourceState.RAN,
        reason="",
        samples=len(frame),
        dropped=(),
        completeness_ratio=1.0,
        warnings=(),
        window_start=NOW - timedelta(hours=1),
        window_end=NOW,
    )
    values: dict[str, Any] = {
        "batch_id": digest_of([int(code) for code in pd.util.hash_pandas_object(frame)]),
        "samples": frame,
        "jobs": (make_job(),) if jobs is None else jobs,
        "report": report,
    }
    return Collected(**(values | changes))


def make_quota(queue: str = "ml", **changes: Any) -> Quota:
    """What Slurm lets an account hold: 4 GPUs, 3 of them in use."""
    values: dict[str, Any] = {
        "source": "test",
        "kind": QuotaKind.ACCOUNT,
        "queue": queue,
        "resource": "gres/gpu",
        "nominal": 4.0,
        "borrowing_limit": 0.0,
        "lending_limit": None,
        "used": 3.0,
        "observed_at": NOW,
    }
    return Quota(**(values | changes))


def make_range(central: float, unit: str) -> Range:
    """A range of a tenth around its centre."""
    return Range(low=central * 0.9, central=central, high=central * 1.1, unit=unit)


def make_recommendation(**changes: Any) -> Recommendation:
    """A recommendation to halve a Kubernetes job's GPUs."""
    values: dict[str, Any] = {
        "plan_id": "p" * 64,
        "created_at": NOW,
        "expires_at": NOW + timedelta(hours=24),
        "action": Action.FEWER_GPUS,
        "job_id": "search/ranker-0",
        "job_name": "ranker",
        "namespace": "search",
        "platform": Platform.KUBERNETES,
        "now": Configuration(gpu_model=H100, gpu_count=4),
        "proposed": Configuration(gpu_model=H100, gpu_count=2),
        "why": "1.1 of 4 GPUs did work",
        "evidence": Evidence(
            signal="sm_active",
            samples=10,
            window_start=NOW - timedelta(days=1),
            window_end=NOW,
            completeness_ratio=1.0,
            utilization_p95_ratio=0.3,
            memory_max_mib=1000.0,
            power_mean_watts=None,
            forecast_model="seasonal-naive",
            backtest_error=0.1,
            backtest_baseline=0.2,
            factors=(("PUE", "1.54"),),
            assumed=(),
            fallbacks=(),
            plan_gap_ratio=0.01,
        ),
        "savings": Savings(
            horizon_hours=24,
            gpu_hours=make_range(48, "GPU-h"),
            energy_kwh=None,
            emissions_kgco2e=None,
            cost=make_range(120, "EUR"),
        ),
        "risk": Risk.MEDIUM,
        "confidence": "strong",
    }
    return Recommendation(**(values | changes))


def make_journal_row(event: str, at: datetime = NOW, **changes: Any) -> JournalRow:
    """A row of the journal of command `c`."""
    values: dict[str, Any] = {
        "sequence": 1,
        "command_id": "c",
        "digest": "d",
        "event": event,
        "step": 0,
        "at": at,
        "fence": 1,
        "detail": "",
        "record": "",
    }
    return JournalRow(**(values | changes))


def make_plan(**changes: Any) -> Plan:
    """A plan of two slots for one job."""
    now = Configuration(gpu_model=H100, gpu_count=4)
    half = Configuration(gpu_model=H100, gpu_count=2)
    values: dict[str, Any] = {
        "plan_id": "p" * 64,
        "created_at": NOW,
        "slot_starts": (NOW, NOW + timedelta(minutes=15)),
        "slot_seconds": 900,
        "jobs": (JobPlan(job_id="search/ranker-0", now=now, steps=(half, half)),),
        "cost": 10.0,
        "cost_of_now": 20.0,
        "lower_bound": 9.9,
        "currency": "EUR",
        "seconds": 0.1,
    }
    return Plan(**(values | changes))


def make_memory_finding(**changes: Any) -> MemoryFinding:
    """A job whose memory runs out within a day; `changes` replace its fields."""
    finding = MemoryFinding(
        job_id="search/<ranker>",
        outlook=MemoryOutlook.RUNS_OUT,
        gpu_model="A100-SXM4-40GB",
        limit_mib=40_960.0,
        now_mib=38_000.0,
        largest_mib=38_500.5,
        peak_q50_mib=41_000.0,
        peak_q95_mib=44_000.25,
        horizon_hours=24.0,
        probability=0.8,
        at=NOW + timedelta(hours=3),
        room_mib=0.0,
        why="GPU memory runs out within 24 h",
        advice=(MemoryAdvice(remedy=MemoryRemedy.MOVE, text="Move it", fits=True),),
        evidence=("12 slots", "growing"),
    )
    return replace(finding, **changes)
