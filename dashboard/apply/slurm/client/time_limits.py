"""Time limits as Slurm writes and reads them: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""

import re

from collectors.slurm.values import seconds_of_minutes
from data.base.errors import UnexpectedAnswerError

_LIMIT = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_NO_LIMIT = ("", "-1", "infinite", "unlimited")


def seconds_of_limit(text: str) -> float | None:
    """Return a time limit in s; None for no limit, which 0 says too.

    Errors: ValueError for what sbatch would refuse.
    """
    if text.lower() in _NO_LIMIT:
        return None
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time limit of Slurm")
    days, *parts = (int(part or 0) for part in match.groups())
    if match[1] is None and match[4] is None:
        parts.insert(0, 0)
    hours, minutes, seconds = parts[:3]
    return seconds_of_minutes((24 * days + hours) * 60 + minutes + seconds / 60) or None


def limit_of_partition(text: str) -> float | None:
    """Return the limit that scontrol tells, in s; NONE is none. Errors: UnexpectedAnswerError."""
    try:
        return seconds_of_limit(text.replace("NONE", ""))
    except ValueError as error:
        raise UnexpectedAnswerError(str(error), "Is this release of Slurm known here?") from error
