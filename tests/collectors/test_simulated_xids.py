"""XID errors of the simulated fleet: the driver's gauge, the same however it is read."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.prometheus import backfill, running_prometheus

from benchmarks._exporter_dialects import DIALECTS, openmetrics
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.readings.exposition_text import read_dcgm_text
from collectors.shared.collector import Window
from collectors.simulated.exposition import exposition
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from collectors.simulated.simulated_xids import SimulatedXids, XidError, driver_loaded
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.catalogue.xid_table import meaning_of
from data.settings.sources import PrometheusSettings

END = datetime(2026, 1, 15, tzinfo=UTC)
LAST = int(END.timestamp())
DAY = 86_400
FLEET = SimulatedFleet(seed=7, nodes=8)
KEY = ["gpu_uuid", "xid"]


def always(_board: int, _at: int) -> bool:
    """Every board works at any time."""
    return True


def errors(boards: int, days: int, seed: int = 7) -> list[XidError]:
    """All errors of a fleet whose boards always work, in so many days."""
    xids = SimulatedXids(seed=seed, boards=boards, works=always)
    found = xids.errors(np.arange(boards), LAST - days * DAY, LAST)
    return [entry for entry in found if LAST - days * DAY < entry.at <= LAST]


def codes_of(one: XidError, *times: int) -> list[int]:
    """What the board of an error shows at times of so many seconds after it."""
    xids = SimulatedXids(seed=7, boards=512, works=always)
    at = np.array([one.at + later for later in times])
    return xids.last_codes(np.full_like(at, one.board), at).tolist()


def test_a_code_stays_until_the_driver_is_loaded_again() -> None:
    """0 before the first error of a driver's life, the code after it, 0 again with the next."""
    one = next(error for error in errors(512, 30) if error.xid == 31)
    loaded = int(driver_loaded(np.array([one.board]), np.array([one.at]))[0])
    restart = loaded + 3 * DAY - one.at
    assert codes_of(one, loaded - one.at, -1, 0, 1) == [0, 0, 31, 31]
    assert codes_of(one, restart) == [0]
    assert codes_of(one, restart - 1)[0] != 0


def test_the_last_error_counts() -> None:
    """Of two errors of one board in the life of its driver the later one is shown."""
    by_life: dict[tuple[int, int], list[XidError]] = {}
    for error in errors(1024, 300):
        loaded = int(driver_loaded(np.array([error.board]), np.array([error.at]))[0])
        by_life.setdefault((error.board, loaded), []).append(error)
    first, second = next(found for found in by_life.values() if len(found) == 2)
    assert first.at < second.at
    assert codes_of(second, first.at - second.at, -1, 0) == [first.xid, first.xid, second.xid]


def test_faults_of_jobs_are_common_and_those_of_boards_are_rare() -> None:
    """Most concern a job; some code is not in the table, and is shown as unknown."""
    found = Counter(meaning_of(error.xid).concerns for error in errors(512, 30))
    assert found["job"] > 5 * found["board"] > 0
    assert 0 < found["unknown"] < found["job"] / 10
    assert 0.3 < sum(found.values()) / (512 * 10 * 0.058) < 1.7


@pytest.mark.parametrize("seed", [1, 7, 20])
def test_at_most_one_board_in_a_month_falls_off_the_bus(seed: int) -> None:
    """In a large fleet one does now and then, shortly before its node is restarted."""
    fallen = [error for error in errors(512, 720, seed) if error.xid == 79]
    boards, times = (
        np.array([getattr(entry, name) for entry in fallen]) for name in ("board", "at")
    )
    assert len(fallen) in (11, 12, 13)
    assert np.diff(np.sort(times)).min() > 30 * DAY
    until_restart = driver_loaded(boards, times) + 3 * DAY - times
    assert ((until_restart > 0) & (until_restart <= 1200)).all()
    assert all(error.xid != 79 for error in errors(504, 720, seed))


def test_errors_come_where_a_job_works() -> None:
    """Each new code is first seen on a board that a job holds and uses."""
    samples = FLEET.history(END - timedelta(days=7), END, 300)
    shown = samples.assign(xid=FLEET.last_xids(samples)).sort_values("sampled_at")
    boards = shown.groupby("gpu_uuid")
    new = shown[(shown["xid"] != 0) & (shown["xid"] != boards["xid"].shift())]
    new = new[new["sampled_at"] > shown["sampled_at"].min()]
    assert len(new) >= 3
    assert set(new["xid"]) <= {13, 31, 43, 45, 48, 63, 64, 94, 95, 109}
    before = boards["job_id"].shift().loc[new.index]
    assert ((new["job_id"] != "") | (before != "")).all()


def test_any_window_shows_the_same_codes() -> None:
    """The boards have one past, however it is asked."""
    long = FLEET.history(END - timedelta(days=5), END, 300)
    short = FLEET.history(END - timedelta(hours=3), END, 300)
    keys = ["gpu_uuid", "mig_instance", "sampled_at"]
    both = short.assign(xid=FLEET.last_xids(short)).merge(
        long.assign(xid=FLEET.last_xids(long)), on=keys
    )
    assert len(both) == len(short)
    assert both["xid_x"].eq(both["xid_y"]).all()
    assert both["xid_x"].any()


def test_another_seed_has_other_errors() -> None:
    """Board and time come from the seed."""
    one, other = ({(error.board, error.at) for error in errors(64, 30, seed)} for seed in (7, 8))
    assert one
    assert one.isdisjoint(other)


def test_the_collector_gives_every_boards_codes() -> None:
    """A board without errors shows 0: none is told, not left open; times are those of samples."""
    source = SimulatedFleetCollector(fleet=FLEET, step_seconds=300)
    collected = source.collect(Window(start=END - timedelta(days=3), end=END))
    xids = collected.xids
    assert set(xids["gpu_uuid"]) == {device.gpu_uuid for device in FLEET.devices}
    assert not xids.duplicated(KEY).any()
    assert 0 < xids[xids["xid"] != 0]["gpu_uuid"].nunique() < 16
    assert set(xids["first_seen_at"]) <= set(collected.samples["sampled_at"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_scraped_is_what_is_collected(dialect: str, tmp_path: Path) -> None:
    """The gauge of each exporter that has it names the same boards and codes."""
    samples = FLEET.at_times(np.array([LAST]))
    path = tmp_path / "metrics.prom"
    path.write_text(exposition(FLEET, END, DIALECTS[dialect]), encoding="utf-8")
    read = read_dcgm_text(path, END, load_gpu_catalogue())
    if dialect in ("nvidia-smi", "jobstats"):
        assert read.xids.empty
        return
    if dialect == "dcgm-1.x":
        samples = samples[samples["mig_instance"] == ""]
    truth = dict(zip(samples["gpu_uuid"], FLEET.last_xids(samples).tolist(), strict=True))
    assert dict(zip(read.xids["gpu_uuid"], read.xids["xid"], strict=True)) == truth
    assert any(truth.values())
    assert read.report.dropped == ()


@pytest.mark.prometheus
def test_a_prometheus_tells_what_the_collector_tells(tmp_path: Path) -> None:
    """Three days of the fleet through a Prometheus: the same codes, first and last times."""
    step = 900
    start = END - timedelta(days=3)
    truth = SimulatedFleetCollector(fleet=FLEET, step_seconds=step).collect(
        Window(start=start, end=END)
    )
    backfill("".join(openmetrics(FLEET, truth.samples)), tmp_path)
    with running_prometheus(tmp_path) as url:
        settings = PrometheusSettings(url=url, step_seconds=step)
        source = PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())
        collected = source.collect(Window(start=start, end=END))
    frames = [
        entry.groupby(KEY, as_index=False).agg(
            first_seen_at=("first_seen_at", "min"), last_seen_at=("last_seen_at", "max")
        )
        for entry in (truth.xids, collected.xids)
    ]
    pd.testing.assert_frame_equal(*frames)
    assert (frames[0]["xid"] > 0).any()
