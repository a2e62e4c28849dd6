"""States of sent Slurm jobs: of a word that is not known the state stays, and the word is told."""

import pytest
from factories import NOW
from submission_cases import make_job

from collectors.slurm.commands import SlurmCommands
from dashboard.submission.targets.slurm_target import SlurmTarget
from dashboard.submission.targets.target import SentJobState
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.submissions import Attempt, SubmissionState
from data.settings.sources import SlurmSettings
from data.settings.submission import SubmitSettings


def state_of(monkeypatch: pytest.MonkeyPatch, word: str, before: SubmissionState) -> SentJobState:
    """The state of a sent job of which Slurm says this word."""
    shown = f"JobId=7 JobState={word} Reason=None ExitCode=0:0"
    monkeypatch.setattr(SlurmCommands, "output", lambda *_arguments: shown)
    target = SlurmTarget(SlurmSettings(), SubmitSettings(), load_gpu_catalogue())
    attempt = Attempt(number=1, plan=None, manifest="", state=before, sent_at=NOW, job_id="slurm:7")  # type: ignore[arg-type]
    return target.standing(attempt, make_job())


@pytest.mark.parametrize("before", [SubmissionState.PENDING, SubmissionState.RUNNING])
@pytest.mark.parametrize("word", ["LAUNCH_FAILED", "UPDATE_DB", "FNORD"])
def test_a_word_that_is_not_known_ends_no_job(
    word: str, before: SubmissionState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm has new states with new releases; only a known one says that a job failed."""
    found = state_of(monkeypatch, word, before)
    assert (found.state, word in found.reason) == (before, True)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("REQUEUE_HOLD", SubmissionState.PENDING),
        ("SPECIAL_EXIT", SubmissionState.PENDING),
        ("CONFIGURING", SubmissionState.PENDING),
        ("STAGE_OUT", SubmissionState.RUNNING),
        ("SUSPENDED", SubmissionState.RUNNING),
        ("STOPPED", SubmissionState.RUNNING),
        ("COMPLETING", SubmissionState.RUNNING),
        ("COMPLETED", SubmissionState.FINISHED),
        ("CANCELLED", SubmissionState.CANCELLED),
        ("REVOKED", SubmissionState.CANCELLED),
        ("TIMEOUT", SubmissionState.FAILED),
        ("NODE_FAIL", SubmissionState.FAILED),
        ("RESV_DEL_HOLD", SubmissionState.PENDING),
        ("OUT_OF_MEMORY", SubmissionState.OUT_OF_HOST_MEMORY),
    ],
)
def test_words_of_slurm_are_read_as_collected_jobs_are(
    word: str, state: SubmissionState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that somebody holds after a requeue waits; it did not fail."""
    assert state_of(monkeypatch, word, SubmissionState.RUNNING).state is state
