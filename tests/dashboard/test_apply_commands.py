"""Applying from the command line: a command is written, and worked on here when no server is up."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.apply_bench import JOB, fill
from beds.file_cluster import FileApplier, FileCluster
from factories import make_recommendation

from dashboard.apply import APPLIERS, ApplierSource
from dashboard.cli import main
from dashboard.cli.parser.parser import build_parser
from dashboard.decisions.decision_table import WishKind
from data.base.clock import utc_now
from data.records.changes import (
    Change,
    ChangeStep,
    ReadBack,
    StepOutcome,
    StepResult,
    VerificationResult,
)
from data.store import open_store


@pytest.fixture
def command(  # type: ignore[no-untyped-def]
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Runs `trimtab` on a store with a fresh recommendation and a cluster in a file."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    monkeypatch.setitem(
        APPLIERS,
        "file",
        ApplierSource(
            enabled=lambda _settings: True, make=lambda _settings, _clock: FileApplier(cluster)
        ),
    )
    now = utc_now()
    with open_store(store_url) as store:
        fill(
            store,
            make_recommendation(created_at=now, expires_at=now + timedelta(hours=24)),
        )
    settings = tmp_path / "trimtab.toml"
    settings.write_text(
        f'[apply]\nenabled = true\nstop_file = "{tmp_path}/STOP"\ndirectory = "{tmp_path}/changes"'
        f'\n[store]\nurl = "{store_url}"\n'
    )

    def run(*words: str) -> tuple[int, str]:
        code = main(["--settings", str(settings), "--quiet", *words])
        return code, capsys.readouterr().out

    run.cluster = cluster  # type: ignore[attr-defined]
    run.settings = settings  # type: ignore[attr-defined]
    return run


def chosen(command) -> str:  # type: ignore[no-untyped-def]
    """The id of the recommendation."""
    _code, text = command("findings", "list", "--format", "json")
    return str(json.loads(text)[0]["revision"]["id"])


def test_approve_apply_rollback_keep(command) -> None:  # type: ignore[no-untyped-def]
    """Each ends with its outcome on one line, and the chain verifies against the head it prints."""
    one = chosen(command)
    assert command("findings", "approve", one, "--by", "Robin")[0] == 0
    assert command("findings", "apply", one, "--by", "Robin") == (
        0,
        f"{one} applied\n",
    )
    assert command("findings", "apply", one, "--by", "Kim") == (0, f"{one} applied\n")
    assert command.cluster.read(JOB)["gpus"] == "2"
    assert command("findings", "rollback", one, "--by", "Robin")[1].startswith(f"{one} rolled-back")
    assert command.cluster.read(JOB)["gpus"] == "4"
    code, text = command("audit", "verify")
    assert code == 0
    head = text.split()[-1]
    assert command("audit", "verify", "--head", head)[0] == 0
    assert command("audit", "verify", "--head", "f" * 64)[0] == 3
    assert "not measured yet" in command("savings")[1]
    assert json.loads(command("savings", "--format", "json")[1])["total"]["gpu_hours"] == {
        "measured": 0,
        "unknown": 1,
        "predicted": None,
        "realised": None,
    }


def test_an_approval_after_a_look_is_for_these_steps_alone(command) -> None:  # type: ignore[no-untyped-def]
    """They are printed before; what the target is afterwards needs another approval."""
    one = chosen(command)
    code, said = command("findings", "approve", "TT-1", "--by", "Robin", "--look")
    assert (code, "gpus: 4 -> 2" in said) == (0, True)
    command.cluster.create({JOB: {"gpus": "4", "model": "H100", "note": "moved"}})
    code, said = command("findings", "apply", one, "--by", "Robin")
    assert (code, "no longer the one that was previewed and approved" in said) == (1, True)
    assert command.cluster.read(JOB)["gpus"] == "4"


def test_what_the_target_refuses_is_not_approved(command) -> None:  # type: ignore[no-untyped-def]
    """The look ends it with the target's words, and the finding stays as it was."""
    command.cluster.create({JOB: {"gpus": "1", "model": "H100", "note": ""}})
    code, said = command("findings", "approve", "TT-1", "--by", "Robin", "--look")
    assert (code, said) == (1, "")
    assert json.loads(command("findings", "list", "--format", "json")[1])[0]["state"] == "open"


def test_stop_holds_and_resume_lets_go(command) -> None:  # type: ignore[no-untyped-def]
    """3 while stopped, with who stopped; `apply work` carries it out after the resume."""
    one = chosen(command)
    command("findings", "approve", one, "--by", "Robin")
    assert "stopped by Robin" in command("apply", "stop", "--by", "Robin", "--reason", "x")[1]
    code, text = command("findings", "apply", one, "--by", "Robin")
    assert (code, "stopped by Robin" in text) == (3, True)
    assert command.cluster.read(JOB)["log"] == []
    assert "stopped by Robin" in command("apply", "status")[1]
    assert command("apply", "resume", "--by", "Robin")[0] == 0
    assert command("apply", "resume", "--by", "Robin")[1] == "applying was not stopped\n"
    assert "visits" in command("apply", "work")[1]
    assert command.cluster.read(JOB)["gpus"] == "2"


@pytest.mark.timeout(120)
def test_work_ends_while_applying_is_stopped(command) -> None:  # type: ignore[no-untyped-def]
    """With a command that is open: it is named, and nothing is waited for."""
    one = chosen(command)
    command("findings", "approve", one, "--by", "Robin")
    command("apply", "stop", "--by", "Robin")
    command("findings", "apply", one, "--by", "Robin")
    code, said = command("apply", "work")
    assert (code, "visits to commands" in said) == (0, True)
    assert "is being applied: applying is stopped by Robin" in command("apply", "status")[1]


def test_while_applying_is_off_apply_writes_the_change_file(command) -> None:  # type: ignore[no-untyped-def]
    """Read-only is the default, and stays what it was."""
    command.settings.write_text(command.settings.read_text().replace("true", "false"))
    one = chosen(command)
    command("findings", "approve", one, "--by", "Robin")
    code, path = command("findings", "apply", one, "--by", "Robin")
    assert code == 0
    assert Path(path.strip()).is_file()
    assert command.cluster.read(JOB)["log"] == []


def test_a_refused_change_is_exit_status_one(command) -> None:  # type: ignore[no-untyped-def]
    """The reason stands on the line."""
    one = chosen(command)
    command.cluster.change(JOB, gpus="3")
    command("findings", "approve", one, "--by", "Robin")
    code, text = command("findings", "apply", one, "--by", "Robin")
    assert (code, "has 3 GPUs now" in text) == (1, True)


def test_both_words_for_apply_are_known() -> None:
    """`findings apply` and `apply status` stand beside one another."""
    parser = build_parser()
    assert parser.parse_args(["apply", "status"]).format == "table"
    words = ["findings", "apply", "x", "--by", "A"]
    assert parser.parse_args(words).decision is WishKind.APPLY_OR_WRITE
    assert parser.parse_args([*words, "--file"]).decision is WishKind.WRITE


def deaf_once(patch: pytest.MonkeyPatch) -> None:
    """Let the first command to the cluster get no answer."""
    execute, tries = FileApplier.execute, iter((True,))

    def answered(applier: FileApplier, step: ChangeStep, change: Change) -> StepResult:
        if not next(tries, False):
            return execute(applier, step, change)
        return StepResult(
            outcome=StepOutcome.BUSY, detail="no answer in 10 s", retry_after_seconds=2.0
        )

    patch.setattr(FileApplier, "execute", answered)


def test_a_cluster_that_does_not_answer_is_named_at_once(  # type: ignore[no-untyped-def]
    command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each try that gets no answer is told while the command goes on."""
    one = chosen(command)
    command("findings", "approve", one, "--by", "Robin")
    deaf_once(monkeypatch)
    code = main(["--settings", str(command.settings), "findings", "apply", one, "--by", "Robin"])
    printed = capsys.readouterr()
    assert (code, printed.out) == (0, f"{one} applied\n")
    assert "applying: no answer in 10 s\n" in printed.err


def test_the_outcome_is_told_in_the_words_of_the_look_that_found_it(  # type: ignore[no-untyped-def]
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later look that gets no answer is no word about what was applied."""
    one = chosen(command)
    command("findings", "approve", one, "--by", "Robin")
    read_back, looks = FileApplier.read_back, iter((True,))

    def silent_later(applier: FileApplier, change: Change, *, done: int) -> ReadBack:
        if next(looks, False):
            return replace(read_back(applier, change, done=done), detail="the values are set")
        return ReadBack(seen=VerificationResult.UNREADABLE, detail="no answer")

    monkeypatch.setattr(FileApplier, "read_back", silent_later)
    said = f"{one} applied: the values are set\n"
    assert command("findings", "apply", one, "--by", "Robin") == (0, said)
    assert command("findings", "apply", one, "--by", "Robin") == (0, said)
