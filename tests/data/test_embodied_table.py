"""The footprints of making GPUs: of catalogue models only, in order, with source and year."""

import pytest

from data.catalogue.embodied_table import load_embodied_carbon
from data.catalogue.gpu_catalogue import load_gpu_catalogue


def test_every_footprint_is_of_a_known_model_and_says_where_it_is_from() -> None:
    """Low, central and high in order; a year, and a source short enough for every form."""
    models = {entry.name for entry in load_gpu_catalogue()}
    for name, known in load_embodied_carbon().items():
        assert name in models
        assert 0 < known.kgco2e_low <= known.kgco2e <= known.kgco2e_high
        assert known.year is not None
        assert 20 < len(known.source) <= 200


def test_a_shorter_life_carries_more_per_hour() -> None:
    """164 kg over five calendar years; the range spans footprint and life."""
    low, central, high = load_embodied_carbon()["H100-SXM5-80GB"].kgco2e_per_hour(5.0)
    assert central == pytest.approx(164 / 43_800)
    assert (low, high) == pytest.approx((150 / 52_560, 320 / 35_040))


def test_what_the_settings_state_comes_before_the_catalogue() -> None:
    """For models that ship and for others; nobody else is known."""
    known = load_embodied_carbon({"H100-SXM5-80GB": 100.0, "L40S-48GB": 50.0})
    assert known["H100-SXM5-80GB"].kgco2e == 100.0
    assert (known["L40S-48GB"].kgco2e_low, known["L40S-48GB"].year) == (35.0, None)
    assert "T4-16GB" not in known
