"""A node that comes to the next hub a moment after its clients: what waits for it, and what is told at once that it is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import websockets

from conftest import asynchronous
from sandbox_agent import NotConnectedError, Retry, RpcError, SandboxAgent, Session
from sandbox_agent import client as client_module

QUICK = Retry(first=0.001, longest=0.02)


class Hub:
    """A hub whose node is away for some of the requests with a method; with `done` it went away while it did them, with "cut" the connection breaks instead."""

    def __init__(self, method: str, times: float = 1, done: str | None = None) -> None:
        self.method, self.times, self.done = method, times, done
        self.known = False  # that there is session s
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.opens = asyncio.Event()  # session s is to be opened again
        self.may = asyncio.Event()
        self.may.set()
        self.sockets: set[Any] = set()
        self.heard: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []  # answers

    async def serve(self, socket: Any, *_: Any) -> None:
        self.sockets.add(socket)
        with contextlib.suppress(websockets.exceptions.ConnectionClosed):
            async for frame in socket:
                request = json.loads(frame)
                self.heard.append(request["method"])
                self.tasks.append(asyncio.ensure_future(self._answer(socket, request)))
        self.sockets.discard(socket)

    async def _answer(self, socket: Any, request: dict[str, Any]) -> None:
        said = await self.answer(request["method"], request.get("params") or {})
        if "id" in request:
            with contextlib.suppress(websockets.exceptions.ConnectionClosed):
                await socket.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}))

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            return {"result": {"protocolVersion": 1}}
        if method == "session/new" and not self.known:
            self.known = True
            return {"result": {"sessionId": "s"}}
        if method == "session/resume" and params["sessionId"] == "s":
            self.opens.set()
            await self.may.wait()
        elif method == self.method:
            self.asked.put_nowait(method)
            if self.times > 0:
                self.times -= 1
                if self.done == "cut":
                    for socket in self.sockets:
                        socket.transport.abort()
                    return {}
                return {"error": {"code": -32603, "message": "it is away", "data": {"type": "urn:sandbox-agent:error:node_offline", **({"done": self.done} if self.done else {})}}}
        return {"result": {"sessionId": "another"} if method in ("session/new", "session/fork") else {}}

    @contextlib.asynccontextmanager
    async def client(self, retry: Retry = QUICK) -> AsyncIterator[SandboxAgent]:
        async with getattr(websockets, "serve")(self.serve, "127.0.0.1", 0, subprotocols=["acp.sandboxagent.dev"]) as server:
            async with SandboxAgent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", retry=retry) as client:
                yield client

    async def attaching(self, client: SandboxAgent) -> None:
        """Cuts the connection, and has the client wait for its session on the next one."""
        await client.new_session(cwd="/")
        self.may.clear()
        await self.cut(client)
        await self.opens.wait()

    async def cut(self, client: SandboxAgent) -> None:
        lost = asyncio.Event()
        client.on_state(lambda state: lost.set() if state == "reconnecting" else None)
        for socket in self.sockets:
            socket.transport.abort()
        await lost.wait()


@asynchronous
async def test_a_client_that_connects_for_the_first_time_is_told_at_once() -> None:
    async with Hub("session/close").client() as client:
        with pytest.raises(RpcError, match="away"):
            await client.close_session("s")


class Replays(Hub):
    """A hub that answers the first request to load a session not before it ends."""

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method != "session/load":
            return {"result": {"state": "idle"}} if method == "_sandboxagent/session/get" else await super().answer(method, params)
        self.asked.put_nowait(method)
        if self.heard.count(method) == 1:
            await asyncio.Event().wait()
        self.opens.set()
        await self.may.wait()
        return {"result": {"_meta": {"sandboxagent.dev": {"seq": 5, "replayedSeq": 5}}}}

    async def tell(self, session_id: str, seq: int) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": str(seq)}}
        params = {"sessionId": session_id, "update": update, "_meta": {"sandboxagent.dev": {"seq": seq}}}
        for socket in self.sockets:
            await socket.send(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}))


@asynchronous
async def test_a_session_whose_load_was_cancelled_is_followed_and_comes_whole_when_it_is_loaded_again() -> None:
    hub = Replays("")
    async with hub.client() as client:
        said: list[str] = []
        client.on_update(lambda _, update: said.append(update["content"]["text"]))
        loading = asyncio.ensure_future(client.load_session("other", cwd="/"))
        await hub.asked.get()
        for seq in (1, 2):
            await hub.tell("other", seq)
        await client.request("session/list", {})  # behind them
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        hub.may.clear()
        again = asyncio.ensure_future(client.load_session("other", cwd="/"))
        await hub.opens.wait()
        for seq in (3, 1, 2, 3, 4, 5):  # the first was on its way
            await hub.tell("other", seq)
        hub.may.set()
        await again
        assert "".join(said) == "12312345"
        await hub.cut(client)
        await client.request("_sandboxagent/session/pending", {"sessionId": "other"})
        assert "session/resume" in hub.heard


@asynchronous
async def test_what_is_asked_while_the_sessions_are_attached_again_waits_for_the_node() -> None:
    hub = Hub("session/close")
    async with hub.client() as client:
        await hub.attaching(client)
        closing = asyncio.ensure_future(client.close_session("s"))
        await asyncio.sleep(0)  # it begins
        hub.may.set()
        await closing
        assert hub.asked.qsize() == 2


@pytest.mark.parametrize("why", ["lost", "refused"])
@asynchronous
async def test_a_prompt_comes_behind_a_setting_that_is_sent_again_and_what_is_set_then_behind_the_prompt(why: str) -> None:
    hub = Hub("session/set_mode", done="cut" if why == "lost" else None)
    async with hub.client() as client:
        session = Session(client, "s", {})
        if why == "lost":
            await client.new_session(cwd="/")
            lost = asyncio.Event()
            client.on_state(lambda state: lost.set() if state == "reconnecting" else None)
            setting = asyncio.ensure_future(session.set_mode("plan"))
            await lost.wait()
        else:
            await hub.attaching(client)
            setting = asyncio.ensure_future(session.set_mode("plan"))
            await asyncio.sleep(0)  # it begins
        turn = asyncio.ensure_future(session.prompt("go on").result())
        title = asyncio.ensure_future(session.set_config_option("later", "on"))
        hub.may.set()
        await asyncio.gather(setting, turn, title)
        assert [method for method in hub.heard if "set_" in method or "prompt" in method] == ["session/set_mode", "session/set_mode", "session/prompt", "session/set_config_option"]


@asynchronous
async def test_what_waits_for_something_else_when_the_client_is_disconnected_opens_no_other_connection() -> None:
    hub = Hub("")
    async with hub.client() as client:
        await hub.attaching(client)
        session = Session(client, "s", {})
        held = [asyncio.ensure_future(one) for one in (session.set_mode("a"), session.set_mode("b"), session.cancel(), session.close())]
        await asyncio.sleep(0)  # they begin
        turn = session.prompt("go on")
        before = hub.heard.count("initialize")
        await client.disconnect()
        for one in (turn, *held):
            with pytest.raises(NotConnectedError):
                await one
        assert (client.state, hub.heard.count("initialize")) == ("idle", before)


@asynchronous
async def test_a_session_that_is_not_attached_again_holds_nothing_up_that_is_not_of_it() -> None:
    hub = Hub("")
    async with hub.client() as client:
        await client.resume_session("other", cwd="/")
        await hub.attaching(client)
        await client.request("session/list", {})
        await client.prompt("other", "go on")
        await client.cancel("other")
        held: list[asyncio.Future[Any]] = [asyncio.ensure_future(client.cancel("s")), asyncio.ensure_future(client.close_session("s"))]
        await asyncio.sleep(0)  # they begin
        held.append(asyncio.ensure_future(_result(client.prompt("s", "go on"))))
        await client.close_session("other")
        assert [method for method in hub.heard if method in ("session/list", "session/prompt", "session/cancel", "session/close")] == ["session/list", "session/prompt", "session/cancel", "session/close"]
        await client.disconnect()
        for one in held:
            with pytest.raises(NotConnectedError, match="disconnected"):
                await one


async def _result(turn: Any) -> Any:
    return await turn


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
@asynchronous
async def test_a_session_is_opened_when_its_node_comes(method: str) -> None:
    hub = Hub(method)
    async with hub.client() as client:
        await hub.attaching(client)
        opening = asyncio.ensure_future((client.load_session if method == "session/load" else client.resume_session)("other", cwd="/"))
        await asyncio.sleep(0)  # it begins
        hub.may.set()
        await opening
        assert hub.asked.qsize() == 2


@pytest.mark.parametrize("done", [None, "unknown"])
@pytest.mark.parametrize("method", ["session/new", "session/fork"])
@asynchronous
async def test_a_session_is_made_when_its_node_comes_unless_there_may_be_one(method: str, done: str | None) -> None:
    hub = Hub(method, done=done)
    async with hub.client() as client:
        await hub.attaching(client)
        making = asyncio.ensure_future(client.new_session(cwd="/") if method == "session/new" else client.fork_session("s", cwd="/"))
        await asyncio.sleep(0)  # it begins
        hub.may.set()
        if done is None:
            assert (await making).id == "another"
        else:
            with pytest.raises(RpcError, match="away"):
                await making
        assert hub.asked.qsize() == (2 if done is None else 1)


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
@asynchronous
async def test_a_session_is_not_opened_in_another_directory_because_its_own_could_not_be_asked_for(method: str) -> None:
    hub = Hub("_sandboxagent/session/get")
    async with hub.client() as client:
        with pytest.raises(RpcError, match="away"):
            await (client.load_session if method == "session/load" else client.resume_session)("other")


@asynchronous
async def test_a_node_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "NODE_BOUND", 0.1)
    hub = Hub("session/close", math.inf)
    async with hub.client(Retry(first=0.001, longest=0.02, give_up=math.inf)) as client:
        await client.new_session(cwd="/")
        await hub.cut(client)
        with pytest.raises(RpcError, match="away"):
            await client.close_session("s")


@asynchronous
async def test_the_wait_for_a_node_ends_with_the_client() -> None:
    hub = Hub("session/close", math.inf)
    async with hub.client(Retry(first=60, longest=60)) as client:
        await client.new_session(cwd="/")
        await hub.cut(client)
        closing = asyncio.ensure_future(client.close_session("s"))
        await hub.asked.get()
        await client.request("session/list", {})  # it was refused before
    with pytest.raises(RpcError, match="away"):  # and not that it asked again
        await closing


def refused(code: int, kind: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": kind, "data": {"type": f"urn:sandbox-agent:error:{kind}"}}}


IDLE = {"result": {"state": "idle"}}
GONE = refused(-32002, "session_not_found")
FINISHED = refused(-32002, "conflict")  # or it goes on elsewhere
CLOSED = {"state": "closed", "updatedAt": "2026-01-02T03:04:05Z"}


class Sayer(Hub):
    """A hub that says of a session what it is to say, the last again and again."""

    def __init__(self, says: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__("")
        self.says = says
        self.nodes: set[Any] = set()

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answers = self.says.get(method)
        if not answers:
            return await super().answer(method, params)
        self.nodes.add(params.get("_meta", {}).get("sandboxagent.dev", {}).get("node"))
        return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.mark.parametrize("get, resume, told", [
    ([IDLE], FINISHED, []),
    ([IDLE], GONE, []),
    ([GONE], FINISHED, []),
    ([GONE], GONE, [("deleted", None)]),
    ([refused(-32603, "node_offline"), {"result": CLOSED}], GONE, [("closed", None)]),
    ([{"result": {**CLOSED, "metadata": {"movedTo": "node://two"}}}], GONE, [("moved", "it goes on at the node two of the same hub")]),
    ([{"result": {**CLOSED, "metadata": {"movedTo": "http://two"}}}], GONE, [("moved", "it goes on at http://two")]),
])
@asynchronous
async def test_what_is_told_of_a_session_that_cannot_be_followed_any_more(get: list[Any], resume: Any, told: list[Any]) -> None:
    hub = Sayer({"_sandboxagent/session/get": [*get], "session/resume": [resume]})
    async with hub.client() as client:
        await client.new_session(cwd="/", meta={"node": "one"})
        ends: list[Any] = []
        client.on_notice(lambda method, params: ends.append((params["data"]["reason"], params["data"].get("message"))) if method == "_sandboxagent/session/ended" else None)
        await hub.cut(client)
        await client.request("_session/any", {"sessionId": "s"})
        assert ends == told
        assert ("session/resume" in hub.heard) == ("closed" not in str(get))  # which would open it again
        assert hub.nodes == {"one"}
