"""Drawn job files on a real Kubernetes API: what it keeps is what was shown, word for word."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.kubernetes import KubernetesBed, running_kubernetes
from outsiders.campaign import run_campaign
from outsiders.submission.reading import run_of
from outsiders.submission.scenario import CANARY, SubmissionScenario, draw, table_of, toml_of
from reliability import Measured

from dashboard.submission.job.job_file import JobFile, load_job_file
from dashboard.submission.submit.proposal import SubmissionProposal, propose
from dashboard.submission.targets.kubernetes_target import KubernetesTarget
from data.base.clock import utc_now
from data.base.errors import TrimtabError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import KubernetesSettings
from data.settings.submission import SubmitSettings

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OPERATORS = (
    ("JobSet", "jobsets", "jobset.x-k8s.io", "v1alpha2"),
    ("PyTorchJob", "pytorchjobs", "kubeflow.org", "v1"),
)
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "there", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def definition(kind: str, plural: str, group: str, version: str) -> dict[str, Any]:
    """Return a definition of custom resources that keeps whatever it is given."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """Two kinds of nodes, one of them tainted, a claim, and the kinds of two operators."""
    with running_kubernetes() as running:
        running.add_gpu_node("gpu-h100", gpus=8)
        running.add_gpu_node("gpu-a100", gpus=2, product="NVIDIA-A100-SXM4-40GB")
        running.patch("Node", "gpu-a100", {"spec": {"taints": [TAINT]}})
        running.apply(CLAIM, *(definition(*operator) for operator in OPERATORS))
        yield running


def expanded(word: str) -> str:
    """Return a word as a kubelet gives it to a container that has no such variables."""
    return word.replace("$$", "$")


def inside(document: Any, key: str) -> Any:
    """Return the first value of a key, however deep."""
    if isinstance(document, dict):
        if key in document:
            return document[key]
        document = list(document.values())
    if isinstance(document, list):
        return next(
            (found for entry in document if (found := inside(entry, key)) is not None), None
        )
    return None


class Trial:
    """One job file on the cluster."""

    def __init__(self, bed: KubernetesBed, scenario: SubmissionScenario, folder: Path) -> None:
        self.bed, self.scenario, self.folder = bed, scenario, folder
        source = KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("admin")))
        self.submit = SubmitSettings(enabled=True, kubernetes_kind=scenario.kind)
        self.target = KubernetesTarget(source, self.submit, load_gpu_catalogue())

    def outcome(self) -> tuple[str, str | None]:
        """Submit it, and return what became of it and what it broke."""
        path = self.folder / "job.toml"
        path.write_text(toml_of(table_of(self.scenario, CANARY, {})), encoding="utf-8")
        try:
            job = load_job_file(path)
            proposal = propose(
                job, self.target, settings=self.submit, peaks=(), by="ada", now=utc_now()
            )
            self.target.check(proposal.manifest)
            job_id = self.target.send(proposal.manifest)
        except TrimtabError as error:
            return "refused", None if error.hint else f"a refusal without a hint: {error}"
        _, word, name = job_id.split("/")
        kind = {"job": "Job", "jobset": "JobSet", "pytorchjob": "PyTorchJob"}[word]
        try:
            return "taken", self._broken(job, proposal, self.bed.get(kind, name))
        finally:
            self.bed.ask("DELETE", self.bed.path(kind, "default", name))
            for pod in self.bed.pods():
                self.bed.delete("Pod", pod["metadata"]["name"], grace_seconds=0)

    def _broken(self, job: JobFile, proposal: SubmissionProposal, stored: Any) -> str | None:
        if job.data_claim not in ("", "there"):
            return f"taken although the claim {job.data_claim} does not exist"
        shown = next(yaml.safe_load_all(proposal.manifest.text))
        pod, wanted = inside(stored, "template"), inside(shown, "template")
        pod, wanted = (inside(entry, "containers")[0] for entry in (pod, wanted))
        for name in ("image", "command", "env", "workingDir", "resources"):
            if pod.get(name) != wanted.get(name):
                return f"{name} is kept as {pod.get(name)} instead of {wanted.get(name)}"
        if inside(stored, "serviceAccountName") or inside(stored, "hostPath"):
            return "more was created than was asked for"
        return self._runs_otherwise(job, proposal, stored, pod)

    def _runs_otherwise(
        self, job: JobFile, proposal: SubmissionProposal, stored: Any, container: Any
    ) -> str | None:
        words = [expanded(word) for word in container["command"]]
        given = table_of(self.scenario, CANARY, {})["command"]
        count = len(self.scenario.words)
        if count and words[-count:] != given[-count:]:
            return f"the program is given {words[-count:]}"
        environment = {entry["name"]: expanded(entry["value"]) for entry in container["env"]}
        if any(environment.get(name) != value for name, value in job.environment):
            return f"the environment is {environment}"
        placement = proposal.placement
        if container["resources"]["limits"]["nvidia.com/gpu"] != str(placement.gpus_per_node):
            return f"the GPUs of a pod are {container['resources']}"
        tolerated = inside(stored, "tolerations") or []
        if placement.plan.gpu_type.startswith("A100") != bool(tolerated):
            return f"{tolerated} is tolerated for {placement.plan.gpu_type}"
        stated = {name: environment[f"TRIMTAB_{name.upper()}"] for name in self.scenario.reads}
        stated |= {
            name: value
            for name, value in (("micro_batch", job.micro_batch), ("recompute", job.recompute))
            if value
        }
        found = run_of(words, job.framework, stated)
        spread = placement.plan.job.parallelism
        plan = {
            "global_batch": job.global_batch,
            "spread": (spread.data, spread.tensor, spread.pipeline),
            "sharding": spread.sharding,
            "recompute": placement.plan.job.recompute,
            "micro_batch": placement.plan.job.micro_batch,
        }
        differing = [name for name in plan if str(found[name]) != str(plan[name])]
        return f"{differing}: {found} runs instead of {plan}" if differing else None


def test_what_a_job_file_asks_for_is_what_is_stored(bed: KubernetesBed, measured: Measured) -> None:
    """Words, variables, GPUs, tolerations and parallel sizes of what is taken are those planned."""
    outcomes: Counter[str] = Counter()

    def result(scenario: SubmissionScenario) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            outcome, broken = Trial(bed, scenario, Path(folder)).outcome()
        outcomes[outcome] += 1
        return broken

    run_campaign("submission to Kubernetes", draw, result, default=6, measured=measured)
    assert result(SubmissionScenario()) is None
    assert outcomes["taken"] > outcomes.total() / 6, outcomes
