"""What of a workload can change while it lives, and who holds its GPUs: facts for the planner.

The applier decides at the object as it is then; these facts keep from being proposed what no look
at the same object could ever allow.
"""

from collections.abc import Iterator, Mapping

from collectors.kubernetes.client import Document
from collectors.kubernetes.objects import list_in, part, requests_of
from collectors.kubernetes.templates import KINDS_WITH_TEMPLATES, templates_of

PODS, PER_POD, MODEL, STOP = "pods", "gpus_per_pod", "gpu_model", "stop"
_ROLLS = (PODS, PER_POD, MODEL, STOP)
_CHANGES: Mapping[str, tuple[str, ...]] = {
    "Deployment": _ROLLS,
    "StatefulSet": _ROLLS,
    "CronJob": _ROLLS,
    "Job": (PODS, STOP),
    "PyTorchJob": (PODS, STOP),
    "MPIJob": (PODS, STOP),
    "JobSet": (PODS, STOP),
    "RayCluster": (PODS, STOP),
    "RayService": (PODS,),
    "LeaderWorkerSet": (PODS, STOP),
    "RayJob": (STOP,),
    "TrainJob": (STOP,),
}
"""What can change of each kind; nothing of another one, such as a bare pod."""


def changes_of(kind: str, document: Document) -> Iterator[tuple[str, str]]:
    """Give the facts of an object: `may_change` as words, `gpu_containers` of a pod."""
    holding = [
        sum(bool(requests_of({"containers": [one]})) for one in list_in(spec, "containers"))
        for _times, spec in (templates_of(kind, document) if kind in KINDS_WITH_TEMPLATES else ())
    ]
    several = max(holding, default=0) > 1 or sum(map(bool, holding)) > 1
    words = [
        word
        for word in _CHANGES.get(kind, ())
        if not (word in (PER_POD, MODEL) and (several or _keeps_its_pods(document)))
        and not (
            word == PODS and kind == "PyTorchJob" and not part(document, "spec", "elasticPolicy")
        )
    ]
    yield "may_change", ", ".join(words) or "nothing"
    if any(holding):
        yield "gpu_containers", str(max(holding))


def _keeps_its_pods(document: Document) -> bool:
    """Whether another template would make no pod, or not all of them, anew."""
    spec = part(document, "spec")
    strategy = part(spec, "updateStrategy")
    return bool(
        part(spec, "paused") is True
        or part(strategy, "type") == "OnDelete"
        or part(strategy, "rollingUpdate", "partition")
    )
