"""The power-cap applier: it writes what it wants where the agents of the nodes read it."""

import json
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dashboard.apply.power.cap_steps import boards_of, cap_of, cap_step
from dashboard.apply.power.orders import BoardReport, Cap, NodeReport
from dashboard.apply.power.shared_folder import SignedFolder
from dashboard.apply.power.signed_file import read_secret
from data.base.clock import utc_now
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.facts.fleet import Gpu
from data.facts.jobs import Job
from data.records.changes import (
    Change,
    ChangeStep,
    ReadBack,
    Rehearsal,
    StepOutcome,
    StepResult,
    Target,
)
from data.records.changes import VerificationResult as Verdict
from data.records.recommendations import Recommendation
from data.settings.apply import PowerApplySettings

KIND = "gpus"
_LEASE = timedelta(minutes=15)
"""Life of a cap that nobody renews: no job is slow for longer after the death of Trimtab."""
_AGENT_TIMEOUT = timedelta(minutes=2)
"""An agent reports every few seconds: after this it is taken for stopped."""

_LEASE_NOTE = (
    "The caps end with their lease: they last while Trimtab renews them for a job that lives, and "
    "the agents put back the limits that they found."
)


class PowerCapApplier:
    """Caps the boards of a job through the agents on their nodes."""

    def __init__(
        self, settings: PowerApplySettings, *, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._settings = settings
        self._clock = clock

    @property
    def name(self) -> str:
        """Name in settings, audit and pages."""
        return "power-cap"

    def covers(self, recommendation: Recommendation) -> bool:
        """Return whether this applier makes changes of this kind."""
        cap = recommendation.proposed.power_cap_watts
        return self.name in recommendation.action.spec.appliers and cap is not None

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Read from the agents what the boards of the job are limited to.

        Errors: StalePlanError when the job no longer holds what the plan saw, ChangeRefusedError
        for boards that cannot be capped, ApplyError when an agent does not report.
        """
        boards = boards_of(gpus)
        plan_now = recommendation.now
        models = {gpu.gpu_model for gpu in gpus}
        if len(boards) != plan_now.gpu_count or models - {plan_now.gpu_model}:
            raise StalePlanError(
                f"{recommendation.job_id!r} holds {len(boards)} boards of {sorted(models)}, the "
                f"plan saw {plan_now.describe()}",
                "Run a new cycle and approve its recommendation.",
            )
        target = self._target(recommendation.job_id, boards)
        planned = "" if plan_now.power_cap_watts is None else str(round(plan_now.power_cap_watts))
        for uuid in boards:
            target_cap = dict(target.state)[f"wanted {uuid}"]
            if target_cap != planned:
                raise StalePlanError(
                    f"{uuid} is asked to hold {target_cap or 'no cap'}, the plan saw "
                    f"{planned or 'none'}",
                    "Run a new cycle and approve its recommendation.",
                )
        return target

    def look_again(self, change: Change) -> Target:
        """Read the boards of a change afresh, whatever they hold now. Errors: as `Applier.look`."""
        return self._target(change.target.name, _nodes_of(dict(change.target.state)))

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Return a step for each board.

        Pure. Errors: ChangeRefusedError outside a board's range.
        """
        watts = cap_of(recommendation)
        state = dict(target.state)
        for uuid in _nodes_of(state):
            least, _, most = state[f"range {uuid}"].partition("-")
            if not float(least) <= watts <= float(most):
                raise ChangeRefusedError(
                    f"{watts} W is outside {least}-{most} W of {uuid}",
                    "Approve a recommendation within the board's range.",
                )
        return _change(recommendation.digest, target, dict.fromkeys(_nodes_of(state), watts))

    def change_back(self, change: Change, target: Target) -> Change:
        """Return the change that asks for what was wanted before; pure. Errors: StalePlanError."""
        state = dict(target.state)
        back: dict[str, int | None] = {}
        for step in change.steps:
            now = state[f"wanted {step.target}"]
            if now == (step.before or ""):
                continue
            if now != (step.after or ""):
                raise StalePlanError(
                    f"{step.target} is now asked to hold {now or 'no cap'}, neither "
                    f"{step.before or 'none'} nor {step.after or 'none'}",
                    "Somebody changed it since: nothing is restored.",
                )
            back[step.target] = int(step.before) if step.before else None
        return _change(change.recommendation_digest, target, back)

    def rehearse(self, change: Change) -> Rehearsal:
        """Return the refusals of agents for now: they have no dry run. Errors: ApplyError."""
        exchange = self._exchange()
        boards = [
            _board_in(self._fresh(exchange, node), uuid)
            for uuid, node in _nodes_of(dict(change.target.state)).items()
        ]
        errors = tuple(f"{board.gpu_uuid}: {board.error}" for board in boards if board.error)
        return Rehearsal(rehearsed=False, warnings=errors)

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Write what is wanted of one board. Never raises for what is found."""
        order = json.loads(step.payload)
        node, uuid = order["node"], order["gpu_uuid"]
        try:
            exchange = self._exchange()
            target = self._target_of(exchange, node, uuid)
            if target == step.after:
                return StepResult(outcome=StepOutcome.DONE, detail="asked for already")
            if target != step.before:
                return StepResult(
                    outcome=StepOutcome.REFUSED,
                    detail=f"{uuid} is asked to hold {target or 'no cap'} by now: nothing written",
                )
            cap = None
            if order["watts"] is not None:
                cap = Cap(gpu_uuid=uuid, watts=order["watts"], job_id=order["job_id"])
            exchange.set_cap(node, uuid, cap, now=self._clock(), lease=_LEASE)
        except ApplyError as error:
            # Orders are written whole or not at all.
            return StepResult(outcome=StepOutcome.REFUSED, detail=str(error))
        return StepResult(
            outcome=StepOutcome.DONE, detail=f"the agent of {node} is asked: {step.text}"
        )

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Look once at what the agents report of the boards. Never raises."""
        steps = change.steps[:done]
        if not steps:
            return ReadBack(seen=Verdict.UNTOUCHED, detail="nothing was asked for")
        try:
            exchange = self._exchange()
            readings = [self._of_board(exchange, step) for step in steps]
        except ApplyError as error:
            return ReadBack(seen=Verdict.UNREADABLE, detail=str(error))
        worst = min(readings, key=lambda pair: _WORST_FIRST.index(pair[0]))
        observed = tuple((step.field, pair[2]) for step, pair in zip(steps, readings, strict=True))
        return ReadBack(seen=worst[0], detail=worst[1], observed=observed)

    def renew(self, *, live_jobs: Collection[str]) -> int:
        """Prolong the caps of jobs that still live, and drop the others; give how many are held.

        To be called well within `_LEASE`, by whoever knows the jobs that run.
        Errors: ApplyError.
        """
        return self._exchange().renew(now=self._clock(), lease=_LEASE, live_jobs=live_jobs)

    def access(self) -> tuple[bool, str]:
        """Return whether agents report. Errors: ApplyError."""
        exchange, nodes = self._exchange(), self._exchange().nodes()
        silent = []
        for node in nodes:
            try:
                self._fresh(exchange, node)
            except ApplyError as error:
                silent.append(error.message)
        summary = f"{len(nodes) - len(silent)} of {len(nodes)} agents report"
        if len(silent) < len(nodes):
            return True, "; ".join((summary, *silent[:3]))
        hint = "Start `trimtab agent` on the nodes: docs/power-agent.md."
        return False, f"{summary} in {self._settings.directory}. {hint}"

    def _exchange(self) -> SignedFolder:
        settings = self._settings
        if not settings.directory or not settings.secret_file:
            raise ApplyError(
                "apply_power.directory or apply_power.secret_file is not set",
                "Set both, and start `trimtab agent` on the nodes: docs/power-agent.md.",
            )
        secret = read_secret(Path(settings.secret_file).expanduser())
        return SignedFolder(Path(settings.directory).expanduser(), secret)

    def _target_of(self, exchange: SignedFolder, node: str, gpu_uuid: str) -> str | None:
        order = exchange.order(node)
        if order is None or order.expires_at <= self._clock():
            return None
        watts = order.wanted().get(gpu_uuid)
        return None if watts is None else str(watts)

    def _target(self, name: str, nodes: Mapping[str, str]) -> Target:
        exchange = self._exchange()
        state: list[tuple[str, str]] = []
        for uuid, node in sorted(nodes.items()):
            board = _board_in(self._fresh(exchange, node), uuid)
            if board.least_watts is None or board.most_watts is None or board.limit_watts is None:
                raise ChangeRefusedError(
                    f"{uuid} on {node} has no power limit that can be set: {board.error}",
                    "This board cannot be capped.",
                )
            state += [
                (f"node {uuid}", node),
                (f"range {uuid}", f"{board.least_watts:g}-{board.most_watts:g}"),
                (f"wanted {uuid}", self._target_of(exchange, node, uuid) or ""),
                (f"limit {uuid}", f"{board.limit_watts:g}"),
            ]
        return Target(kind=KIND, name=name, identity=",".join(sorted(nodes)), state=tuple(state))

    def _fresh(self, exchange: SignedFolder, node: str) -> NodeReport:
        report = exchange.report(node)
        if report is None or abs(self._clock() - report.at) > _AGENT_TIMEOUT:
            since = "never" if report is None else f"not since {report.at:%Y-%m-%d %H:%M:%S} UTC"
            if report is not None and report.at > self._clock():
                since += ", by a clock that is ahead"
            raise ApplyError(
                f"the agent of node {node} has reported {since}",
                f"Start `trimtab agent` there, and see that it can write its report: node {node}.",
            )
        return report

    def _of_board(self, exchange: SignedFolder, step: ChangeStep) -> tuple[Verdict, str, str]:
        """Return the state of a step's board as verdict, in words, and its limit."""
        sent = json.loads(step.payload)
        node, uuid = sent["node"], sent["gpu_uuid"]
        target = self._target_of(exchange, node, uuid)
        if target != step.after:
            verdict = Verdict.UNTOUCHED if target == step.before else Verdict.DIFFERENT
            return verdict, f"{uuid} is asked to hold {target or 'no cap'}", ""
        order, report = exchange.order(node), exchange.report(node)
        if report is None or order is None or report.sequence < order.sequence:
            return Verdict.NOT_YET, f"the agent of {node} has not read the order yet", ""
        if abs(self._clock() - report.at) > _AGENT_TIMEOUT:
            return Verdict.UNREADABLE, f"the agent of {node} is silent since {report.at}", ""
        board = next((entry for entry in report.boards if entry.gpu_uuid == uuid), None)
        if board is None:
            return Verdict.GONE, f"{uuid} does not answer on {node}", ""
        return _of_report(board, step, uuid)


_WORST_FIRST = (
    Verdict.UNREADABLE,
    Verdict.GONE,
    Verdict.FAILING,
    Verdict.DIFFERENT,
    Verdict.UNTOUCHED,
    Verdict.NOT_YET,
    Verdict.AS_INTENDED,
)


def _of_report(board: BoardReport, step: ChangeStep, uuid: str) -> tuple[Verdict, str, str]:
    limit = "" if board.limit_watts is None else f"{board.limit_watts:g}"
    if board.error:
        return Verdict.FAILING, f"{uuid}: {board.error}", limit
    if step.after is None:
        verdict = Verdict.AS_INTENDED if board.held_watts is None else Verdict.NOT_YET
        return verdict, f"{uuid} is at {limit} W, without a cap of ours", limit
    if limit != step.after:
        return Verdict.DIFFERENT, f"{uuid} is at {limit or 'an unknown limit'} W", limit
    return Verdict.AS_INTENDED, f"{uuid} is at {limit} W", limit


def _board_in(report: NodeReport, gpu_uuid: str) -> BoardReport:
    for board in report.boards:
        if board.gpu_uuid == gpu_uuid:
            return board
    raise StalePlanError(f"{gpu_uuid} is not on node {report.node} any more", "Run a new cycle.")


def _nodes_of(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the node by GPU UUID."""
    return {
        key.removeprefix("node "): value for key, value in state.items() if key.startswith("node ")
    }


def _change(digest: str, target: Target, caps: Mapping[str, int | None]) -> Change:
    state = dict(target.state)
    steps, undo = [], []
    for uuid, watts in caps.items():
        now = state[f"wanted {uuid}"]
        before, node = int(now) if now else None, state[f"node {uuid}"]
        steps.append(cap_step(uuid, node, before, watts, job_id=target.name))
        undo.append(cap_step(uuid, node, watts, before, job_id=target.name))
    return Change(
        recommendation_digest=digest,
        target=target,
        steps=tuple(steps),
        undo=tuple(reversed(undo)),
        notes=(_LEASE_NOTE,),
    )
