"""`trimtab doctor` names targets that cannot be reached, and messages that cannot link."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from factories import NOW, make_plan

from dashboard.cli import main
from data.base.counts import count_text
from data.records.serving import ServiceOutlook
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
    settings = ("apply_kubernetes.kubeconfig", "slurm.bin_directory", "apply_power.directory")
    assert len(rows) == len(settings)
    for row, setting in zip(rows, settings, strict=True):
        assert ",missing," in row
        assert setting in row


@pytest.mark.parametrize(
    ("told", "approvals", "public_url", "says"),
    [
        ({}, False, "", ""),
        ({"NOTIFY_MAIL_TO": "ops@site.example"}, False, "", "hold no link. Set access.public_url"),
        ({"NOTIFY_WEBHOOK_URL": "https://hook.example/x"}, True, "", "no button to approve"),
        ({"REPORT_MAIL_TO": "ops@site.example"}, False, "", "hold no link"),
        (
            {"NOTIFY_MAIL_TO": "ops@site.example"},
            False,
            "https://t.example",
            "link to https://t.example",
        ),
    ],
)
def test_doctor_says_whether_messages_can_link(
    told: dict[str, str],
    approvals: bool,
    public_url: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where somebody is told; a digest has no button without an address of the dashboard."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    open_store(url).close()
    behind = {"ACCESS_MODE": "proxy", "ACCESS_PROXY_ADDRESSES": "10.0.0.1"}
    secret = behind | {"CHAT_SLACK_SIGNING_SECRET": "s" * 32} if approvals else {}
    for name, value in {"ACCESS_PUBLIC_URL": public_url, **secret, **told}.items():
        monkeypatch.setenv(f"TRIMTAB_{name}", value)
    main(["--store", url, "doctor", "--format", "csv"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("links,")]
    assert [says in row for row in rows] == [True] * bool(says)
    assert all((",ok," if public_url else ",missing,") in row for row in rows)


@pytest.mark.parametrize(("currency", "told"), [("EUR", False), ("NPR", True)])
def test_prices_in_another_currency_than_the_sums_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    currency: str, *, told: bool,
) -> None:  # fmt: skip
    """Without a price list the catalogue's count, which are in EUR."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_ENERGY_CURRENCY", currency)
    open_store(f"duckdb:///{tmp_path}/t.duckdb").close()
    monkeypatch.setenv("TRIMTAB_SIMULATED_FLEET_ENABLED", "true")
    code = main(["--store", f"duckdb:///{tmp_path}/t.duckdb", "doctor", "--format", "json"])
    rows = {row["part"]: row for row in json.loads(capsys.readouterr().out)}
    assert ("prices" in rows) is told
    if told:
        assert "in EUR, counted as NPR without conversion" in rows["prices"]["detail"]
        assert rows.pop("prices")["state"] == "warning"
    assert rows.pop("readings")["state"] == "warning"  # none is in an empty store
    assert {row["state"] for row in rows.values()} == {"ok"}
    assert code == 0


@pytest.mark.parametrize("mute", [0, 1, 5])
def test_doctor_says_what_was_read_of_engines_and_what_hinders_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mute: int
) -> None:
    """With the cause and its fix, of three services at most; without a number nothing is broken."""
    monkeypatch.chdir(tmp_path)
    url = f"duckdb:///{tmp_path}/t.duckdb"
    monkeypatch.setenv("TRIMTAB_SIMULATED_FLEET_ENABLED", "true")
    known = ServiceOutlook(
        job_id="search/chat", namespace="search", service="chat", engine="vllm", model="m",
        read_until=NOW, replicas=3, running_requests=1.0, waiting_requests=0.0,
        requests_per_second=1.0, slot_starts=(NOW,), required_replicas=(2,),
    )  # fmt: skip
    rare = replace(
        known, slot_starts=(), required_replicas=(), replicas=1, reason="it is scraped too rarely"
    )
    others = (replace(rare, job_id=f"a/{n}", service=f"mute-{n}") for n in range(mute))
    with open_store(url) as store:
        store.keep_cycle(
            cycle_id="c", started_at=NOW, finished_at=NOW, forecasts=(), plan=make_plan(),
            recommendations=(), serving=(known, *others),
        )  # fmt: skip
    code = main(["--store", url, "doctor", "--format", "json"])
    rows = {row["part"]: row for row in json.loads(capsys.readouterr().out)}
    found = rows["inference services"]
    services = count_text(1 + mute, "service")
    assert f"{services} on {3 + mute} replicas" in found["detail"]
    assert found["state"] == ("warning" if mute else "ok")
    assert ("mute-0: it is scraped too rarely" in found["detail"]) is bool(mute)
    assert ("2 more" in found["detail"]) is (mute == 5)
    assert code == 0
