"""What a power cap does to work on one generation of GPUs, as a value that plans are made with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CapLaw:
    """Power and time of capped work.

    Under a cap c, work that would draw P0 draws (P0^-s + (reach * c)^-s)^(-1/s) with s = sharpness.
    At `power_ratios` (power under the cap over power without, ascending up to 1) the work takes
    `slowdown_*` times as long. `measured` is False where the law is another generation's.
    """

    generation: str
    reach: float
    sharpness: float
    power_ratios: tuple[float, ...]
    slowdown_low: tuple[float, ...]
    slowdown: tuple[float, ...]
    slowdown_high: tuple[float, ...]
    measured: bool
    source: str

    def __post_init__(self) -> None:
        if not (self.reach > 0 and self.sharpness > 0):
            raise ValueError(f"cap law of {self.generation}: reach and sharpness must be positive")
        rows = (self.slowdown_low, self.slowdown, self.slowdown_high)
        if not self.power_ratios or any(len(row) != len(self.power_ratios) for row in rows):
            raise ValueError(f"cap law of {self.generation}: its columns differ in length")
        if list(self.power_ratios) != sorted(set(self.power_ratios)):
            raise ValueError(f"cap law of {self.generation}: power ratios must ascend")
        if not all(1 <= low <= mid <= high for low, mid, high in zip(*rows, strict=True)):
            raise ValueError(
                f"cap law of {self.generation}: slowdowns must be at least 1, in order"
            )
