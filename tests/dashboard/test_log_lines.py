"""What a server's log says: one line for every decision, command, step and outcome."""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.apply_bench import JOB, Bench, fill
from beds.file_cluster import FileCluster

from dashboard.apply.contract.kill_switch import resume, stop
from dashboard.cli.terminal.log_format import OneLine
from dashboard.decisions import approvals
from data.store import open_store

HOSTILE = "looks good\n2026-01-01 INFO dashboard: forged\x1b[31m\u202e"
LINE = re.compile(r"(INFO|WARNING) dashboard\.[\w.]+: \S.*")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What our own loggers write at INFO, formatted as the command line does."""
    text, factory, logger = (
        io.StringIO(),
        logging.getLogRecordFactory(),
        logging.getLogger("dashboard"),
    )
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.setLogRecordFactory(OneLine)
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield text
    logger.removeHandler(handler)
    logger.setLevel(level)
    logging.setLogRecordFactory(factory)


def test_every_decision_step_and_outcome_is_one_line(tmp_path: Path, log: io.StringIO) -> None:
    """From the approval to the outcome of the rollback, whatever a remark or a name contains."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        fill(store)
        bench = Bench(store, cluster, tmp_path)
        approvals.approve(
            store, bench.digest, by="Kim\nWARNING x", now=bench.clock(), comment=HOSTILE
        )
        bench.ask()
        path = bench.folder / "STOP"
        stop(path, by="Kim", reason=HOSTILE)
        bench.work(visits=4)
        resume(path)
        bench.work(visits=8)
        approvals.keep(store, bench.digest, by="Robin", now=bench.clock())
        bench.roll_back()
        bench.work(visits=8)
        assert bench.state == "rolled-back"
        rows = store.reader.journal(digest=bench.digest)
    lines = log.getvalue().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert all(line.isprintable() for line in lines)
    said = [line.partition(": ")[2] for line in lines]
    for kind, start in (("sending", "sending step"), ("answered", "step")):
        expected = sum(row.event == kind for row in rows)
        pattern = rf"\): {start} \d( was answered: done)?(:|$)"
        assert len([entry for entry in said if re.search(pattern, entry)]) == expected
    for words in (
        "approved by Kim WARNING x: fewer-gpus of search/ranker-0",
        "apply asked for by Robin",
        "applying is stopped by Kim",
        "waits: ",
        ": applied",
        "kept by Robin",
        "rollback asked for by Robin",
        ": rolled-back",
    ):
        assert sum(words in entry for entry in said) >= 1, (words, said)
    assert sum("waits: applying is stopped" in entry for entry in said) == 1
