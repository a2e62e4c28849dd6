"""Power caps as `nvidia-smi -pl` commands, one per GPU, with the way back."""

import shlex

from dashboard.apply.base import ChangeText
from dashboard.apply.power.cap_steps import boards_of, cap_of, cap_step
from data.errors import ChangeRefusedError
from data.records.cluster import Gpu
from data.records.decisions import Recommendation


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
    for board in boards:
        lines.append(f"# node {shlex.quote(board.node)}")
        lines.append(cap_step(board, cap, job_id=recommendation.job_id).text)
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.power-cap.sh", text="\n".join(lines) + "\n"
    )
