"""The limits that settings declare: their ends are taken, what lies beyond is refused by name."""

import math
from dataclasses import Field, fields
from typing import Any

import pytest

from data.base.errors import SettingsError
from data.settings.all_settings import Settings
from data.settings.fields import Limits, Section, documented, settings_in

DECLARED: list[tuple[Section, Field[Any]]] = [
    (section, field)
    for entry in fields(Settings)
    for section in [getattr(Settings(), entry.name)]
    for field in settings_in(section)
    if field.metadata["limits"] != Limits()
]
RANGES = [pair for pair in DECLARED if not pair[1].metadata["limits"].choices]
TIED = {
    *("planning.slot_minutes", "retention.raw_days", "retention.five_minute_days"),
    *("retention.hourly_days", "tenants.over_quota_penalty"),
}
"""Settings whose ends other rules refuse: what divides a day, what is kept longer."""


def name_of(pair: tuple[Section, Field[Any]]) -> str:
    """The name that a person writes."""
    return f"{pair[0].section}.{pair[1].name}"


def test_sections_are_called_as_settings_calls_them() -> None:
    """A message names the setting as a file does."""
    for field in fields(Settings):
        assert getattr(Settings(), field.name).section == field.name


def test_most_numbers_have_limits() -> None:
    """A number that may be anything breaks arithmetic somewhere."""
    free = {
        f"{entry.name}.{field.name}"
        for entry in fields(Settings)
        for field in settings_in(getattr(Settings(), entry.name))
        if type(field.default) in (int, float) and field.metadata["limits"] == Limits()
    }
    assert free == set()


@pytest.mark.parametrize("pair", RANGES, ids=name_of)
def test_a_range_is_held_at_both_ends(pair: tuple[Section, Field[Any]]) -> None:
    """Both ends, or what is next to an open one, are taken; a step beyond and no number are not."""
    section, field = pair
    limits: Limits = field.metadata["limits"]
    kind = type(field.default)
    lowest = limits.above if limits.minimum is None else limits.minimum
    assert lowest is not None
    assert limits.maximum is not None
    assert lowest < limits.maximum
    step = 1 if kind is int else max(abs(limits.maximum) * 1e-9, 1e-6)
    first = lowest if limits.above is None else lowest + step
    if name_of(pair) not in TIED:
        for taken in (first, limits.maximum):
            made = type(section)(**{field.name: kind(taken)})
            assert getattr(made, field.name) == kind(taken)
    beyond = [limits.maximum + step, first - step if limits.above is None else lowest]
    for refused in (*map(kind, beyond), *([math.nan] if kind is float else [])):
        with pytest.raises(SettingsError) as caught:
            type(section)(**{field.name: refused})
        assert caught.value.message.startswith(f"{name_of(pair)} is ")
        assert caught.value.hint == f"It must be {limits.rule()}."


@pytest.mark.parametrize("pair", [entry for entry in DECLARED if entry not in RANGES], ids=name_of)
def test_only_the_words_of_a_choice_are_taken(pair: tuple[Section, Field[Any]]) -> None:
    """Another word is refused with all that there are."""
    section, field = pair
    choices = field.metadata["limits"].choices
    assert field.default in choices
    with pytest.raises(SettingsError) as caught:
        type(section)(**{field.name: "neither"})
    assert all((word or "empty") in caught.value.hint for word in choices)


def test_rules_are_words() -> None:
    """As messages and the page of settings say them."""
    assert Limits(minimum=0, maximum=876_000).rule() == "0 to 876,000"
    assert Limits(above=0, maximum=600).rule() == "above 0, at most 600"
    assert Limits(minimum=-1e4, maximum=1e4).rule() == "-10,000 to 10,000"
    assert Limits(choices=("rest", "")).rule() == "rest or empty"
    assert Limits().rule() == ""
    assert documented(1, "one").metadata["limits"].rule() == ""
