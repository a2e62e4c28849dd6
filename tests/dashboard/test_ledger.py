"""The ledger of applied changes: what was promised, what was measured, and until when."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, make_journal_row, make_range, make_recommendation

from dashboard.accounting.savings.daily_savings import measured_until
from dashboard.accounting.savings.ledger import ledger, total_energy, total_gpu_hours
from data.records.commands import CommandKind, Measurement
from data.settings.all_settings import PlanningSettings, Settings
from data.store.engine.record_json import to_json

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_the_ledger_begins_with_the_latest_and_counts_from_the_first_apply() -> None:
    """Whatever the order of the journal; rows of other commands than applies are left out."""
    events = [("b", "applied", 2), ("a", "applied", 1), ("a", "applied-differently", 3)]
    rows = [
        make_journal_row(event, NOW + hours * HOUR, digest=digest)
        for digest, event, hours in events
    ]
    measured = Measurement(
        hours=24.0, work_before=1.0, work_after=1.0, throughput_ratio=1.0, saturated=False,
        predicted_gpu_hours=make_range(48, "GPU-h"), realised_gpu_hours=make_range(40, "GPU-h"),
        predicted_energy_kwh=make_range(2.0, "kWh"), realised_energy_kwh=None,
        realised_emissions_kgco2e=None,
    )  # fmt: skip
    done = make_journal_row("verified", NOW + DAY, digest="a", record=to_json(measured))
    undo = make_journal_row("applied", NOW, digest="u", command_id="undo")
    kinds = {"c": CommandKind.APPLY, "undo": CommandKind.ROLLBACK}
    reader: Any = SimpleNamespace(
        commands=lambda: [
            SimpleNamespace(command=SimpleNamespace(command_id=name, kind=kind))
            for name, kind in kinds.items()
        ],
        journal=lambda *, events: [name for name in [*rows, done, undo] if name.event in events],
        recommendations_of=lambda digests, *, now: {
            digest: SimpleNamespace(
                reference=digest, recommendation=make_recommendation(), state="applied"
            )
            for digest in digests
        },
    )
    found = ledger(reader, now=NOW + DAY)
    assert [
        (ledger_row.reference, ledger_row.applied_at, ledger_row.measured_at, ledger_row.reason)
        for ledger_row in found
    ] == [
        ("b", NOW + 2 * HOUR, None, "not measured yet"),
        ("a", NOW + HOUR, NOW + DAY, ""),
    ]
    hours, energy = total_gpu_hours(found), total_energy(found)
    assert (hours.measured, hours.unknown, hours.realised) == (1, 1, make_range(40, "GPU-h"))
    assert (energy.measured, energy.unknown, energy.realised) == (0, 2, None)


@pytest.mark.parametrize("slot_minutes", [5, 15, 60])
def test_samples_count_until_the_end_of_the_last_whole_slot(slot_minutes: int) -> None:
    """None without any sample; a slot that has just ended is whole."""
    settings = replace(Settings(), planning=PlanningSettings(slot_minutes=slot_minutes))
    slot = timedelta(minutes=slot_minutes)
    for latest, until in ((None, None), (NOW, NOW), (NOW + 1.9 * slot, NOW + slot)):
        reader: Any = SimpleNamespace(latest_sample_at=lambda latest=latest: latest)
        assert measured_until(reader, settings) == until
