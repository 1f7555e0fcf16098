from __future__ import annotations

import asyncio
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

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
async def test_what_cannot_be_started_says_why_with_the_log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError, match="cannot be started"):
        await start(binary=str(tmp_path / "missing"))
    with pytest.raises(StartError, match="no-such-flag"):
        await start(data_dir=str(tmp_path / "two"), args=["--no-such-flag"])
    with pytest.raises(StartError, match="SANDBOX_AGENT_BIN"):
        find_binary({"PATH": str(tmp_path)})
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho said before >&2\nexec sleep 60\n")
    silent.chmod(0o755)
    said, wait_for = asyncio.Event(), asyncio.wait_for

    async def once_said(awaited: Any, timeout: float) -> Any:
        if timeout == 0.3:
            await said.wait()  # a busy machine may take longer to start the program
        return await wait_for(awaited, timeout)

    monkeypatch.setattr(asyncio, "wait_for", once_said)
    with pytest.raises(StartError, match="not ready within 0.3 s\nsaid before"):
        await start(binary=str(silent), timeout=0.3, on_log=lambda _: said.set())


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


def test_ctrl_c_at_a_terminal_leaves_the_gateway_to_its_program(tmp_path: pathlib.Path) -> None:
    script = f"""
from sandbox_agent.sync import start
with start(agent="mock", data_dir={str(tmp_path / "terminal")!r}) as client:
    turn = client.new_session(cwd="/tmp").prompt("slow")
    for _ in turn:
        break
    try:
        print(client.pid, flush=True)
        turn.result()
    except KeyboardInterrupt:
        turn.cancel()
        print(turn.result().stop_reason, flush=True)
"""
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1] / "src")}
    program = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    assert os.getpgid(pid) != program.pid
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does
    said, _ = program.communicate("\n", timeout=PATIENCE)
    assert said == "cancelled\n" and program.returncode == 0
    assert gone(pid)


@asynchronous
async def test_starts_at_the_same_time_have_one_gateway_however_long_it_takes(tmp_path: pathlib.Path) -> None:
    shared = tmp_path / "at once"
    # The gateway has the directory, and is heard of seconds later, as on a busy machine.
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/bash\nexec {shlex.quote(find_binary())} "$@" 2> >(sleep 4; exec cat >&2)\n')
    slow.chmod(0o755)
    beginning = asyncio.ensure_future(start(agent="mock", binary=str(slow), data_dir=str(shared)))
    while not (shared / "lock").exists():
        await asyncio.sleep(0.02)
    async with await start(agent="mock", data_dir=str(shared)) as second, await beginning as first:
        assert (second.url, second.token, second.pid) == (first.url, first.token, first.pid)
        assert not list(shared.glob("starting.*"))


@asynchronous
async def test_a_second_start_on_one_data_directory_attaches_to_the_first(tmp_path: pathlib.Path) -> None:
    shared = tmp_path / "shared"
    async with await start(agent="mock", data_dir=str(shared)) as first:
        assert (shared / "started.json").stat().st_mode & 0o777 == 0o600
        async with await start(agent="mock", data_dir=str(shared)) as second:
            assert (second.url, second.token, second.pid) == (first.url, first.token, first.pid)
            session = await second.new_session(cwd=str(tmp_path))
            assert (await session.prompt("echo together")).text == "together"
        assert [s["sessionId"] for s in (await first.api.sessions())["sessions"]] == [session.id]  # it is the first one's, and still there
        said = json.loads((shared / "started.json").read_text())
        (shared / "started.json").write_text(json.dumps({**said, "more": "of a later version"}))
        for args in (["--data-dir", str(shared)], [f"--data-dir={shared}"]):
            async with await start(args=args) as third:
                assert third.pid == first.pid
        with pytest.raises(StartError, match="with other args"):
            await start(data_dir=str(shared), args=["--log-level", "debug"])
        os.kill(first.pid, signal.SIGKILL)
        assert await asyncio.to_thread(gone, first.pid)  # the loop reaps it
        # What it has left behind leads nowhere.
        async with await start(agent="mock", data_dir=str(shared)) as own:
            assert own.pid != first.pid
    # Whoever was started by something else is not attached to.
    foreign = subprocess.Popen([find_binary(), "server", "--no-token", "--port", "0", "--data-dir", str(tmp_path / "foreign")], stderr=subprocess.PIPE)
    try:
        assert foreign.stderr is not None and foreign.stderr.readline()
        with pytest.raises(StartError, match=f"(?s)not started uses the data directory .*SandboxAgent.url.*in use by another process .process {foreign.pid}"):
            await start(data_dir=str(tmp_path / "foreign"))
    finally:
        foreign.kill()
        foreign.wait()


@asynchronous
async def test_a_gateway_whose_client_has_options_that_are_none_is_ended_again(tmp_path: pathlib.Path) -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="acp_version is 1 or 2, not 3"):
        await start(data_dir=str(tmp_path / "data"), acp_version=3, on_log=log.append)
    assert "listening on" in "".join(log)
    assert not (tmp_path / "data" / "started.json").exists()
    async with await start(data_dir=str(tmp_path / "data"), args=["--default-agent", "mock"]):
        pass  # the directory is free for other ones


@asynchronous
async def test_a_log_listener_that_fails_does_not_hold_the_gateway_up(tmp_path: pathlib.Path) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))

    def fails(_: str) -> None:
        raise ZeroDivisionError

    async with await start(agent="mock", data_dir=str(tmp_path / "data"), on_log=fails) as client:
        assert (await (await client.new_session(cwd=str(tmp_path))).prompt("echo fine")).text == "fine"
    assert set(told) == {"on_log of sandbox_agent failed"}


@asynchronous
async def test_a_gateway_is_told_once_to_end_however_often_its_client_is_closed(tmp_path: pathlib.Path) -> None:
    ending = asyncio.Event()
    client = await start(agent="mock", data_dir=str(tmp_path / "data"), on_log=lambda line: ending.set() if "shutting down" in line else None)
    session = await client.new_session(cwd=str(tmp_path))
    async for _ in session.prompt("slow"):
        break
    closing = asyncio.ensure_future(client.aclose())
    await ending.wait()
    await asyncio.gather(closing, client.aclose())
    assert client._own is not None and client._own.process.returncode == 0  # a second signal would have ended it at once
