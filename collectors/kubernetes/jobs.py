"""Workloads, nodes and allocations of one Kubernetes cluster.

The API tells which pod asks for how many GPUs on which node, and DRA claims also which; with a
device plugin the boards themselves are known to telemetry only, whose labels name the pod. So an
allocation maps a pod's name and its uid to the workload that a person would change.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from collectors.base import Window
from collectors.kubernetes.client import KINDS, Document, Inventory, KubernetesClient
from collectors.kubernetes.nodes import read_node
from collectors.kubernetes.objects import (
    PodFacts,
    claimed_devices,
    gpu_resources,
    labels_of,
    model_of,
    on_node,
    part,
    read_pod,
    shares_gpus,
    text_in,
    with_claims,
)
from collectors.kubernetes.workloads import Owners, Workload, admissions
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.collected import Collected
from data.columns import ALLOCATIONS, check_frame, empty_frame
from data.errors import scrub
from data.records.cluster import Node, SourceReport, SourceState
from data.records.identifiers import digest_of
from data.records.jobs import Job, JobState, Platform, SchedulerFacts

_USER_LABELS = ("app.kubernetes.io/created-by", "owner", "user")
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class KubernetesCollector:
    """One cluster, read through `client`."""

    client: KubernetesClient
    catalogue: GpuCatalogue

    @property
    def name(self) -> str:
        """The source's name in reports."""
        return f"kubernetes {self.client.name}"

    def collect(self, window: Window) -> Collected:
        """Give workloads with GPUs, nodes and allocations as of the window's end.

        Errors: CollectorError when nodes or pods cannot be read; another kind that cannot be read
        is a warning and lowers the completeness.
        """
        inventory = self.client.inventory()
        view = _View(inventory, window, self.name, self.catalogue)
        jobs, nodes, allocations = view.jobs(), view.nodes(), view.allocations()
        rows = allocations.to_csv(index=False)
        return Collected(
            batch_id=digest_of([self.name, window.start, window.end, jobs, nodes, rows]),
            jobs=jobs,
            nodes=nodes,
            allocations=allocations,
            report=SourceReport(
                source=self.name,
                state=SourceState.RAN,
                reason="" if jobs or nodes else "no node offers and no pod asks for GPUs",
                samples=0,
                dropped=tuple(sorted((+view.dropped).items())),
                completeness_ratio=1 - len(inventory.missing) / len(KINDS),
                warnings=tuple(inventory.missing.values()),
                window_start=window.start,
                window_end=window.end,
            ),
        )


class _View:
    """One reading of the cluster, told as jobs, nodes and allocations."""

    def __init__(
        self, inventory: Inventory, window: Window, source: str, catalogue: GpuCatalogue
    ) -> None:
        self.window, self.source, self.catalogue = window, source, catalogue
        self.dropped: Counter[str] = Counter()
        self._inventory = inventory
        self._nodes = {text_in(one, "metadata", "name"): one for one in inventory.of("Node")}
        self._owners = Owners(inventory)
        self._admissions = admissions(inventory)
        self._claims = {
            (text_in(one, "metadata", "namespace"), text_in(one, "metadata", "name")): one
            for one in inventory.of("ResourceClaim")
        }
        self._pods: dict[Workload, list[PodFacts]] = {}
        self.dropped.update({"unreadable-object": inventory.unreadable} if inventory.unreadable
                            else {})  # fmt: skip
        for document in inventory.of("Pod"):
            pod = self._pod(document)
            if pod is not None:
                workload = self._owners.workload_of(pod.namespace, pod.name, pod.owner)
                self._pods.setdefault(workload, []).append(pod)

    def _pod(self, document: Document) -> PodFacts | None:
        """Give a pod with GPUs, None of any other, which is counted."""
        pod = read_pod(document)
        if pod is None:
            self.dropped["no-gpu-pod"] += 1
            return None
        if not pod.name or not pod.namespace:
            self.dropped["unreadable-object"] += 1
            return None
        named = [self._claims.get((pod.namespace, one)) for one in pod.claims]
        known = [one for one in named if one is not None]
        self.dropped.update(["claim-not-visible"] * (len(named) - len(known)))
        counted = with_claims(pod, known)
        if counted is None:
            self.dropped["no-gpu-pod"] += len(known) == len(named)
            return None
        return on_node(counted, self._nodes.get(pod.node, {}))

    def nodes(self) -> tuple[Node, ...]:
        """Give every node that offers GPUs."""
        return tuple(
            read_node(one, self.catalogue, seen_at=self.window.end, source=self.source)
            for _name, one in sorted(self._nodes.items())
            if gpu_resources(one)
        )

    def jobs(self) -> tuple[Job, ...]:
        """Give every workload whose pods ask for GPUs."""
        return tuple(
            self._job(workload, pods)
            for workload, pods in sorted(self._pods.items(), key=lambda pair: pair[0].job_id)
        )

    def _job(self, workload: Workload, pods: Sequence[PodFacts]) -> Job:
        running = [one for one in pods if one.phase == "Running"]
        waiting = [one for one in pods if one.phase == "Pending"]
        counted = running or waiting or list(pods)
        state, reason = _state(workload, pods)
        starts = [one.started_at for one in pods if one.started_at]
        ends = [one.ended_at for one in pods if one.ended_at]
        over = state in (JobState.FINISHED, JobState.FAILED)
        last = max(ends) if over and ends else self.window.end
        first = min([*starts, *(one.created_at for one in pods if one.created_at)], default=last)
        marks = labels_of(workload.chain[0]) if workload.chain else {}
        profiles = sorted({one.mig_profile for pod in counted for one in pod.requests})
        nodes = tuple(sorted({one.node for one in running if one.node}))
        models = sorted({model_of(self._nodes[one], self.catalogue) for one in nodes
                         if one in self._nodes} - {""})  # fmt: skip
        if len(models) > 1 or len(profiles) > 1:
            self.dropped["further-gpu-type-of-workload"] += len(models) + len(profiles) - 2
        return Job(
            job_id=workload.job_id,
            name=workload.name,
            namespace=workload.namespace,
            owner=next((marks[label] for label in _USER_LABELS if marks.get(label)), ""),
            platform=Platform.KUBERNETES,
            kind=workload.work,
            gpu_model=models[0] if models else "",
            gpu_count=_at_once(counted) if over else sum(one.gpus for one in counted),
            mig_profile=profiles[-1] if profiles else "",
            gpu_memory_mib=None,
            first_seen_at=min(first, last),
            last_seen_at=last,
            source=self.source,
            scheduler=SchedulerFacts(
                state=state,
                reason=scrub(reason, limit=_LONGEST_REASON),
                workload=f"{workload.kind.lower()}/{workload.name}",
                user=next((marks[label] for label in _USER_LABELS if marks.get(label)), ""),
                nodes=nodes,
                submitted_at=min((one.created_at for one in pods if one.created_at), default=None),
                started_at=min(starts, default=None),
                ended_at=max(ends) if over and ends else None,
                managed_by=self._owners.managers_of(workload),
                extra=tuple(self._extra(workload, counted, running, waiting)),
            ),
        )

    def _extra(
        self,
        workload: Workload,
        counted: Sequence[PodFacts],
        running: Sequence[PodFacts],
        waiting: Sequence[PodFacts],
    ) -> Iterator[tuple[str, str]]:
        per_pod = sorted({one.gpus for one in counted})
        yield "pods", str(len(running))
        yield "gpus_per_pod", ", ".join(map(str, per_pod))
        if waiting:
            yield "pending_pods", str(len(waiting))
        queue = self._owners.queue_of(workload)
        if queue:
            yield "queue", queue
        said = self._admissions.get((workload.kind, workload.namespace, workload.name))
        if said:
            yield "kueue", scrub(said, limit=_LONGEST_REASON)
        yield from self._owners.bounds_of(workload)
        if any(one.shared for pod in counted for one in pod.requests):
            yield "sharing", "time-slicing or MPS"

    def allocations(self) -> pd.DataFrame:
        """Give who held what: a row for each name by which telemetry may know the pod."""
        rows = [
            row
            for workload, pods in self._pods.items()
            for pod in pods
            if pod.started_at is not None and pod.node and not self._endless(pod)
            for row in self._held(workload, pod, pod.started_at)
        ]
        if not rows:
            return empty_frame(ALLOCATIONS)
        frame = pd.DataFrame(rows)
        for name in ("started_at", "ended_at", "seen_at"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        return check_frame(frame.sort_values(["job_id", "label_id", "gpu_index"]), ALLOCATIONS)

    def _endless(self, pod: PodFacts) -> bool:
        """Whether a pod is over and nothing says since when: a row would hold boards for ever."""
        unknown = pod.phase in ("Succeeded", "Failed") and pod.ended_at is None
        self.dropped["end-unknown"] += unknown
        return unknown

    def _held(
        self, workload: Workload, pod: PodFacts, started_at: datetime
    ) -> Iterable[dict[str, Any]]:
        common = {
            "job_id": workload.job_id,
            "node": pod.node,
            "gpu_index": "",
            "started_at": started_at,
            "ended_at": pod.ended_at,
            "seen_at": self.window.end,
            "source": self.source,
        }
        named = [
            index
            for claim in pod.claims
            for node, index in claimed_devices(self._claims.get((pod.namespace, claim), {}))
            if node == pod.node and index
        ]
        # A share or a slice is no board: a count would claim the node's boards for this pod.
        whole = not any(one.mig_profile or one.shared for one in pod.requests) and not shares_gpus(
            self._nodes.get(pod.node, {})
        )
        count = float(pod.gpus) if whole and pod.gpus else None
        labels = [f"{pod.namespace}/{pod.name}"] + ([f"pod-uid:{pod.uid}"] if pod.uid else [])
        for label in labels:
            for index in named:
                yield common | {"label_id": label, "gpu_index": index, "gpu_count": 1.0}
            rest = None if count is None else count - len(named)
            if not named or rest:
                yield common | {"label_id": label, "gpu_count": rest}


def _state(workload: Workload, pods: Sequence[PodFacts]) -> tuple[JobState, str]:
    """Give a workload's state and the reason for it, from its pods."""
    phases = Counter(one.phase for one in pods)
    why = next((one.reason for one in pods if one.phase == "Pending" and one.reason), "")
    if phases["Running"]:
        return JobState.RUNNING, why
    if phases["Pending"]:
        return JobState.PENDING, why
    if any(part(one, "spec", "suspend") is True for one in workload.chain):
        return JobState.SUSPENDED, "suspended"
    if phases["Failed"]:
        return JobState.FAILED, next((one.reason for one in pods if one.reason), "")
    return (JobState.FINISHED if phases["Succeeded"] else JobState.UNKNOWN), ""


def _at_once(pods: Sequence[PodFacts]) -> int:
    """Give the most GPUs that these pods held at a time; a finished job's may have taken turns."""
    moments: list[tuple[datetime, int]] = []
    for pod in pods:
        if pod.started_at is not None and pod.ended_at is not None:
            moments += [(pod.started_at, pod.gpus), (pod.ended_at, -pod.gpus)]
    held, most = 0, max(one.gpus for one in pods)
    for _moment, change in sorted(moments):
        held += change
        most = max(most, held)
    return most
