"""The GPU models that Trimtab knows: memory, power, MIG profiles, speed and price."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from data.base.errors import SettingsError, UnknownGpuModelError, scrub
from data.catalogue.shipped_rows import shipped_records, shipped_rows
from data.settings.fields import entries
from data.settings.fleet import StatedGpuModel


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


_PROFILE_NAME = re.compile(r"([1-9])g\.([0-9]{1,4})gb(?:[+-][a-z.]{1,20})?")
_REACH, _SHARPNESS = 0.96, 8.0
"""Fitted on the Zeus traces (You, Chung, Chowdhury, NSDI 2023), see `forecasting.power.cap`."""
_ANY = "any"
_OTHER_MAKERS = frozenset({"amd", "intel"})
"""First words of the names of boards that run no CUDA."""
CURRENCY = "EUR"
"""Of the catalogue's prices. Nobody converts them."""
MODELS_SETTING = "catalogue.gpu_models"
"""The setting by which a site adds a model or corrects one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One MIG profile of one GPU model; `compute_fraction` is its share of the board's SMs."""

    name: str
    memory_mib: int
    slices: int
    compute_fraction: float
    max_instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigPlacement:
    """Places of an instance on a board: its memory slices, and their first ones by choice.

    The rarest start comes first, so that small instances leave room for large ones.
    """

    memory_slices: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One GPU model. Power in W per board, speed relative to an L40S, price per GPU-hour.

    Prices of the catalogue are in EUR. `price_is_stated`: it comes from a price list; None: there
    is no price list, and the catalogue's stands for it.
    """

    name: str
    generation: str
    vendor_names: tuple[str, ...]
    memory_mib: int
    tdp_watts: float
    idle_watts_low: float
    idle_watts: float
    idle_watts_high: float
    relative_speed: float
    price_per_hour: float
    mig_profiles: tuple[MigProfile, ...]
    cap_law: CapLaw
    source: str
    price_is_stated: bool | None = None

    @property
    def runs_cuda(self) -> bool:
        """Return whether its boards are NVIDIA's, by names of drivers and by their generation."""
        makers = {_words(name).partition(" ")[0] for name in self.vendor_names}
        return makers.isdisjoint(_OTHER_MAKERS) and not self.generation.startswith("cdna")

    def runs_what_runs_on(self, other: "GpuModel") -> bool:
        """Return whether programs built for the boards of another model run on these."""
        return self.runs_cuda == other.runs_cuda

    @property
    def memory_slices(self) -> int:
        """Into how many memory slices MIG cuts a board."""
        return 8 if max((profile.slices for profile in self.mig_profiles), default=1) > 4 else 4

    def mig_placement(self, profile: MigProfile) -> MigPlacement | None:
        """Return the places of a profile's instances on a board, None when they are not known."""
        all_slices = max((entry.slices for entry in self.mig_profiles), default=1)
        size = profile.memory_mib / self.memory_mib * self.memory_slices
        placements = [
            entry
            for cut, slices, entry in _mig_placements()
            if (cut, slices) == (all_slices, profile.slices)
        ]
        return min(placements, key=lambda entry: abs(entry.memory_slices - size), default=None)

    def board_share(self, profile: MigProfile) -> float:
        """Return the share of a board that a slice takes, 0..1: of its memory slices.

        Whatever fits on one board adds up to at most 1, so bounds that count boards hold. The
        larger of the shares of compute and memory does not: 4g and 3g would take 1.07 boards.
        """
        placement = self.mig_placement(profile)
        if placement is None:
            return min(1.0, profile.memory_mib / self.memory_mib)
        return placement.memory_slices / self.memory_slices

    def mig_profile(self, name: str) -> MigProfile | None:
        """Return the profile of that name, or None.

        Exporters and Kubernetes may differ by a GB in the name (7g.79gb and 7g.80gb), and media
        extensions (1g.10gb+me) change neither memory nor compute: the slice count and the nearest
        size decide.
        """
        size = _size_in_name(name)
        if size is None:
            return None
        sizes = [(profile, _size_in_name(profile.name) or (0, 0)) for profile in self.mig_profiles]
        candidates = [
            (abs(gb - size[1]), entry) for entry, (slices, gb) in sizes if slices == size[0]
        ]
        return min(candidates, key=lambda pair: pair[0], default=(0, None))[1]


def _size_in_name(profile: str) -> tuple[int, int] | None:
    """Return the slices and GB in a profile's name, None for another name."""
    match = _PROFILE_NAME.fullmatch(profile)
    return (int(match[1]), int(match[2])) if match else None


class GpuCatalogue:
    """All known models, by catalogue name and by the name that a driver reports."""

    def __init__(self, models: tuple[GpuModel, ...]) -> None:
        self.models = models
        self._by_name = {model.name: model for model in models}
        self._by_reported = {
            _key(reported): model.name
            for model in models
            for reported in (model.name, *model.vendor_names)
        }

    def __iter__(self) -> Iterator[GpuModel]:
        return iter(self.models)

    def find(self, name: str) -> GpuModel | None:
        """Return the model of that catalogue name, or None.

        A reported name is known too: facts were kept under it before the catalogue had the model.
        """
        return self._by_name.get(name) or self._by_name.get(self.recognise(name))

    def get(self, name: str) -> GpuModel:
        """Return model of that catalogue name. Errors: UnknownGpuModelError with the nearest."""
        model = self.find(name)
        if model is None:
            nearest = difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.4)
            hint = f"Did you mean {nearest[0]}? " if nearest else ""
            raise UnknownGpuModelError(
                f"GPU model {name!r} is not in the catalogue",
                f"{hint}Known: {', '.join(self._by_name)}; state another in [[{MODELS_SETTING}]].",
            )
        return model

    def recognise(self, reported: str) -> str:
        """Return the catalogue name of a reported name such as `NVIDIA H100 80GB HBM3`.

        A MIG device reports `NVIDIA H100 80GB HBM3 MIG 1g.10gb`, a node label
        `NVIDIA-H100-80GB-HBM3`. An unknown name is given back.
        """
        board = reported.partition(" MIG ")[0].strip()
        if board in self._by_name:
            return board
        return self._by_reported.get(_key(board), board)

    def lacking(self, boards: Iterable[str]) -> tuple[str, ...]:
        """Return a sentence for each name of boards whose model is not known.

        `boards` has the reported name of every board, '' where none was told.
        """
        unknown = Counter(name for name in boards if name and self.find(name) is None)
        return tuple(
            f"the catalogue lacks GPU model {scrub(name)!r}, of which {count} are here: nothing is "
            "planned for jobs on them, and they have no price and no estimate of power. State it "
            f"in [[{MODELS_SETTING}]]."
            for name, count in sorted(unknown.items())
        )


def _words(reported: str) -> str:
    """Return a reported name as its words: labels join them by hyphens, gres types by `_`."""
    return reported.replace("-", " ").replace("_", " ").casefold()


def _key(reported: str) -> str:
    """Return the key of a reported name: sites write rtx3090 and rtx_3090 for one board."""
    return _words(reported).replace(" ", "")


@cache
def _mig_placements() -> tuple[tuple[int, int, MigPlacement], ...]:
    """Return (compute slices of the whole board, of the instance, placement) of the table."""
    return tuple(
        (
            int(row["whole_slices"]),
            int(row["slices"]),
            MigPlacement(
                memory_slices=int(row["memory_slices"]),
                starts=tuple(int(part) for part in row["starts"].split("|")),
            ),
        )
        for row in shipped_rows("mig_placements.csv")
    )


class _CurrentCatalogue:
    """The catalogue of this process: one, as the settings file is one."""

    catalogue: GpuCatalogue | None = None


def load_gpu_catalogue() -> GpuCatalogue:
    """Return the catalogue that ships with Trimtab, with the models that this site states."""
    return _CurrentCatalogue.catalogue or _shipped()


def state_gpu_models(rows: Sequence[StatedGpuModel]) -> None:
    """Let `load_gpu_catalogue` know these models from now on, in place of those stated before.

    Errors: SettingsError for a row that is like no model of the catalogue.
    """
    models = {model.name: model for model in _shipped()}
    _CurrentCatalogue.catalogue = (
        GpuCatalogue(tuple((models | {row.name: _stated(row, models) for row in rows}).values()))
        if rows
        else None
    )


def _stated(row: StatedGpuModel, models: Mapping[str, GpuModel]) -> GpuModel:
    """Return the model of a row; a board with other memory has no known MIG profiles."""
    base = models.get(row.like or row.name)
    if base is None:
        nearest = difflib.get_close_matches(row.like or row.name, models, n=1, cutoff=0.4)
        hint = f"such as {nearest[0]}; known: " if nearest else "one of "
        raise SettingsError(
            f"{MODELS_SETTING}: {row.name} is like {row.like!r}, which the catalogue does not have",
            f"Set like to a model of the catalogue, {hint}{', '.join(models)}.",
        )
    memory, tdp = row.memory_mib or base.memory_mib, row.tdp_watts or base.tdp_watts
    idle = row.idle_watts or base.idle_watts * tdp / base.tdp_watts
    if not idle < tdp:
        raise SettingsError(
            f"{MODELS_SETTING}: {row.name} draws {idle:g} W idle and {tdp:g} W at most",
            "State idle_watts below tdp_watts.",
        )
    ratio = idle / base.idle_watts
    reported = entries(row.reported)
    return replace(
        base,
        name=row.name,
        vendor_names=(reported + (base.vendor_names if row.name == base.name else ())),
        memory_mib=memory,
        tdp_watts=tdp,
        idle_watts_low=base.idle_watts_low * ratio,
        idle_watts=idle,
        idle_watts_high=min(base.idle_watts_high * ratio, tdp),
        relative_speed=row.relative_speed or base.relative_speed,
        price_per_hour=row.price_per_hour or base.price_per_hour,
        mig_profiles=base.mig_profiles if memory == base.memory_mib else (),
        source=f"{MODELS_SETTING} of this site, else as {base.name}",
    )


@cache
def _shipped() -> GpuCatalogue:
    profiles: dict[str, list[dict[str, str]]] = {}
    for row in shipped_rows("mig_profiles.csv"):
        profiles.setdefault(row["gpu_model"], []).append(row)

    def profiles_of(model: str) -> tuple[MigProfile, ...]:
        rows = profiles.get(model, [])
        all_slices = max((int(row["slices"]) for row in rows), default=1)
        return tuple(
            MigProfile(
                name=row["profile"],
                memory_mib=int(row["memory_mib"]),
                slices=int(row["slices"]),
                compute_fraction=int(row["slices"]) / all_slices,
                max_instances=int(row["max_instances"]),
            )
            for row in rows
        )

    return GpuCatalogue(
        shipped_records(
            GpuModel,
            "gpu_models.csv",
            vendor_names=lambda row: tuple(row["vendor_names"].split("|")),
            mig_profiles=lambda row: profiles_of(row["name"]),
            cap_law=lambda row: cap_law_of(row["generation"]),
        )
    )


@cache
def load_cap_laws() -> Mapping[str, CapLaw]:
    """Return the laws that ship with Trimtab, by generation; `any` pools all that was measured."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in shipped_rows("power_cap_laws.csv"):
        rows.setdefault(row["generation"], []).append(row)
    return {
        generation: CapLaw(
            generation=generation,
            reach=_REACH,
            sharpness=_SHARPNESS,
            power_ratios=tuple(float(row["power_ratio"]) for row in points),
            slowdown_low=tuple(float(row["slowdown_low"]) for row in points),
            slowdown=tuple(float(row["slowdown"]) for row in points),
            slowdown_high=tuple(float(row["slowdown_high"]) for row in points),
            measured=generation != _ANY,
            source=points[0]["source"].partition(":")[0],
        )
        for generation, points in rows.items()
    }


def cap_law_of(generation: str) -> CapLaw:
    """Return the law of a generation, else that of all measured ones together."""
    laws = load_cap_laws()
    return laws.get(generation, laws[_ANY])
