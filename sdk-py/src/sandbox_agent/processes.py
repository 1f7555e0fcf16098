"""Programs of the gateway's machine."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import httpx

from ._backoff import Backoff, Retry
from .api import Api, content_of, segment, strings
from .api_types import HostProcess, ProcessLimits, ProcessLimitsChange, ProcessResult
from .errors import ConnectionLostError, ProblemError, SandboxAgentError
from .terminal import Terminal


@dataclass(frozen=True)
class Output:
    """A piece of a program's output."""

    stream: str
    data: bytes
    position: int
    """Of the first byte among all that the program has written."""
    missed: int = 0
    """Bytes that are gone before this piece."""


class Processes:
    """Programs of the gateway's machine."""

    def __init__(self, api: Api, retry: Retry = Retry()) -> None:
        self._api = api
        self._retry = retry

    async def run(
        self, command: str, args: Sequence[str] = (), *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        stdin: str | None = None, timeout_ms: int | None = None, **more: Any,
    ) -> ProcessResult:
        """Runs a program to its end. A task that is cancelled ends it. `more` are further fields of the request."""
        wish = {"command": command, "args": strings("args", args), "cwd": cwd, "env": env and dict(env), "stdin": stdin, "timeoutMs": timeout_ms, **more}
        return cast(ProcessResult, await self._api._json("POST", "v2/processes/run", body=present(wish)))

    async def start(
        self, command: str, args: Sequence[str] = (), *, cwd: str | None = None, env: Mapping[str, str] | None = None, tty: bool = False, **more: Any,
    ) -> HostProcess:
        """Starts a program in the background, with `tty` on a terminal."""
        wish = {"command": command, "args": strings("args", args), "cwd": cwd, "env": env and dict(env), "tty": tty or None, **more}
        return cast(HostProcess, await self._api._json("POST", "v2/processes", body=present(wish)))

    async def list(self) -> list[HostProcess]:
        return cast("list[HostProcess]", (await self._api._json("GET", "v2/processes"))["processes"])

    async def get(self, process_id: str) -> HostProcess:
        return cast(HostProcess, await self._api._json("GET", path(process_id)))

    async def logs(self, process_id: str, *, stream: Literal["stdout", "stderr", "pty", "combined"] | None = None, after: int | None = None, tail: int | None = None) -> Sequence[Output]:
        """What a program has written, as far as it is kept."""
        log = await self._api._json("GET", path(process_id, "/logs"), {"stream": stream, "after": after, "tail": tail})
        return [output(chunk) for chunk in log["chunks"]]

    async def follow(self, process_id: str, *, stream: Literal["stdout", "stderr", "pty", "combined"] | None = None, after: int | None = None, tail: int | None = None) -> AsyncIterator[Output]:
        """A program's output as it comes, to its end. A connection that breaks is opened again behind the last byte."""
        backoff, last = Backoff(self._retry), ""
        missed = 0
        begun = False  # a stream was open, or was not reached
        while True:
            since = math.inf  # when it was opened
            try:
                async with self._api._events("GET", path(process_id, "/logs"), {"stream": stream, "after": after, "tail": tail}, headers={"Last-Event-ID": last} if last else {}) as events:
                    begun, since = True, time.monotonic()
                    async for event in events:
                        backoff.reset()
                        last = event.id or last
                        if event.event == "message":
                            yield output(json.loads(event.data), missed)
                            missed = 0
                        elif event.event == "missed":
                            missed += int(json.loads(event.data).get("bytes", 0))
                        elif event.event == "exit":
                            return
            except (ConnectionLostError, ProblemError) as e:
                # Behind a break a hub may not have the gateway yet, or a proxy.
                if isinstance(e, ProblemError) and (e.is_final or not begun):
                    raise
                begun = True
                silent = isinstance(e.__cause__, httpx.ReadTimeout)  # from the beginning it is a gateway that says nothing, and else a program
                if time.monotonic() - since > (1.5 * (self._api._stream_silence or 0) if silent else self._retry.longest):
                    backoff.reset()
                if not await backoff.next():
                    raise
                continue
            if time.monotonic() - since > self._retry.longest:
                backoff.reset()
            if not await backoff.next():
                raise SandboxAgentError("the output's stream ends again and again before the program does")

    async def write(self, process_id: str, data: str | bytes, *, close: bool = False) -> int:
        """Writes to a program's input; `close` ends it."""
        answer = await self._api._json("POST", path(process_id, "/stdin"), {"close": close or None}, content=content_of(data), headers={"Content-Type": "application/octet-stream"})
        return int(answer["written"])

    async def signal(self, process_id: str, signal: str) -> None:
        await self._api._do("POST", path(process_id, "/signal"), body={"signal": signal})

    async def stop(self, process_id: str, *, patience_ms: int | None = None) -> HostProcess:
        """Ends a program with all it started: it is asked to, and after a while made to."""
        return cast(HostProcess, await self._api._json("POST", path(process_id, "/stop"), {"patienceMs": patience_ms}))

    async def delete(self, process_id: str) -> None:
        """Ends a program at once if it runs, and forgets it and its output."""
        await self._api._do("DELETE", path(process_id))

    async def limits(self) -> ProcessLimits:
        return cast(ProcessLimits, await self._api._json("GET", "v2/processes/config"))

    async def set_limits(self, change: ProcessLimitsChange) -> ProcessLimits:
        return cast(ProcessLimits, await self._api._json("PUT", "v2/processes/config", body=change))

    async def terminal(self, process_id: str, *, after: int | None = None) -> Terminal:
        """Opens the terminal of a program that was started with `tty`; several may look at one."""
        return await Terminal._open(self._api, process_id, after)


def path(process_id: str, rest: str = "") -> str:
    return f"v2/processes/{segment(process_id)}{rest}"


def present(wish: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wish.items() if value is not None}


def output(chunk: dict[str, Any], missed: int = 0) -> Output:
    return Output(str(chunk.get("stream", "")), base64.b64decode(chunk["data"]), int(chunk.get("position", 0)), missed)
