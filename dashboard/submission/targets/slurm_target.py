"""Slurm as a target: sbatch sends, scontrol and sacct tell what became of the job.

The account that a Slurm job belongs to, and whether a job's script would be an operator.

Slurm gives the script of a job every right of its user. Trimtab reads and changes jobs of others,
so its own user is an operator; a person who may submit must not become one by a job file.

A placed job as a batch script for sbatch: the request in its head, the launch in its body.
"""

import os
import pwd
import re
import shlex
import stat
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from collectors.shared.collector import Window
from collectors.slurm.commands import TIMEOUT_SECONDS, SlurmCommands
from collectors.slurm.gpu_models import ModelNames, gpu_models_of
from collectors.slurm.records import SlurmNode
from collectors.slurm.values import job_state_of, words_of
from dashboard.apply.slurm.client.time_limits import limit_of_partition
from dashboard.submission.job.fleet import SubmissionFleet, SubmissionNode, fleet_of
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.launch import (
    ADDRESS,
    ENDPOINT,
    RUN,
    Reference,
    environment_of,
    launch_words,
)
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Placement
from dashboard.submission.targets.target import SentJobState, ran_out_of_gpu_memory
from data.base.clock import utc_now
from data.base.errors import (
    ChangeRefusedError,
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.jobs import JobState
from data.records.submissions import Attempt, SubmissionState
from data.settings.sources import SlurmSettings
from data.settings.submission import SubmitSettings

_GRES_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_OPTION = re.compile(r"[A-Za-z0-9_.:/%+=@-]{1,400}")
_SHELL = {
    ADDRESS: '"$MASTER_ADDR"',
    ENDPOINT: '"$MASTER_ADDR:$MASTER_PORT"',
    RUN: '"$SLURM_JOB_ID"',
}


def slurm_script(
    job: JobFile, placement: Placement, order: JobOrder, *, home: str = ""
) -> Manifest:
    """Return the batch script. Errors: ChangeRefusedError for a gres type that sbatch cannot take.

    A job without a working directory starts in `home`, or where sbatch is run when that is ''.
    A gres request is of one type: where the nodes call the same GPU by several names, the first
    is taken.
    """
    gres = placement.words[0] if placement.words else ""
    if _GRES_TYPE.fullmatch(gres) is None:
        raise ChangeRefusedError(
            f"Slurm calls these GPUs {scrub(gres, limit=40)!r}", "Give gres a type in gres.conf."
        )
    launch = " ".join(
        _SHELL[word] if isinstance(word, Reference) else shlex.quote(word)
        for word in launch_words(job, placement, rank=None)
    )
    launch = f"srun --export=ALL --kill-on-bad-exit=1 {launch}"
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(job, placement, order, gres, home)),
        "set -euo pipefail",
        *(
            f"export {name}={shlex.quote(value)}"
            for name, value in sorted(environment_of(job, placement).items())
        ),
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        'MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"',
        f"WORLD_SIZE={placement.plan.gpus}",
        "export MASTER_ADDR MASTER_PORT WORLD_SIZE",
        launch,
    ]
    return Manifest(
        target="slurm",
        name=job.name,
        text="\n".join(lines) + "\n",
        launch=launch,
        mark=order.mark,
        log=job.log,
    )


def _options(
    job: JobFile, placement: Placement, order: JobOrder, gres: str, home: str
) -> list[str]:
    """Return options of sbatch. Each is one word of plain characters, so that none can end it."""
    each = placement.gpus_per_node
    fair = (placement.fair_milli_cpus or 0) // 1000
    cpus = job.cpus_per_gpu * each if job.cpus_per_gpu else fair
    stated = job.memory_mib_per_gpu
    memory = round(stated * each * order.raised_host) if stated else placement.fair_memory_mib
    values = {
        "job-name": job.name,
        "comment": order.mark,
        "partition": order.partition,
        "account": order.account,
        "nodes": str(placement.node_count),
        "ntasks-per-node": "1",
        "gres": f"gpu:{gres}:{each}",
        "cpus-per-task": str(cpus) if cpus else "",
        "mem": f"{memory}M" if memory else "",
        "time": str(max(1, round(job.time_limit_hours * 60))) if job.time_limit_hours else "",
        "chdir": job.workdir or home,
        "output": job.log,
    }
    options = []
    for name, value in values.items():
        if value and _OPTION.fullmatch(value) is None:
            raise ChangeRefusedError(
                f"{name} of {job.name} is {scrub(value, limit=80)!r}",
                "Use letters, digits and '_./:%+=@-' only.",
            )
        if value:
            options.append(f"--{name}={value}")
    # The program must not inherit what stands in the environment of the one who submits.
    return [*options, "--export=NONE", "--no-requeue"]


_UID = re.compile(r"\((\d+)\)")
_LEVELS = ("Operator", "Administrator")
_FIX = (
    "Set submit.slurm_user to a user without Slurm rights whom Trimtab may become by sudo; or set "
    "submit.allow_slurm_operator, and every job file can then do what that user can."
)


class SlurmAccount:
    """Account that submits: the user of the settings, else the one who runs Trimtab."""

    def __init__(self, submit: SubmitSettings, commands: SlurmCommands) -> None:
        self._submit = submit
        self._commands = commands

    def _entry(self) -> pwd.struct_passwd:
        name = self._submit.slurm_user
        try:
            return pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())
        except KeyError as error:
            raise ChangeRefusedError(
                f"this machine knows no user {name or os.geteuid()} to submit as",
                "Set submit.slurm_user to a user whom this machine and the cluster know.",
            ) from error

    @property
    def home(self) -> str:
        """Start folder of jobs of another user than Trimtab's; '' for the working directory."""
        return self._entry().pw_dir if self._submit.slurm_user else ""

    def prefix(self) -> tuple[str, ...]:
        """Return the words that run a command as that user."""
        if not self._submit.slurm_user or self._entry().pw_uid == os.geteuid():
            return ()
        user = self._submit.slurm_user
        if os.geteuid() == 0:
            return ("runuser", "-u", user, "--")
        return ("sudo", "-n", "-u", user, "--")

    def why_not(self) -> str:
        """Return the reason not to send a job as that user, '' for none. Errors: CollectorError."""
        if self._submit.allow_slurm_operator:
            return ""
        user = self._entry()
        privilege = self._privilege(user)
        if not privilege:
            return ""
        return f"{user.pw_name}, who would own the job, {privilege}. {_FIX}"

    def _privilege(self, user: pwd.struct_passwd) -> str:
        """Return the privilege of a user beyond submitting, or the reason that it is not known."""
        if user.pw_uid == 0:
            return "is root"
        configuration = self._commands.configuration()
        match = _UID.search(configuration.get("SlurmUser", ""))
        if match is not None and int(match[1]) == user.pw_uid:
            return "is SlurmUser"
        if not configuration.get("AccountingStorageType", "").endswith("slurmdbd"):
            return ""  # without accounting nobody is an operator
        try:
            level = self._commands.output(
                "sacctmgr", "--noheader", "--parsable2", "show", "user", user.pw_name,
                "format=AdminLevel",
            ).strip()  # fmt: skip
        except CollectorError as error:
            return f"may be an operator: sacctmgr does not tell ({error})"
        hidden = "users" in configuration.get("PrivateData", "").split(",")
        if not level and hidden and not self._commands.may_see_all(configuration):
            return "may be an operator: PrivateData=users hides it from Trimtab"
        return f"has AdminLevel={level} in Slurm" if level in _LEVELS else ""


_NUMBER = re.compile(r"\d{1,12}")
_LOG_BYTES = 256 * 1024
_FACTS = re.compile(r"\b(JobState|Reason|ExitCode)=(\S*)")
_STATES = {
    "CONFIGURING": SubmissionState.PENDING,
    "SUSPENDED": SubmissionState.RUNNING,
    "STOPPED": SubmissionState.RUNNING,
    "OUT_OF_MEMORY": SubmissionState.OUT_OF_HOST_MEMORY,
}
"""Words that say more of a sent job than of one that is collected, or less."""
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG")
_INVALID_JOB = "Invalid job id"
_DEFAULT_MEMORY = ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")
_LEAST_MEMORY = 1024
"""A node that says less has no RealMemory in slurm.conf: Slurm then takes it to be 1 MiB."""
_LIMITS = ("MaxTime", "DefaultTime")
_PARTITION_UP = "UP"
"""The state of a partition that starts jobs; DOWN, DRAIN and INACTIVE ones do not."""


def _memory_in(facts: Mapping[str, str]) -> str:
    """Return the memory of a job that asks for none; '' where a partition has that of the site."""
    values = ((name, facts.get(name, "UNLIMITED")) for name in _DEFAULT_MEMORY)
    return next((f"{name}={value}" for name, value in values if value != "UNLIMITED"), "")


class SlurmTarget:
    """The Slurm of this machine's client programs."""

    name = "slurm"

    def __init__(
        self, slurm: SlurmSettings, submit: SubmitSettings, catalogue: GpuCatalogue
    ) -> None:
        self._slurm = slurm
        self._submit = submit
        self._catalogue = catalogue
        self._commands = SlurmCommands(slurm)
        self._account = SlurmAccount(submit, self._commands)

    def why_not(self) -> str:
        """Return the reason not to send a job as the submitting user, '' for none."""
        return self._account.why_not()

    def fleet(self) -> SubmissionFleet:
        """Return the nodes of the partition, with what is free of them now. Errors: CollectorError.

        A node with GPUs of several types is left out: it is not told which of them are free. A
        request names one gres type: where a model has several names, the commonest counts.
        """
        now = utc_now()
        answers = self._commands.answers(Window(start=now, end=now))
        names = ModelNames(gpu_models_of(self._slurm.gpu_models), self._catalogue, answers.nodes)
        facts = self._partition()
        partition, state = facts.get("PartitionName", ""), facts.get("State", _PARTITION_UP)
        nodes = [
            _fleet_node(node, names.of_type(node.gpus[0].gpu_type)[0], up=state == _PARTITION_UP)
            for node in answers.nodes
            if len(node.gpus) == 1 and partition in node.partitions
        ]
        source = f"Slurm's partition {partition}"
        longest, usual = (
            seconds and seconds / SECONDS_PER_HOUR
            for seconds in (limit_of_partition(facts.get(name, "")) for name in _LIMITS)
        )
        return replace(
            fleet_of(_of_one_name(nodes), self._catalogue, source=source),
            default_hours=usual or longest,
            max_hours=longest,
            closed="" if state == _PARTITION_UP else f"Slurm's partition {partition} is {state}",
            default_memory=_memory_in(facts)
            or _memory_in(self._commands.configuration())
            or "all of a node",
        )

    def _partition(self) -> dict[str, str]:
        """Return Slurm's facts of the partition of the settings, else of its default one."""
        name = self._submit.partition
        for line in self._commands.output("scontrol", "show", "partition", "-o").splitlines():
            facts = dict(pair.partition("=")[::2] for pair in line.split())
            if facts.get("PartitionName") == name or (not name and facts.get("Default") == "YES"):
                return facts
        if name:
            raise ChangeRefusedError(
                f"Slurm has no partition {name}", "Set submit.partition to one of sinfo's."
            )
        raise ChangeRefusedError("Slurm has no default partition", "Set submit.partition.")

    def manifest(self, job: JobFile, placement: Placement, order: JobOrder) -> Manifest:
        """Return the batch script. Errors: ChangeRefusedError."""
        return slurm_script(job, placement, order, home=self._account.home)

    def check(self, manifest: Manifest) -> str:
        """Have sbatch test the script: it says when and where the job could start."""
        _out, reply = self._run("sbatch", "--test-only", script=manifest.text)
        return scrub(reply)

    def send(self, manifest: Manifest) -> str:
        """Submit the script, unless a job with its mark is known. Gives slurm:NUMBER."""
        job_id = self.find(manifest)
        if job_id:
            return job_id
        if reason := self.why_not():
            raise ChangeRefusedError("the job was not submitted to Slurm", reason)
        out, reply = self._run("sbatch", "--parsable", script=manifest.text)
        number = out.strip().partition(";")[0]
        if _NUMBER.fullmatch(number) is None:
            raise UnexpectedAnswerError(
                f"sbatch answered {scrub(out or reply, limit=120)!r} instead of a job number",
                "Look for the job with squeue before you submit it again.",
            )
        return f"slurm:{number}"

    def find(self, manifest: Manifest) -> str:
        """Return slurm:NUMBER of the job that bears this mark, '' when slurmctld knows none."""
        text = self._commands.output(
            "squeue", "--noheader", "--states=all", f"--name={manifest.name}", "--format=%A %k"
        )
        for line in text.splitlines():
            number, _, comment = line.strip().partition(" ")
            if comment == manifest.mark and _NUMBER.fullmatch(number):
                return f"slurm:{number}"
        return ""

    def standing(self, attempt: Attempt, job: JobFile) -> SentJobState:
        """Return the state of the job; of a failed one the end of its log says whether memory."""
        number = attempt.job_id.removeprefix("slurm:")
        if _NUMBER.fullmatch(number) is None:
            raise UnexpectedAnswerError(
                f"{attempt.job_id!r} is no Slurm job", "Is the submission of this cluster?"
            )
        word, reason, code = self._facts(number)
        if word is None:
            return SentJobState(state=SubmissionState.LOST, reason=reason)
        base = job_state_of(words_of(word))
        if base is JobState.UNKNOWN:
            text = f"Slurm's state {scrub(word, limit=40)} is not known"
            return SentJobState(state=attempt.state, reason=text)
        state = _STATES.get(word) or SubmissionState(base)
        if state.is_open:
            return SentJobState(state=state, reason=reason)
        if state in (SubmissionState.FAILED, SubmissionState.OUT_OF_HOST_MEMORY):
            state = self._cause(state, number, job)
        detail = f"{word}, exit code {code}" if code else word
        return SentJobState(state=state, reason=detail)

    def _cause(self, state: SubmissionState, number: str, job: JobFile) -> SubmissionState:
        folder = job.workdir or self._account.home
        path = job.log or (f"{folder}/slurm-{number}.out" if folder else "")
        log = end_of_log(Path(path.replace("%j", number))) if path else ""
        return SubmissionState.OUT_OF_GPU_MEMORY if ran_out_of_gpu_memory(log) else state

    def _facts(self, number: str) -> tuple[str | None, str, str]:
        """Return state, reason and exit code; a state None when Slurm forgot the job."""
        try:
            text = self._commands.output("scontrol", "show", "job", "--oneliner", number)
        except CollectorError as error:
            if _INVALID_JOB not in str(error):
                raise
            return self._accounted(number)
        facts: dict[str, str] = {}
        for match in _FACTS.finditer(text):
            facts.setdefault(match[1], match[2])
        return facts.get("JobState", "UNKNOWN"), facts.get("Reason", ""), facts.get("ExitCode", "")

    def _accounted(self, number: str) -> tuple[str | None, str, str]:
        try:
            text = self._commands.output(
                "sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}",
                "--format=State,ExitCode",
            )  # fmt: skip
        except CollectorError as error:
            return None, f"Slurm forgot the job, and accounting does not tell: {error}", ""
        rows = [line.split("|") for line in text.splitlines() if line.count("|") == 1]
        if not rows:
            return None, "neither slurmctld nor accounting knows the job", ""
        # `CANCELLED by 0` names who did it.
        return rows[-1][0].partition(" ")[0], "", rows[-1][1]

    def _run(self, command: str, *arguments: str, script: str) -> tuple[str, str]:
        """Return the output of sbatch on both streams. Its environment is bare: jobs inherit it."""
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment |= {"LC_ALL": "C"}
        conf = self._slurm.conf_file or os.environ.get("SLURM_CONF", "")
        if conf:
            environment["SLURM_CONF"] = str(Path(conf).expanduser())
        prefix = self._account.prefix()
        argv = [*prefix, self._commands.program(command), *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - no shell; every argument is our own
                argv,
                input=script.encode(),
                capture_output=True,
                env=environment,
                # Another user may have no right to be where Trimtab was started.
                cwd="/" if prefix else None,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SourceUnreachableError(
                f"{command} gave no answer in {TIMEOUT_SECONDS:g} s",
                "The job may have been taken: its mark is looked for before it is sent again.",
            ) from error
        except OSError as error:
            raise SourceNotConfiguredError(
                f"cannot run {argv[0]}: {error.strerror}",
                "Install it, or mend submit.slurm_user and slurm.bin_directory.",
            ) from error
        out, errors = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        if done.returncode != 0 and prefix and errors.startswith(f"{prefix[0]}:"):
            user = self._submit.slurm_user
            raise SourceRefusedError(
                f"Trimtab may not run {command} as {user}: {scrub(errors)}",
                f"In sudoers: trimtab ALL=({user}) NOPASSWD: {self._commands.program(command)}",
            )
        if done.returncode != 0:
            raise ChangeRefusedError(
                f"{command} refused the job: {scrub(errors or out)}",
                "Check partition, account and limits with your Slurm's administrator.",
            )
        return out, errors


def _fleet_node(node: SlurmNode, model: str, *, up: bool) -> SubmissionNode:
    gpus = node.gpus[0]
    return SubmissionNode(
        name=node.name,
        gpu_type=model,
        word=gpus.gpu_type,
        gpus=gpus.count,
        # What is in use is not known of some: none of theirs is told to be free.
        free_gpus=0
        if not up or node.gpus_in_use is None
        else max(0, gpus.count - node.gpus_in_use),
        cpus=node.cpus,
        memory_mib=node.memory_mib if (node.memory_mib or 0) >= _LEAST_MEMORY else None,
        takes_jobs=node.schedulable,
    )


def _of_one_name(nodes: list[SubmissionNode]) -> list[SubmissionNode]:
    gpus: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        gpus[node.gpu_type, node.word] += node.gpus
    best = {model: word for (model, word), _count in reversed(gpus.most_common())}
    return [node for node in nodes if best[node.gpu_type] == node.word]


def end_of_log(path: Path) -> str:
    """Return the last 256 KiB of a log, '' when it is none that this process can read.

    Only a plain file is opened: the path is the job author's.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            return ""
        file.seek(max(0, about.st_size - _LOG_BYTES))
        return file.read(_LOG_BYTES).decode("utf-8", "replace")
