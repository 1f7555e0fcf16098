"""A stand-in for E2B's SDK, as far as examples/python uses it: commands of the sandbox run on this computer.

The gateway does TLS itself, in place of E2B's front door.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
from typing import Any


def note(**what: Any) -> None:
    with open(os.environ["STANDIN_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(what) + "\n")


class Commands:
    def __init__(self) -> None:
        self.running: list[asyncio.subprocess.Process] = []

    async def run(self, command: str, *, background: bool, timeout: int, envs: dict[str, str]) -> None:
        assert background and timeout == 0
        note(run=command)
        tls = {"SANDBOX_AGENT_TLS_CERT": os.environ["STANDIN_CERT"], "SANDBOX_AGENT_TLS_KEY": os.environ["STANDIN_KEY"]}
        self.running.append(await asyncio.create_subprocess_exec("bash", "-c", command, env={**os.environ, **tls, **envs}))


class AsyncSandbox:
    sandbox_id = "standin"

    def __init__(self) -> None:
        self.commands = Commands()

    @classmethod
    async def create(cls, template: str, *, timeout: int, lifecycle: dict[str, str] | None = None) -> AsyncSandbox:
        note(template=template, timeout=timeout, lifecycle=lifecycle)
        if "STANDIN_MAKES" in os.environ:  # it takes until this pipe is closed
            await asyncio.to_thread(pathlib.Path(os.environ["STANDIN_MAKES"]).read_bytes)
        return cls()

    def get_host(self, port: int) -> str:
        return f"localhost:{port}"

    async def kill(self) -> None:
        if "STANDIN_KEEPS" in os.environ:
            raise RuntimeError("the stand-in was told to keep it")
        note(killed=True)
        for process in self.commands.running:
            process.terminate()
            await process.wait()
