"""The runner of campaigns draws what its seed says and names what failed."""

import random
from dataclasses import dataclass

import pytest
from outsiders import campaign
from outsiders.campaign import run_campaign, shrink, source_of


@dataclass(frozen=True)
class Sum:
    """A scenario to test the runner with."""

    first: int = 0
    second: int = 0
    label: str = ""


def draw(source: random.Random) -> Sum:
    """Return a sum of two small numbers with a label."""
    return Sum(source.randrange(4), source.randrange(4), source.choice(["a", "b"]))


def too_large(scenario: Sum) -> str | None:
    """Return why a sum is too large."""
    return "too large" if scenario.first > 2 else None


def test_a_number_draws_the_same_scenario_again() -> None:
    """One scenario depends on campaign, seed and number alone."""
    drawn = [draw(source_of("sums", number)) for number in range(20)]
    assert drawn == [draw(source_of("sums", number)) for number in range(20)]
    assert len(set(drawn)) > 5


def test_a_failing_scenario_is_made_plain() -> None:
    """Fields that do not matter go back to their defaults."""
    assert shrink(Sum(3, 2, "b"), too_large) == (Sum(first=3), "too large")


def test_every_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign runs to its end and then fails with all that broke, a crash included."""
    monkeypatch.setattr(campaign, "COUNT", "40")
    lines: list[str] = []

    def fails(scenario: Sum) -> str | None:
        return str(1 // scenario.second) and too_large(scenario)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_campaign("sums", draw, fails, default=2, measured=lines.append)
    assert lines[0].startswith("sums: 40 scenarios, ")
    run_campaign("sums", draw, lambda scenario: None, default=2, measured=lines.append)
    assert lines[1].startswith("sums: 40 scenarios, 0 failed")
