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
        self.sent = asyncio.Event()  # not while it has to be sent again
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

    async def set(self, session_id: str, send: Callable[[Callable[[bool], None]], Awaitable[T]]) -> T:
        """`send` tells what it is given whether the request is on its way: False when it has to be sent again."""
        mine = self._last[session_id] = Setting(self._last.get(session_id))
        try:
            await mine.turn()
            return await send(lambda sent: mine.sent.set() if sent else mine.sent.clear())
        finally:
            mine.sent.set()  # or not to be sent any more
            mine.over.set()

    def behind(self, session_id: str) -> Callable[[], asyncio.Event | None]:
        """What is sent behind all that was set so far asks, right before it is sent, what it has to wait for; after that it asks again."""
        last = self._last.get(session_id)

        def unsent() -> asyncio.Event | None:
            first, one = None, last
            while one is not None:
                first = first if one.sent.is_set() else one.sent
                one = one.before
            return first

        return unsent
