"""Boards freed by letting pods share them, planned from the past and judged on what came.

`python -m benchmarks.sharing --data DIR [--fleets N] [--slowed N]`. Recorded pods: one decision
after 12 h for the next 12, then also one an hour. Drawn fleets: the first decision after a day,
then one every three hours. Every policy sees the past only, the clairvoyant the true minutes,
which it packs exactly. A board counts as freed while no pod of the decision is on it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks._sharing_interference import slowdown_table
from benchmarks._sharing_pods import BOARD_GIB, Pods, drawn, recorded
from benchmarks._sharing_policies import (
    POLICIES,
    Decision,
    Groups,
    Indices,
    clairvoyant,
    ours,
    truth,
)

RESULTS = Path(__file__).parent / "results" / "sharing.md"
SLOWDOWN = "## Slowdown of pods that share, by measured pairs\n"
_DAY = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a policy's boards did: board-minutes held and used, minutes over, moves."""

    held: float = 0.0
    used: float = 0.0
    shared: float = 0.0
    over_compute: int = 0
    over_memory: int = 0
    boards_over: int = 0
    moves: int = 0
    pod_days: float = 0.0
    missed: float = 0.0

    def plus(self, other: "Judged") -> "Judged":
        """Return the sum of two."""
        names = self.__slots__
        return Judged(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def freed(self) -> float:
        """The share of the board-minutes that are free."""
        return 1 - self.used / self.held if self.held else 0.0


def judged(pods: Pods, there: Indices, decision: Decision, minute: int, until: int) -> Judged:
    """Return what the decision's groups do in the minutes from `minute` to `until`."""
    row = {int(pod): number for number, pod in enumerate(there)}
    memory, busy, here = truth(pods, there, minute, until)
    result = Judged(held=float(here.sum()), pod_days=float(here.sum()) / _DAY)
    if decision.stopped:
        rests = [row[pod] for pod in decision.stopped]
        result = replace(result, missed=float((busy[rests] > 0).sum()))
    slices = decision.slices or {}
    for group in decision.groups:
        rows = [row[pod] for pod in group]
        used = float(here[rows].any(axis=0).sum())
        shared = float((here[rows].sum(axis=0) > 1).sum())
        limits = [slices[pod] for pod in group if pod in slices]
        if limits:
            over = [busy[one] > limit[0] for one, limit in zip(rows, limits, strict=True)]
            full = [memory[one] > limit[1] for one, limit in zip(rows, limits, strict=True)]
            worked, filled = np.sum(over), np.sum(full)
        elif len(group) > 1:
            worked = (busy[rows].sum(axis=0) > 100).sum()
            filled = (memory[rows].sum(axis=0) > BOARD_GIB).sum()
        else:
            worked = filled = 0
        result = result.plus(
            Judged(
                used=used,
                shared=shared,
                over_compute=int(worked),
                over_memory=int(filled),
                boards_over=int(filled > 0),
            )
        )
    return result


def moved(before: Sequence[tuple[int, ...]], after: Groups) -> int:
    """Return how many pods are with others than before, the largest part of a board staying."""
    moves = 0
    home = {pod: number for number, group in enumerate(before) for pod in group}
    taken: set[int] = set()
    for group in sorted(after, key=len, reverse=True):
        homes = [home[pod] for pod in group if pod in home and home[pod] not in taken]
        if not homes:
            moves += sum(pod in home for pod in group)
            continue
        most = max(homes, key=homes.count)
        taken.add(most)
        moves += sum(pod in home and home[pod] != most for pod in group)
    return moves


def again(pods: Pods, start: int, until: int, every: int) -> tuple[Judged, Judged]:
    """Return ours decided again and again: all of it, and what came after the first decision."""
    first, later = Judged(), Judged()
    groups: Groups = []
    for minute in range(start, until, every):
        there = pods.there(minute)
        decision = ours(pods, there, minute, [group for group in groups if len(group) > 1])
        result = judged(pods, there, decision, minute, min(until, minute + every))
        result = replace(result, moves=moved(groups, decision.groups))
        groups = decision.groups
        if minute == start:
            alone = [(int(pod),) for pod in there]
            first = replace(result, moves=moved(alone, groups))
        else:
            later = later.plus(result)
    return first.plus(later), later


def _line(name: str, boards: str, one: Judged, best: float) -> str:
    over = f"{100 * one.over_compute / one.shared:.3f} %" if one.shared else "–"
    moves = f"{one.moves / one.pod_days:.2f}" if one.pod_days else "–"
    return (
        f"| {name} | {boards} | {100 * one.freed:.1f} % | {100 * one.freed / best:.0f} % | {over} "
        f"| {one.over_memory} | {one.boards_over} | {moves} |"
    )


HEAD = [
    "| policy | boards | freed | of the clairvoyant | minutes over 100 % | over memory "  # noqa: ISC004
    "| boards with any | moves a pod-day |",
    "|---|" + "---:|" * 7,
]


def half_day(pods: Pods, start: int, until: int, seconds: float) -> list[str]:
    """Return the table of one decision at `start`, judged until `until`."""
    there = pods.there(start)
    best = clairvoyant(pods, there, start, until, seconds)
    perfect = judged(pods, there, Decision(groups=best.groups), start, until)
    most = 1 - best.bound / perfect.held
    lines = list(HEAD)
    alone = [(int(pod),) for pod in there]
    for name, policy in POLICIES.items():
        decision = policy(pods, there, start)
        one = judged(pods, there, decision, start, until)
        one = replace(one, moves=moved(alone, decision.groups))
        lines.append(_line(name, str(len(decision.groups)), one, perfect.freed))
        if decision.stopped:
            lines.append(f"| &nbsp; (work missed: {one.missed:.0f} pod-minutes) |" + " |" * 7)
    whole, later = again(pods, start, until, 60)
    lines.append(_line("Trimtab, every hour", "", whole, perfect.freed))
    lines.append(_line("&nbsp; after the first decision", "", later, perfect.freed))
    lines.append(
        _line(f"clairvoyant (≤ {100 * most:.1f} %)", str(len(best.groups)), perfect, perfect.freed)
    )
    return lines


def hours_table(pods: Pods, seconds: float) -> list[str]:
    """Return ours decided at other hours of the recorded day, each for up to 12 hours."""
    lines = [
        "",
        "Other hours of the day, one decision of ours for the next 12 h (or to the end):",
        "",
        "| after | pods | freed | of the clairvoyant | minutes over 100 % | minutes over memory |",
        "|---:|" + "---:|" * 5,
    ]
    for hour in (4, 6, 8, 10, 12, 14, 16):
        start, until = 60 * hour, min(pods.minutes, 60 * hour + 720)
        there = pods.there(start)
        best = clairvoyant(pods, there, start, until, seconds)
        perfect = judged(pods, there, Decision(groups=best.groups), start, until)
        one = judged(pods, there, ours(pods, there, start), start, until)
        over = 100 * one.over_compute / one.shared if one.shared else 0.0
        lines.append(
            f"| {hour} h | {len(there)} | {100 * one.freed:.1f} % | "
            f"{100 * one.freed / perfect.freed:.0f} % | {over:.3f} % | {one.over_memory} |"
        )
    return lines


def fleets_table(fleets: Sequence[Pods], seconds: float) -> list[str]:
    """Return the policies on drawn fleets together, from the second day on."""
    sums = dict.fromkeys(
        [*POLICIES, "Trimtab, every 3 h", "&nbsp; after the first decision"], Judged()
    )
    perfect = Judged()
    for pods in fleets:
        start, until = _DAY, pods.minutes
        there = pods.there(start)
        best = clairvoyant(pods, there, start, until, seconds)
        perfect = perfect.plus(judged(pods, there, Decision(groups=best.groups), start, until))
        alone = [(int(pod),) for pod in there]
        for name, policy in POLICIES.items():
            decision = policy(pods, there, start)
            one = judged(pods, there, decision, start, until)
            sums[name] = sums[name].plus(replace(one, moves=moved(alone, decision.groups)))
        for name, one in zip(list(sums)[-2:], again(pods, start, until, 180), strict=True):
            sums[name] = sums[name].plus(one)
    lines = ["", f"## {len(fleets)} drawn fleets, second and third day", "", *HEAD]
    lines += [_line(name, "", one, perfect.freed) for name, one in sums.items()]
    return [*lines, _line("clairvoyant", "", perfect, perfect.freed)]


def main() -> None:
    """Print the tables and write them to benchmarks/results/sharing.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    parser.add_argument("--fleets", type=int, default=10, help="number of drawn fleets")
    parser.add_argument("--seconds", type=float, default=60.0, help="time of one exact packing")
    parser.add_argument("--slowed", type=int, default=500, help="number of fleets with slowdown")
    parser.add_argument("--seed", type=int, default=2000, help="seed of the first of these")
    parser.add_argument("--part", choices=("packing", "slowdown"), help="the only part to do anew")
    options = parser.parse_args()
    packing, _mark, slowdown = RESULTS.read_text(encoding="utf-8").partition(SLOWDOWN)
    if options.part != "slowdown":
        packing = _packing(options)
    if options.part != "packing":
        slowdown = _slowdown(options)
    text = packing + SLOWDOWN + slowdown
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


def _slowdown(options: argparse.Namespace) -> str:
    seeds = range(options.seed, options.seed + options.slowed)
    return "\n".join(
        [
            "",
            f"{options.slowed} drawn fleets (seeds {seeds[0]} to {seeds[-1]}); pods share from the",
            "second day on as Trimtab lets them. Pods that work in the same minute have the speeds",
            "of measured pairs of like activity: half of an H200's that take turns, half Lucid's",
            "(1,067 of 1,388). No speed of a pair goes into who shares. Every engine times its",
            "requests: 6 in a minute of work, the pace of one request within 30 %. A share is",
            "watched until its speed is a standard error from 0.9, for two days at most.",
            "",
            *slowdown_table(((seed, drawn(seed)) for seed in seeds), Path(options.data)),
            "",
        ]
    )


def _packing(options: argparse.Namespace) -> str:
    pods = recorded(Path(options.data))
    return "\n".join(
        [
            "Pods that share boards: planned from the past, judged on the minutes that came",
            "(`python -m benchmarks.sharing`). Boards of 80 GiB; the clairvoyant packs the true",
            "minutes exactly, by at most four pods a board, and is bounded by HiGHS.",
            "",
            "## Recorded pods: decided after 12 h, judged on the other 12",
            "",
            *half_day(pods, 720, pods.minutes, options.seconds),
            *hours_table(pods, options.seconds),
            *fleets_table([drawn(seed) for seed in range(options.fleets)], options.seconds),
            "\n",
        ]
    )


if __name__ == "__main__":
    main()
