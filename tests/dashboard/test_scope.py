"""The scope of all pages: which jobs it takes, what an address says of it, and who follows it."""

import re

import pytest
import streamlit as st
from factories import H100, make_job

from dashboard.web.frame.page import link_to
from dashboard.web.frame.scope import Scope, asks_for, current_scope
from data.facts.jobs import Job, SchedulerFacts

JOB = make_job("ml/train", scheduler=SchedulerFacts(account="vision"))


@pytest.mark.parametrize(
    ("scope", "job", "taken"),
    [
        (Scope(), JOB, True),
        (Scope(), None, True),
        (Scope(namespace="ml"), JOB, True),
        (Scope(namespace="ml"), None, False),
        (Scope(namespace="m"), JOB, False),
        (Scope(namespace="ml", team="vision", model=H100), JOB, True),
        (Scope(namespace="ml", team="speech"), JOB, False),
        (Scope(team="vision"), make_job("ml/other"), False),
        (Scope(model="A100-SXM4-80GB"), JOB, False),
        (Scope(cluster="main cluster"), JOB, True),
        (Scope(cluster="paris"), JOB, False),
        (Scope(cluster="paris"), make_job("ml/train@paris"), True),
    ],
)
def test_a_scope_takes_the_jobs_that_fit_all_of_it(
    scope: Scope, job: Job | None, taken: bool
) -> None:
    """Names are compared whole; a job that nobody knows fits no filter."""
    assert scope.takes(job) is taken


def test_an_address_leaves_out_what_is_usual() -> None:
    """A link of the usual range and all jobs is as short as ever."""
    assert Scope().address() == {}
    assert Scope(days=30, team="a b").address() == {"days": "30", "team": "a b"}
    assert Scope(namespace="ml", model=H100).describe() == f"namespace ml, GPU model {H100}"


def test_links_of_tables_carry_the_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name stays last, where the table finds what it shows, and nothing breaks out of it."""
    assert link_to("jobs?job=", "a&b=c/d") == "jobs?job=a%26b%3Dc%2Fd"
    monkeypatch.setattr(st, "session_state", {"days": "30", "namespace": "a&b", "team": "all"})
    assert current_scope() == Scope(days=30, namespace="a&b")
    link = link_to("jobs?job=", "ml/train")
    assert link == "jobs?days=30&namespace=a%26b&job=ml%2Ftrain"
    shown = re.search(r"[?&][a-z]+=([^&]*)$", link)
    assert shown
    assert shown[1] == "ml%2Ftrain"
    assert link_to("jobs?job=", None) is None


@pytest.mark.parametrize(
    ("choices", "asks"),
    [
        ({}, False),
        ({"cluster": ("main cluster",)}, False),
        ({"cluster": ("main cluster", "paris")}, True),
    ],
)
def test_a_cluster_is_asked_for_where_there_are_several(
    choices: dict[str, tuple[str, ...]], asks: bool
) -> None:
    """Without a second one nothing is to choose."""
    assert asks_for("cluster", choices) is asks
    assert asks_for("namespace", choices)
