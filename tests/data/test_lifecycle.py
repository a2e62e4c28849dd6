"""The state machine of a recommendation, enumerated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.records.lifecycle import (
    OPEN,
    STANDING_STATES,
    TRANSITIONS,
    IllegalEventError,
    LifecycleEvent,
    State,
    next_state,
    shown_state,
    state_after,
)
from data.records.recommendations import Decision


def test_every_state_has_its_row() -> None:
    """A state that was forgotten would fail only when it is reached."""
    assert set(TRANSITIONS) == set(State)


def test_every_decision_of_a_person_is_an_event() -> None:
    """The words of the two enumerations are the same."""
    assert {str(word) for word in Decision} <= {str(event) for event in LifecycleEvent}


@pytest.mark.parametrize("state", State)
def test_an_event_moves_or_is_refused(state: State) -> None:
    """Nothing in between: the table decides, for every event."""
    for event in LifecycleEvent:
        if event in TRANSITIONS[state]:
            assert next_state(state, event) is TRANSITIONS[state][event]
        else:
            with pytest.raises(IllegalEventError, match=str(event)):
                next_state(state, event)


def test_every_state_but_the_timed_ones_can_be_reached() -> None:
    """They come from the clock, a newer plan and what was said of the finding."""
    reached, ahead = {State.PROPOSED}, [State.PROPOSED]
    while ahead:
        for after in TRANSITIONS[ahead.pop()].values():
            if after not in reached:
                reached.add(after)
                ahead.append(after)
    assert set(State) - reached == {State.EXPIRED, State.SUPERSEDED, State.SNOOZED}


def test_nothing_reaches_the_cluster_without_an_approval() -> None:
    """Every way to applying leads through approved."""
    before = {state for state, after in TRANSITIONS.items() if State.APPLYING in after.values()}
    assert before == {State.APPROVED, State.WRITTEN}
    assert {s for s, after in TRANSITIONS.items() if State.WRITTEN in after.values()} == {
        State.APPROVED
    }


@given(st.lists(st.sampled_from([*map(str, LifecycleEvent), "sending", "looked", "nonsense"])))
def test_folding_any_words_gives_a_state(words: list[str]) -> None:
    """A record that was tampered with still shows a state; the audit names the damage."""
    assert state_after(words) in set(State) - {State.EXPIRED, State.SUPERSEDED, State.SNOOZED}


def test_only_what_nobody_took_up_expires() -> None:
    """An applied change does not expire, an approval that was not used does."""
    assert shown_state(State.APPROVED, expired=True, superseded=True) is State.EXPIRED
    assert shown_state(State.PROPOSED, expired=False, superseded=True) is State.SUPERSEDED
    assert shown_state(State.APPROVED, expired=False, superseded=True) is State.APPROVED
    for state in (*OPEN, *STANDING_STATES):
        assert shown_state(state, expired=True, superseded=True) is state
