"""The words for what a change does and where it stands: none missing, none for two things."""

from dataclasses import replace

import pytest
from factories import make_recommendation

from dashboard.apply.contract.wording import STATE_WORDS, change_words
from data.records.actions import Action
from data.records.lifecycle import OPEN, STANDING_STATES, State

TARGETS = {"job": ("search/ranker-0", ""), "node": ("", "a100-01"), "braces": ("a/{now}", "")}


def test_every_state_has_words_of_its_own() -> None:
    """Only what is under way is said to be, and only what stands is said to be watched."""
    assert set(STATE_WORDS) == set(State)
    assert len(set(STATE_WORDS.values())) == len(State)
    for state, words in STATE_WORDS.items():
        assert (" is being " in f" {words}") == (state in OPEN)
        if "target is watched" in words:
            assert state in STANDING_STATES


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("action", Action)
def test_the_way_back_never_reads_as_the_way_there(action: Action, target: str) -> None:
    """Both name the target, and they differ."""
    job_id, job_name = TARGETS[target]
    one = replace(
        make_recommendation(), action=action, job_id=job_id, job_name=job_name, change="a change"
    )
    there, back = change_words(one, back=False), change_words(one, back=True)
    assert there != back
    if action is not Action.ADD_GPUS:
        assert one.target in there
        assert one.target in back
    if action is Action.CONSOLIDATE:
        assert "out of use" in there
        assert "back into use" in back
