"""How long proposals stay approvable, and whether a no holds, over cycles of the simulated fleet.

`python -m benchmarks.proposals [--full] [--hours N]`. Every cycle is the product's own, 15 minutes
apart. A proposal can be approved later if its id still names the same change in the newest plan;
*by id alone* is how it was before: only what the newest plan made could be approved. In the second
half every fifth proposal that saves has been rejected.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard import decisions
from dashboard.cycle import run_cycle
from dashboard.cycle_world import World
from dashboard.proposed_again import as_proposed_now
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.decisions import FOR_MEMORY, Recommendation
from data.records.lifecycle import State
from data.settings import EnergySettings, PlanningSettings, Settings
from data.store import Store, open_store

RESULTS = Path(__file__).parent / "results" / "proposals.md"
START = datetime(2026, 1, 15, 9, tzinfo=UTC)
EVERY = timedelta(minutes=15)
HOUR = timedelta(hours=1)
PAST_DAYS = 3
REJECTED_EACH = 5
COMES_UP_AGAIN = FOR_MEMORY
"""What keeps a job from running out of memory comes up again whatever was said."""


def world_of(store: Store) -> World:
    """Return the world of the simulated fleet, planned a day ahead by slots of 15 minutes."""
    planning = PlanningSettings(history_days=PAST_DAYS, budget_seconds=2.0)
    energy = EnergySettings(region="DEU")
    settings = replace(Settings(), planning=planning, energy=energy)
    lookback = replace(settings.prometheus, lookback_hours=24.0 * PAST_DAYS)
    return World(
        settings=replace(settings, prometheus=lookback),
        store=store,
        collectors=(
            SimulatedFleetCollector(
                fleet=SimulatedFleet(
                    seed=settings.simulated_fleet.seed, nodes=settings.simulated_fleet.nodes
                ),
                step_seconds=300,
            ),
        ),
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get(energy.region),
    )


def is_approvable(store: Store, one: Recommendation, now: datetime) -> bool:
    """Say whether an approval of a proposal would be taken at a time."""
    return as_proposed_now(store, one.digest, now).state == State.PROPOSED


def spells_of(open_kinds: Sequence[frozenset[tuple[str, str]]]) -> list[int]:
    """Return for how many cycles in a row each finding was open, each time anew."""
    spells: list[int] = []
    running: dict[tuple[str, str], int] = {}
    for kinds in open_kinds:
        spells += [length for kind, length in running.items() if kind not in kinds]
        running = {kind: running.get(kind, 0) + 1 for kind in kinds}
    return spells + list(running.values())


def played(hours: float) -> list[str]:
    """Return the rows of the table: what became of all proposals over so many hours."""
    cycles = round(hours * HOUR / EVERY)
    taken, asked = Counter[int](), Counter[int]()
    with TemporaryDirectory() as folder, open_store(f"duckdb:///{folder}/b.duckdb") as store:
        world = world_of(store)
        made: list[tuple[int, Recommendation]] = []
        rejected: set[tuple[str, str]] = set()
        again = 0
        open_kinds: list[frozenset[tuple[str, str]]] = []
        for cycle in range(cycles):
            now = START + cycle * EVERY
            found = run_cycle(world, now=now).recommendations
            for before, entry in made:
                age = cycle - before
                if age * EVERY <= 4 * HOUR and (entry.target, entry.action) not in rejected:
                    asked[age] += 1
                    taken[age] += is_approvable(store, entry, now)
            again += sum((entry.target, str(entry.action)) in rejected for entry in found)
            made += [(cycle, entry) for entry in found]
            open_kinds.append(frozenset((said.target, str(said.action)) for said in found))
            if cycle == cycles // 2:
                saving = [entry for entry in found if entry.action not in COMES_UP_AGAIN]
                for entry in saving[::REJECTED_EACH]:
                    decisions.reject(store, entry.digest, by="benchmark", now=now)
                    rejected.add((entry.target, str(entry.action)))
    rows = [
        f"| {age * EVERY} | {asked[age]} | {100 * taken[age] / asked[age]:.1f} % | 0 % |"
        for age in (1, 2, 4, 8, 16)
        if asked[age]
    ]
    within = [age for age in asked if age * EVERY <= HOUR]
    refused = 1 - sum(taken[age] for age in within) / max(1, sum(asked[age] for age in within))
    kinds = len({(entry.target, entry.action) for _cycle, entry in made})
    left = cycles - 1 - cycles // 2
    spells = spells_of(open_kinds)
    whole = sum(length == cycles for length in spells)
    return [
        f"{cycles} cycles, {len(made)} revisions of {kinds} findings.",
        f"They were open {len(spells)} times, {whole} of them from the first cycle to the last.",
        f"Median {median(spells) * EVERY / HOUR:.2g} h, mean {fmean(spells) * EVERY / HOUR:.2g} h.",
        "",
        "| age of the proposal | asked | can be approved | by id alone |",
        "|---|---:|---:|---:|",
        *rows,
        "",
        f"Refused within an hour: {100 * refused:.1f} %. Rejected: {len(rejected)}.",
        f"Proposed again in the {left} cycles after: {again} times.",
    ]


def main() -> None:
    """Print the table and write it to benchmarks/results/proposals.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="a day instead of six hours")
    parser.add_argument("--hours", type=float, default=0.0, help="so many, not written")
    parser.add_argument("--data", default="", help="not used: the fleet is simulated")
    options = parser.parse_args()
    started = time.process_time()
    hours = options.hours or (24.0 if options.full else 6.0)
    lines = ["Proposals of the simulated fleet, a cycle every 15 minutes.", "", *played(hours)]
    text = "\n".join([*lines, "", f"{time.process_time() - started:.0f} CPU s."]) + "\n"
    if not options.hours:
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
