"""The change-file applier: an approved recommendation becomes a file that a person runs.

It never talks to a cluster. The preview on the page and the file come from `change_for`.
"""

import shlex
from dataclasses import replace
from pathlib import Path

from dashboard.apply.contract.applier import ChangeText
from dashboard.apply.contract.multi_cluster import in_local_names, local_boards, local_job
from dashboard.apply.kubernetes.change.change_text import kubernetes_change
from dashboard.apply.power.cap_steps import boards_of, cap_of, cap_step
from dashboard.apply.slurm.change.change_text import slurm_change
from data.base.errors import ApplyError, ChangeRefusedError
from data.facts.fleet import Gpu
from data.facts.jobs import Job, Platform
from data.records.recommendations import Recommendation
from data.store.engine.private_files import make_folder, write_private


def change_for(
    recommendation: Recommendation, gpus: tuple[Gpu, ...], job: Job | None = None
) -> ChangeText:
    """Return the text of the change; ChangeRefusedError when no file can say it.

    In a further cluster it has that cluster's own names, and says in which it is to be run.
    """
    if recommendation.cluster:
        local = change_for(in_local_names(recommendation), local_boards(gpus), local_job(job))
        first, _newline, rest = local.text.partition("\n")
        here = f"# for cluster {recommendation.cluster}: run it there"
        return replace(local, text=f"{first}\n{here}\n{rest}")
    if recommendation.is_advice:
        raise ChangeRefusedError(
            f"{recommendation.action} of {recommendation.target!r} is advice, and no change",
            f"By hand: {recommendation.summary}.",
        )
    if recommendation.action.spec.caps_power:
        return power_cap_change(recommendation, gpus)
    if recommendation.platform is Platform.KUBERNETES:
        return kubernetes_change(recommendation, job)
    if recommendation.platform is Platform.SLURM:
        return slurm_change(recommendation, gpus, job)
    raise ChangeRefusedError(
        f"the platform of {recommendation.job_id!r} is unknown, so no change can be written",
        "Collect from a source that tells Kubernetes from Slurm, or state it in the import map.",
    )


def write_change(change: ChangeText, folder: Path) -> Path:
    """Write the change whole or not at all, and give its path. Errors: ApplyError."""
    target = folder / change.file_name
    try:
        make_folder(folder)
        write_private(target, change.text.encode())
    except OSError as error:
        raise ApplyError(
            f"cannot write the change file {target}: {error.strerror}",
            "Free space or point apply.directory at a folder that can be written.",
        ) from error
    return target


def power_cap_change(recommendation: Recommendation, gpus: tuple[Gpu, ...]) -> ChangeText:
    """Return the commands per node, from the steps that the agents would be sent.

    Errors: ChangeRefusedError without a cap or a GPU, for MIG instances, and for a UUID that is not
    a real one.
    """
    cap = cap_of(recommendation)
    boards = boards_of(gpus)
    if not boards:
        raise ChangeRefusedError(
            f"the power cap of {recommendation.job_id!r} names no GPU",
            "Run a new cycle: the job may have ended.",
        )
    lines = [
        "#!/bin/sh",
        f"# {recommendation.now.describe()} -> {recommendation.proposed.describe()}",
        f"# recommendation {recommendation.digest}",
        "# Run as root on the node that each line names. Caps stay until changed or rebooted:",
        "# the way back is `nvidia-smi -i UUID -pl DEFAULT` with the default limit that",
        "# `nvidia-smi -q -d POWER` shows.",
        "set -eu",
    ]
    for uuid, node in boards.items():
        lines.append(f"# node {shlex.quote(node)}")
        lines.append(cap_step(uuid, node, None, cap, job_id=recommendation.job_id).text)
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.power-cap.sh", text="\n".join(lines) + "\n"
    )
