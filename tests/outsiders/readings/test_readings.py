"""What the product believes of drawn boards with faulty exporters, judged by the drawn truth.

One scenario is about 34 boards: the 300 of `make test-all` are 10,000. Many share a store, so a job
that fails is run again alone, as plain as it still fails.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from outsiders.campaign import SEED, scenario_count, shrink, source_of

from benchmarks._drawn_boards import WORK, DrawnJob, draw
from benchmarks._readings_judging import Judgement, judge

JOBS_A_SCENARIO, JOBS_A_STORE = 20, 400
MAX_SHOWN = 3
MAX_MISSED, MAX_FALSE_ALARMS, MIN_ALARMS = 0.02, 0.001, 1
"""Of bursts of seconds a counter is sometimes accused by chance."""


def broken_alone(job: DrawnJob) -> str | None:
    """Return what a job breaks in a store of its own."""
    with TemporaryDirectory() as folder:
        failures = judge([job], Path(folder)).failures
    return failures[0][1] if failures else None


def test_no_board_at_work_is_to_be_changed_and_stuck_counters_are_told(
    tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """No stop, shrink, cap or share at work; idle boards are found; contradicted counters told."""
    count = JOBS_A_SCENARIO * scenario_count(3)
    total = Judgement()
    for first in range(0, count, JOBS_A_STORE):
        numbers = range(first, min(count, first + JOBS_A_STORE))
        folder = tmp_path / str(first)
        folder.mkdir()
        total.add(judge([draw(source_of("readings", n), n) for n in numbers], folder))
    line = (
        f"readings: {total.boards} boards, seed {SEED}: {len(total.failures)} failed, "
        f"{total.missed} of {total.idle} idle missed, {total.kept} kept for a reason, "
        f"{total.advised} shared and advised, "
        f"{total.untold} of {total.visible} stuck counters untold, "
        f"{total.false_alarms} false alarms, {total.hidden} hidden"
    )
    print(line)  # noqa: T201 shown with a failure and by `make test-all`
    measured(line)
    plainest = [(*shrink(job, broken_alone), reason) for job, reason in total.failures[:MAX_SHOWN]]
    assert not total.failures, "\n".join([line, *map(str, plainest)])
    assert not total.untold, line
    assert total.missed + total.kept <= MAX_MISSED * total.idle, line
    assert total.false_alarms <= max(MIN_ALARMS, MAX_FALSE_ALARMS * total.boards), line


@pytest.mark.parametrize("kind", ["steady", "bursts of minutes"])
@pytest.mark.parametrize("fault", ["stuck engine", "decayed", "stuck profiling", "stuck sm"])
def test_work_behind_a_counter_at_rest_is_seen(kind: str, fault: str, tmp_path: Path) -> None:
    """A job at work whose counter is stuck at rest is kept, and the counter is told."""
    job = DrawnJob(kind=kind, fault=fault, boards=2)
    found = judge([job], tmp_path)
    assert (found.visible, found.untold, found.failures) == (1, 0, [])


@pytest.mark.parametrize("holders", [1, 3])
def test_work_that_nothing_shows_is_counted_and_never_judged(holders: int, tmp_path: Path) -> None:
    """A small program under a single counter that is stuck at 0 draws what an idle board does."""
    job = DrawnJob(
        kind="bursts of seconds", fault="stuck gpu_util", fields=("gpu_util", "power"),
        program=27, duty=0.66, holders=holders,
    )  # fmt: skip
    found = judge([job], tmp_path)
    assert (found.hidden, found.visible, found.failures) == (1, 0, [])


@pytest.mark.parametrize("kind", ["idle", "loaded and idle"])
@pytest.mark.parametrize("holders", [1, 2, 3])
def test_idle_boards_are_told_beside_jobs_that_work(
    kind: str, holders: int, tmp_path: Path
) -> None:
    """One holder is to be reclaimed; of several each is told that all of them stop together."""
    idle = DrawnJob(number=0, kind=kind, holders=holders, boards=2)
    others = [DrawnJob(number=n, kind=WORK[n % len(WORK)], holders=1 + n % 2) for n in range(1, 9)]
    found = judge([idle, *others], tmp_path)
    assert (found.idle, found.kept, found.missed, found.failures) == (2, 0, 0, [])
    assert found.advised == 2 * (holders > 1)
