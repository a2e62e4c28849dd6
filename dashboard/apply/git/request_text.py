"""What a commit and a pull request say: the change, its evidence, its digest and where it is from.

Names come from a cluster and are hostile: no line of a commit begins with one, and a request shows
them as code, where no forge finds a mention, a link or an issue to close.
"""

from urllib.parse import quote

from dashboard.apply.wording import deed
from dashboard.figure_text import range_text
from dashboard.foreign_text import shown
from data.apply_settings import GitApplySettings
from data.records.decisions import Range, Recommendation

_MAX_LENGTH = 300


def title_of(one: Recommendation) -> str:
    """Return the subject of the commit and of the request."""
    said = shown(deed(one, back=False), limit=120)
    return f"{said[:1].upper()}{said[1:]}"


def commit_message(one: Recommendation, settings: GitApplySettings) -> str:
    """Return the message of the commit, signed off by the account that makes it."""
    return (
        f"{title_of(one)}\n\n"
        "Proposed by Trimtab and approved by a person.\n\n"
        f"Trimtab-Digest: {one.digest}\n"
        f"Signed-off-by: {settings.author}\n"
    )


def request_body(one: Recommendation, public_url: str) -> str:
    """Return the description of the request in Markdown."""
    evidence, savings = one.evidence, one.savings
    based_on = (
        f"{evidence.samples} samples of {evidence.signal}, {evidence.window_start:%Y-%m-%d %H:%M} "
        f"to {evidence.window_end:%Y-%m-%d %H:%M} UTC, "
        f"{100 * evidence.completeness_ratio:.0f} % complete"
    )
    computed = (
        f"{one.created_at:%Y-%m-%d %H:%M} UTC, for use until {one.expires_at:%Y-%m-%d %H:%M} UTC"
    )
    saved = _saved(savings.gpu_hours, savings.energy_kwh, savings.cost)
    rows = [
        ("Why", one.why),
        (f"Saves over {savings.horizon_hours:g} h", saved),
        ("Based on", based_on),
        ("Forecast", evidence.forecast_model),
        ("Confidence and risk", f"{one.confidence}, {one.risk}"),
        ("Computed", computed),
    ]
    facts = "\n".join(f"- {name}: {_code(value)}" for name, value in rows)
    page = f"\nPage: {public_url.rstrip('/')}/job?id={quote(one.job_id)}\n" if public_url else ""
    return (
        f"{_code(title_of(one))}\n\n{facts}\n\n"
        f"Recommendation `{one.recommendation_id}`, digest `{one.digest}`\n{page}\n"
        "A person approved exactly this change. Merging makes it; closing declines it, and the "
        "last comment is kept as the reason. Trimtab never merges, and never pushes here again.\n"
    )


def _code(text: str) -> str:
    return f"`{shown(text, limit=_MAX_LENGTH).replace('`', chr(39)).strip() or '-'}`"


def _saved(*ranges: Range | None) -> str:
    """Return the ranges that are known."""
    return ", ".join(range_text(value) for value in ranges if value is not None) or "unknown"
