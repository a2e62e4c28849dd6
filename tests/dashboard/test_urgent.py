"""What cannot wait: it comes first wherever it is listed, and people are told of it, once a day."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds import two_tenants
from beds.apply_bench import Clock
from beds.mail_sink import MailSink, running_mail_sink
from beds.page_world import page_at
from beds.two_tenants import MINE, THEIRS
from browser.bed import running_server
from factories import (
    H100,
    NOW,
    make_collected,
    make_job,
    make_memory_finding,
    make_plan,
    make_recommendation,
    make_samples,
)

from benchmarks._page_client import open_page
from benchmarks.load import owners_sign_in
from dashboard.cycle.cycle_thread import CycleState
from dashboard.decisions.finding_filter import FindingOrder
from dashboard.decisions.findings import findings_now
from dashboard.decisions.service import DecisionService
from dashboard.notify.alerts import UrgentRounds
from dashboard.notify.deliver import Notifier
from dashboard.notify.messages import NO_LINK, messages_for
from dashboard.resources.alerts import urgent_facts
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.base.clock import utc_now
from data.facts.columns import XIDS, check_frame
from data.facts.fleet import SourceState
from data.facts.jobs import OwnNames
from data.records.actions import Action
from data.records.memory import MemoryOutlook
from data.settings.access import AccessSettings, NotifySettings
from data.settings.all_settings import Settings
from data.settings.load import LoadedSettings
from data.settings.reports import ReportSettings
from data.settings.statements import Budget, GpuPrice, StatementSettings
from data.store import Store, open_store
from data.store.handles.tenant_reader import OwnedReader

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
JOB, ROOMY = "search/ranker-0", "search/roomy"
RUNS_OUT = make_memory_finding(job_id=JOB)
SAVES = make_recommendation(job_id="search/other", job_name="other")
HELPS = make_recommendation(
    action=Action.LARGER_GPU, expires_at=NOW + timedelta(hours=3),
    savings=replace(SAVES.savings, cost=None),
)  # fmt: skip


def codes(*shown: tuple[int, int]) -> pd.DataFrame:
    """The XID codes that boards show, as (board, code)."""
    rows = [
        {
            "gpu_uuid": f"GPU-{board:04d}",
            "xid": code,
            "node": "node-1",
            "gpu_index": str(board),
            "first_seen_at": NOW - timedelta(hours=1),
            "last_seen_at": NOW,
        }
        for board, code in shown
    ]
    return check_frame(pd.DataFrame(rows), XIDS)


def fill(store: Store, xids: pd.DataFrame) -> None:
    """Keep two jobs, of which one runs out of memory, and these codes."""
    store.keep(
        make_collected(
            make_samples(gpus=4), (make_job(JOB, gpu_count=4), make_job("search/other")), xids=xids
        )
    )
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
        memory=(RUNS_OUT, replace(RUNS_OUT, job_id=ROOMY, outlook=MemoryOutlook.ROOM)),
        plan=make_plan(), recommendations=(SAVES, HELPS),
    )  # fmt: skip


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A job that runs out of memory, one that saves, and boards with codes of three kinds."""
    with open_store(store_url) as opened:
        fill(opened, codes((0, 79), (1, 13), (2, 0)))
        yield opened


@pytest.fixture
def sink() -> Iterator[MailSink]:
    """A mail server."""
    with running_mail_sink() as running:
        yield running


def rounds(store: Store, clock: Clock, **notify: object) -> UrgentRounds:
    """Somebody who looks what is urgent, under these settings of section notify."""
    settings = replace(Settings(), notify=replace(NotifySettings(), **notify))  # type: ignore[arg-type]
    return UrgentRounds(
        store=store, reader=store.reader_for_pages(), settings=lambda: settings, clock=clock
    )


def test_what_happened_comes_before_what_is_expected(store: Store) -> None:
    """A board off the bus with its job, then the job that runs out; a fault of a job is neither."""
    board, job = urgent_facts(store.reader, now=NOW, settings=Settings())
    assert (board.about, board.happened) == ("GPU 0 of node-1", True)
    assert board.what.startswith("XID 79, the board has fallen off the bus")
    assert board.what.endswith(f"{JOB} holds it")
    assert (job.about, job.at, job.happened) == (JOB, RUNS_OUT.at, False)
    assert "with a chance of at least 80 %" in job.what
    helps = store.reader.recommendation(HELPS.digest, now=NOW)
    assert (job.finding, job.digest) == (helps.reference, HELPS.digest)
    assert job.next_step == "What helps: Move it."


def test_nothing_is_urgent_where_nothing_is_known(store_url: str) -> None:
    """An empty store has no news."""
    with open_store(store_url) as empty:
        assert urgent_facts(empty.reader, now=NOW, settings=Settings()) == ()


def test_a_source_that_failed_is_an_alert_until_it_answers(store: Store) -> None:
    """With its reason; to nobody who sees their own jobs alone."""
    answer = make_collected(make_samples(minutes=1), ())
    nothing = answer.samples.iloc[:0]
    for number, state in enumerate((SourceState.FAILED, SourceState.RAN)):
        report = replace(answer.report, state=state, reason="connection refused")
        store.keep(replace(answer, batch_id=f"later-{number}", report=report, samples=nothing))
        facts = urgent_facts(store.reader, now=NOW, settings=Settings())
        sources = [fact.text for fact in facts if fact.kind == "source"]
        is_down = state is SourceState.FAILED
        assert len(sources) == is_down
        assert all("connection refused" in text for text in sources)
        own = OwnedReader(
            store.reader_for_pages(), OwnNames(owners=frozenset({"x"}), users=frozenset())
        )
        assert urgent_facts(own, now=NOW, settings=Settings()) == ()


def test_what_keeps_a_job_alive_is_listed_before_what_saves(store: Store) -> None:
    """On the pages and in the order that the command and the API have by default."""
    listed = store.reader.recommendations(now=NOW)
    assert [entry.recommendation.action for entry in listed] == [Action.LARGER_GPU, SAVES.action]
    found = findings_now(store.reader, now=NOW)
    ordered = sorted(found, key=FindingOrder.URGENT.key)
    assert [status.finding.action for status in ordered] == [Action.LARGER_GPU, SAVES.action]
    saving = sorted(found, key=FindingOrder.SAVING.key)
    assert [status.finding.action for status in saving] == [SAVES.action, Action.LARGER_GPU]


@pytest.mark.slow
@pytest.mark.parametrize("view", ["overview", "health"])
def test_every_page_says_it_and_reads_names_as_text(
    view: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line above the page: what, where, and the finding that helps; no markup of others."""
    hostile = "[x](https://evil.example)<b>:red[n]"
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as filled:
        fill(filled, codes((0, 79)).assign(node=hostile))
        settings = Settings()
        world = WebWorld(
            store=filled,
            settings=LoadedSettings(settings=settings, origins={}),
            decision_service=DecisionService(store=filled, settings=lambda: settings),
            cycle_state=CycleState, worker_problem=lambda: "", run_lifespan=nullcontext,
            clock=lambda: NOW,
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        register(world)
        app = page_at(view)
        app.run()
        assert not app.exception
        (told,) = [error.value for error in app.error if "**Urgent**" in error.value]
    assert "XID 79, the board has fallen off the bus" in told
    assert "(findings?finding=TT-2)" in told
    assert "[x]" not in told
    assert "<b>" not in told
    assert ":red[" not in told
    if view == "health":
        (rows,) = [
            entry.value
            for entry in app.dataframe
            if "next_step" in entry.value.columns and "since or expected" in entry.value.columns
        ]
        assert list(rows["finding"].fillna("")) == ["", "TT-2"]


def test_people_are_told_once_a_day(store: Store, sink: MailSink) -> None:
    """A mail for each, with the address of what helps; again only after a day."""
    clock = Clock(NOW)
    told = rounds(store, clock, mail_to="ops@site.example")
    assert told.tell_new()
    assert not told.tell_new()
    for hours, is_new in ((23, False), (2, True)):
        clock.forward(hours=hours)
        fresh = make_samples(gpus=4, minutes=1, end=clock())
        store.keep(replace(make_collected(fresh, ()), batch_id=f"after-{hours}"))
        assert told.tell_new() is is_new
    assert [entry.event for entry in store.reader.audit()] == ["urgent"] * 4
    assert not store.reader.verify_audit()
    notify = replace(NotifySettings(), mail_to="ops@site.example", smtp_url=sink.url)
    access = AccessSettings(public_url="https://trimtab.example.org")
    settings = replace(Settings(), notify=notify, access=access)
    notifier = Notifier(store=store, settings=lambda: settings, clock=clock)
    while notifier.deliver_once():
        pass
    board, job = sink.mails[0].text, sink.mails[1].text
    assert "Subject: Trimtab: urgent: GPU 0 of node-1: XID 79" in board
    assert "https://trimtab.example.org/admin" in board.replace("=\n", "")
    reference = store.reader.recommendation(HELPS.digest, now=NOW).reference
    assert f"/findings?finding=3D{reference}" in job.replace("=\n", "") or (
        f"/findings?finding={reference}" in job
    )
    assert len(sink.mails) == 4


def test_a_rack_that_fails_is_one_message(store: Store) -> None:
    """More than three things at once are one entry, which says how many."""
    store.keep(
        replace(
            make_collected(make_samples(gpus=8), (), xids=codes(*((n, 79) for n in range(8)))),
            batch_id="later",
        )
    )
    assert rounds(store, Clock(NOW), webhook_url="https://hook.example").tell_new()
    (entry,) = store.reader.audit()
    assert entry.detail.startswith("9 things at once: GPU 0 of node-1: XID 79")
    assert entry.detail.endswith("; and 6 more")
    webhook = NotifySettings(webhook_url="https://hook.example")
    (plain,) = messages_for(entry, webhook)
    assert plain.body.splitlines()[-2:] == ["trimtab urgent", NO_LINK]
    (linked,) = messages_for(entry, webhook, public_url="https://t.example")
    assert linked.body.splitlines()[-1] == "https://t.example/admin"


@pytest.mark.parametrize(
    "notify", [{}, {"mail_to": "ops@site.example", "events": "approved,stopped"}]
)
def test_nothing_is_entered_for_nobody(store: Store, notify: dict[str, object]) -> None:
    """Without a recipient, or where the settings leave it out, the record stays as it is."""
    assert not rounds(store, Clock(NOW), **notify).tell_new()
    assert store.reader.audit() == ()


@pytest.mark.slow
def test_an_owner_is_told_of_their_own_on_every_page(tmp_path: Path) -> None:
    """Their board and their job, with what to do; nothing that others gave a name."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as filled:
        two_tenants.fill(filled, utc_now())
    strip, own = "**Urgent** (2): ", f"{MINE}\\-node\\: XID 79, the board has fallen off the bus"
    others = (f"{THEIRS}/chat", f"{THEIRS}-node", f"{THEIRS}\\-node", f"{THEIRS} grows")
    with running_server(url, tmp_path, **owners_sign_in(two_tenants.TENANTS)) as server:
        for page in ("", "jobs", "serving", "costs", "savings", "energy", "reports"):
            answer = open_page(server.base, page, person=MINE, names=(strip, own, *others))
            assert answer.errors == ()
            assert answer.said == {strip, own}, page


@pytest.fixture
def spending(tmp_path: Path) -> Iterator[Store]:
    """Since four weeks search and ads hold a board each, up to March 20th in Apia."""
    times = pd.date_range(end=SPENT_AT, periods=28 * 288, freq="5min").as_unit("us")
    frames = [
        make_samples(minutes=len(times), end=SPENT_AT, job_id=job, gpu_uuid=f"GPU-{job}").assign(
            sampled_at=times
        )
        for job in ("search/a", "ads/b")
    ]
    jobs = (make_job("search/a"), make_job("ads/b", namespace="ads"))
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        opened.keep(make_collected(pd.concat(frames, ignore_index=True), jobs))
        yield opened


SPENT_AT = datetime(2026, 3, 20, 11, tzinfo=UTC)
"""Midnight in Apia, 13 h ahead: 20 days of March are over."""


def budgets(**per_month: float) -> Settings:
    """A day of a board costs 24; months of Apia."""
    statement = StatementSettings(
        charge_electricity=False,
        prices=(GpuPrice(gpu_model=H100, per_gpu_hour=1.0),),
        budgets=tuple(Budget(tenant=name, per_month=most) for name, most in per_month.items()),
    )
    return Settings(statement=statement, report=ReportSettings(timezone="Pacific/Apia"))


def test_a_budget_that_the_month_exceeds_is_urgent_until_it_does_not(spending: Store) -> None:
    """One that is spent, then one that will be and when; none that holds, and none next month."""
    reader, month = spending.reader, 31 * 24.0
    spent, soon = urgent_facts(
        reader, now=SPENT_AT, settings=budgets(search=25 * 24.0, ads=10 * 24.0)
    )
    assert (spent.about, spent.happened, soon.about, soon.happened) == (
        "ads",
        True,
        "search",
        False,
    )
    assert soon.key == "budget:2026-03:search"
    assert spent.at is not None
    assert soon.at is not None
    assert abs(spent.at - (SPENT_AT - timedelta(days=10))) < timedelta(minutes=10)
    assert abs(soon.at - (SPENT_AT + timedelta(days=5))) < timedelta(minutes=10)
    assert soon.what.startswith("its budget of 600 EUR will be spent in 5.0 d, on 2026-03-25 1")
    assert "744" in soon.what
    held = budgets(search=month + 1, ads=month + 1)
    assert urgent_facts(reader, now=SPENT_AT, settings=held) == ()
    over = budgets(search=25 * 24.0)
    last = SPENT_AT + timedelta(days=11)  # the month ends with this moment
    for at, count in ((last, 1), (last + timedelta(seconds=1), 0)):
        facts = urgent_facts(reader, now=at, settings=over)
        assert [fact.kind for fact in facts] == ["source", *["budget"] * count]
    own = OwnedReader(
        spending.reader_for_pages(), OwnNames(owners=frozenset({"x"}), users=frozenset())
    )
    assert urgent_facts(own, now=SPENT_AT, settings=over) == ()


def test_people_are_told_of_a_budget_once_a_month(spending: Store) -> None:
    """Once a tenant, however long it lasts; another tenant is news. Silent readings are told."""
    clock = Clock(SPENT_AT)
    notify = replace(NotifySettings(), mail_to="ops@site.example")
    told = [budgets(search=600.0), budgets(search=600.0, ads=240.0)]
    looks = UrgentRounds(
        store=spending,
        reader=spending.reader_for_pages(),
        settings=lambda: replace(told[0], notify=notify),
        clock=clock,
    )
    assert looks.tell_new()
    for _day in range(9):
        clock.forward(days=1)
        looks.tell_new()
    del told[0]
    assert looks.tell_new()
    about = [entry.detail.partition(":")[0] for entry in spending.reader.audit()]
    assert [name for name in about if name != "readings"] == ["search", "ads"]
