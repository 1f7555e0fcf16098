"""What is set in sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Setting:
    def __init__(self, before: Setting | None) -> None:
        self.before = before  # until that is over
        self.sent = asyncio.Event()
        self.over = asyncio.Event()

    async def turn(self) -> None:
        """Returns when all before is answered."""
        while self.before is not None:
            await self.before.over.wait()
            self.before = self.before.before  # which goes on, where the one behind it was given up


class Settings:
    """What is set, one after the other: the last one counts, also where a connection breaks in between."""

    def __init__(self) -> None:
        self._last: WeakValueDictionary[str, Setting] = WeakValueDictionary()  # by session

    async def set(self, session_id: str, send: Callable[[], Awaitable[T]]) -> T:
        mine = self._last[session_id] = Setting(self._last.get(session_id))
        try:
            await mine.turn()
            mine.sent.set()  # who waits for that comes behind what follows
            return await send()
        finally:
            mine.sent.set()
            mine.over.set()

    def sent(self, session_id: str) -> Callable[[], Awaitable[object]] | None:
        """Waits until all that was set so far is sent. None when it is."""
        last = self._last.get(session_id)
        return None if last is None or last.sent.is_set() else last.sent.wait
