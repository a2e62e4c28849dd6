"""What Slurm may do instead of answering: each is one named error with a next step."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from beds.faulty_server import faulty_server, resets, says
from beds.slurm_replay import answering, command_folder, recorded_commands, recorded_rest, refusal

from collectors.shared.collector import Window
from collectors.slurm import commands, rest
from collectors.slurm.jobs import slurm_collector, slurm_findings
from collectors.slurm.rest import SlurmRest
from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
)
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import SlurmSettings

END = datetime(2026, 11, 21, 12, tzinfo=UTC)
WINDOW = Window(start=END - timedelta(hours=12), end=END)
TOKEN = "signed"  # noqa: S105 - these servers check none
SOMEBODY = 4_000_000
"""A user id that is nobody's here."""


def by_commands(folder: Path) -> Collected:
    """What the commands of a folder give."""
    settings = SlurmSettings(mode="commands", bin_directory=str(folder))
    return slurm_collector(settings, load_gpu_catalogue()).collect(WINDOW)


def by_rest(url: str, **changes: object) -> Collected:
    """What a slurmrestd gives."""
    values: dict[str, object] = {
        "mode": "rest",
        "rest_url": url,
        "rest_user": "watcher",
        "rest_token": TOKEN,
    }
    settings = SlurmSettings(**(values | changes))  # type: ignore[arg-type]
    return slurm_collector(settings, load_gpu_catalogue()).collect(WINDOW)


def test_a_missing_command_is_named(tmp_path: Path) -> None:
    """With the package that has it."""
    with pytest.raises(SourceNotConfiguredError, match=r"scontrol is not found.*slurm-client"):
        by_commands(command_folder(tmp_path / "bin", squeue="true"))


@pytest.mark.parametrize(
    ("said", "kind", "hint"),
    [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            SourceUnreachableError,
            "slurmctld",
        ),
        ("slurm_load_jobs error: Access/permission denied", SourceRefusedError, "AdminLevel"),
        ("Munge encode failed: Failed to access", SourceRefusedError, "munged"),
        (
            "fatal: Could not establish a configuration source",
            SourceNotConfiguredError,
            "slurm.conf_file",
        ),
        ("squeue: unrecognized option '--json'", UnexpectedAnswerError, "22.05"),
        ("Segmentation fault", UnexpectedAnswerError, "by hand"),
    ],
)
def test_a_commands_last_words_become_an_error(
    said: str, kind: type[CollectorError], hint: str, tmp_path: Path
) -> None:
    """Controller down, denied, no munge, no configuration, too old, anything else."""
    folder = recorded_commands(tmp_path / "bin", "22.05")
    command_folder(folder, squeue=f'echo "{said}" >&2; exit 1')
    with pytest.raises(kind, match=hint) as caught:
        by_commands(folder)
    assert "squeue failed with code 1" in caught.value.message


@pytest.mark.parametrize(
    "printed", ["<html>", "", "[1,2]", "{}", '{"jobs": {}}', '{"jobs": [{"job_id": 1}]}']
)
def test_what_is_no_answer_is_named(printed: str, tmp_path: Path) -> None:
    """No JSON, other JSON, jobs that lack everything."""
    folder = recorded_commands(tmp_path / "bin", "22.05")
    command_folder(folder, squeue=f"printf '%s' '{printed}'")
    with pytest.raises(UnexpectedAnswerError):
        by_commands(folder)


def test_errors_in_an_answer_count_though_the_command_succeeds(tmp_path: Path) -> None:
    """A list of errors in the JSON is a refusal."""
    folder = recorded_commands(tmp_path / "bin", "22.05")
    errors = '{"jobs": [], "errors": [{"error": "Access/permission denied", "error_number": 2002}]}'
    command_folder(folder, squeue=f"echo '{errors}'")
    with pytest.raises(SourceRefusedError, match="2002"):
        by_commands(folder)


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its deadline."""
    monkeypatch.setattr(commands, "TIMEOUT_SECONDS", 0.3)
    folder = recorded_commands(tmp_path / "bin", "22.05")
    command_folder(folder, squeue="exec sleep 60")
    began = time.monotonic()
    with pytest.raises(SourceUnreachableError, match=r"no answer in 0\.3 s"):
        by_commands(folder)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "sacct",
    [
        'echo "Slurm accounting storage is disabled" >&2; exit 1',
        'echo "slurm_persist_conn_open: Connection refused" >&2; exit 1',
    ],
)
def test_without_accounting_the_rest_is_still_told(sacct: str, tmp_path: Path) -> None:
    """Running and waiting jobs are there; the report says that finished ones are not, and why."""
    folder = recorded_commands(tmp_path / "bin", "22.05")
    command_folder(folder, sacct=sacct)
    told = by_commands(folder)
    assert len(told.jobs) == 11
    assert told.report.warnings[0].startswith("finished jobs are not visible: sacct")


def test_without_slurmdbd_slurmrestd_still_tells_the_queue() -> None:
    """22.05 answers HTTP 200 with the error in its list; the hint names slurmdbd."""
    told = recorded_rest("22.05")
    down = (
        b'{"jobs": [], "errors": [{"error": "Failed connecting to slurmdbd", "error_number": 7}]}'
    )
    with answering(lambda path: (200, down) if "slurmdb/" in path else told(path)) as url:
        collected = by_rest(url)
    assert len(collected.jobs) == 11
    assert "Is slurmdbd running" in collected.report.warnings[0]


def test_hidden_jobs_are_refused_rather_than_half_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PrivateData hides nothing from an operator; from others it hides jobs without a word."""
    folder = recorded_commands(tmp_path / "bin", "22.05")
    hidden = "printf 'SlurmUser = slurm(64030)\\nPrivateData = jobs,usage\\n'"
    shown = (folder / "scontrol").read_text().removeprefix("#!/bin/sh\n")
    command_folder(folder, scontrol=f'case "$*" in *config*) {hidden};; *) {shown.strip()};; esac')
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    with pytest.raises(SourceRefusedError, match=r"PrivateData=jobs .*AdminLevel=Operator"):
        by_commands(folder)
    states = {what: state for what, state, _detail in findings(folder)}
    assert states["slurm visibility"] == "missing"
    command_folder(folder, sacctmgr="echo Operator")
    assert len(by_commands(folder).jobs) == 11


MODELS = "h100=H100-SXM5-80GB,a100=A100-SXM4-80GB"


def findings(folder: Path, models: str = "") -> tuple[tuple[str, str, str], ...]:
    """What the commands of a folder lack."""
    settings = SlurmSettings(mode="commands", bin_directory=str(folder), gpu_models=models)
    return slurm_findings(settings)


def test_each_finding_names_the_line_to_change(tmp_path: Path) -> None:
    """Nothing installed, no controller, no accounting, no GPUs in it, no prolog."""
    empty = command_folder(tmp_path / "empty")
    assert [(what, state) for what, state, _ in findings(empty)] == [("slurm commands", "missing")]
    folder = recorded_commands(tmp_path / "bin", "24.11")
    assert {state for _what, state, _detail in findings(folder, MODELS)} == {"ok"}
    lists = (folder / "scontrol").read_text().removeprefix("#!/bin/sh\n").strip()
    lines = {
        "AccountingStorageType = (null)\\nProlog = (null)": {
            "slurm accounting": "AccountingStorageType=accounting_storage/slurmdbd",
            "slurm job mapping": "Prolog=/etc/slurm/prolog.sh",
        },
        "AccountingStorageType = accounting_storage/slurmdbd\\nAccountingStorageTRES = cpu": {
            "slurm accounting of GPUs": "AccountingStorageTRES=gres/gpu",
            "slurm job mapping": "--hpc-job-mapping-dir",
        },
    }
    for said, expected in lines.items():
        command_folder(
            folder, scontrol=f"case \"$*\" in *config*) printf '{said}\\n';; *) {lists};; esac"
        )
        told = findings(folder, MODELS)
        missing = {what: detail for what, state, detail in told if state == "missing"}
        assert missing.keys() == expected.keys()
        assert all(line in missing[what] for what, line in expected.items())
    command_folder(folder, scontrol="echo Connection refused >&2; exit 1")
    assert findings(folder)[-1][:2] == ("slurm controller", "missing")
    assert slurm_findings(SlurmSettings()) == ()


@pytest.mark.parametrize("release", ["22.05", "24.11"])
@pytest.mark.parametrize("name", ["no token", "bad token"])
def test_a_refused_token_is_named(release: str, name: str) -> None:
    """401 without one; with a bad one 500 from 22.05 and 511 from 24.11."""
    told = recorded_rest(release)

    def answer(path: str) -> tuple[int, bytes]:
        return refusal(release, name) if path.endswith("/jobs") else told(path)

    with answering(answer) as url, pytest.raises(SourceRefusedError, match="scontrol token"):
        by_rest(url)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>please sign in</html>", UnexpectedAnswerError),
        (200, b"[]", UnexpectedAnswerError),
        (200, b'{"jobs": [], "errors": [{"error_number": 9001}]}', UnexpectedAnswerError),
        (302, b"", UnexpectedAnswerError),
        (404, b"Unable find requested URL.", UnexpectedAnswerError),
        (
            500,
            b'{"errors": [{"error": "Unable to contact slurm controller", "error_number": 1}]}',
            SourceUnreachableError,
        ),
        (500, b'{"errors": [{"error": "Access/permission denied"}]}', SourceRefusedError),
    ],
)
def test_other_answers_of_slurmrestd_are_named(
    status: int, body: bytes, kind: type[CollectorError]
) -> None:
    """HTTP 200 with errors is a refusal."""
    told = recorded_rest("22.05")

    def answer(path: str) -> tuple[int, bytes]:
        return (status, body) if path.endswith("/jobs") else told(path)

    with answering(answer) as url, pytest.raises(kind):
        by_rest(url)


def test_an_empty_queue_on_busy_nodes_is_hidden() -> None:
    """PrivateData answers an empty list, not a refusal."""
    told = recorded_rest("24.11")

    def answer(path: str) -> tuple[int, bytes]:
        return (200, b'{"jobs": []}') if path.endswith("v0.0.42/jobs") else told(path)

    with answering(answer) as url:
        with pytest.raises(SourceRefusedError, match="PrivateData"):
            by_rest(url)
        settings = SlurmSettings(mode="rest", rest_url=url, rest_user="watcher", rest_token=TOKEN)
        states = {what: state for what, state, _detail in slurm_findings(settings)}
    assert states["slurm visibility"] == "missing"


def test_only_known_api_versions_are_spoken() -> None:
    """A server of the future is named with what it offers."""
    paths = b'{"paths": {"/slurm/v0.0.99/jobs/": {}}}'
    with (
        answering(lambda _path: (200, paths)) as url,
        pytest.raises(UnexpectedAnswerError, match=r"v0\.0\.99"),
    ):
        by_rest(url)


def test_a_token_is_needed_and_read_anew(tmp_path: Path) -> None:
    """From the settings or a file, as `scontrol token` prints it."""
    with pytest.raises(SourceNotConfiguredError, match="rest_user"):
        by_rest("http://127.0.0.1:9", rest_user="")
    path = tmp_path / "token"
    with pytest.raises(SourceNotConfiguredError, match="rest_token_file"):
        by_rest("http://127.0.0.1:9", rest_token="", rest_token_file=str(path))
    path.write_text("SLURM_JWT=signed\n")
    with answering(recorded_rest("24.11")) as url:
        assert by_rest(url, rest_token="", rest_token_file=str(path)).jobs


def test_nobody_listens() -> None:
    """The message names the address."""
    with pytest.raises(SourceUnreachableError, match=r"127\.0\.0\.1:9"):
        by_rest("http://127.0.0.1:9")


@contextmanager
def dripping() -> Iterator[str]:
    """A server that sends a byte every tenth of a second, for as long as it is asked."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while not stop.wait(0.1):
                try:
                    self.wfile.write(b" ")
                except OSError:
                    return  # the client gave up, as it should

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_server_that_drips_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte comes in time, the answer does not."""
    monkeypatch.setattr(rest, "TIMEOUT_SECONDS", 1.0)
    began = time.monotonic()
    with dripping() as url, pytest.raises(SourceUnreachableError, match="no answer in 1 s"):
        by_rest(url)
    assert time.monotonic() - began < 4


@pytest.mark.parametrize(("resetting", "answered"), [(1, True), (2, False)])
def test_a_reset_connection_is_tried_once_more(resetting: int, *, answered: bool) -> None:
    """A busy slurmrestd resets what it took: a question alone is repeated, and only once."""
    script = [*[resets] * resetting, says(200, b'{"errors": []}')]
    with faulty_server(*script, names=()) as server:
        settings = SlurmSettings(mode="rest", rest_url=server.url, rest_user="u", rest_token=TOKEN)
        client = SlurmRest(settings)
        if answered:
            assert client.document("/slurm/ping") == {"errors": []}
        else:
            with pytest.raises(SourceUnreachableError):
                client.document("/slurm/ping")
        assert len(server.asked) == 2
