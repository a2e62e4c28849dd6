"""What every applier does: name the steps of a change, from the same code for preview and apply."""

from dataclasses import dataclass
from typing import Protocol

from data.records.cluster import Gpu
from data.records.decisions import Recommendation
from data.records.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeText:
    """The exact text of one change: a file name without folder, and what goes into it."""

    file_name: str
    text: str


class Applier(Protocol):
    """Turns a recommendation into the text of its change; pure, so preview equals apply."""

    def change_for(
        self, recommendation: Recommendation, gpus: tuple[Gpu, ...], job: Job | None
    ) -> ChangeText:
        """Give the change; `gpus` are those that the job holds now, `job` what is known of it."""
        ...
