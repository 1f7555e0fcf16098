"""One ACP connection over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import websockets
from websockets.exceptions import ConnectionClosed, WebSocketException

from .errors import ConnectionLostError, ProblemError, RpcError

SUBPROTOCOL = "acp.sandboxagent.dev"
MAX_MESSAGE = 256 << 20  # bytes of one message, far above what a gateway sends
OPEN_TIMEOUT = 20.0  # seconds, for the handshake
BEGINNING = ("initialize", "session/resume", "_sandboxagent/session/get", "_sandboxagent/session/pending")  # the methods with which a connection begins, also one that takes the place of another
PING = 20.0  # seconds between two pings, at most
LAST_WORD = 1.0  # seconds that who gives a request up waits until the gateway is told so; it is told later, too

_MAJOR = int(str(websockets.version.version).split(".", maxsplit=1)[0])


class _Connect(getattr(websockets, "connect")):  # type: ignore[misc]  # the newest of the package's clients
    """Follows no redirects: they would carry the token to where it does not belong."""

    def handle_redirect(self, uri: str) -> None:  # before websockets 14
        raise ConnectionLostError(f"the server redirects to {uri}, to which a token is not sent: give the address itself")

    def process_redirect(self, exc: Exception) -> Exception:  # since
        return exc


async def open_socket(url: str, headers: Callable[[bool], Awaitable[dict[str, str]]], subprotocols: list[str] | None = None, silence: float | None = None) -> Any:
    """Opens a WebSocket as `dial` does. When its headers are refused new ones are asked for, once."""
    try:
        return await dial(url, await headers(False), subprotocols, silence)
    except ProblemError as e:
        if e.status != 401:
            raise
    return await dial(url, await headers(True), subprotocols, silence)


async def dial(url: str, headers: dict[str, str], subprotocols: list[str] | None = None, silence: float | None = None) -> Any:
    """Opens a WebSocket. A refusal is a ProblemError, a network that fails a ConnectionLostError. One that is silent for so many seconds breaks."""
    named = {"additional_headers" if _MAJOR >= 14 else "extra_headers": headers}
    try:
        return await _Connect(
            url, subprotocols=subprotocols, max_size=MAX_MESSAGE, open_timeout=min(OPEN_TIMEOUT, silence or OPEN_TIMEOUT), close_timeout=2,
            ping_interval=min(PING, (silence or math.inf) / 3), ping_timeout=silence, compression=None, **named,
        )
    except WebSocketException as e:
        response = getattr(e, "response", None)
        status = getattr(e, "status_code", None) or getattr(response, "status_code", None)
        if isinstance(status, int) and 400 <= status < 500:
            raise ProblemError(status, _document(getattr(response, "body", None), status)) from e
        raise ConnectionLostError(f"{url} cannot be reached: {e}") from e
    except (OSError, asyncio.TimeoutError, EOFError) as e:
        raise ConnectionLostError(f"{url} cannot be reached: {str(e) or type(e).__name__}") from e


def _document(body: bytes | None, status: int) -> dict[str, Any]:
    try:
        document = json.loads(body or b"")
        if isinstance(document, dict):
            return document
    except ValueError:
        pass
    return {"title": "the gateway refuses the connection", "detail": f"its answer was {status}" + (": is the token right?" if status in (401, 403) else "")}


async def hang_up(socket: Any) -> None:
    """Closes a WebSocket, also one whose other end is gone in the same moment."""
    with suppress(ConnectionClosed, OSError):
        await socket.close()


def _unsent(transport: Any) -> int:
    """The bytes that wait to be sent. With TLS those of asyncio's own transport that are encrypted wait in the one below it, which it does not count."""
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return int(transport.get_write_buffer_size()) + (int(below.get_write_buffer_size()) if below is not None else 0)


class Wire:
    """A connection that lives or has ended; it is never opened again.

    `receive` gets every request and notification of the gateway in the order of the
    wire, and is called before the answer to a later request is handed on. `ended` is
    called once, when nothing will be received any more.
    """

    def __init__(self, socket: Any, receive: Callable[[Wire, dict[str, Any]], None], ended: Callable[[Wire], None], silence: float | None = None) -> None:
        self._socket = socket
        self._silence = silence
        self._receive = receive
        self._ended = ended
        self._last = 0
        self._waiting: dict[int, tuple[asyncio.Future[Any], Callable[[Any], None] | None]] = {}
        self._begun: set[int] = set()  # requests with which a connection begins
        self.since = time.monotonic()
        self.used = False
        """Whether anything came that is not of its beginning."""
        self.closed = asyncio.Event()
        self.left = False
        """Whether it was ended at this end."""
        self.error: Exception | None = None
        self._given = 0  # bytes of all that was to be sent
        self._outgoing: asyncio.Lock = asyncio.Lock()  # keeps frames in the order of the calls
        self._given_up: set[asyncio.Task[None]] = set()  # what tells the gateway of requests; each ends with the connection
        self._reader = asyncio.ensure_future(self._read())
        self._watcher = asyncio.ensure_future(self._watch())

    async def request(self, method: str, params: Any, answered: Callable[[Any], None] | None = None, sent: Callable[[], None] | None = None) -> Any:
        """Sends a request and waits for its answer. `answered` is called in the order of the wire, with the result, or None for an error."""
        self._last += 1
        number = self._last
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (future, answered)
        if method in BEGINNING:
            self._begun.add(number)
        try:
            await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            if sent:
                sent()
            return await future
        except asyncio.CancelledError:
            if number in self._waiting and not self.closed.is_set():
                telling = asyncio.ensure_future(self._give_up(number))
                self._given_up.add(telling)
                telling.add_done_callback(self._given_up.discard)
                await asyncio.wait({telling}, timeout=LAST_WORD)
            raise
        finally:
            self._waiting.pop(number, None)
            self._begun.discard(number)
            if future.done() and not future.cancelled():
                future.exception()  # it is known to whoever asked

    async def _give_up(self, number: int) -> None:
        with suppress(ConnectionLostError):  # nobody waits for it any more
            await self.notify("$/cancel_request", {"requestId": number})

    async def notify(self, method: str, params: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        try:
            size = len(text.encode())
        except UnicodeEncodeError:  # half a character, which a frame carries only in its escaped form
            text = json.dumps(message, allow_nan=False, separators=(",", ":"))
            size = len(text)
        async with self._outgoing:
            if self.closed.is_set():
                raise self._lost()
            self._given += size
            try:
                await self._socket.send(text)
            except (ConnectionClosed, OSError) as e:
                raise ConnectionLostError(f"the connection broke: {e}") from e

    async def close(self) -> None:
        """Ends the connection. Its sessions live on."""
        self.left = True
        await hang_up(self._socket)
        await asyncio.wait([self._reader, self._watcher, *self._given_up])

    async def _watch(self) -> None:
        """Ends a connection that takes nothing of what waits to be sent. The library's ping waits behind that, and its time has not begun."""
        before = stuck = 0  # bytes that were taken by the last look
        while self._silence and not self.closed.is_set():
            try:
                await asyncio.wait_for(self.closed.wait(), self._silence / 3)
                return
            except asyncio.TimeoutError:
                pass
            waits = _unsent(self._socket.transport)
            taken = self._given - waits
            stuck = stuck + 1 if waits > 0 and taken <= before else 0  # not by the clock: this machine may have been suspended
            before = taken
            if stuck == 3:
                self._socket.transport.abort()

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection has ended: {self.error or 'it was closed'}")

    async def _read(self) -> None:
        try:
            async for text in self._socket:
                if isinstance(text, str):
                    self._message(text)
        except ConnectionClosed as e:
            self.error = e
        except Exception as e:  # nobody reads on, and the gateway is to know
            self.error = e
            self._socket.transport.abort()
        finally:
            self.closed.set()
            for future, _ in self._waiting.values():
                if not future.done():
                    future.set_exception(self._lost())
            self._ended(self)

    def _left_out(self, text: str, number: Any, why: str, error: Exception) -> None:
        """A message cannot be taken: it would come again on each new connection, and is left out. Who waits for it as an answer is told."""
        asyncio.get_running_loop().call_exception_handler({"message": f"a message of {len(text)} characters {why}, and is left out", "exception": error})
        future, answered = self._waiting.pop(number, (None, None)) if isinstance(number, int) else (None, None)
        if future is None or future.done():
            return
        if answered:
            answered(None)
        future.set_exception(RpcError(-32603, f"the answer {why}", None))

    def _message(self, text: str) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            return
        except RecursionError as e:
            found = re.match(r'\{"jsonrpc":"2\.0","id":(\d+),"(?:result|error)"', text)
            return self._left_out(text, int(found[1]) if found else None, "is nested too deep to be read", e)
        if not isinstance(message, dict):
            return
        try:
            self._take(message)
        except Exception as e:
            self._left_out(text, None if "method" in message else message.get("id"), "is none that the gateway may send", e)

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.used = True
            self._receive(self, message)
            return
        self.used |= message.get("id") not in self._begun
        number = message.get("id", 0)
        future, answered = self._waiting.get(number, (None, None))
        if future is None or future.done():
            return
        error = message.get("error")
        failure = RpcError(int(error.get("code", 0)), str(error.get("message", "")), error.get("data")) if isinstance(error, dict) else None
        if answered:
            answered(message.get("result"))
        del self._waiting[number]  # not before: of what fails above whoever waits is told
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(message.get("result"))
