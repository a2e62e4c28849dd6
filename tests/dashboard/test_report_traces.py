"""Every number of the weekly report is followed to readings, through the API alone.

The test adds up by its own code, from docs/energy.md: readings to slots, slots to the rows of the
report, rows times factors to emissions and money. A number that no rule below accounts for fails.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from beds.api_clients import LOCAL, clients
from beds.demo_store import demo_day
from beds.report_trace import Row, Rows, Sums, Trace, counted, hours, moment, numbers
from beds.same_figures import differences
from beds.two_tenants import fill

from data.base.clock import utc_now
from data.store import open_store

SENSOR = 0.05
"""Vendor's error of a board's power, as the report names it."""
RULES = ("joules", "joules_by_slices", "joules_by_activity")
OF_A_BOARD = ("board_seconds", "joules")
OF_A_HOLDER = (*OF_A_BOARD, "known_board_seconds", "used_board_seconds")
CARBON = "grid carbon, location-based"


@pytest.fixture(scope="module")
def trace(demo_time: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    """A day of the simulated fleet with one cycle."""
    url = demo_day(tmp_path_factory.mktemp("traces"))
    with open_store(url) as store, clients(store, LOCAL) as client:
        yield Trace(client(peer="127.0.0.1"))


def test_every_number_of_the_report_is_found_again(trace: Trace) -> None:
    """From readings: nothing is left that no rule accounts for."""
    trace_slots(trace)
    trace_energy(trace)
    trace_days(trace)
    trace_fleet(trace)
    trace_waste(trace)
    trace_ahead(trace)
    trace_advice(trace)
    trace_plan(trace)
    trace_saved(trace)
    assert trace.left("") == set()


def test_what_was_saved_is_the_ledgers(tmp_path: Path) -> None:
    """A report with decisions, applied and measured changes."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb", create=True) as store:
        fill(store, utc_now())
        with clients(store, LOCAL) as client:
            trace = Trace(client(peer="127.0.0.1"))
            trace_saved(trace)
            assert trace.report["saved"]["changes"]
            assert trace.left(".saved.", ".decided[]") == set()


def trace_slots(trace: Trace) -> None:
    """What a board was counted as is what its readings add up to.

    Whose it is of a board that is cut is a rule; that the parts are the whole board is a fact.
    """
    cut = {row["gpu_uuid"] for row in trace.slots if row["mig_instance"]}
    assert cut
    assert len(trace.boards) > 8
    for board in trace.boards:
        names = OF_A_BOARD if board in cut else OF_A_HOLDER
        readings = trace.readings(board)
        if board in cut:
            readings = list({row["at"]: row | {"job_id": ""} for row in readings}.values())
        told: Sums = defaultdict(lambda: defaultdict(float))
        for slot in trace.slots:
            if slot["gpu_uuid"] == board:
                key = moment(slot["slot_start"]), "" if board in cut else slot["job_id"]
                for name in names:
                    told[key][name] += slot[name] or 0.0
        found = {
            key: sums for key, sums in counted(readings).items()
            if trace.start <= key[0] < trace.end
        }  # fmt: skip
        assert found.keys() == {key for key, sums in told.items() if sums["board_seconds"]}
        for key, sums in found.items():
            for name in names:
                assert told[key][name] == pytest.approx(sums[name], rel=1e-9, abs=1e-6), key


def trace_row(
    trace: Trace, place: str, row: Row, slots: Rows, *, expected: float | None = None
) -> None:
    """A row of the energy statement is the sum of slots times the factors of the report.

    What was measured is a share of what was observed, or of the board-hours `expected`.
    """
    held = [slot for slot in slots if slot["holder"] == "job"]
    known = [slot for slot in slots if slot["joules"] is not None]
    whole, measured = hours(slots, "board"), hours(known, "board")
    trace.same(f"{place}.board_hours", row["board_hours"], whole)
    trace.same(f"{place}.measured_hours", row["measured_hours"], measured)
    trace.same(f"{place}.measured_ratio", row["measured_ratio"], measured / (expected or whole))
    trace.same(f"{place}.gpu_hours", row["gpu_hours"], hours(held, "board"))
    idle = hours(held, "known_board") - hours(held, "used_board")
    trace.same(f"{place}.idle_gpu_hours", row["idle_gpu_hours"], idle)
    kwh = [sum(slot[rule] for slot in known) / 3.6e6 for rule in RULES]
    pue, spread = trace.factors["PUE"]
    mean, low, high = trace.factors[CARBON]
    (price,) = trace.factors["electricity price"]
    gpu = np.array([min(kwh) * (1 - SENSOR), kwh[0], max(kwh) * (1 + SENSOR)])
    site = gpu * (pue - spread, pue, pue + spread)
    kg = site * (low, mean, high) / 1000
    trace.same_range(f"{place}.gpu_energy_kwh", row, tuple(gpu))
    trace.same_range(f"{place}.site_energy_kwh", row, tuple(site))
    trace.same_range(f"{place}.location_based_kgco2e", row, tuple(kg))
    trace.same_range(f"{place}.electricity_cost", row, tuple(site * price))
    trace_making(trace, place, row, known)


def trace_making(trace: Trace, place: str, row: Row, slots: Rows) -> None:
    """Embodied emissions, and the SCI of what has a footprint and known work."""
    years, spread = trace.factors["life of a GPU"]
    life = years * 8760 * np.array([1 + spread / 100, 1, 1 - spread / 100])

    def rate(slot: Row) -> Any:
        middle, low, high = trace.factors[f"making of {slot['gpu_model']}"]
        return np.array([low, middle, high]) / life * slot["board_seconds"] / 3600

    made = [slot for slot in slots if trace.factors[f"making of {slot['gpu_model']}"]]
    scored = [slot for slot in made if slot["known_board_seconds"]]
    work = hours(scored, "used_board")
    for name, some in (("embodied", made), ("scored", scored)):
        trace.same(f"{place}.{name}_hours", row[f"{name}_hours"], hours(some, "board"))
        ratio = hours(some, "board") / row["board_hours"]
        trace.same(f"{place}.{name}_ratio", row[f"{name}_ratio"], ratio)
    trace.same(f"{place}.work_gpu_hours", row["work_gpu_hours"] or 0.0, work)
    if made:
        trace.same_range(f"{place}.embodied_kgco2e", row, tuple(sum(map(rate, made))))
    location = [row[f"location_based_kgco2e{end}"] for end in ("_low", "", "_high")]
    if row["embodied_share"] is not None:
        share = row["embodied_kgco2e"] / (row["embodied_kgco2e"] + location[1])
        trace.same(f"{place}.embodied_share", row["embodied_share"], share)
    if work:
        kwh = sum(slot["joules"] for slot in scored) / 3.6e6
        kg = kwh * trace.factors["PUE"][0] * trace.factors[CARBON][0] / 1000
        sci = (kg * np.array(location) / location[1] + sum(map(rate, scored))) / work * 1000
        trace.same_range(f"{place}.sci_gco2e_per_gpu_hour_of_work", row, tuple(sci))


def trace_energy(trace: Trace) -> None:
    """Fleet, tenants and largest jobs; and each row is the one that the API tells."""
    tenant = {row["job_id"]: row["namespace"] for row in trace.rows("/api/v1/jobs")}
    energy = trace.report["energy"]
    jobs = trace.get(trace.of("energy_by_job"))["rows"]
    assert energy["rows"] == trace.get(trace.of("energy"))["rows"] == energy["groups"]
    expected = energy["expected_board_hours"]
    trace_row(trace, ".energy.total", energy["total"], trace.slots, expected=expected)

    def of(row: Row) -> Rows:
        held = [slot for slot in trace.slots if slot["holder"] == row["holder"]]
        if row["holder"] != "job":
            return held
        return [slot for slot in held if row["group"] in (slot["job_id"], tenant[slot["job_id"]])]

    for row in energy["rows"]:
        if row["holder"] != "missing":
            trace_row(trace, ".energy.rows[]", row, of(row))
            trace_row(trace, ".energy.groups[]", row, of(row))
    for row in trace.report["energy_by_job"]:
        assert row in jobs
        trace_row(trace, ".energy_by_job[]", row, of(row))
    for model, told in energy["board_hours_by_model"].items():
        of_model = [slot for slot in trace.slots if slot["gpu_model"] == model]
        trace.same(f".energy.board_hours_by_model.{model}", told, hours(of_model, "board"))
    trace.told.add(".energy.factors[].year")  # there a trace ends: a factor names its source


def trace_days(trace: Trace) -> None:
    """Each day, and what was not observed: all boards were there when the first was seen."""
    days = trace.get(trace.of("energy_by_day"))["rows"]
    assert trace.report["energy_by_day"] == days
    for row in days:
        if row["holder"] != "missing":
            begin, end = moment(row["start"]), moment(row["end"])
            of_day = [slot for slot in trace.slots if begin <= moment(slot["slot_start"]) < end]
            trace_row(trace, ".energy_by_day[]", row, of_day)
    energy = trace.report["energy"]
    missing = [row["board_hours"] for row in energy["rows"] if row["holder"] == "missing"]
    expected = len(trace.boards) * (trace.end - trace.start).total_seconds() / 3600
    trace.same(".energy.expected_board_hours", energy["expected_board_hours"], expected)
    assert sum(missing) == pytest.approx(expected - hours(trace.slots, "board"))
    assert sum(row["board_hours"] for row in days) == pytest.approx(expected)
    ratio = energy["total"]["measured_hours"] / expected
    trace.same(".energy.completeness_ratio", energy["completeness_ratio"], ratio)


def sizes_of(board: dict[str, Rows]) -> list[tuple[float, Rows]]:
    """The devices of a board with their share of it: compute slices of seven, a whole board's 1."""
    profiles = [rows[0]["mig_profile"] for rows in board.values()]
    slices = [int(profile[0]) / 7 if profile else 1 / len(board) for profile in profiles]
    cut = max(1.0, sum(slices))
    return [(share / cut, rows) for share, rows in zip(slices, board.values(), strict=True)]


def trace_fleet(trace: Trace) -> None:
    """Means of the hours: boards, those held, and those in use."""
    by_hour: dict[Any, dict[str, dict[str, Rows]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for board in trace.boards:
        for row in trace.readings(board):
            hour = row["at"].replace(minute=0, second=0, microsecond=0)
            if trace.start <= hour < trace.end:
                by_hour[hour][board][row["mig_instance"]].append(row)

    def held(readings: Rows) -> float:
        return float(np.mean([bool(row["job_id"]) for row in readings]))

    def used(readings: Rows) -> float:
        work = [row["utilization_ratio"] for row in readings if row["job_id"]]
        return held(readings) * float(np.mean(work)) if work else 0.0

    report = trace.report
    boards = [list(of_hour.values()) for of_hour in by_hour.values()]
    trace.same(".boards", report["boards"], float(np.mean([len(hour) for hour in boards])))
    for place, of_device in (("allocated_gpus", held), ("used_gpus", used)):
        found = [
            sum(share * of_device(rows) for board in hour for share, rows in sizes_of(board))
            for hour in boards
        ]
        trace.same(f".{place}", report[place], float(np.mean(found)))
    week = (trace.end - trace.start).total_seconds() / 3600
    trace.same(".coverage_ratio", report["coverage_ratio"], min(1.0, len(boards) / week))


def trace_waste(trace: Trace) -> None:
    """Held and idle by namespace and owner, and its rent by the price of the statement."""
    whose = {row["job_id"]: (row["namespace"], row["owner"]) for row in trace.rows("/api/v1/jobs")}
    price = {
        row["model"]: row["gpu_cost"] / (row["board_hours"] - row["unpriced_hours"])
        for row in trace.get(trace.of("rent"))["rows"]
    }
    held = [slot for slot in trace.slots if slot["holder"] == "job"]
    for row in trace.report["waste"]:
        slots = [slot for slot in held if whose[slot["job_id"]] == (row["namespace"], row["owner"])]
        idle = [hours([slot], "known_board") - hours([slot], "used_board") for slot in slots]
        rent = sum(i * price[slot["gpu_model"]] for i, slot in zip(idle, slots, strict=True))
        trace.same(".waste[].gpu_hours", row["gpu_hours"], hours(slots, "board"))
        trace.same(".waste[].idle_gpu_hours", row["idle_gpu_hours"], sum(idle))
        trace.same(".waste[].rent", row["rent"], rent)
        trace.same(".waste[].unpriced_hours", row["unpriced_hours"], 0.0)


def trace_ahead(trace: Trace) -> None:
    """Days of the fleet's forecast by the hour: means, and the hour whose q90 is largest."""
    fleet = next(
        group for group in trace.get(trace.of("ahead"))
        if group["kind"] == "fleet" and len({at[11:] for at in group["slot_starts"]}) == 24
    )  # fmt: skip
    paths = fleet["quantities"]
    for row in trace.report["ahead"]:
        day = [number for number, at in enumerate(fleet["slot_starts"]) if at[:10] == row["day"]]
        trace.same(".ahead[].hours", row["hours"], len(day))
        for name, quantity in (("wanted", "allocated_gpus"), ("used", "effective_gpus")):
            for end, level in (("low", "q10"), ("central", "q50"), ("high", "q90")):
                mean = float(np.mean([paths[quantity][level][hour] for hour in day]))
                trace.same(f".ahead[].{name}.{end}", row[name][end], mean)
        peak = max(paths["allocated_gpus"]["q90"][hour] for hour in day)
        trace.same(".ahead[].peak_wanted", row["peak_wanted"], peak)


_DECISIONS = ("state", "decided_by", "decided_at", "comment")
"""What a finding tells of its revision, and no report does."""


def trace_advice(trace: Trace) -> None:
    """Recommendations are the findings' revisions; their evidence is that of the job's slots."""
    findings = trace.rows(trace.of("recommendations"))
    found = {row["revision"]["id"]: row["revision"] for row in findings if row["revision"]}
    of_jobs = 0
    for said in trace.report["recommendations"]:
        trace.told |= {f".recommendations[]{place}" for place in numbers(said)}
        revision, rests_on = found[said["id"]], said["evidence"]
        facts = {name: value for name, value in revision.items() if name not in _DECISIONS}
        assert differences({name: said[name] for name in facts}, facts) == []
        if said["job_id"]:
            window = {  # the slot of the newest reading begins at its end at the latest
                "from": rests_on["window_start"],
                "to": (moment(rests_on["window_end"]) + timedelta(minutes=5)).isoformat(),
            }
            slots = trace.rows(f"/api/v1/slots?{urlencode({'job': said['job_id']} | window)}")
            memory = [slot["memory_max_mib"] for slot in slots]
            assert sum(slot["samples"] for slot in slots) == rests_on["samples"]
            assert max(mib for mib in memory if mib is not None) == rests_on["memory_max_mib"]
            of_jobs += 1
    assert of_jobs


def trace_plan(trace: Trace) -> None:
    """The plan's cost and bound, and how many forecasts it rests on."""
    plan = trace.get(trace.of("plan"))
    for name in ("cost", "lower_bound", "gap"):
        trace.same(f".plan.{name}", trace.report["plan"][name], plan[name])
    jobs = trace.get("/api/v1/forecasts?by=job")
    skipped = [row for row in jobs if row["skipped"] is not None]
    trace.same(".forecasts", trace.report["forecasts"], len(jobs))
    trace.same(".forecasts_skipped", trace.report["forecasts_skipped"], len(skipped))


def trace_saved(trace: Trace) -> None:
    """What was applied and measured is the ledger's, and the sums are those of its rows."""
    ledger = {row["digest"]: row for row in trace.rows(trace.of("saved"))}
    saved, entries = trace.report["saved"], trace.rows(trace.of("decided"))
    for change in saved["changes"]:
        trace.told |= {f".saved.changes[]{place}" for place in numbers(change)}
        row = ledger[change["digest"]]
        assert differences({name: change[name] for name in row if name != "job"},
                           {name: row[name] for name in row if name != "job"}) == []  # fmt: skip
    known = [change["measurement"] for change in saved["changes"] if change["measurement"]]
    for name in ("gpu_hours", "energy_kwh"):
        trace_total(trace, name, [row for row in known if row[f"realised_{name}"] is not None])
    if saved["run_rate"] is not None:
        trace.told |= {f".saved.run_rate{place}" for place in numbers(saved["run_rate"])}
        assert differences(saved["run_rate"], trace.get(trace.of("run_rate"))[-1]["run_rate"]) == []
    of_week = [row for row in entries if trace.start <= moment(row["at"]) < trace.end]
    for event in ("approved", "rejected", "applied"):
        digests = {row["digest"] for row in of_week if row["event"] == event}
        trace.same(f".saved.{event}", saved[event], len(digests))
    for entry in trace.report["decided"]:
        trace.told |= {f".decided[]{place}" for place in numbers(entry)}
        assert entry["sequence"] in [row["sequence"] for row in of_week]


def trace_total(trace: Trace, name: str, known: Rows) -> None:
    """A sum of what was promised and what came of it, over the changes that were measured."""
    total = trace.report["saved"][name]
    trace.same(f".saved.{name}.measured", total["measured"], len(known))
    unknown = len(trace.report["saved"]["changes"]) - len(known)
    trace.same(f".saved.{name}.unknown", total["unknown"], unknown)
    for when in ("predicted", "realised"):
        if total[when] is not None:
            trace.told |= {f".saved.{name}.{when}{place}" for place in numbers(total[when])}
            central = sum(row[f"{when}_{name}"]["central"] for row in known)
            assert total[when]["central"] == pytest.approx(central)
