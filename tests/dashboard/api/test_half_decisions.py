"""A decision and its command are kept together or not at all, whatever fails between them."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from beds.api_clients import LOCAL, clients, problem
from beds.file_cluster import FileApplier, FileCluster

from data.store import Store

WISH = {"decision": "approve-and-apply"}
BY = {"X-Trimtab-By": "robin"}


@pytest.mark.parametrize("broken", [True, False])
def test_an_approval_without_its_command_is_not_kept(
    store: Store, tmp_path: Path, broken: bool
) -> None:
    """A store that takes the approval and not the command, as a full disk did, keeps neither."""
    cluster = FileCluster(tmp_path / "cluster")
    cluster.path.touch()
    applier = FileApplier(cluster)
    path = "/api/v1/findings/TT-1/decisions"
    if broken:
        with store._engine.begin() as connection:
            connection.execute(sa.text("ALTER TABLE leases RENAME TO leases_away"))
    with clients(store, LOCAL, appliers=lambda _settings: (applier,)) as client:
        answer = client().post(path, json=WISH, headers=BY)
        state = client().get("/api/v1/findings/TT-1").json()["finding"]["state"]
    if broken:
        problem(answer, 503)
    else:
        assert answer.status_code == 200, answer.text
    decisions = [entry.event for entry in store.reader.entries_about(1)]
    assert decisions == ([] if broken else ["approved", "apply-asked"])
    assert state == ("open" if broken else "applying")
