"""What a tenant is unless a site says otherwise: an account of Slurm, else namespace or partition.

Partitions overlap on the same nodes and say nothing of who pays; accounting knows.
"""

from dataclasses import replace

import pytest
from factories import NOW, make_collected, make_job, make_quota, make_samples

from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.accounting.energy.build import make_statement
from dashboard.accounting.energy.statement import GroupBy
from data.facts.jobs import Job, Platform, SchedulerFacts
from data.settings.all_settings import Settings
from data.settings.fleet import TenantSettings
from data.store import Store
from planner.jobs.scheduler_shares import with_enforced_shares

TENANTS = {
    "account-or-namespace": {"ml", "long", "shop"},
    "namespace": {"gpu", "long", "shop"},
    "account": {"ml", "(unknown)"},
}


def of_slurm(number: int, account: str, partition: str) -> Job:
    """A job of a partition, with the account that accounting has, '' for none."""
    return make_job(
        f"slurm:{number}",
        platform=Platform.SLURM,
        namespace=partition,
        scheduler=SchedulerFacts(account=account),
    )


JOBS = (of_slurm(1, "ml", "gpu"), of_slurm(2, "", "long"), make_job("shop/job/train"))


def settings_of(by: str) -> Settings:
    """Return settings with what a tenant is."""
    return replace(Settings(), tenants=TenantSettings(by=by))


def test_the_default_is_the_account_else_the_namespace() -> None:
    """And every choice names each job as its word says."""
    assert Settings().tenants.by == "account-or-namespace"
    for by, names in TENANTS.items():
        assert {job.tenant(by) or "(unknown)" for job in JOBS} == names


@pytest.mark.parametrize("by", TENANTS)
def test_energy_costs_and_jobs_name_the_same_tenants(store: Store, by: str) -> None:
    """By whatever is asked: sums by tenant, sums by job, and names of jobs."""
    samples = make_samples(gpus=3, minutes=121)
    for board, job in enumerate(JOBS):
        samples.loc[samples["gpu_uuid"] == f"GPU-000{board}", "job_id"] = job.job_id
    store.keep(make_collected(samples, JOBS))
    settings = settings_of(by)
    start = samples["sampled_at"].min().to_pydatetime()
    energy = make_statement(
        store.reader, start=start, end=NOW, settings=settings, by=GroupBy.TENANT
    )
    assert {row.name for row in energy.rows} == TENANTS[by]
    for is_coarse in (True, False):
        cost = make_cost_statement(
            store.reader, settings, start=start, end=NOW, is_coarse=is_coarse
        )
        names = {row.names[0] for row in cost.rows_by("tenant")}
        assert TENANTS[by] <= names
        assert not names & set.union(*TENANTS.values()) - TENANTS[by]
    kept = store.reader.job_names(by)
    assert {kept[job.job_id] or "(unknown)" for job in JOBS} == TENANTS[by]


@pytest.mark.parametrize("by", TENANTS)
def test_a_limit_of_an_account_binds_a_plan_unless_tenants_are_others(by: str) -> None:
    """GrpTRES of `ml` is its share in a plan, whatever the partitions."""
    settings = with_enforced_shares(TenantSettings(by=by), (make_quota("ml"),), JOBS)
    assert ("ml" in {share.name for share in settings.shares}) == ("account" in by)
