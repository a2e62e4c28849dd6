"""What belongs to others is answered like what does not exist, and no name leaves its folder."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from factories import NOW, make_collected, make_job, make_plan, make_recommendation
from hostile.payloads import PAYLOADS

from dashboard.apply.worker.change_file import change_for, write_change
from dashboard.decisions import approvals
from data.base.errors import ChangeRefusedError, StoreError
from data.facts.jobs import Platform
from data.records.commands import Person
from data.settings.access import AccessSettings
from data.store import Store, open_store

ACCESS = replace(
    AccessSettings(mode="proxy", proxy_addresses="10.0.0.5"), owners="ada,bob", viewers="vera"
)
THEIRS = make_recommendation()
ABSENT = "0" * 64
Act = Callable[[Store, str, Person], object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a recommendation on a job of search."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        opened.keep(make_collected(jobs=(make_job(gpu_count=4),)))
        opened.keep_cycle(
            cycle_id="c1",
            started_at=NOW,
            finished_at=NOW,
            forecasts=(),
            plan=make_plan(),
            recommendations=(THEIRS,),
        )
        yield opened


ACTS: dict[str, Act] = {
    "approve": lambda s, i, who: approvals.approve(s, i, by=who, now=NOW, access=ACCESS),
    "reject": lambda s, i, who: approvals.reject(s, i, by=who, now=NOW, access=ACCESS),
    "keep": lambda s, i, who: approvals.keep(s, i, by=who, now=NOW, access=ACCESS),
    "apply": lambda s, i, who: approvals.ask_to_apply(
        s, i, by=who, now=NOW, appliers=(), access=ACCESS
    ),
    "roll back": lambda s, i, who: approvals.ask_to_roll_back(s, i, by=who, now=NOW, access=ACCESS),
    "write": lambda s, i, who: approvals.write_approved(
        s, i, by=who, now=NOW, folder=Path("nowhere"), access=ACCESS
    ),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_an_owner_cannot_tell_others_from_absent(store: Store, act: Act) -> None:
    """Same error, same words but for the id that was asked for, and nothing is written down."""
    said = []
    for asked in (THEIRS.digest, ABSENT):
        with pytest.raises(StoreError) as refused:
            act(store, asked, Person(name="ada", via="proxy"))
        said.append(str(refused.value).replace(asked, "ID"))
    assert said[0] == said[1]
    assert store.reader.audit() == ()


def test_a_viewer_who_sees_it_is_told_why_not(store: Store) -> None:
    """Who may look is no stranger to it: the answer names the role."""
    with pytest.raises(ChangeRefusedError, match="vera is viewer"):
        ACTS["approve"](store, THEIRS.digest, Person(name="vera", via="proxy"))


@pytest.mark.parametrize("platform", [Platform.KUBERNETES, Platform.SLURM])
def test_no_change_file_leaves_its_folder(tmp_path: Path, platform: Platform) -> None:
    """A hostile job gets no file, or one that lies in the folder and is named by the digest."""
    folder = tmp_path / "changes"
    written = 0
    for payload in PAYLOADS:
        one = make_recommendation(
            job_id=f"{payload.text}/x", job_name=payload.text, namespace=payload.text,
            platform=platform,
        )  # fmt: skip
        try:
            path = write_change(change_for(one, ()), folder)
        except ChangeRefusedError:
            continue
        written += 1
        assert path.parent == folder
        assert path.name.isascii()
        assert ".." not in path.name
    outside = {path for path in tmp_path.rglob("*") if path.is_file() and path.parent != folder}
    assert outside == set()
    assert len(list(folder.glob("*"))) == written if folder.exists() else written == 0
