"""What an earlier version kept, without the fields that came later, keeps its name and its way."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from beds.apply_bench import propose
from factories import NOW, make_collected, make_job, make_range, make_recommendation, make_samples

from dashboard.cli import main
from dashboard.decisions import approvals
from data.facts.identifiers import digest_of_text
from data.records.recommendations import Decision, RecommendationRow, Transition
from data.store import Store, open_store
from data.store.engine.record_json import to_json

LATER_FIELDS = [
    ("transition", "queue"), ("evidence", "elasticity"), ("evidence", "flags"), ("details",),
    ("change",), ("delay_hours",), ("starts_at",), ("ends_at",), ("transition",),
]  # fmt: skip

RESTART = (("restart", 60.0),)
MADE_IN = Transition(seconds=make_range(60.0, "s"), parts=RESTART, gpu_hours=0.1, cost=0.2)


def kept_before(store: Store, left_out: tuple[str, ...]) -> str:
    """Keep a recommendation as a version without that field did, and return its digest."""
    advice = make_recommendation(transition=MADE_IN)
    propose(store, advice)
    told = json.loads(to_json(advice))
    place = told
    for name in left_out[:-1]:
        place = place[name]
    del place[left_out[-1]]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = digest_of_text(text)
    assert digest != advice.digest
    with store._engine.begin() as connection:
        connection.execute(
            sa.text(
                "UPDATE recommendations SET digest = :digest, record = :text WHERE digest = :now"
            ),
            {"digest": digest, "text": text, "now": advice.digest},
        )
    return digest


@pytest.mark.parametrize("left_out", LATER_FIELDS, ids=".".join)
def test_a_later_field_changes_no_name(
    store_url: str, tmp_path: Path, left_out: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed, approved, written and proven by the digest of its own text; a cycle goes on."""
    with open_store(store_url) as store:
        store.keep(make_collected(make_samples(gpus=4), (make_job(gpu_count=4),)))
        digest = kept_before(store, left_out)
        (listed,) = store.reader.current_recommendations(now=NOW)
        assert listed.recommendation.digest == digest
        approvals.approve(store, digest[:12], by="ann", now=NOW)
        approvals.write_approved(store, digest, by="ann", now=NOW, folder=tmp_path)
        assert set(store.reader.recommendations_of([digest], now=NOW)) == {digest}
        kept = store.reader.recommendation(digest[:12], now=NOW).recommendation
        told = kept.as_row(RecommendationRow)
        assert (told.id, told.digest) == (digest[:12], digest)
        assert [entry.event for entry in store.reader.audit()] == [
            Decision.APPROVED,
            Decision.WRITTEN,
        ]
    # A cycle and the savings read every field alike: those of each depth are enough.
    longer = [["cycle"], ["savings"]] if left_out in LATER_FIELDS[:4] else []
    for words in (["audit", "verify"], *longer, ["findings", "show", digest]):
        assert main(["--quiet", "--store", store_url, *words]) == 0, words
    assert digest[:12] in capsys.readouterr().out
