"""Slurm through its client programs: squeue and sinfo to look, scontrol and scancel to change.

No shell, a deadline and a cap for every program, times in UTC, no variable of a person's own.
"""

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from collectors.slurm.backend import list_in, release_in
from collectors.slurm.commands import SlurmCommands
from collectors.slurm.quotas import quotas_of_job, slurm_quotas
from collectors.slurm.records import Record, SlurmJob
from collectors.slurm.reservations import reservations_in
from dashboard.apply.slurm.client.client import Partition, Records, explained
from dashboard.apply.slurm.client.requests import COMMANDS, Payload, interface_name
from dashboard.apply.slurm.client.responses import CommandAnswer, CommandOutcome, answer_of
from dashboard.apply.slurm.client.time_limits import limit_of_partition
from data.base.clock import utc_now
from data.base.errors import CollectorError, scrub
from data.facts.quotas import Quota

MAX_WORDS = 64 * 1024
"""Of what a changing program says, in bytes; a sentence is what it has to say."""

TIMEOUT_SECONDS = 10.0
"""Of what changes a job: less than of what reads, a look tells whether it was taken."""

_PROGRAMS = ("scontrol", "scancel")
_NODES_BY_SCONTROL = (23, 2)
_UNKNOWN_JOB = "Invalid job id specified"


class SlurmPrograms:
    """The client programs of this machine."""

    def __init__(self, reading: SlurmCommands) -> None:
        self._reading = reading

    def jobs(self, number: str) -> Records:
        """Return the records of a job or of an array. Errors: CollectorError.

        22.05 answers `--json` with every job, whatever was asked for.
        """
        try:
            return _records(
                self._reading.document("squeue", "--json", "--states=all", f"--jobs={number}"),
                "jobs",
            )
        except CollectorError as error:
            if _UNKNOWN_JOB in error.message:
                return Records(interface=interface_name(COMMANDS, (0, 0)), records=())
            raise

    def queue(self) -> Records:
        """Return the records of all jobs that run or wait. Errors: CollectorError."""
        return _records(self._reading.document("squeue", "--json"), "jobs")

    def nodes(self) -> Records:
        """Return the records of all nodes. Errors: CollectorError."""
        document = self._reading.document("sinfo", "--json")
        # From 23.02 on it lists groups of nodes (`sinfo`), until then the nodes.
        if release_in(document) >= _NODES_BY_SCONTROL:
            document = self._reading.document("scontrol", "show", "nodes", "--json")
        return _records(document, "nodes")

    def reservations(self) -> list[Record]:
        """Return the reservations of nodes. Errors: CollectorError."""
        text = self._reading.output("scontrol", "--oneliner", "show", "reservations")
        return reservations_in(text)

    def partition(self, name: str) -> Partition:
        """Return the facts by which a partition starts a job. Errors: CollectorError."""
        text = self._reading.output("scontrol", "--oneliner", "show", "partition", name)
        state = re.search(r"\bState=(\w+)", text)
        longest = re.search(r"\bMaxTime=(\S+)", text)
        nodes = re.search(r"\bMaxNodes=(\d+)", text)
        return Partition(
            state=state[1].upper() if state else "",
            max_seconds=limit_of_partition(longest[1] if longest else ""),
            max_nodes=int(nodes[1]) if nodes else None,
            allowed=_lists(text, "Allow"),
            denied=_lists(text, "Deny"),
        )

    def limits(self, job: SlurmJob) -> tuple[Quota, ...]:
        """Return the limits on GPUs that hold for a job, none where they are hidden.

        Errors: CollectorError.
        """
        configuration = self._reading.configuration()
        quotas, _warnings = slurm_quotas(
            self._reading.output,
            configuration,
            sees_all=lambda: self._reading.may_see_all(configuration),
            now=utc_now(),
            dropped=Counter(),
            whose=job,
        )
        cluster = configuration.get("ClusterName", "")
        return quotas_of_job(quotas, job, self._reading.output, cluster) if quotas else ()

    def submission(self, number: str) -> tuple[str | None, str | None]:
        """Return the batch script and the submit line of a job.

        None where Slurm does not give them, or accounting does not have the job yet.
        """
        line = ("sacct", "-n", "-P", "-X", "-o", "SubmitLine", "-j", number)
        return self._message("scontrol", "write", "batch_script", number, "-"), self._message(*line)

    def may_change_all(self) -> bool | None:
        """Tell whether this user may change jobs of others. Errors: CollectorError."""
        return self._reading.may_see_all(self._reading.configuration())

    def _message(self, *command: str) -> str | None:
        try:
            return self._reading.output(*command).strip() or None
        except CollectorError:
            return None

    def send(self, payload: Payload) -> CommandAnswer:
        """Run one changing program, once, without a shell."""
        argv = payload["argv"]
        if argv[0] not in _PROGRAMS:
            return CommandAnswer(
                outcome=CommandOutcome.NO,
                words=f"{scrub(str(argv[0]))} is not a Slurm program that makes changes",
            )
        try:
            program = self._reading.program(argv[0])
        except CollectorError as error:
            return CommandAnswer(outcome=CommandOutcome.NO, words=explained(error))
        return self._run([program, *argv[1:]])

    def _run(self, argv: list[str]) -> CommandAnswer:
        with tempfile.TemporaryFile() as words:
            try:
                done = subprocess.run(  # noqa: S603 - no shell; the arguments are the approved step
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=words,
                    stderr=subprocess.STDOUT,
                    env=_environment(self._reading.settings.conf_file),
                    timeout=TIMEOUT_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return CommandAnswer(
                    outcome=CommandOutcome.NOTHING, words=f"no answer in {TIMEOUT_SECONDS:g} s"
                )
            except OSError as error:
                return CommandAnswer(
                    outcome=CommandOutcome.NO, words=f"cannot run {argv[0]}: {error.strerror}"
                )
            words.seek(0)
            text = words.read(MAX_WORDS).decode("utf-8", errors="replace")
        if done.returncode == 0:
            return CommandAnswer(outcome=CommandOutcome.YES, words=scrub(text))
        return answer_of(text)


_LIST_NAMES = {"account": "Accounts", "QOS": "Qos", "group": "Groups"}


def _lists(text: str, word: str) -> dict[str, frozenset[str]]:
    """Return the lists of a partition by what they name; one that says ALL is none."""
    matches = {
        kind: re.search(rf"\b{word}{name}=(\S+)", text) for kind, name in _LIST_NAMES.items()
    }
    return {
        kind: frozenset(match[1].split(","))
        for kind, match in matches.items()
        if match is not None and match[1] not in ("ALL", "N/A", "(null)")
    }


def _environment(conf_file: str) -> Mapping[str, str]:
    """Return an environment in which nothing of a person's changes what a program does."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM", "SCONTROL", "SCANCEL", "SQUEUE", "SINFO"))
        or name in ("SLURM_CONF", "SLURM_JWT")
    }
    variables |= {"LC_ALL": "C", "TZ": "UTC"}
    if conf_file:
        variables["SLURM_CONF"] = str(Path(conf_file).expanduser())
    return variables


def _records(document: object, key: str) -> Records:
    entries = list_in(document, key, source="Slurm")
    return Records(interface=interface_name(COMMANDS, release_in(document)), records=tuple(entries))
