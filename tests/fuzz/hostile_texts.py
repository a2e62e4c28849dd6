"""Exposition texts as a broken or hostile exporter writes them: recorded ones, changed by chance.

The same seed gives the same texts. A family names what was done first; more may be done on top.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

RECORDED = Path(__file__).parents[1] / "recorded" / "dcgm-text"
_MAX_LINES = 6
_MANY = 1 << 17

VALUES = (
    *("NaN", "+Inf", "-Inf", "nan", "infinity", "", "abc", "0x1f", "1_000", "1e400", "1e-400"),
    *("-3", "-0.0", "9223372036854775794", "2147483632", "140737488355328.0", "1e308", "-1e308"),
    *("١٢", "1,5", "12\0", "9" * 400, "<<<NOT_SUPPORTED>>>", "[N/A]", "ERR!", "1 2 3"),
    *("5 -99999999", "5 " + "9" * 40),
)  # fmt: skip
"""What stands where a value should."""

LABELS = (
    *("", " ", "\0", "\\", '\\"', "\\n", "\\x", "}", "{", '"', "a=b", ",", "\t"),
    *("\x0b", "\x85", "\u2028"),
    *("\u202e", "🜂" * 40, "MIG-GPU-1/2/3", "MIG-", "GPU-", "::7", "/", "0", "x" * 1025),
    *("<script>alert(1)</script>", "'; DROP TABLE samples;--", "\x1b[2J"),
)  # fmt: skip
"""What stands where a label's value should."""


@cache
def _recorded() -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
        for path in sorted(RECORDED.glob("*.prom"))
    )


def _value(line: str, random: Random) -> str:
    return f"{line.rpartition(' ')[0]} {random.choice(VALUES)}"


def _label(line: str, random: Random) -> str:
    head, equals, rest = line.partition('="')
    for _skipped in range(random.randint(0, 4)):
        further, more, last = rest.partition('="')
        if more:
            head, rest = f"{head}{equals}{further}", last
    _old, quote, tail = rest.partition('"')
    text = random.choice(LABELS)
    if text and random.random() < 0.002:
        text *= _MANY // len(text)
    return f"{head}{equals}{text}{quote}{tail}"


def _label_twice(line: str, random: Random) -> str:
    name = random.choice(["UUID", "gpu", "pod", "Hostname", "le", "__name__", "9", "ü", ""])
    return line.replace("{", f'{{{name}="{random.choice(LABELS)}",', 1)


def _spaces(line: str, random: Random) -> str:
    place = random.randrange(len(line) + 1)
    space = random.choice(" \t\r\x0b\x0c\xa0\u3000")
    many = _MANY if random.random() < 0.01 else random.randint(1, 40)
    return f"{line[:place]}{space * many}{line[place:]}"


def _braces(line: str, random: Random) -> str:
    place = random.randrange(len(line) + 1)
    what = random.choice(["{", "}", "{}", '"', "\\", '"} ', '="', ",,", "#", '"}  1 # {a="b"} 2 '])
    many = _MANY // 4 if random.random() < 0.01 else random.randint(1, 4)
    return line[:place] + what * many + line[place:]


def _cut(line: str, random: Random) -> str:
    return line[: random.randrange(len(line) + 1)]


def _name(line: str, random: Random) -> str:
    _old, brace, rest = line.partition("{")
    name = random.choice(["", "9", "up", "DCGM_FI_DEV_GPU_UTIL", "Dcgm", "a" * _MAX_LINES, "名"])
    return f"{name}{brace}{rest}"


ON_LINES: dict[str, Callable[[str, Random], str]] = {
    "value": _value,
    "label": _label,
    "label twice or nameless": _label_twice,
    "spaces": _spaces,
    "braces and quotes": _braces,
    "line cut off": _cut,
    "name": _name,
}


def _flipped(text: bytes, random: Random) -> bytes:
    changed = bytearray(text)
    for _flip in range(random.randint(1, 8) if changed else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _foreign(text: bytes, random: Random) -> bytes:
    place = random.randrange(len(text) + 1)
    what = [
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"<html>",
        b'{"status":',
        b"\r",
        b"\n\n",
    ]
    return text[:place] + random.choice(what) + text[place:]


def _other_coding(text: bytes, random: Random) -> bytes:
    return text.decode().encode(random.choice(["utf-16", "utf-32", "utf-7"]))


ON_TEXTS: dict[str, Callable[[bytes, Random], bytes]] = {
    "flipped bytes": _flipped,
    "foreign bytes": _foreign,
    "other encoding": _other_coding,
}


def hostile_texts(count: int, *, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield (family, text), every family equally often, at least one change each."""
    random = Random(seed)  # noqa: S311 - cases, no secrets
    families = [*ON_LINES, *ON_TEXTS]
    for place in range(count):
        family = families[place % len(families)]
        lines = random.sample(random.choice(_recorded()), _MAX_LINES)
        further = random.choices(list(ON_LINES), k=random.randint(0, 2))
        for name in (family, *further):
            if name in ON_LINES:
                changed = random.randrange(len(lines))
                lines[changed] = ON_LINES[name](lines[changed], random)
        text = "\n".join(lines).encode()
        yield family, ON_TEXTS[family](text, random) if family in ON_TEXTS else text
