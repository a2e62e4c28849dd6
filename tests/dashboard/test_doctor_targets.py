"""`trimtab doctor` names every target of changes that cannot be reached."""

from pathlib import Path

import pytest

from dashboard.cli import main
from data.store import open_store


def test_doctor_names_targets_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three are switched on and none is set up; switched off, none is looked at."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    open_store(url).close()
    for name, value in {
        "APPLY_KUBERNETES_ENABLED": "true",
        "APPLY_KUBERNETES_KUBECONFIG": str(tmp_path / "missing"),
        "APPLY_SLURM_ENABLED": "true",
        "APPLY_SLURM_BIN_DIRECTORY": "/nowhere",
        "APPLY_POWER_ENABLED": "true",
    }.items():
        monkeypatch.setenv(f"TRIMTAB_{name}", value)
    main(["--store", url, "doctor"])
    assert "changes of" not in capsys.readouterr().out
    monkeypatch.setenv("TRIMTAB_APPLY_ENABLED", "true")
    assert main(["--store", url, "doctor", "--format", "csv"]) == 3
    rows = [line for line in capsys.readouterr().out.splitlines() if "changes of" in line]
    settings = ("apply_kubernetes.kubeconfig", "apply_slurm.bin_directory", "apply_power.directory")
    assert len(rows) == len(settings)
    for row, setting in zip(rows, settings, strict=True):
        assert ",missing," in row
        assert setting in row
