"""Numbers for people: three significant digits, and no more of a range than its largest has."""

from math import floor, log10

from data.records.recommendations import Evidence, Range, Recommendation

_DIGITS = 3
_THOUSAND = 1000


def figure_text(value: float) -> str:
    """Return a number with three significant digits, whole from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= _THOUSAND else f"{value:.{_DIGITS}g}"


def samples_text(evidence: Evidence) -> str:
    """Return the number of samples, their time and completeness; for no job those of none."""
    if not evidence.samples:
        return "none: it rests on no job's samples"
    return (
        f"{evidence.samples:,} from {evidence.window_start:%Y-%m-%d %H:%M} to "
        f"{evidence.window_end:%Y-%m-%d %H:%M} UTC, "
        f"{100 * evidence.completeness_ratio:.1f} % complete"
    )


def range_texts(value: Range) -> tuple[str, str, str]:
    """Return low, central and high, all rounded at the last digit of the largest of them.

    What is far below that digit is within the range's own uncertainty of zero.
    """
    amounts = (value.low, value.central, value.high)
    largest = max(abs(amount) for amount in amounts)
    decimals = _DIGITS - 1 - floor(log10(largest)) if largest > 0 else 0
    low, central, high = (figure_text(round(amount, max(0, decimals)) + 0.0) for amount in amounts)
    return low, central, high


def bare_range_text(value: Range) -> str:
    """Return a range as `12.4 (9.8–15.1)`, and one whose ends read alike as `12.4`.

    A dash before a minus sign is hard to read: there it is `-0.3 (-0.9 to 0.2)`.
    """
    low, central, high = range_texts(value)
    between = " to " if low.startswith("-") else "–"
    return central if low == high else f"{central} ({low}{between}{high})"


def range_text(value: Range | None, unknown: str = "—") -> str:
    """Return a range as `12.4 (9.8–15.1) kWh`, an em dash when unknown."""
    return unknown if value is None else f"{bare_range_text(value)} {value.unit}"


def short_name(name: str, limit: int = 40) -> str:
    """Return a name of at most `limit` characters, cut in its middle: ends tell names apart."""
    if len(name) <= limit:
        return name
    tail = (limit - 1) // 2
    return f"{name[: limit - 1 - tail]}…{name[len(name) - tail :]}"


def target_text(recommendation: Recommendation) -> str:
    """Return the target of a change: the job by its id, after its name where the id lacks it."""
    name, target = recommendation.job_name, recommendation.target
    return f"{name} ({target})" if name and name not in target else target
