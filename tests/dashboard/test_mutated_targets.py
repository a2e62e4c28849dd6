"""A target that is not what was approved is never changed: every mutation, refused."""

import random

import pytest
from beds.apply_bench import JOB, Bench
from beds.file_cluster import FIELDS
from factories import make_recommendation
from reliability import Measured

from dashboard.apply.worker.prepare import change_of
from data.records.changes import Target

MUTATIONS = 1000


def mutated(target: Target, chance: random.Random) -> Target:
    """Another identity, kind, name, owner or state; the version alone may differ."""
    values = {
        "kind": target.kind,
        "name": target.name,
        "identity": target.identity,
        "version": str(chance.randrange(99)),
        "state": target.state,
        "owners": target.owners,
    }
    field = chance.choice(["kind", "name", "identity", "owners", "state", "state", "state"])
    if field == "owners":
        values["owners"] = (f"argocd-{chance.randrange(9)}",)
    elif field == "state":
        state = list(target.state)
        place = chance.randrange(len(state))
        state[place] = (state[place][0], state[place][1] + chance.choice("01 x"))
        values["state"] = tuple(state)
    else:
        values[field] = str(values[field]) + chance.choice("01-x")
    return Target(**values)  # type: ignore[arg-type]


def test_every_mutated_target_gives_another_change_than_the_approved(
    bench: Bench, measured: Measured
) -> None:
    """1,000 mutations: the digest that the approval is bound to differs each time."""
    recommendation = make_recommendation()
    approved = change_of(bench.applier, recommendation, bench.store.reader)
    chance = random.Random(7)  # noqa: S311 - a repeatable test, no secret
    same = []
    for _number in range(MUTATIONS):
        other = mutated(approved.target, chance)
        if bench.applier.change_for(recommendation, other).digest == approved.digest:
            same.append(other)
    assert same == []
    measured(f"{MUTATIONS:,} of {MUTATIONS:,} mutated targets give another digest")


def test_a_version_that_moved_alone_is_the_same_change(bench: Bench) -> None:
    """A server counts writes that touch nothing of ours."""
    approved = change_of(bench.applier, make_recommendation(), bench.store.reader)
    bench.cluster.change(JOB, mood="")
    again = change_of(bench.applier, make_recommendation(), bench.store.reader)
    assert again.target.version != approved.target.version
    assert again.digest == approved.digest


@pytest.mark.parametrize("field", [*FIELDS, "uid"])
def test_the_worker_refuses_what_moved_after_the_approval(bench: Bench, field: str) -> None:
    """Each field, and the identity behind the name."""
    change = change_of(bench.applier, make_recommendation(), bench.store.reader)
    bench.approve(previewed=change)
    bench.ask()
    bench.cluster.change(JOB, **{field: "other"})
    bench.work(visits=3)
    assert (bench.state, bench.job()["log"]) == ("refused", [])
