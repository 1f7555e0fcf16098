from __future__ import annotations

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conftest import PATIENCE, Gateway
from sandbox_agent import NotConnectedError, ProblemError, RpcError, sync


def test_the_same_without_async(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    with sync.SandboxAgent(gateway.url, agent="mock") as client:
        session = client.new_session(cwd=str(tmp_path))
        turn = session.prompt("stream 300 20")
        assert sum(update["sessionUpdate"] == "agent_message_chunk" for update in turn) == 300
        assert turn.result().stop_reason == "end_turn"
        assert session.prompt("echo hi").result().text == "hi"
        # Handlers may use the client.
        client.on_permission(lambda ask: ask.options[0]["optionId"] if client.api.session(ask.session_id)["pending"] else None)
        assert "allow" in session.prompt("permission").result().text
        client.on_permission(None)
        turn = session.prompt("permission")
        for ask in client.requests():
            ask.reject()
            break
        assert "reject" in turn.result().text
        client.fs.write(f"{tmp_path}/file", "bytes")
        client.fs.write(f"{tmp_path}/pieces", iter([b"by", b"tes"]))
        assert client.fs.read_text(f"{tmp_path}/file") == client.fs.read_text(f"{tmp_path}/pieces") == "bytes"
        assert [entry["name"] for entry in client.fs.entries(str(tmp_path))] == ["file", "pieces"]
        assert client.processes.run("echo", ["hi"])["stdout"]["data"] == "hi\n"
        process = client.processes.start("sh", ["-c", "read x; echo got $x"], tty=True)
        with client.processes.terminal(process["id"]) as terminal:
            terminal.write("it\n")
            assert b"got it" in b"".join(terminal)
        with pytest.raises(ProblemError):
            client.fs.stat(f"{tmp_path}/missing")
        with pytest.raises(RpcError):
            client.resume_session("no-such-session")


def test_a_loop_that_is_left_ends_and_a_listener_may_not_wait(gateway: Gateway) -> None:
    with sync.SandboxAgent(gateway.url, agent="mock") as client:
        session = client.new_session(cwd="/tmp")
        turn = session.prompt("slow")
        for _ in turn:
            break
        session.cancel()
        assert turn.result().stop_reason == "cancelled"
        told: list[str] = []

        def listener(session_id: str, update: object) -> None:
            try:
                client.api.health()
            except RuntimeError as e:
                told.append(str(e))

        client.on_update(listener)
        session.prompt("echo hi").result()
        assert told and "must not wait" in told[0]
    assert not any(thread.name == "sandbox-agent" for thread in threading.enumerate())


def test_a_gateway_of_ones_own(tmp_path: pathlib.Path) -> None:
    with sync.start(agent="mock", data_dir=str(tmp_path)) as client:
        session = client.new_session(cwd=str(tmp_path))
        assert session.prompt("echo hi").result().text == "hi"
        pid = client.pid
    assert subprocess.run(["kill", "-0", str(pid)], stderr=subprocess.DEVNULL).returncode != 0


def test_a_client_that_was_closed_says_so_and_leaves_no_thread(gateway: Gateway) -> None:
    before = threading.active_count()
    with pytest.raises(ValueError):
        sync.SandboxAgent("localhost:2468")
    client = sync.SandboxAgent(gateway.url, agent="mock")
    client.close()
    client.close()
    for use in (client.connect, client.api.health, client.pending):
        with pytest.raises(NotConnectedError, match="the client was closed"):
            use()
    assert threading.active_count() == before


def test_threads_that_wait_end_with_the_client_and_two_may_close_it(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    client = sync.SandboxAgent(gateway.url, agent="mock")
    process = client.processes.start("sleep", ["600"])
    failed: list[str] = []
    began = threading.Semaphore(0)
    run = client._loop.run

    def told(make: Callable[[], Awaitable[Any]]) -> Any:
        async def begins() -> Any:
            began.release()
            return await make()

        return run(begins)

    monkeypatch.setattr(client._loop, "run", told)

    def wait(work: Callable[[], object]) -> None:
        try:
            work()
        except NotConnectedError:
            pass
        except Exception as e:
            failed.append(repr(e))

    ways: list[Callable[[], object]] = [lambda: list(client.requests()), lambda: list(client.processes.follow(process["id"])), client.close, client.close]
    threads = [threading.Thread(target=wait, args=[way], daemon=True) for way in ways]
    for thread in threads[:2]:
        thread.start()
    for _ in range(4):  # each makes its iterator, and then waits for what comes first
        assert began.acquire(timeout=PATIENCE)
    for thread in threads[2:]:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert failed == []
    with sync.SandboxAgent(gateway.url) as other:
        other.processes.delete(process["id"])


def test_what_is_under_way_when_another_thread_closes_the_client_was_not_lost(gateway: Gateway) -> None:
    client = sync.SandboxAgent(gateway.url, agent="mock")
    session = client.new_session(cwd="/tmp")
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(client.request, "session/prompt", {"sessionId": session.id, "prompt": [{"type": "text", "text": "permission"}]})
        next(iter(client.requests()))
        client.close()
        with pytest.raises(NotConnectedError, match="the client was"):
            asking.result(PATIENCE)


CLOSES = """
import asyncio, os, signal
from sandbox_agent._blocking import Loop

async def main():
    global again, times
    times += 1
    if times == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        again.set()
    await again.wait()

async def event():
    return asyncio.Event()

loop, times = Loop(), 0
again = loop.run(event)
signal.signal(signal.SIGTERM, lambda *_: loop.close(main))
loop.close(main)
assert times == 2
assert not loop._thread.is_alive()
"""


def test_a_signal_may_close_what_is_being_closed() -> None:
    subprocess.run([sys.executable, "-c", CLOSES], check=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize("content", [None, 5])
def test_content_that_is_none_leaves_the_old_file(gateway: Gateway, tmp_path: pathlib.Path, content: Any) -> None:
    with sync.SandboxAgent(gateway.url) as client:
        client.fs.write(f"{tmp_path}/file", bytearray(b"old"))
        with pytest.raises(TypeError, match="the content is of type"):
            client.fs.write(f"{tmp_path}/file", content)
        assert client.fs.read_text(f"{tmp_path}/file") == "old"


def test_a_client_that_is_closed_ends_what_is_iterated_still(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    with sync.SandboxAgent(gateway.url, agent="mock") as client:
        process = client.processes.start("sh", ["-c", "echo begun; cat"])
        output = iter(client.processes.follow(process["id"]))
        updates = iter(client.new_session(cwd="/tmp").prompt("slow"))
        next(output)
        next(updates)
    del output, updates
    gc.collect()
    assert not failures, [failure.exc_value for failure in failures]


def test_ctrl_c_in_a_loop_over_a_stream_is_ctrl_c(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    script = f"""
import sys
from sandbox_agent import sync
said = lambda: print("ready", flush=True)
client = sync.SandboxAgent({gateway.url!r})
def wait(stream):
    try:
        for _ in stream:
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
wait(client.fs.watch({str(tmp_path)!r}, on_ready=said))
process = client.processes.start("sh", ["-c", "sleep 0.1; echo ready; exec sleep 1000"])
wait(said() if b"ready" in output.data else None for output in client.processes.follow(process["id"]))
client.processes.delete(process["id"])
client.close()
"""
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1] / "src")}
    program = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert program.stdout is not None
    for _ in range(2):
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        assert program.stdout.readline() == "interrupted\n"
    assert program.communicate(timeout=PATIENCE) == ("", "") and program.returncode == 0
