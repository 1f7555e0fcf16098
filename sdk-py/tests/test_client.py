from __future__ import annotations

import asyncio
import json
import pathlib
import re
import sys
from typing import Any

import pytest

from conftest import Gateway, asynchronous
from sandbox_agent import Ask, NotConnectedError, ProblemError, Retry, RpcError, SandboxAgent, SandboxAgentError
from sandbox_agent._wire import Wire


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("localhost:2468", "base_url: 'localhost:2468' is not an http or https address: did you mean http://localhost:2468?"),
        ("127.0.0.1:2468", "did you mean http://127.0.0.1:2468?"),
        ("http://here:port", "base_url: 'http://here:port' is not an http or https address"),
        ("ftp://here", "'ftp://here' is not an http or https address"),
        ("", "base_url: '' is not an http or https address"),
        (None, "base_url: None is not an http or https address"),
    ],
)
def test_an_address_that_is_none_is_explained(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said) + "$"):
        SandboxAgent(given)


@asynchronous
async def test_the_address_of_acp_is_the_gateways(gateway: Gateway) -> None:
    for path in ("", "/", "/v2/rpc", "/v2/rpc/"):
        async with SandboxAgent(gateway.url + path, agent="mock") as client:
            await client.connect()
            assert (await client.api.health())["status"] == "ok"


@asynchronous
async def test_a_turn_is_awaited_and_iterated(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url) as client:
        hello = await client.connect()
        assert hello["agentInfo"]["name"]
        session = await client.new_session(cwd="/tmp", title="A title", env={"X": "y"})
        assert session.agent == "mock" and session.unsupported == []
        assert (await client.api.session(session.id))["title"] == "A title"
        result = await session.prompt("echo hi")
        assert (result.text, result.stop_reason) == ("hi", "end_turn")
        turn = session.prompt("stream 300 20")
        kinds = [update["sessionUpdate"] async for update in turn]
        assert kinds.count("agent_message_chunk") == 300
        assert len((await turn).text) >= 300 * 20
        assert (await session.prompt([{"type": "text", "text": "echo blocks"}])).text == "blocks"


@asynchronous
async def test_turns_wait_for_each_other_and_keep_their_updates(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        turns = [session.prompt(f"echo turn {n}") for n in range(10)]
        assert [(await turn).text for turn in turns] == [f"turn {n}" for n in range(10)]


@asynchronous
async def test_a_turn_is_cancelled(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        turn = session.prompt("slow")
        async for update in turn:
            if update["sessionUpdate"] == "agent_message_chunk":
                break
        await turn.cancel()
        assert (await turn).stop_reason == "cancelled"


@asynchronous
async def test_permissions_are_answered_by_a_handler(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        seen: list[str] = []

        async def allow(ask: Ask) -> None:
            seen.append(ask.title)
            await ask.allow()

        def first(ask: Ask) -> str:
            return ask.options[0]["optionId"]

        client.on_permission(allow)
        assert "allow_once" in (await session.prompt("permission")).text
        client.on_permission(first)
        assert "allow" in (await session.prompt("permission")).text
        client.on_permission(lambda ask: {"outcome": {"outcome": "cancelled"}})
        assert (await session.prompt("permission")).stop_reason in ("end_turn", "cancelled")
        assert len(seen) == 1 and seen[0]


@asynchronous
async def test_requests_wait_in_the_inbox(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        inbox = client.requests()
        turn = session.prompt("permission")
        ask = await inbox.__anext__()
        assert ask.kind == "permission" and ask.session_id == session.id and client.pending() == [ask]
        await ask.reject()
        assert "reject" in (await turn).text
        assert client.pending() == [] and not ask.open
        with pytest.raises(SandboxAgentError, match="answered already"):
            await ask.allow()
        turn = session.prompt("question 2")
        ask = await inbox.__anext__()
        assert ask.kind == "question" and len(ask.questions) == 2
        await ask.reply([[q["options"][0]["label"]] for q in ask.questions])
        assert (await turn).stop_reason == "end_turn"


@asynchronous
async def test_a_request_that_another_client_answers_is_over(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as one, SandboxAgent(gateway.url, agent="mock") as two:
        session = await one.new_session(cwd="/tmp")
        await two.resume_session(session.id)
        turn = session.prompt("permission")
        mine, theirs = await one.requests().__anext__(), await two.requests().__anext__()
        await theirs.allow()
        await mine.over()
        assert "allow_once" in (await turn).text
        with pytest.raises(SandboxAgentError, match="somebody has answered"):
            await mine.reject()


@asynchronous
async def test_a_session_is_opened_again(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo one")
    async with SandboxAgent(gateway.url, agent="mock") as client:
        said: list[str] = []

        def listen(session_id: str, update: Any) -> None:
            if update["sessionUpdate"] == "agent_message_chunk":
                said.append(update["content"]["text"])

        end = client.on_update(listen)
        session = await client.load_session(session.id)
        assert "".join(said) == "one"
        end()
        assert (await session.prompt("echo two")).text == "two"
        assert "".join(said) == "one"
        found = [info["sessionId"] async for info in client.sessions(agent="mock")]
        assert session.id in found
        await session.close()
        assert (await client.api.session(session.id))["state"] == "closed"
        await session.delete()
        with pytest.raises(ProblemError) as refused:
            await client.api.session(session.id)
        assert refused.value.status == 404 and refused.value.type.endswith("session_not_found")
        await session.delete()  # as a repeated request does whose first answer was lost
        await client.close_session("no-such-session")
        with pytest.raises(RpcError):
            await client.terminate_session("no-such-session")


@asynchronous
async def test_errors_say_what_is_wrong(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        with pytest.raises(RpcError) as unknown:
            await client.resume_session("no-such-session")
        assert unknown.value.code == -32002
        session = await client.new_session(cwd="/tmp")
        with pytest.raises(RpcError, match="exited"):
            await session.prompt("crash")
        assert (await session.prompt("echo again")).text == "again"
        with pytest.raises(RpcError):
            await client.request("no/such_method", {})
    async with SandboxAgent("http://127.0.0.1:1", retry=Retry(give_up=0.1)) as client:
        with pytest.raises(SandboxAgentError, match="cannot be reached"):
            await client.new_session(cwd="/tmp")


@asynchronous
async def test_what_is_given_up_is_cancelled_at_the_gateway(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        waiting = asyncio.ensure_future(client.request("session/prompt", {"sessionId": session.id, "prompt": [{"type": "text", "text": "slow"}]}))
        while (await client.api.session(session.id))["state"] != "running":
            pass
        waiting.cancel()
        while (await client.api.session(session.id))["state"] == "running":
            pass
        assert (await session.prompt("echo next")).text == "next"


@asynchronous
async def test_a_transcript_is_for_people(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo the word is heron")
        assert "## User" in await client.api.session_transcript(session.id)
        page = await client.api.session_transcript(session.id, format="html", redact=["her.n"])
        assert page.startswith("<!doctype html>") and "the word is [removed]" in page


@asynchronous
async def test_the_agents_own_traffic_is_recorded_for_who_asks(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp", include_raw=True)
        await session.prompt("echo the word is heron")
        lines = [json.loads(line) for line in (await client.api.session_raw(session.id)).splitlines()]
        assert any(line["from"] == "gateway" and "the word is heron" in line["line"] for line in lines)
        assert lines[-1]["from"] == "agent"
        other = await client.new_session(cwd="/tmp")
        with pytest.raises(ProblemError, match="nothing was recorded"):
            await client.api.session_raw(other.id)


@asynchronous
async def test_what_was_always_allowed_is_listed_and_taken_back(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        client.on_permission(lambda _: "allow_always")
        for text in ("permission: allow_always", "permission: allowed before"):
            assert (await session.prompt("permission")).text == text
        (permission,) = await client.api.session_permissions(session.id)
        assert (permission["title"], permission["where"], permission["revocable"]) == ("Edit notes.txt", "session", True)
        assert await client.api.forget_permissions(session.id, permission["id"]) == [permission]
        with pytest.raises(ProblemError) as refused:
            await client.api.forget_permissions(session.id, permission["id"])
        assert refused.value.status == 404
        assert (await session.prompt("permission")).text == "permission: allow_always"
        assert len(await client.api.forget_permissions(session.id)) == 1
        assert await client.api.session_permissions(session.id) == []


@asynchronous
async def test_the_mcp_servers_of_a_session_are_told_of(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        told: list[list[str]] = []
        client.on_notice(lambda method, params: told.append([s["name"] for s in params["servers"]]) if method == "_sandboxagent/session/mcp_servers" else None)
        session = await client.new_session(cwd="/tmp", instructions="Be kind.", mcp_servers=[{"name": "files", "command": "files-mcp", "args": [], "env": []}])
        await session.prompt("mcp")
        assert told[-1] == ["files", "broken", "issues"]
        info = await client.api.session(session.id)
        assert [(s["state"], s["source"]) for s in info["mcpServers"]] == [("ready", "session"), ("failed", "agent"), ("needs_login", "agent")]
        assert info["instructions"] == [{"field": "instructions", "text": "Be kind."}]


@asynchronous
async def test_a_session_travels(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo the word is heron")
        file = b"".join([chunk async for chunk in client.api.export_session(session.id, redact=["her.n"])])
        with pytest.raises(ProblemError, match="here already"):
            await client.api.import_session(file)
        await client.delete_session(session.id)
        imported = await client.api.import_session(file, cwd="/", trust=True)
        assert (imported["session"]["sessionId"], imported["session"]["cwd"]) == (session.id, "/")
        assert "the word is [removed]" in await client.api.session_transcript(session.id)
        await client.delete_session(session.id)
        for replace in (False, True):
            imported = await client.api.import_session(file, closed=True, replace=replace)
            assert imported["session"]["state"] == "closed"


@asynchronous
async def test_the_list_of_sessions_is_followed_and_searched(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        position = (await client.api.sessions())["position"]
        await session.prompt("echo a Follower of lists")
        async for change in client.api.follow_sessions(position):
            assert change["type"] in ("session", "current")
            info = change.get("session")
            if info and info["sessionId"] == session.id and info["state"] == "idle" and info.get("gist") == "echo a Follower of lists":
                break
        found = await client.api.sessions(q="follower OF", state=["idle"], sort="created")
        assert [s["sessionId"] for s in found["sessions"]] == [session.id]
        await client.delete_session(session.id)
        async for change in client.api.follow_sessions(position):
            if change["type"] == "deleted":
                assert change.get("sessionId") == session.id
                break


@asynchronous
async def test_a_list_whose_stream_ends_with_a_problem_is_not_followed_further() -> None:
    async def revoke(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nevent: message\nid: 7\ndata: {"position":7,"type":"current"}\n\n')
        writer.write(b'event: error\ndata: {"type":"urn:sandboxagent:problem:token_invalid","status":401,"title":"no","detail":"the token was revoked"}\n\n')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(revoke, "127.0.0.1", 0) as hub:
        async with SandboxAgent(f"http://127.0.0.1:{hub.sockets[0].getsockname()[1]}", agent="mock") as client:
            told = []
            with pytest.raises(ProblemError) as failed:
                async for change in client.api.follow_sessions():
                    told.append(change["type"])
            assert (told, failed.value.status) == (["current"], 401)


@pytest.mark.parametrize("version, agent", [(1, "mock"), (2, "mock"), (2, "mock2")])
@asynchronous
async def test_a_turn_that_waits_behind_another_clients_has_nothing_of_that(gateway: Gateway, version: Any, agent: str) -> None:
    async with SandboxAgent(gateway.url, agent=agent) as other, SandboxAgent(gateway.url, agent=agent, acp_version=version) as client:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def allow(_: Ask) -> str:
            asked.set()
            await answer.wait()
            return "allow_once"

        other.on_permission(allow)
        theirs = await other.new_session(cwd="/tmp")
        first = theirs.prompt("permission")
        await asked.wait()
        session = await client.resume_session(theirs.id, cwd="/tmp")
        turn = session.prompt("echo mine")
        between = theirs.prompt("echo between")
        answer.set()
        kinds = [update["sessionUpdate"] async for update in turn]
        assert (await turn).text == "mine" and "tool_call_update" not in kinds
        assert (await first).stop_reason == "end_turn" and (await between).text == "between"


@pytest.mark.parametrize("version, agent", [(1, "mock"), (2, "mock"), (2, "mock2")])
@asynchronous
async def test_a_loaded_session_has_turns_of_its_own(gateway: Gateway, version: Any, agent: str) -> None:
    async with SandboxAgent(gateway.url, agent=agent) as other:
        theirs = await other.new_session(cwd="/tmp")
        await theirs.prompt("echo before")
        async with SandboxAgent(gateway.url, agent=agent, acp_version=version) as client:
            session = await client.load_session(theirs.id, cwd="/tmp")
            assert (await session.prompt("echo mine")).text == "mine"
    async with SandboxAgent(gateway.url, agent=agent, acp_version=version) as client:
        session = await client.load_session(theirs.id, cwd="/tmp")
        assert (await session.prompt("echo mine")).text == "mine"


@pytest.mark.parametrize("method", ["load_session", "resume_session"])
@pytest.mark.parametrize("happens", ["begins", "ends"])
@asynchronous
async def test_the_answer_that_opens_a_session_takes_back_nothing_newer(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, method: str, happens: str) -> None:
    async with SandboxAgent(gateway.url) as other, SandboxAgent(gateway.url) as client:
        asked, answers = asyncio.Event(), [asyncio.Event(), asyncio.Event()]

        async def allow(_: Ask) -> str:
            asked.set()
            await answers[0].wait()
            return "allow_once"

        other.on_permission(allow)
        theirs = await other.new_session(cwd="/tmp")
        await theirs.prompt("echo before")
        await client.connect()
        live = client._live
        assert live is not None
        if happens == "ends":
            first = theirs.prompt("permission")
            await asked.wait()

        held: list[str] = []  # the answer
        seen: asyncio.Queue[str] = asyncio.Queue()
        message = Wire._message

        def late(wire: Wire, text: str) -> None:
            if wire is live and '"method"' not in text and not letting_go.is_set():
                held.append(text)
            else:
                message(wire, text)
            if wire is live:
                seen.put_nowait(text)

        async def sees(words: str) -> None:
            while words not in await seen.get():
                pass

        letting_go = asyncio.Event()
        monkeypatch.setattr(Wire, "_message", late)
        opening = asyncio.ensure_future(getattr(client, method)(theirs.id, cwd="/tmp"))
        await sees('"continuity"')
        if happens == "begins":
            first = theirs.prompt("permission")
            await sees("Edit notes.txt")
        else:
            answers[0].set()
            await sees("turn_ended")
        letting_go.set()
        message(live, held[0])
        session = await opening
        if happens == "begins":
            turn = session.prompt("echo mine")
            answers[0].set()
            kinds = [update["sessionUpdate"] async for update in turn]
            assert (await turn).text == "mine" and "tool_call_update" not in kinds
        else:
            other.on_permission(None)

            async def slowly(_: Ask) -> str:
                await answers[1].wait()
                return "allow_once"

            client.on_permission(slowly)
            turn = session.prompt("permission")
            async for update in turn:  # it is shown before the end
                assert update["sessionUpdate"] == "tool_call"
                break
            answers[1].set()
            await turn
        assert (await first).stop_reason == "end_turn"


@asynchronous
async def test_what_is_no_json_fails_alone(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        nonsense: Any = [{"type": "text", "text": float("nan")}]
        with pytest.raises(ValueError):
            await session.prompt(nonsense)
        with pytest.raises(ValueError):
            await client.processes.run("true", timeout_ms=nonsense[0]["text"])
        assert (await session.prompt("echo fine")).text == "fine"


@pytest.mark.parametrize("version", [1, 2])
@asynchronous
async def test_updates_of_an_agent_that_are_none_harm_nothing(binary: str, tmp_path: pathlib.Path, version: Any) -> None:
    script = tmp_path / "odd.py"
    script.write_text("""
import json, sys
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def chunk(content, **more): return {"update": {"sessionUpdate": "agent_message_chunk", "content": content, **more}}
updates = [{}, {"update": None}, {"update": "x"}, {"update": []}, {"update": {}}, {"update": {"sessionUpdate": 5}}, {"update": {"sessionUpdate": "user_message_chunk", "_meta": "x"}},
    chunk("x"), chunk(None), chunk([None]), chunk({"type": "text"}), chunk({"type": "text", "text": "fine"})]
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "session/prompt":
        for update in updates: send(method="session/update", params={"sessionId": params["sessionId"], **update})
    if "id" in message:
        send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}} if method == "initialize" else {"sessionId": "odd"} if method == "session/new" else {"stopReason": "end_turn"})
""")
    odd = Gateway(["--no-token", "--agent-command", f"odd={sys.executable} {script}"])
    try:
        async with SandboxAgent(odd.url, agent="odd", acp_version=version) as client:
            session = await client.new_session(cwd="/tmp")
            states: list[str] = []
            client.on_state(states.append)
            assert (await session.prompt("x")).text == "fine"
            assert (await session.prompt("again")).text == "fine"
            assert states == []
    finally:
        odd.stop()


@asynchronous
async def test_a_listener_that_fails_harms_nothing_and_is_told_of(gateway: Gateway) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    def fails(_: str) -> None:
        raise ZeroDivisionError

    async with SandboxAgent(gateway.url, agent="mock") as client:
        remove = client.on_state(fails)
        states: list[str] = []
        client.on_state(states.append)
        session = await client.new_session(cwd="/tmp")
        assert (await session.prompt("echo fine")).text == "fine"
        await client.disconnect()
        assert states == ["connecting", "open", "idle"]
        assert [type(error) for error in told] == [ZeroDivisionError] * 3
        client.on_state(fails)
        remove()
        remove()
        await client.connect()
        assert len(told) == 5  # the other one is there still


@pytest.mark.parametrize("answer", [lambda ask: 1 // 0, lambda ask: {"outcome": {1}}])
@asynchronous
async def test_a_handler_that_fails_keeps_no_agent_waiting(gateway: Gateway, answer: Any) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    async with SandboxAgent(gateway.url, agent="mock") as client:
        client.on_permission(answer)
        session = await client.new_session(cwd="/tmp", permission_mode="default")
        assert "the client's handler of the request failed" in (await session.prompt("permission")).text
        assert len(told) == 1 and client.pending() == []


@asynchronous
async def test_a_client_that_was_closed_opens_nothing(gateway: Gateway) -> None:
    client = SandboxAgent(gateway.url, agent="mock")
    await client.aclose()
    await client.aclose()
    for work in (client.connect(), client.new_session(cwd="/tmp"), client.api.health()):
        with pytest.raises(NotConnectedError, match="the client was closed"):
            await work


@asynchronous
async def test_headers_that_cannot_be_sent_are_told_without_what_is_in_them(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock", token="secret\nsecret") as client:
        for work in (client.connect(), client.api.health()):
            with pytest.raises(ValueError, match="^the header 'Authorization' has characters in it that headers cannot have$"):
                await work
    async with SandboxAgent(gateway.url, agent="mock", token="of a file\n") as client:
        await client.connect()
        await client.api.health()


@asynchronous
async def test_one_string_is_no_list_of_them(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        one: Any = "/tmp"
        for work in (
            client.new_session(cwd="/tmp", additional_directories=one), client.processes.run("echo", one), client.processes.start("echo", one),
            client.api.sessions(state=one), client.api.session_transcript("x", redact=one), anext(client.fs.download_archive(one)),
        ):
            with pytest.raises(TypeError, match="is a list of strings, not the string '/tmp'"):
                await work
        with pytest.raises(TypeError, match="an id is a string, not None"):
            await client.api.session(None)  # type: ignore[arg-type]


@asynchronous
async def test_the_inbox_ends_with_the_client(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        reading = asyncio.ensure_future(client.requests().__anext__())
        await client.connect()
    with pytest.raises(StopAsyncIteration):
        await reading
    assert [ask async for ask in client.requests()] == []
