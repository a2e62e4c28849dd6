"""Facts behind an applier's refusal, as a digest: until it changes, the refusal holds."""

from data.facts.identifiers import digest_of
from data.facts.jobs import Job
from data.records.feasible_changes import SERVER_VERSION

TARGET_FACTS = "facts of the target"
"""The factor of a recommendation that holds `target_facts` as the plan saw them."""
_STABLE_FACTS = frozenset(
    (
        *("generation", "fixed_work", "own_shares", "pods_floor", "pods_stay", "elastic"),
        *("deleted_when_stopped", "closed_models"),
        *("min_replicas", "max_replicas", "autoscaler"),
        *("bounds_kept_by", "named_gpus", "named_pods", "named_processes", "gpu_containers"),
        *("gpus_per_unit", "gpus_per_pod", "fixed_size", "gres", "gres_per", "nodes_requested"),
        *("requeue", "batch", "features", "reservation", "required_nodes", "untyped"),
        *("deadline_at", "array_job", "het_job", "slurm_release", SERVER_VERSION),
    )
)
"""Facts of a job behind a refusal, without those that change by themselves from hour to hour."""


def target_facts(job: Job) -> str:
    """Return a digest of what a refusal to change a job may rest on, '' where nothing is told."""
    facts = job.scheduler
    if facts is None:
        return ""
    stable = sorted((name, value) for name, value in facts.extra if name in _STABLE_FACTS)
    size = (job.gpu_model, job.gpu_count, job.mig_profile, job.namespace, job.owner)
    return digest_of([stable, size, facts.managed_by, facts.state, facts.time_limit_seconds])[:12]
