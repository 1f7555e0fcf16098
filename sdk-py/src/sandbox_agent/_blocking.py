"""What the face without async is made of: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from ._tasks import end
from .errors import NotConnectedError

T = TypeVar("T")

TIDY = 5.0  # seconds for an iterator that nobody has left
CLOSED = "the client was closed: make another one"


async def in_thread(function: Callable[[], T]) -> T:
    """Calls a function in a thread of its own. There are few in the loop's pool, which finds names in them, too, and Python's exit waits for those; for this one nobody does."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def end(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # nobody waits for it any more
        if error is None:
            future.set_result(cast(T, result))
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as e:
            error = e
            if isinstance(e, StopIteration) or not isinstance(e, Exception):  # which a future cannot have, or which are for a thread, as that of sys.exit()
                error = RuntimeError(f"it ended with {type(e).__name__}")
                error.__cause__ = e
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(end, result, error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), name="sandbox-agent handler", daemon=True).start()
    return await future


class Work(Generic[T]):
    """Something asynchronous that another thread waits for."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._task: asyncio.Task[T] | None = None
        self._given_up = False
        # A Future's condition is spoilt when Ctrl-C comes at the wrong moment.
        self.over = threading.Lock()
        self.over.acquire()

    async def _wait(self) -> T:
        return await self._make()

    def begin(self) -> None:
        if not self._given_up:
            self._task = asyncio.get_running_loop().create_task(self._wait())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # if it was given up nobody else asks
        self.over.release()

    def give_up(self) -> None:
        self._given_up = True
        if self._task is not None:
            self._task.cancel()

    def outcome(self) -> T:
        """What has come of it, once it is over."""
        assert self._task is not None
        if self._task.cancelled():
            raise NotConnectedError(CLOSED)  # by another thread
        return self._task.result()


class Loop:
    """An event loop in a thread, in which everything of one client happens."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox-agent", daemon=True)
        self._thread.start()
        # A signal's handler may close, too, in a thread that holds them.
        self._closing = threading.RLock()  # held by who closes
        self._begins = threading.RLock()  # of what follows: the loop ends behind what has begun
        self._stopping = threading.Lock()  # taken, for good, by who ends the loop
        self._over = False
        self._iterators: set[Any] = set()  # that are open; the loop ends them

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Waits for something asynchronous, which is made in the loop's thread. Ctrl-C gives it up: whenever that comes, nothing is left over here."""
        if threading.current_thread() is self._thread:
            raise self._waits()
        work = Work(make)
        try:
            with self._begins:
                if self._over:
                    raise NotConnectedError(CLOSED)
                self._soon(work.begin)
            work.over.acquire()
        except BaseException:
            with suppress(NotConnectedError):  # it has ended with the loop
                self._soon(work.give_up)
            raise
        return work.outcome()

    def _soon(self, do: Callable[[], Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(do)
        except RuntimeError:  # a signal's handler has ended the loop in between
            raise NotConnectedError(CLOSED) from None

    def _waits(self) -> RuntimeError:
        return RuntimeError("a listener must not wait for the client that calls it: hand the work to another thread")

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function in the loop's thread."""
        if threading.current_thread() is self._thread:
            return function()

        async def call() -> T:
            return function()

        return self.run(call)

    def iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Iterates something asynchronous. Leaving the loop ends it."""
        iterator = self.call(lambda: make().__aiter__())
        close = getattr(iterator, "aclose", None)
        if close is not None:
            self._iterators.add(iterator)
        busy = asyncio.Lock()  # a step that Ctrl-C has given up takes a while to end, and cannot be closed before

        async def step() -> T:
            async with busy:
                return await iterator.__anext__()

        async def leave() -> None:
            async with busy:
                if close is not None:
                    await close()

        try:
            while True:
                try:
                    yield self.run(step)
                except StopAsyncIteration:
                    return
        finally:
            self._iterators.discard(iterator)
            if not self._over:
                with suppress(NotConnectedError):  # it has ended with the loop
                    self.run(leave)

    def feed(self, content: Any) -> Any:
        """Content that is iterated, as the client takes it; text, bytes and what is no content are left alone."""
        if isinstance(content, (str, bytes, bytearray, memoryview)) or not hasattr(content, "__iter__"):
            return content

        async def chunks(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
            iterator = iter(pieces)

            def following() -> bytes | None:
                return next(iterator, None)

            while (chunk := await in_thread(following)) is not None:
                yield chunk

        return chunks(content)

    def handler(self, handler: Callable[[Any], Any] | None, wrap: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]] | None:
        """A handler that may wait for the client: it is called in a thread of its own."""
        if handler is None:
            return None
        handle = handler

        async def run(value: Any) -> Any:
            return await in_thread(lambda: handle(wrap(value)))

        return run

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Does the last thing and ends the loop, once: who comes second waits for that."""
        if threading.current_thread() is self._thread:
            raise self._waits()
        with self._closing:
            if not self._over:
                try:
                    self.run(last)
                except NotConnectedError:
                    if not self._over:  # else a signal's handler has done it
                        raise
            self.stop()

    def stop(self) -> None:
        """Ends the loop, and with it what other threads still wait for."""
        if not self._stopping.acquire(blocking=False):
            return
        with self._begins:
            self._over = True

        async def last() -> None:
            await end(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
            for iterator in list(self._iterators):  # that nobody has left: without a loop they cannot tidy up
                with suppress(Exception, asyncio.CancelledError):
                    await asyncio.wait_for(iterator.aclose(), TIDY)

        asyncio.run_coroutine_threadsafe(last(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
