"""How far a client has come in a session's events."""

from __future__ import annotations

from .versions import AcpVersion


class Position:
    """How far a client has come in a session's events.

    An event is one frame. With `parts` it may be several, and in version 2 the session's
    state may be told behind those of the newest.
    """

    def __init__(self, version: AcpVersion, parts: bool, after: int) -> None:
        self._version, self._parts = version, parts
        self.after = after
        """The newest event that has come, at least in part."""
        self._part = False  # the newest event may have more frames than came
        self._given = 0  # frames of it that came
        self._skip = 0  # how many of them come again

    def fresh(self, seq: int) -> bool:
        """Notes a frame of an event; False when it came before."""
        if seq > self.after:
            self.after, self._part, self._given, self._skip = seq, True, 1, 0
            return True
        if seq < self.after or not self._parts:
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        self._given += 1
        return True

    def asked(self, seq: int) -> None:
        """Notes a request of an event, which comes again by itself: with parts also before the event's other frames."""
        if seq > self.after:
            self.after, self._part, self._given, self._skip = seq, True, 0, 0

    def whole(self) -> None:
        """Notes that all of the newest event has come."""
        self._part, self._given, self._skip = False, 0, 0

    def go_on(self, asked: bool) -> int:
        """The event behind which a new connection goes on: the newest comes again when it may not be whole.

        `asked` says that somebody waits for the session's state, which follows.
        """
        if not self._parts:
            return self.after
        if self._part:
            self._skip = self._given
            return self.after - 1
        self._skip = 0 if self._version == 1 or asked else 1
        return self.after
