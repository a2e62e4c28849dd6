"""One finding whole, for the command line and the HTTP API."""

from dataclasses import dataclass

from dashboard.decisions.approvals import preview
from dashboard.decisions.findings import FindingStatus
from dashboard.resources.rows import FindingRow, RecordRow, finding_row, record_of
from data.base.errors import ChangeRefusedError
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.store import StoreReader


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFinding:
    """A finding with what was said of it, and the exact text of its change where it has one."""

    finding: FindingRow
    record: list[RecordRow]
    change: str | None


def whole_finding(reader: StoreReader, status: FindingStatus, settings: Settings) -> WholeFinding:
    """Return a finding with its record and the text of the change of its revision."""
    return WholeFinding(
        finding=finding_row(status, settings),
        record=record_of(reader, status.finding.number),
        change=change_text(reader, status),
    )


def change_text(reader: StoreReader, status: FindingStatus) -> str | None:
    """Return the text of the change file, of advice its steps; None where there is neither."""
    if status.revision is None:
        return None
    recommendation = status.revision.recommendation
    try:
        return preview(reader, recommendation).text
    except ChangeRefusedError:
        return advice_steps(recommendation) or None


def advice_steps(recommendation: Recommendation) -> str:
    """Return the steps of advice and, a line each, the jobs of a board; '' where it has none."""
    details = dict(recommendation.details)
    boards = details.get("boards", "").replace("; ", "\n")
    jobs = f"The jobs of each board:\n{boards}" if boards else ""
    return "\n\n".join(filter(None, (details.get("steps", ""), jobs)))
