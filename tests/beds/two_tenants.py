"""A store in which two tenants have a row of every kind, and each word of theirs is their own."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
from factories import (
    make_collected,
    make_job,
    make_memory_finding,
    make_plan,
    make_quota,
    make_range,
    make_recommendation,
    make_samples,
)
from planning_cases import H100, forecast_of

from data.base.clock import floor_to_slot
from data.facts.columns import SERVING, TIME, XIDS, check_frame
from data.facts.fleet import Node
from data.facts.jobs import Job, SchedulerFacts
from data.facts.quotas import Quota, QuotaKind
from data.records.actions import Action
from data.records.commands import CommandKind, Measurement, Person
from data.records.forecasts import (
    GroupForecast,
    GroupKind,
    QuantilePath,
    Quantity,
    WorkloadForecast,
    WorkloadTotal,
)
from data.records.plans import Configuration, IdleCause, IdleGpus, JobPlan, TenantPlan
from data.records.recommendations import Recommendation
from data.records.serving import ServiceOutlook
from data.store import Store
from data.store.engine.record_json import to_json

MINE, THEIRS = "antelope", "zebra"
TENANTS = (MINE, THEIRS)
"""Each is a namespace, the owner of its jobs, and a part of every name that it gave."""
DAY = timedelta(days=1)
LASTING = timedelta(minutes=5)
APPLIER = Person(name="applier", via="local")


def job_of(tenant: str, now: datetime) -> Job:
    """The job of a tenant."""
    facts = SchedulerFacts(
        workload=f"{tenant}-workload",
        account=f"{tenant}-account",
        reason=f"waits for {tenant}",
        extra=(("queue", "train"),),
    )
    return make_job(
        f"{tenant}/chat", name=f"{tenant}-chat", owner=tenant, gpu_count=4, last_seen_at=now,
        scheduler=facts,
    )  # fmt: skip


def advice_of(tenant: str, now: datetime) -> Recommendation:
    """What is proposed to it."""
    return make_recommendation(
        job_id=f"{tenant}/chat", job_name=f"{tenant}-chat", namespace=tenant,
        why=f"{tenant} is idle", created_at=now, expires_at=now + DAY,
    )  # fmt: skip


def _collect(store: Store, tenant: str, now: datetime, boards: int) -> None:
    samples = make_samples(
        gpus=4, minutes=26 * 60, job_id=f"{tenant}/chat", end=now, node=f"{tenant}-node"
    )
    samples["gpu_uuid"] = [f"GPU-{tenant}-{entry[-1]}" for entry in samples["gpu_uuid"]]
    xids = pd.DataFrame({
        "gpu_uuid": [f"GPU-{tenant}-0"], "xid": [79], "node": [f"{tenant}-node"],
        "gpu_index": [str(boards)], "first_seen_at": [now - DAY / 24], "last_seen_at": [now],
    }).astype({"xid": np.int64})  # fmt: skip
    for name in ("first_seen_at", "last_seen_at"):
        xids[name] = pd.to_datetime(xids[name], utc=True).astype("datetime64[us, UTC]")
    node = Node(
        name=f"{tenant}-node", gpu_model=H100, gpu_count=4, reason=f"drained by {tenant}",
        seen_at=now, source="slurm test",
    )  # fmt: skip
    made = make_collected(samples, (job_of(tenant, now),), nodes=(node,))
    report = replace(
        made.report, warnings=(f"no limit of {tenant}",), window_end=now, window_start=now - DAY
    )
    served = pd.DataFrame({
        "slot_start": [now - DAY / 24, now - DAY / 24], "label_id": [f"{tenant}/chat", ""],
        "engine": ["vllm", f"vllm of {tenant}"], "model": [f"{tenant}-model", f"{tenant}-other"],
    })  # fmt: skip
    served["slot_start"] = pd.to_datetime(served["slot_start"], utc=True).astype(TIME)
    store.keep(
        replace(
            made,
            xids=check_frame(xids, XIDS),
            serving=check_frame(served, SERVING),
            quotas=tuple(_quotas(tenant, now)),
            report=report,
        )
    )


def _quotas(tenant: str, now: datetime) -> Iterator[Quota]:
    above = f"{tenant}-queue"
    for kind, queue, parent in (
        (QuotaKind.CLUSTER_QUEUE, above, ""),
        (QuotaKind.LOCAL_QUEUE, f"{tenant}/train", above),
        (QuotaKind.ACCOUNT, f"{tenant}-account", ""),
    ):
        yield make_quota(queue, kind=kind, parent=parent, observed_at=now)


def _group(kind: GroupKind, name: str, now: datetime) -> GroupForecast:
    level = (1.0,) * 24
    path = QuantilePath(
        quantity=Quantity.ALLOCATED_GPUS, model="mix", q10=level, q50=level, q90=level,
        backtest=None,
    )  # fmt: skip
    hours = tuple(now + timedelta(hours=hour) for hour in range(24))
    return GroupForecast(kind=kind, name=name, slot_starts=hours, paths=(path,), known_slots=100)


def _plan_of(tenant: str, other: str) -> JobPlan:
    now = Configuration(gpu_model=H100, gpu_count=4, shared_with=f"{other}/chat")
    idle = IdleGpus(
        held=4, work=1.0, freed=2.0, cause=IdleCause.REMAINDER, reason=f"kept by {tenant}"
    )
    return JobPlan(job_id=f"{tenant}/chat", now=now, steps=(now, now), idle=idle)


def _apply(store: Store, one: Recommendation, tenant: str, at: datetime) -> None:
    """Approve it and keep what a worker would: that it was made, and what it brought."""
    from dashboard.decisions import approvals

    approvals.approve(store, one.digest, by=f"{tenant}-boss", now=at, comment=f"yes, {tenant}")
    store.commands.ask(
        kind=CommandKind.APPLY, digest=one.digest, subject=one.digest, target=f"{tenant}/chat",
        person=APPLIER, at=at,
    )  # fmt: skip
    lease = store.commands.take(owner="worker", now=at, lasting=LASTING)
    assert lease is not None
    hours = make_range(5.0, "GPU-h")
    measured = Measurement(
        hours=1.0, work_before=1.0, work_after=1.0, throughput_ratio=1.0, saturated=False,
        predicted_gpu_hours=hours, realised_gpu_hours=hours, predicted_energy_kwh=None,
        realised_energy_kwh=None, realised_emissions_kgco2e=None,
        reasons=(f"no power of {tenant}",),
    )  # fmt: skip
    for event, record in (
        ("prepared", ""),
        ("sending", ""),
        ("applied", ""),
        ("verified", to_json(measured)),
    ):
        store.commands.write(
            lease, event, at=at, lasting=LASTING, digest=one.digest, actor="worker",
            detail=f"{tenant}-detail", record=record,
        )  # fmt: skip
    store.commands.finish(lease)


def _workload(tenant: str) -> WorkloadForecast:
    return WorkloadForecast(
        name=f"{tenant}/chat", job_ids=(f"{tenant}/chat",), namespace=tenant, owner=tenant,
        gpu_models=((f"{tenant}-model", 1.0),), is_service=True, runs=1,
        known_days=9.0, horizons=(),
        totals=tuple(WorkloadTotal(days=days, sums=(), before=()) for days in (7, 30)),
    )  # fmt: skip


def fill(store: Store, now: datetime) -> datetime:
    """Put the rows in; an applied finding (TT-1, TT-2) and an open one (TT-3, TT-4) of each."""
    end = floor_to_slot(now, 300)
    for number, tenant in enumerate(TENANTS):
        _collect(store, tenant, end, number)
    first = [advice_of(tenant, end - DAY / 4) for tenant in TENANTS]
    others = [replace(advice_of(tenant, end), action=Action.POWER_CAP) for tenant in TENANTS]
    groups = [
        _group(GroupKind.FLEET, "fleet", end),
        *(_group(GroupKind.NAMESPACE, tenant, end) for tenant in TENANTS),
    ]
    for number, found in enumerate((first, others)):
        at = end - DAY / 4 if not number else end
        plan = make_plan(
            plan_id=f"{number:064d}", created_at=at, slot_starts=(end, end + timedelta(minutes=15)),
            jobs=tuple(map(_plan_of, TENANTS, reversed(TENANTS))),
            tenants=tuple(
                TenantPlan(tenant=tenant, quota=4, guaranteed=4, now=4, used=(4,), borrowed=(0,),
                           lent=(0,))
                for tenant in TENANTS
            ),
            violations=tuple(f"{tenant} has too few" for tenant in TENANTS),
        )  # fmt: skip
        made = [replace(entry, plan_id=plan.plan_id) for entry in found]
        store.keep_cycle(
            cycle_id=f"c{number}", started_at=at, finished_at=at, plan=plan,
            forecasts=[forecast_of(job_of(tenant, end), [1.0, 2.0], 70_000.0, 400.0)
                       for tenant in TENANTS],
            group_forecasts=groups,
            workloads=[_workload(tenant) for tenant in TENANTS],
            memory=[make_memory_finding(job_id=f"{tenant}/chat", why=f"{tenant} grows")
                    for tenant in TENANTS],
            serving=[ServiceOutlook(
                         job_id=f"{tenant}/chat", namespace=tenant, service="chat", engine="vllm",
                         model="m", read_until=at, replicas=1, running_requests=1.0,
                         waiting_requests=None, requests_per_second=1.0, slot_starts=(at,),
                         required_replicas=(2,),
                     )
                     for tenant in TENANTS],
            recommendations=made,
        )  # fmt: skip
        for tenant, entry in zip(TENANTS, made, strict=True):
            if number == 0:
                _apply(store, entry, tenant, at)
    return end
