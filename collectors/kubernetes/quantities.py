"""CPU and memory that pods request."""

from dataclasses import dataclass

from data.base.units import BYTES_PER_MIB

MILLI = 1000


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
