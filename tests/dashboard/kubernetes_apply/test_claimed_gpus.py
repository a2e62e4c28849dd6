"""GPUs that pods hold by claims (DRA): as many pods as are enough, else nothing."""

from typing import Any

import pytest
from beds.kubernetes_apply import gpus, planned, proposal, replicated
from beds.kubernetes_fake import FakeApi
from factories import make_job

from collectors.kubernetes.own_work import own_work_facts
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.errors import ChangeRefusedError
from data.facts.jobs import Platform, SchedulerFacts
from data.records.changes import StepOutcome
from data.records.feasible_changes import configuration_refusal

OWN = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
SHARED = {"name": "gpu", "resourceClaimName": "the-gpu"}
PLACES = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


@pytest.mark.parametrize("kind", sorted(PLACES))
@pytest.mark.parametrize(
    ("claims", "count", "left", "replicas"),
    [
        ([OWN], 3, 1, 1),
        ([OWN], 6, 2, 1),
        ([OWN], 6, 4, 2),
        ([OWN], 6, 3, None),
        ([SHARED], 3, 1, None),
        ([OWN, SHARED], 3, 1, None),
    ],
)
def test_pods_with_claims_of_their_own_are_scaled(
    fake: FakeApi,
    newer: KubernetesApplier,
    kind: str,
    claims: list[dict[str, str]],
    count: int,
    left: int,
    replicas: int | None,
) -> None:
    """The planner offers what the applier makes: whole pods, and none of a claim that all share."""
    container = {"name": "main", "image": "example/serve:1"}
    pod: dict[str, Any] = {"containers": [container], "resourceClaims": claims}
    path = f"apis/apps/v1/namespaces/ml/{PLACES[kind]}/serve"
    document = fake.put(path, replicated(kind, "ml", replicas=3, pod=pod))
    found = {name: value for name, value in own_work_facts(kind, document) if value}
    facts = {"pods": "3", "gpus_per_pod": str(count // 3), "wanted_gpus": str(count)} | found
    model = gpus(count).gpu_model
    job = make_job(
        f"ml/{kind.lower()}/serve",
        gpu_count=count,
        gpu_model=model,
        platform=Platform.KUBERNETES,
        scheduler=SchedulerFacts(extra=tuple(facts.items())),
    )
    assert bool(configuration_refusal(job, gpus(left))) == (replicas is None)
    wish = proposal(job.job_id, gpus(count), gpus(left))
    if replicas is None:
        with pytest.raises(ChangeRefusedError):
            planned(newer, wish)
        return
    change = planned(newer, wish)
    (step,) = change.steps
    assert newer.execute(step, change).outcome is StepOutcome.DONE
    spec = fake.objects[path]["spec"]
    assert spec == document["spec"] | {"replicas": replicas}
