"""A real Kubernetes: a service about to run out moves to a larger GPU after approval, and back."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import bind_in, deployment, pod_spec, rolled_out, spec_of
from factories import make_collected, make_job
from memory_cases import climbing, free_board, world_of

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.worker.worker import Worker
from dashboard.cycle.run_cycle import run_cycle
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.facts.jobs import JobState, SchedulerFacts
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings
from data.store import Store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
SMALL, LARGE = "A100-SXM4-40GB", "A100-SXM4-80GB"
PRODUCT = "nvidia.com/gpu.product"
AT = "grows"


def recommended(store: Store) -> Recommendation:
    """What a cycle recommends for a service of one small A100 beside a free large one."""
    now = utc_now()
    job = make_job(
        f"{AT}/deployment/serve",
        gpu_model=SMALL,
        gpu_memory_mib=40_960.0,
        first_seen_at=now - timedelta(days=3),
        last_seen_at=now,
        scheduler=SchedulerFacts(
            state=JobState.RUNNING,
            workload="deployment/serve",
            extra=(("pods", "1"), ("gpus_per_pod", "1"), ("gpu_containers", "1")),
        ),
    )
    frame = climbing(job.job_id, gpu_model=SMALL, memory_mib=40_960.0, end=now)
    free = free_board(gpu_model=LARGE, end=now).assign(node="node-large")
    store.keep(make_collected(frame, jobs=(job,)), make_collected(free, jobs=()))
    outcome = run_cycle(world_of(store), now=utc_now() + timedelta(seconds=1))
    (found,) = (
        recommendation
        for recommendation in outcome.recommendations
        if recommendation.job_id == job.job_id
    )
    return found


def worker_of(store: Store, applier: KubernetesApplier, folder: Path) -> Worker:
    """A worker on the bed."""
    settings = replace(
        Settings(), apply=ApplySettings(enabled=True, stop_file=str(folder / "STOP"))
    )

    def clock() -> datetime:
        return utc_now() + timedelta(seconds=2)

    return Worker(
        store=store, settings=lambda: settings, appliers=lambda _s: (applier,), clock=clock
    )


def test_a_service_about_to_run_out_moves_to_a_larger_gpu_and_back(
    bed: KubernetesBed, applier: KubernetesApplier, store: Store, tmp_path: Path
) -> None:
    """Finding, recommendation, approval, the other GPU on the object, and the old one again."""
    bind_in(bed, AT)
    for name, model in (("small", SMALL), ("large", LARGE)):
        bed.add_gpu_node(f"node-{name}", gpus=1, product=f"NVIDIA-{model}")
    pod = pod_spec(1, nodeSelector={PRODUCT: f"NVIDIA-{SMALL}"})
    bed.apply(deployment(AT, replicas=1, pod=pod))
    rolled_out(bed, AT)
    before = spec_of(bed, AT)
    one = recommended(store)
    assert (one.action, one.proposed.gpu_model) == (Action.LARGER_GPU, LARGE)
    assert one.savings.cost is not None
    assert one.savings.cost.central < 0
    worker = worker_of(store, applier, tmp_path)

    def reached(wanted: str) -> bool:
        worker.work_once()
        return store.reader.recommendation(one.digest, now=utc_now()).state == wanted

    approvals.approve(store, one.digest, by="Robin", now=worker.clock())
    approvals.ask_to_apply(store, one.digest, by="Robin", now=worker.clock(), appliers=(applier,))
    bed.until("it is applied", lambda: reached("applied"))
    rolled_out(bed, AT)
    selector = spec_of(bed, AT)["template"]["spec"]["nodeSelector"]
    assert selector == {PRODUCT: f"NVIDIA-{LARGE}"}
    approvals.ask_to_roll_back(store, one.digest, by="Robin", now=worker.clock())
    bed.until("it is rolled back", lambda: reached("rolled-back"))
    assert spec_of(bed, AT) == before
    assert store.reader.verify_audit() == ()
