"""Form of a step to send: the argv of a client program, or the request to slurmrestd. Pure.

An interface is `commands` or an API version of slurmrestd, followed by the release. One field a
command, always by job number. Measured on 22.05.8 (v0.0.38) and 24.11.5 (v0.0.41, v0.0.42); what a
version silently ignores is found by reading back.
"""

import json
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from data.base.errors import ChangeRefusedError

COMMANDS = "commands"
_OLD_API = "v0.0.38"
_NEW_APIS = {f"v0.0.{number}" for number in range(40, 45)}
Payload = dict[str, Any]
Body = dict[str, Any]


def interface_name(kind: str, release: tuple[int, int]) -> str:
    """Return `commands 22.05` or `v0.0.42 24.11`."""
    return f"{kind} {release[0]}.{release[1]:02d}"


def release_of(interface: str) -> tuple[int, int]:
    """Return the release of an interface name, (0, 0) when it is not known."""
    major, _, minor = interface.partition(" ")[2].partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def by_hand(verb: str, address: str, field: str, value: str) -> str:
    """Return the shell command that a person would type for a step."""
    if verb == "wait":
        command = f"scontrol show job {shlex.quote(address)}"
        return f"until {command} | grep -q JobState=PENDING; do sleep 2; done"
    return shlex.join(_argv(verb, address, field, value))


def _argv(verb: str, address: str, field: str, value: str) -> list[str]:
    if verb == "cancel":
        return ["scancel", address]
    if verb == "drain":
        return ["scontrol", "update", f"NodeName={address}", "State=DRAIN", f"Reason={value}"]
    if verb == "resume":
        return ["scontrol", "update", f"NodeName={address}", "State=RESUME"]
    if verb == "update":
        return ["scontrol", "update", f"JobId={address}", f"{field}={_spelled(field, value)}"]
    # uhold, not hold: should all else fail, the owner can release the job without an operator.
    return ["scontrol", {"hold": "uhold"}.get(verb, verb), address]


def _spelled(field: str, value: str) -> str:
    if field == "TresPerJob":
        # `gres:` is right in both releases; `gpu:2` and `gres/gpu:2` are wrong in one each.
        return ",".join(f"gres:{part}" for part in value.split(","))
    if field == "TresPerTask":
        return ",".join(f"gres/{part}" for part in value.split(","))
    if field == "StartTime":
        # Without a zone Slurm reads the client's, and the client is run with TZ=UTC.
        return f"{_utc(value):%Y-%m-%dT%H:%M:%S}" if value else "now"
    return value


def _utc(value: str) -> datetime:
    return datetime.fromisoformat(value).astimezone(UTC)


def payload_of(
    interface: str, verb: str, *, address: str, number: str, field: str, value: str
) -> Payload:
    """Return the payload of a step. Errors: ChangeRefusedError when the interface cannot."""
    if verb == "wait":
        return {"wait": number}
    kind = interface.partition(" ")[0]
    if kind == COMMANDS:
        return {"argv": _argv(verb, address, field, value)}
    if "[" in address:
        # By number it would reach tasks as well that have a record of their own.
        raise _cannot(kind, "change the tasks of an array that wait together")
    if verb == "cancel":
        if address != number and kind == _OLD_API:
            # Its raw number is answered with 200 and ignored.
            raise _cannot(kind, "cancel one task of an array")
        return {"method": "DELETE", "path": f"/job/{address}", "body": {}}
    if verb in ("drain", "resume"):
        if kind == _OLD_API:
            raise _cannot(kind, "change nodes")
        reason = {"reason": value} if verb == "drain" else {}
        body = {"state": ["DRAIN" if verb == "drain" else "RESUME"]} | reason
        return {"method": "POST", "path": f"/node/{address}", "body": body}
    return {"method": "POST", "path": f"/job/{number}", "body": _body(kind, verb, field, value)}


def _body(kind: str, verb: str, field: str, value: str) -> Body:
    if verb in ("hold", "release"):
        return {"hold": verb == "hold"}
    if verb != "update":
        raise _cannot(kind, verb)
    if kind == _OLD_API:
        write = _OLD_BODIES.get(field)
    elif kind in _NEW_APIS:
        write = _NEW_BODIES.get(field)
    else:
        raise _cannot(kind, "be trusted with changes: it was not measured")
    body = write(value) if write else None
    if body is None:
        raise _cannot(kind, f"change {field} to {value}")
    return body


def _cannot(kind: str, what: str) -> ChangeRefusedError:
    return ChangeRefusedError(
        f"slurmrestd {kind} cannot {what}",
        "Give apply_slurm no token, so that scontrol is used, or change this job by hand.",
    )


def _number(value: str) -> Body:
    return {"set": True, "infinite": False, "number": int(float(value))}


def _new_nodes(value: str) -> Body:
    low, _, high = value.partition("-")
    return {"minimum_nodes": int(low), "maximum_nodes": int(high or low)}


_PAST_START = 1_000_000_000
"""A start time in the past: the job may start now."""


def _start(value: str) -> int:
    return int(_utc(value).timestamp()) if value else _PAST_START


def _tres(key: str) -> Callable[[str], Body]:
    return lambda value: {key: ",".join(f"gres/{part}" for part in value.split(","))}


_OLD_BODIES: dict[str, Callable[[str], Body | None]] = {
    "Gres": lambda value: {"gres": value},
    # `gpus` is the total of the job, and only GPUs fit into it.
    "TresPerJob": lambda value: None if "," in value else {"gpus": value.removeprefix("gpu:")},
    # [1,1] is answered with 200 and ignored; a running job cannot be shrunk by this version.
    "NumNodes": lambda value: {"nodes": value} if "-" in value else None,
    "TimeLimit": lambda value: {"time_limit": int(float(value))},
    "StartTime": lambda value: {"begin_time": f"uts{_start(value)}" if value else "now"},
    "Partition": lambda value: {"partition": value},
    "Features": lambda value: {"constraints": value},
}
_NEW_BODIES: dict[str, Callable[[str], Body | None]] = {
    "Gres": _tres("tres_per_node"),
    "TresPerJob": _tres("tres_per_job"),
    "TresPerTask": _tres("tres_per_task"),
    "NumNodes": _new_nodes,
    "NumTasks": lambda value: {"tasks": int(value)},
    "TimeLimit": lambda value: {"time_limit": _number(value)},
    "StartTime": lambda value: {"begin_time": _number(str(_start(value)))},
    "Partition": lambda value: {"partition": value},
    "Features": lambda value: {"constraints": value},
}


def encoded(payload: Payload) -> str:
    """Return the payload as JSON, keys in order."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
