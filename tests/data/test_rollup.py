"""The roll-up: every joule has one holder, and no order of arrival shows."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from drawn import examples
from factories import H100, NOW, make_collected, make_job, make_samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollup_cases import START, allocations, facts, nameless, rows_of

from collectors.readings.missing_labels import missing_label_warnings
from data.facts.columns import SAMPLES, check_frame, empty_frame
from data.facts.energy_integration import CAP_FACTOR, MAX_GAP_SECONDS, SLACK_JOULES
from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store
from data.store.engine.migrate import make_tables, migrate
from data.store.rollups import rollup
from data.store.rollups.rollup_sql import BRIDGE_SECONDS

TDP_WATTS = 700.0
CUTS = [[("", "")], [("1", "3g.40gb"), ("2", "2g.20gb")], [("7", "x")]]
RELAXED = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@st.composite
def boards(draw: st.DrawFn) -> pd.DataFrame:
    """Boards of every kind over three hours: cut by MIG, shared, nameless, with holes."""
    frames = []
    for number in range(draw(st.integers(1, 3))):
        seed = draw(st.integers(0, 2**31))
        random = np.random.default_rng(seed)
        steps = random.choice([15, 60, 60, 60, 137, 300, 301, 900], size=40)
        seconds = np.cumsum(steps)
        power = random.uniform(0, TDP_WATTS, len(seconds))
        counter = np.concatenate([[0.0], np.cumsum(power[1:] * np.diff(seconds))]) + 1e6
        if draw(st.booleans()):
            reset = random.integers(1, len(seconds))
            counter[reset:] -= counter[reset] - random.uniform(0, 1e3)
        if draw(st.booleans()):
            counter[random.integers(0, len(seconds)) :] += 1e9
        power[random.random(len(power)) < draw(st.sampled_from([0.0, 0.1, 1.0]))] = np.nan
        counter[random.random(len(power)) < draw(st.sampled_from([0.0, 0.1, 1.0]))] = np.nan
        frames += [
            pd.DataFrame(
                {
                    "sampled_at": pd.Timestamp(START) + pd.to_timedelta(seconds, unit="s"),
                    "gpu_uuid": f"GPU-{number}",
                    "mig_instance": instance,
                    "mig_profile": profile,
                    "node": "n1",
                    "gpu_index": str(number),
                    "gpu_model": H100,
                    "job_id": job,
                    "utilization_ratio": random.uniform(0, 1, len(seconds)),
                    "utilization_signal": "sm_active",
                    "power_watts": power,
                    "energy_joules": counter,
                }
            )
            for instance, profile in draw(st.sampled_from(CUTS))
            for job in draw(st.sampled_from([[""], ["a/b"], ["a/b", "c/d"]]))
        ]
    frame = pd.concat(frames, ignore_index=True)
    frame["sampled_at"] = frame["sampled_at"].astype("datetime64[us, UTC]")
    return check_frame(frame, SAMPLES)


def expected_joules(board: pd.DataFrame) -> float:
    """What the reference says of one board: counter where it is believed, else the trapezoid."""
    one = board.groupby("sampled_at")[["power_watts", "energy_joules"]].max()
    seconds = (one.index - pd.Timestamp(START)).total_seconds().to_numpy()
    power, counter = one["power_watts"].to_numpy(), one["energy_joules"].to_numpy()
    steps = np.diff(seconds)
    trapezoid = np.where(steps <= MAX_GAP_SECONDS, (power[1:] + power[:-1]) / 2 * steps, np.nan)
    counted = np.where(np.diff(counter) < 0, counter[1:], np.diff(counter))  # smaller: a reset
    plausible = counted <= CAP_FACTOR * TDP_WATTS * steps + SLACK_JOULES
    believed = np.where((steps > 0) & (steps <= MAX_GAP_SECONDS) & plausible, counted, np.nan)
    return float(np.nansum(np.where(np.isnan(believed), trapezoid, believed)))


@pytest.mark.slow
@settings(max_examples=examples(12), **RELAXED)
@given(samples=boards())
def test_jobs_idle_and_unattributed_add_up_to_the_board(
    samples: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is shared, cut, reset or missing: the parts are the board's energy, to 1e-9."""
    folder = tmp_path_factory.mktemp("energy")
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        opened.keep(facts(samples))
        fine, hours = rows_of(opened, "five_minute"), rows_of(opened, "hourly")
    for uuid, board in samples.groupby("gpu_uuid"):
        expected = expected_joules(board)
        for rows in (fine, hours):
            mine = rows[rows["gpu_uuid"] == uuid]
            for rule in ("joules", "joules_by_slices", "joules_by_activity"):
                assert mine[rule].sum() == pytest.approx(expected, rel=1e-9, abs=1e-6), rule
    assert fine["board_seconds"].sum() == pytest.approx(hours["board_seconds"].sum())


@pytest.mark.slow
@settings(max_examples=examples(20), **RELAXED)
@given(samples=boards(), data=st.data())
def test_no_order_of_arrival_shows(
    samples: pd.DataFrame, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Late, repeated, overlapping and contradicting samples and allocations: one table."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    disputed = samples.sample(frac=0.2, random_state=1).assign(
        power_watts=650.0, utilization_ratio=0.9, utilization_signal="gpu_util"
    )
    held = allocations(
        {"job_id": "slurm:1", "node": "n1", "gpu_index": "0"},
        {"job_id": "team/deployment/x", "label_id": "a/b", "ended_at": START + timedelta(hours=1)},
        {"job_id": "slurm:1", "node": "n1", "gpu_index": "0", "seen_at": NOW + timedelta(hours=1)},
    )
    everything = pd.concat([samples, disputed], ignore_index=True)
    tables = []
    for order in (np.arange(len(everything)), random.permutation(len(everything))):
        pieces = [facts(everything.iloc[part]) for part in np.array_split(order, 4)]
        pieces += [facts(held=held.iloc[[row]]) for row in random.permutation(len(held))]
        shuffled = [pieces[at] for at in random.permutation(len(pieces))]
        folder = tmp_path_factory.mktemp("order")
        with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
            for piece in shuffled:
                opened.keep(piece)
            tables.append([rows_of(opened, name) for name in ("five_minute", "hourly")])
    for table, other in zip(*tables, strict=True):
        pd.testing.assert_frame_equal(table, other, rtol=1e-9)


def test_how_many_hours_are_made_at_once_does_not_show(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty hours at once, by an hour, and as many as hold so many samples: one table."""
    store.keep(facts(make_samples(gpus=2, minutes=20 * 60, end=NOW, job_id="a/b")))
    made = [rows_of(store, name) for name in ("five_minute", "hourly")]
    assert len(made[1]) >= 40
    for hours, samples, chunks in ((1, 1, 21), (12, 1_500, 2), (12, 500_000, 1)):
        monkeypatch.setattr(rollup, "_MIN_HOURS", hours)
        monkeypatch.setattr(rollup, "_MAX_SAMPLES", samples)
        told: list[int] = []
        with store._engine.begin() as connection:
            connection.exec_driver_sql(
                "INSERT INTO dirty_hours SELECT DISTINCT slot_start FROM hourly"
            )
            rollup.roll_up(connection, progress=lambda _at, total, told=told: told.append(total))
        assert told[0] == chunks
        for table, name in zip(made, ("five_minute", "hourly"), strict=True):
            pd.testing.assert_frame_equal(rows_of(store, name), table, rtol=1e-9)


def holders(store: Store) -> dict[str, float]:
    """Device hours by holder, rounded to seconds."""
    rows = rows_of(store, "hourly")
    named = rows["job_id"].where(rows["holder"] == "job", rows["holder"])
    return {str(name): round(float(s)) for name, s in rows.groupby(named)["seconds"].sum().items()}


def test_an_allocation_by_index_names_the_holder(store: Store) -> None:
    """Slurm tells node and index; a FQDN and a short host name meet."""
    store.keep(facts(nameless(node="node-1.example.org")))
    store.keep(facts(held=allocations({"job_id": "slurm:7", "node": "NODE-1", "gpu_index": "0"})))
    assert holders(store) == {"slurm:7": 3600}


def test_an_allocation_of_all_boards_names_the_holder(store: Store) -> None:
    """A count on a node is enough when it is the whole node, and only then."""
    two = make_samples(gpus=2, minutes=61, job_id="", utilization_ratio=0.8)
    store.keep(facts(two, allocations({"job_id": "slurm:7", "node": "node-1", "gpu_count": 2.0})))
    assert holders(store) == {"slurm:7": 7200}


def test_an_allocation_of_some_boards_is_no_guess(store: Store) -> None:
    """One of two boards is held: which one is not known, so both stay unattributed."""
    two = make_samples(gpus=2, minutes=61, job_id="", utilization_ratio=0.8)
    store.keep(facts(two, allocations({"job_id": "slurm:7", "node": "node-1"})))
    assert holders(store) == {"unattributed": 7200}


def test_an_end_ends_what_a_stale_mapping_would_go_on_with(store: Store) -> None:
    """After the job's end an idle board is free and a busy one unattributed."""
    end = NOW - timedelta(minutes=30)
    span = {"job_id": "slurm:7", "node": "node-1", "gpu_index": "0", "ended_at": end}
    store.keep(facts(nameless(utilization_ratio=0.0, memory_used_mib=300.0), allocations(span)))
    assert holders(store) == {"slurm:7": 1800, "free": 1800}


def test_accounting_ends_what_the_queue_named(store: Store) -> None:
    """The queue told the device until 11:10; accounting tells later that the job ran to 11:40."""
    store.keep(facts(nameless(utilization_ratio=0.5)))
    other = nameless(gpu_uuid="GPU-other", utilization_ratio=0.0, memory_used_mib=300.0)
    store.keep(facts(other.assign(gpu_index="1")))
    named = {"job_id": "slurm:7", "node": "node-1", "gpu_index": "0"}
    seen = NOW - timedelta(minutes=50)
    store.keep(facts(held=allocations(named | {"seen_at": seen, "source": "queue"})))
    assert holders(store) == {"free": 3600, "slurm:7": 600, "unattributed": 3000}
    ended = {"job_id": "slurm:7", "node": "node-1", "ended_at": NOW - timedelta(minutes=20)}
    store.keep(facts(held=allocations(ended | {"gpu_count": 1.0, "source": "accounting"})))
    assert holders(store) == {"free": 3600, "slurm:7": 2400, "unattributed": 1200}


def test_labels_lead_to_the_workload(store: Store) -> None:
    """Samples name pods; the job is what a person would change."""
    store.keep(facts(make_samples(minutes=61, job_id="search/ranker-7d9f-x1")))
    alias = {"job_id": "search/deployment/ranker", "label_id": "search/ranker-7d9f-x1"}
    store.keep(facts(held=allocations(alias)))
    assert holders(store) == {"search/deployment/ranker": 3600}


def test_a_pod_of_a_known_workload_is_no_job_of_its_own(store: Store) -> None:
    """The list shows the workload, with the model that its boards report."""
    pod, workload = "search/ranker-x1", "search/deployment/ranker"
    samples = make_samples(minutes=61, job_id=pod)
    store.keep(make_collected(samples, (make_job(pod),)))
    alias = allocations({"job_id": workload, "label_id": pod})
    known = make_job(workload, gpu_model="", gpu_memory_mib=None)
    store.keep(make_collected(empty_frame(SAMPLES), (known,), allocations=alias, batch_id="w"))
    (job,) = store.reader.jobs()
    assert (job.job_id, job.gpu_model, job.gpu_memory_mib) == (workload, H100, 81559.0)
    assert store.reader.job(workload) == job


def test_a_short_loss_of_the_mapping_is_bridged(store: Store) -> None:
    """Two readings without a name between two of one job are that job's; three are not."""
    samples = make_samples(minutes=61, utilization_ratio=0.7)
    samples.loc[[20, 21, 40, 41, 42], "job_id"] = ""
    store.keep(facts(samples))
    assert holders(store) == {"search/ranker-0": 3600 - 180, "unattributed": 180}


@pytest.mark.parametrize(
    ("step", "hole", "after"),
    [(60, 1, "a/x"), (100, 2, "a/x"), (60, 3, "a/x"), (300, 1, "a/x"), (300, 2, "a/x"),
     (600, 2, "a/x"), (601, 2, "a/x"), (900, 1, "a/x"), (901, 1, "a/x"), (900, 2, "a/x"),
     (60, 1, "a/y"), (60, 2, "a/y"), (300, 1, "a/y")],
)  # fmt: skip
def test_a_hole_is_bridged_within_one_job_only(
    store: Store, step: int, hole: int, after: str
) -> None:
    """At most two readings and half an hour; between two jobs nobody held the board."""
    samples = make_samples(minutes=20, job_id="a/x", utilization_ratio=0.7)
    samples["sampled_at"] = pd.Timestamp(START) + pd.to_timedelta(np.arange(20) * step, unit="s")
    samples["sampled_at"] = samples["sampled_at"].astype("datetime64[us, UTC]")
    samples.loc[9 : 8 + hole, "job_id"] = ""
    samples.loc[9 + hole :, "job_id"] = after
    first, last = samples[:11], samples[11:]  # what comes later bridges what is kept
    store.keep(facts(first))
    store.keep(facts(last))
    bridged = after == "a/x" and hole <= 2 and (hole + 1) * step <= BRIDGE_SECONDS
    lost = 0 if bridged else hole
    rows = rows_of(store, "five_minute")
    found = rows.groupby(rows["job_id"].where(rows["holder"] == "job", rows["holder"]))
    readings = found["samples"].sum().to_dict()
    assert readings.get("unattributed", 0) == lost
    assert sum(readings.values()) == len(samples)
    assert readings["a/x"] == (9 if after == "a/y" else len(samples) - lost)
    assert bool(missing_label_warnings(samples)) is (bridged and hole > 0.05 * len(samples))


@pytest.mark.parametrize(
    "named",
    [
        {"gpu_uuid": "GPU-0000", "mig_instance": "1"},
        {"node": "node-1", "gpu_index": "0", "mig_instance": "1"},
    ],
    ids=["by UUID", "by index"],
)
def test_an_allocation_of_a_slice_does_not_reach_its_sibling(
    store: Store, named: dict[str, str]
) -> None:
    """Two slices of a board: the other works too, and nobody knows for whom."""
    slices = [
        nameless(mig_instance=instance, mig_profile=profile, utilization_ratio=0.5)
        for instance, profile in CUTS[1]
    ]
    store.keep(facts(pd.concat(slices), allocations({"job_id": "slurm:7"} | named)))
    rows = rows_of(store, "hourly")
    held = rows[rows["job_id"] == "slurm:7"]
    assert set(held["mig_instance"]) == {"1"}
    assert held["seconds"].sum() == 3600
    others = rows[rows["mig_instance"] == "2"]
    assert set(others["holder"]) == {"unattributed"}
    whole = allocations({"job_id": "slurm:8"} | named | {"mig_instance": ""})
    store.keep(facts(held=whole))
    rows = rows_of(store, "hourly")
    assert set(rows[rows["job_id"] == "slurm:8"]["mig_instance"]) == {"1", "2"}


def test_idle_and_unattributed_are_apart(store: Store) -> None:
    """No job: idle boards are free; work, held memory or no word at all are unattributed."""
    quiet = {"utilization_ratio": 0.0, "memory_used_mib": 400.0}
    cases = {
        "GPU-free": quiet,
        "GPU-busy": quiet | {"utilization_ratio": 0.4},
        "GPU-full": quiet | {"memory_used_mib": 60_000.0},
        "GPU-mute": {"utilization_ratio": np.nan, "memory_used_mib": np.nan},
    }
    for uuid, columns in cases.items():
        store.keep(facts(nameless(gpu_uuid=uuid, **columns)))
    rows = rows_of(store, "hourly").drop_duplicates(["gpu_uuid", "holder"])
    found = dict(zip(rows["gpu_uuid"], rows["holder"], strict=True))
    expected = {uuid: "free" if uuid == "GPU-free" else "unattributed" for uuid in cases}
    assert found == expected


def test_a_job_that_holds_and_does_nothing_is_found(store: Store) -> None:
    """Held-but-idle is the job's idle time, not free time."""
    store.keep(facts(make_samples(minutes=61, utilization_ratio=0.0)))
    energy = store.reader.energy(start=NOW - timedelta(hours=2), end=NOW, by="job")
    assert energy["key"].tolist() == ["search/ranker-0"]
    assert energy["idle_gpu_hours"].tolist() == pytest.approx([1.0])


def test_counter_and_power_that_disagree_are_flagged(store: Store) -> None:
    """More than a tenth apart over ten minutes is shown, less is not."""
    seconds = np.arange(61) * 60.0
    store.keep(facts(make_samples(minutes=61, energy_joules=seconds * 400 * 1.2)))
    fine = make_samples(minutes=61, energy_joules=seconds * 400 * 1.05)
    store.keep(facts(fine.assign(gpu_uuid="GPU-fine")))
    found = store.reader.energy_disagreements(start=NOW - timedelta(hours=2), end=NOW)
    assert found["gpu_uuid"].tolist() == ["GPU-0000"]
    assert found["counter_kwh"].tolist() == pytest.approx([0.48])
    assert found["power_kwh"].tolist() == pytest.approx([0.4])


@pytest.mark.parametrize("minute", range(0, 60, 3))
def test_samples_of_any_minute_of_an_hour_are_rolled_up(store: Store, minute: int) -> None:
    """A first collection may see a few minutes alone, far from both ends of the hour."""
    at = NOW.replace(minute=minute, second=20)
    store.keep(facts(make_samples(minutes=1, end=at)))
    (gpu,) = store.reader.gpus()
    assert gpu.last_seen_at == at
    store.keep(facts(make_samples(minutes=1, end=at + timedelta(seconds=20))))
    (gpu,) = store.reader.gpus()
    assert gpu.last_seen_at == at + timedelta(seconds=20)


def test_retention_forgets_samples_and_keeps_the_hours(store: Store) -> None:
    """Raw goes first, the hourly energy stays; what comes too late is refused and counted."""
    store.keep(facts(make_samples(minutes=61)))
    window = {"start": NOW - timedelta(hours=2), "end": NOW}
    before = store.reader.energy(**window, by="job")
    retention = RetentionSettings(raw_days=1, five_minute_days=1, hourly_days=30)
    deleted = store.forget(retention, NOW + timedelta(days=3))
    facts_deleted = {name: deleted[name] for name in ("samples", "five_minute", "hourly")}
    assert facts_deleted == {"samples": 61, "five_minute": 13, "hourly": 0}
    pd.testing.assert_frame_equal(store.reader.energy(**window, by="job"), before)
    late = make_samples(minutes=61, job_id="late/one")
    assert store.keep(facts(late)) == 0
    (report,) = store.reader.source_reports()
    assert report.dropped == (("older-than-retention", 61),)
    pd.testing.assert_frame_equal(store.reader.energy(**window, by="job"), before)


def test_tables_made_alone_are_those_of_a_whole_store() -> None:
    """Columns, types and defaults of what rolls up a PostgreSQL store, whatever altered them."""
    names = ("samples", "allocations", "five_minute", "hourly")
    alone, whole = (sa.create_engine("duckdb:///:memory:", poolclass=sa.StaticPool) for _ in "12")
    migrate(whole)
    with alone.begin() as connection:
        make_tables(connection, names)
    with alone.connect() as one, whole.connect() as other:
        for name in names:
            described = f"DESCRIBE {name}"
            rows = one.exec_driver_sql(described).all()
            assert rows == other.exec_driver_sql(described).all()
        assert len(one.exec_driver_sql("SHOW TABLES").all()) == len(names)
    alone.dispose()
    whole.dispose()
