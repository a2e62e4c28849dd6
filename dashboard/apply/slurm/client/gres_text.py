"""GPU requests as Slurm writes them, in one spelling: `gpu:h100:4,lustre:1`. Pure.

22.05 reads `gres:gpu:h100:4`, 23.11 and later `gres/gpu:h100:4`, a request by task `gres/gpu=1`.
Only the GPU entry is ever rewritten; every other entry is kept, or the job would lose it.
"""

import re
from dataclasses import dataclass

from data.base.errors import ChangeRefusedError, scrub

_ENTRY = re.compile(r"[A-Za-z0-9_.+-]{1,64}(?:[:=][A-Za-z0-9_.+-]{1,64}){0,2}")
_GPU = re.compile(
    r"gpu(?::(?P<type>[A-Za-z0-9_.+-]*[A-Za-z_.+-][A-Za-z0-9_.+-]*))?(?::(?P<count>\d+))?"
)
_SHARES = ("shard", "mps")
TYPE_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GresRequest:
    """The one GPU entry of a request: its type ('' when it names none) and its count."""

    gpu_type: str
    count: int

    def text(self) -> str:
        """Return `gpu:h100:4`, or `gpu:4` without a type."""
        return f"gpu:{self.gpu_type}:{self.count}" if self.gpu_type else f"gpu:{self.count}"


def canonical_gres(request: str) -> str:
    """Return the request without the prefixes that differ by release, entries in their order."""
    return ",".join(
        re.sub(r"^gres[:/]", "", part.strip()).replace("=", ":")
        for part in request.split(",")
        if part.strip()
    )


def gpu_request(request: str) -> GresRequest:
    """Return the GPU entry of a request in one spelling.

    Errors: ChangeRefusedError when it has none or several, shares GPUs, or cannot be read.
    """
    parts = [part for part in request.split(",") if part]
    if any(not _ENTRY.fullmatch(part) for part in parts):
        raise ChangeRefusedError(
            f"the request {scrub(request)!r} cannot be read", "Change this job by hand."
        )
    if any(part.split(":")[0] in _SHARES for part in parts):
        raise ChangeRefusedError(
            f"the request {scrub(request)!r} shares GPUs (shard, mps)", "Change this job by hand."
        )
    matches = [match for part in parts if (match := _GPU.fullmatch(part))]
    if len(matches) != 1:
        raise ChangeRefusedError(
            f"the request {scrub(request)!r} names {len(matches)} kinds of GPU, not one",
            "Change this job by hand.",
        )
    count = int(matches[0]["count"] or 1)
    if count < 1:
        raise ChangeRefusedError(
            f"the request {scrub(request)!r} asks for no GPU", "Change this job by hand."
        )
    return GresRequest(gpu_type=matches[0]["type"] or "", count=count)


def with_gpus(request: str, gpus: GresRequest) -> str:
    """Return the request with another GPU entry and everything else as it was."""
    return ",".join(
        gpus.text() if _GPU.fullmatch(part) else part for part in request.split(",") if part
    )
