"""The benchmark on instance files: what somebody else's family comes to."""

from pathlib import Path

import pytest

from benchmarks import temporal_packing
from benchmarks.packing.temporal_instance import instance_of
from benchmarks.packing.text_format import format_instance


@pytest.mark.slow
def test_files_of_instances_are_packed_and_bounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is a family; bins, bound and both busy times are printed, nothing is written."""
    items = [(0, 4, 6), (0, 8, 5), (4, 12, 5), (6, 12, 5)]
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "four.txt").write_text(format_instance(instance_of(items, 10)), encoding="utf-8")
    before = temporal_packing.RESULTS.read_bytes()
    monkeypatch.setattr("sys.argv", ["temporal_packing", "--instances", str(folder)])
    temporal_packing.main()
    said = capsys.readouterr().out
    assert "| mine | 1 | 2 | 2 |" in said
    assert "1 (100.0 %)" in said
    assert "| four | " in said
    assert temporal_packing.RESULTS.read_bytes() == before
