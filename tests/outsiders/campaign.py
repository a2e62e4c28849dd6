"""Campaigns of drawn scenarios against systems that we did not write.

A scenario is a frozen dataclass whose fields all have a default: the plainest case. A campaign
draws many of them from a printed seed, runs each one, and gathers every failure before it fails
itself. A failing scenario is first made as plain as it can be while it still fails.

`TRIMTAB_SCENARIOS` sets how many are drawn, `TRIMTAB_SCENARIO_SEED` from which seed. The draw of
one scenario depends on the campaign, the seed and its number alone: a single one can be run again.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

SEED = int(os.environ.get("TRIMTAB_SCENARIO_SEED", "20261122"))
COUNT = os.environ.get("TRIMTAB_SCENARIOS")
"""Read here, as no test sees the settings of the person who runs it."""
MAX_SHRINK_TRIES = 30
Scenario = TypeVar("Scenario")


@dataclass(frozen=True)
class Failure:
    """One scenario that broke a promise, as plain as it still fails."""

    number: int
    scenario: object
    reason: str

    def __str__(self) -> str:
        """Return one line that lets somebody run the scenario again."""
        return f"seed {SEED}, number {self.number}: {self.reason}\n    {self.scenario}"


def scenario_count(default: int) -> int:
    """Return how many scenarios to draw: `TRIMTAB_SCENARIOS`, else the default of the campaign."""
    return default if COUNT is None else int(COUNT)


def source_of(campaign: str, number: int) -> random.Random:
    """Return the source of randomness of one scenario."""
    return random.Random(f"{campaign}:{SEED}:{number}")  # noqa: S311 a draw, no secret


def shrink(scenario: Scenario, fails: Callable[[Scenario], str | None]) -> tuple[Scenario, str]:
    """Return the plainest scenario found that still fails, and why it does.

    Fields are set back to their defaults one at a time. A reason of None means that it holds.
    """
    reason = fails(scenario) or "failed once and held when it was run again"
    tries = 1
    changed = True
    while changed and tries < MAX_SHRINK_TRIES:
        changed = False
        plainest: Any = type(scenario)()
        for field in fields(scenario):  # type: ignore[arg-type]
            default = getattr(plainest, field.name)
            if getattr(scenario, field.name) == default or tries >= MAX_SHRINK_TRIES:
                continue
            candidate = replace(scenario, **{field.name: default})  # type: ignore[type-var]
            tries += 1
            if (still := fails(candidate)) is not None:
                scenario, reason, changed = candidate, still, True
    return scenario, reason


def run_campaign(
    name: str,
    draw: Callable[[random.Random], Scenario],
    fails: Callable[[Scenario], str | None],
    *,
    default: int,
    measured: Callable[[str], None] | None = None,
) -> None:
    """Draw and run the scenarios of a campaign; fail with every scenario that broke a promise.

    `fails` runs one scenario on fresh objects and returns what it broke, or None. An exception
    counts as a failure. `measured` is the fixture of that name, for docs/reliability.md.
    """

    def outcome_of(scenario: Scenario) -> str | None:
        try:
            return fails(scenario)
        except Exception as error:  # noqa: BLE001 a scenario that crashes is a finding, not the end
            return f"{type(error).__name__}: {error}"

    failures: list[Failure] = []
    count = scenario_count(default)
    for number in range(count):
        scenario = draw(source_of(name, number))
        if (reason := outcome_of(scenario)) is None:
            continue
        plain, why = shrink(scenario, outcome_of)
        failures.append(Failure(number, plain, why if plain != scenario else reason))
    line = f"{name}: {count} scenarios, {len(failures)} failed, seed {SEED}"
    print(line)  # noqa: T201 shown with a failure and by `make test-all`
    if measured is not None:
        measured(line)
    assert not failures, "\n".join([line, *map(str, failures)])
