"""A placed job as Kubernetes objects: a Job, a JobSet or a PyTorchJob.

Commands are lists of words, so no shell reads them. Kubernetes itself expands $(NAME) in words and
values: every dollar of the job's author is doubled, ours alone are expanded.
"""

from typing import Any

import yaml

from dashboard.submission.job.fleet import Taint
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.launch import (
    ADDRESS,
    NODE_RANK,
    Reference,
    environment_of,
    launch_words,
)
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Placement
from data.base.errors import ChangeRefusedError
from data.facts.gpu_resources import PRODUCT_LABEL, WHOLE_GPU

LABEL = "trimtab/submission"
NAME_LABEL = "trimtab/name"
MARK_ANNOTATION = "trimtab/attempt"
TTL = "ttlSecondsAfterFinished"
_WORKERS = "workers"
_SHARE_ASKED = 0.9
"""Of the node's share that goes with the GPUs, where the job states no CPU or memory: system pods
that come later need the rest."""

Object = dict[str, Any]


def kubernetes_manifest(
    job: JobFile, placement: Placement, order: JobOrder, *, kind: str
) -> Manifest:
    """Return objects of one job as YAML, the workload first; `kind` is job, jobset or pytorchjob.

    Errors: ChangeRefusedError when the job names no image.
    """
    if not job.image:
        raise ChangeRefusedError(
            f"{job.name} names no image", 'Add image = "registry/train:1" to the job file.'
        )
    name = order.name_for(job.name)
    make, references = _KINDS[kind], _references(kind, name)
    words = [
        references[word] if isinstance(word, Reference) else _escaped(word)
        for word in launch_words(job, placement, rank=NODE_RANK)
    ]
    head: Object = {
        "name": name,
        "namespace": order.namespace,
        "labels": {LABEL: order.submission_id},
        "annotations": {MARK_ANNOTATION: order.mark},
    }
    if job.deadline is not None:
        head["annotations"]["trimtab/deadline"] = job.deadline.isoformat()
    pod = _pod(job, placement, order, words)
    objects = make(job, placement, head, pod)
    if order.keep_finished_seconds is not None:
        workload = objects[0]
        spec: Object = workload["spec"]
        part: Object = spec["runPolicy"] if workload["kind"] == "PyTorchJob" else spec
        part[TTL] = order.keep_finished_seconds
    text = yaml.dump_all(
        objects, Dumper=_WithoutAliases, sort_keys=False, allow_unicode=True, width=100
    )
    return Manifest(
        target="kubernetes",
        name=name,
        text=str(text),
        launch=" ".join(words),
        mark=order.mark,
    )


class _WithoutAliases(yaml.SafeDumper):
    """Writes a value that stands in two places twice, for people to read."""

    def ignore_aliases(self, data: Any) -> bool:
        """Say that nothing is written as an alias."""
        return True


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def _references(kind: str, name: str) -> dict[Reference, str]:
    """Return the references by which a pod learns the first pod's address and its own number."""
    if kind == "pytorchjob":
        # The operator gives every pod RANK, counted in pods, and MASTER_ADDR.
        return {ADDRESS: "$(MASTER_ADDR)", NODE_RANK: "$(RANK)"}
    first = f"{name}-0.{name}" if kind == "job" else f"{name}-{_WORKERS}-0-0.{name}"
    return {ADDRESS: first, NODE_RANK: "$(JOB_COMPLETION_INDEX)"}


def _pod(job: JobFile, placement: Placement, order: JobOrder, words: list[str]) -> Object:
    """Return pod's template: one container, the GPUs of one node, nodes with these GPUs only."""
    each = placement.gpus_per_node
    limits: Object = {WHOLE_GPU: str(each)}
    requests: Object = {WHOLE_GPU: str(each)}
    if job.cpus_per_gpu:
        requests["cpu"] = str(job.cpus_per_gpu * each)
    elif placement.fair_milli_cpus:
        requests["cpu"] = f"{int(placement.fair_milli_cpus * _SHARE_ASKED)}m"
    if job.memory_mib_per_gpu:
        memory = f"{round(job.memory_mib_per_gpu * each * order.raised_host)}Mi"
        limits["memory"] = requests["memory"] = memory
    elif placement.fair_memory_mib:
        requests["memory"] = f"{int(placement.fair_memory_mib * _SHARE_ASKED)}Mi"
    environment = environment_of(job, placement)
    if job.launcher == "none":
        environment["WORLD_SIZE"] = str(placement.plan.gpus)
    mounts = [{"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108 - NCCL's rendezvous
    volumes: list[Object] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    if job.data_path and not job.data_claim:
        raise ChangeRefusedError(
            f"{job.name} reads {job.data_path}, and nothing would be mounted there",
            "Name the PersistentVolumeClaim that holds it as data.claim of the job file. Data in "
            "the image or fetched by the program need no data.path.",
        )
    if job.data_claim:
        mounts.append({"name": "data", "mountPath": job.data_path or "/data"})
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": job.data_claim}})
    container: Object = {
        "name": "pytorch",
        "image": job.image,
        "command": words,
        "env": [
            {"name": name, "value": _escaped(value)} for name, value in sorted(environment.items())
        ],
        "resources": {"limits": limits, "requests": requests},
        "volumeMounts": mounts,
        # The end of the log tells whether GPU memory ran out, without a right to read logs.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if job.workdir:
        container["workingDir"] = job.workdir
    of_type = {"key": PRODUCT_LABEL, "operator": "In", "values": list(placement.words)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [of_type]}]}
    tolerations = [_toleration(taint) for taint in placement.taints]
    return {
        "metadata": {"labels": {LABEL: order.submission_id, NAME_LABEL: order.name_for(job.name)}},
        "spec": {
            "restartPolicy": "Never",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            **({"tolerations": tolerations} if tolerations else {}),
            "containers": [container],
            "volumes": volumes,
        },
    }


def _toleration(taint: Taint) -> Object:
    """Return the toleration of exactly one taint."""
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, "operator": "Equal", **value, "effect": taint.effect}


def _job_spec(job: JobFile, placement: Placement, pod: Object) -> Object:
    count = placement.node_count
    # Only several pods need numbers; Kubernetes before 1.21 cannot give them.
    mode: Object = {"completionMode": "Indexed"} if count > 1 else {}
    spec: Object = {
        **mode,
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "template": pod,
    }
    if job.time_limit_hours:
        spec["activeDeadlineSeconds"] = round(job.time_limit_hours * 3600)
    return spec


def _job(job: JobFile, placement: Placement, head: Object, pod: Object) -> list[Object]:
    """Return a Job of indexed pods, and where there are several a service that names them."""
    job_object: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": head}
    job_object["spec"] = _job_spec(job, placement, pod)
    if placement.node_count == 1:
        return [job_object]
    pod["spec"]["subdomain"] = head["name"]
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": dict(head),
        "spec": {
            "clusterIP": "None",
            # Pods must find one another before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {NAME_LABEL: head["name"]},
        },
    }
    return [job_object, service]


def _job_set(job: JobFile, placement: Placement, head: Object, pod: Object) -> list[Object]:
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": head,
            "spec": {
                "failurePolicy": {"maxRestarts": 0},
                "replicatedJobs": [
                    {
                        "name": _WORKERS,
                        "replicas": 1,
                        "template": {"spec": _job_spec(job, placement, pod)},
                    }
                ],
            },
        }
    ]


def _pytorch_job(job: JobFile, placement: Placement, head: Object, pod: Object) -> list[Object]:
    replica: Object = {"replicas": 1, "restartPolicy": "Never", "template": pod}
    replicas: Object = {"Master": replica}
    if placement.node_count > 1:
        replicas["Worker"] = {**replica, "replicas": placement.node_count - 1}
    policy: Object = {"backoffLimit": 0, "cleanPodPolicy": "None"}
    if job.time_limit_hours:
        policy["activeDeadlineSeconds"] = round(job.time_limit_hours * 3600)
    return [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": head,
            "spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas},
        }
    ]


_KINDS = {"job": _job, "jobset": _job_set, "pytorchjob": _pytorch_job}
