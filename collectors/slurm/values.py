"""Values in Slurm's terms: numbers, times, states, node lists, GPUs, in every release's spelling.

Pure. Slurm 22.05 writes `60`, `"RUNNING"` and `gres:gpu:h100:4` where 23.11 and later write
`{"set": true, "infinite": false, "number": 60}`, `["RUNNING"]` and `gres/gpu:h100:4`; `sacct -P`
writes `Unknown`, `UNLIMITED` and `CANCELLED by 0`. One reader for each kind of value serves all.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

from data.facts.jobs import JobState

MAX_HOSTS = 100_000
"""Names that one node list may stand for."""

_MAX_NUMBER = 20
_NOTHING = {"", "(null)", "n/a", "none", "none assigned", "unknown", "invalid"}
_STATES = {
    "PENDING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "STOPPED": JobState.SUSPENDED,
    "COMPLETED": JobState.FINISHED,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "FAILED": JobState.FAILED,
    "TIMEOUT": JobState.FAILED,
    "NODE_FAIL": JobState.FAILED,
    "BOOT_FAIL": JobState.FAILED,
    "DEADLINE": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "PREEMPTED": JobState.FAILED,
}
_BRACKETS = re.compile(r"([^\[\]]*)\[([0-9,\-]+)\]")
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_GPU = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>[^:=()]*[^:=()\d][^:=()]*))?(?:[:=](?P<count>\d+))?"
    r"(?:\((?P<kind>[A-Z]+):(?P<which>[^)]*)\))?"
)
_NAMES_GPUS = re.compile(r"(?:gres[:/])?gpu\b")
_SHARE = re.compile(
    r"(?:gres[:/])?(?P<kind>shard|mps)(?::(?P<type>[^:=()]*[^:=()\d][^:=()]*))?"
    r"(?:[:=](?P<count>\d+))?(?:\((?P<which>[^)]*)\))?"
)
_PART = re.compile(r"(\d+)/(\d+)")
_MIG = re.compile(r"(?P<board>.*?)[_.-]?(?P<profile>[1-9]g\.\d{1,4}gb(?:\.me)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs of one type ('' when not said); `indices` is None when Slurm does not say which.

    Of GPUs that are given out in shares, `share` is shard or mps, `amount` the number of them, and
    `parts` what they are of each GPU, 0..1, None where Slurm does not tell.
    """

    gpu_type: str
    count: int
    indices: tuple[str, ...] | None = None
    share: str = ""
    amount: int = 0
    parts: tuple[float, ...] | None = None


_NO_VALUE = 2**32 - 2
"""Slurm's NO_VAL, and INFINITE one above it: no number."""


def text_of(value: object) -> str:
    """Return the text, '' for what Slurm writes when it has nothing to say."""
    if isinstance(value, list):
        return ",".join(str(entry) for entry in value)
    text = "" if value is None else str(value).strip()
    return "" if text.casefold() in _NOTHING else text


def number_of(value: object) -> float | None:
    """Return a number; None for null, unset, infinite, `UNLIMITED`, `Partition_Limit`."""
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite", False):
            return None
        value = value.get("number")
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float) else float(str(value))
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def identifier_of(value: object) -> str:
    """Return a job or task number as text, '' when there is none. 0 is a task, never a job."""
    number = number_of(value)
    return "" if number is None else str(int(number))


def moment_of(value: object) -> datetime | None:
    """Return a time from seconds since the epoch or from `2026-01-05T12:00:00` in UTC.

    None for 0, `Unknown`, `None` and for years that no job lives in.
    """
    if isinstance(value, str) and "T" in value:
        try:
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        except ValueError:
            return None
    seconds = number_of(value)
    if seconds is None or not 0 < seconds < _NO_VALUE:
        return None
    return datetime.fromtimestamp(seconds, tz=UTC)


def seconds_of_minutes(value: object) -> float | None:
    """Return a time limit in s from minutes; None when there is none or the partition's holds."""
    minutes = number_of(value)
    return None if minutes is None or minutes >= _NO_VALUE else minutes * 60.0


def words_of(value: object) -> tuple[str, ...]:
    """Return state words in capitals, of `["IDLE", "DRAIN"]`, `DOWN+DRAIN` or `CANCELLED by 0`."""
    items: Iterable[object] = value if isinstance(value, list) else str(value or "").split("+")
    names = (str(item).strip(" *~#!%$@^-").partition(" ")[0].upper() for item in items)
    return tuple(name for name in names if name)


def job_state_of(words: tuple[str, ...]) -> JobState:
    """Return the state of a job from its words: the base state and its flags.

    A job that is COMPLETING still holds its GPUs until the last epilog has ended, so it counts as
    running, whatever comes after.
    """
    if "COMPLETING" in words:
        return JobState.RUNNING
    states = [_STATES[word] for word in words if word in _STATES]
    return states[0] if states else JobState.UNKNOWN


def hosts_of(node_list: str) -> tuple[str, ...]:
    """Return the names of a node list such as `h100-[01-02,05],login1`, in Slurm's order.

    Errors: ValueError for what is no node list, or one of more than 100,000 names.
    """
    names: list[str] = []
    for part in _OUTSIDE_BRACKETS.split(text_of(node_list)):
        if part:
            names.extend(_expanded(part))
        if len(names) > MAX_HOSTS:
            raise ValueError(f"a node list of more than {MAX_HOSTS} names")
    return tuple(names)


def _expanded(part: str) -> list[str]:
    pieces: list[list[str]] = []
    position = 0
    for match in _BRACKETS.finditer(part):
        if match.start() != position:
            raise ValueError("unbalanced brackets in a node list")
        pieces += [[match[1]], numbers_of(match[2])]
        position = match.end()
    tail = part[position:]
    if "[" in tail or "]" in tail:
        raise ValueError("unbalanced brackets in a node list")
    size = 1
    for piece in pieces:
        size *= len(piece)
    if size > MAX_HOSTS:
        raise ValueError(f"a node list of more than {MAX_HOSTS} names")
    return ["".join(entry) + tail for entry in product(*pieces)]


def numbers_of(ranges: str) -> list[str]:
    """Return the numbers of `01-02,05`, keeping leading zeros. Errors: ValueError."""
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if high < low or high - low >= MAX_HOSTS or len(first) > _MAX_NUMBER:
            raise ValueError("a range in a list runs backwards or is too long")
        numbers += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return numbers


def gpus_of(gres: object) -> tuple[Gpus, ...]:
    """Return the GPUs of a gres or TRES string, one entry a type.

    Reads `gpu:h100:4(IDX:0-1,5-6)`, `gpu:(null):2(IDX:0-1)` of 21.08, `gpu:h100:8(S:0-1)`,
    `gres:gpu:2`, `gres/gpu:h100:4`, `gpu:a100`, and `cpu=2,gres/gpu=8,gres/gpu:h100=8`, where the
    untyped entry is the total: it gives way to typed entries that add up to it.
    """
    items = [entry for part in _parts(gres) if (entry := _gpus(part))]
    typed = [number for number in items if number.gpu_type]
    total = sum(number.count for number in items if not number.gpu_type)
    if typed and total:
        return (
            tuple(typed)
            if sum(number.count for number in typed) == total
            else (Gpus(gpu_type="", count=total),)
        )
    return tuple(items)


def has_unread_gpus(gres: object) -> bool:
    """Return whether a gres or TRES string has GPUs whose number or type is not understood."""
    return any(_NAMES_GPUS.match(part) and not _GPU.fullmatch(part) for part in _parts(gres))


def _parts(gres: object) -> list[str]:
    """Return the entries of a gres or TRES string; a type that is `(null)` is none."""
    parts = _OUTSIDE_PARENTHESES.split(text_of(gres))
    return [part.strip().replace(":(null)", "", 1) for part in parts]


def _gpus(part: str) -> Gpus | None:
    match = _GPU.fullmatch(part)
    if match is None:
        return None
    count = int(match["count"]) if match["count"] else 1
    indices: tuple[str, ...] | None = None
    if match["kind"] == "IDX" and match["which"] not in ("", "N/A"):
        try:
            indices = tuple(numbers_of(match["which"]))
        except ValueError:
            indices = None
        if indices is not None and len(indices) != count:
            indices = None
    return Gpus(gpu_type=match["type"] or "", count=count, indices=indices) if count else None


def gpu_shares_of(gres: object, *, nodes: int = 1) -> tuple[Gpus, ...]:
    """Return the GPUs of which a gres or TRES string names shares (shard, mps).

    Reads `shard:4(IDX:0)` of 22.05, `shard:a100:2(0/4,2/4)` of later releases, `mps:30` and
    `gres/shard=4`. Shares of one node are on one GPU unless indices say otherwise, so that what is
    asked for, which names none, is a GPU a node.
    """
    by_kind: dict[str, Gpus] = {}
    for part in _parts(gres):
        match = _SHARE.fullmatch(part)
        if match is None or match["count"] == "0":
            continue
        indices, parts = _parts_of(match["which"] or "")
        entry = Gpus(
            gpu_type=match["type"] or "",
            count=nodes if indices is None else len(indices),
            indices=indices,
            share=match["kind"],
            amount=int(match["count"] or 1),
            parts=parts,
        )
        # Of a total beside its types the type says more.
        before = by_kind.get(match["kind"])
        by_kind[match["kind"]] = before if before and before.gpu_type else entry
    return tuple(by_kind.values())


def _parts_of(which: str) -> tuple[tuple[str, ...] | None, tuple[float, ...] | None]:
    """Return the indices of `IDX:0-1` or of `4/4,0/4,2/4`, and the parts that these tell."""
    if which.startswith("IDX:") and which[4:] not in ("", "N/A"):
        try:
            return tuple(numbers_of(which[4:])), None
        except ValueError:
            return None, None
    pairs = [_PART.fullmatch(part) for part in which.split(",")]
    parts = {
        str(index): int(pair[1]) / int(pair[2])
        for index, pair in enumerate(pairs)
        if pair and int(pair[1]) and int(pair[2])
    }
    return (tuple(parts), tuple(parts.values())) if parts and all(pairs) else (None, None)


def tres_text(entries: Any) -> str:
    """Return slurmdbd's list of {type, name, count} as a TRES string."""
    if not isinstance(entries, list):
        return text_of(entries)
    return ",".join(
        f"{entry['type']}{'/' if entry.get('name') else ''}{entry.get('name') or ''}={int(count)}"
        for entry in entries
        if isinstance(entry, dict)
        and "type" in entry
        and (count := number_of(entry.get("count"))) is not None
    )


def mig_of(gpu_type: str) -> tuple[str, str]:
    """Return (board, MIG profile) of a gres type such as `a100_1g.5gb`.

    ('a100', '') for a board.
    """
    match = _MIG.fullmatch(gpu_type)
    return (match["board"], match["profile"]) if match else (gpu_type, "")
