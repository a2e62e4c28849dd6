"""`submissions list` says how old the states of open submissions may be."""

from datetime import timedelta

import pytest
from factories import NOW

from dashboard.cli.decide.submit_command import state_age_text


@pytest.mark.parametrize(
    ("minutes", "age"), [(0, "0 min"), (59, "59 min"), (60, "1.0 h"), (150, "2.5 h")]
)
def test_the_latest_cycle_has_looked(minutes: int, age: str) -> None:
    """A server that stopped looks no more, and the state stays what it was."""
    looked = NOW - timedelta(minutes=minutes)
    said = state_age_text(looked, NOW)
    assert f"by the cycle of {looked:%Y-%m-%d %H:%M} UTC, {age} ago" in said
    assert "`trimtab submissions watch`" in said
