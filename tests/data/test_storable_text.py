"""What no store takes is replaced before it is hashed and kept, in every store alike."""

import json

from factories import make_collected, make_job, make_samples
from hypothesis import given
from hypothesis import strategies as st

from data.base.clock import utc_now
from data.base.text import json_without_nul, storable, without_nul
from data.store import Store

HOSTILE = "a\0b \\u0000"
KEPT = "a\N{REPLACEMENT CHARACTER}b \\u0000"


@given(st.text(alphabet=st.sampled_from(["\\", "\0", "u", "0", "é", '"', "\n"])))
def test_a_json_document_keeps_all_but_nul(text: str) -> None:
    """Backslashes before what looks like the escape are counted."""
    document = json.dumps([text], ensure_ascii=False)
    assert json.loads(json_without_nul(document)) == [without_nul(text)]
    assert "\0" not in json_without_nul(document)


def test_what_can_be_kept_is_kept() -> None:
    """Letters of any script stay."""
    assert storable("Ünïcode 漢字 🧮") == "Ünïcode 漢字 🧮"
    assert storable(HOSTILE + "\ud800") == KEPT + "?"


def test_every_store_keeps_what_people_and_labels_say(store: Store) -> None:
    """The record's chain holds over what was kept, a job's name reads back, questions find it."""
    store.append_audit(at=utc_now(), actor=HOSTILE, event="refused", digest="", detail=HOSTILE)
    entry = store.reader.audit()[-1]
    assert (entry.actor, entry.detail) == (KEPT, KEPT)
    assert store.reader.verify_audit() == ()
    job = make_job("team/job/a", name=HOSTILE, owner=HOSTILE)
    store.keep(make_collected(make_samples(job_id=job.job_id), (job,)))
    assert [(item.name, item.owner) for item in store.reader.jobs()] == [(KEPT, KEPT)]
    assert store.reader.job("a\0b") is None
