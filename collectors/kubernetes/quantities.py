"""Quantities of Kubernetes, and CPU and memory that pods request."""

import re
from dataclasses import dataclass
from decimal import Decimal

from data.base.units import BYTES_PER_MIB

_QUANTITY = re.compile(r"(\d{1,19}(?:\.\d{0,9})?|\.\d{1,9})([numkMGTPE]|[KMGTPE]i|[eE]\d{1,2})?")
_FACTORS = {unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)}
_FACTORS |= {unit: Decimal(10) ** -power for unit, power in (("", 0), ("m", 3), ("u", 6), ("n", 9))}
MILLI = 1000
_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True)
class HostRequest:
    """CPU and memory in the units in which the scheduler adds them up."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    @property
    def cpus(self) -> float:
        """CPUs."""
        return self.cpu_milli / MILLI

    @property
    def memory_mib(self) -> float:
        """Memory in MiB."""
        return self.memory_bytes / BYTES_PER_MIB

    def __add__(self, other: "HostRequest") -> "HostRequest":
        """Return both together."""
        return HostRequest(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: "HostRequest") -> "HostRequest":
        """Return the difference, nothing where the other is larger."""
        return HostRequest(
            max(0, self.cpu_milli - other.cpu_milli),
            max(0, self.memory_bytes - other.memory_bytes),
        )

    def times(self, count: int) -> "HostRequest":
        """Return as much for so many pods."""
        return HostRequest(self.cpu_milli * count, self.memory_bytes * count)

    def most(self, other: "HostRequest") -> "HostRequest":
        """Return the larger of each."""
        return HostRequest(
            max(self.cpu_milli, other.cpu_milli), max(self.memory_bytes, other.memory_bytes)
        )


def quantity(value: object) -> Decimal | None:
    """Return a quantity of Kubernetes such as 7910m or 527Gi, None for anything else."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    unit = match[2] or ""
    factor = Decimal(10) ** int(unit[1:]) if unit[1:].isdecimal() else _FACTORS[unit]
    return Decimal(match[1]) * factor


def whole_number(value: object) -> int | None:
    """Return the whole number below a billion of a quantity, 2, "2" or "80k", else None."""
    number = None if isinstance(value, bool) else quantity(value)
    return None if number is None or number % 1 or number >= _BILLION else int(number)
