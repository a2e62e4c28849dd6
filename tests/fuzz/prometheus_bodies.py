"""Hostile answers of Prometheus' query API, from a seed: real ones, mutated."""

import json
import random
from collections.abc import Callable
from typing import Any

AT = 1_767_614_400
"""The time of the newest reading, s since the epoch: 2026-01-05 12:00 UTC."""

STEPS = 10
METRICS = (
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_PROF_SM_ACTIVE",
    "nvidia_smi_power_draw_watts",
    "nvidia_smi_gpu_info",
)
_TEXTS = (
    "", "abc", "NaN", "nan", "+Inf", "-Inf", "1e999", "-1e308", "0x10", "1_0", "١٢", "9" * 400,
    "\0", "\ud800", "é\u202e", "<script>", "a" * 5000, '"', "\\", "\n", "MIG-GPU-ab/1/2", "MIG-x",
    "GPU-" + "0" * 36, "7g.80gb", "slurm:1", "null", "9223372036854775794", "140737488355328",
)  # fmt: skip
_NUMBERS = (
    0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**400, -(10**400), 1e308, -1e308, 1e-320, 0.1, AT,
    AT * 1000, -AT, float("nan"), float("inf"), float("-inf"), 253_402_300_800,
)  # fmt: skip
_KEYS = ("status", "data", "result", "resultType", "metric", "values", "value", "__name__", "UUID",
         "warnings", "infos", "error", "pod", "GPU_I_ID", "modelName", "", "\ud800")  # fmt: skip


def real_answer(chance: random.Random) -> dict[str, Any]:
    """A well-formed matrix or vector of some boards."""
    kind = "matrix" if chance.random() < 0.9 else "vector"
    series = []
    for board in range(chance.randint(1, 4)):
        labels = {
            "__name__": chance.choice(METRICS),
            "UUID": f"GPU-{board:08x}",
            "uuid": f"{board:08x}",
            "gpu": str(board),
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": "node-1",
        }
        if chance.random() < 0.5:
            labels |= {"namespace": "team", "pod": f"train-{board}", "GPU_I_ID": "1"}
        points = [
            [AT - 60 * back, str(round(chance.uniform(0, 700), 3))]
            for back in range(chance.randint(1, STEPS), -1, -1)
        ]
        one: dict[str, Any] = {"metric": labels}
        series.append(one | ({"values": points} if kind == "matrix" else {"value": points[-1]}))
    return {"status": "success", "data": {"resultType": kind, "result": series}}


def hostile_body(seed: int) -> bytes:
    """The body of case `seed`: the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - cases, not secrets
    document: Any = real_answer(chance)
    for _mutation in range(chance.randint(0, 4)):
        document = chance.choice(_OF_DOCUMENT)(document, chance)
    body = json.dumps(document, ensure_ascii=chance.random() < 0.8).encode("utf-8", "surrogatepass")
    for _mutation in range(chance.choice((0, 0, 0, 1, 2))):
        body = chance.choice(_OF_BYTES)(body, chance)
    return body


def _junk(chance: random.Random, depth: int = 0) -> Any:
    """Any JSON value, small."""
    kind = chance.randint(0, 6 if depth < 3 else 4)
    if kind == 0:
        return None
    if kind == 1:
        return chance.random() < 0.5
    if kind == 2:
        return chance.choice(_NUMBERS)
    if kind <= 4:
        return chance.choice(_TEXTS)
    inner = [_junk(chance, depth + 1) for _one in range(chance.randint(0, 3))]
    return inner if kind == 5 else {chance.choice(_KEYS): entry for entry in inner}


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of the document."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting and len(found) < 2000:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys if isinstance(one, dict | list) else ():
            found.append((one, key))
            if isinstance(one[key], dict | list):
                waiting.append(one[key])
    return found


def _at_a_place(
    change: Callable[[Any, Any, random.Random], None],
) -> Callable[[Any, random.Random], Any]:
    def mutate(document: Any, chance: random.Random) -> Any:
        places = _places(document) if isinstance(document, dict | list) else []
        if not places:
            return _junk(chance)
        change(*chance.choice(places), chance)
        return document

    return mutate


def _replace(container: Any, key: Any, chance: random.Random) -> None:
    container[key] = _junk(chance)


def _remove(container: Any, key: Any, _chance: random.Random) -> None:
    del container[key]


def _rename(container: Any, key: Any, chance: random.Random) -> None:
    if isinstance(container, dict):
        container[chance.choice(_KEYS)] = container.pop(key)
    else:
        container.insert(key, _junk(chance))


def _double(container: Any, key: Any, chance: random.Random) -> None:
    if isinstance(container, list):
        container.extend([container[key]] * chance.randint(1, 50))
    else:
        container[key] = [container[key]]


def _nest(container: Any, key: Any, chance: random.Random) -> None:
    inner = container[key]
    for _level in range(chance.choice((3, 30, 150))):
        inner = [inner] if chance.random() < 0.5 else {chance.choice(_KEYS): inner}
    container[key] = inner


def _of_another_type(container: Any, key: Any, _chance: random.Random) -> None:
    inner = container[key]
    if isinstance(inner, str):
        container[key] = len(inner)
    elif isinstance(inner, dict):
        container[key] = list(inner.items())
    elif isinstance(inner, list):
        container[key] = {str(place): entry for place, entry in enumerate(inner)}
    else:
        container[key] = str(inner)


_OF_DOCUMENT = tuple(
    map(_at_a_place, (_replace, _replace, _remove, _rename, _double, _nest, _of_another_type))
)


def _cut(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randint(0, len(body))]


def _overwrite(body: bytes, chance: random.Random) -> bytes:
    place = chance.randint(0, len(body))
    return body[:place] + chance.randbytes(chance.randint(1, 4)) + body[place + 1 :]


def _repeat(body: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randint(0, len(body)) for _end in range(2))
    return body[:end] + body[start:]


def _deep(body: bytes, chance: random.Random) -> bytes:
    depth = chance.choice((500, 5_000, 100_000))
    opening = chance.choice((b"[", b'{"a":', b'{"data":'))
    return opening * depth + (body if chance.random() < 0.5 else b"")


def _digits(body: bytes, chance: random.Random) -> bytes:
    return body.replace(b"17676", b"9" * chance.choice((20, 400, 5_000)), 1)


def _another_encoding(body: bytes, chance: random.Random) -> bytes:
    text = body.decode("utf-8", "replace")
    return text.encode(chance.choice(("utf-16", "utf-32-le", "utf-8-sig", "cp037")), "replace")


_OF_BYTES = (_cut, _cut, _overwrite, _overwrite, _repeat, _deep, _digits, _another_encoding)
