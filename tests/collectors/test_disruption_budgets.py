"""PodDisruptionBudgets that allow nothing: as a real API holds evictions back, and hostile objects.

No controller of them runs here: the statuses are written as their API describes them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import deployment, pod_spec
from beds.kubernetes_lists import GPU, PODS, SETS, template, thing, told
from beds.kubernetes_lists import pod as a_pod
from recorded.record_kubernetes import built_in

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.placement_rules import FullBudgets
from collectors.shared.collector import Window
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.feasible_changes import NO_DISRUPTIONS, configuration_refusal
from data.records.plans import Configuration
from data.settings.sources import KubernetesSettings

VERSION = "policy/v1beta1"
"""The one of the API that runs here; in policy/v1 all but an empty selector means the same."""
HERE = {"key": "app", "operator": "Exists"}
SELECTORS: dict[str, tuple[dict[str, Any] | None, int | None]] = {
    "by-label": ({"matchLabels": {"app": "by-label-serve"}}, 0),
    "other-label": ({"matchLabels": {"app": "other-label-serve", "tier": "web"}}, 0),
    "no-pods": (None, 0),
    "some-left": ({"matchLabels": {"app": "some-left-serve"}}, 1),
    "among": ({"matchExpressions": [HERE | {"operator": "In", "values": ["among-serve"]}]}, 0),
    "not-among": (
        {"matchExpressions": [HERE | {"operator": "NotIn", "values": ["not-among-serve"]}]}, 0),
    "without": ({"matchExpressions": [HERE, {"key": "tier", "operator": "DoesNotExist"}]}, 0),
    "with-none": ({"matchExpressions": [HERE], "matchLabels": {"tier": "web"}}, 0),
}  # fmt: skip
"""By namespace: the selector of its budget, and how many disruptions that allows."""


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A running Deployment in each namespace, under a budget or beside it."""
    with running_kubernetes() as running:
        running.add_gpu_node("n1", gpus=16)
        for name, (selector, allowed) in SELECTORS.items():
            spec = {"minAvailable": 1} | ({} if selector is None else {"selector": selector})
            running.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
                deployment(name, replicas=1, pod=pod_spec(1) | {"nodeName": "n1"}, name="serve"),
                built_in(VERSION, "PodDisruptionBudget", "keep", spec, namespace=name),
            )
            status = {
                "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 2,
                "expectedPods": 1, "observedGeneration": 1,
            }  # fmt: skip
            running.patch_status("PodDisruptionBudget", "keep", status, namespace=name)
        running.until(
            "all run",
            lambda: (
                sum(pod["status"].get("phase") == "Running" for pod in running.pods())
                == len(SELECTORS)
            ),
            120.0,
        )
        yield running


@pytest.mark.kubernetes
@pytest.mark.slow
def test_a_job_names_the_budget_that_holds_evictions_of_its_pods_back(bed: KubernetesBed) -> None:
    """The oracle: the API refuses to evict just the pods of those jobs that name a budget."""
    settings = KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("reader")))
    collector = KubernetesCollector(KubernetesClient(settings), load_gpu_catalogue())
    now = utc_now()
    told = collector.collect(Window(start=now, end=now))
    assert told.report.warnings == ()
    named = {
        job.namespace: dict(job.scheduler.extra).get(NO_DISRUPTIONS, "")
        for job in told.jobs
        if job.scheduler is not None
    }
    refused = {}
    for pod in bed.pods():
        about = pod["metadata"]
        path = f"api/v1/namespaces/{about['namespace']}/pods/{about['name']}/eviction"
        wish = {
            "apiVersion": VERSION, "kind": "Eviction", "metadata": {"name": about["name"]},
            "deleteOptions": {"dryRun": ["All"]},
        }  # fmt: skip
        answer = bed.answer("POST", f"{path}?dryRun=All", json=wish)
        assert answer.status_code in (201, 429), answer.text
        refused[about["namespace"]] = "keep" if answer.status_code == 429 else ""
    assert named == refused
    assert {name for name, budget in refused.items() if budget} == {
        "by-label", "among", "without",
    }  # fmt: skip


@pytest.mark.parametrize("allowed", [None, True, "0", -1, 2, [0]])
@pytest.mark.parametrize("selector", [None, "all", {}, {"matchLabels": 5}, {"matchExpressions": 1}])
def test_what_is_no_count_of_0_names_nothing(allowed: object, selector: object) -> None:
    """Whatever an API hands on; a budget that no controller has seen is unknown."""
    about = {"name": "keep", "namespace": "ml"}
    budget = {
        "metadata": about,
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }
    assert FullBudgets([budget, {}, {"status": 5}]).over({"metadata": about}) == ""


@pytest.mark.parametrize(
    ("spec", "expected", "floor"),
    [
        ({"minAvailable": 3}, 4, 3),
        ({"minAvailable": 3}, None, 3),
        ({"minAvailable": 3}, 6, 1),
        ({"minAvailable": 1}, 9, 0),
        ({"minAvailable": "75%"}, 4, 0),
        ({"maxUnavailable": 1}, 4, 0),
        ({"minAvailable": True}, 4, 0),
        ({"minAvailable": 0}, 4, 0),
    ],
)
def test_a_number_of_available_pods_is_its_owners_floor(
    tmp_path: Path, spec: dict[str, Any], expected: int | None, floor: int
) -> None:
    """Four pods of a set; others under the same budget keep it as well, a share moves along."""
    pods = template("1")
    pods["metadata"] = {"labels": {"app": "serve"}}
    owner = thing("StatefulSet", "serve", {"replicas": 4, "template": pods})
    keep = thing(
        "PodDisruptionBudget",
        "keep",
        {"selector": {"matchLabels": {"app": "serve"}}} | spec,
        {} if expected is None else {"expectedPods": expected},
    )
    running = [
        a_pod(f"serve-{number}", "apps/v1/StatefulSet/serve", limits={GPU: "1"})
        for number in range(4)
    ]
    lists = {PODS: running, SETS: [owner], "/apis/policy/v1/poddisruptionbudgets": [keep]}
    (job,) = told(lists, tmp_path).jobs
    for count in range(4):
        why = configuration_refusal(job, Configuration(gpu_model=job.gpu_model, gpu_count=count))
        assert ("PodDisruptionBudget keep" in why) == (count < floor)
    # The other namespace's budget of the same name and labels is not this job's.
    keep["metadata"]["namespace"] = "other"
    (job,) = told(lists, tmp_path).jobs
    assert configuration_refusal(job, Configuration(gpu_model=job.gpu_model, gpu_count=1)) == ""
