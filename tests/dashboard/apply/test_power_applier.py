"""The power-cap applier: what it asks for, what it refuses, what it sees."""

import hmac
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.power import NODE, UUID, PowerBed
from factories import H100, NOW, make_collected, make_job, make_recommendation, make_samples

from dashboard.apply.power.applier import PowerCapApplier
from dashboard.apply.power.cap_renewal import CapRenewal
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.facts.fleet import Gpu
from data.records.actions import Action
from data.records.changes import Change, StepOutcome, VerificationResult
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings, PowerApplySettings
from data.settings.sources import ClusterSettings, OtherCluster
from data.store import Store, open_store


def applier_of(power: PowerBed) -> PowerCapApplier:
    """An applier with the folder and the secret of the node."""
    settings = PowerApplySettings(
        enabled=True, directory=str(power.shared), secret_file=str(power.secret_file)
    )
    return PowerCapApplier(settings, clock=lambda: power.now)


def board(index: int = 0, **changes: Any) -> Gpu:
    """A board of the job."""
    values: dict[str, Any] = {
        "gpu_uuid": f"GPU-000{index}",
        "mig_instance": "",
        "mig_profile": "",
        "node": NODE,
        "gpu_model": H100,
        "memory_total_mib": None,
        "job_id": "slurm:7",
        "last_seen_at": NOW,
    }
    return Gpu(**(values | changes))


def proposal(watts: float | None = 490.0, count: int = 1, **changes: Any) -> Recommendation:
    """A recommendation to cap the boards of a job."""
    values: dict[str, Any] = {
        "action": Action.POWER_CAP,
        "job_id": "slurm:7",
        "now": Configuration(gpu_model=H100, gpu_count=count),
        "proposed": Configuration(gpu_model=H100, gpu_count=count, power_cap_watts=watts),
    }
    return make_recommendation(**(values | changes))


def prepared(power: PowerBed, *gpus: Gpu, **more: Any) -> Change:
    """The change of a recommendation, looked at now."""
    applier = applier_of(power)
    gpus = gpus or (board(),)
    recommendation = proposal(count=len(gpus), **more)
    return applier.change_for(recommendation, applier.look(recommendation, job=None, gpus=gpus))


def test_a_cap_is_asked_for_held_and_taken_back(power: PowerBed) -> None:
    """Before the agent has looked it is not yet; then as intended; and back to what was found."""
    power.step()
    applier = applier_of(power)
    change = prepared(power)
    assert [step.text for step in change.steps] == ["nvidia-smi -i GPU-0000 -pl 490"]
    assert applier.read_back(change, done=1).seen is VerificationResult.UNTOUCHED
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.DONE
    assert applier.execute(change.steps[0], change).detail == "asked for already"
    assert applier.read_back(change, done=1).seen is VerificationResult.NOT_YET
    power.step()
    seen = applier.read_back(change, done=1)
    assert (seen.seen, seen.detail) == (VerificationResult.AS_INTENDED, "GPU-0000 is at 490 W")
    back = applier.change_back(change, applier.look_again(change))
    assert [(step.before, step.after) for step in back.steps] == [("490", None)]
    assert [(step.before, step.after) for step in change.undo] == [("490", None)]
    applier.execute(back.steps[0], back)
    power.step()
    assert applier.read_back(back, done=1).seen is VerificationResult.AS_INTENDED
    assert power.limit_of() == 700_000
    again = applier.change_back(back, applier.look_again(back))
    assert [(step.before, step.after) for step in again.steps] == [(None, "490")]


def test_every_board_of_a_job_is_a_step(power: PowerBed) -> None:
    """One board that fails is the whole job's failure."""
    power.boards = 2
    power.step()
    change = prepared(power, board(0), board(1))
    applier = applier_of(power)
    assert [step.target for step in change.steps] == ["GPU-0000", "GPU-0001"]
    for step in change.steps:
        applier.execute(step, change)
    power.lines = "gpu1 error nvmlDeviceSetPowerManagementLimit 4\n"
    power.step()
    seen = applier.read_back(change, done=2)
    assert seen.seen is VerificationResult.FAILING
    assert "NoPermission" in seen.detail
    assert dict(seen.observed)["power_limit_watts GPU-0000"] == "490"


def test_a_cap_outside_the_range_of_the_board_is_refused(power: PowerBed) -> None:
    """The range comes from the board itself, through its agent."""
    power.step()
    with pytest.raises(ChangeRefusedError, match="outside 200-700 W"):
        prepared(power, watts=150.0)


def test_a_board_that_cannot_be_capped_is_refused(power: PowerBed) -> None:
    """Some boards say NotSupported: that is told before anyone approves."""
    power.lines = "gpu0 error nvmlDeviceGetPowerManagementLimitConstraints 3\n"
    power.step()
    with pytest.raises(ChangeRefusedError, match="NotSupported"):
        prepared(power)


@pytest.mark.parametrize(
    "gpu",
    [
        board(mig_instance="1", mig_profile="1g.10gb"),
        board(gpu_uuid="GPU-0; reboot"),
        board(gpu_uuid="MIG-1234-5678"),
    ],
)
def test_slices_and_hostile_uuids_are_refused(power: PowerBed, gpu: Gpu) -> None:
    """A cap holds for a whole board, and a UUID may come from a label."""
    power.step()
    with pytest.raises(ChangeRefusedError):
        prepared(power, gpu)


def test_an_agent_that_does_not_report_stops_the_change(power: PowerBed) -> None:
    """Never seen, or silent for too long: the hint names the node."""
    with pytest.raises(ApplyError, match=r"never.*node n1"):
        prepared(power)
    power.step()
    change = prepared(power)
    applier = applier_of(power)
    applier.execute(change.steps[0], change)
    power.step()
    power.now += timedelta(minutes=5)
    with pytest.raises(ApplyError, match="not since"):
        prepared(power)
    assert applier.read_back(change, done=1).seen is VerificationResult.UNREADABLE


def test_a_job_that_holds_other_boards_is_stale(power: PowerBed) -> None:
    """Another count, another model, a board that moved, a cap that the plan did not see."""
    power.boards = 2
    power.step()
    applier = applier_of(power)
    for gpus in ((board(), board(1)), (board(gpu_model="A100-SXM4-80GB"),), (board(5),)):
        with pytest.raises(StalePlanError):
            applier.look(proposal(), job=None, gpus=gpus)
    change = prepared(power)
    applier.execute(change.steps[0], change)
    with pytest.raises(StalePlanError, match="asked to hold 490"):
        prepared(power)


def test_a_cap_that_somebody_else_asked_for_is_not_replaced(power: PowerBed) -> None:
    """Neither by the change nor by its way back."""
    power.step()
    applier = applier_of(power)
    change, other = prepared(power), prepared(power, watts=600.0)
    applier.execute(other.steps[0], other)
    answer = applier.execute(change.steps[0], change)
    assert answer.outcome is StepOutcome.REFUSED
    assert applier.read_back(change, done=1).seen is VerificationResult.DIFFERENT
    with pytest.raises(StalePlanError, match="neither"):
        applier.change_back(change, applier.look_again(change))


def test_a_lapsed_cap_is_seen_as_gone(power: PowerBed) -> None:
    """Nobody renewed it: the agent has put the limit back."""
    power.step()
    applier = applier_of(power)
    change = prepared(power)
    applier.execute(change.steps[0], change)
    power.step()
    assert applier.renew(live_jobs=["slurm:7"]) == 1
    power.now += timedelta(hours=1)
    power.step()
    assert applier.read_back(change, done=1).seen is VerificationResult.UNTOUCHED
    assert power.limit_of() == 700_000


def test_a_forged_report_is_not_believed(power: PowerBed) -> None:
    """Reading back is unreadable rather than as somebody wishes."""
    power.step()
    applier = applier_of(power)
    change = prepared(power)
    applier.execute(change.steps[0], change)
    path = power.shared / "reports" / f"{NODE}.json"
    path.write_text(path.read_text().replace("700", "490"))
    assert applier.read_back(change, done=1).seen is VerificationResult.UNREADABLE
    with pytest.raises(ApplyError, match="signature"):
        prepared(power)


ODD_WATTS = (float("nan"), float("inf"), -float("inf"), -5.0, 1e300, "1e999", [], "x")


@pytest.mark.parametrize("watts", ODD_WATTS)
@pytest.mark.parametrize("name", ["limit_watts", "least_watts", "most_watts", "default_watts"])
def test_a_report_of_impossible_watts_is_no_report(
    power: PowerBed, name: str, watts: object
) -> None:
    """A node that was broken into signs what it likes: nothing is planned or seen by it."""
    power.step()
    change = prepared(power)
    resign(power, "reports", boards=[board_row(power) | {name: watts}])
    with pytest.raises(ApplyError, match="is no report"):
        prepared(power)
    applier = applier_of(power)
    applier.execute(change.steps[0], change)
    assert applier.read_back(change, done=1).seen is VerificationResult.UNREADABLE
    assert applier.access()[0] is False


def test_a_report_from_the_future_ages_too(power: PowerBed) -> None:
    """Else the last word of a dead node would count until its clock comes true."""
    power.step()
    resign(power, "reports", at=(power.now + timedelta(days=400)).isoformat())
    with pytest.raises(ApplyError, match="has reported not since"):
        prepared(power)


PLANTS: dict[str, Callable[[Path], object]] = {
    "no document": lambda caps: (caps / "a.json").write_text("{}"),
    "no name of a node": lambda caps: (caps / "a b!.json").write_text("{}"),
    "pipe": lambda caps: os.mkfifo(caps / "a.json"),
    "folder": lambda caps: (caps / "a.json").mkdir(),
    "link": lambda caps: (caps / "a.json").symlink_to("/dev/zero"),
    "deep": lambda caps: (caps / "a.json").write_text("[" * 100_000),
    "order of another node": lambda caps: shutil.copy(caps / f"{NODE}.json", caps / "a.json"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_order_keeps_no_cap_from_being_renewed(power: PowerBed, plant: str) -> None:
    """It is told, and obeyed by nobody; the caps of other nodes would lapse without a renewal."""
    power.step()
    change, applier = prepared(power), applier_of(power)
    applier.execute(change.steps[0], change)
    PLANTS[plant](power.shared / "caps")
    power.now += timedelta(minutes=10)
    with pytest.raises(ApplyError):
        applier.renew(live_jobs={"slurm:7"})
    power.now += timedelta(minutes=10)
    power.step()
    assert power.limit_of() == 490_000


@pytest.mark.parametrize("sequence", [1e999, float("nan"), "x", None, [], "9" * 5000])
def test_a_signed_order_of_no_number_is_no_order(power: PowerBed, sequence: object) -> None:
    """The agent restores and says why, and goes on."""
    power.step()
    change, applier = prepared(power), applier_of(power)
    applier.execute(change.steps[0], change)
    resign(power, "caps", sequence=sequence)
    assert "no order" in power.step().note
    assert power.limit_of() == 700_000


def resign(power: PowerBed, kind: str, **changes: object) -> None:
    """Change a document of the node and sign it, as who has the secret can."""
    path = power.shared / kind / f"{NODE}.json"
    payload = json.loads(json.loads(path.read_text())["payload"]) | changes
    purpose = "trimtab power caps v1" if kind == "caps" else "trimtab power report v1"
    secret, text = power.secret_file.read_bytes().strip(), json.dumps(payload)
    signature = hmac.new(secret, f"{purpose}\n{text}".encode(), "sha256").hexdigest()
    path.write_text(json.dumps({"payload": text, "signature": signature}))


def board_row(power: PowerBed) -> dict[str, object]:
    """The row of the first board in the report of the node."""
    path = power.shared / "reports" / f"{NODE}.json"
    return dict(json.loads(json.loads(path.read_text())["payload"])["boards"][0])


def test_without_its_settings_it_says_what_is_missing(power: PowerBed) -> None:
    """No folder, no secret: nothing is guessed."""
    applier = PowerCapApplier(PowerApplySettings(enabled=True))
    with pytest.raises(ApplyError, match=r"apply_power\.directory"):
        applier.look(proposal(), job=None, gpus=(board(),))
    assert applier.covers(proposal())
    assert not applier.covers(proposal(watts=None))
    assert not applier.covers(make_recommendation())


def test_every_mutated_target_is_seen(power: PowerBed) -> None:
    """Any value of the state, the identity, the kind or the name is part of the fingerprint."""
    power.step()
    target = prepared(power).target
    mutants = [
        replace(target, state=tuple((k, f"{v}x" if k == key else v) for k, v in target.state))
        for key, _value in target.state
    ]
    mutants += [replace(target, **{name: "x"}) for name in ("kind", "name", "identity")]
    assert target.fingerprint not in {mutant.fingerprint for mutant in mutants}
    assert UUID in target.identity


def renewal(power: PowerBed, store: Store, tmp_path: Path, **apply: Any) -> CapRenewal:
    """What `serve` calls every minute, with the bed's folder and clock."""
    settings = Settings(
        apply=ApplySettings(**({"enabled": True, "stop_file": str(tmp_path / "STOP")} | apply)),
        apply_power=PowerApplySettings(
            enabled=True, directory=str(power.shared), secret_file=str(power.secret_file)
        ),
    )
    return CapRenewal(store=store, settings=lambda: settings, clock=lambda: power.now)


@pytest.mark.parametrize("case", ["runs", "ended", "stopped", "switched-off", "stale"])
def test_a_cap_lives_as_long_as_its_job_and_who_watches_it(
    power: PowerBed, tmp_path: Path, case: str
) -> None:
    """Renewed while the job runs; else the board's own limit returns within a lease."""
    power.step()
    change = prepared(power)
    applier_of(power).execute(change.steps[0], change)
    power.step()
    assert power.limit_of() == 490_000
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        holder = "slurm:7" if case != "ended" else "slurm:8"
        end = power.now + timedelta(minutes=30 if case != "stale" else -120)
        samples = make_samples(job_id=holder, end=end)
        store.keep(make_collected(samples, (make_job(holder, last_seen_at=end),)))
        if case == "stopped":
            (tmp_path / "STOP").write_text("")
        caps = renewal(power, store, tmp_path, enabled=case != "switched-off")
        for _minute in range(20):
            power.now += timedelta(minutes=1)
            caps.renew_once()
            power.step()
    assert (power.limit_of() == 490_000) == (case == "runs")


@pytest.mark.parametrize(("holder", "lives"), [("slurm:7@paris", True), ("slurm:7", False)])
def test_a_cap_of_a_further_cluster_lives_as_long_as_its_own_job(
    power: PowerBed, tmp_path: Path, holder: str, lives: bool
) -> None:
    """A job of the same number in another cluster keeps no cap alive."""
    power.step()
    change = prepared(power)
    applier_of(power).execute(change.steps[0], change)
    power.step()
    (tmp_path / "paris.toml").write_text(
        f'[apply_power]\nenabled = true\ndirectory = "{power.shared}"\n'
        f'secret_file = "{power.secret_file}"\n',
        encoding="utf-8",
    )
    other = OtherCluster(name="paris", settings=str(tmp_path / "paris.toml"))
    settings = Settings(
        apply=ApplySettings(enabled=True, stop_file=str(tmp_path / "STOP")),
        clusters=ClusterSettings(others=(other,)),
    )
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        end = power.now + timedelta(minutes=30)
        samples = make_samples(job_id=holder, end=end)
        store.keep(make_collected(samples, (make_job(holder, last_seen_at=end),)))
        caps = CapRenewal(store=store, settings=lambda: settings, clock=lambda: power.now)
        for _minute in range(20):
            power.now += timedelta(minutes=1)
            caps.renew_once()
            power.step()
    assert (power.limit_of() == 490_000) == lives
