from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from conftest import PATIENCE, asynchronous
from sandbox_agent import StartError, start
from sandbox_agent.local import find_binary


def gone(pid: int) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@asynchronous
async def test_a_gateway_is_started_with_a_token_which_is_in_no_argument_and_ended(tmp_path: pathlib.Path) -> None:
    async with await start(agent="mock", data_dir=str(tmp_path / "one")) as client:
        session = await client.new_session(cwd=str(tmp_path))
        assert (await session.prompt("echo hi")).text == "hi"
        if sys.platform == "linux":
            assert client.token not in pathlib.Path(f"/proc/{client.pid}/cmdline").read_text()
    assert gone(client.pid)


@asynchronous
async def test_what_cannot_be_started_says_why_with_the_log(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StartError, match="cannot be started"):
        await start(binary=str(tmp_path / "missing"))
    with pytest.raises(StartError, match="no-such-flag"):
        await start(data_dir=str(tmp_path / "two"), args=["--no-such-flag"])
    with pytest.raises(StartError, match="SANDBOX_AGENT_BIN"):
        find_binary({"PATH": str(tmp_path)})
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho said before >&2\nexec sleep 60\n")
    silent.chmod(0o755)
    with pytest.raises(StartError, match="not ready within 0.3 s\nsaid before"):
        await start(binary=str(silent), timeout=0.3)


def test_a_gateway_ends_with_the_process_that_started_it_also_when_that_is_killed(tmp_path: pathlib.Path) -> None:
    script = f"""
import asyncio
from sandbox_agent import start
async def main():
    client = await start(agent="mock", data_dir={str(tmp_path / "three")!r})
    await client.new_session(cwd="/tmp")
    print(client.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1] / "src")}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=env)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(pid)
