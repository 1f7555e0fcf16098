"""Starts a gateway on this machine."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .client import SandboxAgent
from .errors import StartError

MAX_LOG = 1000  # lines of the log that are kept for an error
PATIENCE = 20.0  # seconds for a gateway to end in order


def find_binary(env: Mapping[str, str] | None = None) -> str:
    """The gateway's program: `SANDBOX_AGENT_BIN`, else that in PATH."""
    env = os.environ if env is None else env
    program = env.get("SANDBOX_AGENT_BIN") or shutil.which("sandbox-agent", path=env.get("PATH"))
    if not program:
        raise StartError("no program sandbox-agent: set SANDBOX_AGENT_BIN, or put it into PATH")
    return program


class LocalSandboxAgent(SandboxAgent):
    """A client with a gateway of its own, which ends with the client, and at the latest with this process."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, token: str, drain: asyncio.Task[None], **options: Any) -> None:
        super().__init__(url, token=token, **options)
        self.url: str = url
        self.token: str = token
        self.pid: int = process.pid
        self._process, self._drain = process, drain

    async def aclose(self) -> None:
        """Ends the connection, the gateway and its agents."""
        await super().aclose()
        await end(self._process)
        await self._drain


async def start(
    *, agent: str | None = None, binary: str | None = None, data_dir: str | None = None, host: str = "127.0.0.1", port: int = 0,
    args: Sequence[str] = (), env: Mapping[str, str] | None = None, timeout: float = 15.0, on_log: Callable[[str], None] | None = None, **options: Any,
) -> LocalSandboxAgent:
    """Starts a gateway and waits until it answers.

    The program is `binary`, `SANDBOX_AGENT_BIN`, or in PATH. `args` are further arguments of
    `sandbox-agent server`, `env` its environment instead of this process's own, `options` those of the client.
    """
    environment = dict(os.environ if env is None else env)
    program = binary or find_binary(environment)
    token = secrets.token_urlsafe(24)
    environment["SANDBOX_AGENT_TOKEN"] = token  # arguments can be read by everybody
    line = ["server", "--end-with-stdin", "--host", host, "--port", str(port), *(["--data-dir", data_dir] if data_dir else []), *args]
    try:
        # Its input ends with this process, and the gateway with its input.
        process = await asyncio.create_subprocess_exec(program, *line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as e:
        raise StartError(f"{program} cannot be started: {e}") from e
    log: deque[str] = deque(maxlen=MAX_LOG)
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def drain() -> None:
        assert process.stderr is not None
        rest = b""
        while chunk := await process.stderr.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for raw in lines:
                text = raw.decode("utf-8", "replace")
                log.append(text)
                if on_log:
                    on_log(text)
                found = re.search(r"listening on (https?://\S+)", text)
                if found and not listening.done():
                    listening.set_result(found.group(1))
        if rest:
            log.append(rest.decode("utf-8", "replace"))
        if not listening.done():
            listening.set_exception(StartError(f"{program} ended before it was ready", "\n".join(log)))

    draining = asyncio.ensure_future(drain())
    try:
        url = await asyncio.wait_for(asyncio.shield(listening), timeout)
    except asyncio.TimeoutError:
        await end(process)
        await draining
        if listening.done():
            listening.exception()
        raise StartError(f"{program} was not ready within {timeout:g} s", "\n".join(log)) from None
    except BaseException:
        await end(process)
        await draining
        raise
    return LocalSandboxAgent(process, url, token, draining, agent=agent, **options)


async def end(process: asyncio.subprocess.Process) -> None:
    """Ends the process: it is asked to, and after a while made to."""
    if process.returncode is None:
        try:
            process.send_signal(signal.SIGTERM)
        except ProcessLookupError:
            pass
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
