"""Names of several clusters in one store: told apart, and never by what somebody wrote."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.base.errors import SettingsError
from data.facts.cluster_names import CLUSTER_NAME, cluster_in, name_in_cluster, named_in
from data.settings.all_settings import Settings
from data.settings.load import load_settings
from data.settings.multi_cluster import OWN_SECTIONS, settings_by_cluster

NAMES = st.text(max_size=60)
CLUSTERS = st.one_of(st.just(""), st.from_regex(CLUSTER_NAME, fullmatch=True))


@given(NAMES, CLUSTERS)
def test_a_name_tells_its_cluster_and_no_other(name: str, cluster: str) -> None:
    """Whatever a label holds, at signs and other clusters' names too."""
    full = named_in(name, cluster)
    assert cluster_in(full) == (cluster if name else "")
    assert name_in_cluster(full) == name.replace("@", "%40")
    assert bool(full) == bool(name)


@given(NAMES, NAMES, CLUSTERS, CLUSTERS)
def test_two_clusters_never_share_a_name(one: str, other: str, here: str, there: str) -> None:
    """The same name in two clusters is two names."""
    same = one.replace("@", "%40") == other.replace("@", "%40")
    alike = named_in(one, here) == named_in(other, there)
    assert alike == (same and (here == there or not one))


def test_a_word_in_brackets_belongs_to_no_cluster() -> None:
    """Plans name the part of a node with boards of one model so."""
    assert cluster_in("n1@paris (H100-SXM5-80GB)") == "paris"


def write(folder: Path, own: str, **others: str) -> Path:
    """A settings file, and one for each further cluster."""
    tables = "\n".join(
        f'[[clusters.others]]\nname = "{name}"\nsettings = "{name}.toml"' for name in others
    )
    for name, text in others.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    path = folder / "trimtab.toml"
    path.write_text(f"{own}\n{tables}\n", encoding="utf-8")
    return path


def read(path: Path, **environ: str) -> dict[str, Settings]:
    """The settings of every cluster."""
    return dict(settings_by_cluster(load_settings(path, environ=environ).settings))


def test_each_cluster_has_its_own_sources_and_targets_and_all_else_of_the_main_file(
    tmp_path: Path,
) -> None:
    """Paths count from the cluster's file; the environment speaks to the main file alone."""
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "paris.toml").write_text(
        '[kubernetes]\nenabled = true\nkubeconfig = "kube/paris"\n'
        "[apply_kubernetes]\nenabled = true\n",
        encoding="utf-8",
    )
    path = tmp_path / "trimtab.toml"
    path.write_text(
        '[slurm]\nmode = "commands"\n[energy]\npue = 1.2\n[nvml]\nenabled = true\n'
        '[[clusters.others]]\nname = "paris"\nsettings = "sites/paris.toml"\n',
        encoding="utf-8",
    )
    found = read(path, TRIMTAB_KUBERNETES_CONTEXT="main")
    assert list(found) == ["", "paris"]
    main, paris = found[""], found["paris"]
    assert (main.slurm.mode, paris.slurm.mode) == ("commands", "")
    assert (main.kubernetes.context, paris.kubernetes.context) == ("main", "")
    assert paris.kubernetes.kubeconfig == str(tmp_path / "sites" / "kube" / "paris")
    assert (main.apply_kubernetes.enabled, paris.apply_kubernetes.enabled) == (False, True)
    assert paris.energy == main.energy
    assert (main.nvml.enabled, paris.nvml.enabled) == (True, False)


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ({"Paris!": ""}, "clusters.others name is 'Paris!'"),
        ({"paris": "[planning]\nslot_minutes = 5\n"}, "planning.slot_minutes stands in"),
        ({"paris": "[nvml]\nenabled = true\n"}, "nvml.enabled stands in"),
        ({"paris": "[kubernetes]\nenabledd = true\n"}, "unknown setting 'kubernetes.enabledd'"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, others: dict[str, str], says: str) -> None:
    """The thing, the value and the fix."""
    with pytest.raises(SettingsError, match=says) as caught:
        read(write(tmp_path, "", **others))
    assert caught.value.hint


def test_a_missing_file_and_a_name_given_twice_are_refused(tmp_path: Path) -> None:
    """A cluster that is silently left out would look like one without jobs."""
    table = '[[clusters.others]]\nname = "paris"\nsettings = "gone.toml"\n'
    path = write(tmp_path, table)
    with pytest.raises(SettingsError, match=r"cannot read the settings file .*gone\.toml"):
        read(path)
    path.write_text(table * 2, encoding="utf-8")
    with pytest.raises(SettingsError, match="must be named once"):
        read(path)


def test_every_source_and_target_is_of_a_cluster_but_the_driver_of_this_machine() -> None:
    """A new source or applier is not forgotten here."""
    every = {
        name for name in vars(type(Settings())).get("__slots__", ()) if name.startswith("apply_")
    } | {*Settings().__class__.__mro__[1].__slots__}
    assert set(OWN_SECTIONS) == every - {"nvml"}
