"""Jobs submitted to a Slurm bed: found and followed."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from beds.slurm import SlurmBed

from dashboard.submission.submit.watch import watch_all
from data.base.clock import utc_now
from data.records.submissions import Submission
from data.settings.all_settings import Settings
from data.settings.sources import SlurmSettings
from data.settings.submission import SubmitSettings
from data.store import Store


def settings_of(bed: SlurmBed, **submission: Any) -> Settings:
    """Settings for a bed; submission is on unless told otherwise."""
    return Settings(
        slurm=SlurmSettings(
            mode="commands",
            conf_file=str(bed.conf),
            gpu_models="h100=H100-SXM5-80GB,a100=A100-SXM4-40GB",
        ),
        submit=SubmitSettings(
            # The bed runs as one user, who is SlurmUser too.
            **({"enabled": True, "max_gpus": 8, "allow_slurm_operator": True} | submission)
        ),
    )


def number_of(submission: Submission) -> str:
    """The number that Slurm gave it."""
    return submission.latest.job_id.removeprefix("slurm:")


def followed(bed: SlurmBed, store: Store, settings: Settings) -> Submission:
    """The only submission, when it has ended."""

    def ended() -> bool:
        watch_all(store, settings, now=utc_now() + timedelta(seconds=1))
        return not store.reader.submissions()[0].state.is_open

    bed.until("the submission ends", ended)
    return store.reader.submissions()[0]


def program(folder: Path, name: str, text: str) -> Path:
    """An executable script."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path
