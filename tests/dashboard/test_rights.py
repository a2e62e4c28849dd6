"""Rights at their edges: what counts as one's own, and what four eyes and owners may."""

from dataclasses import replace

import pytest
from factories import make_job, make_recommendation

from dashboard.common.rights import decision_refusal, may_see, owns, submit_refusal
from data.facts.jobs import SchedulerFacts
from data.records.commands import Person
from data.settings.access import AccessSettings

ADVICE = make_recommendation()
ACCESS = AccessSettings(
    mode="proxy", proxy_addresses="10.0.0.5", default_role="none", viewers="vera",
    owners="olga", approvers="ann,olga-too,Νils", admins="root", four_eyes=True,
)  # fmt: skip


def person(name: str) -> Person:
    """Somebody whom the proxy signed in."""
    return Person(name=name, via="proxy")


def test_a_recommendation_about_another_job_is_not_ones_own() -> None:
    """Whichever job of the person is beside it; advice on the fleet is nobody's own."""
    mine = make_job(owner="olga")
    assert owns(person("olga"), ACCESS, ADVICE, mine)
    assert not owns(person("olga"), ACCESS, replace(ADVICE, job_id="search/other"), mine)
    assert not owns(person("olga"), ACCESS, replace(ADVICE, job_id="", job_name="node-1"), mine)
    assert not owns(person("olga"), ACCESS, ADVICE, None)


@pytest.mark.parametrize(
    ("name", "owner", "user"),
    [
        ("ann", "", "ann"),
        ("ann", "a-group", "ANN"),
        # Greek: the capital nu looks like N, the small one like v.
        ("Νils", "νils", ""),
    ],
)
def test_four_eyes_looks_at_owner_and_user_in_any_case(name: str, owner: str, user: str) -> None:
    """Who may be the same person approves nothing, and decides all else."""
    job = make_job(owner=owner, scheduler=SchedulerFacts(user=user))
    assert "owns the job" in decision_refusal(person(name), ACCESS, ADVICE, job, approving=True)
    assert decision_refusal(person(name), ACCESS, ADVICE, job) == ""
    another = replace(ADVICE, job_id="search/other")
    assert decision_refusal(person(name), ACCESS, another, job, approving=True) == ""


@pytest.mark.parametrize(
    ("name", "may"),
    [("nobody", False), ("vera", False), ("olga", True), ("ann", True), ("root", True)],
)
def test_who_submits(name: str, may: bool) -> None:
    """Owners, approvers and admins; a viewer looks."""
    assert (submit_refusal(person(name), ACCESS) == "") is may


@pytest.mark.parametrize("limit", ["viewer", "owner", "approver"])
@pytest.mark.parametrize("name", ["nobody", "vera", "olga", "ann", "root"])
@pytest.mark.parametrize("owner", ["olga", "ann", "somebody else"])
def test_a_token_gives_nothing_that_its_person_or_its_limit_lacks(
    name: str, limit: str, owner: str
) -> None:
    """Neither to look at, nor to decide or submit: an owner who looks sees their jobs alone."""
    job = make_job(owner=owner)
    limited = replace(person(name), max_role=limit)
    limits = replace(
        ACCESS, **{f"{role}s": "" for role in ("viewer", "owner", "approver", "admin")}
    )
    like_limit = replace(limits, **{f"{limit}s": name})
    for allows in (
        lambda who, access: may_see(who, access, ADVICE, job),
        lambda who, access: not decision_refusal(who, access, ADVICE, job),
        lambda who, access: not submit_refusal(who, access),
    ):
        if allows(limited, ACCESS):
            assert allows(person(name), ACCESS)
            assert allows(person(name), like_limit)


def test_an_owner_looks_by_a_token_at_their_own_jobs() -> None:
    """And decides nothing by it."""
    looks = replace(person("olga"), max_role="viewer")
    mine, others = make_job(owner="olga"), make_job(owner="ann")
    assert may_see(looks, ACCESS, ADVICE, mine)
    assert not may_see(looks, ACCESS, ADVICE, others)
    assert "viewer's token" in decision_refusal(looks, ACCESS, ADVICE, mine)
    assert "viewer's token" in submit_refusal(looks, ACCESS)
