"""Quotas by the command and the API: the same rows, and an owner's own queues alone."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from beds.api_clients import PROXY, clients, two_owners
from factories import NOW, make_collected, make_job, make_quota
from starlette.testclient import TestClient

from dashboard.cli import main
from dashboard.cycle.make_problem import fleet_rules
from data.facts.jobs import Job, Platform, SchedulerFacts
from data.facts.quotas import QuotaKind
from data.settings.load import load_settings
from data.store import open_store

HOSTILE = "ml\x1b[2J\nboss"


def test_the_command_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, CSV and JSON; unknown is a dash, empty and null."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    quotas = (make_quota(), make_quota(HOSTILE, used=None))
    with open_store(url) as store:
        store.keep(make_collected(quotas=quotas))
    capsys.readouterr()
    assert main(["--quiet", "--store", url, "quotas", "--format=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["queue"], row["nominal"], row["used"]) for row in rows] == [
        ("ml", 4, 3),
        (HOSTILE, 4, None),
    ]
    assert main(["--quiet", "--store", url, "quotas"]) == 0
    table = capsys.readouterr().out
    assert "\x1b" not in table
    assert len(table.splitlines()) == 3
    assert main(["--quiet", "--store", url, "quotas", "--format=csv"]) == 0
    assert capsys.readouterr().out.startswith("source,kind,queue,per,resource,flavor,gpu_model,")


def test_without_limits_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, so that programs read nothing."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        store.keep(make_collected())
    assert main(["--quiet", "--store", url, "quotas"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.strip()) == ("", "No scheduler tells of a limit on GPUs.")


def test_the_doctor_names_a_share_that_says_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the scheduler enforces counts, in the rules that plans keep to as well."""
    url, quotas = f"duckdb:///{tmp_path}/t.duckdb", (make_quota(),)
    with open_store(url) as store:
        store.keep(make_collected(quotas=quotas))
    path = tmp_path / "trimtab.toml"
    for quota, said in ((6, "quota 6 of ml says otherwise"), (4, "no scheduler says otherwise")):
        path.write_text(
            f"[tenants]\nby = 'account'\n[[tenants.shares]]\nname = 'ml'\nquota = {quota}\n"
        )
        main(["--settings", str(path), "--store", url, "doctor"])
        assert said in capsys.readouterr().out
        settings = load_settings(path, environ={}).settings
        assert fleet_rules(settings, quotas).tenants.shares[0].quota == 4


def slurm_job(job_id: str, user: str, account: str, qos: str) -> Job:
    """A job that was sent to an account and a QOS."""
    facts = SchedulerFacts(user=user, account=account, qos=qos)
    return make_job(job_id, owner=user, platform=Platform.SLURM, scheduler=facts)


def test_an_owner_sees_their_own_queues(tmp_path: Path) -> None:
    """Local queue, cluster queue, QOS, account and user of their jobs; a viewer sees all."""
    kube = make_job(
        "search/ranker", owner="search", scheduler=SchedulerFacts(extra=(("queue", "train"),))
    )
    jobs = (kube, slurm_job("slurm:1", "search", "ml", "high"), slurm_job("slurm:2", "x", "b", "q"))
    rows = [
        (QuotaKind.LOCAL_QUEUE, "search/train", "research"),
        (QuotaKind.LOCAL_QUEUE, "vision/train", "vision"),
        (QuotaKind.RESOURCE_QUOTA, f"{kube.namespace}/gpus", ""),
        (QuotaKind.RESOURCE_QUOTA, "vision/gpus", ""),
        (QuotaKind.CLUSTER_QUEUE, "research", "all"),
        (QuotaKind.CLUSTER_QUEUE, "vision", "all"),
        (QuotaKind.QOS, "high", ""),
        (QuotaKind.QOS, "q", ""),
        (QuotaKind.ACCOUNT, "ml", "root"),
        (QuotaKind.ACCOUNT, "b", "root"),
        (QuotaKind.USER, "ml/search", "ml"),
        (QuotaKind.USER, "ml/x", "ml"),
    ]
    quotas = [make_quota(queue, kind=kind, parent=parent) for kind, queue, parent in rows]
    quotas.append(replace(quotas[0], source="another cluster"))
    with two_owners(tmp_path) as store:
        for source in ("test", "another cluster"):
            made = make_collected(jobs=jobs if source == "test" else ())
            own = tuple(quota for quota in quotas if quota.source == source)
            report = replace(made.report, source=source, window_end=NOW)
            store.keep(replace(made, batch_id=source, quotas=own, report=report))
        with clients(store, PROXY) as as_:
            assert len(seen(as_, "vera")) == len(rows) + 1
            assert seen(as_, "search") == {
                "search/train", f"{kube.namespace}/gpus", "research", "high", "ml", "ml/search"
            }  # fmt: skip


def seen(as_: Callable[..., TestClient], who: str) -> set[str] | list[str]:
    """Return the queues that somebody is told of: as a set where none comes twice."""
    items = as_(who).get("/api/v1/quotas").json()["items"]
    names = [item["queue"] for item in items]
    return set(names) if len(set(names)) == len(names) else names
