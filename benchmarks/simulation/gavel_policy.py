"""Gavel-like (Narayanan et al., OSDI 2020): a linear program of time shares, met round by round."""

from collections.abc import Mapping, Sequence

import highspy
import numpy as np

from benchmarks.simulation.job_view import Allocation, JobView, NodeView
from benchmarks.simulation.rigid_policies import Room, place, room_of, usable_types
from benchmarks.simulation.rounds.round_problem import Floats


class GavelPolicy:
    """Max-min fair throughput over GPU types (section 4.1), with the GPUs each user guessed.

    The program gives every job a share of time on every type; a round runs the jobs whose share
    is largest against the time they had there (section 5.1). Throughput on a type is that of one
    GPU by `cluster_throughput_ratios`, known from the start. What a job holds weighs `keep` more,
    against restarts in every round.
    """

    def __init__(self, *, keep: float = 1.5, knows_memory: bool = False) -> None:
        self.keep = keep
        self.knows_memory = knows_memory
        self._received: dict[str, dict[str, float]] = {}

    def optimize(
        self,
        jobs: Mapping[str, JobView],
        nodes: Mapping[str, Mapping[int, NodeView]],
        prev_allocations: Mapping[str, Allocation],
    ) -> dict[str, Allocation]:
        """Return the allocation of every job that runs."""
        room = room_of(nodes)
        names, types = list(jobs), list(room)
        shares = self._shares(names, jobs, types, room)
        self._received = {
            name: self._received.get(name, dict.fromkeys(types, 0.0)) for name in names
        }
        ranked = []
        for row, name in enumerate(names):
            for column, kind in enumerate(types):
                share = float(shares[row, column])
                priority = share / (self._received[name][kind] + 1.0)
                now = prev_allocations.get(name, (None, ()))[0] == kind
                locked = now and jobs[name].scaling_underway
                if share > 0 or locked:
                    weight = self.keep if now else 1.0
                    ranked.append((not locked, -priority * weight, row, kind))
        free = {kind: sum(of.values()) for kind, of in room.items()}
        chosen: dict[str, tuple[str, int]] = {}
        for _, _, row, kind in sorted(ranked):
            name, gpus = names[row], jobs[names[row]].target_num_replicas
            if name not in chosen and gpus <= free[kind]:
                free[kind] -= gpus
                chosen[name] = (kind, gpus)
                self._received[name][kind] += 1.0
        return place(chosen, prev_allocations, room)

    def _shares(
        self, names: Sequence[str], jobs: Mapping[str, JobView], types: Sequence[str], room: Room
    ) -> Floats:
        """Return the shares of time [J, T]: max over X of the least normalised throughput."""
        speed = np.zeros((len(names), len(types)))
        for row, name in enumerate(names):
            job = jobs[name]
            for kind in usable_types(job, room, knows_memory=self.knows_memory):
                ratios = job.cluster_throughput_ratios.get(kind, {})
                speed[row, types.index(kind)] = ratios.get(types[0], 1.0)
        gpus = np.array([jobs[name].target_num_replicas for name in names], dtype=np.float64)
        capacity = np.array([sum(room[kind].values()) for kind in types], dtype=np.float64)
        return max_min_shares(speed, gpus, capacity)


def max_min_shares(speed: Floats, gpus: Floats, capacity: Floats) -> Floats:
    """Return shares X [J, T] that maximise the least normalised throughput, then their sum.

    `speed` [J, T] is 0 where a job cannot run; a job's throughput is normalised by that of an equal
    share of all types and weighted by its GPUs, as Gavel's least attained service policy does.
    """
    jobs, types = speed.shape
    equal = np.maximum(speed @ (capacity / capacity.sum()), 1e-9)
    normal = speed / equal[:, None]
    cells = jobs * types
    highs = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy types all but this
    for option, value in (("output_flag", False), ("threads", 1)):
        highs.setOptionValue(option, value)
    cost = np.append(-1e-3 * normal.ravel(), -float(cells))
    upper = np.append((speed.ravel() > 0) * 1.0, highspy.kHighsInf)
    none, empty = np.zeros(cells + 1, dtype=np.int32), np.zeros(0)
    highs.addCols(
        cells + 1, cost, np.zeros(cells + 1), upper, 0, none, empty.astype(np.int32), empty
    )
    columns = np.arange(cells, dtype=np.int32).reshape(jobs, types)
    for row in range(jobs):
        highs.addRow(0.0, 1.0, types, columns[row], np.ones(types))
        if (speed[row] > 0).any():
            weighted = np.append(normal[row] * gpus[row], -1.0)
            highs.addRow(
                0.0,
                highspy.kHighsInf,
                types + 1,
                np.append(columns[row], cells).astype(np.int32),
                weighted,
            )
    for kind in range(types):
        highs.addRow(0.0, float(capacity[kind]), jobs, columns[:, kind].copy(), gpus)
    highs.run()
    found = np.array(highs.getSolution().col_value, dtype=np.float64)[:cells]
    return np.maximum(found.reshape(jobs, types), 0.0)
