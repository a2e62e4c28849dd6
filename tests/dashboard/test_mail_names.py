"""Names and groups are two sets, and a mail name is its whole self unless a setting says more."""

import json
from collections.abc import Iterator

import pytest
from beds.raw_requests import answer
from browser.bed import Server, running_server
from factories import make_collected, make_job

from data.base.clock import utc_now
from data.facts.jobs import SchedulerFacts
from data.store import open_store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server behind a proxy, with a job of a team, of a Slurm user and of a mail name."""
    folder = tmp_path_factory.mktemp("mail")
    url, now = f"duckdb:///{folder}/t.duckdb", utc_now()
    owners = {"team": ("vision", ""), "user": ("ada", "ada"), "mail": ("ada@site.example", "")}
    with open_store(url) as store:
        store.keep(make_collected(jobs=tuple(
            make_job(job_id=f"lab/{name}", name=name, namespace="lab", owner=owner, gpu_count=2,
                     scheduler=SchedulerFacts(user=user), last_seen_at=now)
            for name, (owner, user) in owners.items()
        )))  # fmt: skip
    access = {
        "MODE": "proxy", "PROXY_ADDRESSES": "127.0.0.1", "DEFAULT_ROLE": "owner",
        "MAIL_DOMAINS": "site.example",
    }  # fmt: skip
    settings = {f"TRIMTAB_ACCESS_{name}": text for name, text in access.items()}
    with running_server(url, folder, **settings) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "groups", "jobs"),
    [
        ("vision@evil.example", "", set()),
        ("vision@site.example", "", set()),
        ("kim", "vision", {"team"}),
        ("kim", "vision@evil.example", set()),
        ("ada@other.org", "", set()),
        ("ada@sub.site.example", "", set()),
        ("ada@site.example@other.org", "", set()),
        ("ada@SITE.example", "", set()),
        ("ada@", "", set()),
        ("@site.example", "", set()),
        ("kim", "ada@site.example", {"mail"}),
        ("ada@site.example", "", {"user", "mail"}),
        ("ada", "", {"user"}),
    ],
)
def test_whose_jobs_a_name_sees(server: Server, name: str, groups: str, jobs: set[str]) -> None:
    """As a started server answers its API to owners."""
    status, text = answer(server, "/api/v1/jobs", X_Forwarded_User=name, X_Forwarded_Groups=groups)
    assert status == 200, text
    assert {row["job_id"].partition("/")[2] for row in json.loads(text)["items"]} == jobs
