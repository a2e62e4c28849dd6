"""Traces in Parquet or CSV, read through a column map. Nothing is guessed, nothing is lost.

A trace is read piece by piece. The checks are those of telemetry: the same limits, under the same
names. What only the whole file tells, such as a doubtful unit, is refused after its last piece:
keep all pieces in one transaction.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.readings.board_nodes import NodeRuns
from collectors.readings.contradictions import COUNTERS, believed_samples
from collectors.readings.device_labels import board_uuid
from collectors.readings.plausible_values import plausible
from collectors.shared.collect import MAX_SKEW
from collectors.trace.cells import Floats, numbers_of, texts_of
from collectors.trace.column_map import FACTORS, MappedColumn, TraceMap, field_of, load_map, nearest
from collectors.trace.numbers import NumberForm
from collectors.trace.tables import Columns, failures_named, read_columns
from collectors.trace.times import NO_TIME, times_of
from data.base.errors import SettingsError, UnexpectedAnswerError, scrub
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.cluster_names import named_in
from data.facts.collected import Collected
from data.facts.columns import CONTRADICTIONS, NUMBER, SAMPLES, check_frame, empty_frame
from data.facts.energy_integration import MAX_GAP_SECONDS
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import digest_of
from data.facts.jobs import Job, Platform, WorkloadKind

__all__ = ["Trace", "load_map"]


_NORMALIZERS: Mapping[str, Callable[[str], str]] = {
    "gpu_uuid": board_uuid,
    "job_id": partial(named_in, cluster=""),
    "node": partial(named_in, cluster=""),
}
"""Functions that bring the names of a column into one spelling."""
_USUAL_BOUNDS = {
    "memory_used_mib": (300.0, 1e6),
    "memory_total_mib": (2_000.0, 1e6),
    "power_watts": (3.0, 3_000.0),
    "power_limit_watts": (30.0, 3_000.0),
    "energy_joules": (3.0, 3_000.0),
}
"""Bounds of most values above 0 in our units; of counters, of their growth in W."""
_RATIO_BOUNDS = {"ratio": (0.0, 1.005), "percent": (1.005, 100.5)}
"""Of utilization, in the unit itself: what is at most 1 is a ratio."""
_FEW, _MOST = 0.05, 0.5
_MIN_SHARE = 0.9


@dataclass(slots=True)
class UnitTally:
    """The number of usual values above 0 of a column in each unit that it could have."""

    target: str
    mapped: MappedColumn
    positive: int = 0
    usual: dict[str, int] = field(default_factory=dict)

    def add(self, raw: Floats) -> None:
        """Count values as the file has them."""
        values = raw[np.isfinite(raw) & (raw > 0)]
        self.positive += len(values)
        for unit, factor in FACTORS[self.target].items():
            low, high = _RATIO_BOUNDS.get(unit) or _USUAL_BOUNDS[self.target]
            scaled = values if unit in _RATIO_BOUNDS else values * factor
            inside = (scaled > low) & (scaled <= high)
            self.usual[unit] = self.usual.get(unit, 0) + int(inside.sum())

    def require_fit(self) -> None:
        """Refuse a unit that hardly any value fits, where another fits. Errors: SettingsError."""
        stated = self.mapped.unit
        if self.mapped.confirmed or not self.positive or not self._doubtful(stated):
            return
        least = _FEW if stated == "ratio" else _MOST
        others = {unit: n for unit, n in self.usual.items() if unit != stated}
        best = max(others, key=lambda unit: others[unit])
        if others[best] < least * self.positive:
            return
        low, high = _RATIO_BOUNDS.get(best, (0.0, 0.0))
        share = others[best] / self.positive
        text = f"lie in {low:.0f}..{high:.0f}" if high else f"are usual ones in {best}"
        raise SettingsError(
            f"the column {self.mapped.column!r} ({self.target}): {100 * share:.1f} % of its values "
            f"above 0 {text}, and the map says {stated}",
            f'Write unit = "{best}", or, where {stated} is right, confirmed = true under '
            f"[columns.{self.target}].",
        )

    def _doubtful(self, stated: str) -> bool:
        needed = _MIN_SHARE if stated == "ratio" else _FEW
        return self.usual[stated] < needed * self.positive


_READINGS = ["utilization_ratio", "power_watts", "memory_used_mib"]


@dataclass(slots=True)
class BoardTally:
    """At how many times a name of a board stands beside several indices or sets of readings.

    Then it names more than one board, and all but one would be lost without a word.
    """

    mapping: TraceMap
    moments: int = 0
    several: int = 0
    example: str = ""

    def add(self, frame: pd.DataFrame) -> None:
        """Count the times of a piece."""
        by = frame.groupby(["gpu_uuid", "node", "mig_instance", "sampled_at"], sort=False)
        if "gpu_index" in self.mapping.columns:
            several = by["gpu_index"].min() != by["gpu_index"].max()
        elif "gpu_uuid" in self.mapping.constants:
            several = (by[_READINGS].max() > by[_READINGS].min()).any(axis=1)
        else:
            return
        self.moments += len(several)
        self.several += int(several.sum())
        if several.any() and not self.example:
            self.example = str(several[several].index[0][0])

    def require_one(self) -> None:
        """Refuse names that stand for several boards. Errors: SettingsError."""
        if not self.several or self.several < _FEW * self.moments:
            return
        mapped = self.mapping.columns.get("gpu_uuid")
        what = f"the column {mapped.column!r}" if mapped else "the constant"
        counterpart = "gpu_index" if "gpu_index" in self.mapping.columns else "readings"
        raise SettingsError(
            f"{what} (gpu_uuid) names one board, {scrub(self.example, limit=60)!r}, where "
            f"{counterpart} differ at the same time, {self.several} of {self.moments} times",
            "Map gpu_uuid to the column that tells boards apart; or leave it out and map "
            "gpu_index: boards are then told apart by node and index.",
        )


@dataclass(slots=True)
class _SeenJob:
    """A job by the pieces read so far; the newest sample tells its board."""

    first_at: Any
    last_at: Any
    gpu_model: str
    mig_profile: str
    memory_mib: float


class Trace:
    """One trace, read once. The counts are complete after the last piece.

    `rows` are those of the file. `dropped` counts rows by reason, and readings by `target: reason`:
    their row stays, the value is unknown. `present` counts the readings that there were,
    `without_job` the rows kept that name no job; `absent_jobs` are the words that say so.
    """

    def __init__(self, path: Path, mapping: TraceMap, *, now: datetime) -> None:
        self._path, self._mapping = path, mapping
        self._latest = int((now + MAX_SKEW).timestamp() * 1e6)
        self.rows = 0
        self.without_job = 0
        self.absent_jobs: set[str] = set()
        self.dropped: Counter[str] = Counter()
        self.present: Counter[str] = Counter()
        self._tallies = {
            target: UnitTally(target, mapped)
            for target, mapped in mapping.columns.items()
            if SAMPLES.columns[target][0] == NUMBER
        }
        self._jobs: dict[str, _SeenJob] = {}
        self._devices: Counter[str] = Counter()
        self._placements: set[tuple[str, str, str]] = set()
        self._counters: dict[str, tuple[float, float, float, float]] = {}
        self._number = 0
        self._zone_used = False
        self._far_apart = self._steps = 0
        self._nodes = NodeRuns()
        self._boards = BoardTally(mapping)
        self._span: list[Any] = []
        self._contradictions: list[pd.DataFrame] = []

    @property
    def dropped_rows(self) -> Counter[str]:
        """The rows dropped, by reason."""
        return Counter({name: n for name, n in self.dropped.items() if n and ": " not in name})

    @property
    def refused_readings(self) -> Counter[str]:
        """The readings refused, by `target: reason`."""
        return Counter({name: n for name, n in self.dropped.items() if n and ": " in name})

    def mostly_refused(self) -> list[str]:
        """Return the targets of which more than half of the readings were refused."""
        refused: Counter[str] = Counter()
        for name, count in self.refused_readings.items():
            refused[name.partition(":")[0]] += count
        return sorted(name for name, n in refused.items() if 2 * n > self.present[name])

    @property
    def mostly_apart(self) -> bool:
        """Return whether most readings of a device are too far apart to know the time between."""
        return 2 * self._far_apart > self._steps

    def without_values(self) -> list[str]:
        """Return the targets that the map names and of which no kept row has a value."""
        return sorted(target for target in self._mapping.columns if not self.present[target])

    def pieces(self) -> Iterator[Collected]:
        """Yield the samples piece by piece, the jobs with the last. Errors: TrimtabError."""
        mapping = self._mapping
        targets = {*mapping.columns, *mapping.constants, "sampled_at"}
        targets |= {"gpu_uuid"} if mapping.tells_boards_by_index else set()
        for required in SAMPLES.required - targets:
            raise SettingsError(
                f"{mapping.path} gives no {required}",
                f"Add [columns.{required}] or a constant {required} = ...",
            )
        names = dict.fromkeys((mapping.time.column, *(c.column for c in mapping.columns.values())))
        waiting: pd.DataFrame | None = None
        for columns in read_columns(
            self._path, [*names], form=mapping.form, where=mapping.path, dropped=self.dropped
        ):
            with failures_named(self._path):
                frame = self._samples(columns)
            if frame.empty:
                continue
            if waiting is not None:
                yield self._collected(waiting, ())
            waiting = frame
        self.rows += self.dropped["wrong-columns"]
        self._require_fit()
        if waiting is None:
            counts = ", ".join(f"{n} {name}" for name, n in sorted(self.dropped_rows.items()))
            raise UnexpectedAnswerError(
                f"{self._path}: of {self.rows} rows none could be kept ({counts or 'no row'})",
                "Check [time] and the columns of the map.",
            )
        yield self._collected(waiting, self._known_jobs(), self._nodes.two_nodes().warnings())

    def _require_fit(self) -> None:
        rates = [
            (after - before) / (last - first)
            for first, before, last, after in self._counters.values()
            if last > first
        ]
        if "energy_joules" in self._tallies:
            self._tallies["energy_joules"].add(np.array(rates))
        for tally in self._tallies.values():
            tally.require_fit()
        self._boards.require_one()

    def _samples(self, columns: Columns) -> pd.DataFrame:
        mapping = self._mapping
        times, local = times_of(columns[mapping.time.column], mapping.time, self.dropped)
        self._zone_used |= local
        self.rows += len(times)
        future = times > self._latest
        self.dropped["in-the-future"] += int(future.sum())
        valid = (times != NO_TIME) & ~future
        data: dict[str, Any] = {
            target: self._column(columns, target, mapped, valid)
            for target, mapped in mapping.columns.items()
        }
        data |= {
            target: value
            for target, value in mapping.constants.items()
            if target in SAMPLES.columns
        }
        data["sampled_at"] = pd.to_datetime(times, unit="us", utc=True)
        frame = pd.DataFrame(data, index=pd.RangeIndex(len(times)))
        if mapping.tells_boards_by_index:
            has_index = (frame["node"] != "") & (frame["gpu_index"] != "")
            frame["gpu_uuid"] = (frame["node"] + ":" + frame["gpu_index"]).where(has_index, "")
        nameless = valid & (frame["gpu_uuid"] == "").to_numpy()
        self.dropped["no-uuid"] += int(nameless.sum())
        frame = check_frame(frame[valid & ~nameless].reset_index(drop=True), SAMPLES)
        self.without_job += int((frame["job_id"] == "").sum())
        self._note(frame)
        signals = frame["utilization_signal"].replace("", "gpu_util")  # the least that it can be
        counters = {
            name: frame["utilization_ratio"].where(signals == name).to_numpy()
            for name in signals.unique()
            if name in COUNTERS
        }
        frame, contradictions = believed_samples(frame, counters, load_gpu_catalogue())
        self._contradictions.append(contradictions)
        return frame

    def _column(
        self, columns: Columns, target: str, mapped: MappedColumn, valid: npt.NDArray[np.bool_]
    ) -> Any:
        array = columns[mapped.column]
        if target not in self._tallies:
            texts = texts_of(array)
            self.dropped[f"{target}: too-long"] += int((texts.long & valid).sum())
            there = texts.spread(np.array([bool(text) for text in texts.distinct])) | texts.long
            self.present[target] += int((there & valid).sum())
            if target == "job_id":
                self.absent_jobs.update(texts.absent.values())
            written = _NORMALIZERS.get(target, str)
            cells = [mapped.prefix + written(text) if text else "" for text in texts.distinct]
            return pd.Series(pd.array(cells, dtype="str").take(texts.places))
        form = NumberForm(
            column=mapped.column,
            decimal=self._mapping.form.decimal,
            units=FACTORS[target],
            factor=mapped.factor,
        )
        raw, bad = numbers_of(array, form)
        there = valid & ~np.isnan(raw)
        if mapped.zero_is_unknown:
            there &= raw != 0
        self.present[target] += int(there.sum()) + int((bad & valid).sum())
        self.dropped[f"{target}: no-number"] += int((bad & valid).sum())
        reasons: Counter[str] = Counter()
        with np.errstate(over="ignore", invalid="ignore"):
            if target != "energy_joules":
                self._tallies[target].add(raw[there])
            values, good = plausible(field_of(target), mapped.factor, raw[there], reasons)
        for reason, count in reasons.items():
            self.dropped[f"{target}: {reason}"] += count
        result = np.full(len(raw), np.nan)
        result[np.flatnonzero(there)[good]] = values[good]
        return result

    def _note(self, frame: pd.DataFrame) -> None:
        """Remember the jobs and counters of a piece."""
        if frame.empty:
            return
        self._span += [frame["sampled_at"].min(), frame["sampled_at"].max()]
        self._boards.add(frame)
        self._nodes.note(frame)
        ordered = frame.sort_values("sampled_at", kind="stable")
        steps = ordered.groupby(["gpu_uuid", "mig_instance"])["sampled_at"].diff().dropna()
        self._far_apart += int((steps.dt.total_seconds() > MAX_GAP_SECONDS).sum())
        self._steps += len(steps)
        rows = ordered[ordered["job_id"] != ""]
        first = rows.drop_duplicates("job_id").set_index("job_id")["sampled_at"]
        newest = rows.drop_duplicates("job_id", keep="last")
        names = ("job_id", "sampled_at", "gpu_model", "mig_profile", "memory_total_mib")
        for job_id, last_at, *board in zip(*(newest[name] for name in names), strict=True):
            before = self._jobs.get(job_id)
            entry = _SeenJob(first[job_id], last_at, *board)
            if before is not None:
                entry.first_at = min(entry.first_at, before.first_at)
                if before.last_at > entry.last_at:
                    before.first_at, entry = entry.first_at, before
            self._jobs[job_id] = entry
        devices = rows[["job_id", "gpu_uuid", "mig_instance"]].drop_duplicates()
        fresh = set(devices.itertuples(index=False, name=None)) - self._placements
        self._devices.update(job_id for job_id, _uuid, _instance in fresh)
        self._placements |= fresh
        if "energy_joules" in self._tallies:
            self._note_counters(ordered[ordered["energy_joules"].notna()])

    def _note_counters(self, ordered: pd.DataFrame) -> None:
        factor = self._mapping.columns["energy_joules"].factor
        for uuid, rows in ordered.groupby("gpu_uuid"):
            at = rows["sampled_at"].astype("int64").to_numpy() / 1e6
            raw = rows["energy_joules"].to_numpy() / factor
            ends = [(at[0], raw[0]), (at[-1], raw[-1])]
            counter = self._counters.get(str(uuid))
            ends += [counter[:2], counter[2:]] if counter else []
            self._counters[str(uuid)] = (*min(ends), *max(ends))

    def _known_jobs(self) -> tuple[Job, ...]:
        mapping, constants = self._mapping, self._mapping.constants
        platform = Platform(_choice(mapping, "platform", Platform))
        kind = WorkloadKind(_choice(mapping, "kind", WorkloadKind))
        unused = () if self._zone_used else ("timezone",)
        assumed = tuple(pair for pair in mapping.assumed if pair[0] not in unused)
        jobs = []
        for name, entry in sorted(self._jobs.items()):
            namespace, slash, short = name.partition("/")
            inside = namespace if slash else mapping.source
            jobs.append(
                Job(
                    job_id=name,
                    name=short if slash else name,
                    namespace=str(constants.get("namespace", inside)),
                    owner=str(constants.get("owner", "")),
                    platform=platform,
                    kind=kind,
                    gpu_model=entry.gpu_model,
                    gpu_count=self._devices[name],
                    mig_profile=entry.mig_profile,
                    gpu_memory_mib=None if pd.isna(entry.memory_mib) else entry.memory_mib,
                    first_seen_at=entry.first_at.to_pydatetime(),
                    last_seen_at=entry.last_at.to_pydatetime(),
                    source=mapping.source,
                    assumed=assumed,
                )
            )
        return tuple(jobs)

    def _collected(
        self, samples: pd.DataFrame, jobs: tuple[Job, ...], warnings: tuple[str, ...] = ()
    ) -> Collected:
        """Return a piece; its report tells what was read and dropped up to its end."""
        mapping, self._number = self._mapping, self._number + 1
        contradictions, self._contradictions = self._contradictions, []
        content = pd.util.hash_pandas_object(samples, index=False).sum()
        identity = [mapping.source, self._path.name, str(content), list(mapping.assumed)]
        return Collected(
            batch_id=digest_of([*identity, self._number]),
            samples=samples,
            contradictions=pd.concat([empty_frame(CONTRADICTIONS), *contradictions]),
            jobs=jobs,
            report=SourceReport(
                source=mapping.source,
                state=SourceState.RAN,
                samples=self.rows - sum(self.dropped_rows.values()),
                dropped=tuple(sorted((name, n) for name, n in self.dropped.items() if n)),
                warnings=warnings,
                window_start=min(self._span).to_pydatetime(),
                window_end=max(self._span).to_pydatetime(),
                recorded=True,
            ),
        )


def _choice(mapping: TraceMap, name: str, kind: type[Platform] | type[WorkloadKind]) -> str:
    value = str(mapping.constants.get(name, "unknown"))
    if value not in list(kind):
        raise SettingsError(
            f"{mapping.path}: constant {name} is {value!r}", nearest(value, list(kind))
        )
    return value
