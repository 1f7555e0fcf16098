"""The terminal of a program."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import ConnectionClosed

from ._wire import OPEN_TIMEOUT, hang_up, open_socket
from .api import Api, segment
from .errors import ConnectionLostError, ProblemError, SandboxAgentError

MAX_KEPT = 16 << 20  # bytes of output kept for a reader that is slow; then the terminal is left


@dataclass(frozen=True)
class TerminalExit:
    """How the program of a terminal ended."""

    exit_code: int | None
    signal: str | None


class Terminal:
    """One viewer of a terminal. Iterate it for the output, from the beginning of the
    scrollback; the loop ends with the program or with `close()`.
    """

    def __init__(self, socket: Any, ready: dict[str, Any]) -> None:
        self._socket = socket
        self.position: int = int(ready.get("position", 0))
        """The position behind the last byte that was handed out: `after` of the next viewer."""
        self.shown: int = int(ready.get("shown", self.position))
        """The position behind the last byte that some viewer had been shown when the terminal
        was opened. A screen that shows it again does not answer it."""
        self.cols: int = int(ready.get("cols", 0))
        self.rows: int = int(ready.get("rows", 0))
        self._chunks: deque[bytes | int] = deque()  # a number of bytes that are missing here
        self._kept = 0
        self._first = True
        self._wake = asyncio.Event()
        self._exit: asyncio.Future[TerminalExit] = asyncio.get_running_loop().create_future()
        self._left = False
        self._reader = asyncio.ensure_future(self._read())

    @classmethod
    async def _open(cls, api: Api, process_id: str, after: int | None) -> Terminal:
        url = api.base_url.replace("http", "ws", 1) + f"/v2/processes/{segment(process_id)}/terminal" + ("" if after is None else f"?after={after}")
        process = await api._json("GET", f"v2/processes/{segment(process_id)}")  # a refusal is told with its reason
        if not process["tty"]:
            raise SandboxAgentError(f"the process {process_id} has no terminal: start it with tty, or follow its output")
        socket = await open_socket(url, api.headers, silence=api._silence)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                while True:
                    frame = await socket.recv()
                    if isinstance(frame, str):
                        message = json.loads(frame)
                        if message.get("type") == "error":
                            raise ProblemError(int(message["problem"].get("status", 500)), message["problem"])
                        if message.get("type") == "ready":
                            return cls(socket, message)
        except BaseException as e:
            await hang_up(socket)
            if isinstance(e, (ConnectionClosed, TimeoutError, ValueError)):
                raise ConnectionLostError(f"the terminal cannot be opened: {str(e) or 'nothing was heard'}") from e
            raise

    async def write(self, data: str | bytes) -> None:
        """Types into the terminal."""
        await self._send(data.encode() if isinstance(data, str) else data)

    async def resize(self, cols: int, rows: int) -> None:
        """Sets the size, for all viewers."""
        await self._send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))
        self.cols, self.rows = cols, rows

    async def signal(self, signal: str) -> None:
        """Sends a signal, such as SIGINT, to the program in front."""
        await self._send(json.dumps({"type": "signal", "signal": signal}))

    async def exited(self) -> TerminalExit:
        """Waits for the end of the program; fails when the connection ended first."""
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        """Leaves the terminal; its program goes on."""
        self._left = True
        await hang_up(self._socket)
        await asyncio.wait([self._reader])

    async def __aenter__(self) -> Terminal:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                if isinstance(chunk, int):
                    self.position += chunk
                    continue
                self._kept -= len(chunk)
                self.position += len(chunk)
                yield chunk
            if self._exit.done():
                if not self._left:
                    self._exit.result()
                return
            self._wake.clear()
            await self._wake.wait()

    async def _send(self, frame: str | bytes) -> None:
        try:
            await self._socket.send(frame)
        except ConnectionClosed as e:
            raise ConnectionLostError(f"the terminal's connection has ended: {e}") from e

    async def _read(self) -> None:
        error = "it was closed"
        try:
            async for frame in self._socket:
                self._frame(frame)
                if self._kept > MAX_KEPT:
                    error = f"more than {MAX_KEPT} bytes of output waited to be read: open it again after its position"
                    await hang_up(self._socket)
        except Exception as e:  # also of a frame that is none
            error = str(e)
        finally:
            if not self._exit.done():
                self._exit.set_exception(ConnectionLostError(f"the terminal's connection has ended: {error}"))
                self._exit.exception()  # who iterates is told by the iterator
            self._wake.set()

    def _frame(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            self._first = False
            self._chunks.append(frame)
            self._kept += len(frame)
            self._wake.set()
            return
        message = json.loads(frame)
        if message["type"] == "missed" and not self._first:  # before the first byte, the position knows of it
            self._chunks.append(int(message.get("bytes", 0)))
        elif message["type"] == "exit" and not self._exit.done():
            self._exit.set_result(TerminalExit(message.get("exitCode"), message.get("signal") or None))
            self._wake.set()
