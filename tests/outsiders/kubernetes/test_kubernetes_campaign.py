"""Drawn workloads of a real cluster: changed, disturbed and restored, judged by the API alone."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import APPLIER_MANIFEST, account_kubeconfig, settings_of
from beds.kubernetes_worker import Mortal, Play
from outsiders.campaign import run_campaign
from outsiders.kubernetes.cluster import Leaves, Stage
from outsiders.kubernetes.scenarios import (
    NAME,
    ROLLING,
    Scenario,
    advice,
    draw,
    draw_share,
    must_be_applied,
    must_be_refused,
    promised,
)
from recorded.record_kubernetes import definition

from data.base.errors import TrimtabError
from data.store import Store, open_store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

_STRATEGY = ("/spec/strategy/", "/spec/suspend")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of one engine: what differs between engines is not asked here."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """One cluster for all scenarios."""
    with running_kubernetes() as running:
        running.apply(APPLIER_MANIFEST.read_text(encoding="utf-8"))
        running.apply(definition("PyTorchJob"), definition("RayCluster"))
        versions = {
            "LimitRange": "v1",
            "ResourceQuota": "v1",
            "HorizontalPodAutoscaler": "autoscaling/v1",
        }
        running.api_versions |= versions
        yield running


class Others:
    """What others do to the workload of a scenario when their moment has come, once."""

    def __init__(self, stage: Stage, play: Play, applier: Mortal) -> None:
        self.stage, self.play, self.applier = stage, play, applier
        self.scenario = stage.scenario
        self.theirs: Leaves = {}
        self.came = False

    def act(self, moment: str) -> None:
        """Disturb the change if now is the moment."""
        if self.came or not self.scenario.between or self.scenario.moment != moment:
            return
        self.came = True
        if self.scenario.between == "killed":
            self.applier.dies = True
        elif self.scenario.between == "undone":
            self.undo()
        else:
            self.theirs |= self.stage.disturb()

    def undo(self) -> None:
        """Ask for the rollback; that nothing can be undone is an answer too."""
        with suppress(TrimtabError):
            self.play.undo()


def changes(before: Leaves, after: Leaves) -> Leaves:
    """Return the values that differ by pointer; what is gone is null."""
    names = before.keys() | after.keys()
    return {at: after.get(at, "null") for at in sorted(names) if before.get(at) != after.get(at)}


def wrong(others: Others, before: Leaves, wanted: Leaves, *, partly: bool = False) -> str:
    """Return what of the object is neither as it was, nor as promised, nor as others set it."""
    after = others.stage.seen()
    if after is None or after["/metadata/uid"] != before["/metadata/uid"]:
        gone = others.scenario.between in ("deleted", "replaced") and others.came
        return "" if gone else "the object is gone"
    found = changes(before, after)
    for at, value in others.theirs.items():
        # Of a field that both set, the later one holds.
        if after.get(at, "null") != value and at not in wanted:
            return f"{at} of others was {value} and is {after.get(at)}"
    parents = tuple(f"{at.rpartition('/')[0]}/" for at in others.theirs)
    found = {at: value for at, value in found.items() if not at.startswith(parents)}
    mine = {at: value for at, value in wanted.items() if not at.startswith(parents)}
    if partly:
        found = {at: value for at, value in found.items() if not at.startswith(_STRATEGY)}
        mine = {at: value for at, value in mine.items() if at in found}
    return "" if found == mine else f"{found} instead of {mine}"


def promised_leaves(scenario: Scenario, before: Leaves) -> Leaves:
    """Return the promised values as they are compared, without those that are there already."""
    said = {at: json.dumps(value) for at, value in promised(scenario).items()}
    filled = {at.rpartition("/")[0] for at in said} & before.keys()
    said |= dict.fromkeys(filled, "null")  # an empty object is none once something is in it
    return {at: value for at, value in said.items() if before.get(at, "null") != value}


def judged(others: Others, before: Leaves) -> str:
    """Return what is wrong with the object in the state that the product says, '' for nothing."""
    state, wanted = others.play.state, promised_leaves(others.scenario, before)
    if state in ("refused", "rolled-back"):
        return wrong(others, before, {})
    if state == "applied":
        return wrong(others, before, wanted)
    gone = others.came and others.scenario.between in ("deleted", "replaced")
    if state in ("failing", "applied-differently", "unknown", "rollback-refused") or (
        state == "target-gone" and gone
    ):
        return wrong(others, before, wanted, partly=True)
    return f"state {state}"


def play_out(others: Others) -> str | None:
    """Return the promise that was broken, None when all were kept."""
    stage, scenario, play = others.stage, others.scenario, others.play
    before = stage.seen()
    assert before is not None
    play.ask(lambda: others.act("after-approval"))
    play.settle(lambda: play.sent and others.act("under-way"))
    why = must_be_refused(scenario)
    if why and play.state != "refused":
        return f"{play.said}, although {why}"
    # A scheduler that has much to do comes late: what gets well is gone on with.
    if must_be_applied(scenario) and play.recover() != "applied":
        return f"{play.said}, although nothing stood against it"
    if broken := judged(others, before):
        return f"{play.said}: {broken}"
    rolls = scenario.kind in ROLLING and not others.came
    if rolls and play.state == "applied" and (word := stage.stuck()):
        return f"{play.said}, and a pod waits: {word}"
    return None if play.state == "refused" else _undone(others, before)


def _undone(others: Others, before: Leaves) -> str | None:
    """Roll back as often as the scenario says, and judge each time."""
    play, scenario = others.play, others.scenario
    others.act("after-apply")
    tries = {"": 0, "roll-back": 1, "roll-back-twice": 2, "again": 2}[scenario.after]
    for turn in range(tries):
        if play.state == "rolled-back" and scenario.after != "again":
            break
        others.undo()
        play.settle()
        if broken := judged(others, before):
            return f"rollback {turn + 1}, {play.said}: {broken}"
        hindered = others.came and scenario.between not in ("killed", "undone", "image")
        refused = play.state in ("rollback-refused", "applied-differently", "unknown")
        if refused and not hindered:
            return f"rollback {turn + 1}, {play.said}, although nobody hindered it"
    return None


@pytest.mark.parametrize(
    ("name", "drawn"), [("kubernetes", draw), ("kubernetes shares", draw_share)]
)
def test_drawn_scenarios(
    bed: KubernetesBed,
    store: Store,
    tmp_path: Path,
    measured: Callable[[str], None],
    name: str,
    drawn: Callable[[random.Random], Scenario],
) -> None:
    """What is called applied is exactly what was promised; what is rolled back is as it was."""
    numbers = itertools.count(1)
    settings = settings_of(account_kubeconfig(bed, "trimtab-applier"), pending_seconds=12)

    def fails(scenario: Scenario) -> str | None:
        namespace = f"{name.replace(' ', '-')}-{next(numbers)}"
        stage = Stage(bed=bed, scenario=scenario, namespace=namespace)
        applier = Mortal(settings)
        try:
            stage.build()
            play = Play(  # its plan is made of what is there
                bed=bed,
                store=store,
                applier=applier,
                folder=tmp_path,
                namespace=stage.namespace,
                job_id=f"{stage.namespace}/{scenario.kind.lower()}/{NAME}",
                advice=advice(scenario),
            )
            return play_out(Others(stage, play, applier))
        finally:
            stage.clear()

    run_campaign(name, drawn, fails, default=2, measured=measured)
