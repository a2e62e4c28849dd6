"""Faults of exporters over drawn boards: nothing at work is changed, and what is wrong is told.

The oracle is the truth that was drawn, and a twin that does the same work and is told without a
fault. `python -m benchmarks.readings` draws many more.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from outsiders.campaign import SEED, scenario_count, shrink, source_of

from benchmarks._drawn_boards import DrawnJob, draw, write_answer
from benchmarks._exporter_faults import VARIANTS, draw_fault
from benchmarks._readings_judging import judge_exporters
from collectors.readings.dcgm_readings import ANOTHER_UNIT, NEVER_ABOVE_ONE, NO_NAMESPACE
from collectors.readings.exposition_text import read_prometheus_json
from data.catalogue.gpu_catalogue import load_gpu_catalogue

JOBS_A_STORE, MAX_SHOWN = 200, 3
LABELS_LOST = "name no pod or job"


def told_of(job: DrawnJob, folder: Path) -> str:
    """Return what the source's report warns of, of a recording of one job."""
    write_answer([job], folder / "answer.json")
    report = read_prometheus_json(folder / "answer.json", load_gpu_catalogue()).report
    return "\n".join(report.warnings)


def drawn(number: int) -> DrawnJob:
    """Return a job of some kind with the fault that is next, in one of its ways."""
    source = source_of("exporters", number)
    job = draw_fault(source, replace(draw(source, number), fault="", level=0.0))
    fault = [*VARIANTS][number % len(VARIANTS)]
    return replace(job, fault=fault, variant=source.choice(VARIANTS[fault]))


def broken_alone(job: DrawnJob) -> str | None:
    """Return what a job breaks in a store of its own."""
    with TemporaryDirectory() as folder:
        failures = judge_exporters([job], Path(folder))
    return failures[0][1] if failures else None


def test_no_fault_of_an_exporter_changes_what_is_at_work(
    tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """No change at work, none called idle, and the boards and the energy are those of the truth."""
    count = len(VARIANTS) * scenario_count(1)
    failures = []
    for first in range(0, count, JOBS_A_STORE):
        (folder := tmp_path / str(first)).mkdir()
        numbers = range(first, min(count, first + JOBS_A_STORE))
        failures += judge_exporters([drawn(number) for number in numbers], folder)
    line = f"faults of exporters: {count} jobs, seed {SEED}: {len(failures)} failed"
    measured(line)
    plainest = [(*shrink(job, broken_alone), reason) for job, reason in failures[:MAX_SHOWN]]
    assert not failures, "\n".join([line, *map(str, plainest)])


def test_a_job_of_which_one_board_tells_no_power_gets_no_cap(tmp_path: Path) -> None:
    """Its exporter changed the unit: number 738 of seed P14."""
    job = DrawnJob(
        number=738, kind="bursts of seconds", fault="unit changes", variant="power in mW",
        changes_at=0.371, boards=4, fields=("engine", "sm", "power"), program=30, duty=0.22056,
        period_minutes=30, step_seconds=900,
    )  # fmt: skip
    assert judge_exporters([job], tmp_path) == []


@pytest.mark.parametrize(
    ("fault", "variant", "words"),
    [
        *(
            ("unit changes", variant, ANOTHER_UNIT)
            for variant in VARIANTS["unit changes"]
            if variant != "utilization as a fraction"
        ),
        ("labels lost", "namespace, every 3", NO_NAMESPACE),
        ("labels lost", "all, every 3", LABELS_LOST),
        ("exporters disagree", "second at 0", "two exporters tell different values of gpu_util"),
        ("exporters disagree", "second at 0", "two exporters tell different values of memory_used"),
    ],
)
@pytest.mark.parametrize("changes_at", [0.5])
def test_what_an_exporter_does_wrong_is_told(
    fault: str, variant: str, words: str, changes_at: float, tmp_path: Path
) -> None:
    """Of each board that it is wrong about; and not of the same work without the fault."""
    plain = DrawnJob(kind="steady", step_seconds=900)
    job = replace(plain, fault=fault, variant=variant, changes_at=changes_at)
    assert words in told_of(job, tmp_path)
    assert told_of(plain, tmp_path) == ""


@pytest.mark.parametrize("kind", ["steady", "bursts of minutes", "bursts of seconds"])
@pytest.mark.parametrize("changes_at", [0.5])
def test_a_lone_utilization_that_may_be_a_fraction_is_unknown(
    kind: str, changes_at: float, tmp_path: Path
) -> None:
    """1 is a board at work or at rest: where nothing else is told, neither is believed."""
    job = DrawnJob(kind=kind, fault="unit changes", variant="utilization as a fraction",
                   changes_at=changes_at, fields=("gpu_util",), step_seconds=900)  # fmt: skip
    assert NEVER_ABOVE_ONE in told_of(job, tmp_path)
    samples = read_prometheus_json(tmp_path / "answer.json", load_gpu_catalogue()).samples
    later = samples[samples["sampled_at"] > samples["sampled_at"].quantile(changes_at + 0.05)]
    assert later["utilization_ratio"].max(skipna=True) != pytest.approx(0.01, abs=0.009)
