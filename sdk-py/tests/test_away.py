"""What a client does while its gateway is away, when it has given it up, and with what is taken back meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conftest import PATIENCE, Gateway, Proxy, asynchronous
from sandbox_agent import Ask, ConnectionLostError, NotConnectedError, ProblemError, Retry, SandboxAgent
from sandbox_agent._wire import Wire
from test_foreign import answer, serves

HASTE = Retry(first=0.001, longest=0.02)
SPOKEN = pytest.mark.parametrize("version, agent", [(1, "mock"), (2, "mock"), (2, "mock2")])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that clients send."""
    methods: list[str] = []
    send = Wire.send

    async def watched(wire: Wire, message: dict[str, Any]) -> None:
        methods.append(message.get("method", ""))
        await send(wire, message)

    monkeypatch.setattr(Wire, "send", watched)
    return methods


async def until(client: SandboxAgent, wanted: str) -> None:
    """Waits for a state of a client."""
    reached = asyncio.Event()
    client.on_state(lambda state: reached.set() if state == wanted else None)
    if client.state != wanted:
        await reached.wait()


@asynccontextmanager
async def troubled() -> AsyncIterator[list[dict[str, Any]]]:
    """What nobody but the loop is told of."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    yield told


@SPOKEN
@asynchronous
async def test_a_cancel_of_a_turn_that_is_over_ends_no_other_one(gateway: Gateway, sent: list[str], version: Any, agent: str) -> None:
    async with SandboxAgent(gateway.url, agent=agent, acp_version=version) as client:
        session = await client.new_session(cwd="/tmp")
        over = session.prompt("echo one")
        await over
        following = session.prompt("stream 50 100")
        await over.cancel()
        assert (await following).stop_reason == "end_turn"
        assert "session/cancel" not in sent
        await client.disconnect()
        await over.cancel()
        assert client.state == "idle"


@pytest.mark.parametrize("how", ["turn.cancel", "session.cancel"])
@SPOKEN
@asynchronous
async def test_a_prompt_that_is_taken_back_before_it_was_sent_is_over_at_once_and_never_sent(gateway: Gateway, sent: list[str], version: Any, agent: str, how: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=HASTE) as client:
        session = await client.new_session(cwd="/tmp")
        proxy.refusing = True
        proxy.cut()
        await until(client, "reconnecting")
        turn, behind = session.prompt("run"), session.prompt("run")
        for _ in range(20):
            await asyncio.sleep(0)  # what needs no network is through
        cancelled = asyncio.ensure_future(turn.cancel() if how == "turn.cancel" else session.cancel())
        for one in (await turn, await behind):
            assert (one.stop_reason, one.text, one.response) == ("cancelled", "", {"stopReason": "cancelled"} if version == 1 else {})
        proxy.refusing = False
        await cancelled
        assert (await session.prompt("echo on")).text == "on"
        assert (sent.count("session/prompt"), sent.count("session/cancel")) == (1, 1 if how == "session.cancel" else 0)


@SPOKEN
@asynchronous
async def test_what_is_before_a_prompt_that_is_taken_back_goes_on(gateway: Gateway, sent: list[str], version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=HASTE) as client:
        session = await client.new_session(cwd="/tmp")
        running = session.prompt("stream 50 20")
        async for _ in running:
            break
        proxy.refusing = True
        proxy.cut()
        await until(client, "reconnecting")
        before, turn, behind = (session.prompt(f"echo {words}") for words in ("before", "turn", "behind"))
        await turn.cancel()
        assert [(await one).stop_reason for one in (turn, behind)] == ["cancelled"] * 2
        proxy.refusing = False
        assert (await running).stop_reason == "end_turn"
        assert ((await before).stop_reason, (await before).text) == ("end_turn", "before")
        running = session.prompt("stream 20 20")
        async for _ in running:
            break
        await session.prompt("echo never").cancel()
        assert (await running).stop_reason == "end_turn"
        assert "session/cancel" not in sent


@SPOKEN
@asynchronous
async def test_behind_a_connection_that_was_given_up_the_next_one_goes_on_with_the_sessions_and_nothing_is_missing(gateway: Gateway, version: Any, agent: str) -> None:
    impatient = Retry(first=0.001, longest=0.02, give_up=0.1)
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=impatient) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session, deleted = await client.new_session(cwd="/tmp"), await client.new_session(cwd="/tmp")
        said: list[str] = []
        session.on_update(lambda update: said.append(update["content"]["text"]) if update["sessionUpdate"] == "agent_message_chunk" else None)
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        client.on_notice(lambda method, params: ended.set_result((params["sessionId"], params["data"]["reason"])) if method.endswith("/ended") else None)
        assert (await session.prompt("echo one")).text == "one"
        proxy.refusing = True
        proxy.cut()
        await until(client, "idle")
        with pytest.raises(NotConnectedError, match="connect()"):
            await session.prompt("echo never")
        theirs = await other.resume_session(session.id)
        for words in ("two", "three"):
            await theirs.prompt(f"echo {words}")
        await other.delete_session(deleted.id)
        with pytest.raises(ConnectionLostError):
            await client.connect()
        proxy.refusing = False
        await client.connect()
        assert (await session.prompt("echo four")).text == "four"
        assert said == ["one", "two", "three", "four"]
        assert await ended == (deleted.id, "deleted")


@SPOKEN
@asynchronous
async def test_what_was_answered_before_the_connection_was_given_up_is_not_asked_again(gateway: Gateway, version: Any, agent: str) -> None:
    impatient = Retry(first=0.001, longest=0.02, give_up=0.1)
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=impatient) as client:
        session = await client.new_session(cwd="/tmp")
        goes_on = asyncio.Event()
        session.on_update(lambda update: goes_on.set() if update["sessionUpdate"] == "agent_message_chunk" else None)
        asked: list[Ask] = []

        def ask(one: Ask) -> str:
            asked.append(one)
            proxy.refusing = True
            proxy.cut()
            return one.options[0]["optionId"]

        client.on_permission(ask)
        with pytest.raises(ConnectionLostError):
            await session.prompt("permission")
        await until(client, "idle")
        proxy.refusing = False
        await client.connect()
        await goes_on.wait()
        assert len(asked) == 1


@asynchronous
async def test_behind_disconnect_the_next_use_opens_a_connection_also_where_one_was_given_up(gateway: Gateway) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent="mock", retry=Retry(first=0.001, longest=0.02, give_up=0.1)) as client:
        await client.connect()
        proxy.refusing = True
        proxy.cut()
        await until(client, "idle")
        proxy.refusing = False
        with pytest.raises(NotConnectedError, match="connect()"):
            await client.new_session(cwd="/tmp")
        await client.disconnect()
        assert (await (await client.new_session(cwd="/tmp")).prompt("echo on")).text == "on"


@pytest.mark.parametrize("status", [400, 404, 405, 429, 500])
@asynchronous
async def test_what_a_proxy_says_while_the_gateway_is_away_ends_no_client(gateway: Gateway, status: int) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent="mock", retry=HASTE) as client:
        session = await client.new_session(cwd="/tmp")
        states: list[str] = []
        client.on_state(states.append)
        proxy.says = [status] * 3
        proxy.cut()
        assert (await session.prompt("echo on")).text == "on"
        assert (proxy.says, states) == ([], ["reconnecting", "open"])


@asynchronous
async def test_a_token_that_is_refused_ends_the_client_whose_next_connection_goes_on(gateway: Gateway) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent="mock", retry=HASTE) as client:
        session = await client.new_session(cwd="/tmp")
        proxy.says = [401] * 20
        proxy.cut()
        await until(client, "idle")
        proxy.says = []
        await client.connect()
        assert (await session.prompt("echo on")).text == "on"


@pytest.mark.parametrize("status, kind, final", [
    (404, "about:blank", False), (403, "about:blank", True), (401, "urn:sandbox-agent:error:token_invalid", True), (404, "urn:sandbox-agent:error:node_not_found", True),
    (429, "urn:sandbox-agent:error:too_many_requests", False), (503, "urn:sandbox-agent:error:unavailable", False), (500, "about:blank", False),
])
def test_what_is_refused_for_good(status: int, kind: str, final: bool) -> None:
    assert ProblemError(status, {"type": kind}).is_final == final


@asynchronous
async def test_a_gateway_that_is_silent_is_noticed_as_soon_as_was_asked_for_or_never() -> None:
    own = Gateway()
    try:
        async with SandboxAgent(own.url, agent="mock", silence=1.5) as client, SandboxAgent(own.url, agent="mock", silence=0) as patient:
            shell = await client.processes.start("cat", tty=True)
            terminal = await client.processes.terminal(shell["id"])
            for one in (client, patient):
                await one.connect()
            own.process.send_signal(signal.SIGSTOP)
            await asyncio.wait_for(until(client, "reconnecting"), 15)  # not the 45 seconds of who says nothing
            with pytest.raises(ConnectionLostError):
                await asyncio.wait_for(terminal.exited(), 15)
            assert patient.state == "open"
            assert patient._live is not None and patient._live._socket.ping_timeout is None
            own.process.send_signal(signal.SIGCONT)
            await client.new_session(cwd="/tmp")
    finally:
        own.kill()
        own.stop()


@pytest.mark.parametrize("silence", [math.inf, 1e12, 1e6, -1])
@asynchronous
async def test_a_silence_that_is_very_long_breaks_nothing(gateway: Gateway, silence: float) -> None:
    async with SandboxAgent(gateway.url, agent="mock", silence=silence) as client:
        assert (await client.api.health())["status"] == "ok"
        assert (await (await client.new_session(cwd="/tmp")).prompt("echo on")).text == "on"


@asynchronous
async def test_a_stream_of_events_is_not_silent_before_a_comment_is_due() -> None:
    async with SandboxAgent("http://127.0.0.1:1", silence=5) as client:
        assert (client.api._silence, client.api._stream_silence) == (5, 20)
    async with SandboxAgent("http://127.0.0.1:1", silence=0) as client:
        assert (client.api._silence, client.api._stream_silence) == (None, None)
    async with SandboxAgent("http://127.0.0.1:1") as client:
        assert (client.api._silence, client.api._stream_silence) == (45, 45)


@asynchronous
async def test_a_watch_that_cannot_go_on_says_why() -> None:
    problem = {"type": "urn:sandbox-agent:error:too_many_requests", "title": "Too many requests", "status": 429, "detail": "the system permits no further watched folders"}

    async def say(_: bytes) -> bytes:
        return answer("200 OK", "text/event-stream", f'event: ready\ndata: {{}}\n\nevent: change\ndata: {{"type":"created","path":"a"}}\n\nevent: error\ndata: {json.dumps(problem)}\n\n')

    async with serves(say) as url, SandboxAgent(url) as client:
        told: list[Any] = []
        with pytest.raises(ProblemError, match="no further watched folders"):
            async for change in client.fs.watch("/", on_ready=lambda: told.append("ready")):
                told.append(change)
        assert told == ["ready", {"type": "created", "path": "a"}]


@asynchronous
async def test_a_request_is_given_up_whose_server_takes_no_connections_any_more() -> None:
    async with SandboxAgent("http://127.0.0.1:1", silence=0.3) as client:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.close()  # what was begun stays open
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client.api.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectionLostError, match="nothing was heard"):
            await client.processes.run("long")


@asynchronous
async def test_the_system_asks_whether_the_other_end_of_a_connection_is_there(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, silence=30) as client:
        await client.api.health()
        port = gateway.port
        kept = []
        for one in gc.get_objects():
            if isinstance(one, socket.socket) and one.fileno() >= 0 and one.family == socket.AF_INET:
                try:
                    if one.getpeername()[1] == port and one.getsockname()[1] != port:
                        kept.append(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
                except OSError:
                    pass  # it is not connected
        assert 1 in kept


@pytest.mark.parametrize("what", ["handler", "listener"])
@asynchronous
async def test_who_waits_for_something_that_is_cancelled_fails_as_any_other_and_is_told_of(gateway: Gateway, what: str) -> None:
    async with troubled() as told, SandboxAgent(gateway.url, agent="mock") as client:
        given_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def ask(_: Ask) -> str:
            asyncio.get_running_loop().call_soon(given_up.cancel)
            return await given_up

        client.on_permission(ask)
        if what == "listener":
            given_up.cancel()
            client.on_permission(lambda _: "allow_once")
            client.on_update(lambda *_: given_up.result())
        session = await client.new_session(cwd="/tmp")
        states: list[str] = []
        client.on_state(states.append)
        assert (await session.prompt("permission")).stop_reason == "end_turn"
        assert (bool(told), states) == (True, [])


HANDLERS = """
    import sys, threading
    from sandbox_agent.sync import SandboxAgent

    url, port, file = sys.argv[1:]
    asked = threading.Semaphore(0)

    def wait(_):
        asked.release()
        threading.Event().wait()

    with SandboxAgent(url, agent="mock") as client:
        client.on_permission(wait)
        sessions = [client.new_session(cwd="/tmp") for _ in range(40)]
        turns = [session.prompt("permission") for session in sessions]
        for _ in turns:
            asked.acquire()
        with SandboxAgent(f"http://localhost:{port}", agent="mock") as other:
            assert other.new_session(cwd="/tmp").id
        client.fs.write(file, iter([b"in ", b"pieces"]))
        assert client.fs.read_text(file) == "in pieces"
        for session in sessions:
            session.cancel()
        assert [turn.result().stop_reason for turn in turns] == ["cancelled"] * 40
    print("over")
"""


def test_handlers_have_threads_of_their_own_for_which_the_end_of_the_program_does_not_wait(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    line = [sys.executable, "-c", textwrap.dedent(HANDLERS), gateway.url, str(gateway.port), str(tmp_path / "file")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
