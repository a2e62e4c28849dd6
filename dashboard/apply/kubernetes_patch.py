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
from data.records.cluster import Gpu
from data.records.decisions import Action, Recommendation
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


def _operations(recommendation: Recommendation) -> list[dict[str, Any]]:
    if recommendation.action is Action.RECLAIM:
        # Only an owner with this one pod may go to 0: with more replicas the others may be busy.
        return [
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/replicas", "value": 0},
        ]
    return _resize(recommendation.now, recommendation.proposed)


def kubernetes_change(recommendation: Recommendation, gpus: tuple[Gpu, ...]) -> ChangeText:
    """Give the patch file for a workload, or for a pod's owner; `gpus` is unused.

    Errors: ChangeRefusedError when the job id is no `namespace/kind/name` or `namespace/pod` whose
    names Kubernetes allows.
    """
    names = recommendation.job_id.split("/")
    if len(names) not in (2, 3) or not all(_NAME.fullmatch(name) for name in names):
        raise ChangeRefusedError(
            f"{recommendation.job_id!r} is no namespace/kind/name and no namespace/pod",
            "Kubernetes names hold a-z, 0-9, '-' and '.'; change this job by hand.",
        )
    at = shlex.quote(names[0])
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
    body = yaml.safe_dump(_operations(recommendation), sort_keys=False)
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.kubernetes-patch.yaml",
        text="\n".join(lines) + "\n" + body,
    )
