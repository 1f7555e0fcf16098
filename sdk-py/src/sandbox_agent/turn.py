"""A prompt on its way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, cast

from .errors import SandboxAgentError
from .versions import AcpVersion, SessionUpdate

MAX_KEPT = 100_000  # updates kept for an iterator that is slow or has not begun


@dataclass(frozen=True)
class TurnResult:
    """How a turn ended."""

    stop_reason: str
    text: str
    """What the agent said in the turn, without its thoughts."""
    response: dict[str, Any]
    """The answer to the prompt: in version 2 it has the `messageId`, and is empty when the prompt was cancelled before it began."""
    usage: dict[str, Any] | None = None
    """Tokens, when the agent tells."""


class Turn:
    """One prompt on its way. Await it for the result, iterate it for the updates, or both.

    >>> turn = session.prompt("hello")
    >>> async for update in turn:
    ...     print(update["sessionUpdate"])
    >>> result = await turn
    """

    def __init__(self, version: AcpVersion, session_id: str, cancel: Callable[[], Awaitable[None]]) -> None:
        self.session_id: str = session_id
        self._version = version
        self._cancel = cancel
        self._updates: deque[SessionUpdate] = deque()
        self._missed = False
        self._said: dict[str, list[str]] = {}  # by message; version 1 tells none apart
        self._done: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self.result().__await__()

    async def result(self) -> TurnResult:
        """Waits for the end of the turn."""
        return await asyncio.shield(self._done)

    async def cancel(self) -> None:
        """Asks the agent to end the turn, with those of this client that wait behind it; the result's stop reason is then `cancelled`. One that it waits for goes on.

        A prompt that was not sent yet is not sent any more. Of a turn that is over nothing is ended.
        """
        if not self._done.done():
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

    def _push(self, update: dict[str, Any]) -> None:
        self._hear(update)
        if len(self._updates) >= MAX_KEPT:
            self._missed = True
        elif not self._missed:
            self._updates.append(cast(SessionUpdate, update))
        self._wake.set()

    def _hear(self, update: dict[str, Any]) -> None:
        kind = update["sessionUpdate"]
        if kind not in ("agent_message_chunk", "agent_message") or "content" not in update:
            return
        content = update["content"]
        blocks = content if isinstance(content, list) else [content] if content else []
        said = [str(block.get("text") or "") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
        message = "" if self._version == 1 else str(update.get("messageId") or "")
        if kind == "agent_message_chunk":
            self._said.setdefault(message, []).extend(said)
        else:
            self._said[message] = said  # all that there is of it

    def _end(self, stop_reason: str, response: dict[str, Any], usage: dict[str, Any] | None) -> None:
        if not self._done.done():
            text = "".join(piece for message in self._said.values() for piece in message)
            self._done.set_result(TurnResult(stop_reason, text, response, usage))
        self._wake.set()

    def _fail(self, error: BaseException) -> None:
        if not self._done.done():
            self._done.set_exception(error)
            self._done.exception()  # who iterates is told by the iterator
        self._wake.set()
