"""The Slurm applier: jobs resized, shortened, shifted, reclaimed; nodes drained."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from collectors.slurm.backend import read_nodes
from collectors.slurm.commands import SlurmCommands
from collectors.slurm.gpu_models import ModelNames, gpu_models_of
from collectors.slurm.queue_facts import WAITING
from collectors.slurm.records import SlurmNode
from dashboard.apply.contract.applier import CloseResult, Remains
from dashboard.apply.slurm.change import nodes as node_changes
from dashboard.apply.slurm.change.capacity import (
    capacity_refusals,
    closed_partitions,
    full_limits,
    host_shares,
    missed_deadline,
    taken_gpus,
)
from dashboard.apply.slurm.change.closing import closing_of, held_text, may_hold
from dashboard.apply.slurm.change.moves import Moves, moves_for
from dashboard.apply.slurm.change.observe import (
    PREVIOUS_STATE_KEY,
    facts_in_queue,
    job_target,
    keys_for,
    require_no_dependents,
    require_planned_job,
    require_restorable,
    require_single_change,
)
from dashboard.apply.slurm.change.send import StepSender, is_later_run, is_same_job
from dashboard.apply.slurm.change.steps import moves_back, moves_of, steps_of, undo_steps
from dashboard.apply.slurm.change.submitted_options import (
    environment_refusals,
    lost_output,
    sets_size,
)
from dashboard.apply.slurm.change.verify import read_back_job
from dashboard.apply.slurm.client.client import (
    JobReading,
    SlurmClient,
    as_apply_error,
    find_job,
    promised_nodes,
    queue_with_facts,
)
from dashboard.apply.slurm.client.job_state import JobFacts
from dashboard.apply.slurm.client.programs import SlurmPrograms
from dashboard.apply.slurm.client.rest import SlurmRestWriter
from data.base.clock import utc_now
from data.base.counts import count_text
from data.base.errors import ApplyError, ChangeRefusedError, CollectorError, StalePlanError
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.facts.fleet import Gpu
from data.facts.jobs import Job, Platform
from data.records.changes import (
    Change,
    ChangeStep,
    ReadBack,
    Rehearsal,
    StepOutcome,
    StepResult,
    Target,
)
from data.records.feasible_changes import restart_refusal
from data.records.recommendations import Recommendation
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings

_NUMBER = re.compile(r"slurm:([1-9]\d{0,9})")


class SlurmApplier:
    """Makes approved changes in one Slurm cluster.

    `source` says where its programs or its slurmrestd are, and what its gres types are.
    """

    def __init__(
        self,
        settings: SlurmApplySettings,
        *,
        source: SlurmSettings,
        catalogue: GpuCatalogue | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._settings = settings
        self._reading_settings = _reading(settings, source)
        self._gpu_models = gpu_models_of(source.gpu_models)
        self._catalogue = catalogue or load_gpu_catalogue()
        self._clock = clock

    @property
    def name(self) -> str:
        """Name in settings, audit and pages."""
        return "slurm"

    def covers(self, recommendation: Recommendation) -> bool:
        """Return whether this applier makes changes of this kind."""
        if recommendation.platform is not Platform.SLURM:
            return False
        spec = recommendation.action.spec
        return self.name in spec.appliers and (
            not spec.of_node or "node" in dict(recommendation.details)
        )

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Read the job or node afresh. `gpus` are not needed: Slurm itself knows who holds what.

        Errors: StalePlanError, ChangeRefusedError, ApplyError.
        """
        client = self._client()
        try:
            if recommendation.action.spec.of_node:
                name = dict(recommendation.details).get("node", "")
                target = node_changes.node_target(client, name)
                node_changes.require_no_new_jobs(client, name, recommendation.created_at)
                return target
            number = _number_of(recommendation.job_id)
            reading = self._reading(client, number)
            nodes, models = self._site(client)
            if recommendation.action.spec.takes_all:
                promised = promised_nodes(client, nodes, self._clock())
                require_no_dependents(number, queue_with_facts(client, promised))
        except CollectorError as error:
            raise as_apply_error(error) from error
        require_single_change(reading.facts, number)
        require_planned_job(reading.facts, recommendation, job, models)
        return job_target(
            reading, keys_for(recommendation), name=f"slurm:{number}", nodes=nodes, models=models
        )

    def look_again(self, change: Change) -> Target:
        """Read the target of a change afresh, whatever its fields are. Errors: as `Applier.look`.

        A job that was requeued since is the same one, under the identity it had; while its last run
        ends there is nothing to see yet.
        """
        return self._look_again(change, is_same_job, is_later_run)

    def _look_again(self, change: Change, *checks: Callable[[Change, JobFacts], bool]) -> Target:
        client = self._client()
        try:
            if change.target.kind == node_changes.KIND:
                return node_changes.node_target(client, change.target.name)
            number = dict(change.target.state)["number"]
            reading = self._reading(client, number)
            nodes, models = self._site(client)
        except CollectorError as error:
            raise as_apply_error(error) from error
        requeued = any(step.verb == "requeuehold" for step in change.steps)
        if requeued and reading.facts.state == "COMPLETING":
            raise ApplyError(
                f"the last run of Slurm job {number} has not ended yet", "Wait for it."
            )
        require_single_change(reading.facts, number)
        if not any(knows(change, reading.facts) for knows in checks):
            raise StalePlanError(
                f"Slurm job {number} is another job now, or was requeued by somebody else",
                "Run a new cycle and approve its recommendation.",
            )
        keys = (key for key, _value in change.target.state)
        target = job_target(reading, keys, name=change.target.name, nodes=nodes, models=models)
        was = tuple(pair for pair in change.target.state if pair[0] == PREVIOUS_STATE_KEY)
        return replace(target, identity=change.target.identity, state=target.state + was)

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Return the steps and the steps back; pure. Errors: ChangeRefusedError."""
        if target.kind == node_changes.KIND:
            return node_changes.drain_change(recommendation, target)
        state = dict(target.state)
        allowed = self._settings.allow_requeue
        return self._change(
            recommendation.digest, target, moves_for(recommendation, state, allow_requeue=allowed)
        )

    def change_back(self, change: Change, target: Target) -> Change:
        """Return the change that restores the fields that `change` touched, and no other; pure.

        Errors: StalePlanError when a touched field holds neither what was sent nor what was before,
        ChangeRefusedError where Slurm has no way back.
        """
        if target.kind == node_changes.KIND:
            return node_changes.drain_back(change, target)
        require_restorable(change)
        moves = moves_back(
            moves_of(change.steps),
            dict(target.state),
            allow_requeue=self._settings.allow_requeue,
        )
        state = tuple(pair for pair in target.state if pair[0] != PREVIOUS_STATE_KEY)
        was = json.dumps(
            {key: value for key, value in change.target.state if key != PREVIOUS_STATE_KEY}
        )
        target = replace(target, state=(*state, (PREVIOUS_STATE_KEY, was)))
        return self._change(change.recommendation_digest, target, moves)

    def _change(self, digest: str, target: Target, moves: Moves) -> Change:
        state = dict(target.state)
        return Change(
            recommendation_digest=digest,
            target=target,
            steps=steps_of(moves.moves, state),
            undo=undo_steps(moves.moves, state, allow_requeue=self._settings.allow_requeue),
            notes=moves.notes,
        )

    def rehearse(self, change: Change) -> Rehearsal:
        """Count the nodes that could take the job: Slurm has no dry run. Errors: ApplyError."""
        if change.target.kind == node_changes.KIND:
            return Rehearsal(rehearsed=False)
        client, moves = self._client(), moves_of(change.steps)
        number = dict(change.target.state)["number"]
        try:
            reading = self._reading(client, number)
            nodes, _models = self._site(client)
            requeues = any(step.verb == "requeuehold" for step in change.steps)
            names = reading.facts.job.partition.split(",") if requeues else []
            partitions = {name: client.partition(name) for name in names if name}
            nearest, queue = self._line(client, reading, nodes) if requeues else (nodes, {})
            limits = client.limits(reading.facts.job) if requeues or sets_size(moves) else ()
        except CollectorError as error:
            raise as_apply_error(error) from error
        refusals, warnings = capacity_refusals(reading.facts, moves, nodes)
        refusals += full_limits(limits, reading.facts, moves, requeues=requeues)
        if requeues:
            # A job that cannot start again would have lost its run for nothing.
            closed = closed_partitions(partitions, reading.facts)
            closed += missed_deadline(reading.facts)
            refusals, warnings = (*refusals, *warnings, *closed), ()
            behind = self._settings.requeue_behind_others
            if why := restart_refusal(queue, behind_others=behind):
                refusals = (*refusals, why)
            elif waiting := queue.get(WAITING):
                warnings = (f"it might not start again soon: {waiting}",)
            if not refusals and (wait := taken_gpus(reading.facts, moves, nearest)):
                if behind:
                    warnings = (*warnings, wait)
                else:
                    refusals = (f"{wait}; apply_slurm.requeue_behind_others allows it",)
        resized = sets_size(moves) and PREVIOUS_STATE_KEY not in dict(change.target.state)
        if requeues or resized:
            submitted = client.submission(number)
            warnings = (*warnings, *(lost_output(*submitted) if requeues else ()))
        if resized:
            stale, unseen = environment_refusals(
                moves,
                *submitted,
                tasks=(reading.facts.tasks, reading.facts.nodes_asked),
                gpus_now=sum(gpu.count for gpu in reading.facts.job.gpus),
                in_place=reading.facts.state == "RUNNING" and not requeues,
            )
            shares = host_shares(reading.facts, moves)
            refusals, warnings = (*refusals, *stale), (*warnings, *shares, *unseen)
        return Rehearsal(
            rehearsed=False, refusals=refusals + self._too_late(change), warnings=warnings
        )

    def _line(
        self, client: SlurmClient, reading: JobReading, nodes: tuple[SlurmNode, ...]
    ) -> tuple[tuple[SlurmNode, ...], dict[str, str]]:
        """Return nodes and queue as a requeued job meets them.

        Reservations count that begin before it ends.
        """
        limit = reading.facts.job.time_limit_seconds
        ahead = timedelta(days=365) if limit is None else timedelta(seconds=limit)
        nearest = promised_nodes(client, nodes, self._clock(), ahead=ahead)
        return nearest, facts_in_queue(queue_with_facts(client, nearest), reading)

    def _too_late(self, change: Change) -> tuple[str, ...]:
        now = self._clock().isoformat()
        return tuple(
            f"{step.after} has passed: the job would simply start"
            for step in change.steps
            if step.field == "StartTime" and step.after and step.after <= now
        )

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send one command, once, within its timeout. Never raises for what Slurm answers."""
        client = self._client()
        if change.target.kind == node_changes.KIND:
            return node_changes.send_to_node(client, step, change)
        sender = StepSender(client, clock=self._clock)
        return sender.send(step, change)

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Look once whether the first `done` steps of the change hold. Never raises."""
        client = self._client()
        if change.target.kind == node_changes.KIND:
            return node_changes.read_back_node(client, change, done)
        may_wait = timedelta(seconds=self._settings.pending_seconds)
        return read_back_job(client, change, done, self._clock(), may_wait=may_wait)

    def close(self, change: Change, *, sent: int) -> CloseResult:
        """Finish or take back a change that is given up; a hold of ours ends. Never raises."""
        if change.target.kind == node_changes.KIND or len(change.steps) < 2:
            return CloseResult(left=Remains.AS_IT_IS, detail="")
        before = dict(change.target.state)
        for last in (False, True):
            try:
                target = self._look_again(change, is_same_job)
            except (StalePlanError, ChangeRefusedError) as gone:
                return CloseResult(left=Remains.AS_IT_IS, detail=str(gone))
            except ApplyError as error:
                return self._not_closed(change, sent, str(error))
            state = dict(target.state)
            total = state.get("TRES", "") if last else before.get("TRES", "")
            closing = closing_of(moves_of(change.steps), sent, state, total=total)
            if not closing.moves:
                return CloseResult(left=closing.left, detail=closing.detail)
            steps = steps_of(closing.moves, state)
            back = replace(change, target=target, steps=steps, undo=())
            refused = []
            for step in steps:
                result = self.execute(step, back)
                if result.outcome is StepOutcome.REFUSED and step.verb == "update":
                    refused.append(f"{step.text}: {result.detail}")
                elif result.outcome is not StepOutcome.DONE:
                    return self._not_closed(change, sent, f"{step.text}: {result.detail}")
            if refused:
                # Slurm does not take the old value back: the job is at least let go.
                return CloseResult(left=Remains.PART, detail="; ".join(refused))
        return self._not_closed(change, sent, "what was set is taken back")

    def between_steps(self, change: Change, *, sent: int) -> str:
        """Return the command that lets a held job go, '' when the change holds none."""
        return held_text(change) if may_hold(change, sent) else ""

    def access(self) -> tuple[bool, str]:
        """Return whether Slurm answers the account, and may let it change jobs of others."""
        client = self._client()
        try:
            summary = f"Slurm names {count_text(len(client.nodes().records), 'node')}"
            may = client.may_change_all()
        except CollectorError as error:
            raise as_apply_error(error) from error
        if may is False:
            return False, (
                f"{summary}, and this user is neither SlurmUser nor an operator: it may change "
                "its own jobs alone. Run `sacctmgr modify user NAME set AdminLevel=Operator`."
            )
        who = "as an operator" if may else "whether the account is an operator is not known"
        return True, f"{summary}, {who}"

    def _not_closed(self, change: Change, sent: int, why: str) -> CloseResult:
        """Return that a job must be looked at again; one that is surely not held may be left."""
        outcome = Remains.UNKNOWN if may_hold(change, sent) else Remains.AS_IT_IS
        text = f"{held_text(change)}: {why}" if outcome is Remains.UNKNOWN else why
        return CloseResult(left=outcome, detail=text)

    def _client(self) -> SlurmClient:
        if self._settings.mode == "rest":
            return SlurmRestWriter(self._reading_settings)
        return SlurmPrograms(SlurmCommands(self._reading_settings))

    def _reading(self, client: SlurmClient, number: str) -> JobReading:
        reading = find_job(client, number, self._clock())
        if reading is None:
            raise StalePlanError(f"Slurm does not know job {number} any more", "Run a new cycle.")
        return reading

    def _site(self, client: SlurmClient) -> tuple[tuple[SlurmNode, ...], ModelNames]:
        dropped: Counter[str] = Counter()
        nodes: Iterable[SlurmNode] = read_nodes(client.nodes().records, dropped)
        nodes = tuple(nodes)
        return nodes, ModelNames(self._gpu_models, self._catalogue, nodes)


def _reading(settings: SlurmApplySettings, source: SlurmSettings) -> SlurmSettings:
    """Return the applying account as settings of the readers. Errors: SettingsError."""
    return replace(
        source,
        mode=settings.mode,
        rest_user=settings.rest_user,
        rest_token=settings.rest_token,
        rest_token_file=settings.rest_token_file,
    )


def _number_of(job_id: str) -> str:
    match = _NUMBER.fullmatch(job_id)
    if match is None:
        raise ChangeRefusedError(
            f"{job_id!r} is no Slurm job id", "Expected slurm:NUMBER; change this job by hand."
        )
    return match[1]
