"""Kubernetes as a target: a Job, JobSet or PyTorchJob is created, its pods tell how it fares."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import yaml

from collectors.kubernetes.client import Document, KubernetesClient
from collectors.kubernetes.nodes import read_node
from collectors.kubernetes.objects import (
    WHOLE_GPU,
    gpu_resources,
    list_in,
    mig_offer,
    part,
    read_pod,
    shares_gpus,
    text_in,
)
from dashboard.submission.fleet import Fleet, FleetNode, fleet_of
from dashboard.submission.job_file import JobFile
from dashboard.submission.kubernetes_api import KubernetesApi
from dashboard.submission.kubernetes_manifest import (
    MARK_ANNOTATION,
    NAME_LABEL,
    PRODUCT,
    kubernetes_manifest,
)
from dashboard.submission.manifest import JobOrder, Manifest
from dashboard.submission.placement import Placement
from dashboard.submission.target import Standing, ran_out_of_gpu_memory
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.clock import utc_now
from data.errors import ChangeRefusedError, UnexpectedAnswerError
from data.records.submissions import Attempt, SubmissionState
from data.source_settings import KubernetesSettings
from data.submit_settings import SubmitSettings

_PATHS = {
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "JobSet": "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "PyTorchJob": "apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
    "Service": "api/v1/namespaces/{}/services",
}
_BY_WORD = {kind.lower(): kind for kind in _PATHS}
_DONE = ("Complete", "Completed", "Succeeded")
_FAILED = ("Failed",)


class KubernetesTarget:
    """One cluster, signed in as the user who may create jobs."""

    name = "kubernetes"

    def __init__(
        self, source: KubernetesSettings, submit: SubmitSettings, catalogue: GpuCatalogue
    ) -> None:
        settings = replace(
            source,
            kubeconfig=submit.kubeconfig or source.kubeconfig,
            context=submit.context or source.context,
        )
        self._submit = submit
        self._catalogue = catalogue
        self._reader = KubernetesClient(replace(settings, namespaces=""))
        self._api = KubernetesApi(settings)

    def fleet(self) -> Fleet:
        """Give the nodes that offer whole GPUs, less what bound pods ask for.

        Errors: CollectorError.
        """
        nodes = self._listed("Node")
        held: Counter[str] = Counter()
        for one in self._listed("Pod"):
            pod = read_pod(one)
            if pod is not None and pod.holds:
                held[pod.node] += sum(ask.count for ask in pod.requests if not ask.mig_profile)
        return fleet_of(
            (self._fleet_node(one, held) for one in nodes if _offers_whole_gpus(one)),
            self._catalogue,
            source="Kubernetes",
        )

    def _listed(self, kind: str) -> list[Document]:
        found = self._reader.listed(kind)
        if found is None:
            raise UnexpectedAnswerError(f"Kubernetes lists no {kind}s", "Is this a Kubernetes API?")
        return [one for one in found if isinstance(one, dict)]

    def _fleet_node(self, document: Document, held: Counter[str]) -> FleetNode:
        node = read_node(document, self._catalogue, seen_at=utc_now(), source=self.name)
        offered = gpu_resources(document).get(WHOLE_GPU, 0)
        return FleetNode(
            name=node.name,
            gpu_type=node.gpu_model,
            word=text_in(document, "metadata", "labels", PRODUCT),
            gpus=offered,
            free_gpus=max(0, offered - held[node.name]),
            cpus=node.cpus,
            memory_mib=node.memory_mib,
            takes_jobs=node.schedulable,
        )

    def manifest(self, job: JobFile, placement: Placement, order: JobOrder) -> Manifest:
        """Give the objects. Errors: ChangeRefusedError."""
        return kubernetes_manifest(job, placement, order, kind=self._submit.kubernetes_kind)

    def check(self, manifest: Manifest) -> str:
        """Have the server validate and admit the objects without keeping them.

        An old server takes what it does not know and drops it: such a job would not be the one
        that was shown. Errors: ChangeRefusedError naming what would be dropped.
        """
        for one in _objects(manifest):
            kept = self._api.create(_path(one), one, trial=True)
            lost = _dropped(one, kept, "") if kept is not None else ""
            if lost:
                raise ChangeRefusedError(
                    f"this Kubernetes would drop {lost} of the {one['kind']}",
                    "Jobs of several nodes need Kubernetes 1.21; or set submit.kubernetes_kind.",
                )
        return "the API server would take it (dryRun=All)"

    def send(self, manifest: Manifest) -> str:
        """Create the objects, and give namespace/kind/name; a service goes with its job.

        A name that is taken by an object with the same mark counts as created.
        """
        self.check(manifest)
        first, *rest = _objects(manifest)
        made = self._created(first, manifest)
        owner = {
            "apiVersion": first["apiVersion"],
            "kind": first["kind"],
            "name": manifest.name,
            "uid": text_in(made, "metadata", "uid"),
        }
        for one in rest:
            one["metadata"] = {**one["metadata"], "ownerReferences": [owner]}
            self._created(one, manifest)
        return _job_id(first, manifest)

    def _created(self, one: dict[str, Any], manifest: Manifest) -> Document:
        made = self._api.create(_path(one), one)
        if made is not None:
            return made
        there = self._api.read(f"{_path(one)}/{quote(manifest.name, safe='')}") or {}
        if part(there, "metadata", "annotations", MARK_ANNOTATION) != manifest.mark:
            raise ChangeRefusedError(
                f"{one['kind']} {manifest.name} exists already and is not ours",
                "Give the job another name.",
            )
        return there

    def find(self, manifest: Manifest) -> str:
        """Give the id of the workload that bears this mark, '' when there is none."""
        first = _objects(manifest)[0]
        there = self._api.read(f"{_path(first)}/{quote(manifest.name, safe='')}") or {}
        ours = part(there, "metadata", "annotations", MARK_ANNOTATION) == manifest.mark
        return _job_id(first, manifest) if ours else ""

    def standing(self, attempt: Attempt, job: JobFile) -> Standing:
        """Give where the workload stands; its pods tell whether memory ran out."""
        names = attempt.job_id.split("/")
        if len(names) != 3 or names[1] not in _BY_WORD:
            raise UnexpectedAnswerError(
                f"{attempt.job_id!r} is no Kubernetes workload", "Is it of this cluster?"
            )
        namespace, word, name = names
        path = _PATHS[_BY_WORD[word]].format(quote(namespace, safe=""))
        found = self._api.read(f"{path}/{quote(name, safe='')}")
        if found is None:
            return Standing(state=SubmissionState.LOST, reason=f"{word} {name} was deleted")
        pods = self._api.read(
            f"api/v1/namespaces/{quote(namespace, safe='')}/pods",
            labelSelector=f"{NAME_LABEL}={name}",
        )
        return _standing(found, list_in(pods or {}, "items"))


def _standing(workload: Document, pods: list[Any]) -> Standing:
    conditions = [
        one for one in list_in(workload, "status", "conditions") if text_in(one, "status") == "True"
    ]
    for one in conditions:
        if text_in(one, "type") in _DONE:
            return Standing(state=SubmissionState.FINISHED)
        if text_in(one, "type") in _FAILED:
            reason = text_in(one, "reason") or "failed"
            return _cause(pods) or Standing(state=SubmissionState.FAILED, reason=reason)
    running = any(text_in(one, "status", "phase") == "Running" for one in pods)
    if running:
        return Standing(state=SubmissionState.RUNNING)
    waiting = [
        text_in(condition, "message")
        for one in pods
        for condition in list_in(one, "status", "conditions")
        if text_in(condition, "reason") == "Unschedulable"
    ]
    return Standing(state=SubmissionState.PENDING, reason=waiting[0] if waiting else "")


def _cause(pods: list[Any]) -> Standing | None:
    """Give which memory ran out: OOMKilled is the host's, a message of torch the GPU's."""
    for end in _ends(pods):
        message = part(end, "message")
        if isinstance(message, str) and ran_out_of_gpu_memory(message[-65_536:]):
            code = part(end, "exitCode")
            return Standing(
                state=SubmissionState.OUT_OF_GPU_MEMORY, reason=f"exit code {code}: CUDA memory"
            )
    if any(text_in(end, "reason") == "OOMKilled" for end in _ends(pods)):
        return Standing(state=SubmissionState.OUT_OF_HOST_MEMORY, reason="OOMKilled")
    return None


def _ends(pods: list[Any]) -> Iterator[Any]:
    for one in pods:
        for status in list_in(one, "status", "containerStatuses"):
            end = part(status, "state", "terminated")
            if end is not None:
                yield end


def _offers_whole_gpus(node: Document) -> bool:
    offered = gpu_resources(node)
    return bool(offered.get(WHOLE_GPU)) and not mig_offer(offered) and not shares_gpus(node)


def _job_id(first: dict[str, Any], manifest: Manifest) -> str:
    return f"{first['metadata']['namespace']}/{first['kind'].lower()}/{manifest.name}"


def _objects(manifest: Manifest) -> list[dict[str, Any]]:
    """Give the objects of the very text that was shown."""
    return [one for one in yaml.safe_load_all(manifest.text) if isinstance(one, dict)]


def _dropped(wanted: Any, kept: Any, place: str) -> str:
    """Give the place of the first field that is wanted and not kept, '' when all are."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            there = kept.get(name) if isinstance(kept, dict) else None
            if there is None and value not in ({}, [], None):
                return f"{place}.{name}"
            lost = _dropped(value, there, f"{place}.{name}")
            if lost:
                return lost
    if isinstance(wanted, list) and isinstance(kept, list):
        pairs = enumerate(zip(wanted, kept, strict=False))
        inner = (_dropped(one, there, f"{place}[{index}]") for index, (one, there) in pairs)
        return next(filter(None, inner), "")
    return ""


def _path(one: dict[str, Any]) -> str:
    return _PATHS[one["kind"]].format(quote(one["metadata"]["namespace"], safe=""))
