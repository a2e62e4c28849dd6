"""No secret comes out anywhere, whatever a hostile server answers."""

import json
import traceback
from pathlib import Path

import pytest
from factories import make_collected
from hostile.canaries import MARK, environment, every_setting, running_adversary, secret_values

from dashboard.cli import main
from data.base.errors import TrimtabError, scrub, without_password
from data.settings.load import load_settings
from data.store import open_store

COMMANDS = (
    ("settings",),
    ("settings", "--format", "json"),
    ("settings", "--format", "csv"),
    ("doctor",),
    ("doctor", "--format", "json"),
    ("collect",),
    ("cycle",),
    ("sources",),
    ("sources", "--format", "json"),
    ("report", "weekly", "--format", "md"),
    ("report", "weekly", "--format", "json"),
    ("report", "weekly", "--send"),
    ("audit", "list"),
    ("jobs",),
)


def test_every_secret_setting_has_a_canary() -> None:
    """Those that are known today, and a new one as soon as it is declared."""
    found = secret_values("http://127.0.0.1:1")
    assert len(found) >= 7
    assert all(MARK in value for value in found.values())
    secrets = [entry for _section, _part, entry in every_setting() if entry.metadata["secret"]]
    assert len(found) == len(secrets)


def test_settings_in_a_traceback_show_no_secret() -> None:
    """The text that Python makes of them leaves every secret out."""
    environ = secret_values("http://127.0.0.1:1")
    environ.pop("TRIMTAB_PROMETHEUS_PASSWORD")
    loaded = load_settings(environ=environ)
    assert MARK not in repr(loaded)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql+psycopg://trimtab:{MARK}@db.example/trimtab",
        f"http://u:{MARK},a;b'c@h.example:9090/p?x=1",
        f"http://u:a:{MARK}@h.example",
        f"could not connect to http://u:x@{MARK}@h.example now",
    ],
)
def test_no_password_is_left_in_an_address(address: str) -> None:
    """Whatever characters it has; what stands around it is left."""
    for text in (without_password(address), scrub(address)):
        assert MARK not in text
        assert "example" in text


@pytest.mark.parametrize(
    "address",
    [
        "http://gitea.example:3000/team/fleet/pulls/7", "http://[2001:db8::1]:3000/p?x=1",
        "see http://h.example:8080.", "(https://h.example:443)", "http://a:1,http://b:2",
        "`http://h.example:8080`", "http://h.example:8080|down", "*http://h.example:3000/p*",
    ],
)  # fmt: skip
def test_an_address_with_a_port_is_shown_whole(address: str) -> None:
    """A port is not a password; with a user before it, or an @ behind it, it may be one."""
    assert scrub(address) == address
    for secret in (f"http://u:{MARK}@h.example:3000/p", f"http://h.example:3000/p?token={MARK}",
                   f"http://u:3000/{MARK}@h.example", f"redis://:{MARK}"):  # fmt: skip
        assert MARK not in scrub(f"{address} {secret}")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["token", "password", "file"])
def test_no_command_tells_a_secret(
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Servers that say back every header they get: nothing of it is printed, logged or kept."""
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "t.duckdb"
    with open_store(f"duckdb:///{store}") as opened:
        opened.keep(make_collected())
    said = {}
    with running_adversary() as adversary:
        for name, value in environment(adversary, tmp_path, way).items():
            monkeypatch.setenv(name, value)
        for command in COMMANDS:
            with caplog.at_level("DEBUG"):
                main(["--store", f"duckdb:///{store}", "--quiet", *command])
            captured = capsys.readouterr()
            said[command] = captured.out + captured.err + caplog.text
        with pytest.raises(TrimtabError) as raised:
            main(["--store", f"duckdb:///{store}", "--debug", "findings", "show", "abcdef"])
        said["--debug",] = "".join(traceback.format_exception(raised.value))
        heard = "".join(adversary.told)
    assert [command for command, text in said.items() if MARK in text] == []
    # They were used, or their absence would prove nothing.
    assert f"{MARK}-prometheus" in heard or way == "password"
    assert f"{MARK}-slurm-rest_token" in heard
    assert f"{MARK}-notify-webhook_url" in heard
    assert "AUTH" in heard
    assert f"{MARK}-kubeconfig" in heard
    assert MARK.encode() not in store.read_bytes()
    with open_store(f"duckdb:///{store}", create=False) as opened:
        kept = [opened.reader.audit(), opened.reader.source_reports(), opened.outbox.waiting()]
    assert MARK not in json.dumps(kept, default=str)
