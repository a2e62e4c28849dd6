"""The raw side of a scenario: objects as the API gives them, and what others do to them."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import bind_in
from outsiders.kubernetes.scenarios import (
    GPU,
    NAME,
    OF_REPLICAS,
    OTHER_MODEL,
    ROLLING,
    SLICE,
    Scenario,
    pod_spec,
    template_at,
    workload,
)

JSON_PATCH = {"Content-Type": "application/json-patch+json"}
_OF_CONTROLLERS = ("deployment.kubernetes.io/", "deprecated.daemonset")
Leaves = dict[str, str]


def leaves(document: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Return (pointer, JSON) of every value of an object, empty ones included."""
    if isinstance(document, dict | list) and document:
        pairs = document.items() if isinstance(document, dict) else enumerate(document)
        for name, value in pairs:
            key = str(name).replace("~", "~0").replace("/", "~1")
            yield from leaves(value, f"{at}/{key}")
    else:
        yield at, json.dumps(document, sort_keys=True)


@dataclass(slots=True, kw_only=True)
class Stage:
    """One namespace of the bed with the workload of one scenario."""

    bed: KubernetesBed
    scenario: Scenario
    namespace: str

    @property
    def path(self) -> str:
        """The path of the workload."""
        return self.bed.path(self.scenario.kind, self.namespace, NAME)

    def build(self) -> None:
        """Make nodes, limits and the workload, and wait until its controller has settled."""
        scenario, bed = self.scenario, self.bed
        bind_in(bed, self.namespace)
        held = scenario.replicas * scenario.gpus + scenario.spare_gpus
        self._node(self.namespace, held)
        if scenario.change in ("model", "mixed"):
            self._node(f"{self.namespace}-other", held, product=f"NVIDIA-{OTHER_MODEL}")
        if scenario.limits == "limit-range":
            limit = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}
            self._make("v1", "LimitRange", {"limits": [limit]})
        bed.apply(workload(scenario, self.namespace))
        if scenario.owner == "hpa":
            target = {"apiVersion": "apps/v1", "kind": scenario.kind, "name": NAME}
            spec = {"minReplicas": 1, "maxReplicas": 9, "scaleTargetRef": target}
            self._make("autoscaling/v1", "HorizontalPodAutoscaler", spec)
        if scenario.owner == "field-manager" and scenario.kind in ROLLING:
            self._own_replicas()
        if scenario.kind in (*ROLLING, "Job") and not scenario.paused:
            bed.until(f"{self.namespace} is ready", self.is_ready, seconds=240)
        if scenario.limits == "quota":
            self.quota()

    def is_ready(self) -> bool:
        """Return whether as many pods run as the workload wants."""
        running = [pod for pod in self.pods() if pod["status"].get("phase") == "Running"]
        return len(running) == self.scenario.replicas

    def _node(self, name: str, gpus: int, *, product: str = "NVIDIA-H100-80GB-HBM3") -> None:
        self.bed.add_gpu_node(name, gpus=gpus, product=product, mig={SLICE: gpus})
        # Of a node with a taint and a label of its own no other scenario's pod takes a GPU.
        capacity = {f"{GPU}.shared": str(gpus)}
        self.bed.patch_status("Node", name, {"capacity": capacity, "allocatable": capacity})
        taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
        spec = {"taints": [taint]} if self.scenario.placed == "toleration" else {}
        labels = {"bed/at": self.namespace}
        self.bed.patch("Node", name, {"metadata": {"labels": labels}, "spec": spec})

    def _make(self, version: str, kind: str, spec: dict[str, Any]) -> None:
        about = {"name": NAME, "namespace": self.namespace}
        self.bed.apply({"apiVersion": version, "kind": kind, "metadata": about, "spec": spec})

    def _own_replicas(self) -> None:
        self.bed.ask(
            "PATCH",
            f"{self.path}?fieldManager=fleet-operator&force=true",
            json={
                "apiVersion": "apps/v1",
                "kind": self.scenario.kind,
                "spec": {"replicas": self.scenario.replicas},
            },
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    def quota(self) -> None:
        """Forbid more GPUs than the namespace holds."""
        key = f"requests.{self.scenario.resource}"
        count = str(self.scenario.replicas * self.scenario.gpus)
        self._make("v1", "ResourceQuota", {"hard": {key: count}})
        self.bed.until("the quota counts", lambda: self._counts(key), seconds=240)

    def _counts(self, key: str) -> bool:
        status = self.bed.get("ResourceQuota", NAME, namespace=self.namespace)["status"]
        return key in status.get("used", {})

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the namespace."""
        return self.bed.list("Pod", namespace=self.namespace)

    def seen(self) -> Leaves | None:
        """Return what matters of the object as the API has it, None when it is gone."""
        answer = self.bed.answer("GET", self.path)
        if answer.status_code == 404:
            return None
        document = answer.json()
        meta = document["metadata"]
        notes = {
            name: value
            for name, value in meta.get("annotations", {}).items()
            if not name.startswith(_OF_CONTROLLERS)
        }
        kept = {name: meta[name] for name in ("uid", "labels", "ownerReferences") if name in meta}
        kept |= {"annotations": notes} if notes else {}
        return dict(leaves({"metadata": kept, "spec": document["spec"]}))

    def stuck(self) -> str:
        """Return the scheduler's word on a pod that finds no node, '' when all have one."""
        for pod in self.pods():
            for condition in pod["status"].get("conditions", []):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return str(condition.get("message", condition.get("reason")))
        return ""

    def disturb(self) -> Leaves:
        """Do what others do meanwhile; return the values that are theirs now, by pointer."""
        scenario, bed = self.scenario, self.bed
        what = scenario.between
        if what == "scaled" and scenario.kind in ROLLING:
            return self._patch({"/spec/replicas": scenario.replicas + 3})
        if what == "image" and scenario.kind in (*ROLLING, "CronJob"):
            return self._patch({f"{template_at(scenario.kind)}/containers/0/image": "other:2"})
        if what == "gpus" and scenario.kind in (*ROLLING, "CronJob"):
            index = 1 if scenario.containers == "second" else 0
            at = f"{template_at(scenario.kind)}/containers/{index}/resources"
            asked = {scenario.resource: "3"}
            value = {"limits": asked} | ({"requests": asked} if scenario.requested else {})
            return self._patch({at: value})
        if what in ("deleted", "replaced"):
            bed.ask("DELETE", self.path, params={"propagationPolicy": "Background"})
            bed.until("it is gone", lambda: bed.answer("GET", self.path).status_code == 404)
            if what == "replaced":
                bed.apply(workload(scenario, self.namespace))
        elif what == "quota" and scenario.limits != "quota":
            self.quota()
        elif what == "cordoned":
            bed.patch("Node", self.namespace, {"spec": {"unschedulable": True}})
        elif what == "thief" and scenario.limits != "quota":  # which would keep it out
            self._thief()
        elif what == "owned":
            note = {"argocd.argoproj.io/tracking-id": "a:apps/Deployment:x/serve"}
            bed.patch(
                scenario.kind, NAME, {"metadata": {"annotations": note}}, namespace=self.namespace
            )
            at = "/metadata/annotations/argocd.argoproj.io~1tracking-id"
            return {at: json.dumps(next(iter(note.values())))}
        return {}

    def _patch(self, values: dict[str, Any]) -> Leaves:
        operations = [{"op": "replace", "path": at, "value": value} for at, value in values.items()]
        self.bed.ask("PATCH", self.path, json=operations, headers=JSON_PATCH)
        return {key: found for at, value in values.items() for key, found in leaves(value, at)}

    def _thief(self) -> None:
        """Take the GPUs that are free on the node of the workload."""
        spec = pod_spec(self.scenario, self.namespace)
        asked = {self.scenario.resource: str(max(1, self.scenario.spare_gpus))}
        spec["containers"] = [{"name": "thief", "image": "t:1", "resources": {"limits": asked}}]
        spec.pop("initContainers", None)
        about = {"name": "thief", "namespace": self.namespace, "labels": {"app": "thief"}}
        self.bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})

    def clear(self) -> None:
        """Take everything away again: later scenarios read the same lists."""
        bed = self.bed
        kinds = (self.scenario.kind, "ReplicaSet", "Job", "Pod")
        for kind in dict.fromkeys(kinds):
            path = bed.path(kind, self.namespace)
            bed.answer("DELETE", path, params={"gracePeriodSeconds": 0})
        if self.scenario.owner in OF_REPLICAS:
            with suppress(AssertionError):
                bed.delete("HorizontalPodAutoscaler", NAME, namespace=self.namespace)
        for name in (self.namespace, f"{self.namespace}-other"):
            bed.answer("DELETE", f"api/v1/nodes/{name}")
        bed.answer("DELETE", bed.path("Pod", self.namespace), params={"gracePeriodSeconds": 0})
