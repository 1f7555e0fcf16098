"""How far a client has come, against a gateway that is cut anywhere: between the frames of one event, too."""

from __future__ import annotations

import random

import pytest

from sandbox_agent._position import Position
from sandbox_agent.versions import AcpVersion


@pytest.mark.parametrize("version, parts", [(1, False), (1, True), (2, True)])
def test_whatever_is_cut_each_frame_comes_once_and_in_order(version: AcpVersion, parts: bool) -> None:
    for seed in range(1, 501):
        chance = random.Random(seed)
        log = [[f"{n}.{frame}" for frame in range(chance.randint(1, 3) if parts else 1)] for n in range(1, 31)]
        position = Position(version, parts, 0)
        given: list[str] = []
        breaks, start, first = 0, 0, True
        while True:
            # The connection brings what is behind `start` up to now, the session's state in version 2, and what comes then.
            now = 0 if first else min(len(log), max(position.after, start) + chance.randrange(3))
            frames: list[tuple[int, str]] = []
            for seq in range(start + 1, len(log) + 1):
                if seq == now + 1 and not first and version == 2:
                    frames.append((now, "state"))
                frames += [(seq, frame) for frame in log[seq - 1]]
            if now == len(log) and version == 2:
                frames.append((now, "state"))
            cut = chance.randint(0, len(frames))
            lasts = breaks > 40 or cut == len(frames)
            for seq, frame in frames if lasts else frames[:cut]:
                if position.fresh(seq) and frame != "state":
                    given.append(frame)
            if lasts:
                break
            breaks += 1
            first = False
            start = position.go_on(False)
        assert given == [frame for event in log for frame in event], f"seed {seed}, {breaks} breaks"


@pytest.mark.parametrize("asked", [True, False])
def test_who_waits_for_the_state_is_told_it_and_others_are_not_told_it_twice(asked: bool) -> None:
    position = Position(2, True, 0)
    assert [position.fresh(4), position.fresh(5)] == [True, True]
    position.state(5)
    assert position.go_on(asked) == 5
    assert position.fresh(5) == asked  # the state
    assert position.fresh(6) and position.after == 6


@pytest.mark.parametrize("version", [1, 2])
def test_a_request_is_noted_before_the_other_frames_of_its_event_which_come_once(version: AcpVersion) -> None:
    position = Position(version, True, 4)
    position.asked(5)
    assert [position.fresh(5), position.fresh(5), position.after] == [True, True, 5]
    assert position.go_on(False) == 4
    position.asked(5)
    assert [position.fresh(5), position.fresh(5), position.fresh(5)] == [False, False, True]


@pytest.mark.parametrize("version, parts", [(1, False), (1, True), (2, True)])
def test_what_was_asked_for_comes_again_from_where_it_begins_and_what_came_on_the_way_before_once(version: AcpVersion, parts: bool) -> None:
    position = Position(version, parts, 0)
    for seq in (1, 2, 3):
        position.fresh(seq)
    up_to: list[int] = []
    position.again(up_to.append)
    assert position.fresh(4) and position.waits and up_to == []  # it was on its way
    assert all([position.fresh(seq) for seq in (1, 2, 3, 4, 5)])
    assert up_to == [4] and position.after == 5
    assert [position.waits, position.fresh(4)] == [False, False]


def test_an_event_of_one_frame_may_be_all_that_comes_again() -> None:
    position = Position(1, False, 3)
    position.again(lambda _: None)
    assert [position.fresh(3), position.fresh(3)] == [True, False]


def test_a_new_connection_brings_again_nothing_that_came_who_asked_asks_on_it() -> None:
    position = Position(1, False, 3)
    position.again(lambda _: pytest.fail("it came again"))
    assert position.go_on(False) == 3
    assert [position.waits, position.fresh(3), position.fresh(2)] == [False, False, False]
