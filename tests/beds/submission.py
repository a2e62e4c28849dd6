"""Jobs submitted to a bed of any kind: proposed and sent as the product does."""

from dashboard.submission.job.job_file import JobFile
from dashboard.submission.submit.proposal import SubmissionProposal, propose
from dashboard.submission.submit.submit import submit
from dashboard.submission.submit.waiting_jobs import waiting_jobs
from dashboard.submission.targets import choose_target
from dashboard.submission.targets.target import SubmissionTarget
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.submissions import Submission
from data.settings.all_settings import Settings
from data.store import Store


def target_of(settings: Settings) -> SubmissionTarget:
    """Return the target of these settings."""
    return choose_target.target_of(settings, choose_target.target_name(settings))


def proposal_of(job: JobFile, settings: Settings, store: Store) -> SubmissionProposal:
    """Return what would be sent, beside what the store knows to wait."""
    return propose(
        job,
        target_of(settings),
        settings=settings.submit,
        peaks=store.reader.measured_peaks("none"),
        by="ada",
        now=utc_now(),
        waiting=waiting_jobs(store.reader, load_gpu_catalogue()),
    )


def sent(job: JobFile, settings: Settings, store: Store) -> Submission:
    """Return the job, submitted."""
    proposal = proposal_of(job, settings, store)
    return submit(proposal, target_of(settings), store, settings=settings, by="ada", now=utc_now())
