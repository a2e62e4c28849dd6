"""Small services of Kubernetes beside the simulated fleet, and a node that offers shares.

Each has a whole board and would do with a part of one. The boards of the other node are shared by
time slicing: who takes a share leaves its own board free. Requests take longer beside others that
work, those of one service much longer. The exporter names no pod; the scheduler says who is where.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pandas as pd

from collectors.simulated.layout import POWER_WATTS, SimulatedDevice, Tenant
from collectors.simulated.signals import (
    Times,
    Values,
    board_power,
    hashed_uniform,
    memory_ratio,
    noisy,
    utilization,
)
from data.base.units import SLOT_SECONDS
from data.boards.board_shares import SHARED_BOARDS, SHARING
from data.facts.columns import ALLOCATIONS, SAMPLES, SERVING, check_frame
from data.facts.fleet import Node
from data.facts.gpu_resources import REPLICAS_LABEL, SHARING_LABEL
from data.facts.identifiers import digest_of
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.records.plans import Configuration

_SOURCE = "kubernetes simulated"
_TEAM, _MODEL, _MEMORY_MIB = "search", "L40S-48GB", 46_068.0
_OWN_NODE, _SHARED_NODE, _SHARES = "l40s-small", "l40s-shared", 4
_BEGAN = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
_FIRST_NUMBER = 900_000
_EMPTY_MIB = 184.0
_TOKENS = 40
_BUSIEST_HOUR = 16
"""Of a service without an offset (signals)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareChange:
    """A change of what a service has from `since` on, s since the epoch.

    `boards` is its share of a board, None of a board of its own.
    """

    job_id: str
    since: int
    boards: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """A service of one pod; a request alone takes `seconds`, 0 where no engine tells.

    Beside others that work all the time it takes `slowed` times as long again.
    """

    tenant: Tenant
    seconds: float
    slowed: float

    @property
    def job_id(self) -> str:
        """The id of its Deployment."""
        return f"{self.tenant.team}/deployment/{self.tenant.name}"

    def work(self, times: Times) -> Values:
        """Return how busy it keeps a board at each time, 0..1."""
        return noisy(utilization(self.tenant, times), self.tenant.number * 4, times)


def _board(seed: int, node: str, index: int) -> SimulatedDevice:
    text = digest_of(["small services", seed, node, index])
    return SimulatedDevice(
        gpu_uuid=f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}",
        board=index,
        node=node,
        index=index,
        gpu_model=_MODEL,
        memory_total_mib=_MEMORY_MIB,
    )


_SERVICES = (
    ("reranker", WorkloadKind.INFERENCE, 16, 0.13, 0.12, 0.4, 0.2),
    ("classifier", WorkloadKind.INFERENCE, 8, 0.10, 0.10, 0.3, 0.2),
    ("transcriber", WorkloadKind.INFERENCE, 16, 0.11, 0.17, 2.0, 2.0),
    ("scratch", WorkloadKind.UNKNOWN, 0, 0.08, 0.15, 0.0, 0.2),
)
"""Name, kind, busiest hour (UTC) and its utilization, memory used, `seconds` and `slowed` of each.

Beside the other three the transcriber comes to about the lowest speed of measured pairs, the others
to the likely one (`SPEEDS` of planner/sharing/advice.py)."""


@dataclass(frozen=True, slots=True)
class SmallServices:
    """The services with the changes that were made to them, in their order."""

    seed: int
    changes: tuple[ShareChange, ...] = ()

    @property
    def services(self) -> tuple[_Service, ...]:
        """All services; the number of each is that of its own board."""
        return tuple(
            _Service(
                tenant=Tenant(
                    number=_FIRST_NUMBER + number,
                    name=name,
                    team=_TEAM,
                    platform=Platform.KUBERNETES,
                    kind=kind,
                    devices=(_board(self.seed, _OWN_NODE, number),),
                    level=level,
                    memory_ratio=memory,
                    offset_seconds=(_BUSIEST_HOUR - hour) * 3600,
                ),
                seconds=seconds,
                slowed=slowed,
            )
            for number, (name, kind, hour, level, memory, seconds, slowed) in enumerate(_SERVICES)
        )

    @property
    def boards(self) -> tuple[SimulatedDevice, ...]:
        """The board of each service, and the one whose shares they can take."""
        own = (service.tenant.devices[0] for service in self.services)
        return (*own, _board(self.seed, _SHARED_NODE, 0))

    def configuration(self, job_id: str, at: int) -> Configuration | None:
        """Return what a service has at a time, None of any other job."""
        for service in self.services:
            if service.job_id == job_id:
                _number, _since, _until, boards = self._stay(service, at)
                return Configuration(gpu_model=_MODEL, gpu_count=1, boards=boards)
        return None

    def place(self, job_id: str, at: int) -> str:
        """Return the node of a service, as a person would say it."""
        return (
            _SHARED_NODE
            if any(
                service.job_id == job_id and self._shares(service, at) for service in self.services
            )
            else _OWN_NODE
        )

    def samples(self, times: Times) -> pd.DataFrame:
        """Return the samples (columns SAMPLES) of all boards at these times, s since the epoch."""
        stamps = _stamps(times)
        frames = []
        for board in self.boards:
            busy, used = np.zeros(len(times)), np.full(len(times), _EMPTY_MIB)
            for service in self.services:
                there = self._is_on(service, board, times)
                busy += there * service.work(times)
                used += there * memory_ratio(service.tenant, times) * _MEMORY_MIB
            busy = np.clip(busy, 0.0, 1.0)
            frames.append(
                pd.DataFrame(
                    {
                        "sampled_at": stamps,
                        "gpu_uuid": board.gpu_uuid,
                        "node": board.node,
                        "gpu_index": str(board.index),
                        "gpu_model": _MODEL,
                        "utilization_ratio": busy,
                        "utilization_signal": "sm_active",
                        "memory_used_mib": np.round(used),
                        "memory_total_mib": _MEMORY_MIB,
                        "power_watts": board_power(busy, *POWER_WATTS[_MODEL]),
                        "power_limit_watts": POWER_WATTS[_MODEL][1],
                    }
                )
            )
        return check_frame(pd.concat(frames, ignore_index=True), SAMPLES)

    def nodes(self, at: datetime) -> tuple[Node, ...]:
        """Return both nodes as their scheduler describes them."""
        labels = (f"{SHARING_LABEL}=time-slicing", f"{REPLICAS_LABEL}={_SHARES}")
        return tuple(
            Node(
                name=name,
                gpu_model=_MODEL,
                gpu_count=count,
                features=features,
                state="ready",
                seen_at=at,
                source=_SOURCE,
            )
            for name, count, features in (
                (_OWN_NODE, len(_SERVICES), ()),
                (_SHARED_NODE, 1, labels),
            )
        )

    def jobs(self, start: datetime, end: datetime) -> tuple[Job, ...]:
        """Return the services as their scheduler describes them at the end of (start, end]."""
        at, shared = int(end.timestamp()), self.boards[-1]
        jobs = []
        for service in self.services:
            tenant, shares = service.tenant, self._shares(service, at)
            facts = [("gpus_per_pod", "1"), ("gpu_containers", "1"), ("wanted_gpus", "1")]
            if shares:
                place = f"{_SHARED_NODE}:{shared.gpu_uuid}"
                facts += [(SHARING, "time slicing"), (SHARED_BOARDS, place)]
            jobs.append(
                Job(
                    job_id=service.job_id,
                    name=tenant.name,
                    namespace=_TEAM,
                    owner=_TEAM,
                    platform=Platform.KUBERNETES,
                    kind=tenant.kind,
                    gpu_model=_MODEL,
                    gpu_count=1,
                    mig_profile="",
                    gpu_memory_mib=_MEMORY_MIB,
                    first_seen_at=start,
                    last_seen_at=end,
                    source=_SOURCE,
                    scheduler=SchedulerFacts(
                        state=JobState.RUNNING,
                        workload=f"deployment/{tenant.name}",
                        nodes=(_SHARED_NODE if shares else _OWN_NODE,),
                        started_at=datetime.fromtimestamp(_BEGAN, tz=UTC),
                        extra=tuple(facts),
                    ),
                )
            )
        return tuple(jobs)

    def allocations(self, end: datetime) -> pd.DataFrame:
        """Return what each pod of the services has held until `end` (columns ALLOCATIONS)."""
        last = int(end.timestamp())
        rows = [
            {
                "job_id": service.job_id,
                "label_id": _pod(service, number),
                "node": board.node,
                "gpu_index": str(board.index),
                "gpu_uuid": board.gpu_uuid,
                "gpu_count": 1.0 if boards is None else 1 / _SHARES,
                "started_at": datetime.fromtimestamp(since, tz=UTC),
                "ended_at": datetime.fromtimestamp(until, tz=UTC) if until <= last else None,
                "seen_at": datetime.fromtimestamp(min(until, last), tz=UTC),
                "source": _SOURCE,
            }
            for service in self.services
            for number, since, until, boards in self._stays(service)
            if since < last
            for board in (service.tenant.devices[0] if boards is None else self.boards[-1],)
        ]
        frame = pd.DataFrame(rows)
        for name in ("started_at", "ended_at", "seen_at"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        return check_frame(frame, ALLOCATIONS)

    def serving(self, start: datetime, end: datetime) -> pd.DataFrame:
        """Return the traffic of the engines (columns SERVING) in the slots within (start, end]."""
        first = int(start.timestamp()) // SLOT_SECONDS * SLOT_SECONDS
        last = int(end.timestamp()) // SLOT_SECONDS * SLOT_SECONDS
        times = np.arange(first, last, SLOT_SECONDS, dtype=np.int64)
        parts = [
            self._traffic(service, number, times[(times >= since) & (times < until)])
            for service in self.services
            if service.seconds
            for number, since, until, _boards in self._stays(service)
        ]
        return check_frame(pd.concat(parts, ignore_index=True), SERVING)

    def _traffic(self, service: _Service, number: int, times: Times) -> pd.DataFrame:
        """Return the rows of one pod. As many requests come as keep it busy when it is alone."""
        work = service.work(times)
        ended = np.round(SLOT_SECONDS * work / service.seconds)
        noise = 0.98 + 0.04 * hashed_uniform(service.tenant.number, times)
        seconds = service.seconds * noise * (1 + service.slowed * self._beside(service, times))
        return pd.DataFrame(
            {
                "slot_start": _stamps(times),
                "label_id": _pod(service, number),
                "engine": "vllm",
                "model": service.tenant.name,
                "running_requests": ended * seconds / SLOT_SECONDS,
                "waiting_requests": 0.0,
                "finished_requests": ended,
                "generation_tokens": ended * _TOKENS,
                "request_seconds": ended * seconds,
                "request_count": ended,
            }
        )

    def _beside(self, service: _Service, times: Times) -> Values:
        """Return how busy the others keep the board of a service at each time."""
        shared = self.boards[-1]
        others = np.zeros(len(times))
        for other in self.services:
            if other.job_id != service.job_id:
                others += self._is_on(other, shared, times) * other.work(times)
        return others * self._is_on(service, shared, times)

    def _is_on(self, service: _Service, board: SimulatedDevice, times: Times) -> Values:
        """Return 1 at the times at which a service has the board or a share of it, 0 at others."""
        there = np.zeros(len(times))
        for _number, since, until, boards in self._stays(service):
            device = service.tenant.devices[0] if boards is None else self.boards[-1]
            there += (device.key == board.key) * ((times >= since) & (times < until))
        return there

    def _shares(self, service: _Service, at: int) -> bool:
        return self._stay(service, at)[3] is not None

    def _stay(self, service: _Service, at: int) -> tuple[int, int, int, float | None]:
        return next(stay for stay in self._stays(service) if stay[1] <= at < stay[2])

    def _stays(self, service: _Service) -> Iterator[tuple[int, int, int, float | None]]:
        """Yield number, begin, end and share of each pod of a service, one after the other."""
        mine = [change for change in self.changes if change.job_id == service.job_id]
        starts = [(_BEGAN, None), *((change.since, change.boards) for change in mine)]
        for number, ((since, boards), (until, _next)) in enumerate(
            pairwise([*starts, (10**11, None)])
        ):
            yield number, since, until, boards


def _pod(service: _Service, number: int) -> str:
    """Return the name of a pod as an engine's readings have it; each change makes another."""
    return f"{service.tenant.team}/{service.tenant.name}-{number}"


def _stamps(times: Times) -> pd.DatetimeIndex:
    return pd.to_datetime(times, unit="s", utc=True).as_unit("us")
