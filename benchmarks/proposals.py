"""How long proposals stay approvable, and whether a no holds, over cycles of the simulated fleet.

`python -m benchmarks.proposals [--full] [--days N] [--nodes N] [--kept DIR]`. Every cycle is the
product's own, 15 minutes apart. A proposal can be approved later if its id still names the same
change in the newest plan; *by id alone* is how it was before: only what the newest plan made could
be approved. The store is asked at an age of one hour, at the others the product's rule alone. After
six hours every fifth proposal that saves is rejected. What nobody proposes any more was resolved,
unless it is found again within a day: then noise withdrew it, and its approval was outdated. The
results are written after every six hours, so that a run that is cut off counts as far as it got.
With `--kept` the store is closed after every day, as by a restart of the server, and a later run
goes on there.
"""

import argparse
import pickle
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from dashboard.decisions import approvals
from dashboard.decisions.repeat_proposals import as_proposed_now, is_proposed_by
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.actions import ADVICE, FOR_MEMORY
from data.records.lifecycle import State
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings
from data.store import Store, open_store

RESULTS = Path(__file__).parent / "results" / "proposals.md"
START = datetime(2026, 1, 15, 9, tzinfo=UTC)
EVERY = timedelta(minutes=15)
HOUR = timedelta(hours=1)
PAST_DAYS = 3
REJECTED_EACH = 5
WRITTEN_EACH = REJECTED_AFTER = 6 * HOUR
AWAY = timedelta(days=1)
AGES = (1, 2, 3, 4, 8, 16)
"""Of proposals, in cycles."""
_REPLAY = "replay.pickle"
COMES_UP_AGAIN = FOR_MEMORY
"""What keeps a job from running out of memory comes up again whatever was said."""


def world_of(store: Store, nodes: int) -> World:
    """Return the world of the simulated fleet, planned a day ahead by slots of 15 minutes."""
    planning = PlanningSettings(history_days=PAST_DAYS, budget_seconds=2.0, checkpointed_jobs="*")
    energy = EnergySettings(region="DEU")
    settings = replace(Settings(), planning=planning, energy=energy)
    lookback = replace(settings.prometheus, lookback_hours=24.0 * PAST_DAYS)
    return World(
        settings=replace(settings, prometheus=lookback),
        store=store,
        collectors=(
            SimulatedFleetCollector(
                fleet=SimulatedFleet(seed=settings.simulated_fleet.seed, nodes=nodes),
                step_seconds=300,
            ),
        ),
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get(energy.region),
    )


def spells_of(open_kinds: Sequence[frozenset[tuple[str, str]]]) -> list[int]:
    """Return for how many cycles in a row each finding was open, each time anew."""
    spells: list[int] = []
    running: dict[tuple[str, str], int] = {}
    for kinds in open_kinds:
        spells += [length for kind, length in running.items() if kind not in kinds]
        running = {kind: running.get(kind, 0) + 1 for kind in kinds}
    return spells + list(running.values())


@dataclass(kw_only=True)
class Replay:
    """What became of all proposals so far."""

    made: list[tuple[Recommendation, ...]] = field(default_factory=list)
    asked: Counter[int] = field(default_factory=Counter)
    taken: Counter[int] = field(default_factory=Counter)
    refused: list[tuple[int, Recommendation]] = field(default_factory=list)
    rejected: dict[tuple[str, str], Recommendation] = field(default_factory=dict)
    again: Counter[bool] = field(default_factory=Counter)
    """How often a rejected finding came up, by whether another change was proposed of it."""
    cycle_seconds: float = 0.0

    def play(self, world: World) -> None:
        """Run the next cycle, and ask of everything that was proposed before."""
        store, cycle = world.store, len(self.made)
        now = START + cycle * EVERY
        started = time.process_time()
        outcome = run_cycle(world, now=now)
        self.cycle_seconds += time.process_time() - started
        found = outcome.recommendations
        self.made.append(found)
        for age in (age for age in AGES if age <= cycle):
            for entry in self.made[cycle - age]:
                if kind_of(entry) not in self.rejected:
                    self._ask(entry, age, store, now)
        for entry in found:
            if (before := self.rejected.get(kind_of(entry))) is not None:
                self.again[not entry.is_like(before)] += 1
        if now - START == REJECTED_AFTER:
            saving = [entry for entry in found if entry.action not in COMES_UP_AGAIN]
            for entry in saving[::REJECTED_EACH]:
                approvals.reject(store, entry.digest, by="benchmark", now=now)
                self.rejected[kind_of(entry)] = entry

    def _ask(self, entry: Recommendation, age: int, store: Store, now: datetime) -> None:
        """Count whether a proposal of that age could be approved, and why not."""
        newest = self.made[-1]
        can = any(is_proposed_by(newer, entry) for newer in newest)
        if age * EVERY == HOUR and can != is_approvable(store, entry, now):
            raise RuntimeError(f"the store says something else of {entry.summary} at {now}")
        self.asked[age] += 1
        self.taken[age] += can
        if not can and age * EVERY <= HOUR:
            self.refused.append((len(self.made) - 1, entry))

    def asked_of(self, advice: bool) -> int:
        """Return how often changes, or else advice, were asked for within an hour."""
        return sum(
            (entry.action in ADVICE) is advice
            for cycle in range(len(self.made))
            for age in AGES
            if age * EVERY <= HOUR and age <= cycle
            for entry in self.made[cycle - age]
            # Asked before the cycle's rejections.
            if cycle * EVERY <= REJECTED_AFTER or kind_of(entry) not in self.rejected
        )

    def outdated_of(self, advice: bool) -> Counter[str]:
        """Return why changes, or else advice, were refused within an hour, by reason."""
        return Counter(
            self.why(cycle, entry)
            for cycle, entry in self.refused
            if (entry.action in ADVICE) is advice
        )

    def why(self, cycle: int, entry: Recommendation) -> str:
        """Return why a proposal was refused in a cycle: outdated, or resolved for good or not."""
        newest, kind = self.made[cycle], kind_of(entry)
        if any(newer.is_like(entry) for newer in newest):
            return "with another saving"
        if any(kind_of(newer) == kind for newer in newest):
            return "with another change"
        later = self.made[cycle : cycle + AWAY // EVERY]
        if any(kind_of(newer) == kind for found in later for newer in found):
            return "withdrawn and found again within a day"
        return "resolved"

    def lines(self, nodes: int) -> list[str]:
        """Return the text of the results."""
        cycles = len(self.made)
        told, outdated, in_all = [], 0, 0
        for advice, what in ((False, "changes"), (True, "advice")):
            asked, why = self.asked_of(advice), self.outdated_of(advice)
            resolved = why.pop("resolved", 0)
            outdated, in_all = outdated + why.total(), in_all + asked
            told.append(
                f"Of {what}: asked within an hour {asked} times; refused as outdated "
                f"{_share(why.total(), asked)} ({_told(why)}), because the finding was resolved "
                f"{_share(resolved, asked)}."
            )
        every = [frozenset(map(kind_of, found)) for found in self.made]
        spells = spells_of(every)
        whole = sum(length == cycles for length in spells)
        left = max(0, cycles - 1 - REJECTED_AFTER // EVERY)
        revisions, findings = sum(map(len, self.made)), len(frozenset().union(*every))
        days, life, mean = (
            cycles * EVERY / timedelta(days=1),
            median(spells) * EVERY / HOUR,
            fmean(spells) * EVERY / HOUR,
        )
        return [
            f"Proposals of the simulated fleet of {nodes} nodes, a cycle every 15 minutes.",
            "",
            f"{cycles} cycles ({days:.3g} days), {revisions} revisions of {findings} findings.",
            f"They were open {len(spells)} times, {whole} of them in every cycle.",
            f"Median life of an open finding {life:.2g} h, mean {mean:.2g} h.",
            "",
            "| age of the proposal | asked | can be approved | by id alone |",
            "|---|---:|---:|---:|",
            *(
                f"| {age * EVERY} | {self.asked[age]} "
                f"| {100 * self.taken[age] / self.asked[age]:.1f} % | 0 % |"
                for age in AGES
                if self.asked[age]
            ),
            "",
            *told,
            f"Of both, {_share(outdated, in_all)} were outdated.",
            "Advice names no change that could be applied: approving it is taking note.",
            "",
            f"Rejected: {len(self.rejected)}.",
            f"Proposed again in the {left} cycles after: {self.again[False]} times.",
            f"Another change of these, which must save more: {self.again[True]} times.",
            "",
            f"{self.cycle_seconds / cycles:.1f} CPU s a cycle.",
        ]


def is_approvable(store: Store, one: Recommendation, now: datetime) -> bool:
    """Say whether an approval of a proposal would be taken at a time."""
    return as_proposed_now(store, one.digest, now).state == State.PROPOSED


def kind_of(entry: Recommendation) -> tuple[str, str]:
    """Return what finding a recommendation is of."""
    return entry.target, str(entry.action)


def _share(count: int, of: int) -> str:
    return f"{100 * count / max(1, of):.2f} %"


def _told(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {why}" for why, count in counted.most_common()) or "none"


def results_of(days: float, nodes: int, folder: Path, *, resumes: bool) -> Iterable[str]:
    """Yield the text of the results from time to time, and at the end."""
    cycles = round(timedelta(days=days) / EVERY)
    in_one = AWAY // EVERY if resumes else cycles
    at_work, kept, newer = folder / "at-work", folder / "kept", folder / "newer"
    replay = Replay()
    for left in (at_work, newer):
        shutil.rmtree(left, ignore_errors=True)
    if kept.exists():
        replay = pickle.loads((kept / _REPLAY).read_bytes())  # noqa: S301 - our own
        shutil.copytree(kept, at_work)
    at_work.mkdir(exist_ok=True)
    while len(replay.made) < cycles:
        with open_store(f"duckdb:///{at_work}/b.duckdb") as store:
            world = world_of(store, nodes)
            for cycle in range(len(replay.made) + 1, min(len(replay.made) + in_one, cycles) + 1):
                replay.play(world)
                if cycle % (WRITTEN_EACH // EVERY) == 0 or cycle == cycles:
                    yield "\n".join(replay.lines(nodes)) + "\n"
        if resumes:
            (at_work / _REPLAY).write_bytes(pickle.dumps(replay))
            shutil.copytree(at_work, newer)
            shutil.rmtree(kept, ignore_errors=True)
            newer.rename(kept)


def main() -> None:
    """Print the results and write them to benchmarks/results/proposals.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="14 days instead of six hours")
    parser.add_argument("--days", type=float, default=0.0, help="so many days")
    parser.add_argument("--nodes", type=int, default=8, help="nodes of 8 boards")
    parser.add_argument("--written", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--kept", type=Path, help="a folder to go on in")
    parser.add_argument("--data", default="", help="not used: the fleet is simulated")
    options = parser.parse_args()
    days = options.days or (14.0 if options.full else 0.25)
    with TemporaryDirectory() as scratch:
        folder: Path = options.kept or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for text in results_of(days, options.nodes, folder, resumes=options.kept is not None):
            options.written.write_text(text, encoding="utf-8")
            print(text, flush=True)


if __name__ == "__main__":
    main()
