"""Applying to the simulated cluster: the way of every other change, and never beside a real one."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.apply_bench import Clock
from beds.simulated import NOW, give, held, idle_job, make_cluster, small_service, training
from factories import make_plan, make_range, make_recommendation

from collectors.shared.collector import Window
from collectors.simulated.cluster import SimulatedCluster
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.accounting.savings.ledger import ledger
from dashboard.apply import build_appliers
from dashboard.apply.simulated.applier import SimulatedApplier
from dashboard.apply.worker.worker import Worker
from dashboard.decisions.service import DecisionService
from data.base.errors import ChangeRefusedError, SettingsError, StalePlanError
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult
from data.records.commands import Person
from data.records.lifecycle import State
from data.records.plans import Configuration
from data.records.recommendations import (
    APPLY_FIRST,
    Recommendation,
    Savings,
    in_named_order,
)
from data.settings.all_settings import Settings
from data.settings.apply import (
    ApplySettings,
    KubernetesApplySettings,
    PowerApplySettings,
    SlurmApplySettings,
)
from data.settings.load import load_settings
from data.settings.sources import (
    KubernetesSettings,
    NvmlSettings,
    PrometheusSettings,
    SimulatedFleetSettings,
    SlurmSettings,
)
from data.store import Store, open_store

ROBIN = Person(name="Robin", via="local")


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    """The cluster of the demo."""
    return make_cluster(tmp_path)


def applier_of(cluster: SimulatedCluster) -> SimulatedApplier:
    """An applier whose time stands still."""
    return SimulatedApplier(cluster, clock=lambda: NOW)


def proposal(
    cluster: SimulatedCluster, job: str, action: Action, **proposed: object
) -> Recommendation:
    """A recommendation for a job of the simulated cluster."""
    now = held(cluster, job)
    wanted: Configuration = replace(now, **proposed)  # type: ignore[arg-type]
    return make_recommendation(
        action=action,
        job_id=job,
        job_name=job,
        namespace=job.partition("/")[0],
        created_at=NOW,
        expires_at=NOW + timedelta(hours=24),
        now=now,
        proposed=wanted,
        savings=Savings(
            horizon_hours=24,
            gpu_hours=make_range(24, "GPU-h"),
            energy_kwh=None,
            emissions_kgco2e=None,
            cost=make_range(60, "EUR"),
        ),
    )


def proposals(cluster: SimulatedCluster) -> list[Recommendation]:
    """One recommendation of each kind that the simulated cluster takes."""
    two = small_service(cluster, boards=2)
    return [
        proposal(cluster, idle_job(cluster), Action.RECLAIM, gpu_count=0),
        proposal(cluster, two, Action.FEWER_GPUS, gpu_count=1),
        proposal(cluster, two, Action.SCALE_OUT, gpu_count=3),
        proposal(cluster, small_service(cluster), Action.MIG_SLICE, mig_profile="2g.20gb"),
        proposal(cluster, small_service(cluster), Action.SMALLER_GPU, gpu_model="A100-SXM4-80GB"),
        proposal(cluster, training(cluster), Action.POWER_CAP, power_cap_watts=490.0),
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_change_is_made_seen_and_undone(cluster: SimulatedCluster, number: int) -> None:
    """Every kind: one step there, as intended; one step back, as it was."""
    one, applier = proposals(cluster)[number], applier_of(cluster)
    assert applier.covers(one)
    change = applier.change_for(one, applier.look(one, job=None, gpus=()))
    assert applier.rehearse(change).refusals == ()
    assert applier.read_back(change, done=0).seen is VerificationResult.UNTOUCHED
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.DONE
    assert applier.read_back(change, done=1).seen is VerificationResult.AS_INTENDED
    assert held(cluster, one.job_id, NOW + timedelta(seconds=1)).gpu_count == (
        one.proposed.gpu_count
    )
    back = applier.change_back(change, applier.look_again(change))
    later = SimulatedApplier(cluster, clock=lambda: NOW + timedelta(seconds=1))
    assert later.execute(back.steps[0], back).outcome is StepOutcome.DONE
    assert later.read_back(back, done=1).seen is VerificationResult.AS_INTENDED
    assert held(cluster, one.job_id, NOW + timedelta(seconds=2)) == one.now


def test_every_word_says_that_the_cluster_is_simulated(cluster: SimulatedCluster) -> None:
    """Preview, answer, refusal and look name it; the audit keeps them."""
    one, applier = proposals(cluster)[1], applier_of(cluster)
    change = applier.change_for(one, applier.look(one, job=None, gpus=()))
    assert change.target.kind == "simulated job"
    said = [
        change.steps[0].text,
        change.target.identity,
        change.notes[0],
        applier.execute(change.steps[0], change).detail,
        applier.execute(change.steps[0], change).detail,
        applier.read_back(change, done=1).detail,
    ]
    assert all("simulated" in text for text in said)


def test_sent_twice_is_taken_once(cluster: SimulatedCluster) -> None:
    """The second command finds another state than it was made for."""
    one, applier = proposals(cluster)[1], applier_of(cluster)
    change = applier.change_for(one, applier.look(one, job=None, gpus=()))
    outcomes = [applier.execute(change.steps[0], change).outcome for _ in range(2)]
    assert outcomes == [StepOutcome.DONE, StepOutcome.REFUSED]
    assert len(cluster.fleet().changes) == 1


def test_a_job_that_moved_since_the_plan_is_refused(cluster: SimulatedCluster) -> None:
    """Other GPUs than the plan saw, and a job that no longer runs: StalePlanError."""
    one, applier = proposals(cluster)[1], applier_of(cluster)
    give(cluster, one.job_id, replace(one.now, gpu_count=3), NOW - timedelta(minutes=1))
    with pytest.raises(StalePlanError, match="the plan saw"):
        applier.look(one, job=None, gpus=())
    with pytest.raises(StalePlanError, match="no job"):
        applier.look(replace(one, job_id="prod/checkout-0"), job=None, gpus=())


def test_what_somebody_else_changed_is_not_rolled_back(cluster: SimulatedCluster) -> None:
    """The way back restores only what this change did."""
    one, applier = proposals(cluster)[1], applier_of(cluster)
    change = applier.change_for(one, applier.look(one, job=None, gpus=()))
    applier.execute(change.steps[0], change)
    give(cluster, one.job_id, replace(one.now, gpu_count=3), NOW + timedelta(seconds=1))
    later = SimulatedApplier(cluster, clock=lambda: NOW + timedelta(minutes=1))
    assert later.read_back(change, done=1).seen is VerificationResult.DIFFERENT
    with pytest.raises(StalePlanError, match="someone else"):
        later.change_back(change, later.look_again(change))


def test_nothing_is_changed_where_nothing_would_change(cluster: SimulatedCluster) -> None:
    """A job that has what is proposed already needs no command."""
    one, applier = proposals(cluster)[1], applier_of(cluster)
    target = applier.look(one, job=None, gpus=())
    with pytest.raises(ChangeRefusedError, match="already"):
        applier.change_for(replace(one, proposed=one.now), target)


def test_advice_and_nodes_are_left_to_people(cluster: SimulatedCluster) -> None:
    """What holds no single job's GPUs is not covered."""
    one, applier = proposals(cluster)[0], applier_of(cluster)
    for action in (Action.CO_LOCATE, Action.ADD_GPUS, Action.CONSOLIDATE, Action.SHIFT_IN_TIME):
        assert not applier.covers(replace(one, action=action))


FLEET = SimulatedFleetSettings(enabled=True, state_file="cluster.json")
ON = ApplySettings(enabled=True)


@pytest.mark.parametrize(
    "real",
    [
        {"prometheus": PrometheusSettings(url="http://prometheus:9090")},
        {"slurm": SlurmSettings(mode="commands")},
        {"kubernetes": KubernetesSettings(enabled=True)},
        {"nvml": NvmlSettings(enabled=True)},
        {"apply_kubernetes": KubernetesApplySettings(enabled=True)},
        {"apply_slurm": SlurmApplySettings(enabled=True)},
        {"apply_power": PowerApplySettings(enabled=True)},
        {"simulated_fleet": SimulatedFleetSettings(enabled=False, state_file="cluster.json")},
    ],
)
def test_it_is_refused_beside_anything_real(real: dict[str, object]) -> None:
    """One source or target that is no simulation, or no simulation at all: a settings error."""
    given: dict[str, object] = {"simulated_fleet": FLEET, "apply": ON} | real
    with pytest.raises(SettingsError, match=r"simulated_fleet\.state_file"):
        Settings(**given)  # type: ignore[arg-type]


def test_it_needs_both_switches(tmp_path: Path) -> None:
    """Neither `apply.enabled` nor its own switch alone gives an applier."""
    environ = {
        "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
        "TRIMTAB_SIMULATED_FLEET_STATE_FILE": str(tmp_path / "cluster.json"),
        "TRIMTAB_APPLY_ENABLED": "true",
    }
    for missing in (None, "TRIMTAB_SIMULATED_FLEET_STATE_FILE", "TRIMTAB_APPLY_ENABLED"):
        chosen = {name: value for name, value in environ.items() if name != missing}
        found = build_appliers(load_settings(environ=chosen).settings)
        assert [applier.name for applier in found] == ([] if missing else ["simulated"])


def fill(store: Store, cluster: SimulatedCluster, until: Clock) -> None:
    """Collect from the simulated fleet what is missing up to now."""
    latest = store.reader.latest_sample_at()
    start = until() - timedelta(hours=26) if latest is None else latest
    source = SimulatedFleetCollector(
        fleet=SimulatedFleet(seed=cluster.seed, nodes=cluster.nodes),
        step_seconds=300,
        changed=cluster.fleet,
    )
    store.keep(source.collect(Window(start=start, end=until())))


def saved_in_truth(cluster: SimulatedCluster) -> float:
    """The board energy in kWh of the slots measured: of the fleet without the change less with."""
    start, hours = NOW + timedelta(minutes=15), 0.5
    unchanged = SimulatedFleet(seed=cluster.seed, nodes=cluster.nodes)
    watts = [
        fleet.history(start, start + timedelta(hours=hours), 60)
        .groupby("sampled_at")["power_watts"]
        .sum()
        .mean()
        for fleet in (unchanged, cluster.fleet())
    ]
    return float(watts[0] - watts[1]) * hours / 1000


def test_what_is_to_be_applied_first_is_over_before_the_other_begins(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    """Whoever asks for both in the other order; each asked for alone begins at once."""
    first, _same, other = proposals(cluster)[0], *proposals(cluster)[3:5]
    factors = ((APPLY_FIRST, f"c/gone (reclaim), {first.name_in_order}"), *other.evidence.factors)
    second = replace(other, evidence=replace(other.evidence, factors=factors))
    assert in_named_order([second, first]) == in_named_order([first, second]) == [first, second]
    clock = Clock(NOW)
    settings = Settings(
        simulated_fleet=SimulatedFleetSettings(enabled=True, state_file=str(cluster.path)),
        apply=ApplySettings(
            enabled=True, max_namespace_share_ratio=1, stop_file=str(tmp_path / "STOP")
        ),
    )
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as store:
        fill(store, cluster, clock)
        store.keep_cycle(
            cycle_id="c",
            started_at=NOW,
            finished_at=NOW,
            forecasts=(),
            plan=make_plan(plan_id=first.plan_id, created_at=NOW),
            recommendations=(first, second),
        )

        def appliers(chosen: Settings) -> tuple[SimulatedApplier, ...]:
            return tuple(build_appliers(chosen, clock=clock))  # type: ignore[arg-type]

        service = DecisionService(
            store=store, settings=lambda: settings, appliers=appliers, clock=clock
        )
        for one in (second, first):
            service.approve_and_apply(one.digest, ROBIN)
        worker = Worker(store=store, settings=lambda: settings, appliers=appliers, clock=clock)
        for _step in range(40):
            while worker.work_once():
                pass
            clock.forward(seconds=5)
        held = store.reader.commands(second.digest)[-1]
        states = store.reader.states()
        begun = {
            one.digest: store.reader.journal(digest=one.digest)[0].at for one in (first, second)
        }
    assert begun[first.digest] < begun[second.digest], held
    assert {states[one.digest] for one in (first, second)} == {State.APPLIED}


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_what_was_promised_is_measured_in_the_simulation(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Approved, applied, read back, measured from the samples that followed, and rolled back."""
    one = proposals(cluster)[number]
    clock = Clock(NOW)
    settings = Settings(
        simulated_fleet=SimulatedFleetSettings(enabled=True, state_file=str(cluster.path)),
        apply=ApplySettings(
            enabled=True,
            verify_slots=2,
            max_namespace_share_ratio=1,
            stop_file=str(tmp_path / "STOP"),
        ),
    )
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as store:
        fill(store, cluster, clock)
        store.keep_cycle(
            cycle_id="c",
            started_at=NOW,
            finished_at=NOW,
            forecasts=(),
            plan=make_plan(plan_id=one.plan_id, created_at=NOW),
            recommendations=(one,),
        )

        def appliers(chosen: Settings) -> tuple[SimulatedApplier, ...]:
            return tuple(build_appliers(chosen, clock=clock))  # type: ignore[arg-type]

        decision_service = DecisionService(
            store=store, settings=lambda: settings, appliers=appliers, clock=clock
        )
        worker = Worker(store=store, settings=lambda: settings, appliers=appliers, clock=clock)
        decide = DecisionService.decide

        def decided_twice(service: DecisionService, *given: Any) -> Any:
            decide(service, *given)  # by another tab, between the look and the decision of this one
            return decide(service, *given)

        monkeypatch.setattr(DecisionService, "decide", decided_twice)
        assert decision_service.approve_and_apply(one.digest, ROBIN).fresh
        assert not decision_service.approve_and_apply(one.digest, ROBIN).fresh
        for _minute in range(60):
            clock.forward(minutes=1)
            while worker.work_once():
                pass
        fill(store, cluster, clock)
        clock.forward(minutes=5)
        worker.work_once()
        (row,) = ledger(store.reader, now=clock())
        measured = row.measurement
        assert row.state == "verified"
        assert measured is not None
        assert measured.realised_gpu_hours is not None
        by_time = measured.realised_gpu_hours.low
        assert by_time == pytest.approx(0.5), "one GPU less for two slots of a quarter of an hour"
        found, truth = measured.realised_energy_kwh, saved_in_truth(cluster)
        assert found is not None
        assert found.low - 1e-9 <= truth * settings.energy.pue <= found.high + 1e-9
        decision_service.roll_back(one.digest, ROBIN)
        worker.work_once()
        assert store.reader.states()[one.digest] == "rolled-back"
        assert not store.reader.verify_audit()
    assert held(cluster, one.job_id, clock() + timedelta(seconds=2)) == one.now
    assert len(cluster.fleet().changes) == 2
