"""What `trimtab doctor` says of Slurm as a target of changes, and in whose settings' names."""

import os

import pytest
from beds.slurm import SlurmBed

from dashboard.apply.slurm.change.applier import SlurmApplier
from data.base.errors import ApplyError
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings

pytestmark = pytest.mark.slurm
_OF_ACCOUNT = ("rest_user", "rest_token")


def applier_of(bed: SlurmBed, **changes: object) -> SlurmApplier:
    """Return an applier by the client programs."""
    account = {name: changes.pop(name) for name in tuple(changes) if name in _OF_ACCOUNT}
    source = {"conf_file": str(bed.conf), "rest_url": bed.rest_url} | changes
    return SlurmApplier(
        SlurmApplySettings(enabled=True, **account),  # type: ignore[arg-type]
        source=SlurmSettings(**source),  # type: ignore[arg-type]
    )


def test_an_operator_is_told_from_one_who_is_none(
    bed: SlurmBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm lets anybody else change their own jobs alone."""
    usable, found = applier_of(bed).access()
    assert usable
    assert "Slurm names " in found
    assert "nodes, as an operator" in found
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    usable, found = applier_of(bed).access()
    assert not usable
    assert "AdminLevel=Operator" in found


def test_slurmrestd_does_not_tell_who_is_an_operator(bed: SlurmBed) -> None:
    """Unknown is said."""
    usable, found = applier_of(bed, rest_user=bed.plan.user, rest_token=bed.token()).access()
    assert usable
    assert "is not known" in found


def test_what_is_missing_is_named_by_the_settings_of_applying(bed: SlurmBed) -> None:
    """`slurm.rest_user` is the collector's."""
    with pytest.raises(ApplyError, match=r"apply_slurm\.") as caught:
        applier_of(bed, rest_token=bed.token(), rest_url="http://127.0.0.1:9").access()
    assert " slurm." not in str(caught.value)
