"""Workloads, nodes and allocations of one Kubernetes cluster.

The API tells which pod asks for how many GPUs on which node, and DRA claims also which; with a
device plugin the boards themselves are known to telemetry only, whose labels name the pod. So an
allocation maps a pod's name and its uid to the workload that a person would change.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import pandas as pd

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.findings import kubernetes_findings, unread_accelerators
from collectors.kubernetes.host_requests import asked_of_host, unchecked_host_warning
from collectors.kubernetes.kinds import EXCERPT, KINDS, excerpt_text
from collectors.kubernetes.nodes import read_nodes
from collectors.kubernetes.objects import (
    GpuRequest,
    PodFacts,
    labels_of,
    model_of,
    on_node,
    product_of,
    read_pod,
)
from collectors.kubernetes.own_work import checkpoint_facts, own_work_facts
from collectors.kubernetes.placement_rules import FullBudgets, OpenNodes, admits, rules_of
from collectors.kubernetes.pod_devices import (
    UNKNOWN_PROFILE,
    ClaimedDevice,
    claimed_devices,
    device_rows,
    devices_of,
    is_reservation,
    replicas_in_use,
    reservations,
    share_facts,
    share_of,
    with_claims,
)
from collectors.kubernetes.pod_templates import (
    KINDS_WITH_TEMPLATES,
    demand_of,
    host_facts,
    rollout_refusal,
    unit_facts,
    unread_count,
)
from collectors.kubernetes.queues import queue_of_pod, quotas_of
from collectors.kubernetes.workload_state import WorkloadState, deadline_of, state_of_workload
from collectors.kubernetes.workloads import INSTANCE, Owners, Workload, admissions
from collectors.readings.reported_progress import IMPLAUSIBLE, share_done
from collectors.shared.collect import MAX_SKEW
from collectors.shared.collector import Source, Window
from collectors.shared.json_parts import count_of, part, text_in, time_in, whole_number
from data.base.errors import scrub
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.collected import Collected
from data.facts.columns import ALLOCATIONS, PROGRESS, check_frame, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.gpu_resources import MEMORY_LABEL, RESOURCE
from data.facts.identifiers import digest_of
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from data.records.feasible_changes import (
    NO_DISRUPTIONS,
    SERVER_VERSION,
    TAKERS,
    TAKERS_GPUS,
    UNREAD_REQUEST,
)

_MAX_REASON, _MAX_NAMES = 300, 3
Told = tuple[datetime, float | None]
"""Time of a report, and the share of the work that is done; None where it is not a share."""


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
        """Return workloads with GPUs, nodes and allocations as of the window's end.

        Errors: CollectorError when nodes or pods cannot be read; another kind that cannot be read
        is a warning and lowers the completeness.
        """
        inventory = self.client.inventory()
        view = _View(inventory, window, self.name, self.catalogue)
        nodes = read_nodes(inventory, self.catalogue, seen_at=window.end, source=self.name)
        jobs, allocations = view.jobs(), view.allocations()
        quotas = quotas_of(inventory, self.catalogue, self.name, window.end, view.dropped)
        progress = view.progress()
        unread = unread_accelerators(inventory)
        hosts = unchecked_host_warning(
            inventory, [node.name for node in nodes if node.free_cpus is None]
        )
        rows = allocations.to_csv(index=False) + progress.to_csv(index=False)
        return Collected(
            batch_id=digest_of([self.name, window.start, window.end, jobs, nodes, rows, quotas]),
            jobs=jobs,
            nodes=nodes,
            allocations=allocations,
            progress=progress,
            quotas=quotas,
            report=SourceReport(
                source=self.name,
                state=SourceState.RAN,
                reason=unread.reason(nothing_else=not jobs and not nodes),
                dropped=tuple(sorted((+view.dropped).items())),
                completeness_ratio=unread.whole_ratio * (1 - len(inventory.missing) / len(KINDS)),
                warnings=(*inventory.missing.values(), *inventory.warnings, *hosts, *unread.texts),
                window_start=window.start,
                window_end=window.end,
            ),
        )


class _GpuDemand(NamedTuple):
    """GPUs that a pod asks for: how many, of which kinds, by which rules, of which scheduler."""

    gpus: int
    kinds: tuple[str, ...]
    rules: str
    scheduler: str


def _wish_of(pod: PodFacts) -> _GpuDemand:
    kinds = sorted(f"{request.mig_profile} {request.shared}" for request in pod.requests)
    return _GpuDemand(pod.gpus, (pod.resource, *kinds), pod.rules, pod.scheduler)


class _View:
    """One reading of the cluster, told as jobs, nodes and allocations."""

    def __init__(
        self, inventory: Inventory, window: Window, source: str, catalogue: GpuCatalogue
    ) -> None:
        self.window, self.source, self.catalogue = window, source, catalogue
        self.dropped: Counter[str] = Counter()
        self._nodes = {text_in(entry, "metadata", "name"): entry for entry in inventory.of("Node")}
        self._owners = Owners(inventory)
        self._admissions, self._version = admissions(inventory), inventory.version
        self._budgets = FullBudgets(inventory.of("PodDisruptionBudget"))
        self._claims = {
            (text_in(entry, "metadata", "namespace"), text_in(entry, "metadata", "name")): entry
            for entry in inventory.of("ResourceClaim")
        }
        self._devices = devices_of(inventory.of("ResourceSlice"))
        by_model: dict[str, list[Document]] = {}
        for entry in self._nodes.values():
            by_model.setdefault(model_of(entry, catalogue), []).append(entry)
        self._open = OpenNodes(by_model)
        self._pods: dict[Workload, list[PodFacts]] = {}
        self._line: dict[tuple[Workload, _GpuDemand], list[str]] = {}
        self._demand: dict[Workload, tuple[GpuRequest, ...]] = {}
        self.dropped["unreadable-object"] += inventory.unreadable
        self._reserved = reservations(inventory.of("Pod"))
        for document in inventory.of("Pod"):
            pod = self._pod(document)
            if pod is not None:
                holder = self._owners.workload_of(pod)
                self._pods.setdefault(holder, []).append(pod)
                if pod.waits and not part(document, "spec", "schedulingGates"):
                    wishes = self._line.setdefault((holder, _wish_of(pod)), [])
                    wishes.append(f"{pod.namespace}/{pod.name}")
        living = (pod for pods in self._pods.values() for pod in pods)
        self._in_use = replicas_in_use(living, self._nodes)
        for kind in KINDS_WITH_TEMPLATES:
            for document in inventory.of(kind):
                workload = self._owners.workload_over(kind, document)
                demand = demand_of(kind, document)
                self.dropped["unread-pod-count"] += bool(unread_count(kind, document))
                if workload is not None and demand:
                    self._demand.setdefault(workload, demand)
                    self._pods.setdefault(workload, [])

    def _pod(self, document: Document) -> PodFacts | None:
        """Return a pod with GPUs, None of any other, which is counted."""
        if is_reservation(document):
            self.dropped["board-reservation"] += 1
            return None
        pod = read_pod(document)
        if pod is None:
            self.dropped["no-gpu-pod"] += 1
            return None
        if not pod.name or not pod.namespace:
            self.dropped["unreadable-object"] += 1
            return None
        claims = [self._claims.get((pod.namespace, claim)) for claim in pod.claims]
        visible_claims = [name for name in claims if name is not None]
        self.dropped.update(["claim-not-visible"] * (len(claims) - len(visible_claims)))
        counted = with_claims(pod, visible_claims, self._devices)
        if counted is None or not counted.requests:
            why = "no-gpu-pod" if counted is None else "request-not-understood"
            self.dropped[why] += len(visible_claims) == len(claims)
            return None
        rules, queue = rules_of(part(document, "spec")), queue_of_pod(document)
        budget = self._budgets.over(document)
        asks = asked_of_host(part(document, "spec"))
        bound = replace(counted, rules=rules, queue=queue, budget=budget, asks=asks)
        node = self._nodes.get(pod.node, {})
        placed = on_node(bound, node)
        return replace(placed, share=share_of(placed, document, node, self._reserved))

    def progress(self) -> pd.DataFrame:
        """Return the reported progress of workloads with GPUs."""
        return progress_of_workloads(self._pods, self.window.end, self.dropped)

    def jobs(self) -> tuple[Job, ...]:
        """Return every workload whose pods ask for GPUs, or that wants such pods and has none."""
        jobs = []
        for workload in sorted(self._pods, key=lambda pod: pod.job_id):
            pods = self._pods[workload]
            standing = self._standing(workload, pods)
            over = standing.ended_at is not None and standing.ended_at < self.window.start
            if standing.count and (pods or not over):
                jobs.append(self._job(workload, pods, standing))
        return tuple(jobs)

    def _standing(self, workload: Workload, pods: Sequence[PodFacts]) -> WorkloadState:
        """Return the state of a workload: one that Kueue suspends before its first run waits."""
        standing = state_of_workload(workload, pods, self._demand.get(workload, ()))
        admission = self._admissions.get(workload.key)
        if admission is None or not admission.is_new or standing.state is not JobState.SUSPENDED:
            return standing
        return replace(standing, state=JobState.PENDING, reason=admission.word)

    def _job(self, workload: Workload, pods: Sequence[PodFacts], standing: WorkloadState) -> Job:
        starts = [pod.started_at for pod in pods if pod.started_at]
        times = (time_in(entry, "metadata", "creationTimestamp") for entry in workload.chain)
        created = [pod.created_at for pod in pods if pod.created_at] or list(filter(None, times))
        last = standing.ended_at or self.window.end
        models = self._models(pods)
        # Of several models the job is of none, and so is its memory: plans leave it alone.
        model, profile = ",".join(models), standing.profile
        if profile == UNKNOWN_PROFILE:
            profile = ""
        user = self._owners.user_of(workload)
        return Job(
            job_id=workload.job_id,
            name=workload.name,
            namespace=workload.namespace,
            owner=user,
            platform=Platform.KUBERNETES,
            kind=workload.work,
            gpu_model=model,
            gpu_count=standing.count,
            mig_profile=profile,
            gpu_memory_mib=None if len(models) > 1 else self._memory(model, profile, pods),
            first_seen_at=min([*starts, *created, last]),
            last_seen_at=last,
            source=self.source,
            assumed=workload.assumed,
            scheduler=SchedulerFacts(
                state=standing.state,
                reason=scrub(standing.reason, limit=_MAX_REASON),
                workload=f"{workload.word}/{workload.name}",
                user=user,
                nodes=tuple(sorted({pod.node for pod in pods if pod.holds})),
                submitted_at=min(created, default=None),
                started_at=min(starts, default=None),
                ended_at=standing.ended_at,
                managed_by=self._owners.managers_of(workload),
                extra=tuple(self._extra(workload, pods, standing)),
            ),
        )

    def _models(self, pods: Sequence[PodFacts]) -> list[str]:
        """Return the models of the boards that claims name, else of the nodes that pods hold.

        Of pods that all wait, the one model that their rules let them have.
        """
        claimed_models = {
            self.catalogue.recognise(device.product)
            for pod in pods
            if pod.holds
            for device in self._devices_of(pod)
            if device.product
        }
        nodes = (self._nodes.get(pod.node, {}) for pod in pods if pod.holds)
        models = claimed_models or {model_of(node, self.catalogue) for node in nodes} - {""}
        open_model = self._open.only_model({pod.rules for pod in pods if pod.waits})
        return sorted(models) or [open_model] * bool(open_model)

    def _memory(self, model: str, profile: str, pods: Sequence[PodFacts]) -> float | None:
        """Return the MiB of a board as its node says, else as the catalogue does.

        Of an instance.
        """
        entry = self.catalogue.find(model)
        if profile:
            instance = entry.mig_profile(profile) if entry else None
            return float(instance.memory_mib) if instance else None
        nodes = [self._nodes.get(pod.node, {}) for pod in pods if pod.holds]
        mib = {count_of(text_in(node, "metadata", "labels", MEMORY_LABEL)) for node in nodes} - {0}
        if len(mib) == 1:
            return float(mib.pop())
        return float(entry.memory_mib) if entry else None

    def _extra(
        self, workload: Workload, pods: Sequence[PodFacts], standing: WorkloadState
    ) -> Iterator[tuple[str, str]]:
        holding = [pod for pod in pods if pod.holds]
        waiting = [pod for pod in pods if pod.waits]
        yield "pods", str(len(holding))
        per_pod = sorted({facts.gpus for facts in holding or waiting or pods})
        if per_pod:
            yield "gpus_per_pod", ", ".join(map(str, per_pod))
        if waiting:
            yield "pending_pods", str(len(waiting))
            yield "pending_gpus", str(sum(facts.gpus for facts in waiting))
        if workload.chain and not workload.group and workload.kind in KINDS_WITH_TEMPLATES:
            yield from unit_facts(workload.kind, workload.chain[0])
        top = workload.chain[0] if workload.chain else {}
        yield from host_facts(holding or waiting, workload.kind, top)
        if admission := self._admissions.get(workload.key):
            yield "kueue", scrub(admission.text, limit=_MAX_REASON)
        yield from self._owners.bounds_of(workload)
        for fact, value in (
            ("queue", self._owners.queue_of(workload)),
            ("scheduler_queue", next((pod.queue for pod in pods if pod.queue), "")),
            (NO_DISRUPTIONS, next((pod.budget for pod in holding if pod.budget), "")),
            ("instance_label", labels_of(top).get(INSTANCE, "")),
            (
                UNREAD_REQUEST,
                next((scrub(pod.unread, limit=200) for pod in pods if pod.unread), ""),
            ),
            (RESOURCE, next((pod.resource for pod in holding or waiting if pod.resource), "")),
            ("pods_stay", rollout_refusal(top)),
            (EXCERPT, excerpt_text(top)),
            *(*own_work_facts(workload.kind, top), *checkpoint_facts(top, self.window.end)),
            *self._budgets.floor_facts(top, len(holding)),
            (SERVER_VERSION, self._version if workload.kind == "Job" else ""),
            ("deadline_at", deadline_of(workload.chain)),
            ("bound_to", self._bound_to(holding)),
            self._open.fact({pod.rules for pod in waiting if not holding}),
            ("closed_models", self._closed_to(holding or waiting)),
        ):
            if value:
                yield fact, value
        yield from share_facts(holding, self._devices_of, self._nodes, self._in_use)
        yield from self._takers(workload, holding)

    def _takers(self, workload: Workload, holding: Sequence[PodFacts]) -> Iterator[tuple[str, str]]:
        """Yield the GPUs that pods of others wait for and one of a workload would free, and who."""
        gpus, names = 0, []
        for (other, wish), waiting in self._line.items() if holding else ():
            if other != workload and any(self._would_take(wish, pod) for pod in holding):
                gpus += wish.gpus * len(waiting)
                names += waiting
        if names:
            yield TAKERS_GPUS, str(gpus)
            yield TAKERS, scrub(", ".join(sorted(names)[:_MAX_NAMES]), limit=_MAX_REASON)

    def _would_take(self, wish: _GpuDemand, pod: PodFacts) -> bool:
        node = self._nodes.get(pod.node, {})
        return (
            wish.gpus <= pod.gpus
            and wish.kinds == _wish_of(pod).kinds
            and wish.scheduler == pod.scheduler
            and part(node, "spec", "unschedulable") is not True
            and admits(wish.rules, node)
        )

    def _bound_to(self, pods: Sequence[PodFacts]) -> str:
        """Return the nodes of pods that may not be on all nodes of their model, '' of others."""
        for pod in pods:
            model = model_of(self._nodes.get(pod.node, {}), self.catalogue)
            if not self._open.to_all(pod.rules, model):
                return scrub(", ".join(sorted({entry.node for entry in pods})), limit=_MAX_REASON)
        return ""

    def _closed_to(self, pods: Sequence[PodFacts]) -> str:
        """Return the GPU models that the other rules of pods keep them from, '' when none."""
        models = {model for pod in pods for model in self._open.closed_models(pod.rules)}
        return scrub(", ".join(sorted(models)), limit=_MAX_REASON)

    def allocations(self) -> pd.DataFrame:
        """Return the allocations: a row for each name by which telemetry may know the pod."""
        rows = [
            row
            for workload, pods in self._pods.items()
            for pod in pods
            if pod.started_at is not None and pod.node and not self._endless(pod)
            for row in self._allocation_rows(workload, pod, pod.started_at)
        ]
        if not rows:
            return empty_frame(ALLOCATIONS)
        frame = pd.DataFrame(rows)
        for name in ("started_at", "ended_at", "seen_at"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        return check_frame(
            frame.sort_values(["job_id", "label_id", "gpu_uuid", "gpu_index"]), ALLOCATIONS
        )

    def _endless(self, pod: PodFacts) -> bool:
        """Return whether a pod is over since an unknown time: a row would hold boards for ever."""
        unknown = pod.phase in ("Succeeded", "Failed") and pod.ended_at is None
        self.dropped["end-unknown"] += unknown
        return unknown

    def _allocation_rows(
        self, workload: Workload, pod: PodFacts, started_at: datetime
    ) -> Iterable[dict[str, Any]]:
        common = {
            "job_id": workload.job_id,
            "node": pod.node,
            "gpu_index": "",
            "gpu_uuid": "",
            "started_at": started_at,
            "ended_at": pod.ended_at,
            "start_seconds": pod.start_seconds,
            "runs": f"{pod.runs} {product_of(self._nodes.get(pod.node, {}))}",
            "seen_at": self.window.end,
            "source": self.source,
        }
        labels = [f"{pod.namespace}/{pod.name}"] + ([f"pod-uid:{pod.uid}"] if pod.uid else [])
        reserved = pod.share.reserved_by if pod.share else ""
        node = self._nodes.get(pod.node, {})
        for label in [*labels, *([reserved] if reserved else [])]:
            for device in device_rows(pod, self._devices_of(pod), node):
                yield common | {"label_id": label} | device

    def _devices_of(self, pod: PodFacts) -> list[ClaimedDevice]:
        """Return the devices of a pod's claims."""
        claims = (self._claims.get((pod.namespace, claim), {}) for claim in pod.claims)
        return [device for claim in claims for device in claimed_devices(claim, self._devices)]


SOURCE = Source(
    build=lambda settings, catalogue: KubernetesCollector(
        KubernetesClient(settings.kubernetes), catalogue
    ),
    findings=lambda settings, _now: kubernetes_findings(settings.kubernetes),
)


def _trainer_status(document: Document, _seen_at: datetime) -> Told | None:
    """Read Kubeflow Trainer's `status.trainerStatus` (KEP 2779), whole per cent."""
    return _percent_or_steps(part(document, "status", "trainerStatus"))


def _open_data_hub(document: Document, _seen_at: datetime) -> Told | None:
    """Read the annotation of Open Data Hub's and OpenShift AI's trainer: a JSON object."""
    notes = part(document, "metadata", "annotations")
    text = part(notes, "trainer.opendatahub.io/trainerStatus")
    try:
        return _percent_or_steps(json.loads(text)) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _percent_or_steps(status: object) -> Told | None:
    told_at = time_in(status, "lastUpdatedTime")
    steps, total = part(status, "currentStep"), part(status, "totalSteps")
    percent = part(status, "progressPercentage")
    if told_at is None or (percent is None and total is None):
        return None
    share = share_done(steps, total)
    return told_at, share_done(percent, 100) if share is None else share


def _completions(document: Document, seen_at: datetime) -> Told | None:
    """Count the completions of a Job that does them one after the other.

    One whose completions all run at once tells nothing before its end, one without completions (a
    work queue) has no total, and a success policy ends it before all are done.
    """
    spec = part(document, "spec")
    total = count_of(part(spec, "completions"))
    written = part(spec, "parallelism")
    at_once = 1 if written is None else whole_number(written)
    if at_once is None or not at_once < total or part(spec, "successPolicy") is not None:
        return None
    done = whole_number(part(document, "status", "succeeded") or 0)
    return None if done is None else (seen_at, share_done(done, total))


_READERS: dict[str, tuple[Callable[[Document, datetime], Told | None], ...]] = {
    "TrainJob": (_trainer_status, _open_data_hub),
    "Job": (_completions,),
}
"""Of a kind the first reader that finds anything tells."""


def progress_of_workloads(
    workloads: Iterable[Workload], seen_at: datetime, dropped: Counter[str]
) -> pd.DataFrame:
    """Return the reports of workloads (columns PROGRESS); broken ones are dropped and counted."""
    rows = []
    for workload in workloads:
        readers = _READERS.get(workload.kind, ()) if workload.chain and not workload.group else ()
        pair = next(filter(None, (read(workload.chain[0], seen_at) for read in readers)), None)
        if pair is None:
            continue
        if pair[1] is None or pair[0] > seen_at + MAX_SKEW:
            dropped[IMPLAUSIBLE] += 1
            continue
        rows.append({"label_id": workload.job_id, "reported_at": pair[0], "done_ratio": pair[1]})
    if not rows:
        return empty_frame(PROGRESS)
    frame = pd.DataFrame(rows)
    times = pd.to_datetime(frame["reported_at"], utc=True).astype("datetime64[us, UTC]")
    return check_frame(frame.assign(reported_at=times), PROGRESS)
