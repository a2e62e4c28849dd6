"""Counts with their nouns, for messages and pages."""


def count_text(count: float, noun: str, several: str = "") -> str:
    """Return a count with its noun, as `1 job` or `1,234 jobs`.

    `several` is the plural where it is more than the noun with an s.
    """
    return f"{count:,.0f} {noun if round(count) == 1 else several or f'{noun}s'}"
