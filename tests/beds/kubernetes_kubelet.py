"""What a kubelet would say of the pods of its node, without running any container."""

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from beds.kubernetes import KubernetesBed

EXIT_AFTER = "bed/exit-after"
"""Annotation: seconds that a pod runs before it has succeeded. Without it a pod runs on."""

_PERIOD_SECONDS = 0.2
_MAX_SECONDS = 14_400.0
"""What `make test-all` gives a campaign: its pods must not stop to be answered for half-way."""


@dataclass(slots=True, kw_only=True)
class FakeKubelet:
    """Follows the pods that the scheduler bound, until `stop` is set."""

    bed: "KubernetesBed"
    stop: threading.Event = field(default_factory=threading.Event)
    started: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Look at all pods again and again."""
        ends = time.monotonic() + _MAX_SECONDS
        while time.monotonic() < ends and not self.stop.wait(_PERIOD_SECONDS):
            try:
                for pod in self.bed.list("Pod"):
                    if pod["spec"].get("nodeName"):
                        self._follow(pod)
            except (requests.RequestException, AssertionError):
                continue  # deleted between two requests, or the API is ending: look again

    def _follow(self, pod: dict[str, Any]) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase")
        exit_after = meta.get("annotations", {}).get(EXIT_AFTER)
        if "deletionTimestamp" in meta:
            # The API keeps a bound pod until its kubelet says that the containers are gone.
            self.bed.delete("Pod", meta["name"], namespace=meta["namespace"], grace_seconds=0)
        elif phase == "Pending":
            self.started[meta["uid"]] = time.monotonic()
            self._say(pod, "Running")
        elif phase == "Running" and exit_after is not None:
            # A pod that a test itself called running counts from when it is first seen.
            since = self.started.setdefault(meta["uid"], time.monotonic())
            if time.monotonic() - since >= float(exit_after):
                self._say(pod, "Succeeded")

    def _say(self, pod: dict[str, Any], phase: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        running = phase == "Running"
        start = now if running else pod["status"]["startTime"]
        state = (
            {"running": {"startedAt": now}, "terminated": None}
            if running
            else {
                "running": None,
                "terminated": {
                    "exitCode": 0,
                    "reason": "Completed",
                    "startedAt": start,
                    "finishedAt": now,
                },
            }
        )
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "ready": running,
                "started": running,
                "restartCount": 0,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ]
        conditions = {entry["type"]: entry for entry in pod["status"].get("conditions", [])}
        for kind in ("Initialized", "ContainersReady", "Ready"):
            holds = running or kind == "Initialized"
            word = {"status": "True"} if holds else {"status": "False", "reason": "PodCompleted"}
            conditions[kind] = {"type": kind, "lastTransitionTime": now, **word}
        self.bed.patch_status(
            "Pod",
            pod["metadata"]["name"],
            {
                "phase": phase,
                "startTime": start,
                "containerStatuses": containers,
                "conditions": list(conditions.values()),
            },
            namespace=pod["metadata"]["namespace"],
        )
