"""Every role and every wish: who may, and that a refusal asks no cluster."""

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.apply_bench import propose
from beds.file_cluster import FileApplier, FileCluster
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_recommendation

from dashboard.decisions.service import DecisionService
from data.base.errors import ChangeRefusedError, StalePlanError, StoreError
from data.records.commands import Person
from data.records.recommendations import Decision
from data.settings.access import ROLES, AccessSettings
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings
from data.store import Store

ADVICE = make_recommendation()
LISTED = {f"{role}s": role for role in ROLES[1:]}
ACCESS = AccessSettings(
    mode="proxy", proxy_addresses="10.0.0.5", default_role="none",
    **(LISTED | {"owners": "search,another"}),
)  # fmt: skip
PEOPLE = {role: Person(name=role, via="proxy") for role in ("none", "viewer", "approver", "admin")}
PEOPLE |= {"owner": Person(name="search", via="proxy")}
PEOPLE |= {"another's owner": Person(name="another", via="proxy")}
LET_IN = {"viewer", "owner", "another's owner", "approver", "admin"}
DECIDE = {"owner", "approver", "admin"}


@dataclass(frozen=True)
class Watched(FileApplier):
    """A target that notes when it is asked."""

    asked: list[str] = field(default_factory=list)

    def look(self, *arguments: Any, **named: Any) -> Any:
        """Look, and note it."""
        self.asked.append("look")
        return super().look(*arguments, **named)


@dataclass
class Bench:
    """A decision_service with one proposed recommendation, and what it could change."""

    decision_service: DecisionService
    store: Store
    target: Watched

    def approve(self) -> None:
        """Have the approver approve."""
        self.decision_service.decide(ADVICE.digest, Decision.APPROVED, PEOPLE["approver"])


def fill(store: Store) -> None:
    """Keep a job of search and its recommendation."""
    store.keep(make_collected(jobs=(make_job(gpu_count=4, owner="search"),)))
    propose(store, ADVICE)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A job of search, and a target that holds it."""
    settings = Settings(
        access=ACCESS,
        apply=ApplySettings(
            enabled=True, directory=str(tmp_path / "c"), stop_file=str(tmp_path / "STOP")
        ),
    )
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({ADVICE.job_id: {"gpus": "4", "model": "", "note": ""}})
    target = Watched(cluster)
    with filled(f"duckdb:///{tmp_path}/t.duckdb", fill) as store:
        decision_service = DecisionService(
            store=store,
            settings=lambda: settings,
            appliers=lambda _settings: (target,),
            clock=lambda: NOW,
        )
        yield Bench(decision_service, store, target)


Wish = Callable[[Bench, Person], object]
WISHES: dict[str, tuple[set[str], Wish]] = {
    "decide": (
        DECIDE,
        lambda bench, who: bench.decision_service.decide(ADVICE.digest, Decision.APPROVED, who),
    ),
    "decide: reject": (
        DECIDE,
        lambda bench, who: bench.decision_service.decide(ADVICE.digest, Decision.REJECTED, who),
    ),
    "approve_and_apply": (
        DECIDE,
        lambda bench, who: bench.decision_service.approve_and_apply(ADVICE.digest, who),
    ),
    "apply": (
        DECIDE,
        lambda bench, who: (bench.approve(), bench.decision_service.apply(ADVICE.digest, who)),
    ),
    "write_change": (
        DECIDE,
        lambda bench, who: (
            bench.approve(),
            bench.decision_service.write_change(ADVICE.digest, who),
        ),
    ),
    "roll_back": (DECIDE, lambda bench, who: bench.decision_service.roll_back(ADVICE.digest, who)),
    "snooze": (
        DECIDE,
        lambda bench, who: bench.decision_service.snooze(
            ADVICE.digest, bench.decision_service.clock() + timedelta(days=1), who
        ),
    ),
    "reopen": (DECIDE, lambda bench, who: bench.decision_service.reopen(ADVICE.digest, who)),
    "preview": (DECIDE, lambda bench, who: bench.decision_service.preview(ADVICE.digest, who)),
    "make_token": (
        {"admin"},
        lambda bench, who: bench.decision_service.make_token(
            holder="robot", role="viewer", lasts=timedelta(days=1), person=who
        ),
    ),
    "tokens": ({"admin"}, lambda bench, who: bench.decision_service.tokens(who)),
    "revoke_token": (
        {"admin"},
        lambda bench, who: bench.decision_service.revoke_token(
            bench.decision_service.make_token(
                holder="robot", role="viewer", lasts=timedelta(days=1), person=PEOPLE["admin"]
            )[0].token_id,
            who,
        ),
    ),
    "stop": (LET_IN, lambda bench, who: bench.decision_service.stop(who)),
    "resume": ({"admin"}, lambda bench, who: bench.decision_service.resume(who)),
}
QUESTIONS = {"why_not", "visible"}
"""What only tells, and is asked before a wish is offered."""


def test_every_wish_of_the_service_is_in_the_table() -> None:
    """Whoever adds one says here who may have it."""
    takes_person = {
        name
        for name, method in inspect.getmembers(DecisionService, inspect.isfunction)
        if not name.startswith("_") and "person" in inspect.signature(method).parameters
    }
    assert takes_person - QUESTIONS == {name.partition(":")[0] for name in WISHES}


@pytest.mark.parametrize(
    ("wish", "role"),
    # Who is not let in reaches no button; stopping asks no more than being let in.
    sorted(set(itertools.product(WISHES, PEOPLE)) - {("stop", "none")}),
)
def test_each_role_has_its_wishes_and_no_other(bench: Bench, wish: str, role: str) -> None:
    """A refusal leaves nothing behind but what was there, and asks no cluster."""
    allowed, act = WISHES[wish]
    try:
        act(bench, PEOPLE[role])
        refused = False
    except StalePlanError:
        # Let in; the state does not allow it.
        refused = False
    except (ChangeRefusedError, StoreError):
        refused = True
    assert refused == (role not in allowed)
    if refused:
        assert bench.target.asked == []
        assert bench.store.reader.commands(ADVICE.digest) == ()
        assert PEOPLE[role].name not in {entry.actor for entry in bench.store.reader.audit()}


def test_with_four_eyes_the_owner_looks_at_no_target_that_waits_for_another(bench: Bench) -> None:
    """Who may not approve does not look; somebody else does."""
    access = replace(ACCESS, four_eyes=True, approvers="approver,search", owners="")
    settings = replace(bench.decision_service.settings(), access=access)
    decision_service = replace(bench.decision_service, settings=lambda: settings)
    with pytest.raises(ChangeRefusedError, match="owns the job"):
        decision_service.preview(ADVICE.digest, PEOPLE["owner"])
    assert bench.target.asked == []
    assert decision_service.preview(ADVICE.digest, PEOPLE["approver"]).change.steps
