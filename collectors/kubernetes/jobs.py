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
from collectors.kubernetes.objects import (
    WHOLE_GPU,
    PodFacts,
    claimed_devices,
    gpu_resources,
    labels_of,
    list_in,
    mig_offer,
    model_of,
    part,
    read_pod,
    shares_gpus,
    text_in,
)
from collectors.kubernetes.workloads import Owners, Workload, admissions
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.collected import Collected
from data.columns import ALLOCATIONS, check_frame, empty_frame
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
                dropped=tuple(sorted(view.dropped.items())),
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
        for document in inventory.of("Pod"):
            pod = read_pod(document)
            if pod is None:
                self.dropped["no-gpu"] += 1
            elif not pod.name or not pod.namespace:
                self.dropped["unreadable-pod"] += 1
            else:
                workload = self._owners.workload_of(pod.namespace, pod.name, pod.owner)
                self._pods.setdefault(workload, []).append(pod)

    def nodes(self) -> tuple[Node, ...]:
        """Give every node that offers GPUs."""
        return tuple(
            self._node(name, one) for name, one in sorted(self._nodes.items()) if gpu_resources(one)
        )

    def _node(self, name: str, node: Document) -> Node:
        resources = gpu_resources(node)
        blocked = [
            text_in(taint, "key")
            for taint in list_in(node, "spec", "taints")
            if text_in(taint, "effect") in ("NoSchedule", "NoExecute")
            and not text_in(taint, "key").startswith("nvidia.com/")
        ]
        ready = any(
            text_in(one, "type") == "Ready" and text_in(one, "status") == "True"
            for one in list_in(node, "status", "conditions")
        )
        cordoned = part(node, "spec", "unschedulable") is True
        labels = part(node, "metadata", "labels")
        return Node(
            name=name,
            gpu_model=model_of(node, self.catalogue),
            gpu_count=resources.get(WHOLE_GPU, 0),
            mig_instances=mig_offer(resources),
            cpus=int(cpus) if (cpus := text_in(node, "status", "capacity", "cpu")).isdecimal()
            else None,
            memory_mib=_mebibytes(text_in(node, "status", "capacity", "memory")),
            features=tuple(
                f"{key}={value}"
                for key, value in sorted(labels.items() if isinstance(labels, dict) else ())
                if str(key).startswith(("nvidia.com/", "topology.kubernetes.io/"))
            ),
            state="Ready" if ready else "NotReady",
            reason=", ".join((["cordoned"] if cordoned else []) + blocked),
            schedulable=ready and not cordoned and not blocked,
            seen_at=self.window.end,
            source=self.source,
        )  # fmt: skip

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
            gpu_count=max(1, sum(one.gpus for one in counted)),
            mig_profile=profiles[-1] if profiles else "",
            gpu_memory_mib=None,
            first_seen_at=min(first, last),
            last_seen_at=last,
            source=self.source,
            scheduler=SchedulerFacts(
                state=state,
                reason=reason[:_LONGEST_REASON],
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
            yield "kueue", said
        scaler = self._owners.autoscaler_of(workload)
        for name in ("minReplicas", "maxReplicas"):
            found = part(scaler, "spec", name)
            if isinstance(found, int):
                yield f"autoscaler {name}", str(found)
        if any(one.shared for pod in counted for one in pod.requests):
            yield "sharing", "time-slicing or MPS"

    def allocations(self) -> pd.DataFrame:
        """Give who held what: a row for each name by which telemetry may know the pod."""
        rows = [
            row
            for workload, pods in self._pods.items()
            for pod in pods
            if pod.started_at is not None and pod.node
            for row in self._held(workload, pod, pod.started_at)
        ]
        if not rows:
            return empty_frame(ALLOCATIONS)
        frame = pd.DataFrame(rows)
        for name in ("started_at", "ended_at", "seen_at"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        return check_frame(frame.sort_values(["job_id", "label_id", "gpu_index"]), ALLOCATIONS)

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
            if node == pod.node
        ]
        # A share or a slice is no board: a count would claim the node's boards for this pod.
        whole = not any(one.mig_profile or one.shared for one in pod.requests) and not shares_gpus(
            self._nodes.get(pod.node, {})
        )
        count = float(pod.gpus) if whole and pod.gpus else None
        labels = [f"{pod.namespace}/{pod.name}"] + ([f"pod-uid:{pod.uid}"] if pod.uid else [])
        for label in labels:
            if named:
                for index in named:
                    yield common | {"label_id": label, "gpu_index": index, "gpu_count": 1.0}
            else:
                yield common | {"label_id": label, "gpu_count": count}


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


_UNITS = {"Ki": 1 / 1024, "Mi": 1.0, "Gi": 1024.0, "Ti": 1024.0**2}


def _mebibytes(quantity: str) -> float | None:
    """Give a memory quantity such as 527Gi in MiB, None when it is none."""
    number, unit = quantity[:-2], quantity[-2:]
    if quantity.isascii() and quantity.isdecimal() and len(quantity) < 20:
        return int(quantity) / 1024**2
    if unit in _UNITS and number.isascii() and number.isdecimal() and len(number) < 16:
        return int(number) * _UNITS[unit]
    return None
