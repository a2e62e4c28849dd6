"""People of two tenants at the pages of one server at once: each sees their own, nobody else's."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from browser.bed import running_server
from factories import make_collected, make_job, make_plan, make_recommendation, make_samples
from reliability import Measured

from benchmarks.load import cross_talk, owners_sign_in, people_at_once
from benchmarks.pages import p95
from data.base.clock import floor_to_slot, utc_now
from data.store import open_store

JOBS = {"ada": "search/ranker-0", "bob": "vision/segmenter-7"}
PEOPLE, OPENS = 8, 3


def fill(url: str) -> None:
    """An hour of a job of each tenant, and a recommendation for each that is still valid."""
    now = floor_to_slot(utc_now(), 300)
    with open_store(url) as store:
        for owner, job_id in JOBS.items():
            job = make_job(job_id, owner=owner, first_seen_at=now, last_seen_at=now)
            samples = make_samples(end=now, job_id=job_id, gpu_uuid=f"GPU-{owner}")
            store.keep(make_collected(samples, (job,), batch_id=owner))
        advice = [
            make_recommendation(job_id=job_id, namespace=job_id.partition("/")[0])
            for job_id in JOBS.values()
        ]
        store.keep_cycle(
            cycle_id="c1",
            started_at=now,
            finished_at=now,
            forecasts=(),
            plan=make_plan(created_at=now, slot_starts=(now, now + timedelta(minutes=15))),
            recommendations=[
                replace(recommendation, created_at=now, expires_at=now + timedelta(days=1))
                for recommendation in advice
            ],
        )


@pytest.mark.slow
def test_people_of_two_tenants_at_once_see_their_own_alone(
    tmp_path: Path, measured: Measured
) -> None:
    """Every page of every session is that of its person, and none fails."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    fill(url)
    with running_server(url, tmp_path, **owners_sign_in(sorted(JOBS))) as server:
        visits = people_at_once(
            server.base, JOBS, people=PEOPLE, opens=OPENS, views=("findings", "overview")
        )
    assert len(visits) == PEOPLE * OPENS
    assert [text for visit in visits for text in visit.answer.errors] == []
    seen = {visit.person for visit in visits if visit.view == "findings"}
    assert seen == set(JOBS)
    assert cross_talk(visits, JOBS) == []
    measured(
        f"{PEOPLE} sessions of two tenants at once: {len(visits)} pages, none of another; p95 "
        f"{p95([visit.answer.seconds for visit in visits]):.1f} s"
    )
