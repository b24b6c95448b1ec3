"""Tests of the lifecycle table. Every race is a row of the table, so no test needs a process."""

from collections import deque
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacre.engine.lifecycle import TABLE, Action, State, Trigger, next_step

_REASONS = {Action.NOTE_NOT_STARTED, Action.NOTE_TIMEOUT, Action.NOTE_CANCEL}
happenings = st.lists(st.sampled_from(Trigger), max_size=20)


def lived(story: list[Trigger]) -> tuple[State, list[Action]]:
    state = State.QUEUED
    done: list[Action] = []
    for happening in story:
        state, actions = next_step(state, happening)
        done.extend(actions)
    return state, done


@given(happenings)
def test_why_it_ended_is_written_at_most_once(story: list[Trigger]) -> None:
    assert sum(action in _REASONS for action in lived(story)[1]) <= 1


@given(happenings)
def test_it_answers_exactly_once_and_only_in_the_end(story: list[Trigger]) -> None:
    state, actions = lived(story)
    assert actions.count(Action.FINISH) == (state is State.DONE)
    assert Action.FINISH not in actions[:-1]


@given(happenings)
def test_a_tree_is_killed_only_after_it_was_asked_to_stop(story: list[Trigger]) -> None:
    actions = lived(story)[1]
    if Action.KILL_TREE in actions:
        assert Action.STOP_TREE in actions[: actions.index(Action.KILL_TREE)]


@given(happenings)
def test_nothing_is_spawned_after_a_cancel(story: list[Trigger]) -> None:
    if Trigger.CANCEL in story:
        before = story[: story.index(Trigger.CANCEL)]
        assert lived(story)[1].count(Action.SPAWN) == lived(before)[1].count(Action.SPAWN)


def test_every_state_can_be_reached_and_left() -> None:
    seen, waiting = {State.QUEUED}, deque([State.QUEUED])
    while waiting:
        state = waiting.popleft()
        for (source, _), step in TABLE.items():
            if source is state and step.to not in seen:
                seen.add(step.to)
                waiting.append(step.to)
    assert seen == set(State)
    assert {state for state, _ in TABLE} == set(State) - {State.DONE}


def test_every_action_and_happening_is_used() -> None:
    assert {happening for _, happening in TABLE} == set(Trigger)
    assert {action for step in TABLE.values() for action in step.actions} == set(Action)


@pytest.mark.parametrize(
    ("story", "state", "reason"),
    [
        ([Trigger.CANCEL], State.DONE, Action.NOTE_NOT_STARTED),
        ([Trigger.SLOT_FREE, Trigger.SPAWN_FAILED], State.DONE, Action.NOTE_NOT_STARTED),
        (
            [Trigger.SLOT_FREE, Trigger.DEADLINE, Trigger.CANCEL, Trigger.EXIT],
            State.STOPPING,
            Action.NOTE_TIMEOUT,
        ),
        (
            [Trigger.SLOT_FREE, Trigger.CANCEL, Trigger.DEADLINE, Trigger.EXIT],
            State.STOPPING,
            Action.NOTE_CANCEL,
        ),
        ([Trigger.SLOT_FREE, Trigger.EXIT, Trigger.DEADLINE], State.DRAINING, None),
        ([Trigger.SLOT_FREE, Trigger.EXIT, Trigger.CANCEL], State.DRAINING, None),
        (
            [Trigger.SLOT_FREE, Trigger.NO_DESCRIPTORS, Trigger.CANCEL],
            State.DONE,
            Action.NOTE_NOT_STARTED,
        ),
    ],
)
def test_races(story: list[Trigger], state: State, reason: Action | None) -> None:
    ended, actions = lived(story)
    written = [action for action in actions if action in _REASONS]
    assert ended is state
    assert written == ([] if reason is None else [reason])


@pytest.mark.parametrize(("state", "happening"), list(product(State, Trigger)))
def test_what_is_not_in_the_table_changes_nothing(state: State, happening: Trigger) -> None:
    if (state, happening) not in TABLE:
        assert next_step(state, happening) == (state, ())
