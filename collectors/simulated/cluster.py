"""The simulated cluster: a file with every change that was made to the simulated fleet.

The fleet obeys it: a job that was given fewer boards uses fewer in the samples that follow. Like a
scheduler it knows which jobs run, finds room for what is asked, and refuses what there is none for.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collectors.shared.collector import Source
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from collectors.simulated.holdings import Holding, SubmittedJob
from collectors.simulated.layout import SimulatedDevice, Tenant, slices_of
from collectors.simulated.small_services import ShareChange, SmallServices
from data.base.errors import ChangeRefusedError, StalePlanError, UnexpectedAnswerError
from data.records.plans import Configuration
from data.settings.all_settings import Settings
from data.settings.sources import SimulatedFleetSettings

_PRIVATE = partial(os.open, mode=0o600)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """A job of the simulated cluster as it is now; `places` names its boards for people."""

    identity: str
    configuration: Configuration
    places: tuple[str, ...]
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeBoards:
    """The whole boards of a node, and the keys of those that no job has or comes back to."""

    node: str
    gpu_model: str
    boards: int
    free: tuple[str, ...]


class Phase(StrEnum):
    """The phase of a submitted job."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The content of the file: changes of jobs in their order, the jobs submitted, the shares."""

    changes: tuple[Holding, ...] = ()
    orders: tuple[SubmittedJob, ...] = ()
    shares: tuple[ShareChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """The file and the fleet that it belongs to. Every access holds the file's lock."""

    path: Path
    seed: int
    nodes: int
    small_services: bool = False

    def fleet(self) -> SimulatedFleet:
        """Return the fleet with all changes made so far. Errors: UnexpectedAnswerError."""
        with self._locked() as state:
            return self._with(state)

    def job(self, job_id: str, at: datetime) -> SimulatedJob | None:
        """Return a job that runs or was ended before its time, None when there is none.

        Errors: UnexpectedAnswerError.
        """
        fleet, now = self.fleet(), _next_second(at)
        identity = f"simulated fleet of {self.nodes} nodes, seed {self.seed}: {job_id}"
        if fleet.small and (small := fleet.small.placed(job_id, now)):
            changes = sum(change.job_id == job_id for change in fleet.small.changes)
            return SimulatedJob(
                identity=identity, configuration=small[0], places=small[1:], changes=changes
            )
        tenant = _tenant_of(fleet, job_id, now)
        if tenant is None:
            return None
        holding = fleet.settlement.holding_at(tenant, now)
        return SimulatedJob(
            identity=identity,
            configuration=_configuration(fleet, tenant, holding),
            places=tuple(_place(fleet.settlement.device(key)) for key in holding.places),
            changes=sum(change.tenant == tenant.number for change in fleet.changes),
        )

    def room_for(self, job_id: str, target: Configuration, at: datetime) -> str:
        """Return the reason why the job could not have the target, '' when it could."""
        fleet, now = self.fleet(), _next_second(at)
        if fleet.small and (small := fleet.small.placed(job_id, now)):
            return _no_share(small[0], target)
        tenant = _tenant_of(fleet, job_id, now)
        if tenant is None:
            return f"{job_id} does not run"
        try:
            _places_for(fleet, tenant, target, now)
        except ChangeRefusedError as refusal:
            return str(refusal)
        return ""

    def change(
        self,
        job_id: str,
        *,
        before: Configuration,
        after: Configuration,
        clock: Callable[[], datetime],
    ) -> None:
        """Set a job from `before` to `after` from the next second on.

        Errors: StalePlanError when it does not run or has something else, ChangeRefusedError
        without room, UnexpectedAnswerError when the file cannot be read.
        """
        with self._locked() as state:
            # Asked under the lock: samples read before did not know of the change.
            now = _next_second(clock())
            fleet = self._with(state)
            small = fleet.small and fleet.small.placed(job_id, now)
            tenant = None if small else _tenant_of(fleet, job_id, now)
            if tenant is not None:
                has = _configuration(fleet, tenant, fleet.settlement.holding_at(tenant, now))
            elif small:
                has = small[0]
            else:
                raise StalePlanError(f"{job_id} does not run", "Run a new cycle.")
            if not same_allocation(has, before):
                raise StalePlanError(
                    f"{job_id} has {has.describe()}, not {before.describe()}", "Run a new cycle."
                )
            if tenant is None:
                if why := _no_share(has, after):
                    raise ChangeRefusedError(why, "Nothing else of this service is simulated.")
                share = ShareChange(job_id=job_id, since=now, boards=after.boards)
                self._write(replace(state, shares=(*state.shares, share)))
                return
            change = Holding(
                tenant=tenant.number,
                since=now,
                places=_places_for(fleet, tenant, after, now),
                cap_watts=after.power_cap_watts if after.gpu_count else None,
            )
            until_then = self._until_its_run_ends(state, tenant, change)
            self._write(replace(state, changes=(*state.changes, until_then)))

    def forget(self) -> None:
        """Undo the history too: the fleet is as it was before any change."""
        with self._locked():
            self._write(ClusterState())

    def free_boards(self, at: datetime) -> tuple[FreeBoards, ...]:
        """Return the whole boards of every node that is not cut. Errors: UnexpectedAnswerError."""
        return _free_boards(self.fleet(), _next_second(at))

    def submit(
        self, order: SubmittedJob, *, gpu_model: str, nodes: int, clock: Callable[[], datetime]
    ) -> str:
        """Start a job on boards of `nodes` nodes from the next second on, and give its id.

        `order` names no boards: as many as its `places` are taken, the same number on each node,
        and it lasts as long as its times are apart. A mark that is there already starts nothing.
        Errors: ChangeRefusedError without room, UnexpectedAnswerError.
        """
        with self._locked() as state:
            if job_id := _marked(self._with(state), order.mark):
                return job_id
            now, each = _next_second(clock()), len(order.places) // nodes
            rooms = [
                entry.free[:each]
                for entry in _free_boards(self._with(state), now)
                if entry.gpu_model == gpu_model and len(entry.free) >= each
            ]
            if len(rooms) < nodes:
                raise ChangeRefusedError(
                    f"the simulated cluster has {len(rooms)} of {nodes} nodes with {each} free "
                    f"{gpu_model}, and keeps no queue",
                    "Free boards first: reclaim what stands idle.",
                )
            places = tuple(key for room in rooms[:nodes] for key in room)
            until = now + order.until - order.since
            started = replace(order, places=places, since=now, until=until)
            after = replace(state, orders=(*state.orders, started))
            self._write(after)
            return _marked(self._with(after), order.mark)

    def marked(self, mark: str) -> str:
        """Return the id of the submitted job of that mark, '' when there is none."""
        return _marked(self.fleet(), mark)

    def phase(self, job_id: str, at: datetime) -> Phase | None:
        """Return the phase of a submitted job, None of any other. Errors: UnexpectedAnswerError."""
        fleet, now = self.fleet(), int(at.timestamp())
        for tenant in fleet.tenants:
            if tenant.once and tenant.job_id(0) == job_id:
                if now <= -tenant.offset_seconds:
                    return Phase.WAITING
                runs = fleet.runs(tenant, now - 1, now)
                return Phase.RUNNING if runs else Phase.ENDED
        return None

    def _with(self, state: ClusterState) -> SimulatedFleet:
        return SimulatedFleet(
            seed=self.seed,
            nodes=self.nodes,
            changes=state.changes,
            orders=state.orders,
            small=SmallServices(state.shares) if self.small_services else None,
        )

    def _until_its_run_ends(self, state: ClusterState, tenant: Tenant, change: Holding) -> Holding:
        """Return the change with its end: the next run of a training job is another job."""
        if not tenant.period_seconds:
            return change
        settlement = self._with(replace(state, changes=(*state.changes, change))).settlement
        work_time = settlement.own_time(tenant)
        now = change.since if work_time is None else int(work_time.at(np.array([change.since]))[0])
        period = (now + tenant.offset_seconds) // tenant.period_seconds + 1
        length = tenant.run_seconds if tenant.once else period * tenant.period_seconds
        end = length - tenant.offset_seconds
        until = end if work_time is None else work_time.when(end)
        return Holding(**asdict(change) | {"until": max(until, change.since + 1)})

    @contextmanager
    def _locked(self) -> Iterator[ClusterState]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock_path = self.path.with_name(f"{self.path.name}.lock")
        with open(lock_path, "a", opener=_PRIVATE) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._read()

    def _read(self) -> ClusterState:
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            belongs = (document["seed"], document["nodes"]) == (self.seed, self.nodes)
            state = ClusterState(
                changes=tuple(Holding(**_placed(change)) for change in document["changes"]),
                orders=tuple(
                    SubmittedJob(**_placed(order)) for order in document.get("orders", ())
                ),
                shares=tuple(ShareChange(**share) for share in document.get("shares", ())),
            )
        except FileNotFoundError:
            return ClusterState()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnexpectedAnswerError(
                f"the simulated cluster's file {self.path} cannot be read: {error}",
                "Remove it: the fleet is then as it was before any change.",
            ) from error
        if not belongs:
            raise UnexpectedAnswerError(
                f"{self.path} is of another simulated fleet "
                f"({document['nodes']} nodes, seed {document['seed']})",
                "Remove it, or name another in simulated_fleet.state_file.",
            )
        return state

    def _write(self, state: ClusterState) -> None:
        document = {
            "seed": self.seed,
            "nodes": self.nodes,
            "changes": [asdict(change) for change in state.changes],
            "orders": [asdict(order) for order in state.orders],
            "shares": [asdict(share) for share in state.shares],
        }
        # Written beside and moved, so that a killed writer leaves the old file.
        temporary = self.path.with_name(f"{self.path.name}.new")
        with open(temporary, "w", encoding="utf-8", opener=_PRIVATE) as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def cluster_of(settings: SimulatedFleetSettings) -> SimulatedCluster:
    """Return the cluster of the settings, which name its file."""
    return SimulatedCluster(
        path=Path(settings.state_file),
        seed=settings.seed,
        nodes=settings.nodes,
        small_services=settings.small_services,
    )


def simulated_collector(settings: Settings) -> SimulatedFleetCollector:
    """Return the simulated fleet as a source, which obeys what was changed where it can be."""
    fleet = settings.simulated_fleet
    small = SmallServices() if fleet.small_services else None
    return SimulatedFleetCollector(
        fleet=SimulatedFleet(seed=fleet.seed, nodes=fleet.nodes, small=small),
        step_seconds=settings.prometheus.step_seconds,
        changed=cluster_of(fleet).fleet if fleet.state_file else None,
    )


SOURCE = Source(build=lambda settings, _catalogue: simulated_collector(settings))


def same_allocation(one: Configuration, other: Configuration) -> bool:
    """Return whether two configurations hold the same; nothing is nothing, of whatever model."""
    return one == other or (one.gpu_count == 0 and other.gpu_count == 0)


def _no_share(has: Configuration, target: Configuration) -> str:
    """Return the reason why a small service cannot have the target, '' of a share or a board."""
    if replace(target, boards=has.boards) == has:
        return ""
    return f"the simulated cluster has no {target.describe()} for a service of a board or a share"


def _next_second(at: datetime) -> int:
    """Return the start of a change made at `at`: what was sampled by then stays as it is."""
    return int(at.timestamp()) + 1


def _placed(document: Mapping[str, Any]) -> dict[str, Any]:
    return dict(document) | {"places": tuple(document["places"])}


def _marked(fleet: SimulatedFleet, mark: str) -> str:
    """Return the id of the submitted job of that mark, '' when there is none."""
    first = len(fleet.tenants) - len(fleet.orders)
    marks = [order.mark for order in fleet.orders]
    return fleet.tenants[first + marks.index(mark)].job_id(0) if mark in marks else ""


def _free_boards(fleet: SimulatedFleet, now: int) -> tuple[FreeBoards, ...]:
    occupied, by_node = _occupied(fleet, None, now), dict[str, list[SimulatedDevice]]()
    for device in _on_offer(fleet, now):
        if not device.mig_instance:
            by_node.setdefault(device.node, []).append(device)
    return tuple(
        FreeBoards(
            node=node,
            gpu_model=devices[0].gpu_model,
            boards=len(devices),
            free=tuple(device.key for device in devices if not _clashes(device, occupied)),
        )
        for node, devices in sorted(by_node.items())
    )


def _tenant_of(fleet: SimulatedFleet, job_id: str, now: int) -> Tenant | None:
    for tenant in fleet.tenants:
        runs = fleet.runs(tenant, now - 1, now)
        if any(tenant.job_id(run) == job_id for run, _begins, _ends in runs):
            return tenant
    return None


def _configuration(fleet: SimulatedFleet, tenant: Tenant, holding: Holding) -> Configuration:
    device = fleet.settlement.device(holding.places[0]) if holding.places else tenant.devices[0]
    return Configuration(
        gpu_model=device.gpu_model,
        gpu_count=len(holding.places),
        mig_profile=device.mig_profile if holding.places else "",
        power_cap_watts=holding.cap_watts,
    )


def _place(device: SimulatedDevice) -> str:
    instance = f", instance {device.mig_instance}" if device.mig_instance else ""
    return f"{device.node} board {device.index}{instance}"


def _places_for(
    fleet: SimulatedFleet, tenant: Tenant, target: Configuration, now: int
) -> tuple[str, ...]:
    """Return devices for what is wanted: its own first, then its first ones, then free ones."""
    holding = fleet.settlement.holding_at(tenant, now)
    mine = [fleet.settlement.device(key) for key in holding.places]
    home = {device.node for device in (*mine, *tenant.devices)}
    occupied = _occupied(fleet, tenant, now)
    free = sorted(_on_offer(fleet, now), key=lambda device: device.node not in home)
    # A job that leaves a whole board may have it cut and keep a part.
    cuts = [part for device in mine if not device.mig_instance for part in slices_of(device)]
    fitting = [
        device.key
        for device in (*mine, *tenant.devices, *free, *cuts)
        if (device.gpu_model, device.mig_profile) == (target.gpu_model, target.mig_profile)
        and not _clashes(device, occupied)
    ]
    places = tuple(dict.fromkeys(fitting))[: target.gpu_count]
    if len(places) < target.gpu_count:
        raise ChangeRefusedError(
            f"the simulated cluster has room for {len(places)} of {target.describe()}",
            "Free boards first: reclaim what stands idle.",
        )
    return places


def _occupied(fleet: SimulatedFleet, tenant: Tenant | None, now: int) -> frozenset[str]:
    """Return the devices of others now, and those of their next runs."""
    others = [entry for entry in fleet.tenants if entry is not tenant]
    keys = {key for other in others for key in fleet.settlement.holding_at(other, now).places}
    coming = {
        device.key
        for other in others
        if other.period_seconds and not other.once
        for device in other.devices
    }
    return frozenset(keys | coming)


def _clashes(device: SimulatedDevice, occupied: frozenset[str]) -> bool:
    if device.mig_instance:
        return device.key in occupied or device.gpu_uuid in occupied
    return any(key.partition("/")[0] == device.gpu_uuid for key in occupied)


def _on_offer(fleet: SimulatedFleet, now: int) -> list[SimulatedDevice]:
    """Return the devices as they are cut now, the allocated ones included."""
    epoch = next(entry for entry in fleet.settlement.epochs if entry.since <= now < entry.until)
    return [device for devices in epoch.boards.values() for device in devices]
