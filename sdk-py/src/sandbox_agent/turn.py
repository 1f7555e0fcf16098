"""A prompt on its way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from .acp_types import SessionUpdate
from .errors import SandboxAgentError

MAX_KEPT = 100_000  # updates kept for an iterator that is slow or has not begun


@dataclass(frozen=True)
class TurnResult:
    """How a turn ended."""

    stop_reason: str
    text: str
    """What the agent said in the turn, without its thoughts."""
    response: dict[str, Any]
    """The agent's own response."""


class Turn:
    """One prompt on its way. Await it for the result, iterate it for the updates, or both.

    >>> turn = session.prompt("hello")
    >>> async for update in turn:
    ...     print(update["sessionUpdate"])
    >>> result = await turn
    """

    def __init__(self, session_id: str, cancel: Callable[[], Awaitable[None]]) -> None:
        self.session_id: str = session_id
        self._cancel = cancel
        self._updates: deque[SessionUpdate] = deque()
        self._missed = False
        self._text: list[str] = []
        self._done: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self.result().__await__()

    async def result(self) -> TurnResult:
        """Waits for the end of the turn."""
        return await asyncio.shield(self._done)

    async def cancel(self) -> None:
        """Asks the agent to end the turn; the result's stop reason is then `cancelled`."""
        await self._cancel()

    async def __aiter__(self) -> AsyncIterator[SessionUpdate]:
        while True:
            while self._updates:
                yield self._updates.popleft()
            if self._missed:
                raise SandboxAgentError(f"more than {MAX_KEPT} updates waited to be read: the rest is in the session's events")
            if self._done.done():
                self._done.result()
                return
            self._wake.clear()
            await self._wake.wait()

    def _push(self, update: SessionUpdate) -> None:
        if update["sessionUpdate"] == "agent_message_chunk" and update["content"]["type"] == "text":
            self._text.append(update["content"]["text"])
        if len(self._updates) >= MAX_KEPT:
            self._missed = True
        elif not self._missed:
            self._updates.append(update)
        self._wake.set()

    def _end(self, response: dict[str, Any]) -> None:
        if not self._done.done():
            self._done.set_result(TurnResult(str(response.get("stopReason", "")), "".join(self._text), response))
        self._wake.set()

    def _fail(self, error: BaseException) -> None:
        if not self._done.done():
            self._done.set_exception(error)
            self._done.exception()  # who iterates is told by the iterator
        self._wake.set()
