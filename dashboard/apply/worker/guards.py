"""Guards that keep a change small: limits by hour, namespace, size and time since the last.

What passes with time holds a command; what does not refuses it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from data.base.errors import ChangeRefusedError
from data.records.actions import NOT_FOR_SAVING
from data.records.commands import Command, CommandKind
from data.records.recommendations import Recommendation
from data.settings.apply import ApplySettings
from data.store import StoreReader

MIN_GPU_HOURS, MIN_ENERGY_KWH = 1.0, 1.0
"""The smallest saving worth a change, by either: less is lost in what is not known of it."""
_SHARE_WINDOW = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHold:
    """Reason of a command to wait, and the time to ask again."""

    reason: str
    until: datetime


def apply_hold(
    reader: StoreReader, command: Command, limits: ApplySettings, now: datetime
) -> CommandHold | None:
    """Return the hold on an apply for now: too many within the hour, or too soon for this job."""
    hour_ago = now - timedelta(hours=1)
    cool_down = timedelta(minutes=limits.cool_down_minutes)
    recent = [
        (entry, at)
        for entry, at in reader.prepared_since(min(hour_ago, now - cool_down))
        if entry.command_id != command.command_id
    ]
    within = [at for entry, at in recent if at > hour_ago and entry.kind is CommandKind.APPLY]
    if len(within) >= limits.max_per_hour:
        return CommandHold(
            reason=f"{len(within)} changes within the hour (apply.max_per_hour)",
            until=within[-limits.max_per_hour] + timedelta(hours=1),
        )
    same = [at + cool_down for entry, at in recent if entry.target == command.target]
    if same and max(same) > now:
        return CommandHold(
            reason=f"{command.target} was changed less than {limits.cool_down_minutes:g} min ago "
            "(apply.cool_down_minutes)",
            until=max(same),
        )
    return None


def require_within_limits(
    reader: StoreReader,
    recommendation: Recommendation,
    others: Iterable[Recommendation],
    limits: ApplySettings,
) -> None:
    """Refuse (ChangeRefusedError) a change that is too small, or too large for its namespace.

    `others` are the recommendations applied within the last day and not rolled back. What serves a
    job instead of saving is never too small.
    """
    savings = recommendation.savings
    worth = (
        (savings.gpu_hours, MIN_GPU_HOURS),
        (savings.energy_kwh, MIN_ENERGY_KWH),
    )
    saves = recommendation.action not in NOT_FOR_SAVING and any(value for value, _ in worth)
    if saves and not any(value is not None and value.central >= least for value, least in worth):
        raise ChangeRefusedError(
            f"the saving is below {MIN_GPU_HOURS:g} GPU-h and {MIN_ENERGY_KWH:g} kWh",
            "A change this small is not worth its risk: make it by hand if it is.",
        )
    _require_share(reader, recommendation, others, limits)


def taken_gpus(recommendation: Recommendation) -> int:
    """Return the GPUs that the change takes from its job; 0 for a cap, and for a node's change."""
    if recommendation.action.spec.caps_power or recommendation.action.spec.of_node:
        return 0
    return max(0, recommendation.now.gpu_count - recommendation.proposed.gpu_count)


def _require_share(
    reader: StoreReader,
    recommendation: Recommendation,
    others: Iterable[Recommendation],
    limits: ApplySettings,
) -> None:
    namespace, taking = recommendation.namespace, taken_gpus(recommendation)
    if not taking:
        return
    approved = sum(taken_gpus(other) for other in others if other.namespace == namespace)
    latest = reader.latest_sample_at()
    gpus = reader.gpus(start=latest - timedelta(hours=1)) if latest else ()
    holders = reader.jobs_of({job_id for gpu in gpus for job_id in gpu.holders})
    ours = {job_id for job_id, job in holders.items() if job.namespace == namespace}
    allocated = sum(not ours.isdisjoint(gpu.holders) for gpu in gpus)
    # What a job holds by its plan counts even where telemetry has gone quiet.
    before = max(allocated + approved, recommendation.now.gpu_count)
    if approved + taking > limits.max_namespace_share_ratio * before:
        raise ChangeRefusedError(
            f"{approved + taking} of the {before} GPUs of {namespace} would be taken within "
            f"{_SHARE_WINDOW / timedelta(hours=1):g} h (apply.max_namespace_share_ratio "
            f"{limits.max_namespace_share_ratio:g})",
            "Apply it tomorrow, or raise the limit.",
        )
