"""How far a client has come in a session's events."""

from __future__ import annotations

from collections.abc import Callable

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
        self._again: Callable[[int], None] | None = None

    def again(self, begins: Callable[[int], None]) -> None:
        """Somebody has asked for what came: it is new once more from where it begins, which `begins` is told. What comes before that was on its way."""
        self._again = begins

    @property
    def waits(self) -> bool:
        """What came is to come again, and has not begun to."""
        return self._again is not None

    def fresh(self, seq: int) -> bool:
        """Notes a frame of an event; False when it came before."""
        if self._again and (seq < self.after or (seq == self.after and not self._parts)):
            self._again(self.after)
            self._again, self.after = None, seq - 1
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

    def state(self, seq: int) -> None:
        """Notes the session's state, which is told with the event behind which it was opened. What was on its way and is newer comes once more."""
        self._part = seq < self.after
        self._given = self._skip = self._given if self._part else 0
        self.after = max(seq, self.after)

    def go_on(self, asked: bool) -> int:
        """The event behind which a new connection goes on: the newest comes again when it may not be whole.

        `asked` says that somebody waits for the session's state, which follows.
        """
        self._again = None
        if not self._parts:
            return self.after
        if self._part:
            self._skip = self._given
            return self.after - 1
        self._skip = 0 if self._version == 1 or asked else 1
        return self.after
