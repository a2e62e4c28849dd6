"""Settings of the catalogue: GPU models that a site adds to it or corrects."""

from dataclasses import dataclass

from data.setting_fields import Section, documented_rows, require


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedGpuModel:
    """A GPU model as a site states it: what differs from the model that it is `like`.

    `like` empty: the row corrects the model of its own name. `reported` are the names that NVML,
    DCGM or gpu-feature-discovery write, comma-separated. A figure of 0 is that of `like`.
    """

    name: str
    like: str = ""
    reported: str = ""
    memory_mib: int = 0
    tdp_watts: float = 0.0
    idle_watts: float = 0.0
    relative_speed: float = 0.0
    price_per_hour: float = 0.0

    def __post_init__(self) -> None:
        plain = bool(self.name.strip()) and "," not in self.name and len(self.name) <= 80
        require(plain, "catalogue.gpu_models name", self.name, "a name without comma")
        for figure, limit in (
            ("memory_mib", 1e8),
            ("tdp_watts", 1e5),
            ("idle_watts", 1e5),
            ("relative_speed", 1e3),
            ("price_per_hour", 1e6),
        ):
            value, rule = getattr(self, figure), f"0 to {limit:,.0f}; 0: that of the model alike"
            name = f"catalogue.gpu_models {figure} of {self.name}"
            require(0 <= value <= limit, name, value, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueSettings(Section, name="catalogue"):
    """GPU models beside those that ship with Trimtab."""

    gpu_models: tuple[StatedGpuModel, ...] = documented_rows(
        StatedGpuModel,
        "GPU models that the catalogue lacks, or has wrong: tables of name, like (a model of the "
        "catalogue, whose figures hold where none is stated), reported (names that NVML or DCGM "
        "write, comma-separated), memory_mib, tdp_watts, idle_watts, relative_speed, "
        "price_per_hour",
    )

    def _check(self) -> None:
        names = [model.name for model in self.gpu_models]
        for name in names:
            require(names.count(name) == 1, "catalogue.gpu_models name", name, "named once")
