"""Kubernetes as a target: a Job, JobSet or PyTorchJob is created, its pods tell how it fares."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import yaml

from collectors.kubernetes.api import CutError, Document
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.host_requests import allocatable, asked_by_pods
from collectors.kubernetes.nodes import read_node
from collectors.kubernetes.objects import (
    HostRequest,
    gpu_resources,
    mig_offer,
    read_pod,
    shares_gpus,
)
from collectors.shared.json_parts import list_in, part, text_in
from dashboard.common.kubernetes_writer import KubernetesWriter
from dashboard.submission.job.fleet import SubmissionFleet, SubmissionNode, Taint, fleet_of
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Placement
from dashboard.submission.targets.kubernetes_manifest import (
    MARK_ANNOTATION,
    NAME_LABEL,
    TTL,
    kubernetes_manifest,
)
from dashboard.submission.targets.target import SentJobState, ran_out_of_gpu_memory
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, SourceRefusedError, UnexpectedAnswerError, scrub
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.gpu_resources import PRODUCT_LABEL, WHOLE_GPU
from data.records.submissions import Attempt, SubmissionState
from data.settings.sources import KubernetesSettings
from data.settings.submission import SubmitSettings

_PATHS = {
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "JobSet": "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "PyTorchJob": "apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
    "Service": "api/v1/namespaces/{}/services",
}
_BY_WORD = {kind.lower(): kind for kind in _PATHS}
_BLOCKING = ("NoSchedule", "NoExecute")
_COMPLETE_CONDITIONS = ("Complete", "Completed", "Succeeded")
_FAILED = ("Failed",)
_STARTING = ("ContainerCreating", "PodInitializing")
_MAX_REASON = 300


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
        self._api = KubernetesWriter(
            settings,
            role="deploy/kubernetes-submitter.yaml",
            section="submit" if submit.kubeconfig else "kubernetes",
        )

    def why_not(self) -> str:
        """Return '': the API itself says whether the account may create jobs."""
        return ""

    def fleet(self) -> SubmissionFleet:
        """Return the nodes that offer whole GPUs, less what bound pods ask for.

        Errors: CollectorError.
        """
        nodes = fleet_nodes(
            self._listed("Node"),
            self._listed("Pod"),
            self._catalogue,
            tolerated=self._submit.tolerated_keys,
        )
        return fleet_of(nodes, self._catalogue, source="Kubernetes")

    def _listed(self, kind: str) -> list[Document]:
        entries = self._reader.listed(kind)
        if entries is None:
            raise UnexpectedAnswerError(f"Kubernetes lists no {kind}s", "Is this a Kubernetes API?")
        return [entry for entry in entries if isinstance(entry, dict)]

    def manifest(self, job: JobFile, placement: Placement, order: JobOrder) -> Manifest:
        """Return the objects. Errors: ChangeRefusedError."""
        return kubernetes_manifest(job, placement, order, kind=self._submit.kubernetes_kind)

    def check(self, manifest: Manifest) -> str:
        """Have the server validate and admit the objects without keeping them.

        An old server takes what it does not know and drops it: such a job would not be the one
        that was shown. Errors: ChangeRefusedError naming what would be dropped, or the claim that
        is not there.
        """
        rows = ["the API server would take it (dryRun=All)"]
        for entry in _objects(manifest):
            stored = self._create(entry, dry_run=True)
            lost = [] if stored is None else list(_dropped(entry, stored, ""))
            rows += [
                f"it drops {place}: finished jobs stay until somebody deletes them"
                for place in lost
                if place.endswith(TTL)
            ]
            vital = [place for place in lost if not place.endswith(TTL)]
            if vital:
                raise ChangeRefusedError(
                    f"this Kubernetes would drop {vital[0]} of the {entry['kind']}",
                    "Jobs of several nodes need Kubernetes 1.21; or set submit.kubernetes_kind.",
                )
            rows += filter(None, (self._claim(entry, name) for name in sorted(set(_claims(entry)))))
        return "; ".join(rows)

    def _claim(self, job_object: dict[str, Any], name: str) -> str:
        """Return a note on a claim, '' if it is there. Errors: ChangeRefusedError."""
        namespace = job_object["metadata"]["namespace"]
        path = f"api/v1/namespaces/{quote(namespace, safe='')}/persistentvolumeclaims"
        try:
            claim = self._api.read(f"{path}/{quote(name, safe='')}")
        except SourceRefusedError:
            return f"whether the claim {name} exists is not known: no right to read it"
        if claim is None or text_in(claim, "status", "phase") == "Lost":
            state = "does not exist" if claim is None else "has lost its volume"
            raise ChangeRefusedError(
                f"the PersistentVolumeClaim {name} {state} in namespace {namespace}: its pods "
                "would wait for it without end",
                "Create it there, or mend claim in [data] of the job file.",
            )
        return ""

    def send(self, manifest: Manifest) -> str:
        """Create the objects, and give namespace/kind/name; a service goes with its job.

        A name that is taken by an object with the same mark counts as created.
        """
        self.check(manifest)
        first, *rest = _objects(manifest)
        created = self._created(first, manifest)
        owner = {
            "apiVersion": first["apiVersion"],
            "kind": first["kind"],
            "name": manifest.name,
            "uid": text_in(created, "metadata", "uid"),
        }
        for entry in rest:
            entry["metadata"] = {**entry["metadata"], "ownerReferences": [owner]}
            self._created(entry, manifest)
        return _job_id(first, manifest)

    def _created(self, job_object: dict[str, Any], manifest: Manifest) -> Document:
        document = self._create(job_object)
        if document is not None:
            return document
        there = self._api.read(f"{_path(job_object)}/{quote(manifest.name, safe='')}") or {}
        if part(there, "metadata", "annotations", MARK_ANNOTATION) != manifest.mark:
            raise ChangeRefusedError(
                f"{job_object['kind']} {manifest.name} exists already and is not ours",
                "Give the job another name.",
            )
        return there

    def _create(self, job_object: Document, *, dry_run: bool = False) -> Document | None:
        """Create an object and return it, None when its name is taken.

        Errors: ChangeRefusedError when it is invalid, CollectorError.
        """
        path = _path(job_object)
        try:
            answer = self._api.create(path, job_object, dry_run=dry_run)
        except CutError as error:
            hint = "" if dry_run else "What may have been created is found by its name."
            raise CutError(error.message, hint or error.hint) from error
        if answer.status == 409:
            return None
        if answer.status in (400, 403, 404, 422) and not answer.lacks_right:
            hints = {
                403: "Ask for what that rule allows, or wait until its quota has room.",
                404: f"Is {job_object['kind']} installed there?",
            }
            raise ChangeRefusedError(
                f"Kubernetes refused the job: {answer.status} {answer.text}",
                hints.get(answer.status, "Mend the job."),
            )
        if not answer.ok:
            raise self._api.refusal(answer, path)
        return answer.document

    def find(self, manifest: Manifest) -> str:
        """Return the id of the workload that bears this mark, '' when there is none."""
        first = _objects(manifest)[0]
        there = self._api.read(f"{_path(first)}/{quote(manifest.name, safe='')}") or {}
        ours = part(there, "metadata", "annotations", MARK_ANNOTATION) == manifest.mark
        return _job_id(first, manifest) if ours else ""

    def standing(self, attempt: Attempt, job: JobFile) -> SentJobState:
        """Return the state of the workload; its pods tell whether memory ran out."""
        names = attempt.job_id.split("/")
        if len(names) != 3 or names[1] not in _BY_WORD:
            raise UnexpectedAnswerError(
                f"{attempt.job_id!r} is no Kubernetes workload", "Is it of this cluster?"
            )
        namespace, word, name = names
        path = _PATHS[_BY_WORD[word]].format(quote(namespace, safe=""))
        workload = self._api.read(f"{path}/{quote(name, safe='')}")
        if workload is None:
            return SentJobState(state=SubmissionState.LOST, reason=f"{word} {name} was deleted")
        pods = self._api.read(
            f"api/v1/namespaces/{quote(namespace, safe='')}/pods",
            {"labelSelector": f"{NAME_LABEL}={name}"},
        )
        items = list_in(pods or {}, "items")
        standing = state_of_workload(workload, items)
        if standing.state is SubmissionState.PENDING and not standing.reason:
            # A pod that waits tells why nothing runs, else the workload.
            waiting = (pod for pod in items if text_in(pod, "status", "phase") == "Pending")
            about = next((text_in(pod, "metadata", "name") for pod in waiting), name)
            return replace(standing, reason=self._last_warning(namespace, about))
        return standing

    def _last_warning(self, namespace: str, name: str) -> str:
        """Return the latest warning about an object; '' without one, and without the right."""
        try:
            events = self._api.read(
                f"api/v1/namespaces/{quote(namespace, safe='')}/events",
                {"fieldSelector": f"involvedObject.name={name}"},
            )
        except SourceRefusedError:
            return ""
        return last_warning(list_in(events or {}, "items"))


def _job_id(first: dict[str, Any], manifest: Manifest) -> str:
    return f"{first['metadata']['namespace']}/{first['kind'].lower()}/{manifest.name}"


def _objects(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the objects of the very text that was shown."""
    return [entry for entry in yaml.safe_load_all(manifest.text) if isinstance(entry, dict)]


def _dropped(target: Any, stored: Any, place: str) -> Iterator[str]:
    """Yield the places of fields that are wanted and not kept."""
    if isinstance(target, dict):
        for name, value in target.items():
            there = stored.get(name) if isinstance(stored, dict) else None
            if there is None and value not in ({}, [], None):
                yield f"{place}.{name}"
            else:
                yield from _dropped(value, there, f"{place}.{name}")
    if isinstance(target, list) and isinstance(stored, list):
        for index, (entry, there) in enumerate(zip(target, stored, strict=False)):
            yield from _dropped(entry, there, f"{place}[{index}]")


def _claims(node: Any) -> Iterator[str]:
    """Yield the names of the claims that an object mounts, however deep its pods are."""
    if isinstance(node, dict):
        claim = part(node, "persistentVolumeClaim", "claimName")
        if isinstance(claim, str):
            yield claim
        for value in node.values():
            yield from _claims(value)
    if isinstance(node, list):
        for value in node:
            yield from _claims(value)


def _path(job_object: dict[str, Any]) -> str:
    return _PATHS[job_object["kind"]].format(quote(job_object["metadata"]["namespace"], safe=""))


def fleet_nodes(
    nodes: Iterable[Document],
    pods: Iterable[Document],
    catalogue: GpuCatalogue,
    *,
    tolerated: Collection[str],
) -> Iterator[SubmissionNode]:
    """Yield the nodes that offer whole GPUs, less what bound pods ask for.

    CPU and memory are what a node can allocate less the requests of its pods without GPUs: what
    jobs with GPUs can share. A node with a taint whose key is not tolerated takes no jobs.
    """
    gpus_by_node, others = _held_by(pods)
    requests = asked_by_pods(others)
    for document in nodes:
        offered = gpu_resources(document)
        if not offered.get(WHOLE_GPU) or mig_offer(offered) or shares_gpus(document):
            continue
        node = read_node(document, catalogue, seen_at=utc_now(), source="kubernetes")
        name, gpus = node.name, offered[WHOLE_GPU]
        has, theirs = allocatable(document), requests.get(name, HostRequest())
        free = None if has is None or theirs is None else has - theirs
        taints = tuple(_taints(document))
        cordoned = part(document, "spec", "unschedulable") is True
        yield SubmissionNode(
            name=name,
            gpu_type=node.gpu_model,
            word=text_in(document, "metadata", "labels", PRODUCT_LABEL),
            gpus=gpus,
            free_gpus=max(0, gpus - gpus_by_node[name]),
            cpus=None if free is None else free.cpus,
            memory_mib=None if free is None else free.memory_mib,
            takes_jobs=node.state == "Ready"
            and not cordoned
            and all(taint.key in tolerated for taint in taints),
            taints=taints,
        )


def _held_by(pods: Iterable[Document]) -> tuple[Counter[str], list[Document]]:
    """Return the whole GPUs that pods hold by node, and the pods without GPUs."""
    gpus, others = Counter[str](), list[Document]()
    for document in pods:
        pod = read_pod(document)
        if pod is None:
            others.append(document)
        elif pod.holds:
            gpus[pod.node] += sum(ask.count for ask in pod.requests if not ask.mig_profile)
    return gpus, others


def _taints(document: Document) -> Iterator[Taint]:
    for taint in list_in(document, "spec", "taints"):
        if text_in(taint, "effect") in _BLOCKING:
            yield Taint(
                key=text_in(taint, "key"),
                value=text_in(taint, "value"),
                effect=text_in(taint, "effect"),
            )


def state_of_workload(workload: Document, pods: list[Any]) -> SentJobState:
    """Return the state of a workload; its pods tell whether memory ran out, and why they wait."""
    conditions = [
        entry
        for entry in list_in(workload, "status", "conditions")
        if text_in(entry, "status") == "True"
    ]
    for condition in conditions:
        if text_in(condition, "type") in _COMPLETE_CONDITIONS:
            return SentJobState(state=SubmissionState.FINISHED)
        if text_in(condition, "type") in _FAILED:
            reason = text_in(condition, "reason") or "failed"
            return _cause(pods) or SentJobState(state=SubmissionState.FAILED, reason=reason)
    waiting = next(filter(None, map(_why_waiting, pods)), "")
    if any(text_in(pod, "status", "phase") == "Running" for pod in pods):
        return SentJobState(state=SubmissionState.RUNNING, reason=waiting)
    return SentJobState(state=SubmissionState.PENDING, reason=waiting)


def _why_waiting(pod: Any) -> str:
    """Return the reason of a pod to wait: the scheduler's words, else those of a container."""
    if text_in(pod, "status", "phase") != "Pending":
        return ""
    for condition in list_in(pod, "status", "conditions"):
        if text_in(condition, "reason") == "Unschedulable":
            return scrub(text_in(condition, "message"), limit=_MAX_REASON)
    for status in list_in(pod, "status", "containerStatuses"):
        waiting = part(status, "state", "waiting")
        reason = text_in(waiting, "reason")
        if reason and reason not in _STARTING:
            return scrub(f"{reason} {text_in(waiting, 'message')}".strip(), limit=_MAX_REASON)
    return ""


def _cause(pods: list[Any]) -> SentJobState | None:
    """Return the memory that ran out: OOMKilled is the host's, a message of torch the GPU's."""
    for end in _ends(pods):
        message = part(end, "message")
        if isinstance(message, str) and ran_out_of_gpu_memory(message[-65_536:]):
            code = part(end, "exitCode")
            return SentJobState(
                state=SubmissionState.OUT_OF_GPU_MEMORY, reason=f"exit code {code}: CUDA memory"
            )
    if any(text_in(end, "reason") == "OOMKilled" for end in _ends(pods)):
        return SentJobState(state=SubmissionState.OUT_OF_HOST_MEMORY, reason="OOMKilled")
    return None


def _ends(pods: list[Any]) -> Iterator[Any]:
    for pod in pods:
        for status in list_in(pod, "status", "containerStatuses"):
            end = part(status, "state", "terminated")
            if end is not None:
                yield end


def last_warning(events: list[Any]) -> str:
    """Return the words of the latest warning among events, '' when there is none."""
    warnings = [event for event in events if text_in(event, "type") == "Warning"]
    if not warnings:
        return ""
    latest = max(warnings, key=lambda event: text_in(event, "lastTimestamp"))
    text = f"{text_in(latest, 'reason')}: {text_in(latest, 'message')}"
    return scrub(text, limit=_MAX_REASON)
