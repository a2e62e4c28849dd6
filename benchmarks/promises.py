"""What recommendations promise against what comes of them, on drawn fleets with a known truth.

`python -m benchmarks.promises [--full] [--seed N] [--kept DIR]`. Every fleet is given to a cycle
through its store; every recommendation is then applied alone to a future that is played twice from
one draw, with the change and without it (`_promised_fleet.py`, `_promised_future.py`). `--full`
plays the next seed too, on which nothing was tuned.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks._promised_cycle import recommended
from benchmarks._promised_draw import draw_fleet
from benchmarks._promised_fleet import STEP, DrawnFleet
from benchmarks._promised_future import Came, Setting, came_of, no_change
from benchmarks._promised_measured import Measured, measured_of
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.decisions import Range, Recommendation
from data.settings import EnergySettings, PlanningSettings, Settings

RESULTS = Path(__file__).parent / "results" / "promises.md"
SLOTS = ((5, 6), (15, 12), (30, 24), (60, 24))
"""Minutes of a slot, hours of the horizon."""
PAST_DAYS = 4
FLEETS = 42
_BY_HOUR = (
    (0.12,) * 6 + (0.22,) * 4 + (0.30,) * 4 + (0.22,) * 3 + (0.42,) * 4 + (0.16,) * 3
)  # fmt: skip
FIGURES = ("GPU-h", "kWh", "money")


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """One recommendation with what came of it."""

    kind: str
    shape: str
    slot: str
    promised: tuple[Range | None, Range | None, Range | None]
    came: Came
    nothing: Came | None
    measured: Measured | None

    def pair(self, figure: int) -> tuple[Range, float] | None:
        """Return what was promised of a figure and what came."""
        promised = self.promised[figure]
        came = (self.came.gpu_hours, self.came.kwh, self.came.money)[figure]
        return None if promised is None else (promised, came)


def settings_of(number: int) -> Settings:
    """Return the settings of fleet `number`: slots in turn, every other one with prices by hour."""
    minutes, hours = SLOTS[number // 5 % len(SLOTS)]
    prices = ",".join(str(price) for price in _BY_HOUR) if number % 2 else ""
    return replace(
        Settings(),
        planning=PlanningSettings(
            slot_minutes=minutes,
            horizon_slots=hours * 60 // minutes,
            history_days=PAST_DAYS,
            workers=1,
            shift_slack_hours=4.0,
            budget_seconds=2.0,
        ),
        energy=EnergySettings(region="DEU", electricity_price_by_hour=prices),
    )


def drawn(seed: int, number: int) -> DrawnFleet:
    """Return fleet `number` of a seed."""
    minutes, hours = SLOTS[number // 5 % len(SLOTS)]
    return draw_fleet(seed, number, slot_minutes=minutes, past_days=PAST_DAYS, hours=hours)


def applies(
    fleet: DrawnFleet,
    settings: Settings,
    recommendations: Iterable[Recommendation],
    catalogue: GpuCatalogue,
) -> list[Apply]:
    """Return every recommendation that promises a figure, applied."""
    planning = settings.planning
    setting = Setting(
        prices=settings.energy.prices_by_hour,
        horizon=planning.horizon_slots * planning.slot_minutes * 60 // STEP,
        base_watts_per_gpu=settings.nodes.base_watts_per_gpu,
    )
    found = []
    for recommendation in recommendations:
        promised = (
            recommendation.savings.gpu_hours,
            recommendation.savings.energy_kwh,
            recommendation.savings.cost,
        )
        if promised == (None, None, None):
            continue
        found.append(
            Apply(
                kind=str(recommendation.action),
                shape=fleet.shape,
                slot=f"{planning.slot_minutes} min",
                promised=promised,
                came=came_of(fleet, recommendation, setting),
                nothing=no_change(fleet, recommendation, setting)
                if recommendation.job_id
                else None,
                measured=measured_of(fleet, recommendation, setting, settings, catalogue)
                if recommendation.job_id
                else None,
            )
        )
    return found


def is_certain(one: Range) -> bool:
    """Say whether a promise has no width."""
    return one.high - one.low <= 1e-6 * max(1.0, abs(one.central))


def figures(found: Sequence[Apply], figure: int) -> str:
    """Return the cells of a figure: coverage, number with width, low, high misses, bias, of use."""
    pairs = [pair for one in found if (pair := one.pair(figure)) is not None]
    if not pairs:
        return "– | – | – | –"
    wide = [(promised, came) for promised, came in pairs if not is_certain(promised)]
    below = sum(came < promised.low for promised, came in wide)
    above = sum(came > promised.high for promised, came in wide)
    inside = len(wide) - below - above
    share = f"{100 * inside / len(wide):.0f} % of {len(wide)}" if wide else "certain"
    came = sum(came for _promised, came in pairs)
    over = sum(promised.central for promised, _came in pairs) - came
    bias = f"{100 * over / abs(came):+.1f} %" if came else "–"
    used = sum(one.came.used_kwh for one in found if one.pair(figure) is not None)
    of_use = f" ({100 * over / used:+.2f} %)" if figure == 1 and used else ""
    return f"{share} | {below} / {above} | {came:,.1f} | {bias}{of_use}"


def table(title: str, found: Sequence[Apply], key: Callable[[Apply], str]) -> list[str]:
    """Return a table with a row for each value of a key."""
    cells = " | ".join(
        f"{figure}: in the 80 % interval | below / above | came | bias" for figure in FIGURES
    )
    lines = ["", f"| {title} | applies | {cells} |", "|---|" + "---:|" * 13]
    for value in (*sorted({key(one) for one in found}), ""):
        rows = [one for one in found if not value or key(one) == value]
        shown = " | ".join(figures(rows, figure) for figure in range(3))
        lines.append(f"| {value or 'all'} | {len(rows)} | {shown} |")
    return lines


def measured_table(found: Sequence[Apply]) -> list[str]:
    """Return what Savings measures after a change against the truth of the same slots."""
    lines = [
        "",
        (
            "| kind | measured | GPU-h in its range | came | bias | kWh in its range | came | bias "
            "| kWh of no change: measured | of use |"
        ),
        "|---|" + "---:|" * 9,
    ]
    for kind in (*sorted({one.kind for one in found}), ""):
        rows = [one.measured for one in found if (not kind or one.kind == kind) and one.measured]
        if not rows:
            continue
        cells = []
        for name in ("gpu_hours", "kwh"):
            pairs = [(getattr(row, name), getattr(row.truth, name)) for row in rows]
            known = [(one, true) for one, true in pairs if one is not None]
            inside = sum(one.low - 1e-9 <= true <= one.high + 1e-9 for one, true in known)
            came = sum(true for _one, true in known)
            over = sum(one.central for one, _true in known) - came
            cells.append(
                f"{100 * inside / max(1, len(known)):.0f} % of {len(known)} | {came:,.1f} | "
                + (f"{100 * over / abs(came):+.1f} %" if abs(came) > 1e-9 else "–")
            )
        nothing = sum(row.nothing_kwh for row in rows)
        used = sum(row.used_kwh for row in rows)
        lines.append(
            f"| {kind or 'all'} | {len(rows)} | {' | '.join(cells)} | {nothing:+,.2f} "
            f"| {100 * nothing / used if used else 0:+.1f} % |"
        )
    return lines


def report(seed: int, found: Sequence[Apply]) -> list[str]:
    """Return the tables of a seed."""
    zero = max(
        abs(value)
        for one in found
        if one.nothing is not None
        for value in (one.nothing.gpu_hours, one.nothing.kwh, one.nothing.money)
    )
    return [
        "",
        f"## Seed {seed}",
        "",
        f"{len(found)} applies; tuned on seed 1. A change of no effect came to at most {zero:g}.",
        *table("kind", found, lambda one: one.kind),
        *table("slot", found, lambda one: one.slot),
        *table("fleet", found, lambda one: one.shape),
        "",
        "What Savings measures over the first slots after a change, against the truth of them:",
        *measured_table(found),
    ]


def played(seed: int, fleets: int, kept: Path | None) -> list[Apply]:
    """Return all applies of a seed; `kept` is a folder for what is known of its fleets."""
    found = []
    for number in range(fleets):
        fleet, settings = drawn(seed, number), settings_of(number)
        file = None if kept is None else kept / f"{seed}-{number}.pickle"
        found += applies(fleet, settings, *recommended(fleet, settings, file))
    return found


def main() -> None:
    """Print the tables and write them to benchmarks/results/promises.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="a second seed, nothing tuned on it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fleets", type=int, default=FLEETS, help="fewer are not written")
    parser.add_argument("--kept", type=Path, help="folder that keeps forecasts for the next run")
    parser.add_argument("--data", default="", help="not used: the fleets are drawn")
    options = parser.parse_args()
    started = time.process_time()
    lines = list(INTRODUCTION)
    for seed in (options.seed, options.seed + 1)[: 2 if options.full else 1]:
        lines += report(seed, played(seed, options.fleets, options.kept))
    lines += ["", f"{time.process_time() - started:.0f} CPU s."]
    text = "\n".join(lines) + "\n"
    if options.fleets == FLEETS:
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


INTRODUCTION = (
    "Recommendations of drawn fleets, each applied alone; the future is played twice from one",
    "draw, with the change and without it. `benchmarks/_promised_fleet.py` says how fleets are",
    "drawn. *Certain*: a promise without width. Below and above: what came, of the interval. Bias:",
    "promised less came, in % of what came, and of the energy that the jobs used without a change.",
)


if __name__ == "__main__":
    main()
