"""A list without rows says why it has none: an empty store, or one that holds something else."""

from pathlib import Path

import pytest
from factories import make_collected, make_samples

from dashboard.cli import main
from dashboard.resources.listings import LISTINGS, NO_SAMPLES
from data.store import open_store

COMMANDS = {name: (name,) for name in LISTINGS} | {
    "applications": ("jobs", "--by", "application"),
    "audit": ("audit", "list"),
    "idle-jobs": ("jobs", "--idle"),
    "serving": ("serving", "services"),
}


def said(words: tuple[str, ...], url: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints on a store."""
    main(["--store", url, *words])
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_store_with_samples_is_not_called_empty(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples of boards that no job holds are no job, and no scheduler's nodes either."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(make_samples(job_id=""), ()))
    assert "store is empty" not in said(words, url, capsys)


@pytest.mark.parametrize("name", ["jobs", "applications", "gpus", "nodes", "sources"])
def test_an_empty_store_says_how_to_fill_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was asked yet, so that no list can tell more."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url):
        pass
    assert NO_SAMPLES in said(COMMANDS[name], url, capsys)


@pytest.mark.parametrize("name", ["jobs", "applications"])
def test_no_job_is_told_as_no_job(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who reads it looks at the sources, and does not collect once more."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(make_samples(job_id=""), ()))
    told = said(COMMANDS[name], url, capsys)
    assert "No job is known: no sample names one, and no scheduler told of one." in told
