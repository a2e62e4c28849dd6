"""Kubernetes changes as a JSON patch in YAML, guarded by `test` operations on today's values.

A pod's GPU count cannot change in place, so the patch is for the workload that owns the pod; the
`test` operation makes the server refuse it when the workload is no longer as the plan saw it.
"""

import re
import shlex
from typing import Any

import yaml

from dashboard.apply.base import ChangeText
from data.errors import ChangeRefusedError
from data.records.decisions import Action, Recommendation
from data.records.jobs import Job
from data.records.plans import Configuration

_WHOLE_GPU = "nvidia.com/gpu"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def _resource(configuration: Configuration) -> str:
    if configuration.mig_profile:
        return f"nvidia.com/mig-{configuration.mig_profile}"
    return _WHOLE_GPU


def _pointer(resource: str, section: str) -> str:
    escaped = resource.replace("~", "~0").replace("/", "~1")
    return f"/spec/template/spec/containers/0/resources/{section}/{escaped}"


def _resize(now: Configuration, proposed: Configuration) -> list[dict[str, Any]]:
    old, new = _resource(now), _resource(proposed)
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": _pointer(old, "limits"), "value": str(now.gpu_count)}
    ]
    # Extended resources need requests == limits; a request left unset follows the limit, so only
    # the limit is written.
    if old != new:
        operations.append({"op": "remove", "path": _pointer(old, "limits")})
    operations.append(
        {
            "op": "replace" if old == new else "add",
            "path": _pointer(new, "limits"),
            "value": str(proposed.gpu_count),
        }
    )
    if now.gpu_model != proposed.gpu_model:
        operations.append(
            {
                "op": "add",
                "path": "/spec/template/spec/nodeSelector",
                "value": {"nvidia.com/gpu.product": proposed.gpu_model},
            }
        )
    return operations


_COUNTS = {
    "deployment": "/spec/replicas",
    "statefulset": "/spec/replicas",
    "job": "/spec/parallelism",
}
"""Where a kind says how many pods it has; the pods of the others are changed by hand."""


def _pods_of(job: Job | None) -> tuple[int, int]:
    """Give (running pods, GPUs a pod) as the scheduler told, (1, 0) when it did not."""
    facts = dict(job.scheduler.extra) if job is not None and job.scheduler is not None else {}
    pods, each = facts.get("pods", ""), facts.get("gpus_per_pod", "")
    return (int(pods), int(each)) if pods.isdecimal() and each.isdecimal() else (1, 0)


def _operations(recommendation: Recommendation, kind: str, job: Job | None) -> list[dict[str, Any]]:
    pods, each = _pods_of(job)
    count = _COUNTS.get(kind, "/spec/replicas")
    if recommendation.action is Action.RECLAIM:
        # The plan saw all of these pods idle: one more or less, and the patch is refused.
        return [
            {"op": "test", "path": count, "value": pods},
            {"op": "replace", "path": count, "value": 0},
        ]
    if pods == 1 and kind != "job":
        return _resize(recommendation.now, recommendation.proposed)
    now, proposed = recommendation.now, recommendation.proposed
    same_board = (now.gpu_model, now.mig_profile) == (proposed.gpu_model, proposed.mig_profile)
    if kind not in _COUNTS or not each or not same_board or proposed.gpu_count % each:
        raise ChangeRefusedError(
            f"{recommendation.job_id} has {pods} pods with {each or 'unknown'} GPUs each: "
            f"{now.describe()} -> {proposed.describe()} is no change of their number alone",
            "Change its manifest by hand, or approve a recommendation of fewer GPUs.",
        )
    return [
        {"op": "test", "path": count, "value": pods},
        {"op": "replace", "path": count, "value": proposed.gpu_count // each},
    ]


def kubernetes_change(recommendation: Recommendation, job: Job | None) -> ChangeText:
    """Give the patch file for a workload, or for the owner of a pod whose workload is not known.

    A workload of several pods gets fewer pods, one of a single pod fewer or smaller GPUs. Errors:
    ChangeRefusedError when neither says it, or when the job id is no `namespace/kind/name` or
    `namespace/pod` whose names Kubernetes allows.
    """
    names = recommendation.job_id.split("/")
    if len(names) not in (2, 3) or not all(_NAME.fullmatch(name) for name in names):
        raise ChangeRefusedError(
            f"{recommendation.job_id!r} is no namespace/kind/name and no namespace/pod",
            "Kubernetes names hold a-z, 0-9, '-' and '.'; change this job by hand.",
        )
    at = shlex.quote(names[0])
    operations = _operations(recommendation, names[1] if len(names) == 3 else "", job)
    lines = [
        f"# {recommendation.now.describe()} -> {recommendation.proposed.describe()}",
        f"# recommendation {recommendation.digest}",
    ]
    if len(names) == 3:
        owner = shlex.quote(f"{names[1]}/{names[2]}")
        lines.append("# check, then apply:")
    else:
        owner = "OWNER"
        lines += [
            "# 1. find the workload that owns the pod:",
            (
                f"#    kubectl -n {at} get pod {shlex.quote(names[1])}"
                " -o jsonpath='{.metadata.ownerReferences}'"
            ),
            "# 2. check, then apply (OWNER is e.g. deployment/NAME):",
        ]
    lines += [
        f"#    kubectl -n {at} patch {owner} --type json --patch-file THIS_FILE --dry-run=server",
        f"#    kubectl -n {at} patch {owner} --type json --patch-file THIS_FILE",
        "# The GPUs are those of the first container; adapt the index if another one holds them.",
    ]
    if recommendation.now.gpu_model != recommendation.proposed.gpu_model:
        lines.append(
            "# nodeSelector replaces an existing one: merge by hand, with the value of the label "
            "nvidia.com/gpu.product on the wanted nodes."
        )
    body = yaml.safe_dump(operations, sort_keys=False)
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.kubernetes-patch.yaml",
        text="\n".join(lines) + "\n" + body,
    )
