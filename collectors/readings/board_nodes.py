"""Nodes of boards by time, and boards that two nodes claim at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.readings.device_labels import LabelledDevice, host_of
from data.base.counts import count_text
from data.base.errors import scrub
from data.facts.energy_integration import MAX_GAP_SECONDS

Instants = npt.NDArray[np.int64]
MAX_OVERLAPS = 1
"""A board that moves may be shown by both nodes for one step, while the old series goes stale."""
_MAX_GAP = int(MAX_GAP_SECONDS * 1e6)


@dataclass(slots=True)
class TwoNodes:
    """Boards that two nodes reported at the same times: board to nodes."""

    nodes: dict[str, set[str]] = field(default_factory=dict)

    def warnings(self) -> tuple[str, ...]:
        """Return one line that counts the boards and names the first of them, or nothing."""
        if not self.nodes:
            return ()
        board = min(self.nodes)
        names = " and ".join(sorted(self.nodes[board]))
        message = (
            f"two nodes at once report {count_text(len(self.nodes), 'board')}, such as "
            f"{scrub(board, limit=60)} by {scrub(names, limit=120)}: the larger reading is kept, "
            "under the last node by name. Is one UUID given to two virtual machines, or does an "
            "exporter name the wrong node?"
        )
        return (message,)


_MIN_COMMON, _ERRORS, _SHARE = 9, 3.0, 0.1
_SLACK = {"memory": 1024.0, "power": 10.0}
"""MiB and W: one exporter counts reserved memory as used, and asks a moment later."""


def disagreeing(
    tellers: Mapping[tuple[str, str, str], Sequence[tuple[str, Instants, npt.NDArray[np.float64]]]],
) -> Iterator[tuple[str, str]]:
    """Yield boards, each with a sentence, of which two series tell different means of a quantity.

    `tellers` are metric, times and values by board, instance and quantity. They must differ by more
    than a tenth and three standard errors: of a moment two exporters seldom say the same.
    """
    for (uuid, _instance, quantity), (first, *others) in tellers.items():
        for other in others:
            _times, here, there = np.intersect1d(first[1], other[1], return_indices=True)
            if len(here) < _MIN_COMMON:
                continue
            values, others_values = first[2][here], other[2][there]
            apart = values - others_values
            scale = max(float(values.mean()), float(others_values.mean()))
            slack = _SLACK.get(quantity.partition("_")[0], _SHARE)
            error = _ERRORS * float(apart.std()) / len(here) ** 0.5
            if abs(float(apart.mean())) > slack + error + _SHARE * scale * (slack != _SHARE):
                names = " and ".join(sorted({first[0], other[0]}))
                yield (
                    uuid,
                    (
                        f"two exporters tell different values of {quantity} ({names}). The larger "
                        "is kept. Restart the one that is wrong, or scrape one alone."
                    ),
                )


@dataclass(slots=True)
class _NodeRun:
    """Times (us since the epoch) at which a node reported a board without a gap."""

    host: str
    first: int
    last: int
    samples: int

    @property
    def step(self) -> float:
        """The mean time between two samples, in us; inf of one alone."""
        return (self.last - self.first) / (self.samples - 1) if self.samples > 1 else np.inf


@dataclass(slots=True)
class NodeRuns:
    """The nodes that reported each board by time, of samples that come in pieces."""

    _runs: dict[str, list[_NodeRun]] = field(default_factory=dict)

    def note(self, samples: pd.DataFrame) -> None:
        """Take in samples with the columns gpu_uuid, node and sampled_at."""
        rows = samples.loc[samples["node"] != "", ["gpu_uuid", "node", "sampled_at"]]
        hosts = {node: host_of(node) or node for node in rows["node"].unique()}
        rows = rows.assign(node=rows["node"].map(hosts)).drop_duplicates()
        for (uuid, host), times in rows.groupby(["gpu_uuid", "node"])["sampled_at"]:
            at = np.sort(times.astype("int64").to_numpy())
            runs = self._runs.setdefault(str(uuid), [])
            for part in np.split(at, np.flatnonzero(np.diff(at) > _MAX_GAP) + 1):
                run = _NodeRun(str(host), int(part[0]), int(part[-1]), len(part))
                before = next((entry for entry in reversed(runs) if entry.host == host), None)
                if before is not None and 0 < run.first - before.last <= _MAX_GAP:
                    before.last, before.samples = run.last, before.samples + run.samples
                else:
                    runs.append(run)

    def two_nodes(self) -> TwoNodes:
        """Return the boards that several nodes reported at once, by name where any has one."""
        result = TwoNodes()
        for uuid, runs in self._runs.items():
            candidates = [run for run in runs if host_of(run.host)] or runs
            if hosts := _at_once(candidates):
                result.nodes[uuid] = hosts
        return result


def _at_once(runs: Sequence[_NodeRun]) -> set[str]:
    """Return the hosts whose runs overlap by a step, or share times more than once."""
    newest: dict[str, _NodeRun] = {}
    shared: dict[frozenset[str], int] = {}
    for run in sorted(runs, key=lambda run: run.first):
        for other in newest.values():
            if other.host == run.host or other.last < run.first:
                continue
            overlap, step = min(run.last, other.last) - run.first, min(run.step, other.step)
            pair = frozenset((run.host, other.host))
            if overlap >= step:
                return {*pair}
            if 1 in (run.samples, other.samples):
                shared[pair] = shared.get(pair, 0) + 1
                if shared[pair] > MAX_OVERLAPS:
                    return {*pair}
        last_run = newest.get(run.host)
        if last_run is None or last_run.last < run.last:
            newest[run.host] = run
    return set()


def named_by_time(
    samples: pd.DataFrame,
    devices: Sequence[Sequence[LabelledDevice]],
    instants: Sequence[Sequence[Instants]],
    two_nodes: TwoNodes,
) -> pd.DataFrame:
    """Return the samples with the node, and index there, that reported each of them.

    `devices` and `instants` (us since the epoch) are those of every series, by holder. Of two
    nodes at one time the last by name counts; boards claimed so more than once go to `two_nodes`.
    """
    boards: dict[str, list[tuple[LabelledDevice, Instants]]] = {}
    for group, times in zip(devices, instants, strict=True):
        for device, stamps in zip(group, times, strict=True):
            boards.setdefault(device.gpu_uuid, []).append((device, stamps))
    moved = {uuid: claims for uuid, pairs in boards.items() if (claims := _by_name(pairs))}
    if not moved:
        return samples
    positions = samples.groupby(["gpu_uuid", "mig_instance", "job_id"]).indices
    at = samples["sampled_at"].astype("int64").to_numpy()
    columns = {name: samples[name].to_numpy(dtype=object, copy=True) for name in _PLACE_FIELDS}
    for uuid, claims in moved.items():
        _claims(uuid, claims, two_nodes)
        for device, stamps in sorted(claims, key=lambda pair: (pair[0].node, pair[0].gpu_index)):
            holder = (uuid, device.mig_instance, device.job_id)
            rows = np.asarray(positions.get(holder, _NO_ROWS))
            rows = rows[np.isin(at[rows], stamps)]
            for name in _PLACE_FIELDS:
                columns[name][rows] = getattr(device, name) or columns[name][rows]
    return samples.assign(**{name: pd.Series(columns[name], dtype="str") for name in _PLACE_FIELDS})


def _by_name(
    claims: Sequence[tuple[LabelledDevice, Instants]],
) -> list[tuple[LabelledDevice, Instants]]:
    """Return the claims with the node of a board that has been on several, none of the others.

    Addresses count only where no series gives a name.
    """
    names = [pair for pair in claims if host_of(pair[0].node)]
    candidates = names or [pair for pair in claims if pair[0].node]
    return candidates if len({_host(pair[0]) for pair in candidates}) > 1 else []


def _host(device: LabelledDevice) -> str:
    return host_of(device.node) or device.node


_NO_ROWS = np.array([], dtype=np.int64)
_PLACE_FIELDS = ("node", "gpu_index")


def _claims(
    uuid: str, pairs: Sequence[tuple[LabelledDevice, Instants]], two_nodes: TwoNodes
) -> None:
    by_host: dict[str, list[Instants]] = {}
    for device, stamps in pairs:
        by_host.setdefault(_host(device), []).append(stamps)
    each = [np.unique(np.concatenate(stamps)) for stamps in by_host.values()]
    _times, claims = np.unique(np.concatenate(each), return_counts=True)
    if int((claims > 1).sum()) > MAX_OVERLAPS:
        two_nodes.nodes.setdefault(uuid, set()).update(by_host)
