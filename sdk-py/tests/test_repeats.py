"""What is sent again after a break: the list of cases that all clients run which connect again by themselves. It says what its words mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from conftest import ROOT, asynchronous
from sandbox_agent import Retry, RpcError, SandboxAgent, TurnInterruptedError
from sandbox_agent.session import META
from sandbox_agent.versions import AcpVersion

CASES = json.loads((ROOT / "acp/lasting/testdata/repeats.json").read_text("utf-8"))["cases"]
ENDED = "_sandboxagent/session/turn_ended"


class Scripted:
    """A gateway with one session, in which happens what a test says."""

    def __init__(self, version: AcpVersion) -> None:
        self.version = version
        self.frames: asyncio.Queue[str] = asyncio.Queue()  # what it was sent of the session
        self.opens: asyncio.Queue[None] = asyncio.Queue()  # one when a client wants a connection and does not get it yet
        self.looks: asyncio.Queue[None] = asyncio.Queue()  # one when it asks about its prompts and is not answered yet
        self.socket: Any = None  # on which the client is attached to the session
        self.waits: list[Callable[[], None]] = []  # what is not answered yet
        self.away = self.holds = self.gone = False
        self.later = False  # the node comes later: the next close is refused
        self.refuses = ""  # to say what became of prompts, "refuses", "refuses once" or "refuses bare once"
        self.log: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []  # events, and how they are told
        self.runs = ""  # whose turn
        self.names: dict[str, str] = {}  # what the client calls its prompts
        self.asked: dict[str, Any] = {}  # the requests that prompts came with on this connection
        self.out: dict[Any, asyncio.Queue[str]] = {}

    async def serve(self, socket: Any, *_: Any) -> None:
        out = self.out[socket] = asyncio.Queue()

        async def send() -> None:
            while True:
                await socket.send(await out.get())

        sender = asyncio.ensure_future(send())
        try:
            async for frame in socket:
                self.takes(socket, json.loads(frame))
        except ConnectionClosed:
            pass  # as the test says
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def says(self, socket: Any, message: dict[str, Any]) -> None:
        self.out[socket].put_nowait(json.dumps({"jsonrpc": "2.0", **message}))

    def takes(self, socket: Any, m: dict[str, Any]) -> None:
        method, params = m["method"], m.get("params") or {}
        own = (params.get("_meta") or {}).get(META) or {}

        def answer(result: dict[str, Any]) -> None:
            self.says(socket, {"id": m["id"], "result": result})

        if method == "initialize":
            self.when(not self.away, self.opens, lambda: answer({"protocolVersion": self.version}))
        elif method == "session/new":
            self.socket = socket
            answer({"sessionId": "s"})
        elif self.gone and method in ("session/resume", "session/prompt"):
            self.says(socket, {"id": m["id"], "error": {"code": -32002, "message": "it is gone"}})
        elif method == "session/resume":
            self.socket = socket
            for _, frames in self.log[own["after"] :]:
                self.shows(frames)
            answer({})
        elif method == "_sandboxagent/session/pending":
            answer({"pending": []})
        elif method == "_sandboxagent/session/get":
            state: Callable[[], None] = lambda: answer({"state": "running" if self.runs else "idle"})
            state() if self.socket is not socket else self.look(socket, m, state)  # who is about to attach again asks about no prompt
        elif method == "_sandboxagent/session/events":
            after = params["after"]
            self.look(socket, m, lambda: answer({"events": [{"seq": after + 1 + i, "message": message} for i, (message, _) in enumerate(self.log[after:])]}))
        elif method == "session/prompt":
            name = params["prompt"][0]["text"]
            self.names[name], self.asked[name] = own["promptId"], m["id"]
            self.frames.put_nowait("prompt " + name)
        else:
            self.frames.put_nowait(method.removeprefix("session/"))
            if self.later and method == "session/close":
                self.later = False
                self.says(socket, {"id": m["id"], "error": {"code": -32603, "message": "it is away", "data": {"type": "urn:sandbox-agent:error:node_offline"}}})
                return
            if method in ("session/close", "session/delete"):
                for name in list(self.asked):
                    self.drops(name)
                if self.runs:
                    self.ends(self.runs, "cancelled")
            if "id" in m:
                answer({})

    def look(self, socket: Any, m: dict[str, Any], answer: Callable[[], None]) -> None:
        """Answers a question about the session, unless that is refused."""
        if not self.refuses:
            self.when(not self.holds, self.looks, answer)
            return
        error: dict[str, Any] = {"code": -32603, "message": "it is refused"}
        if "bare" not in self.refuses:
            kind = "unavailable" if "once" in self.refuses else "permission_denied"
            error["data"] = {"type": f"urn:sandbox-agent:error:{kind}"}
        self.refuses = "" if "once" in self.refuses else self.refuses
        self.says(socket, {"id": m["id"], "error": error})

    def when(self, now: bool, later: asyncio.Queue[None], answer: Callable[[], None]) -> None:
        """Answers now, or later, of which it gives notice."""
        if now:
            answer()
        else:
            self.waits.append(answer)
            if len(self.waits) == 1:
                later.put_nowait(None)

    def shows(self, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            self.says(self.socket, frame)

    async def does(self, what: str) -> None:
        verb, *words = what.split()
        if verb == "breaks":
            self.away, self.holds, self.refuses, self.waits, self.asked = True, False, "", [], {}
            socket, self.socket = self.socket, None
            socket.transport.abort()
            await self.opens.get()
        elif what in ("is back", "is back and holds", "is back and refuses", "is back and refuses once", "is back and refuses bare once"):
            self.away, self.holds, self.refuses = False, "holds" in words, what.removeprefix("is back and ") if "refuses" in words else ""
            self.answers()
            if self.holds:
                await self.looks.get()
        elif what == "is back before its node":
            self.away, self.later = False, True
            self.answers()
        elif verb == "answers":
            self.holds = False
            self.answers()
        elif verb == "restarts":
            self.runs = ""
        elif verb == "loses":
            self.gone = True
        elif verb in ("begins", "ends", "drops"):
            getattr(self, verb)(*words)
        else:
            raise ValueError("unknown: gateway " + what)

    def answers(self) -> None:
        waits, self.waits = self.waits, []
        for answer in waits:
            answer()

    def happens(self, name: str, method: str, params: dict[str, Any], answer: dict[str, Any] | None, besides: bool, *updates: dict[str, Any]) -> None:
        """Adds an event, which is told in frames. A prompt that came on this connection has its answer besides, or in their place."""
        called = self.names.get(name, name)
        place: dict[str, Any] = {"sessionId": "s", "_meta": {META: {"seq": len(self.log) + 1, "promptId": called}}}
        message = {"method": method, "params": {**params, **place, "promptId": called}}
        frames = [message] if method == ENDED else []
        frames += [{"method": "session/update", "params": {**place, "update": update}} for update in updates]
        self.log.append((message, frames))
        if self.socket is None:
            return
        if name not in self.asked or besides:
            self.shows(frames)
        if name in self.asked and answer is not None:
            self.says(self.socket, {"id": self.asked.pop(name), **answer})

    def begins(self, name: str) -> None:
        self.runs = name
        if self.version == 1:
            self.happens(name, "session/prompt", {}, None, False, {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": name}, "_meta": {META: {"prompt": True}}})
        else:
            message = f"sa.{len(self.log) + 1}"
            self.happens(name, "session/prompt", {}, {"result": {"messageId": message}}, True, {"sessionUpdate": "user_message", "messageId": message, "content": []}, {"sessionUpdate": "state_update", "state": "running"})

    def ends(self, name: str, why: str) -> None:
        self.runs = ""
        end = {"result": {"stopReason": why}}
        if self.version == 1:
            self.happens(name, ENDED, end, end, False)
        else:
            self.happens(name, ENDED, end, None, True, {"sessionUpdate": "state_update", "state": "idle", "stopReason": why})

    def drops(self, name: str) -> None:
        """Ends a prompt that has not begun."""
        answer: dict[str, Any] = {"result": {"stopReason": "cancelled", "_meta": {META: {"began": False}}}}
        if self.version == 2:
            answer = {"error": {"code": -32800, "message": "it was cancelled before it began"}}
        self.happens(name, ENDED, {"began": False, **answer}, answer, False)


async def outcome(turn: Any) -> str:
    try:
        return str((await turn).stop_reason)
    except TurnInterruptedError:
        return "interrupted"
    except RpcError:
        return "failed"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
@asynchronous
async def test_what_is_sent_again(case: dict[str, Any], version: AcpVersion) -> None:
    g = Scripted(version)
    serving: Any = getattr(websockets, "serve")
    async with serving(g.serve, "127.0.0.1", 0, subprotocols=["acp.sandboxagent.dev"]) as server:
        async with SandboxAgent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", acp_version=version, retry=Retry(first=0.001, longest=0.02)) as client:
            session = await client.new_session(cwd="/")
            turns: dict[str, Any] = {}
            calls: list[asyncio.Task[Any]] = []
            ways: dict[str, Callable[[], Any]] = {"cancel": session.cancel, "close": session.close, "delete": session.delete, "list": lambda: client.request("session/list", {})}
            for step in [*case.get("sdks", case["steps"]), "client list", "wire list"]:
                who, what = step.split(" ", 1)
                verb, name = (what + " ").split(" ", 1)
                if who == "client" and verb == "prompt":
                    turns[name.strip()] = session.prompt(name.strip())
                elif who == "client":
                    calls.append(asyncio.ensure_future(ways[what]()))
                    await asyncio.sleep(0)  # it begins before what comes next
                elif who == "told":
                    assert f"{verb} {await asyncio.wait_for(outcome(turns.pop(verb)), 30)}" == what, step
                elif who == "wire":
                    assert await asyncio.wait_for(g.frames.get(), 30) == what, step
                elif who == "gateway":
                    await g.does(what)
                else:
                    raise ValueError("unknown: " + step)
            await asyncio.gather(*calls)
            assert (turns, g.frames.empty()) == ({}, True)
