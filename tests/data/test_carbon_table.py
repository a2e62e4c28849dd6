"""Regions of the carbon table, as people write them."""

import pytest

from data.base.errors import SettingsError
from data.catalogue.carbon_table import load_carbon_table


@pytest.mark.parametrize(
    ("written", "meant"), [("Germany", "DEU"), ("united states", "USA"), ("DE", "DEU")]
)
def test_a_region_by_another_name_is_answered_with_its_code(written: str, meant: str) -> None:
    """A country's name, and codes of two letters as far as they are near."""
    with pytest.raises(SettingsError) as refused:
        load_carbon_table().get(written)
    assert f"Did you mean {meant}?" in refused.value.hint
