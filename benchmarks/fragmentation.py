"""Online placement of the openb pods beside its peers: GPU allocated, and busy nodes.

`python -m benchmarks.fragmentation --data DIR [--full]`, which holds openb/ (Alibaba gpu-v2023).
Pods arrive in random order, then random ones again, until their GPU demand is 130 % of the
cluster; CPU, memory, GPU models and shares are checked. FGD is our replica from the paper, with
both tie rules. Second part: pods with lives on 100 random nodes, ends known or estimated.
"""

import argparse
import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks._fgd_kernel import replay_fgd
from benchmarks._fragmentation import Pods, prices_of
from benchmarks._fragmentation_kernel import NodeState, PlacementPrices, Pod
from benchmarks._online_placement import OnlinePlacer, PlacedPod
from benchmarks._openb import arrivals, openb_nodes, openb_pods
from benchmarks._openb_kernel import BEST, FIRST, OURS, RANDOM, pick, replay
from benchmarks.packing.temporal_instance import Ints
from planner.packing.random_kernel import random_state

RESULTS = Path(__file__).parent / "results" / "fragmentation.md"
FIRST_SEED = 42
GOAL_100, GOAL_130, GOAL_MICROSECONDS = 96.2, 96.4, 50.0
_NODES, _PODS = 100, 4000
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Nodes, pods as a table in the order of Pod, the pods, and the prices that they imply."""

    nodes: NodeState
    table: Ints
    pods: Pods
    prices: PlacementPrices


def workload(folder: Path, variant: str) -> Workload:
    """Return a variant on empty nodes."""
    nodes, models = openb_nodes(folder)
    pods = openb_pods(folder / f"pods_{variant}.parquet", models)
    table = np.stack([pods.cpu, pods.memory, pods.gpus, pods.milli, pods.models], axis=1)
    return Workload(nodes=nodes, table=table, pods=pods, prices=prices_of(pods, nodes))


def copied(nodes: NodeState) -> NodeState:
    """Return nodes that can be filled without filling the others."""
    return NodeState(*(part.copy() for part in nodes))


def typical_pods(table: Ints, share: float = 0.95) -> tuple[Ints, Floats]:
    """Return the most frequent (CPU, GPUs, milli, models) that cover a share of the pods."""
    kinds, counts = np.unique(table[:, [0, 2, 3, 4]], axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    enough = int(np.searchsorted(np.cumsum(counts[order]), share * len(table))) + 1
    chosen = order[:enough]
    return np.ascontiguousarray(kinds[chosen]), counts[chosen] / counts[chosen].sum()


def by_rule(rule: int) -> Callable[[Workload, Ints, int], Ints]:
    """Return the replay of one of our rules."""

    def run(one: Workload, table: Ints, seed: int) -> Ints:
        return replay(copied(one.nodes), one.prices, table, rule, random_state(seed))

    return run


def by_fgd(*, by_name: bool) -> Callable[[Workload, Ints, int], Ints]:
    """Return the replay of FGD with a tie rule."""

    def run(one: Workload, table: Ints, seed: int) -> Ints:
        typical, chance = typical_pods(one.table)
        state = random_state(seed)
        return replay_fgd(copied(one.nodes), table, typical, chance, by_name, state)

    return run


RULES = {
    "Random": by_rule(RANDOM),
    "BestFit": by_rule(BEST),
    "FirstFit by name": by_rule(FIRST),
    "FGD, random ties": by_fgd(by_name=False),
    "FGD, first by name": by_fgd(by_name=True),
    "Trimtab": by_rule(OURS),
}


def allocation(one: Workload, rule: str, seeds: Sequence[int]) -> Floats:
    """Return % of GPUs allocated at 100 % and 130 % arrived, and us per pod: means over seeds."""
    capacity = int(one.nodes.gpu.sum())
    rows = []
    for seed in seeds:
        order = arrivals(one.pods, capacity, seed=seed)
        arrived = np.cumsum(one.pods.demand[order])
        started = time.process_time()
        allocated = RULES[rule](one, one.table[order], seed)
        microseconds = 1e6 * (time.process_time() - started) / len(order)
        at = np.searchsorted(arrived, [capacity, int(1.3 * capacity)]) - 1
        rows.append([*(100 * allocated[at] / capacity), microseconds])
    return np.asarray(np.mean(rows, axis=0))


def load_kernels(one: Workload) -> None:
    """Run every rule on a few pods, so that no compilation is timed."""
    for run in RULES.values():
        run(one, one.table[np.arange(5)], 1)


def allocation_tables(folder: Path, *, full: bool) -> tuple[list[str], list[str]]:
    """Return the tables of all variants, and what of the goals is met."""
    variants = sorted(path.stem.removeprefix("pods_") for path in folder.glob("pods_*.parquet"))
    seeds = range(FIRST_SEED, FIRST_SEED + (10 if full else 2))
    chosen = variants if full else ["default"]
    lines = [
        (
            f"GPU allocated, % of the cluster, seeds {seeds[0]} to {seeds[-1]}; us of CPU per pod,"
            " the prices made once before."
        ),
        "",
        "| workload | rule | at 100 % | at 130 % | us per pod |",
        "|---|---|---:|---:|---:|",
    ]
    said = []
    for variant in chosen:
        one = workload(folder, variant)
        load_kernels(one)
        found = {rule: allocation(one, rule, seeds) for rule in RULES}
        for rule, (full_load, over_load, microseconds) in found.items():
            bold = "**" if rule == "Trimtab" else ""
            lines.append(
                f"| {variant} | {rule} | {bold}{full_load:.2f}{bold} "
                f"| {bold}{over_load:.2f}{bold} | {microseconds:.0f} |"
            )
        said += allocation_verdicts(variant, found)
    return lines, said


def allocation_verdicts(variant: str, found: dict[str, Floats]) -> list[str]:
    """Say what of the goals is met by a variant."""
    ours = found["Trimtab"]
    best = np.max([row[:2] for rule, row in found.items() if rule != "Trimtab"], axis=0)
    lines = [
        f"* {variant}, above every peer at {load}: {value:.2f} % against {peer:.2f} %, "
        f"{'met' if value > peer else 'missed'}"
        for load, value, peer in zip(("100 %", "130 %"), ours[:2], best, strict=True)
    ]
    if variant != "default":
        return lines
    return [
        *lines,
        f"* {variant} >= {GOAL_100} % at 100 %: {ours[0]:.2f} %, {verdict(ours[0] >= GOAL_100)}",
        f"* {variant} >= {GOAL_130} % at 130 %: {ours[1]:.2f} %, {verdict(ours[1] >= GOAL_130)}",
        (
            f"* {variant} <= {GOAL_MICROSECONDS:.0f} us per pod: {ours[2]:.0f} us, "
            f"{verdict(ours[2] <= GOAL_MICROSECONDS)}"
        ),
    ]


def verdict(met: bool) -> str:  # a word for a truth value
    """Return met or missed."""
    return "met" if met else "missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Pods with arrivals and durations on some nodes."""

    nodes: NodeState
    pods: Pods
    order: Ints
    arrive: Floats
    stay: Floats


def lives(folder: Path, *, load: float, sigma: float, seed: int) -> Lives:
    """Return 4,000 pods with Poisson arrivals and lognormal lives on 100 random GPU nodes."""
    rng = np.random.default_rng([seed, int(10 * load), int(10 * sigma)])
    one = workload(folder, "default")
    with_gpus = np.flatnonzero(one.nodes.gpu > 0)
    chosen = np.sort(rng.choice(with_gpus, _NODES, replace=False))
    nodes = NodeState(*(part[chosen].copy() for part in one.nodes))
    order = rng.choice(np.flatnonzero(one.pods.gpus > 0), _PODS)
    stay = rng.lognormal(0.0, sigma, _PODS)
    work = float((one.pods.demand[order] * stay).sum())
    horizon = work / (load * float(nodes.gpu.sum()))
    return Lives(
        nodes=nodes,
        pods=one.pods,
        order=order,
        arrive=np.sort(rng.uniform(0, horizon, _PODS)),
        stay=stay,
    )


class RulePlacer(OnlinePlacer):
    """The online placer with a peer's rule in place of ours."""

    def __init__(self, nodes: NodeState, typical: Pods, rule: int) -> None:
        super().__init__(nodes, typical)
        self._rule = rule

    def choose(self, pod: Pod, *, now: float, end: float | None) -> int:
        """Return the peer's node; ends are not looked at."""
        return pick(self.nodes, self.prices, pod, self._rule, random_state(1))


def busy_hours(
    one: Lives, placer: OnlinePlacer, worth: Floats, factors: Floats | None
) -> tuple[float, float]:
    """Return (busy hours x worth [nodes] per accepted GPU-hour, share of GPU-hours accepted).

    Ends are told as they are, or wrong by a factor per pod.
    """
    held = np.zeros(len(one.nodes.cpu), dtype=np.int64)
    leaving: list[tuple[float, int, PlacedPod]] = []
    busy = since = accepted = offered = 0.0

    def leave_until(now: float) -> None:
        nonlocal busy, since
        while leaving and leaving[0][0] <= now:
            at, _, gone = heapq.heappop(leaving)
            busy, since = busy + worth[held > 0].sum() * (at - since), at
            placer.release(gone)
            held[gone.node] -= 1

    for number, (index, now, stay) in enumerate(zip(one.order, one.arrive, one.stay, strict=True)):
        leave_until(now)
        busy, since = busy + worth[held > 0].sum() * (now - since), now
        pod = one.pods.pod(index)
        gpu_hours = pod.gpus * pod.milli / 1000 * stay
        offered += gpu_hours
        said = stay if factors is None else stay * factors[number]
        placed = placer.place(pod, now=now, end=now + said)
        if placed is not None:
            held[placed.node] += 1
            accepted += gpu_hours
            heapq.heappush(leaving, (now + stay, number, placed))
    leave_until(np.inf)
    return busy / accepted, accepted / offered


def busy_cells(one: Lives) -> list[float]:
    """Return FirstFit's acceptance, then hours against it and acceptance of every other placer."""
    wrong = np.random.default_rng(1).lognormal(0, 1.0, _PODS)
    gpus = one.nodes.gpu / 1000
    alike = np.ones(_NODES)
    first = RulePlacer(copied(one.nodes), one.pods, FIRST)
    base, accepted = busy_hours(one, first, gpus, None)
    base_alike, _ = busy_hours(one, RulePlacer(copied(one.nodes), one.pods, FIRST), alike, None)
    row = [accepted]
    for placer, against, worth, factors in (
        (RulePlacer(copied(one.nodes), one.pods, BEST), base, gpus, None),
        (OnlinePlacer(copied(one.nodes), one.pods), base, gpus, None),
        (OnlinePlacer(copied(one.nodes), one.pods), base, gpus, wrong),
        (OnlinePlacer(copied(one.nodes), one.pods, cost=alike), base_alike, alike, None),
    ):
        hours, share = busy_hours(one, placer, worth, factors)
        row += [hours / against - 1, share]
    return row


def busy_table(folder: Path, *, seeds: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return the table of busy node-hours, and what of the goal is met."""
    lines = [
        "",
        (
            "Hours of busy nodes, weighted by their GPUs, per accepted GPU-hour against FirstFit; "
            f"share of GPU-hours accepted. {_NODES} random openb nodes, {_PODS} GPU pods, Poisson "
            f"arrivals, lognormal lives, seeds {seeds[0]} to {seeds[-1]}; in the last columns "
            "every node counts alike, for FirstFit and for ours."
        ),
        "",
        (
            "| load | sigma | FirstFit accepts | BestFit | accepts | Trimtab, ends known | accepts "
            "| ends wrong by lognormal 1 | accepts | nodes alike | accepts |"
        ),
        "|" + "---:|" * 11,
    ]
    known, alike, lost, lost_alike = [], [], [], []
    for load in (0.5, 0.8):
        for sigma in (1.0, 1.8):
            rows = [busy_cells(lives(folder, load=load, sigma=sigma, seed=seed)) for seed in seeds]
            mean = np.mean(rows, axis=0)
            known.append(mean[3])
            alike.append(mean[7])
            lost.append(mean[4] - mean[0])
            lost_alike.append(mean[8] - mean[0])
            cells = [
                f"{100 * value:.2f} %" if index % 2 == 0 else f"{100 * value:+.1f} %"
                for index, value in enumerate(mean)
            ]
            lines.append(f"| {load} | {sigma} | {' | '.join(cells)} |")
    said = [
        f"* ends known, <= -4 % node-hours per accepted GPU-hour, {what}: {100 * value:+.1f} % in "
        f"the mean, {verdict(value <= -0.04)}"
        for what, value in (
            ("weighted by GPUs", float(np.mean(known))),
            ("nodes alike", float(np.mean(alike))),
        )
    ]
    for what, each in (("weighted by GPUs", lost), ("nodes alike", lost_alike)):
        least = 100 * float(min(each))
        said.append(
            f"* ends known, {what}, acceptance not below FirstFit: least difference {least:+.2f} "
            f"points, {verdict(least >= 0)}"
        )
    return lines, said


def main() -> None:
    """Print the tables and write them to benchmarks/results/fragmentation.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="ten seeds, every workload; minutes")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    folder = Path(options.data) / "openb"
    lines, said = allocation_tables(folder, full=options.full)
    busy_lines, busy_said = busy_table(folder, seeds=range(3) if options.full else range(1))
    text = "\n".join([*lines, *busy_lines, "", *said, *busy_said]) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
