"""Servers at the address of a gateway that say nothing, half of something, or what no gateway says."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time
import types
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets

from conftest import PATIENCE, asynchronous
from sandbox_agent import ConnectionLostError, ProblemError, Retry, RpcError, SandboxAgent, SandboxAgentError
from sandbox_agent._sse import read_events

HASTE = Retry(first=0.001, longest=0.01, give_up=0.02)


def answer(status: str, kind: str, body: str, length: int | None = None, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body) if length is None else length}\r\n{more}\r\n{body}".encode()


@asynccontextmanager
async def serves(says: Callable[[bytes], Awaitable[bytes]], ends: bool = False) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(1 << 16):
            writer.write(await says(asked))
            if ends:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


PAGE = answer("200 OK", "text/html", "<html>Welcome</html>")
# What a server says, whether it then ends, and what of it is said.
WAYS: dict[str, tuple[bytes, bool, str]] = {
    "nothing": (b"", False, "nothing was heard for 0.3 s"),
    "half of the headers": (b"HTTP/1.1 200 OK\r\nContent-Ty", False, "nothing was heard for 0.3 s"),
    "half of an answer": (answer("200 OK", "application/json", "{", 9), False, "nothing was heard for 0.3 s"),
    "half of an answer, and ends": (answer("200 OK", "application/json", "{", 9), True, "peer closed connection"),
    "half of a refusal, and ends": (answer("500 Failed", "application/json", "{", 9), True, "peer closed connection"),
    "a page": (PAGE, False, "is this a Sandbox Agent gateway"),
    "that there is no content": (b"HTTP/1.1 204 No Content\r\n\r\n", False, "is this a Sandbox Agent gateway"),
    "null": (answer("200 OK", "application/json", "null"), False, "is this a Sandbox Agent gateway"),
    "what is not compressed as it says": (answer("200 OK", "application/json", "{}", more="Content-Encoding: gzip\r\n"), False, "decompressing"),
    "that it is elsewhere": (answer("301 Moved", "text/html", "moved", more="Location: http://there/\r\n"), False, "redirects to http://there/"),
}
ASKED: dict[str, Callable[[SandboxAgent], Awaitable[Any]]] = {
    "health": lambda client: client.api.health(),
    "metrics": lambda client: client.api.metrics(),
    "fs.read": lambda client: client.fs.read("/file"),
    "fs.write": lambda client: client.fs.write("/file", "text"),
    "fs.delete": lambda client: client.fs.delete("/file"),
    "processes.run": lambda client: client.processes.run("ls"),
    "processes.follow": lambda client: client.processes.follow("p").__anext__(),
    "follow_sessions": lambda client: client.api.follow_sessions().__anext__(),
    "install_agent": lambda client: client.api.install_agent("mock"),
    "terminal": lambda client: client.processes.terminal("p"),
}
TAKEN = {(what, way) for what in ("metrics", "fs.read") for way in ("a page", "null", "that there is no content")} | {("fs.delete", "that there is no content")}


@pytest.mark.parametrize("way", WAYS)
@asynchronous
async def test_a_server_that_is_no_gateway(way: str) -> None:
    says, ends, error = WAYS[way]

    async def say(_: bytes) -> bytes:
        return says

    async with serves(say, ends) as url:
        for what, ask in ASKED.items():
            async with SandboxAgent(url, silence=0.3, retry=HASTE) as client:
                try:
                    await asyncio.wait_for(ask(client), 30)
                    assert (what, way) in TAKEN, what
                except SandboxAgentError as e:
                    assert error in str(e), what


@asynchronous
async def test_what_takes_long_is_waited_for_while_the_gateway_answers_others() -> None:
    asked, enough = 0, asyncio.Event()

    async def say(request: bytes) -> bytes:
        nonlocal asked
        if request.startswith(b"GET /v2/health"):
            asked += 1
            if asked == 5:
                enough.set()
        else:
            await enough.wait()
        return answer("200 OK", "application/json", '{"exitCode":0}')

    async with serves(say) as url, SandboxAgent(url, silence=0.3) as client:
        assert (await client.processes.run("long"))["exitCode"] == 0
        assert asked == 5


@asynchronous
async def test_what_a_reader_of_output_was_too_slow_for_is_told() -> None:
    async def say(_: bytes) -> bytes:
        return answer("200 OK", "text/event-stream", 'event: missed\ndata: {"bytes":7}\n\nid: 9\ndata: {"stream":"stdout","position":7,"data":"aGk="}\n\nevent: exit\ndata: {}\n\n')

    async with serves(say) as url, SandboxAgent(url) as client:
        assert [(part.missed, part.data) async for part in client.processes.follow("p")] == [(7, b"hi")]


@asynchronous
async def test_output_of_a_program_that_says_nothing_is_followed_through_a_hub_that_does_not_have_the_gateway_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    away = answer("503 Service Unavailable", "application/problem+json", '{"type":"urn:sandbox-agent:error:node_offline","title":"The node is offline","status":503}')
    quiet = answer("200 OK", "text/event-stream", ": nothing yet\n\n")
    answers = [quiet, away, quiet, away, answer("200 OK", "text/event-stream", "event: exit\ndata: {}\n\n")]
    late = 0.0
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + late)
    monkeypatch.setattr("sandbox_agent._backoff.time", clock)
    monkeypatch.setattr("sandbox_agent.processes.time", clock)
    read = read_events

    async def long(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        nonlocal late
        async for event in read(chunks):
            yield event
        late += 3600  # so long the stream was open

    monkeypatch.setattr("sandbox_agent.api.read_events", long)

    async def say(_: bytes) -> bytes:
        return answers.pop(0)

    async with serves(say) as url, SandboxAgent(url, retry=Retry(first=0.001, give_up=40)) as client:  # of each try 45 s count
        assert [part async for part in client.processes.follow("p")] == []
        assert answers == []
        answers.append(away)
        with pytest.raises(ProblemError):
            await client.processes.follow("p").__anext__()


@asynchronous
async def test_a_token_goes_to_nobody_else() -> None:
    seen: list[bytes] = []

    async def elsewhere(request: bytes) -> bytes:
        seen.append(request)
        return answer("404 Not Found", "text/plain", "")

    async with serves(elsewhere) as there:

        async def redirects(_: bytes) -> bytes:
            return answer("302 Found", "text/plain", "", more=f"Location: {there.replace('http', 'ws')}/v2/rpc\r\n")

        async with serves(redirects) as url, SandboxAgent(url, token="secret-token-0123456789") as client:
            with pytest.raises(ConnectionLostError):
                await client.connect()
            with pytest.raises(ProblemError):
                await client.api.sessions()
    assert seen == []


@asynchronous
async def test_a_server_that_takes_connections_only_to_end_them_is_not_asked_without_a_pause() -> None:
    clock = asyncio.get_running_loop().time
    at: list[float] = []
    five = asyncio.Event()

    async def serve(socket: Any, *_: Any) -> None:
        at.append(clock())
        if len(at) == 5:
            five.set()
        request = json.loads(await socket.recv())
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"protocolVersion": 1}}))
        await socket.close(1013, "no room")

    serving: Any = getattr(websockets, "serve")
    async with serving(serve, "127.0.0.1", 0, subprotocols=["acp.sandboxagent.dev"]) as server:
        async with SandboxAgent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", retry=Retry(first=0.06)) as client:
            await client.connect()
            await five.wait()
    assert at[4] - at[0] > (0.06 + 0.12 + 0.24 + 0.48) / 2


@asynccontextmanager
async def says(what: Callable[[str], str]) -> AsyncIterator[tuple[SandboxAgent, list[Any]]]:
    """A client of a gateway that answers a request with a text of its own, in which ID is the request's, and the sockets that it had."""
    sockets: list[Any] = []

    async def serve(socket: Any, *_: Any) -> None:
        sockets.append(socket)
        async for frame in socket:
            request = json.loads(frame)
            text = what(request["method"]) or '{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":1,"sessionId":"s"}}'
            for line in text.split("\n"):
                await socket.send(line.replace("ID", str(request["id"])))

    async with getattr(websockets, "serve")(serve, "127.0.0.1", 0, subprotocols=["acp.sandboxagent.dev"]) as server:
        async with SandboxAgent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", retry=Retry(first=0.001)) as client:
            yield client, sockets


@asynchronous
async def test_a_message_that_is_nested_too_deep_is_left_out_and_told_of_and_the_connection_goes_on() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    update = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"%s","content":%s}}}'
    texts = {
        "_updates": update % ("deep", deep) + "\n" + update % ("flat", 1) + '\n{"jsonrpc":"2.0","id":ID,"result":{}}',
        "_answer": '{"jsonrpc":"2.0","id":ID,"result":' + deep + "}",
    }
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    async with says(lambda method: texts.get(method, "")) as (client, sockets):
        kinds: list[str] = []
        client.on_update(lambda _, update: kinds.append(update["sessionUpdate"]))
        await client.new_session(cwd="/")
        await client.request("_updates", {})
        with pytest.raises(RpcError, match="nested too deep"):
            await client.request("_answer", {})
        assert (kinds, len(sockets)) == (["flat"], 1)
    assert len(told) == 2 and all("nested too deep" in message for message in told)


@asynchronous
async def test_a_message_that_no_gateway_sends_is_left_out_and_told_of_and_the_connection_goes_on() -> None:
    texts = {
        "_notices": '{"jsonrpc":"2.0","method":"_sandboxagent/session/ended","params":{"sessionId":"s","data":"gone"}}\n'
        '{"jsonrpc":"2.0","id":[],"result":{}}\n{"jsonrpc":"2.0","id":ID,"result":{}}',
        "_answer": '{"jsonrpc":"2.0","id":ID,"error":{"code":"none"}}',
    }
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    async with says(lambda method: texts.get(method, "")) as (client, sockets):
        await client.request("_notices", {})
        with pytest.raises(RpcError, match="none that the gateway may send"):
            await client.request("_answer", {})
        await client.request("_some", {})
        assert len(sockets) == 1
    assert len(told) == 3 and all("none that the gateway may send" in message for message in told)
