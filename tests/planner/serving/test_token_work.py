"""Seconds a token learnt apart, and demand that counts long prompts for what they take."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.base.units import SLOT_SECONDS
from planner.serving.service_model import ServiceReadings, learnt
from planner.serving.token_work import demand, token_seconds

DAY = 86_400 // SLOT_SECONDS


def readings(
    prompt: np.ndarray, generated: np.ndarray, seconds: np.ndarray, **columns: np.ndarray
) -> ServiceReadings:
    """300 requests a slot that read, write and take so much altogether."""
    size = len(prompt)
    steady = {
        "running": np.full(size, 8.0), "waiting": np.zeros(size),
        "finished": np.full(size, 300.0), "fullest": np.full(size, 8.0),
        "full": np.full(size, 8.0), "timed_seconds": seconds, "timed": np.full(size, 300.0),
        "waited_seconds": np.zeros(size), "waited": np.full(size, 300.0),
        "prompt": prompt, "generated": generated, "replicas": np.ones(size),
        "cache": np.full(size, np.nan),
    }  # fmt: skip
    starts = np.arange(size) * SLOT_SECONDS
    return ServiceReadings(engine="vllm", starts=starts, **(steady | columns))


def mixed(prompt_seconds: float, generated_seconds: float, noise: float = 0.0) -> ServiceReadings:
    """A day whose prompts are ten times as long in its second half."""
    rng = np.random.default_rng(4)
    prompt = np.where(np.arange(DAY) < DAY // 2, 1.5e5, 1.5e6) * rng.uniform(0.8, 1.2, DAY)
    generated = 6e4 * rng.uniform(0.8, 1.2, DAY)
    seconds = prompt_seconds * prompt + generated_seconds * generated
    return readings(prompt, generated, seconds * rng.uniform(1 - noise, 1 + noise, DAY))


@given(st.floats(1e-5, 1e-2), st.floats(1e-4, 1e-1))
def test_what_a_token_takes_is_found_apart(prompt: float, generated: float) -> None:
    """From sums of slots alone, however unlike the two are."""
    found = token_seconds(mixed(prompt, generated))
    assert found is not None
    assert found.prompt.central == pytest.approx(prompt, rel=1e-3)
    assert found.generated.central == pytest.approx(generated, rel=1e-3)


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_its_doubt_holds_the_truth_where_seconds_vary(noise: float) -> None:
    """The quarters of the day differ by what they do not know."""
    found = token_seconds(mixed(1e-3, 2e-2, noise))
    assert found is not None
    assert found.prompt.low <= 1e-3 <= found.prompt.high
    assert found.generated.low <= 2e-2 <= found.generated.high


def test_as_many_requests_with_longer_prompts_are_more_demand() -> None:
    """By as much as they take: their mean over the day is that of the requests."""
    day = mixed(1e-3, 2e-2)
    carries, each = learnt(day), token_seconds(day)
    assert carries is not None
    assert each is not None
    came = demand(day, carries, each)
    assert came.mean() == pytest.approx(300.0, rel=1e-3)
    seconds = day.timed_seconds / day.timed
    assert came == pytest.approx(300.0 * seconds / carries.service_seconds.central, rel=1e-3)
    assert came[DAY // 2 :].mean() > 1.5 * came[: DAY // 2].mean()


def test_a_queue_that_grows_is_demand_and_unknown_tokens_leave_the_requests() -> None:
    """What waits has told no tokens yet; a slot without them counts by what ended."""
    day = mixed(1e-3, 2e-2)
    carries, each = learnt(day), token_seconds(day)
    assert carries is not None
    assert each is not None
    plain = demand(day, carries, each)
    waiting = np.zeros(DAY)
    waiting[100:] = 60.0
    prompt = day.prompt.copy()
    prompt[7] = np.nan
    other = readings(prompt, day.generated, day.timed_seconds, waiting=waiting, running=day.running)
    came = demand(other, carries, each)
    assert came[100] == pytest.approx(plain[100] + 60.0)
    assert came[7] == pytest.approx(other.arrivals[7])
    rest = np.setdiff1d(np.arange(DAY), (7, 100))
    assert came[rest] == pytest.approx(plain[rest])


@pytest.mark.parametrize("which", ["prompt", "generated", "timed_seconds"])
def test_what_is_not_told_is_unknown(which: str) -> None:
    """No tokens, no seconds, and too few hours of them."""
    day = mixed(1e-3, 2e-2)
    nothing = {which: np.full(DAY, np.nan)}
    values = {"prompt": day.prompt, "generated": day.generated, "timed_seconds": day.timed_seconds}
    values |= nothing
    lacking = readings(
        values["prompt"], values["generated"], values["timed_seconds"], running=np.full(DAY, np.nan)
    )
    assert token_seconds(lacking) is None
    few = np.arange(DAY) < DAY - 47
    hours = readings(np.where(few, np.nan, day.prompt), day.generated, day.timed_seconds)
    assert token_seconds(hours) is None


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_one_mix_of_tokens_tells_nothing_apart(noise: float) -> None:
    """As many of both for each request, by day and by night: any split would be made up."""
    rng = np.random.default_rng(2)
    load = np.where(np.arange(DAY) < DAY // 2, 1.0, 5.0)
    prompt, generated = (
        size * load * rng.uniform(1 - noise, 1 + noise, DAY) for size in (1.5e5, 6e4)
    )
    assert token_seconds(readings(prompt, generated, 1e-3 * prompt + 2e-2 * generated)) is None
