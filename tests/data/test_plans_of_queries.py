"""How PostgreSQL carries out what is asked of many slots: work grows with them, not with pairs."""

import json
from typing import Any

import pytest
from factories import NOW

from data.store import Store
from data.store.facts.samples_sql import GROUP_HISTORY

pytestmark = pytest.mark.postgres
_BOARD_HOURS = """
INSERT INTO hourly (slot_start, gpu_uuid, mig_instance, job_id, holder, node, gpu_model,
    mig_profile, seconds, board_seconds, sample_weight, samples, power_sum, power_weight,
    utilization_sum, utilization_samples)
SELECT :now - hour * INTERVAL '1 hour', 'GPU-' || board, '', 'team' || board || '/job', 'job',
    'node', 'model' || board % 4, '', 3600, 3600, 1, 1, 300, 1, 0.5, 1
FROM generate_series(1, :hours) AS hour, generate_series(1, :boards) AS board
"""


def pairs_refused(node: dict[str, Any]) -> float:
    """Return how many pairs of rows a plan looked at in vain."""
    own = node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]
    return float(own + sum(pairs_refused(below) for below in node.get("Plans", ())))


def test_the_history_of_groups_compares_no_row_with_all_others(shared: Store) -> None:
    """Twelve groups over a hundred hours: a join by pairs would look at a million."""
    import sqlalchemy as sa

    hours, boards = 100, 8
    with shared._engine.begin() as connection:
        connection.execute(sa.text(_BOARD_HOURS), {"now": NOW, "hours": hours, "boards": boards})
        connection.exec_driver_sql("ANALYZE hourly")  # as its autovacuum does
        bounds = f"'{NOW.isoformat()}'::TIMESTAMPTZ"
        asked = (
            GROUP_HISTORY.replace(":slot_seconds", "3600")
            .replace(":start", f"{bounds} - INTERVAL '90 days'")
            .replace(":end", bounds)
        )
        plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked}").scalar_one()
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    assert top["Actual Rows"] == hours * (1 + 4 + 1)  # the fleet, models, namespaces: (unknown)
    assert pairs_refused(top) <= 10 * hours * boards
