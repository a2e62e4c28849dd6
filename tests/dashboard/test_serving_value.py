"""Tokens per money and per joule: sums that are those of the boards, and no ratio of a guess."""

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from factories import H100, NOW, make_collected, make_job, make_samples

from dashboard.accounting.cost.statement import CostStatement, make_cost_statement
from dashboard.serving.token_cost import OTHER_JOBS, TokenValue, cached_token_values, token_values
from data.facts.collected import Collected
from data.facts.columns import ALLOCATIONS, SERVING, check_frame
from data.settings.all_settings import Settings
from data.settings.statements import GpuPrice, StatementSettings
from data.store import Store, open_store

CHAT, DARK, TRAIN = "search/chat", "search/dark", "vision/train"
PRICED = Settings(
    statement=StatementSettings(
        prices=(GpuPrice(gpu_model=H100, per_gpu_hour=2.0),), charge_electricity=False
    )
)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A day of four boards: two services, one without power, a training job, and a free board."""
    boards = [(CHAT, 360.0), (DARK, None), (TRAIN, 500.0), ("", 60.0)]
    frames = [
        make_samples(
            minutes=26 * 60, end=NOW, job_id=job, utilization_ratio=0.5 if job else 0.0,
            gpu_uuid=f"GPU-{number}", power_watts=watts, memory_used_mib=20_000.0 if job else 0.0,
        )
        for number, (job, watts) in enumerate(boards)
    ]  # fmt: skip
    starts = pd.date_range(NOW - 24 * HOUR, NOW, freq="5min", inclusive="left").as_unit("us")
    served = [
        pd.DataFrame(
            {"slot_start": starts, "label_id": f"{job}-0", "engine": "vllm",
             "generation_tokens": 3600.0 / 12 * 10}
        )
        for job in (CHAT, DARK)
    ]  # fmt: skip
    served[0] = served[0].drop(index=[5])  # the first hour is not whole
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('value')}/t.duckdb") as opened:
        jobs = tuple(make_job(job) for job, _watts in boards if job)
        rows = check_frame(pd.concat(served, ignore_index=True), SERVING)
        opened.keep(make_collected(pd.concat(frames, ignore_index=True), jobs, serving=rows))
        yield opened


def values(store: Store, settings: Settings = PRICED) -> dict[str, TokenValue]:
    """By holder."""
    found = token_values(store.reader, settings, {CHAT, DARK}, end=NOW)
    return {value.holder: value for value in found}


def test_services_other_jobs_and_what_is_free_are_all_boards(store: Store) -> None:
    """Hours, energy and money are those of the statement, to 0.1 %; nothing is spread."""
    found = values(store)
    assert set(found) == {CHAT, DARK, OTHER_JOBS, "(not allocated)"}
    total = make_cost_statement(store.reader, PRICED, start=NOW - 24 * HOUR, end=NOW).total
    assert sum(value.board_hours for value in found.values()) == pytest.approx(96, rel=1e-3)
    for name, whole in (("cost", total.cost), ("gpu_kwh", total.gpu_kwh)):
        parts = [getattr(value, name) for value in found.values()]
        assert sum(part for part in parts if part is not None) == pytest.approx(whole, rel=1e-3)
    measured = store.reader.energy(start=NOW - 24 * HOUR, end=NOW, by="fleet")
    assert total.gpu_kwh == pytest.approx(float(measured["energy_kwh"].sum()), rel=1e-3)


def test_ratios_are_of_the_hours_that_were_read_whole(store: Store) -> None:
    """10 tokens a second for 2 EUR and 360 W an hour: 18,000 a EUR, 1 of 36 J."""
    chat = values(store)[CHAT]
    assert chat.known_hours == 23
    assert chat.tokens_per_cost == pytest.approx(18_000, rel=1e-3)
    assert chat.tokens_per_joule == pytest.approx(1 / 36, rel=1e-3)
    assert (chat.no_cost, chat.no_energy) == ("", "")
    assert chat.board_hours == pytest.approx(24, rel=1e-3)


def test_without_power_or_price_there_is_no_ratio_and_a_reason(store: Store) -> None:
    """Nor for who tells no tokens."""
    found = values(store)
    assert found[DARK].tokens_per_joule is None
    assert "no power was measured" in found[DARK].no_energy
    assert found[DARK].tokens_per_cost is not None
    assert found[OTHER_JOBS].tokens_per_cost is None
    unpriced = Settings(
        statement=StatementSettings(
            prices=(GpuPrice(gpu_model="Voodoo2", per_gpu_hour=1.0),), charge_electricity=False
        )
    )
    chat = values(store, unpriced)[CHAT]
    assert chat.tokens_per_cost is None
    assert "statement.prices" in chat.no_cost
    assert chat.tokens_per_joule is not None
    assert np.isfinite(chat.tokens_per_joule)


def test_a_page_that_is_drawn_again_makes_no_other_statement(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the data change; what other services are looked at is another question."""
    made: list[object] = []

    def counted(*given: object, **named: object) -> CostStatement:
        made.append(given)
        return make_cost_statement(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("dashboard.serving.token_cost.make_cost_statement", counted)
    reader = store.reader_for_pages()
    first, second = (
        cached_token_values(reader, PRICED, {DARK, CHAT}, end=NOW) for _draw in range(2)
    )
    assert first == second == token_values(store.reader, PRICED, {CHAT, DARK}, end=NOW)
    assert len(made) == 2
    cached_token_values(reader, PRICED, {CHAT}, end=NOW)
    assert len(made) == 3
    store.keep(make_collected(batch_id="another"))
    cached_token_values(reader, PRICED, {CHAT}, end=NOW)
    assert len(made) == 4


API = "search/api"
PODS = (f"{API}-7d9f8c6b5-x2x4z", f"{API}-7d9f8c6b5-k9k7w")


def two_replicas(*, silent_hours: int, owned: bool) -> Collected:
    """Return a day of two replicas of 1,000 tokens/s and 500 W each, on a board each.

    The second board was not read in the second half of the first `silent_hours`. `owned`: a
    scheduler tells their workload; else their pods alone are known.
    """
    frames = [
        make_samples(
            minutes=26 * 60, job_id=pod, gpu_uuid=f"GPU-{number}", gpu_index=str(number),
            power_watts=500.0,
        )
        for number, pod in enumerate(PODS)
    ]  # fmt: skip
    at = frames[1]["sampled_at"]
    late = (at.dt.minute >= 30) & (at < pd.Timestamp(NOW - (24 - silent_hours) * HOUR))
    frames[1] = frames[1][~(late & (at >= pd.Timestamp(NOW - 24 * HOUR)))]
    starts = pd.date_range(NOW - 24 * HOUR, NOW, freq="5min", inclusive="left").as_unit("us")
    rows = [pd.DataFrame({"slot_start": starts, "label_id": pod, "engine": "vllm"}) for pod in PODS]
    held = pd.DataFrame(
        {"job_id": API, "label_id": PODS, "node": "node-1", "gpu_index": ["0", "1"],
         "gpu_count": 1.0, "started_at": pd.Timestamp(NOW - 26 * HOUR).as_unit("us"),
         "seen_at": pd.Timestamp(NOW).as_unit("us"), "source": "test"}
    )  # fmt: skip
    served = pd.concat(rows, ignore_index=True).assign(generation_tokens=300.0 * 1000)
    return make_collected(
        pd.concat(frames, ignore_index=True),
        tuple(make_job(name) for name in ((API,) if owned else PODS)),
        serving=check_frame(served, SERVING),
        **({"allocations": check_frame(held, ALLOCATIONS)} if owned else {}),
    )


@pytest.mark.parametrize("owned", [False, True], ids=["pods alone", "workload known"])
@pytest.mark.parametrize("silent_hours", [0, 10, 24])
def test_tokens_count_where_all_boards_of_the_replicas_were_read(
    store_url: str, silent_hours: int, owned: bool
) -> None:
    """2 tokens a joule and 1.8 million a EUR, or unknown: a silent exporter makes none cheaper."""
    with open_store(store_url) as opened:
        opened.keep(two_replicas(silent_hours=silent_hours, owned=owned))
        found = token_values(opened.reader, PRICED, {API}, end=NOW)
        total = make_cost_statement(opened.reader, PRICED, start=NOW - 24 * HOUR, end=NOW).total
    (api,) = (value for value in found if value.holder == API)
    assert sum(value.cost or 0.0 for value in found) == pytest.approx(total.cost)
    assert api.known_hours == 24 - silent_hours
    if silent_hours == 24:
        assert (api.tokens_per_cost, api.tokens_per_joule) == (None, None)
        assert "24 h" in api.no_cost
        assert api.no_cost == api.no_energy
        return
    assert api.tokens_per_joule == pytest.approx(2.0, rel=1e-3)
    assert api.tokens_per_cost == pytest.approx(1000 * 3600 / 2.0, rel=1e-3)
