"""Drawn job files on a real Slurm: what runs is what was planned, and no word reaches a shell."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode
from outsiders.campaign import run_campaign
from outsiders.submission.reading import run_of
from outsiders.submission.scenario import CANARY, SubmissionScenario, draw, table_of, toml_of
from reliability import Measured

from dashboard.submission.job.job_file import JobFile, load_job_file
from dashboard.submission.submit.proposal import SubmissionProposal, propose
from dashboard.submission.targets.slurm_target import SlurmTarget
from data.base.clock import utc_now
from data.base.errors import TrimtabError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import SlurmSettings
from data.settings.submission import SubmitSettings

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
SUBMIT = SubmitSettings(enabled=True, max_gpus=8, allow_slurm_operator=True)
PROGRAM = """#!/bin/bash
printf '%s\\0' "$@" > "$TRIAL/words-$SLURM_PROCID"
env --null > "$TRIAL/environment-$SLURM_PROCID"
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """Two kinds of nodes."""
    nodes = (
        BedNode(name="h1", gpu_type="h100", gpus=4, features="h100"),
        BedNode(name="a1", gpu_type="a100", gpus=2, features="a100"),
        BedNode(name="a2", gpu_type="a100", gpus=2, features="a100"),
        BedNode(name="c1", features="cpu"),
    )
    with running_slurm(nodes=nodes) as cluster:
        yield cluster


class Trial:
    """One job file on the cluster, in a folder of its own."""

    def __init__(self, bed: SlurmBed, scenario: SubmissionScenario, folder: Path) -> None:
        self.bed, self.scenario, self.folder = bed, scenario, folder
        settings = SlurmSettings(
            mode="commands",
            conf_file=str(bed.conf),
            gpu_models="h100=H100-SXM5-80GB,a100=A100-SXM4-40GB",
        )
        self.target = SlurmTarget(settings, SUBMIT, load_gpu_catalogue())

    def outcome(self) -> tuple[str, str | None]:
        """Submit it, and return what became of it and what it broke."""
        stub = {"TRIAL": str(self.folder), "PATH": f"{self.folder}:/usr/bin:/bin"}
        for name in {"torchrun", self.scenario.program[0].rpartition("/")[2]}:
            path = self.folder / name
            path.write_text(PROGRAM)
            path.chmod(0o755)
        table = table_of(self.scenario, str(self.folder / CANARY), stub)
        path = self.folder / "job.toml"
        path.write_text(toml_of(table), encoding="utf-8")
        try:
            job = load_job_file(path)
            proposal = propose(job, self.target, settings=SUBMIT, peaks=(), by="ada", now=utc_now())
            self.target.check(proposal.manifest)
            number = self.target.send(proposal.manifest).removeprefix("slurm:")
        except TrimtabError as error:
            return "refused", None if error.hint else f"a refusal without a hint: {error}"
        try:
            return "taken", self._broken(job, proposal, number)
        finally:
            self.bed.run("scancel", "--quiet", number, check=False)
            self.bed.until("the queue is empty", lambda: not self.bed.run("squeue", "-h"))

    def _broken(self, job: JobFile, proposal: SubmissionProposal, number: str) -> str | None:
        facts = self._facts(number)
        placement = proposal.placement
        gres = f"gres:gpu:{placement.words[0]}:{placement.gpus_per_node}"
        wanted = {
            "JobName": job.name,
            "TresPerNode": gres,
            "NumNodes": str(placement.node_count),
            "Comment": proposal.manifest.mark,
            "Requeue": "0",
        }
        for name, value in wanted.items():
            if facts.get(name) not in (value, f"{value}-{value}"):
                return f"{name} is {facts.get(name)!r} instead of {value!r}"
        if job.time_limit_hours and job.time_limit_hours > 24:  # it waits without end
            return None if proposal.warnings else "a limit above the partition's is not warned of"
        self.bed.until(
            "it ended", lambda: self._state(number) not in ("PENDING", "RUNNING", "COMPLETING")
        )
        return self._ran_otherwise(job, proposal)

    def _ran_otherwise(self, job: JobFile, proposal: SubmissionProposal) -> str | None:
        if (self.folder / CANARY).exists():
            return "a shell has run a word of the job file"
        path = self.folder / "words-0"
        if not path.exists():
            # Its working directory may not exist, or the program be no stub of ours.
            return None if self._may_not_start() else "it did not run"
        words = path.read_bytes().decode().split("\0")[:-1]
        given = table_of(self.scenario, str(self.folder / CANARY), {})["command"]
        count = len(self.scenario.words)
        if count and words[-count:] != given[-count:]:
            return f"the program was given {words[-count:]}"
        environment = dict(
            entry.split("=", 1)
            for entry in (self.folder / "environment-0").read_bytes().decode().split("\0")[:-1]
        )
        for name, value in job.environment:
            if environment.get(name) != value:
                return f"{name} is {environment.get(name)!r} in the job"
        stated = {name: environment[f"TRIMTAB_{name.upper()}"] for name in self.scenario.reads}
        stated |= {
            name: value
            for name, value in (("micro_batch", job.micro_batch), ("recompute", job.recompute))
            if value
        }
        found = run_of(words, job.framework, stated)
        spread = proposal.placement.plan.job.parallelism
        plan = {
            "global_batch": job.global_batch,
            "spread": (spread.data, spread.tensor, spread.pipeline),
            "sharding": str(spread.sharding),
            "recompute": str(proposal.placement.plan.job.recompute),
            "micro_batch": proposal.placement.plan.job.micro_batch,
        }
        differing = [name for name in plan if str(found[name]) != str(plan[name])]
        return f"{differing}: {found} runs instead of {plan}" if differing else None

    def _may_not_start(self) -> bool:
        own = self.scenario.launcher == "none" and self.scenario.program[0] != "train.py"
        return own or bool(self.scenario.workdir)

    def _facts(self, number: str) -> dict[str, str]:
        shown = self.bed.run("scontrol", "show", "job", "--oneliner", number)
        return dict(word.partition("=")[::2] for word in shown.split() if "=" in word)

    def _state(self, number: str) -> str:
        return self._facts(number).get("JobState", "")


def test_what_a_job_file_asks_for_is_what_slurm_runs(bed: SlurmBed, measured: Measured) -> None:
    """Names, requests, words and parallel sizes of every job that is taken are those planned."""
    outcomes: Counter[str] = Counter()

    def result(scenario: SubmissionScenario) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            outcome, broken = Trial(bed, scenario, Path(folder)).outcome()
        outcomes[outcome] += 1
        return broken

    run_campaign("submission to Slurm", draw, result, default=6, measured=measured)
    assert result(SubmissionScenario()) is None
    assert outcomes["taken"] > outcomes.total() / 6, outcomes
