"""Shares in the demo: proposed by its cycle, applied, measured, and undone where they hurt."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from beds.apply_bench import Clock
from beds.demo_store import DEMO_END, demo_day

from collectors.shared.collector import Window
from collectors.simulated.cluster import SimulatedCluster, cluster_of, simulated_collector
from dashboard.apply import build_appliers
from dashboard.apply.simulated.applier import SimulatedApplier
from dashboard.apply.worker.worker import Worker
from dashboard.cli.operate.demo_command import demo_settings
from dashboard.decisions.service import DecisionService
from data.records.actions import Action
from data.records.commands import Person
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.load import LoadedSettings
from data.settings.sources import SimulatedFleetSettings
from data.settings.store import StoreSettings
from data.store import Store, open_store

ROBIN = Person(name="Robin", via="local")
SLOWED = "search/deployment/transcriber"


@dataclass(slots=True, kw_only=True)
class DemoPlay:
    """The demo after its first cycle: its shares, decisions, worker and later readings."""

    store: Store
    settings: Settings
    clock: Clock

    @property
    def cluster(self) -> SimulatedCluster:
        """Its cluster."""
        return cluster_of(self.settings.simulated_fleet)

    @property
    def shares(self) -> dict[str, Recommendation]:
        """The shares that the cycle proposed, by job."""
        rows = self.store.reader.recommendations(now=self.clock())
        found = [row.recommendation for row in rows]
        return {one.job_id: one for one in found if one.action is Action.TAKE_SHARE}

    @property
    def decisions(self) -> DecisionService:
        """The way of a person to them."""
        return DecisionService(
            store=self.store,
            settings=lambda: self.settings,
            appliers=self._appliers,
            clock=self.clock,
        )

    def _appliers(self, settings: Settings) -> tuple[SimulatedApplier, ...]:
        return tuple(build_appliers(settings, clock=self.clock))  # type: ignore[arg-type]

    def go_on(self, hours: float) -> None:
        """Let time pass, with readings and the worker's steps every five minutes."""
        worker = Worker(
            store=self.store,
            settings=lambda: self.settings,
            appliers=self._appliers,
            clock=self.clock,
        )
        for _step in range(int(hours * 12)):
            self.clock.forward(minutes=5)
            latest = self.store.reader.latest_sample_at()
            assert latest is not None
            window = Window(start=latest, end=self.clock())
            self.store.keep(simulated_collector(self.settings).collect(window))
            while worker.work_once():
                pass

    def holders(self) -> dict[str, set[str]]:
        """The jobs on each board of the small services that has any, as readings tell."""
        gpus = self.store.reader.gpus(start=self.clock() - timedelta(minutes=10), end=self.clock())
        small = [gpu for gpu in gpus if gpu.node.startswith("l40s-s")]
        return {gpu.gpu_uuid: set(gpu.holders) for gpu in small if gpu.holders}


@pytest.fixture
def play(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoPlay]:
    """The demo of a Wednesday afternoon."""
    url = demo_day(tmp_path_factory.mktemp("demo"))
    fleet = SimulatedFleetSettings(enabled=True, state_file=str(tmp_path / "cluster.json"))
    loaded = LoadedSettings(
        settings=Settings(store=StoreSettings(url=url), simulated_fleet=fleet), origins={}
    )
    with open_store(url) as store:
        yield DemoPlay(store=store, settings=demo_settings(loaded).settings, clock=Clock(DEMO_END))


def test_shares_are_applied_and_the_one_that_hurts_is_undone(play: DemoPlay) -> None:
    """All four are proposed; after three hours three are on one board, and one is back."""
    shares = play.shares
    assert len(shares) == 4
    assert all(len(jobs) == 1 for jobs in play.holders().values())
    for one in shares.values():
        play.decisions.approve_and_apply(one.digest, ROBIN)
    play.go_on(0.5)
    assert set(shares) in play.holders().values(), "all on the shared board"
    play.go_on(2.5)
    states = play.store.reader.states()
    assert {job: states[one.digest] for job, one in shares.items()} == {
        job: "rolled-back" if job == SLOWED else "verified" for job in shares
    }
    assert sorted(play.holders().values(), key=len) == [{SLOWED}, set(shares) - {SLOWED}]
    assert not play.store.reader.verify_audit()


def test_a_share_alone_slows_nobody_and_can_be_given_back(play: DemoPlay) -> None:
    """The one that suffers beside others: verified where nobody is, and undone by a person."""
    one = play.shares[SLOWED]
    play.decisions.approve_and_apply(one.digest, ROBIN)
    play.go_on(1.5)
    assert play.store.reader.states()[one.digest] == "verified"
    play.decisions.roll_back(one.digest, ROBIN)
    play.go_on(0.1)
    assert play.store.reader.states()[one.digest] == "rolled-back"
    assert len(play.holders()) == 4
    job = play.cluster.job(SLOWED, play.clock())
    assert job is not None
    assert job.configuration == one.now
