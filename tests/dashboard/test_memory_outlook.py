"""What the memory watch is told of each job."""

from dataclasses import replace

import pytest
from factories import make_job
from planning_cases import AS_OF, H100, forecast_of, history_of

from dashboard.cycle.memory_outlook import watched_in


@pytest.mark.parametrize(("model", "is_amd"), [(H100, False), ("MI300X-192GB", True)])
def test_larger_boards_of_the_same_vendor_are_looked_at(model: str, is_amd: bool) -> None:
    """What runs on the ones does not run on the others."""
    job = replace(make_job(gpu_model=model, gpu_memory_mib=80_000.0), last_seen_at=AS_OF)
    (watched,) = watched_in(
        [job],
        history_of(job, 0.9, 70_000.0, None),
        [forecast_of(job, [1.0], 70_000.0, None)],
        recipes={},
        latest=AS_OF,
    )
    types = {gpu_type.name for gpu_type in watched.gpu_types}
    assert model in types
    assert {name.startswith("MI") for name in types} == {is_amd}
