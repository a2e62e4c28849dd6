"""Slurm changes as commands that a person runs.

A running job's GPU count cannot change: it is requeued on hold, changed while pending and released
(one field per `scontrol update`, always by JobId, with the GPU type: `Gres=gpu:TYPE:n` is the
spelling that 22.05 and 24.11 both accept).
"""

import re

from dashboard.apply.base import ChangeText
from data.errors import ChangeRefusedError
from data.records.cluster import Gpu
from data.records.decisions import Action, Recommendation
from data.records.plans import Configuration

_JOB_ID = re.compile(r"slurm:(\d+(?:_\d+)?(?:\+\d+)?)")
_GRES_TYPE = re.compile(r"[A-Za-z]+\d+[A-Za-z]*")


def slurm_job_number(job_id: str) -> str:
    """Give the Slurm job id of a job id `slurm:1234`, refusing anything else."""
    match = _JOB_ID.fullmatch(job_id)
    if match is None:
        raise ChangeRefusedError(
            f"{job_id!r} is no Slurm job id", "Expected slurm:NUMBER; change this job by hand."
        )
    return match.group(1)


def _gres(configuration: Configuration, nodes: int) -> str:
    if configuration.mig_profile:
        kind = configuration.mig_profile
    else:
        match = _GRES_TYPE.match(configuration.gpu_model)
        kind = (match.group(0) if match else configuration.gpu_model).lower()
    per_node = -(-configuration.gpu_count // max(1, nodes))
    return f"gpu:{kind}:{per_node}"


def slurm_change(recommendation: Recommendation, gpus: tuple[Gpu, ...]) -> ChangeText:
    """Give the commands for a Slurm job; `gpus` are those it holds, they tell its node count."""
    number = slurm_job_number(recommendation.job_id)
    nodes = len({gpu.node for gpu in gpus}) or 1
    header = [
        "#!/bin/sh",
        f"# {recommendation.now.describe()} -> {recommendation.proposed.describe()}",
        f"# recommendation {recommendation.digest}",
    ]
    if recommendation.action is Action.RECLAIM:
        steps = [
            "# The job holds GPUs without using them. Warn its owner first: unsaved work is lost.",
            f"scontrol show job {number}",
            f"scancel {number}",
        ]
    else:
        count_nodes = nodes if recommendation.proposed.gpu_count >= nodes else 1
        steps = [
            "# Work since the last checkpoint is lost by the requeue. GPU type names are this",
            "# site's GRES names: check them with `scontrol show node` before running.",
            f"scontrol show job {number}",
            f"scontrol requeuehold {number}",
            f"until scontrol show job {number} | grep -q JobState=PENDING; do sleep 2; done",
        ]
        if count_nodes != nodes:
            steps.append(f"scontrol update JobId={number} NumNodes={count_nodes}-{count_nodes}")
        steps += [
            f"scontrol update JobId={number} Gres={_gres(recommendation.proposed, count_nodes)}",
            f"scontrol show job {number} | grep -E 'Reason=|TresPerNode=|Gres='",
            "# Reason=BadConstraints means no node can give this: set the old Gres again:",
            f"#   scontrol update JobId={number} Gres={_gres(recommendation.now, nodes)}",
            f"scontrol release {number}",
        ]
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.slurm.sh",
        text="\n".join([*header, "set -eu", *steps]) + "\n",
    )
