"""Small services of Kubernetes beside the simulated fleet, and a node that offers shares.

Each has a whole board and would do with a part of one. The board of the other node is shared by
time slicing: who takes a share leaves its own board free. Requests take longer beside others that
work, those of one service much longer. Readings of a board are there once for each of its holders.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pandas as pd

from collectors.simulated.layout import POWER_WATTS, Tenant
from collectors.simulated.signals import (
    Times,
    Values,
    board_power,
    hashed_uniform,
    memory_ratio,
    utilization,
    with_noise,
)
from data.base.units import SLOT_SECONDS
from data.boards.board_shares import SHARED_BOARDS, SHARING
from data.facts.columns import ALLOCATIONS, SAMPLES, SERVING, check_frame
from data.facts.fleet import Node
from data.facts.gpu_resources import REPLICAS_LABEL, SHARING_LABEL
from data.facts.identifiers import digest_of
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.records.plans import Configuration

_SOURCE, _TEAM = "kubernetes simulated", "search"
_MODEL, _MEMORY_MIB, _EMPTY_MIB = "L40S-48GB", 46_068.0, 184.0
_SHARES = 4
_BEGAN, _FAR = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()), 10**11
_FIRST_NUMBER = 900_000
_BUSIEST_HOUR = 16
"""Of a service without an offset (signals)."""
_TOKENS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareChange:
    """A change of what a service has from `since` on, s since the epoch.

    `boards` is its share of a board, None of a board of its own.
    """

    job_id: str
    since: int
    boards: float | None


@dataclass(frozen=True, slots=True)
class _Service:
    """A service of one pod: `busiest` is its utilization at the hour (UTC), `memory` a ratio.

    A request alone takes `seconds`, 0 where no engine tells, and `slowed` times as long again
    beside others that work all the time.
    """

    number: int
    name: str
    kind: WorkloadKind
    hour: int
    busiest: float
    memory: float
    seconds: float
    slowed: float

    @property
    def job_id(self) -> str:
        """The id of its Deployment."""
        return f"{_TEAM}/deployment/{self.name}"

    @property
    def tenant(self) -> Tenant:
        """The service as readings are made of it."""
        return Tenant(
            number=_FIRST_NUMBER + self.number,
            name=self.name,
            team=_TEAM,
            platform=Platform.KUBERNETES,
            kind=self.kind,
            devices=(),
            level=self.busiest,
            memory_ratio=self.memory,
            offset_seconds=(_BUSIEST_HOUR - self.hour) * 3600,
        )

    def work(self, times: Times) -> Values:
        """Return how busy it keeps a board at each time, 0..1."""
        return with_noise(utilization(self.tenant, times), self.tenant.number * 4, times)

    def pod(self, number: int) -> str:
        """Return the name of a pod as readings have it; each change makes another."""
        return f"{_TEAM}/{self.name}-{number}"


_SERVICES = (
    _Service(0, "reranker", WorkloadKind.INFERENCE, 16, 0.13, 0.12, 0.4, 0.2),
    _Service(1, "classifier", WorkloadKind.INFERENCE, 8, 0.10, 0.10, 0.3, 0.2),
    _Service(2, "transcriber", WorkloadKind.INFERENCE, 16, 0.11, 0.17, 2.0, 2.0),
    _Service(3, "scratch", WorkloadKind.UNKNOWN, 0, 0.08, 0.15, 0.0, 0.2),
)
"""Beside the others the transcriber comes to about the lowest speed of measured pairs, the others
to the likely one (`SPEEDS` of planner/sharing/advice.py)."""


@dataclass(frozen=True, slots=True)
class _SmallBoard:
    node: str
    index: int

    @property
    def uuid(self) -> str:
        text = digest_of(["small services", self.node, self.index])
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


_SHARED = _SmallBoard("l40s-shared", 0)
BOARDS = (*(_SmallBoard("l40s-small", service.number) for service in _SERVICES), _SHARED)
"""The board of each service, and the one whose shares they can take."""


@dataclass(frozen=True, slots=True)
class _Stay:
    """The time [since, until) of a pod, by number, with its share of a board or None."""

    service: _Service
    number: int
    since: int
    until: int
    boards: float | None

    @property
    def board(self) -> _SmallBoard:
        """The board that it is on."""
        return BOARDS[self.service.number] if self.boards is None else _SHARED

    def during(self, times: Times) -> Values:
        """Return 1 at the times within it, 0 at others."""
        return np.asarray(1.0 * ((times >= self.since) & (times < self.until)))


@dataclass(frozen=True, slots=True)
class SmallServices:
    """The services with the changes that were made to them, in their order."""

    changes: tuple[ShareChange, ...] = ()

    def placed(self, job_id: str, at: int) -> tuple[Configuration, str] | None:
        """Return what a service has at a time and on which node, None of any other job."""
        for stay in self._stays_at(at):
            if stay.service.job_id == job_id:
                has = Configuration(gpu_model=_MODEL, gpu_count=1, boards=stay.boards)
                return has, stay.board.node
        return None

    def samples(self, times: Times) -> pd.DataFrame:
        """Return the samples (columns SAMPLES) of all boards at these times, s since the epoch."""
        frames = []
        for board in BOARDS:
            stays = [stay for stay in self._stays() if stay.board == board]
            busy = np.clip(self._busy(board, times), 0.0, 1.0)
            memory = sum(
                stay.during(times) * memory_ratio(stay.service.tenant, times) * _MEMORY_MIB
                for stay in stays
            )
            readings = {
                "sampled_at": _stamps(times),
                "gpu_uuid": board.uuid,
                "node": board.node,
                "gpu_index": str(board.index),
                "gpu_model": _MODEL,
                "utilization_ratio": busy,
                "utilization_signal": "sm_active",
                "memory_used_mib": np.round(_EMPTY_MIB + memory),
                "memory_total_mib": _MEMORY_MIB,
                "power_watts": board_power(busy, *POWER_WATTS[_MODEL]),
                "power_limit_watts": POWER_WATTS[_MODEL][1],
            }
            frame, is_free = pd.DataFrame(readings), np.ones(len(times), dtype=bool)
            for stay in stays:
                there = stay.during(times) > 0
                is_free &= ~there
                frames.append(frame[there].assign(job_id=stay.service.job_id))
            frames.append(frame[is_free].assign(job_id=""))
        return check_frame(pd.concat(frames, ignore_index=True), SAMPLES)

    def nodes(self, at: datetime) -> tuple[Node, ...]:
        """Return both nodes as their scheduler describes them."""
        labels = (f"{SHARING_LABEL}=time-slicing", f"{REPLICAS_LABEL}={_SHARES}")
        features = {BOARDS[0].node: (), _SHARED.node: labels}
        return tuple(
            Node(
                name=name,
                gpu_model=_MODEL,
                gpu_count=sum(board.node == name for board in BOARDS),
                features=offers,
                state="ready",
                seen_at=at,
                source=_SOURCE,
            )
            for name, offers in features.items()
        )

    def jobs(self, start: datetime, end: datetime) -> tuple[Job, ...]:
        """Return the services as their scheduler describes them at the end of (start, end]."""
        place = f"{_SHARED.node}:{_SHARED.uuid}"
        common = (("gpus_per_pod", "1"), ("gpu_containers", "1"), ("wanted_gpus", "1"))
        shares = ((SHARING, "time slicing"), (SHARED_BOARDS, place))
        return tuple(
            Job(
                job_id=stay.service.job_id,
                name=stay.service.name,
                namespace=_TEAM,
                owner=_TEAM,
                platform=Platform.KUBERNETES,
                kind=stay.service.kind,
                gpu_model=_MODEL,
                gpu_count=1,
                mig_profile="",
                gpu_memory_mib=_MEMORY_MIB,
                first_seen_at=start,
                last_seen_at=end,
                source=_SOURCE,
                scheduler=SchedulerFacts(
                    state=JobState.RUNNING,
                    workload=f"deployment/{stay.service.name}",
                    nodes=(stay.board.node,),
                    extra=(*common, *(() if stay.boards is None else shares)),
                ),
            )
            for stay in self._stays_at(int(end.timestamp()))
        )

    def allocations(self, end: datetime) -> pd.DataFrame:
        """Return what each pod of the services has held until `end` (columns ALLOCATIONS)."""
        last = int(end.timestamp())
        stays = [stay for stay in self._stays() if stay.since < last]
        frame = pd.DataFrame(
            {
                "job_id": [stay.service.job_id for stay in stays],
                "label_id": [stay.service.pod(stay.number) for stay in stays],
                "node": [stay.board.node for stay in stays],
                "gpu_uuid": [stay.board.uuid for stay in stays],
                "gpu_count": [1.0 if stay.boards is None else 1 / _SHARES for stay in stays],
                "started_at": _stamps([stay.since for stay in stays]),
                "ended_at": _stamps([s.until if s.until <= last else np.nan for s in stays]),
                "seen_at": _stamps([min(stay.until, last) for stay in stays]),
                "source": _SOURCE,
            }
        )
        return check_frame(frame, ALLOCATIONS)

    def serving(self, start: datetime, end: datetime) -> pd.DataFrame:
        """Return the traffic of the engines (columns SERVING) in the slots within (start, end]."""
        first, last = (int(at.timestamp()) // SLOT_SECONDS * SLOT_SECONDS for at in (start, end))
        times = np.arange(first, last, SLOT_SECONDS, dtype=np.int64)
        stays = (stay for stay in self._stays() if stay.service.seconds)
        parts = [self._traffic(stay, times[stay.during(times) > 0]) for stay in stays]
        return check_frame(pd.concat(parts, ignore_index=True), SERVING)

    def _traffic(self, stay: _Stay, times: Times) -> pd.DataFrame:
        """Return the rows of one pod. As many requests come as keep it busy when it is alone."""
        service, work = stay.service, stay.service.work(times)
        ended = np.round(SLOT_SECONDS * work / service.seconds)
        others = self._busy(stay.board, times) - work
        noise = 0.98 + 0.04 * hashed_uniform(service.tenant.number, times)
        seconds = ended * service.seconds * noise * (1 + service.slowed * others)
        return pd.DataFrame(
            {
                "slot_start": _stamps(times),
                "label_id": service.pod(stay.number),
                "engine": "vllm",
                "model": service.name,
                "running_requests": seconds / SLOT_SECONDS,
                "finished_requests": ended,
                "generation_tokens": ended * _TOKENS,
                "request_seconds": seconds,
                "request_count": ended,
            }
        )

    def _busy(self, board: _SmallBoard, times: Times) -> Values:
        """Return the work of all services on a board at each time."""
        works = [s.during(times) * s.service.work(times) for s in self._stays() if s.board == board]
        return np.asarray(sum(works, np.zeros(len(times))))

    def _stays_at(self, at: int) -> list[_Stay]:
        """Return where each service is at a time."""
        return [stay for stay in self._stays() if stay.since <= at < stay.until]

    def _stays(self) -> Iterator[_Stay]:
        """Yield the pods of each service, one after the other."""
        for service in _SERVICES:
            mine = [change for change in self.changes if change.job_id == service.job_id]
            starts = [(_BEGAN, None), *((change.since, change.boards) for change in mine)]
            for number, ((since, boards), (until, _next)) in enumerate(
                pairwise([*starts, (_FAR, None)])
            ):
                yield _Stay(service, number, since, until, boards)


def _stamps(times: "Times | list[int] | list[float]") -> pd.DatetimeIndex:
    return pd.to_datetime(np.asarray(times, dtype=np.float64), unit="s", utc=True).as_unit("us")
