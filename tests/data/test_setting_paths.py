"""Paths in a settings file count from its folder, wherever the command is given."""

from pathlib import Path

import pytest

from data.settings.all_settings import Settings
from data.settings.fields import PATH, settings_in
from data.settings.load import LoadedSettings, load_settings

PATHS = [
    (section, field)
    for section, part in {
        name: getattr(Settings(), name) for name in Settings.__dataclass_fields__
    }.items()
    for field in (declared.name for declared in settings_in(part) if PATH in declared.metadata)
]
BESIDE = {  # what a setting needs beside it
    "client_key_file": 'client_cert_file = "/cert.pem"\n',
}


def value(loaded: LoadedSettings, section: str, field: str) -> str:
    """The path in force."""
    return str(getattr(getattr(loaded.settings, section), field)).removeprefix("duckdb:///")


def written(section: str, field: str, path: str) -> str:
    """The setting as TOML, the store's as an address."""
    text = f"duckdb:///{path}" if section == "store" else path
    return f'[{section}]\n{field} = "{text}"\n{BESIDE.get(field, "")}'


@pytest.mark.parametrize(("section", "field"), PATHS)
def test_a_relative_path_counts_from_the_folder_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, field: str
) -> None:
    """From any working directory the same file; absolute ones and ~ stay what they are."""
    home, elsewhere = tmp_path / "etc", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    file = home / "trimtab.toml"
    for given, meant in (("a/b", home / "a/b"), ("/a/b", "/a/b"), ("~/b", "~/b")):
        file.write_text(written(section, field, given))
        for folder, named in (
            (home, None),
            (elsewhere, file),
            (tmp_path, Path("etc/trimtab.toml")),
        ):
            monkeypatch.chdir(folder)
            loaded = load_settings(named, environ={})
            found = Path(value(loaded, section, field))
            assert (found if str(found)[0] == "~" else found.absolute()) == Path(meant)


@pytest.mark.parametrize(("section", "field"), PATHS)
def test_other_sources_count_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, field: str
) -> None:
    """The environment, the command line, and defaults, whatever settings file is used."""
    file = tmp_path / "trimtab.toml"
    file.write_text("")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    before = value(load_settings(None, environ={}), section, field)
    assert value(load_settings(file, environ={}), section, field) == before
    text = "duckdb:///a/b" if section == "store" else "a/b"
    environ = {f"TRIMTAB_{section}_{field}".upper(): text}
    if field == "client_key_file":
        environ["TRIMTAB_PROMETHEUS_CLIENT_CERT_FILE"] = "/cert.pem"
    assert value(load_settings(file, environ=environ), section, field) == "a/b"


def test_a_bare_library_name_is_for_the_loader(tmp_path: Path) -> None:
    """What dlopen looks for on its own path has no folder."""
    file = tmp_path / "trimtab.toml"
    file.write_text('[nvml]\nlibrary = "libnvidia-ml.so.1"\n')
    assert load_settings(file, environ={}).settings.nvml.library == "libnvidia-ml.so.1"


def test_every_setting_named_like_a_path_is_one() -> None:
    """A new one that is forgotten would depend on the working directory."""
    words = ("file", "directory", "kubeconfig", "library", "root")
    named = {
        (name, field)
        for name in Settings.__dataclass_fields__
        for field in (entry.name for entry in settings_in(getattr(Settings(), name)))
        if field.split("_")[-1] in words
    }
    assert named | {("store", "url")} == set(PATHS)
