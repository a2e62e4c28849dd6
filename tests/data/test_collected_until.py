"""Where each source was left, by its newest reports: as if all of them were read."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks._complete_report import complete_report
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.store import open_store
from data.store.facts import fact_reader

START = datetime(2026, 1, 5, tzinfo=UTC)
CYCLE = timedelta(minutes=15)


def reports_of(source: str, draw: random.Random, cycles: int) -> list[SourceReport]:
    """The reports of a source that fails at times, for long or for good, and leaves gaps."""
    reports, reached = [], START - timedelta(days=1)
    fails, share = False, draw.choice([0.0, 0.1, 0.5])
    for number in range(cycles):
        now = START + number * CYCLE
        fails = fails and draw.random() < 0.9 if fails else draw.random() < share
        report = complete_report(source, 0, start=reached, end=now)
        if fails:
            report = replace(report, state=SourceState.FAILED, complete_until=reached)
        elif draw.random() < 0.2:
            report = replace(report, complete_until=reached + (now - reached) * draw.random())
        elif draw.random() < 0.1:
            report = replace(report, window_end=None, complete_until=None)
        if not fails and (report.complete_until or report.window_end):
            reached = max(reached, report.complete_until or now)
        reports.append(report)
    return reports


@pytest.mark.parametrize("seed", range(6))
def test_the_newest_reports_tell_where_a_source_was_left(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that has failed for longer than these reach is found by its older ones."""
    draw = random.Random(seed)  # noqa: S311 a draw, no secret
    cycles = draw.randint(12, 24)
    by_source = {name: reports_of(name, draw, cycles) for name in ("prometheus a", "slurm", "b")}
    answers = complete_report("down", 0, start=START - CYCLE, end=START)
    fails = replace(answers, state=SourceState.FAILED, complete_until=answers.window_start)
    by_source["down"] = [answers] * 3 + [fails] * (cycles - 3)
    now = START + cycles * CYCLE
    with open_store(f"duckdb:///{tmp_path / 'facts.db'}") as store:
        for number, batch in enumerate(zip(*by_source.values(), strict=True)):
            store.keep(
                *(
                    Collected(
                        batch_id=f"{number}-{report.source}",
                        samples=empty_frame(SAMPLES),
                        jobs=(),
                        report=report,
                    )
                    for report in batch
                )
            )
        whole = store.reader.collected_until(now)
        monkeypatch.setattr(fact_reader, "NEWEST_REPORTS", 7)
        assert store.reader.collected_until(now) == whole
    assert whole["down"] == START
