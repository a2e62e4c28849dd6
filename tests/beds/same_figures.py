"""Whether two answers hold the same figures."""

import math
from datetime import datetime
from typing import Any


def differences(told: Any, said: Any, at: str = "") -> list[str]:
    """Where two values differ by more than the order in which an engine's threads add.

    A time may be written with Z or +00:00.
    """
    if isinstance(told, dict) and isinstance(said, dict) and told.keys() == said.keys():
        return [
            difference
            for key in told
            for difference in differences(told[key], said[key], f"{at}.{key}")
        ]
    if isinstance(told, list) and isinstance(said, list) and len(told) == len(said):
        pairs = enumerate(zip(told, said, strict=True))
        return [
            difference
            for number, pair in pairs
            for difference in differences(*pair, f"{at}[{number}]")
        ]
    if isinstance(told, float) and isinstance(said, float):
        same = math.isclose(told, said, rel_tol=1e-9, abs_tol=1e-12)
    else:
        same = told == said or (_time(told) is not None and _time(told) == _time(said))
    return [] if same else [f"{at}: {told!r} is not {said!r}"]


def _time(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
