"""The store: repeats are harmless, totals are conserved, decisions are chained."""

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.forked_trimtab import Forked, fork_trimtab
from drawn import examples
from factories import NOW, make_collected, make_job, make_plan, make_recommendation, make_samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reliability import Measured
from tampering import tamper

from data.base.errors import SchemaTooNewError, StoreBusyError, StoreError
from data.facts.columns import SAMPLES
from data.records.recommendations import Decision
from data.store import Store, open_store
from data.store.engine.bulk import read_frame


def keep_cycle(store: Store, **changes: object) -> None:
    """Keep a cycle with one recommendation."""
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW,
        forecasts=(),
        plan=make_plan(),
        recommendations=(make_recommendation(**changes),),
    )


def table_of(store: Store) -> pd.DataFrame:
    """All samples in key order."""
    names = ", ".join(SAMPLES.names)
    with store._engine.connect() as connection:
        return read_frame(
            connection,
            f"SELECT {names} FROM samples ORDER BY {names}",  # noqa: S608
        )


def test_a_batch_kept_twice_changes_nothing(store: Store) -> None:
    """The batch id makes a replay harmless."""
    collected = make_collected()
    assert (store.keep(collected), store.keep(collected)) == (60, 0)
    assert store.reader.counts()["samples"] == 60


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_order_of_late_and_repeated_samples_gives_the_same_table(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Batches may overlap, repeat and arrive in any order."""
    samples = make_samples(gpus=2, minutes=10)
    order = data.draw(st.permutations(range(len(samples))))
    repeats = data.draw(st.lists(st.integers(0, len(samples) - 1), max_size=8))
    cut = data.draw(st.integers(0, len(samples)))
    rows = [*order, *repeats]
    expected = samples.sort_values(["sampled_at", "gpu_uuid"]).reset_index(drop=True)
    folder = tmp_path_factory.mktemp("order")
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        for part in (rows[:cut], rows[cut:]):
            opened.keep(make_collected(samples.iloc[part].reset_index(drop=True)))
        kept = table_of(opened)
    assert kept["gpu_uuid"].tolist() == expected["gpu_uuid"].tolist()
    assert kept["sampled_at"].dt.tz_convert("UTC").tolist() == expected["sampled_at"].tolist()


def test_nan_and_infinity_never_reach_an_aggregate(store: Store) -> None:
    """One bad reading must not poison an average: DuckDB's avg of NaN is NaN."""
    power = np.full(60, 400.0)
    power[3], power[7] = np.nan, np.inf
    store.keep(make_collected(make_samples(power_watts=power)))
    history = store.reader.job_history(
        "search/ranker-0", start=NOW - timedelta(hours=2), end=NOW, slot_seconds=3600
    )
    assert history["power_watts"].tolist() == pytest.approx([400.0])


def test_history_counts_gpus_and_sums_power(store: Store) -> None:
    """Two boards at half load are one effective GPU and twice the power."""
    store.keep(make_collected(make_samples(gpus=2), (make_job(gpu_count=2),)))
    row = store.reader.job_history(
        "", start=NOW - timedelta(minutes=30), end=NOW - timedelta(minutes=1), slot_seconds=3600
    ).iloc[0]
    assert row["effective_gpus"] == pytest.approx(1.0)
    assert row["allocated_gpus"] == 2
    assert row["power_watts"] == pytest.approx(800.0)


def mig_samples() -> pd.DataFrame:
    """One board cut in two: one instance held by a job, one free; board power repeated."""
    both = make_samples(gpus=2, minutes=61)
    return both.assign(
        gpu_uuid="GPU-0000",
        mig_instance=np.repeat(["1", "2"], 61),
        mig_profile="3g.40gb",
        job_id=np.repeat(["search/ranker-0", ""], 61),
    )


def test_energy_of_jobs_and_idle_is_the_board_integral(store: Store) -> None:
    """A board's energy is counted once, whatever its instances repeat."""
    store.keep(make_collected(mig_samples()))
    window = {"start": NOW - timedelta(hours=2), "end": NOW}
    for by in ("job", "namespace", "gpu_model", "day", "fleet"):
        energy = store.reader.energy(**window, by=by)
        assert energy["energy_kwh"].sum() == pytest.approx(0.4, rel=1e-9), by
    by_job = store.reader.energy(**window, by="job").set_index("key")
    assert by_job.loc["search/ranker-0", "gpu_hours"] == pytest.approx(3 / 7)
    assert by_job.loc["search/ranker-0", "idle_gpu_hours"] == pytest.approx(3 / 14)
    # Half of a free instance is busy: somebody works there, and nobody says who.
    assert by_job.loc["(unattributed)", "gpu_hours"] == 0
    assert by_job.loc["", "energy_kwh"] == pytest.approx(0.075 / 7)  # the free slice idles


def test_unknown_power_is_unknown_energy(store: Store) -> None:
    """Without power there is no energy figure, and it is not zero."""
    store.keep(make_collected(make_samples(power_watts=np.nan)))
    energy = store.reader.energy(start=NOW - timedelta(hours=2), end=NOW, by="fleet")
    assert energy["energy_kwh"].isna().all()


def test_gaps_above_five_minutes_are_unknown(store: Store) -> None:
    """Nothing is known between two samples an hour apart."""
    samples = make_samples(minutes=2)
    samples.loc[0, "sampled_at"] = samples.loc[1, "sampled_at"] - pd.Timedelta(hours=1)
    store.keep(make_collected(samples))
    assert store.reader.energy(start=NOW - timedelta(hours=2), end=NOW, by="fleet").empty


def test_fleet_parts_add_up_to_the_boards(store: Store) -> None:
    """Used + idle allocated + unknown + unattributed + free = boards in every slot."""
    store.keep(make_collected(pd.concat([mig_samples(), make_samples(gpus=3).iloc[60:]])))
    fleet = store.reader.fleet_history(start=NOW - timedelta(hours=2), end=NOW, slot_seconds=900)
    names = ("used", "idle_allocated", "unknown", "unattributed", "free")
    parts = fleet[[f"{name}_gpus" for name in names]].sum(axis=1)
    assert parts.tolist() == pytest.approx(fleet["boards"].tolist())


def test_planning_view_does_not_look_ahead(store: Store) -> None:
    """Samples after `now` are not part of the view."""
    store.keep(make_collected())
    view = store.reader.planning_view(
        NOW - timedelta(minutes=30), slot_seconds=900, history_days=14
    )
    assert view.as_of == NOW - timedelta(minutes=30)
    assert view.history["sample_count"].sum() == 29  # the last sample opens an incomplete slot
    assert view.signals == {"search/ranker-0": "sm_active"}
    assert view.cluster.boards_by_model() == {"H100-SXM5-80GB": 1}


@pytest.mark.parametrize(
    ("old_until", "new_since", "shared"),
    [(8, 10, False), (0, 2, True), (0, 60, True), (20, 50, True)],
)
def test_boards_that_change_hands_are_not_shared(
    store: Store, old_until: int, new_since: int, shared: bool
) -> None:
    """Exporters name the job before for some seconds more; who shares, shares for longer.

    Minutes before the newest reading: until when the old job is named, since when the new one is.
    """
    old = make_samples(minutes=120, job_id="a/old", end=NOW - timedelta(minutes=old_until))
    new = make_samples(minutes=new_since + 1, job_id="a/new")
    store.keep(make_collected(pd.concat([old, new]), (make_job("a/old"), make_job("a/new"))))
    view = store.reader.planning_view(NOW, slot_seconds=900, history_days=14)
    assert (view.signals["a/new"] == "shared") is shared


def test_newest_facts_of_a_job_win(store: Store) -> None:
    """An old batch that arrives late does not undo what is known."""
    new = make_job(gpu_count=2)
    old = make_job(gpu_count=4, last_seen_at=NOW - timedelta(hours=5))
    store.keep(make_collected(jobs=(new,)))
    store.keep(make_collected(jobs=(old,), batch_id="late"))
    assert store.reader.job("search/ranker-0") == new


def test_recommendation_read_back_has_the_same_digest(store: Store) -> None:
    """An approval names a digest, so reading must not change a bit."""
    keep_cycle(store)
    stored = store.reader.recommendation(make_recommendation().digest[:8], now=NOW)
    assert stored.recommendation == make_recommendation()
    assert stored.recommendation.digest == make_recommendation().digest
    assert store.reader.latest_plan() == make_plan()


def test_states_follow_decisions_and_time(store: Store) -> None:
    """proposed, then approved, then written; undecided ones expire."""
    keep_cycle(store)
    digest = make_recommendation().digest

    def state(hours: float = 0) -> str:
        return store.reader.recommendation(digest, now=NOW + timedelta(hours=hours)).state

    assert (state(), state(25)) == ("proposed", "expired")
    store.append_decision(digest=digest, decision=Decision.APPROVED, by="A", at=NOW, comment="")
    assert state() == "approved"
    store.append_decision(digest=digest, decision=Decision.WRITTEN, by="A", at=NOW, comment="")
    assert (state(), state(25)) == ("written", "written")


@pytest.mark.parametrize("wanted", ["abc", "zzzzzz", "%%%%%%", "' OR 1=1 --"])
def test_an_id_that_names_nothing_is_an_error(store: Store, wanted: str) -> None:
    """Wildcards and SQL are text, not patterns."""
    keep_cycle(store)
    with pytest.raises(StoreError):
        store.reader.recommendation(wanted, now=NOW)


def test_a_decision_on_an_unknown_digest_is_refused(store: Store) -> None:
    """Nothing can be approved that was never recommended."""
    with pytest.raises(StoreError):
        store.append_decision(
            digest="f" * 64, decision=Decision.APPROVED, by="A", at=NOW, comment=""
        )
    assert store.reader.audit() == ()


@pytest.mark.parametrize(
    "tampering",
    [
        ["UPDATE audit SET actor = 'B' WHERE sequence = 2"],
        ["DELETE FROM audit WHERE sequence = 2"],
        ["DELETE FROM audit WHERE sequence = 3"],
        ["UPDATE audit SET detail = detail || '!' WHERE sequence = 1"],
        [
            "UPDATE audit SET sequence = 9 WHERE sequence = 1",
            "UPDATE audit SET sequence = 1 WHERE sequence = 2",
            "UPDATE audit SET sequence = 2 WHERE sequence = 9",
        ],
    ],
    ids=["edited", "removed", "end cut off", "longer", "moved"],
)
def test_tampering_with_the_audit_is_detected(store: Store, tampering: list[str]) -> None:
    """Edited, removed and reordered rows break the chain."""
    keep_cycle(store)
    for decision in (Decision.APPROVED, Decision.WRITTEN, Decision.REJECTED):
        store.append_decision(
            digest=make_recommendation().digest, decision=decision, by="A", at=NOW, comment="x"
        )
    assert store.reader.verify_audit() == ()
    tamper(store, *tampering)
    assert store.reader.verify_audit()


def test_threads_read_while_one_writes(store: Store) -> None:
    """Readers on their own connections never see a wrong count."""
    wrong: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            count = store.reader.counts()["samples"]
            if count % 60:
                wrong.append(count)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for hour in range(8):
            store.keep(make_collected(make_samples(end=NOW + timedelta(hours=hour))))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert store.reader.counts()["samples"] == 480


def forked(script: str, folder: Path) -> Forked:
    """A process that runs a script in a folder, where what it says can be read."""
    program, log = folder / "script.py", folder / "said.log"
    program.write_text(script, encoding="utf-8")
    log.unlink(missing_ok=True)
    return fork_trimtab((), script=program, folder=folder, environ={**os.environ}, log=log)


def said(folder: Path) -> str:
    """All that it said so far."""
    log = folder / "said.log"
    return log.read_text(encoding="utf-8") if log.exists() else ""


@pytest.mark.parametrize("store_url", ["duckdb"], indirect=True)
def test_second_process_is_refused_with_the_holder_named(store: Store, tmp_path: Path) -> None:
    """The other process learns which PID holds the file and what to do."""
    script = (
        "from data.store import open_store\nfrom data.base.errors import StoreBusyError\n"
        f"try: open_store('duckdb:///{tmp_path}/t.duckdb')\n"
        "except StoreBusyError as error: print(error)"
    )
    assert forked(script, tmp_path).wait(timeout=120) == 0
    assert f"held by process {os.getpid()}" in said(tmp_path)
    assert StoreBusyError.__doc__


def test_newer_schema_is_refused(store_url: str) -> None:
    """A store of a newer Trimtab is left alone."""
    with open_store(store_url) as store:
        tamper(store, "INSERT INTO schema_version VALUES (999)")
    with pytest.raises(SchemaTooNewError, match="999"):
        open_store(store_url)


@pytest.mark.parametrize("version", [1, 6, 19])
def test_a_schema_that_is_no_longer_brought_forward_is_refused(
    store_url: str, version: int
) -> None:
    """It is left alone, and the message says which Trimtab opens it."""
    with open_store(store_url) as store:
        tamper(store, f"UPDATE schema_version SET version = {version}")  # noqa: S608
    with pytest.raises(StoreError, match=f"schema {version}, and this Trimtab reads 20"):
        open_store(store_url)


def test_flipped_log_is_no_empty_store(tmp_path: Path) -> None:
    """A damaged write-ahead log is an error that names the file, never a fresh store."""
    path = tmp_path / "w.duckdb"
    open_store(f"duckdb:///{path}").close()
    script = (
        "import os\nfrom factories import make_collected\nfrom data.store import open_store\n"
        f"store = open_store('duckdb:///{path}')\nstore.keep(make_collected())\nos._exit(9)"
    )
    assert forked(script, tmp_path).wait(timeout=120) == 9
    log = path.with_suffix(".duckdb.wal")
    damaged = bytearray(log.read_bytes())
    for position in range(len(damaged) // 4, len(damaged) // 2):
        damaged[position] ^= 0xFF
    log.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"w\.duckdb"):
        open_store(f"duckdb:///{path}")


@pytest.mark.slow
def test_kill_during_keep_leaves_whole_batches(
    store_url: str, tmp_path: Path, measured: Measured
) -> None:
    """After SIGKILL every acknowledged batch is there and no batch is partial."""
    script = (
        "from datetime import timedelta\n"
        "from factories import NOW, make_collected, make_samples\n"
        "from data.store import open_store\n"
        f"store = open_store('{store_url}')\n"
        "hour = store.reader.counts()['batches']\n"
        "while True:\n"
        "    hour += 1\n"
        "    end = NOW + timedelta(hours=hour)\n"
        "    store.keep(make_collected(make_samples(end=end), batch_id=str(hour)))\n"
        "    print(hour, flush=True)\n"
    )
    acknowledged = 0
    for _round in range(3):
        writer = forked(script, tmp_path)
        while said(tmp_path).count("\n") < 12:
            assert writer.poll() is None, said(tmp_path)
            time.sleep(0.02)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait(timeout=120) == -signal.SIGKILL
        acknowledged = int(said(tmp_path).splitlines()[-1])
        with open_store(store_url) as opened:
            counts = opened.reader.counts()
        assert counts["batches"] >= acknowledged
        assert counts["samples"] == 60 * counts["batches"]
    measured(f"4 kills: {acknowledged} batches acknowledged, none lost, none partial")


@pytest.mark.parametrize("store_url", ["duckdb"], indirect=True)
def test_external_files_are_out_of_reach(store: Store) -> None:
    """SQL that gets in could still not read the machine's files."""
    with store._engine.connect() as connection, pytest.raises(Exception, match="file system"):
        connection.exec_driver_sql("SELECT * FROM read_csv('/etc/passwd')")
