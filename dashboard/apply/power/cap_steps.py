"""Power caps as steps, one board each. Pure; the change file and the live change share them."""

import json
import re
from collections.abc import Iterable

from data.base.errors import ChangeRefusedError, scrub
from data.facts.fleet import Gpu
from data.records.changes import ChangeStep
from data.records.recommendations import Recommendation

_UUID = re.compile(r"GPU-[0-9A-Za-z-]{4,64}")
FIELD = "power_limit_watts"


def boards_of(gpus: Iterable[Gpu]) -> dict[str, str]:
    """Return the node of each board of a job by its UUID, in the order of nodes.

    Errors: ChangeRefusedError for MIG instances, whose board others use, and for what is no UUID.
    """
    boards = {}
    for gpu in sorted(gpus, key=lambda entry: (entry.node, entry.gpu_uuid)):
        if gpu.mig_instance or gpu.mig_profile:
            raise ChangeRefusedError(
                f"{scrub(gpu.gpu_uuid)} is a MIG instance: a cap would hold for the whole board",
                "Cap the board by hand when all its users agree.",
            )
        if not _UUID.fullmatch(gpu.gpu_uuid):
            raise ChangeRefusedError(
                f"{gpu.gpu_uuid!r} is no GPU UUID that nvidia-smi takes",
                "The source did not report the board; set the cap by hand.",
            )
        boards[gpu.gpu_uuid] = gpu.node
    return boards


def cap_of(recommendation: Recommendation) -> int:
    """Return the proposed cap in whole watts. Errors: ChangeRefusedError when there is none."""
    cap = recommendation.proposed.power_cap_watts
    if cap is None:
        raise ChangeRefusedError(
            f"the power cap of {recommendation.job_id!r} names no limit", "Run a new cycle."
        )
    return round(cap)


def cap_step(
    gpu_uuid: str, node: str, before: int | None, watts: int | None, *, job_id: str
) -> ChangeStep:
    """Return the step from the cap that is wanted on a board to another, None for none."""
    payload = {"node": node, "gpu_uuid": gpu_uuid, "watts": watts, "job_id": job_id}
    return ChangeStep(
        verb="cap" if watts is not None else "uncap",
        target=gpu_uuid,
        field=f"{FIELD} {gpu_uuid}",
        before=None if before is None else str(before),
        after=None if watts is None else str(watts),
        payload=json.dumps(payload, sort_keys=True, separators=(",", ":")),
        # UUIDs hold nothing that a shell would read.
        text=f"nvidia-smi -i {gpu_uuid} -pl {'DEFAULT' if watts is None else watts}",
    )
