"""What the face without async is made of: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from .errors import NotConnectedError

T = TypeVar("T")


class Loop:
    """An event loop in a thread, in which everything of one client happens."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox-agent", daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[T]) -> T:
        """Waits for something asynchronous. Ctrl-C gives it up."""
        if threading.current_thread() is self._thread:
            if inspect.iscoroutine(work):
                work.close()
            raise RuntimeError("a listener must not wait for the client that calls it: hand the work to another thread")
        if self._loop.is_closed():
            if inspect.iscoroutine(work):
                work.close()
            raise NotConnectedError("the client was closed: make another one")

        async def wait() -> T:
            return await work

        future = asyncio.run_coroutine_threadsafe(wait(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function in the loop's thread."""
        if threading.current_thread() is self._thread:
            return function()

        async def call() -> T:
            return function()

        return self.run(call())

    def iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Iterates something asynchronous. Leaving the loop ends it."""
        iterator = self.call(lambda: make().__aiter__())
        try:
            while True:
                try:
                    yield self.run(iterator.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None and not self._loop.is_closed():
                self.run(close())

    def feed(self, content: Any) -> Any:
        """Content that is iterated, as the client takes it; text, bytes and what is no content are left alone."""
        if isinstance(content, (str, bytes, bytearray, memoryview)) or not hasattr(content, "__iter__"):
            return content

        async def chunks(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
            iterator = iter(pieces)

            def following() -> bytes | None:
                return next(iterator, None)

            while (chunk := await asyncio.to_thread(following)) is not None:
                yield chunk

        return chunks(content)

    def handler(self, handler: Callable[[Any], Any] | None, wrap: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]] | None:
        """A handler that may wait for the client: it is called in a thread of its own."""
        if handler is None:
            return None
        handle = handler

        async def run(value: Any) -> Any:
            return await asyncio.to_thread(handle, wrap(value))

        return run

    @property
    def stopped(self) -> bool:
        return self._loop.is_closed()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
