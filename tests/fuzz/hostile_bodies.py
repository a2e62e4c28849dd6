"""Answers of Prometheus as a broken or hostile server gives them: recorded ones, changed by chance.

The same seed gives the same bodies. A family names what was done first; more may be done on top.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

RECORDED = Path(__file__).parents[1] / "recorded" / "prometheus"
_MAX_SERIES = 4
_DEEP = 20_000
_MEGABYTE = 1 << 20

Document = dict[str, Any]

NUMBERS: tuple[Any, ...] = (
    *("NaN", "+Inf", "-Inf", "Infinity", "", " ", "abc", "null", "0x1f", "1_000", "1e400"),
    *("1e-400", "-3", "-0.0", "9223372036854775794", "9223372036854775807", "2147483632"),
    *("140737488355328.0", True, 0, -1, 5, 1e308, float("nan"), float("inf")),
    *("1e308", "-1e308", "١٢", "1,5", "12\0", " 7 ", "9" * 400, "<<<NOT_SUPPORTED>>>"),
    *(None, 10**300, 10**400, [], {}, [1], ["1"]),
)  # fmt: skip
"""What stands where a number should."""

TIMES: tuple[Any, ...] = (
    *(0, -1, -1e18, 1e300, float("nan"), float("inf"), 2**31, 2**53, 2**63, 2**64),
    *(10**400, 253402300800, 1767613800000, 1767613800.0000001),
    *("1767613800", "now", "", None, True, [], {}),
)  # fmt: skip
"""What stands where a time in seconds should: 0, ms instead of s, after the year 9999."""

TEXTS: tuple[str, ...] = (
    *("", " ", "\0", "\ud800", "\udfff\ud800", "\u202e", "\r\n", "\x1b[2J", "🜂" * 40, "‮", "\ufffe"),
    *('"} or up{a="', "../../etc/passwd", "<script>alert(1)</script>", "'; DROP TABLE samples;--"),
    *("MIG-GPU-1/2/3", "MIG-", "GPU-", "::7", "/", "slurm:", "0", "NaN", "x" * 1025),
)  # fmt: skip
"""What stands where a label should."""

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 10**400, "", "abc", "\ud800", [], {}, [[]], [{}], {"": {}}),
    *([None], [[None, None]], {"__name__": []}, {"__name__": {}}, [1, 2, 3], ["a", "b"]),
)
"""What stands where anything else should."""


@cache
def _recorded() -> tuple[str, ...]:
    """Single answers as JSON, cut to a few series each."""
    found = []
    for path in sorted(RECORDED.glob("*.json")):
        for answer in json.loads(path.read_text(encoding="utf-8")).values():
            answer["data"]["result"] = answer["data"]["result"][:_MAX_SERIES]
            found.append(json.dumps(answer))
    return tuple(found)


def recorded_answer(random: Random) -> Document:
    """A recorded answer of one metric, a few series long."""
    document: Document = json.loads(random.choice(_recorded()))
    return document


def _series(document: Document, random: Random) -> Document:
    found = document.get("data")
    results = found.get("result") if isinstance(found, dict) else None
    one = random.choice(results) if isinstance(results, list) and results else {}
    return one if isinstance(one, dict) else {}


def _points(document: Document, random: Random) -> list[Any]:
    found = _series(document, random).get("values")
    return [entry for entry in found if isinstance(entry, list)] if isinstance(found, list) else []


def _value(document: Document, random: Random) -> None:
    for point in _points(document, random):
        point[-1:] = [random.choice(NUMBERS)]


def _time(document: Document, random: Random) -> None:
    for point in _points(document, random):
        if random.random() < 0.6:
            point[:1] = [random.choice(TIMES)]


def _label(document: Document, random: Random) -> None:
    labels = _series(document, random).get("metric")
    if isinstance(labels, dict):
        name = random.choice([*labels, "exported_pod", "GPU_I_ID", "hpc_job", random.choice(TEXTS)])
        text = random.choice(TEXTS)
        labels[name] = text * (_MEGABYTE // 8) if text and random.random() < 0.002 else text


def _label_of_another_type(document: Document, random: Random) -> None:
    labels = _series(document, random).get("metric")
    if isinstance(labels, dict):
        labels[random.choice(["__name__", "UUID", "pod", "Hostname", "gpu"])] = random.choice(JUNK)


def _twice(document: Document, random: Random) -> None:
    found = document.get("data")
    results = found.get("result") if isinstance(found, dict) else None
    if isinstance(results, list) and results:
        again = deepcopy(random.choice(results))
        results.append(again)
        _value({"data": {"result": [again]}}, random)
        random.shuffle(results)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in items:
        yield node, key
        if isinstance(child, dict | list):
            yield from _places(child)


def _another_type(document: Document, random: Random) -> None:
    container, key = random.choice(list(_places(document)) or [({}, "")])
    container[key] = deepcopy(random.choice(JUNK))


def _lost(document: Document, random: Random) -> None:
    places = list(_places(document))
    if places:
        container, key = random.choice(places)
        del container[key]


def _renamed(document: Document, random: Random) -> None:
    places = [place for place in _places(document) if isinstance(place[0], dict)]
    if places:
        container, key = random.choice(places)
        container[random.choice([*TEXTS, "value", "values", "metric", "data"])] = container.pop(key)


def _kind(document: Document, random: Random) -> None:
    if isinstance(document.get("data"), dict):
        kinds = ["vector", "scalar", "string", "streams", "", None, 7, []]
        document["data"]["resultType"] = random.choice(kinds)
    else:
        document["status"] = "error"


def _cut(body: bytes, random: Random) -> bytes:
    return body[: random.randrange(len(body) + 1)]


def _flipped(body: bytes, random: Random) -> bytes:
    changed = bytearray(body)
    for _flip in range(random.randint(1, 8) if changed else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _inserted(body: bytes, random: Random) -> bytes:
    place = random.randrange(len(body) + 1)
    what = random.choice(
        [b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"NaN",
         b"9" * 5000, b"1e99999", b"<html>", b",", b"]", b"}", b'"', b"-"]
    )  # fmt: skip
    return body[:place] + what + body[place:]


def _nested(body: bytes, random: Random) -> bytes:
    deep = random.choice([b"[", b'{"a":']) * random.choice([900, 1100, _DEEP])
    place = random.choice([0, body.find(b'"result": ') + 10, random.randrange(len(body) + 1)])
    return body[:place] + deep + body[place:]


def _other_coding(body: bytes, random: Random) -> bytes:
    text = body.decode("utf-8", "replace")
    return text.encode(random.choice(["utf-16", "utf-32", "utf-7"]))


ON_DOCUMENTS: dict[str, Callable[[Document, Random], None]] = {
    "value": _value,
    "time": _time,
    "label": _label,
    "label of another type": _label_of_another_type,
    "series twice": _twice,
    "anything of another type": _another_type,
    "lost key or item": _lost,
    "wrong key": _renamed,
    "wrong result type": _kind,
}
ON_BYTES: dict[str, Callable[[bytes, Random], bytes]] = {
    "cut off": _cut,
    "flipped bytes": _flipped,
    "foreign bytes": _inserted,
    "deep nesting": _nested,
    "other encoding": _other_coding,
}


def hostile_bodies(count: int, *, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield (family, body), every family equally often, at least one change each."""
    random = Random(seed)  # noqa: S311 - cases, no secrets
    families = [*ON_DOCUMENTS, *ON_BYTES]
    for place in range(count):
        family = families[place % len(families)]
        document = recorded_answer(random)
        further = random.choices(list(ON_DOCUMENTS), k=random.randint(0, 2))
        for name in (family, *further):
            if name in ON_DOCUMENTS:
                ON_DOCUMENTS[name](document, random)
        # Escaped, for half characters have no UTF-8.
        body = json.dumps(document).encode()
        yield family, ON_BYTES[family](body, random) if family in ON_BYTES else body
