"""A site adds a GPU model to the catalogue, or corrects one, in its settings file."""

from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard.accounting.cost.prices import price_list
from dashboard.cli.terminal.context import settings_of
from data.base.errors import SettingsError
from data.catalogue.gpu_catalogue import load_gpu_catalogue, state_gpu_models
from data.settings.all_settings import Settings

MI210 = """
[[catalogue.gpu_models]]
name = "MI210-64GB"
like = "H200-SXM-141GB"
reported = "AMD Instinct MI210, AMD Instinct MI210 VF"
memory_mib = 65_520
tdp_watts = 300
price_per_hour = 2.2
"""
AT = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _the_catalogue_as_it_ships() -> Iterator[None]:
    """The catalogue is the process's own: put back for the next test."""
    yield
    state_gpu_models(())


def given(folder: Path, text: str) -> Settings:
    """The settings of a command that is started with a file of this text."""
    path = folder / "trimtab.toml"
    path.write_text(text, encoding="utf-8")
    return settings_of(Namespace(settings=str(path))).settings


def test_a_stated_model_is_one_of_the_catalogue(tmp_path: Path) -> None:
    """Known by what drivers report; figures that are not stated are those of the model alike."""
    given(tmp_path, MI210)
    known = load_gpu_catalogue()
    model, base = known.get("MI210-64GB"), known.get("H200-SXM-141GB")
    assert known.recognise("AMD-Instinct-MI210-VF") == model.name
    assert (model.memory_mib, model.tdp_watts, model.price_per_hour) == (65_520, 300, 2.2)
    assert (model.relative_speed, model.cap_law) == (base.relative_speed, base.cap_law)
    assert model.idle_watts == pytest.approx(base.idle_watts * 300 / 700)
    assert model.idle_watts_low < model.idle_watts < model.idle_watts_high < model.tdp_watts
    assert not model.mig_profiles, "nobody said into what 64 GB are cut"


@pytest.mark.parametrize(
    ("like", "reported", "runs_cuda"),
    [
        ("H200-SXM-141GB", "AMD Instinct MI210", False),
        ("H200-SXM-141GB", "AMD-Instinct-MI210", False),
        ("MI300X-192GB", "", False),
        ("H200-SXM-141GB", "Intel Data Center GPU Max 1550", False),
        ("H200-SXM-141GB", "NVIDIA H20", True),
        ("H200-SXM-141GB", "", True),
    ],
)
def test_whose_a_stated_model_is(tmp_path: Path, like: str, reported: str, runs_cuda: bool) -> None:
    """By its reported names, whatever the model is whose figures it has."""
    text = f'[[catalogue.gpu_models]]\nname = "x"\nlike = "{like}"\nreported = "{reported}"\n'
    given(tmp_path, text)
    assert load_gpu_catalogue().get("x").runs_cuda is runs_cuda


def test_a_row_corrects_the_model_of_its_name(tmp_path: Path) -> None:
    """Its other figures, names and slices stay; without the row all is as it ships."""
    shipped = load_gpu_catalogue().get("L4-24GB")
    given(tmp_path, '[[catalogue.gpu_models]]\nname = "L4-24GB"\nprice_per_hour = 0.7\n')
    known = load_gpu_catalogue()
    assert known.get("L4-24GB").price_per_hour == 0.7
    assert known.get(known.recognise("NVIDIA L4")).memory_mib == shipped.memory_mib
    assert len(known.models) == len({model.name for model in known})
    given(tmp_path, "")
    assert load_gpu_catalogue().get("L4-24GB") == shipped


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "X-1"', "X-1 is like ''"),
        ('name = "X-1"\nlike = "H100-SXM"', "such as H100-SXM5-80GB"),
        ('name = "X-1"\nlike = "L4-24GB"\nidle_watts = 80', "80 W idle and 72 W at most"),
        ('name = "X-1"\nlike = "L4-24GB"\ntdp_watts = -1', "tdp_watts of X-1 is -1"),
        ('name = ""\nlike = "L4-24GB"', "name is ''"),
        ('name = "X-1"\nlike = "L4-24GB"\nmemory = 3', "Did you mean memory_mib"),
        ('like = "L4-24GB"', "lacks name"),
        ('name = "L4-24GB"\n[[catalogue.gpu_models]]\nname = "L4-24GB"', "named once"),
    ],
)
def test_a_wrong_row_is_refused_with_its_value_and_the_fix(
    tmp_path: Path, text: str, said: str
) -> None:
    """The setting, what it says, and what it may say."""
    with pytest.raises(SettingsError) as refused:
        given(tmp_path, f"[[catalogue.gpu_models]]\n{text}\n")
    whole = f"{refused.value} {refused.value.hint}"
    assert said in whole
    assert "catalogue.gpu_models" in whole


def test_what_was_kept_under_a_reported_name_has_the_price_of_its_model(tmp_path: Path) -> None:
    """Readings of before the model was stated keep the name that they were collected under."""
    stated = '[[statement.prices]]\ngpu_model = "MI210-64GB"\nper_gpu_hour = 190\n'
    for text, price in ((MI210, 2.2), (MI210 + stated, 190.0)):
        prices = price_list(given(tmp_path, text), load_gpu_catalogue())
        for name in ("MI210-64GB", "AMD Instinct MI210"):
            found = prices.find(name, AT)
            assert found is not None
            assert found.charged == price
