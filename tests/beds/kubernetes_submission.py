"""Jobs submitted to a Kubernetes bed: found and followed."""

from typing import Any

from beds.kubernetes import KubernetesBed

from dashboard.submission.submit.watch import watch_all
from data.base.clock import utc_now
from data.records.submissions import Submission, SubmissionState
from data.settings.all_settings import Settings
from data.settings.sources import KubernetesSettings
from data.settings.submission import SubmitSettings
from data.store import Store


def delete_job(bed: KubernetesBed, name: str) -> None:
    """Delete a Job without waiting for a collector of garbage, which the bed has not."""
    bed.ask("DELETE", bed.path("Job", "default", name), params={"propagationPolicy": "Background"})


def settings_of(bed: KubernetesBed, *, user: str = "admin", **submission: Any) -> Settings:
    """Settings that read as the reader and submit as a user."""
    values: dict[str, Any] = {"enabled": True, "kubeconfig": str(bed.kubeconfig(user))}
    return Settings(
        kubernetes=KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("reader"))),
        submit=SubmitSettings(**(values | submission)),
    )


def name_of(submission: Submission) -> str:
    """The name of its Job."""
    return submission.latest.job_id.rpartition("/")[2]


def pods_of(bed: KubernetesBed, submission: Submission) -> list[dict[str, Any]]:
    """The pods of its latest attempt."""
    return [
        pod
        for pod in bed.pods()
        if pod["metadata"]["labels"].get("trimtab/name") == name_of(submission)
    ]


def followed(
    bed: KubernetesBed, store: Store, settings: Settings, state: SubmissionState
) -> Submission:
    """The only submission, when its latest attempt is in a state."""

    def reached() -> bool:
        looks = watch_all(store, settings, now=utc_now())
        assert not [look.error for look in looks if look.error]
        return store.reader.submissions()[0].state is state

    bed.until(f"the submission is {state}", reached, seconds=30)
    return store.reader.submissions()[0]
