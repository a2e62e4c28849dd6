"""Asks Slurm through its own commands: squeue, sinfo or scontrol with --json, and sacct -P -D.

No shell, a deadline and a size limit for every command, times in UTC. `sacct -P` rather than its
JSON: it is the format that changed least, and with -D it shows every requeue and resize.
"""

import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

from collectors.shared.collector import Window
from collectors.slurm.accounting import (
    ACCOUNTING_FIELDS,
    SEPARATOR,
    checkpoint_sign,
    read_accounting_row,
    rows_of,
    submit_lines_of,
    with_sign,
)
from collectors.slurm.backend import (
    SlurmAnswers,
    errors_in,
    list_in,
    read_each,
    read_nodes,
    read_queue,
    release_in,
)
from collectors.slurm.failures import OPERATOR_HINT, failure_of
from collectors.slurm.queue_facts import with_queue_facts
from collectors.slurm.quotas import qos_of_partitions, slurm_quotas, with_partition_qos
from collectors.slurm.records import Record, SlurmJob
from collectors.slurm.reservations import reservations_in, with_reservations
from collectors.slurm.unread import unread_gres
from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.facts.jobs import JobState
from data.settings.sources import SlurmSettings

MAX_BYTES = 512 * 1024 * 1024
"""Of one command's output: some 100,000 jobs as JSON."""

TIMEOUT_SECONDS = 30.0
"""Of one command or request: three times Slurm's own default of `MessageTimeout`."""

_MAX_SCRIPTS = 100
"""Scripts that one collection reads: a request to slurmctld each."""

COMMANDS = ("squeue", "sinfo", "scontrol", "sacct")

_NODES_BY_SCONTROL = (23, 2)
"""From 23.02 on `scontrol show nodes` knows --json; until then `sinfo --json` lists nodes, later
it lists groups of them."""

_OPTIONS_BY_ENVIRONMENT = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_", "SLURM_CLUSTERS")
_UID = re.compile(r"\((\d+)\)")


class SlurmCommands:
    """The Slurm commands of this machine."""

    def __init__(self, settings: SlurmSettings) -> None:
        self.settings = settings

    @property
    def name(self) -> str:
        """Name of the source in reports."""
        return "slurm"

    def answers(self, window: Window) -> SlurmAnswers:
        """Return the answers of Slurm for the window. Errors: CollectorError."""
        dropped: Counter[str] = Counter()
        configuration = self.configuration()
        self._refuse_hidden(configuration)
        listed, records, release = self.listed()
        queue = read_queue(listed, dropped, release=release)
        nodes = read_nodes(records, dropped)
        nodes, warnings = with_reservations(nodes, self._reservations, window.end)
        try:
            rows = rows_of(self._accounting(window.start, window.end), dropped)
            past: tuple[SlurmJob, ...] | None = read_each(
                rows, read_accounting_row, what="accounting-row", dropped=dropped
            )
        except CollectorError as error:
            past = None
            warnings += (f"finished jobs are not visible: {error}",)
        queue = with_queue_facts(self._with_signs(queue), listed, nodes)
        quotas, hidden = slurm_quotas(
            self.output,
            configuration,
            sees_all=lambda: self.may_see_all(configuration),
            now=window.end,
            dropped=dropped,
        )
        if quotas:
            try:
                queue = with_partition_qos(queue, qos_of_partitions(self.output))
            except CollectorError as error:
                hidden += (f"the QOS of partitions is not visible: {error}",)
        return SlurmAnswers(
            queue=queue,
            nodes=nodes,
            past=past,
            warnings=(*warnings, *hidden),
            dropped=dropped,
            quotas=quotas,
            unread=unread_gres(records, listed),
        )

    def listed(self) -> tuple[list[Record], list[Record], tuple[int, int]]:
        """Return the records of all jobs and nodes, and the release. Errors: CollectorError."""
        document = self.document("squeue", "--json", "--states=all")
        release = release_in(document)
        listed = list_in(document, "jobs", source="squeue --json")
        if release >= _NODES_BY_SCONTROL:
            answered = self.document("scontrol", "show", "nodes", "--json")
        else:
            answered = self.document("sinfo", "--json")
        return listed, list_in(answered, "nodes", source="the list of nodes"), release

    def _reservations(self) -> list[Record]:
        return reservations_in(self.output("scontrol", "--oneliner", "show", "reservations"))

    def configuration(self) -> dict[str, str]:
        """Return the controller's configuration, such as {'PrivateData': 'none'}."""
        lines = self.output("scontrol", "show", "config").splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def program(self, command: str) -> str:
        """Return the path of a command. Errors: SourceNotConfiguredError."""
        folder = self.settings.bin_directory
        path = shutil.which(command, path=folder or None)
        if path is None:
            raise SourceNotConfiguredError(
                f"{command} is not found {f'in {folder}' if folder else 'on PATH'}",
                "Install Slurm's client programs (Debian: slurm-client), "
                f"{'correct' if folder else 'set'} slurm.bin_directory, or use slurm.mode=rest.",
            )
        return path

    def output(self, command: str, *arguments: str) -> str:
        """Return the standard output of a command. Errors: CollectorError."""
        argv = [self.program(command), *arguments]
        with tempfile.TemporaryFile() as out:
            try:
                done = subprocess.run(  # noqa: S603 - no shell; every argument is our own
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.PIPE,
                    env=self._environment(),
                    timeout=TIMEOUT_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise SourceUnreachableError(
                    f"{command} gave no answer in {TIMEOUT_SECONDS:g} s",
                    "Is slurmctld running and not overloaded?",
                ) from error
            except OSError as error:
                raise SourceNotConfiguredError(
                    f"cannot run {argv[0]}: {error.strerror}", "Check slurm.bin_directory."
                ) from error
            size = os.fstat(out.fileno()).st_size
            if size > MAX_BYTES:
                raise UnexpectedAnswerError(
                    f"{command} answered more than {MAX_BYTES >> 20} MiB",
                    "Collect more often, so that a collection reaches back less far.",
                )
            out.seek(0)
            text = out.read().decode("utf-8", errors="replace")
        if done.returncode != 0:
            raise _failure(command, done.returncode, done.stderr, text)
        return text

    def _environment(self) -> dict[str, str]:
        variables = {
            name: value
            for name, value in os.environ.items()
            # Every option of squeue and sacct can also be set by such a variable: a person's
            # SQUEUE_STATES or SACCT_FORMAT would change what is read here.
            if not name.startswith(_OPTIONS_BY_ENVIRONMENT)
        }
        variables |= {"LC_ALL": "C", "TZ": "UTC"}
        if self.settings.conf_file:
            variables["SLURM_CONF"] = str(Path(self.settings.conf_file).expanduser())
        return variables

    def document(self, command: str, *arguments: str) -> object:
        """Return the JSON of a command, when it lists no errors. Errors: CollectorError."""
        text = self.output(command, *arguments)
        try:
            document: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UnexpectedAnswerError(
                f"{command} --json answered no JSON: {scrub(text[:400])[:100]}",
                "Slurm 22.05 or later with the JSON plugins is needed.",
            ) from error
        errors = errors_in(document)
        if errors:
            words = "; ".join(errors)
            raise failure_of(
                f"{command} --json lists errors: {scrub(words)}",
                words,
                otherwise=f"Run {command} --json by hand as the same user.",
            )
        return document

    def _accounting(self, start: datetime, end: datetime) -> str:
        # A window of no length would show what runs at that moment only.
        until = max(end, start + timedelta(seconds=1))
        return self.output(
            "sacct", "--parsable2", f"--delimiter={SEPARATOR}", "--noheader", "--duplicates",
            "--allocations", "--allusers", f"--format={','.join(ACCOUNTING_FIELDS)}",
            f"--starttime={start:%Y-%m-%dT%H:%M:%S}", f"--endtime={until:%Y-%m-%dT%H:%M:%S}",
        )  # fmt: skip

    def _with_signs(self, queue: tuple[SlurmJob, ...]) -> tuple[SlurmJob, ...]:
        """Return the jobs with what their submissions tell of checkpoints.

        Accounting has the submit lines. Scripts are read one by one, of those that ran longest.
        """
        running = sorted(
            (job for job in queue if job.state is JobState.RUNNING and job.gpus and job.started_at),
            key=lambda job: (job.started_at, job.raw_id),
        )
        try:
            rows = self.output(
                "sacct", "--parsable2", f"--delimiter={SEPARATOR}", "--noheader", "--allocations",
                "--allusers", "--state=RUNNING", "--format=JobIDRaw,SubmitLine",
            )  # fmt: skip
        except CollectorError:
            rows = ""
        lines = submit_lines_of(rows)
        signs = {job.raw_id: checkpoint_sign(lines.get(job.raw_id, "")) for job in running}
        unsigned = [job for job in running if not signs[job.raw_id]]
        for job in unsigned[:_MAX_SCRIPTS]:
            try:
                script = self.output("scontrol", "write", "batch_script", job.raw_id, "-")
            except (SourceRefusedError, SourceUnreachableError):
                break
            except CollectorError:
                continue  # it has ended, or has none (salloc)
            signs[job.raw_id] = checkpoint_sign("", script)
        return tuple(with_sign(job, signs.get(job.raw_id, "")) for job in queue)

    def _refuse_hidden(self, configuration: dict[str, str]) -> None:
        """Refuse to take a part of the jobs for all of them."""
        hidden = hidden_kinds(configuration)
        if hidden and not self.may_see_all(configuration):
            raise SourceRefusedError(
                f"PrivateData={','.join(hidden)} in slurm.conf hides jobs or nodes from uid "
                f"{os.geteuid()}",
                OPERATOR_HINT,
            )

    def may_see_all(self, configuration: dict[str, str]) -> bool:
        """Return whether PrivateData hides nothing from this user: root, SlurmUser, an operator."""
        uid = os.geteuid()
        match = _UID.search(configuration.get("SlurmUser", ""))
        if uid == 0 or (match is not None and int(match[1]) == uid):
            return True
        try:
            level = self.output(
                "sacctmgr", "--noheader", "--parsable2", "show", "user", _user_name(uid),
                "format=AdminLevel",
            )  # fmt: skip
        except CollectorError:
            return False  # without accounting nobody is an operator
        return level.strip() in ("Operator", "Administrator")


def hidden_kinds(configuration: dict[str, str]) -> tuple[str, ...]:
    """Return the kinds of records that PrivateData hides: jobs, nodes, partitions."""
    kinds = configuration.get("PrivateData", "none").replace(" ", "").split(",")
    return tuple(kind for kind in kinds if kind in ("jobs", "nodes", "partitions"))


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _failure(command: str, code: int, stderr: bytes, stdout: str) -> CollectorError:
    """Return the error that a command's words stand for."""
    text = stderr.decode("utf-8", errors="replace").strip() or stdout.strip()
    return failure_of(
        f"{command} failed with code {code}: {scrub(text) or 'without a word'}",
        text,
        otherwise=f"Run {command} by hand as the same user.",
    )
