"""Boards that are hot, slowed or whose memory fails, on the page of the fleet and as urgent."""

import math
from datetime import timedelta
from typing import Any

import pandas as pd
from factories import NOW, make_collected, make_samples

from dashboard.charts.board_history import board_history
from dashboard.resources.alerts import urgent_facts
from dashboard.web.fleet.node_health import troubles
from data.settings.all_settings import Settings
from data.store import Store

HOUR = {"start": NOW - timedelta(hours=1), "end": NOW}


def keep(store: Store, **told: tuple[float, ...]) -> None:
    """Keep an hour of a board for each value, with what each of them tells all the time."""
    boards = max(map(len, told.values()))
    slots = pd.date_range(HOUR["start"], periods=12, freq="5min").as_unit("us")
    rows = pd.DataFrame(
        {"slot_start": slot, "gpu_uuid": f"GPU-{board:04d}", "mig_instance": ""}
        | {name: values[board] for name, values in told.items()}
        for slot in slots
        for board in range(boards)
    )
    samples = make_samples(gpus=boards, minutes=70)
    numbered = samples.assign(gpu_index=samples["gpu_uuid"].str[-1])
    store.keep(make_collected(numbered, activity=rows))


def seen(store: Store) -> dict[str, list[tuple[str, str]]]:
    """What the page of the fleet says needs a look: places and reasons by what it is."""
    none = pd.DataFrame()
    found = troubles(store.reader.boards(**HOUR), none, (), none, none)
    told: dict[str, list[tuple[str, str]]] = {}
    for what, where, why in found.itertuples(index=False):
        told.setdefault(what, []).append((where.rpartition(" ")[2], why))
    return told


def test_a_hot_board_is_told_and_a_warm_one_is_not(store: Store) -> None:
    """By its own limit for the memory, which may be warmer."""
    keep(
        store,
        temperature_celsius=(84.9, 85.0, 60.0),
        memory_temperature_celsius=(94.9, 80.0, 96.0),
    )
    told = seen(store)
    assert told["GPU is hot"] == [("1", "85 °C in the last hour, hot from 85 °C")]
    assert told["memory is hot"] == [("2", "96 °C in the last hour, hot from 95 °C")]
    assert set(told) == {"GPU is hot", "memory is hot"}


def test_memory_that_fails_and_slow_clocks_are_told_apart(store: Store) -> None:
    """What happened for a moment is no trouble; an error stays one until the driver is loaded."""
    keep(
        store,
        throttled_ratio=(0.0, 0.05, 0.6, 0.0),
        temperature_celsius=(40.0, 50.0, 82.0, 40.0),
        uncorrected_errors=(0.0, 0.0, 0.0, 2.0),
        remap_failed=(0.0, 0.0, 0.0, 1.0),
    )
    told = seen(store)
    slow = "60 % of the last hour, by heat or a power brake at up to 82 °C"
    assert told["clocks are slowed"] == [("2", slow)]
    assert told["uncorrectable memory errors"] == [("3", "2 errors since the driver was loaded")]
    assert [place for place, _why in told["memory cannot be repaired"]] == ["3"]
    facts = urgent_facts(store.reader, now=NOW, settings=Settings())
    assert [(fact.about, fact.happened, fact.kind) for fact in facts] == [
        ("GPU 3 of node-1", True, "hardware"),
        ("GPU 2 of node-1", True, "heat"),
    ]
    assert "exchanged" in facts[0].text
    assert f"clocks are slowed {slow}" in facts[1].text


def heat_alerts(store: Store) -> list[tuple[str, str]]:
    """The boards that are alerts for their heat, and why."""
    facts = urgent_facts(store.reader, now=NOW, settings=Settings())
    return [(fact.about, fact.what) for fact in facts if fact.kind == "heat"]


def test_a_board_at_94_degrees_is_an_alert_and_one_as_hot_as_its_peers_is_not(
    store: Store,
) -> None:
    """Far above what is hot always; hot alone where its model's other boards at work are cooler."""
    keep(store, temperature_celsius=(94.0, 86.0, 70.0, 74.0))
    assert heat_alerts(store) == [
        ("GPU 0 of node-1", "it is at 94 °C, 17 °C above its peers at work")
    ]
    (fact,) = urgent_facts(store.reader, now=NOW, settings=Settings())
    assert fact.at == HOUR["start"]
    assert fact.until == NOW + timedelta(hours=1)
    assert "fans" in fact.next_step


def test_a_hot_board_among_cool_ones_is_an_alert(store: Store) -> None:
    """At 86 °C, where the others are at 60 °C."""
    keep(store, temperature_celsius=(60.0, 60.0, 86.0))
    assert heat_alerts(store) == [
        ("GPU 2 of node-1", "it is at 86 °C, 26 °C above its peers at work")
    ]


def test_a_model_that_is_warm_at_work_is_no_alert(store: Store) -> None:
    """All boards at 87 °C: the page of the fleet tells it, nobody is called."""
    keep(store, temperature_celsius=(87.0, 87.0, 87.0))
    assert len(seen(store)["GPU is hot"]) == 3
    assert heat_alerts(store) == []


def test_hot_memory_and_lost_data_are_alerts(store: Store) -> None:
    """Memory at 101 °C, and errors that could not be corrected."""
    keep(
        store,
        temperature_celsius=(60.0, 60.0),
        memory_temperature_celsius=(101.0, 96.0),
        uncorrected_errors=(0.0, 2.0),
    )
    facts = urgent_facts(store.reader, now=NOW, settings=Settings())
    assert {fact.about: (str(fact.kind), fact.what) for fact in facts} == {
        "GPU 0 of node-1": ("heat", "its memory is at 101 °C"),
        "GPU 1 of node-1": ("hardware", "its memory lost data: 2 uncorrectable errors"),
    }


def test_silent_boards_are_one_trouble_a_node(store: Store) -> None:
    """A node that is down is one row, with its first and last sign of life."""
    none = pd.DataFrame()
    silent = pd.DataFrame(
        [
            {"node": node, "gpu_index": index, "last_seen_at": NOW - timedelta(hours=hours)}
            for node, index, hours in (("a", "0", 2), ("b", "0", 9), ("b", "1", 3), ("b", "2", 4))
        ]
    )
    rows = troubles(store.reader.boards(**HOUR), silent, (), none, none)
    two, nine, three = (f"{NOW - timedelta(hours=n):%Y-%m-%d %H:%M} UTC" for n in (2, 9, 3))
    assert rows.iloc[:2].to_numpy().tolist() == [
        ["GPU is silent", "a · GPU 0", f"last seen {two}"],
        ["3 GPUs are silent", "b", f"last seen {nine} to {three}"],
    ]


def test_what_no_exporter_tells_is_unknown_and_no_trouble(store: Store) -> None:
    """Nor urgent, nor a panel of the board's picture."""
    keep(store, engine_active=(0.5,))
    (board,) = store.reader.boards(**HOUR).to_dict("records")
    assert math.isnan(board["temperature_celsius"])
    assert math.isnan(board["remap_failed"])
    assert seen(store) == {}
    assert urgent_facts(store.reader, now=NOW, settings=Settings()) == ()
    assert len(titles(store)) == 3


def test_the_past_of_a_board_shows_its_temperature(store: Store) -> None:
    """A panel below power, with a line for the GPU and one for its memory."""
    keep(store, temperature_celsius=(61.0,), memory_temperature_celsius=(72.0,))
    assert titles(store)[-1] == "temperature, °C"


def titles(store: Store) -> list[Any]:
    """The panels of the first board's picture."""
    past = store.reader.board_history("GPU-0000", **HOUR, slot_seconds=900)
    return [axis.title.text for axis in board_history(past).select_yaxes()]
