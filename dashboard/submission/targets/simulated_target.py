"""The simulated cluster as a target: a job starts at once on free boards, or is refused."""

import json
from collections.abc import Callable
from datetime import datetime

from collectors.simulated.cluster import Phase, SimulatedCluster
from collectors.simulated.holdings import SubmittedJob
from dashboard.submission.job.fleet import SubmissionFleet, SubmissionNode, fleet_of
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.launch import Reference, launch_words
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Placement
from dashboard.submission.targets.target import SentJobState
from data.base.errors import ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.submissions import Attempt, SubmissionState

_HOURS = 4.0
"""Length of a job that states none."""
_STATES = {
    Phase.WAITING: SubmissionState.PENDING,
    Phase.RUNNING: SubmissionState.RUNNING,
    Phase.ENDED: SubmissionState.FINISHED,
}


class SimulatedTarget:
    """Submits to the simulated cluster, whose time is `clock`'s. It runs no program."""

    name = "simulated"

    def __init__(self, cluster: SimulatedCluster, *, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._clock = clock

    def why_not(self) -> str:
        """Return '': who may change the file may submit."""
        return ""

    def fleet(self) -> SubmissionFleet:
        """Return the nodes with their free whole boards."""
        nodes = [
            SubmissionNode(
                name=entry.node,
                gpu_type=entry.gpu_model,
                word=entry.gpu_model,
                gpus=entry.boards,
                free_gpus=len(entry.free),
            )
            for entry in self._cluster.free_boards(self._clock())
        ]
        return fleet_of(nodes, load_gpu_catalogue(), source="the simulated cluster")

    def manifest(self, job: JobFile, placement: Placement, order: JobOrder) -> Manifest:
        """Return what the cluster is told, as JSON. Errors: ChangeRefusedError without room."""
        plan, name = placement.plan, order.name_for(job.name)
        if placement.waits:
            raise ChangeRefusedError(
                f"no place is free for {plan.gpus} x {plan.gpu_type}, and the simulated cluster "
                "keeps no queue",
                "Reclaim what stands idle, then submit.",
            )
        words = launch_words(job, placement, rank=None)
        launch = " ".join("NODE" if isinstance(word, Reference) else word for word in words)
        memory = plan.estimate.p50_bytes / (plan.job.gpu_memory_bytes or plan.estimate.p50_bytes)
        text = {
            "name": name,
            "namespace": order.namespace,
            "gpu_model": plan.gpu_type,
            "gpus": plan.gpus,
            "nodes": placement.node_count,
            "hours": job.time_limit_hours or _HOURS,
            "memory_ratio": round(min(memory, 1.0), 3),
            "launch": launch,
        }
        return Manifest(
            target=self.name,
            name=name,
            text=json.dumps(text, indent=2) + "\n",
            launch=launch,
            mark=order.mark,
        )

    def check(self, manifest: Manifest) -> str:
        """Return what the cluster would do: nothing is tried there."""
        return f"the simulated cluster would start {manifest.name} at once"

    def send(self, manifest: Manifest) -> str:
        """Start the job, and give its id. Errors: ChangeRefusedError, UnexpectedAnswerError."""
        text = json.loads(manifest.text)
        order = SubmittedJob(
            name=text["name"],
            team=text["namespace"],
            places=("",) * text["gpus"],
            since=0,
            until=round(text["hours"] * 3600),
            memory_ratio=text["memory_ratio"],
            mark=manifest.mark,
        )
        return self._cluster.submit(
            order, gpu_model=text["gpu_model"], nodes=text["nodes"], clock=self._clock
        )

    def find(self, manifest: Manifest) -> str:
        """Return the id of the job that bears the manifest's mark, '' when there is none."""
        return self._cluster.marked(manifest.mark)

    def standing(self, attempt: Attempt, _job: JobFile) -> SentJobState:
        """Return the state of a sent attempt."""
        phase = self._cluster.phase(attempt.job_id, self._clock())
        if phase is None:
            return SentJobState(state=SubmissionState.LOST, reason="the cluster does not know it")
        return SentJobState(state=_STATES[phase])
