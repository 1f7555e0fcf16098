"""A real gateway, and a network that breaks."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds, for what a busy machine may be late with


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(test(*args, **kwargs), PATIENCE)

        asyncio.run(bounded())

    return run


def free_port() -> int:
    """A port on loopback that nobody listens on, for a server that is started again there.

    It is below those that systems give to who asks for any and to connections: nobody takes it while its server is away.
    """
    for _ in range(100):
        port = random.randrange(26_000, 32_000)
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError("no port is free from 26000 on")


class Gateway:
    """The gateway in a process of its own."""

    def __init__(self, args: list[str] | None = None, env: dict[str, str] | None = None) -> None:
        self.dir = tempfile.mkdtemp(prefix="sandbox-agent-py-")
        self.args = ["--no-token"] if args is None else args
        self.env = env or {}
        self.url = ""
        self._describe()
        self.start(free_port())

    def _describe(self) -> None:
        """The mock agent is there in both versions of ACP: `mock` and `mock2`."""
        line = ["mock-agent", "--acp", "2", "--state-dir", tempfile.mkdtemp(dir=self.dir)]
        os.mkdir(self.dir + "/data")
        with open(self.dir + "/data/agents.toml", "w", encoding="utf-8") as file:
            file.write(f"[agents.mock2]\ncommand = {json.dumps(os.environ['SANDBOX_AGENT_BIN'])}\nargs = {json.dumps(line)}\nacp = 2\n")

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def start(self, port: int) -> None:
        line = [os.environ["SANDBOX_AGENT_BIN"], "server", "--end-with-stdin", "--port", str(port), "--data-dir", self.dir + "/data", "--default-agent", "mock", *self.args]
        env = {**os.environ, "HOME": self.dir, **self.env}
        at = os.path.getsize(self.dir + "/log") if self.url else 0  # before it is started, which may have said where it listens at once
        # Its input ends with the tests, and the gateway with its input.
        self.process = subprocess.Popen(line, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=open(self.dir + "/log", "ab"))
        while True:
            with open(self.dir + "/log", encoding="utf-8") as log:
                log.seek(at)
                text = log.read()
            found = re.search(r"listening on (http\S+)\n", text)
            if found:
                self.url = found.group(1)
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"the gateway ended: {text}")
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                pass

    def restart(self) -> None:
        """Starts it again with the same data on the same port."""
        self.start(self.port)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.kill(signal.SIGTERM)
        shutil.rmtree(self.dir, ignore_errors=True)


class Proxy:
    """A TCP proxy whose connections can be cut, on both sides at once."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.cuts = 0
        self.refusing = False
        self.says: list[int] = []  # statuses of text that is not the gateway's, with which the next requests are answered, each on a connection of its own
        self.flows = asyncio.Event()  # what comes from the other end is handed on while it is set
        self.flows.set()
        self.takes = asyncio.Event()  # as flows, of what is sent to it
        self.takes.set()
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, near_in: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        if self.refusing:
            near.transport.abort()
            return
        if self.says:
            status = self.says.pop(0)
            await near_in.read(1 << 16)
            near.write(f"HTTP/1.1 {status} of a proxy\r\nContent-Type: text/plain\r\nContent-Length: 8\r\nConnection: close\r\n\r\nno route".encode())
            near.close()
            return
        try:
            far_in, far = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            near.transport.abort()
            return
        pair = (near, far)
        self._pairs.add(pair)
        for source, sink in ((near_in, far), (far_in, near)):
            task = asyncio.ensure_future(self._pipe(source, sink, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        try:
            while data := await source.read(1 << 16):
                await (self.flows if sink is pair[0] else self.takes).wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._pairs.discard(pair)
            for end in pair:
                end.close()

    def cut(self) -> None:
        """Cuts every connection, bytes in flight included."""
        if self._pairs:
            self.cuts += 1
        for pair in self._pairs:
            for end in pair:
                end.transport.abort()
        self._pairs.clear()


@pytest.fixture(scope="session", autouse=True)
def binary() -> Iterator[str]:
    """Builds the gateway once."""
    if os.environ.get("SANDBOX_AGENT_BIN"):
        yield os.environ["SANDBOX_AGENT_BIN"]
        return
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-py-") as folder:
        file = folder + "/sandbox-agent"
        subprocess.run(["go", "build", "-o", file, "./cmd/sandbox-agent"], cwd=ROOT, check=True)
        os.environ["SANDBOX_AGENT_BIN"] = file
        yield file
        del os.environ["SANDBOX_AGENT_BIN"]


@pytest.fixture(scope="session")
def gateway(binary: str) -> Iterator[Gateway]:
    """One that tests share."""
    g = Gateway()
    yield g
    g.stop()
