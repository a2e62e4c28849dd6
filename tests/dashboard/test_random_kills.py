"""SIGKILL of whole cycles and reports at random instants: nothing acknowledged lost, nothing twice.

TRIMTAB_KILL_ROUNDS runs as many rounds of 10 kills each (`make test-all`); every round has a
seed of its own, and instants that it draws from the time that an unkilled program takes.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_string
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from beds.mail_sink import MailSink, running_mail_sink
from beds.mortal_programs import Mortals, running_mortals
from factories import make_collected, make_samples
from reliability import Measured

from collectors.shared.collector import Window
from collectors.simulated.cluster import simulated_collector
from data.settings.load import load_settings
from data.store import Store, open_store

ROUNDS = int(os.environ.get("TRIMTAB_KILL_ROUNDS", "1"))
KILLS = 10
READY_SECONDS = 10.0
MONDAY = datetime(2024, 1, 8, 8, tzinfo=UTC)
QUARTER, WEEK = timedelta(minutes=15), timedelta(days=7)
KEY = ["sampled_at", "gpu_uuid", "mig_instance"]
_DIFFERS = (
    "SELECT count(*) FROM {0} AS whole WHERE {1} <> "
    "(SELECT count(*) FROM {2} AS parts WHERE parts.{3} = whole.{3})"
)

pytestmark = [pytest.mark.slow, pytest.mark.slow_end]


@pytest.fixture(scope="module")
def mortals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortals]:
    """Programs that can be killed, one process for all of them."""
    with running_mortals(tmp_path_factory.mktemp("mortals")) as running:
        yield running


def reopened(url: str, slowest: list[float]) -> Store:
    """Open the store as the next process would, and note how long that took."""
    started = time.monotonic()
    store = open_store(url, create=not slowest)
    slowest.append(time.monotonic() - started)
    assert slowest[-1] < READY_SECONDS
    return store


def count(store: Store, query: str) -> int:
    """The one number that a query gives."""
    with store._engine.connect() as connection:
        return int(connection.execute(sa.text(query)).scalar_one())


def assert_whole(store: Store, acknowledged: list[str]) -> None:
    """Every acknowledged cycle is there once; each one that is there has all its parts."""
    with store._engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT cycle_id FROM cycles"))
        kept = Counter(row.cycle_id for row in rows)
    assert [kept[name] for name in acknowledged] == [1] * len(acknowledged)
    assert set(kept.values()) <= {1}
    broken = (
        _DIFFERS.format("cycles", "forecast_count + skipped_count", "forecasts", "cycle_id"),
        "SELECT count(*) FROM cycles ANTI JOIN plans USING (plan_id)",
        "SELECT count(*) FROM plans ANTI JOIN cycles USING (cycle_id)",
        "SELECT count(*) FROM forecasts ANTI JOIN cycles USING (cycle_id)",
        "SELECT count(*) FROM recommendations ANTI JOIN cycles USING (cycle_id)",
        _DIFFERS.format("batches", "row_count", "samples", "batch_id"),
        "SELECT count(*) FROM samples ANTI JOIN batches USING (batch_id)",
        "SELECT count(*) FROM dirty_hours",
    )
    assert [count(store, query) for query in broken] == [0] * len(broken)
    assert store.reader.verify_audit() == ()


def assert_fleet(store: Store, end: datetime) -> None:
    """The samples are those of the fleet, each once, without a hole."""
    with store._engine.connect() as connection:
        found = pd.read_sql(sa.text("SELECT * FROM samples"), connection)
    found["sampled_at"] = pd.to_datetime(found["sampled_at"], utc=True).astype(
        "datetime64[us, UTC]"
    )
    settings = load_settings(None, environ={"TRIMTAB_SIMULATED_FLEET_NODES": "1"}).settings
    start = found["sampled_at"].min().to_pydatetime() - timedelta(minutes=1)
    real = simulated_collector(settings).collect(Window(start=start, end=end)).samples
    assert not found.duplicated(KEY).any()
    both = real.merge(found, on=KEY, suffixes=("", "_found"))
    assert len(both) == len(real) == len(found)
    assert (both["job_id"] == both["job_id_found"]).all()


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_cycle_killed_at_any_instant_loses_nothing_and_repeats_nothing(
    tmp_path: Path, mortals: Mortals, seed: int, measured: Measured
) -> None:
    """The next cycle collects what the killed one did not keep; no part of a cycle is left."""
    url, chance, now = f"duckdb:///{tmp_path}/t.duckdb", np.random.default_rng(seed), MONDAY

    def cycles(kill_after: float | None) -> tuple[bool, list[str]]:
        nonlocal now
        commands = []
        for _cycle in range(2):
            now += QUARTER
            commands.append(["--store", url, "cycle", "--now", now.isoformat(), "--format", "json"])
        ended = mortals.run(commands, tmp_path, kill_after=kill_after)
        return ended.killed, [json.loads(name)["outcome"]["cycle_id"] for name in ended.printed]

    started = time.monotonic()
    _killed, acknowledged = cycles(None)
    usual = time.monotonic() - started
    kills, slowest = 0, [0.0]
    while kills < KILLS:
        killed, told = cycles(chance.uniform(0, usual))
        kills += killed
        acknowledged += told
        with reopened(url, slowest) as store:
            assert_whole(store, acknowledged)
    acknowledged += cycles(None)[1]
    with reopened(url, slowest) as store:
        assert_whole(store, acknowledged)
        assert_fleet(store, now)
    measured(
        f"{kills} kills of cycles: {len(acknowledged)} acknowledged, none lost, none twice, no "
        f"sample missing; ready again in at most {max(slowest):.1f} s"
    )


def mail_ids(sink: MailSink) -> Counter[tuple[str, str]]:
    """How often each message came: its subject and Message-ID."""
    mails = [message_from_string(mail.text) for mail in sink.mails]
    return Counter((str(mail["Subject"]), str(mail["Message-ID"])) for mail in mails)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_report_killed_at_any_instant_is_filed_once_and_arrives(
    tmp_path: Path, mortals: Mortals, seed: int, measured: Measured
) -> None:
    """What was said to be sent has arrived; a repeat has the same Message-ID; files are whole."""
    url, chance, out = (
        f"duckdb:///{tmp_path}/t.duckdb",
        np.random.default_rng(seed),
        tmp_path / "report.html",
    )
    with open_store(url) as store:
        day = make_samples(minutes=60 * 24, end=MONDAY, utilization_ratio=0.0)
        store.keep(make_collected(day))
    acknowledged: set[str] = set()
    with running_mail_sink() as sink:

        def send(kill_after: float | None) -> bool:
            report = ["--store", url, "report", "weekly", "--now"]
            week = (MONDAY + WEEK * len(acknowledged)).isoformat()
            ended = mortals.run(
                [
                    [*report, MONDAY.isoformat(), "--format", "html", "--out", str(out)],
                    [*report, week, "--send"],
                ],
                tmp_path,
                kill_after=kill_after,
                TRIMTAB_NOTIFY_SMTP_URL=sink.url,
                TRIMTAB_REPORT_MAIL_TO="ops@site.example",
                TRIMTAB_REPORT_TEAMS="search=s@site.example",
            )
            if len(ended.printed) == 2:
                acknowledged.add(ended.printed[1].split("week-to-")[1][:10])
            return ended.killed

        started = time.monotonic()
        send(None)
        usual = time.monotonic() - started
        kills, slowest = 0, [0.0]
        while kills < KILLS:
            kills += send(chance.uniform(0, usual))
            assert out.read_text(encoding="utf-8").rstrip().endswith("</html>")
            with reopened(url, slowest) as store:
                assert store.reader.verify_audit() == ()
            arrived = {subject for subject, _id in mail_ids(sink)}
            assert all(any(week in subject for subject in arrived) for week in acknowledged)
        send(None)
    with reopened(url, slowest) as store:
        filed = [entry.detail for entry in store.reader.audit() if entry.event == "reported"]
        outbox = count(store, "SELECT count(*) FROM outbox")
        assert count(store, "SELECT count(*) FROM outbox WHERE state <> 'sent'") == 0
    came = mail_ids(sink)
    assert len(filed) == len(set(filed)) == 2 * len(acknowledged)
    assert len(came) == outbox == len(filed)
    repeats = came.total() - len(came)
    assert repeats <= kills
    measured(
        f"{kills} kills of reports: {len(filed)} editions filed once, all arrived, {repeats} of "
        "them a second time under the same Message-ID"
    )
