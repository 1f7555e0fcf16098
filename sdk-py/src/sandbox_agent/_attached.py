"""A session that a client is attached to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._position import Position
from .activity import Activity

OVER = ("closed", "ended")  # states in which nobody follows a session


@dataclass
class Attached:
    """What a session needs on a new connection."""

    position: Position
    activity: Activity | None  # in version 2
    cwd: str | None = None  # None: as it is
    params: dict[str, Any] = field(default_factory=dict)
    turn_at: int = 0  # in version 1: the newest event that said whose turn it is
    newest: int = 0  # the newest event that there was when the client was attached last
    leaving: bool = False  # a request to detach from it is on its way
    over: bool = False  # the program was told that the session is closed or has ended, and nothing was said in it since
    state_at: int = 0  # in version 2: the event whose state the program was told last
    opening: float | None = None  # in version 2: the client has asked to open it behind this event, and the gateway has not said yet in which state it was then

    def fresh(self, seq: int, update: Mapping[str, Any], own: bool) -> bool:
        """Notes a frame of an event, which is the session's own or of a subagent; False for what is not to be told."""
        position = self.position
        state = self.activity is not None and own and update.get("sessionUpdate") == "state_update"
        # A state of no newer event is what the gateway says of a session that is opened. Not so one that ends a turn while a replay is
        # awaited: where a session is loaded while the agent works, that turn may end just before the replay begins.
        ends = position.waits and update.get("stopReason") is not None
        asked = self.opening is not None and seq <= self.opening and not ends
        told = True
        if state and (asked or seq < position.after):
            if asked:
                self.opening = None
            told = seq >= self.state_at or position.waits  # else a newer state was
            position.state(seq)
        elif not position.fresh(seq):
            return False
        if state and told:
            self.state_at = seq
        return told


def end_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """How a session ended that is over, as far as the gateway still says."""
    end = {"at": info["updatedAt"], "reason": info["state"], "terminatedBy": ""}
    if went := (info.get("metadata") or {}).get("movedTo"):
        end |= {"reason": "moved", "message": "it goes on at " + re.sub("^node://(.*)", r"the node \1 of the same hub", str(went))}
    return info.get("ended") or end


def is_update(params: dict[str, Any]) -> bool:
    """Whether an agent's update is one: what has no kind is of no use to anybody."""
    update = params.get("update")
    return isinstance(update, dict) and isinstance(update.get("sessionUpdate"), str)
