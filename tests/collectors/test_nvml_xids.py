"""XID errors through NVML's events: what happens while a session is open, and nothing made up."""

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from beds.nvml import H100, NOW, RECORDED, SOURCE, WINDOW, Play, build, collector, stub

from collectors.nvml.readings import Reading
from collectors.nvml.sampler import NvmlSampler, nvml_findings
from collectors.shared.collect import collect_all
from collectors.shared.collector import Window
from data.base.errors import SourceUnreachableError
from data.facts.collected import Collected
from data.facts.fleet import SourceState
from data.settings.sources import NvmlSettings

SCENARIO = [f"GPU-77777777-2222-3333-4444-55555555550{number}" for number in (1, 2, 3)]


def codes(collected: Collected) -> list[tuple[str, int]]:
    """Board and code of each row."""
    return list(zip(collected.xids["gpu_uuid"], collected.xids["xid"].tolist(), strict=True))


def shown(reading: Reading) -> list[tuple[int, float, float]]:
    """Code, first and last second after NOW of each row of a reading."""
    return [
        (
            int(str(row["xid"])),
            float(str(row["first_seen_at"])) - NOW.timestamp(),
            float(str(row["last_seen_at"])) - NOW.timestamp(),
        )
        for row in reading.xids
    ]


def until(true: Callable[[], bool]) -> None:
    """Wait, a minute at most."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.01)


def happen(file: Path, *xids: int) -> None:
    """Let the board of that file have errors."""
    with file.open("a", encoding="utf-8") as events:
        events.write("".join(f"{xid}\n" for xid in xids))


def test_errors_of_one_reading_are_told_with_board_and_place(
    library: Path, play: Play, proc: Path
) -> None:
    """Two errors of one board are two codes; a quiet board stays unknown after one look."""
    play("h100_xids")
    collected = collector(library, proc).collect(WINDOW)
    assert codes(collected) == [(SCENARIO[0], 31), (SCENARIO[0], 43), (SCENARIO[2], 79)]
    assert collected.xids["node"].eq("n1").all()
    assert collected.xids["gpu_index"].tolist() == ["0", "0", "2"]
    assert collected.xids["first_seen_at"].eq(NOW).all()
    assert collected.xids["last_seen_at"].eq(NOW).all()


def test_a_board_off_the_bus_tells_why_though_it_gives_no_reading(
    library: Path, play: Play, proc: Path
) -> None:
    """Its last error is known, its readings are missing."""
    play("h100_xids")
    collected = collector(library, proc).collect(WINDOW)
    assert set(collected.samples["gpu_uuid"]) == set(SCENARIO[:2])
    assert (SCENARIO[2], 79) in codes(collected)


def test_the_only_board_off_the_bus_is_no_silent_failure(
    library: Path, play: Play, proc: Path
) -> None:
    """No board answers, and the error that says why is kept, with a warning."""
    play(lines=H100.format(0) + "gpu0 xid 79\ngpu0 lost_at nvmlDeviceGetEnforcedPowerLimit\n")
    (collected,) = collect_all([collector(library, proc)], WINDOW)
    assert collected.report.state is SourceState.RAN
    assert (collected.report.reason, collected.report.completeness_ratio) == ("no board answers", 0)
    assert "GpuIsLost" in collected.report.warnings[0]
    assert codes(collected) == [("GPU-0", 79)]


def test_without_an_error_a_lost_machine_still_fails(library: Path, play: Play, proc: Path) -> None:
    """Watched events that told nothing do not make a collection of it."""
    play(lines=H100.format(0) + "gpu0 xid none\ngpu0 lost_at nvmlDeviceGetEnforcedPowerLimit\n")
    with pytest.raises(SourceUnreachableError):
        collector(library, proc).collect(WINDOW)


def test_errors_between_readings_are_not_lost(
    library: Path, play: Play, proc: Path, tmp_path: Path
) -> None:
    """None while none came; then the last code stays, as the gauge of DCGM does."""
    file = tmp_path / "events"
    happen(file, 13)
    play(lines=H100.format(0) + f"gpu0 xid_file {file}\n")
    with collector(library, proc).reading() as read:

        def after(seconds: int) -> list[tuple[int, float, float]]:
            return shown(read(lambda: NOW + timedelta(seconds=seconds)))

        assert after(0) == []
        assert after(10) == [(0, 0, 10)]
        happen(file, 31, 31, 94)
        assert after(20) == [(0, 0, 10), (31, 20, 20), (94, 20, 20)]
        assert after(30) == [(0, 0, 10), (31, 20, 20), (94, 20, 30)]
        happen(file, 31)
        assert after(40) == [(0, 0, 10), (31, 20, 40), (94, 20, 30)]
    assert stub(library, "nvml_stub_live_sets") == 0


def test_a_sampler_sees_what_happens_between_two_collections(
    library: Path, play: Play, proc: Path, tmp_path: Path
) -> None:
    """The set stays open while nobody collects; the next collection has the error."""
    file = tmp_path / "events"
    file.touch()
    play(lines=H100.format(0) + f"gpu0 xid_file {file}\n")
    clock = NOW - timedelta(minutes=4)

    def ticking() -> object:
        nonlocal clock
        clock += timedelta(milliseconds=10)
        return clock

    with NvmlSampler(collector(library, proc, clock=ticking), interval_seconds=0.01) as sampler:
        until(lambda: codes(sampler.collect(WINDOW)) == [("GPU-0", 0)])
        happen(file, 48, 63)
        until(lambda: 63 in sampler.collect(WINDOW).xids["xid"].tolist())
        later = Window(start=clock, end=NOW)
        until(lambda: clock > later.start + timedelta(seconds=1))
        assert sampler.stop()
        collected = sampler.collect(later)
    assert codes(collected) == [("GPU-0", 0), ("GPU-0", 48), ("GPU-0", 63)]
    assert stub(library, "nvml_stub_live_sets") == 0
    assert stub(library, "nvml_stub_sessions") == 0


def test_a_board_without_events_is_unknown_not_none(library: Path, play: Play, proc: Path) -> None:
    """However often it is read, nothing is said of its errors; its neighbour is watched."""
    play(lines=H100.format(0) + H100.format(1) + "gpu1 xid none\n")
    with collector(library, proc).reading() as read:
        read(lambda: NOW)
        second = read(lambda: NOW + timedelta(seconds=10))
    assert [(row["gpu_uuid"], row["xid"]) for row in second.xids] == [("GPU-1", 0)]
    assert not second.missing


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("system error nvmlEventSetCreate 999", "nvmlEventSetCreate: Unknown"),
        ("system error nvmlEventSetWait_v2 999", "nvmlEventSetWait_v2: Unknown"),
        ("system error nvmlEventSetWait_v2 15", "nvmlEventSetWait_v2: GpuIsLost"),
        ("gpu0 error nvmlDeviceRegisterEvents 4", "nvmlDeviceRegisterEvents: NoPermission"),
        ("gpu0 error nvmlDeviceRegisterEvents 999", "nvmlDeviceRegisterEvents: Unknown"),
        ("gpu0 xid 9223372036854775794", "XID event: no code"),
    ],
)
def test_events_that_fail_are_counted_and_cost_no_reading(
    library: Path, play: Play, proc: Path, line: str, reason: str
) -> None:
    """The reason is in the report, the errors stay unknown, the samples are there."""
    play(lines=f"{H100.format(0)}gpu0 xid none\n{line}\n")
    collected = collector(library, proc).collect(WINDOW)
    assert len(collected.samples) == 1
    assert collected.report.dropped == ((reason, 1),)
    assert collected.xids.empty
    assert stub(library, "nvml_stub_live_sets") == 0


def test_another_error_is_another_batch(library: Path, play: Play, proc: Path) -> None:
    """The same samples with another code are kept, not taken for the same."""
    batches = set()
    for xid in (31, 43):
        play(lines=H100.format(0) + f"gpu0 xid {xid}\n")
        batches.add(collector(library, proc).collect(WINDOW).batch_id)
    assert len(batches) == 2


def test_an_old_driver_without_the_call_leaves_errors_unknown(tmp_path: Path) -> None:
    """nvmlEventSetWait_v2 came with release 450: before it nothing is told and nothing counted."""
    library = build(tmp_path, "-DOLD_DRIVER")
    program = textwrap.dedent(
        """
        import sys
        from datetime import UTC, datetime, timedelta
        from collectors.nvml.sampler import NvmlCollector
        from data.catalogue.gpu_catalogue import load_gpu_catalogue
        from data.settings.sources import NvmlSettings
        settings = NvmlSettings(enabled=True, library=sys.argv[1])
        one = NvmlCollector(settings, load_gpu_catalogue(), "n1", gpm_gap_seconds=0.0)
        with one.reading() as read:
            found = [read(lambda: datetime(2026, 1, 8, second=at, tzinfo=UTC)) for at in (1, 2)]
        missing = [reason for one in found for reason in one.missing if "Event" in reason]
        print([one.xids for one in found], missing)
        """
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(library)],
        cwd=SOURCE.parents[3],
        env={"NVML_STUB_SCENARIO": str(RECORDED / "h100_xids.scenario")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.stdout.strip() == "[(), ()] []", answer.stderr


def test_doctor_names_boards_without_events(library: Path, play: Play, proc: Path) -> None:
    """A board whose errors NVML cannot report, with what to do; a watched one has no finding."""
    play(lines=H100.format(0) + H100.format(1) + "gpu1 xid none\n")
    settings = NvmlSettings(enabled=True, library=str(library))
    found = {what: detail for what, _, detail in nvml_findings(settings, proc_root=proc)}
    assert found["GPU 0 XID events"].startswith(
        "nvmlDeviceRegisterEvents: NotSupported: its errors"
    )
    assert not [what for what in found if what.startswith("GPU 1 XID")]
    assert stub(library, "nvml_stub_live_sets") == 0
