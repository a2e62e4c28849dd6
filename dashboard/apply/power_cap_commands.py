"""Power caps as `nvidia-smi -pl` commands, one per GPU, with the way back."""

import re
import shlex

from dashboard.apply.base import ChangeText
from data.errors import ChangeRefusedError
from data.records.cluster import Gpu
from data.records.decisions import Recommendation

_UUID = re.compile(r"GPU-[0-9A-Za-z-]{4,64}")


def power_cap_change(recommendation: Recommendation, gpus: tuple[Gpu, ...]) -> ChangeText:
    """Give the commands per node; errors: ChangeRefusedError when a GPU UUID is not a real one."""
    cap = recommendation.proposed.power_cap_watts
    if cap is None or not gpus:
        raise ChangeRefusedError(
            f"the power cap of {recommendation.job_id!r} names no GPU or no limit",
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
    for gpu in sorted(gpus, key=lambda one: (one.node, one.gpu_uuid)):
        if not _UUID.fullmatch(gpu.gpu_uuid):
            raise ChangeRefusedError(
                f"{gpu.gpu_uuid!r} is no GPU UUID that nvidia-smi takes",
                "The source did not report the board; set the cap by hand.",
            )
        lines.append(f"# node {shlex.quote(gpu.node)}")
        lines.append(f"nvidia-smi -i {shlex.quote(gpu.gpu_uuid)} -pl {cap:.0f}")
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.power-cap.sh", text="\n".join(lines) + "\n"
    )
