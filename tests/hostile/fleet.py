"""A fleet whose every name is hostile, from a Prometheus answer to the store, with advice on it."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from factories import make_collected, make_job, make_recommendation
from hostile.payloads import PAYLOADS

from collectors.readings.exposition_text import read_prometheus_json
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.fleet import Node, SourceReport, SourceState
from data.facts.jobs import Job, JobState, SchedulerFacts, WorkloadKind
from data.records.forecasts import (
    DemandForecast,
    ForecastSkipped,
    GroupForecast,
    GroupKind,
    QuantilePath,
    Quantity,
    WorkloadForecast,
    WorkloadTotal,
)
from data.records.plans import Configuration, JobPlan, NodePlan, Plan, PlanBound, Stay, TenantPlan
from data.records.recommendations import Decision, Range, Recommendation
from data.store import Store
from forecasting.groups.workloads import workload_name

TEXTS = tuple(payload.text for payload in PAYLOADS)
_READINGS = 13
_STEP = timedelta(minutes=5)
_GPUS_A_NODE = 8
_STATES = (Decision.APPROVED, Decision.REJECTED, None)
_VALUES = {
    "DCGM_FI_PROF_SM_ACTIVE": 0.02,
    "DCGM_FI_DEV_FB_USED": 9000.0,
    "DCGM_FI_DEV_FB_FREE": 70000.0,
    "DCGM_FI_DEV_POWER_USAGE": 180.0,
}


def text(number: int) -> str:
    """The text with this number, counted round and round."""
    return TEXTS[number % len(TEXTS)]


def hostile_answer(now: datetime) -> dict[str, Any]:
    """What a Prometheus answers of an hour of these GPUs: every label but the UUID is hostile."""
    times = [(now - _STEP * step).timestamp() for step in range(_READINGS)]
    results = [
        {
            "metric": {
                "__name__": metric,
                "UUID": f"GPU-{number:04d}",
                "gpu": text(number + 7),
                "Hostname": text(number // _GPUS_A_NODE),
                "modelName": text(number // 50 + 40),
                "namespace": text(number + 1),
                "pod": text(number),
                "container": text(number + 2),
            },
            "values": [[at, str(value)] for at in reversed(times)],
        }
        for number in range(len(TEXTS))
        for metric, value in _VALUES.items()
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": results}}


def collected(folder: Path, now: datetime) -> Collected:
    """The answer as the collector reads it."""
    path = folder / "answer.json"
    path.write_text(json.dumps(hostile_answer(now)), encoding="utf-8")
    return read_prometheus_json(path, load_gpu_catalogue())


def from_schedulers(jobs: tuple[Job, ...], now: datetime) -> Collected:
    """The same jobs as schedulers tell of them: owners, users, reasons and nodes are hostile."""
    known = tuple(
        make_job(
            job.job_id,
            name=text(number),
            namespace=text(number + 1),
            owner=text(number + 2),
            kind=WorkloadKind.TRAINING if number % 2 else WorkloadKind.INFERENCE,
            gpu_model=job.gpu_model,
            first_seen_at=now - timedelta(hours=2),
            last_seen_at=now,
            assumed=((text(number + 3), text(number + 4)),),
            scheduler=SchedulerFacts(
                state=JobState.RUNNING,
                reason=text(number + 5),
                workload=text(number + 6),
                user=text(number + 7),
                account=text(number + 8),
                qos=text(number + 9),
                nodes=(text(number + 10),),
                managed_by=(text(number + 11),),
                extra=((text(number + 12), text(number + 13)),),
            ),
        )
        for number, job in enumerate(jobs)
    )
    nodes = tuple(
        Node(
            name=text(number),
            gpu_model=text(number + 40),
            gpu_count=_GPUS_A_NODE,
            partitions=(text(number + 1),),
            features=(text(number + 2),),
            state=text(number + 3),
            reason=text(number + 4),
            seen_at=now,
            source="slurm",
        )
        for number in range(len(TEXTS) // _GPUS_A_NODE)
    )
    report = SourceReport(
        source="slurm",
        state=SourceState.FAILED,
        reason=text(1),
        samples=0,
        dropped=(("broken-label", 3),),
        completeness_ratio=0.5,
        warnings=TEXTS,
        window_start=now - timedelta(hours=1),
        window_end=now,
    )
    made = make_collected(None, known, report=report, nodes=nodes, batch_id="schedulers")
    return Collected(
        **{name: getattr(made, name) for name in made.__slots__}
        | {"samples": made.samples.iloc[:0]}
    )


def recommendations(jobs: tuple[Job, ...], now: datetime) -> Iterator[Recommendation]:
    """One a job; every word that is not the planner's own is hostile."""
    for number, job in enumerate(jobs):
        model = text(number + 20)
        example = make_recommendation().evidence
        evidence = {name: getattr(example, name) for name in example.__slots__} | {
            "assumed": ((text(number + 1), text(number + 2)),),
            "fallbacks": (text(number + 3),),
            "flags": (text(number + 4),),
            "factors": ((text(number + 5), text(number + 6)),),
            "elasticity": text(number + 7),
            "window_start": now - timedelta(hours=1),
            "window_end": now,
        }
        yield make_recommendation(
            plan_id="p" * 64,
            created_at=now,
            expires_at=now + timedelta(hours=24),
            job_id=job.job_id,
            job_name=text(number),
            namespace=job.namespace,
            platform=job.platform,
            now=Configuration(gpu_model=model, gpu_count=2, shared_with=text(number + 9)),
            proposed=Configuration(gpu_model=text(number + 10), gpu_count=1),
            why=text(number + 11),
            change=text(number + 12),
            confidence=text(number + 13),
            details=((text(number + 14), text(number + 15)),),
            evidence=type(example)(**evidence),
        )


def plan(jobs: tuple[Job, ...], now: datetime) -> Plan:
    """Every job on a hostile node for a day, some without a place, with hostile bounds."""
    starts = tuple(now + timedelta(hours=hour) for hour in range(24))
    node_names = list(dict.fromkeys(text(number) for number in range(len(jobs) // _GPUS_A_NODE)))
    places = itertools.cycle(node_names)
    planned = []
    for number, job in enumerate(jobs):
        held = Configuration(gpu_model=text(number + 20), gpu_count=1)
        other = Configuration(gpu_model=text(number + 21), gpu_count=1)
        node = next(places)
        lost = number % 17 == 0
        planned.append(
            JobPlan(
                job_id=job.job_id,
                now=held,
                steps=(held,) * 12 + (other,) * 12,
                stays=() if lost else (Stay(node=node, gpus=1, start=0, end=24),),
                unplaced=text(number + 22) if lost else "",
            )
        )
    return Plan(
        plan_id="p" * 64,
        created_at=now,
        slot_starts=starts,
        slot_seconds=3600,
        jobs=tuple(planned),
        cost=10.0,
        cost_of_now=20.0,
        lower_bound=9.9,
        currency="EUR",
        seconds=0.1,
        bounds=(PlanBound(name=text(30), value=9.9, attained=10, unit=text(31)),),
        nodes=tuple(
            NodePlan(
                node=name,
                gpu_model=text(place % 4 + 60),
                gpus=_GPUS_A_NODE,
                on=(True,) * 20 + (False,) * 4 if place % 3 else (True,) * 24,
            )
            for place, name in enumerate(node_names)
        ),
        tenants=tuple(
            TenantPlan(
                tenant=text(number),
                quota=4,
                guaranteed=4,
                now=1,
                used=(1.0,) * 24,
                borrowed=(0.0,) * 24,
                lent=(0.0,) * 24,
            )
            for number in range(60)
        ),
        violations=TEXTS[40:45],
    )


def _path(quantity: Quantity, slots: int, notes: tuple[str, ...]) -> QuantilePath:
    return QuantilePath(
        quantity=quantity,
        model="mix",
        q10=(1.0,) * slots,
        q50=(2.0,) * slots,
        q90=(3.0,) * slots,
        backtest=None,
        notes=notes,
    )


def _workload(job: Job, starts: tuple[datetime, ...]) -> WorkloadForecast:
    name = workload_name(job)
    held = Range(low=1.0, central=2.0, high=3.0, unit="GPU-h")
    total = WorkloadTotal(days=7, sums=((Quantity.ALLOCATED_GPUS, held),), before=())
    return WorkloadForecast(
        name=name,
        job_ids=(job.job_id,),
        namespace=job.namespace,
        owner=job.owner,
        gpu_models=((job.gpu_model, 1.0),),
        is_service=False,
        runs=5,
        known_days=9.0,
        totals=(total, replace(total, days=30)),
        horizons=(
            GroupForecast(
                kind=GroupKind.WORKLOAD,
                name=name,
                slot_starts=starts,
                paths=(_path(Quantity.ALLOCATED_GPUS, 24, TEXTS[:9]),),
                known_slots=10,
            ),
        ),
    )


def fill(store: Store, folder: Path, now: datetime) -> None:
    """Keep the fleet, a plan, forecasts, recommendations, and decisions on two in three."""
    telemetry = collected(folder, now)
    store.keep(telemetry, from_schedulers(telemetry.jobs, now))
    jobs = tuple(sorted(store.reader.jobs(), key=lambda job: job.job_id))
    starts = tuple(now + timedelta(hours=hour) for hour in range(24))
    advice = tuple(recommendations(jobs, now))
    store.keep_cycle(
        cycle_id="c1",
        started_at=now,
        finished_at=now,
        forecasts=tuple(
            ForecastSkipped(
                job_id=job.job_id,
                reason=text(number),
                samples=1,
                history_slots=1,
                known_slots=1,
            )
            if number % 2
            else DemandForecast(
                job_id=job.job_id,
                slot_starts=starts,
                paths=(_path(Quantity.EFFECTIVE_GPUS, 24, (text(number),)),),
                missing=(),
                samples=10,
                history_slots=10,
                known_slots=10,
                borrowed_from=text(number + 1),
            )
            for number, job in enumerate(jobs)
        ),
        group_forecasts=tuple(
            GroupForecast(
                kind=kind,
                name=name,
                slot_starts=starts,
                paths=tuple(
                    _path(entry, 24, TEXTS[:9])
                    for entry in (Quantity.ALLOCATED_GPUS, Quantity.EFFECTIVE_GPUS, Quantity.POWER)
                ),
                known_slots=10,
            )
            for kind, name in (
                (GroupKind.FLEET, "fleet"),
                *((GroupKind.NAMESPACE, entry) for entry in TEXTS),
            )
        ),
        workloads=tuple({workload_name(job): _workload(job, starts) for job in jobs}.values()),
        plan=plan(jobs, now),
        recommendations=advice,
    )
    for number, entry in enumerate(advice):
        decision = _STATES[number % 3]
        if decision is not None:
            store.append_decision(
                digest=entry.digest,
                decision=decision,
                by=text(number + 16),
                at=now,
                comment=text(number + 17),
            )
