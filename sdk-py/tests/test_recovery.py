from __future__ import annotations

import asyncio
import json
import pathlib
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import websockets

from conftest import Gateway, Proxy, asynchronous
from sandbox_agent import Ask, ConnectionLostError, NotConnectedError, ProblemError, Retry, RpcError, SandboxAgent, Session, TurnInterruptedError
from sandbox_agent import _wire
from sandbox_agent._wire import Wire, dial

CUTS = 60
QUICK = Retry(first=0.001, longest=0.02)
SPOKEN = pytest.mark.parametrize("version, agent", [(1, "mock"), (2, "mock"), (2, "mock2")])


@SPOKEN
@asynchronous
async def test_cuts_at_random_moments_every_update_once_every_turn_its_end_every_question_its_answer(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:

        async def allow(ask: Ask) -> str:
            await asyncio.sleep(random.random() / 100)
            return "allow_once"

        client.on_permission(allow)
        sessions = [await client.new_session(cwd="/tmp") for _ in range(3)]

        # Each connection lives until it has brought something, however slow the
        # machine is; now and then the next one is cut while it is being made.
        left = 1

        def cut(session_id: str, update: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                left = random.randint(1, 40)
                proxy.cut()
                if random.random() < 0.3:
                    asyncio.get_running_loop().call_later(random.random() / 50, proxy.cut)

        client.on_update(cut)

        async def working(session: Session) -> None:
            got = want = turns = ends = 0

            def count(update: Any) -> None:
                nonlocal got, ends
                got += update["sessionUpdate"] == "agent_message_chunk"
                ends += update["sessionUpdate"] == "state_update" and "stopReason" in update

            session.on_update(count)
            while proxy.cuts < CUTS or turns < 2:
                turns += 1
                n = random.randint(1, 200)
                want += n
                assert (await session.prompt(f"stream {n} 100")).stop_reason == "end_turn"
                assert got == want, f"turn {turns} after {proxy.cuts} cuts"
                assert "allow" in (await session.prompt("permission")).text
                want = got
                assert ends == (2 * turns if version == 2 else 0), "each turn's end is told once"

        await asyncio.gather(*(working(session) for session in sessions))
        assert proxy.cuts >= CUTS


@SPOKEN
@asynchronous
async def test_a_gateway_that_is_killed_in_mid_turn_the_session_goes_on_with_what_it_had(version: Any, agent: str) -> None:
    own = Gateway()
    try:
        async with SandboxAgent(own.url, agent=agent, acp_version=version, retry=QUICK) as client:
            states: list[str] = []
            client.on_state(states.append)
            session = await client.new_session(cwd="/tmp")
            shown: list[str] = []
            session.on_update(lambda update: shown.append(update["content"]["text"]) if update["sessionUpdate"] == "agent_message_chunk" and update["content"]["type"] == "text" else None)
            assert (await session.prompt("echo before")).text == "before"
            turn = session.prompt("slow")
            async for update in turn:
                if update["sessionUpdate"] == "agent_message_chunk":
                    break
            own.kill()
            own.restart()
            with pytest.raises(TurnInterruptedError):
                await turn
            assert "reconnecting" in states
            assert (await session.prompt("echo after")).text == "after"
            # The log has what was shown, once and in order.
            logged: list[str] = []
            after, more = 0, True
            while more:
                page = await client.api.session_events(session.id, after=after)
                for event in page["events"]:
                    after = event["seq"]
                    message: Any = event.get("message")
                    update = (message.get("params") or {}).get("update") or {}
                    if update.get("sessionUpdate") == "agent_message_chunk":
                        logged.append(update["content"]["text"])
                more = page["hasMore"]
            assert shown == logged
    finally:
        own.stop()


@SPOKEN
@asynchronous
async def test_a_turn_that_ends_while_the_client_is_away_is_found_ended(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as direct:
        session = await client.new_session(cwd="/tmp")
        count = 0

        def listen(update: Any) -> None:
            nonlocal count
            count += update["sessionUpdate"] == "agent_message_chunk"

        session.on_update(listen)
        turn = session.prompt("stream 3000 50")
        async for _ in turn:
            break
        proxy.refusing = True
        proxy.cut()
        while (await direct.api.session(session.id))["state"] == "running":
            await asyncio.sleep(0.01)
        proxy.refusing = False
        assert (await turn).stop_reason == "end_turn"
        assert count == 3000


@SPOKEN
@asynchronous
async def test_a_session_that_another_client_deletes_while_the_end_of_its_turn_is_on_its_way(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await other.resume_session(session.id)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        other.on_notice(lambda method, _: ended.set_result(None) if method == "_sandboxagent/session/turn_ended" else None)
        turn = session.prompt("stream 200 100000")  # more than the network keeps
        async for update in turn:
            if update["sessionUpdate"] == "agent_message_chunk":
                break
        proxy.flows.clear()
        await ended
        await other.delete_session(session.id)
        proxy.flows.set()
        if version == 1:  # an answer comes all the same; how a turn ended is not told any more
            assert (await turn).stop_reason == "end_turn"
        else:
            with pytest.raises(RpcError, match="was deleted"):
                await turn


@pytest.mark.parametrize("where", ["there", "away"])
@pytest.mark.parametrize("version", [1, 2])
@asynchronous
async def test_the_end_of_a_turn_that_was_found_counts_when_another_client_deletes_the_session_before_it_is_told(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, version: Any, where: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent="mock", acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await other.resume_session(session.id)
        turn = session.prompt("permission")
        theirs = await other.requests().__anext__()
        await client.requests().__anext__()
        found = asyncio.Event()
        live, message = other._live, Wire._message

        def late(wire: Wire, text: str) -> None:
            if wire is not live and '"seq"' in text and '"method"' in text and '"hasMore"' not in text:
                return  # the gateway is about to send it, and does not when the session is deleted first
            message(wire, text)
            if wire is not live and '"hasMore"' in text and "turn_ended" in text:
                found.set()

        monkeypatch.setattr(Wire, "_message", late)
        proxy.refusing = True
        proxy.cut()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        other.on_notice(lambda method, _: ended.set_result(None) if method.endswith("turn_ended") else None)
        await theirs.allow()
        await ended
        proxy.refusing = False
        await found.wait()
        if where == "away":
            proxy.refusing = True
            proxy.cut()
        await other.delete_session(session.id)
        proxy.refusing = False
        assert (await turn).stop_reason == "end_turn"


@pytest.mark.parametrize("version, agent", [(1, "mock"), (2, "mock2")])
@asynchronous
async def test_events_that_are_gone_when_the_client_is_back_are_told_as_lost_and_the_session_goes_on(version: Any, agent: str) -> None:
    own = Gateway(["--no-token", "--ephemeral", "--max-memory", "64MiB"])
    try:
        async with Proxy(own.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(own.url, agent="mock") as other:
            session = await client.new_session(cwd="/tmp")
            await session.prompt("run")
            assert session.activity is None or len(session.activity.commands) == 1
            lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            client.on_notice(lambda method, params: lost.set_result(params) if method.endswith("events_expired") else None)
            said: asyncio.Queue[str] = asyncio.Queue()
            session.on_update(lambda update: said.put_nowait(update["content"]["text"]) if update["sessionUpdate"] == "agent_message_chunk" else None)
            theirs = await other.resume_session(session.id)
            proxy.refusing = True
            proxy.cut()
            for _ in range(4):
                await theirs.prompt("stream 40 100000")  # more than an eighth of its memory, which it keeps, and not more at a time than is read
            proxy.refusing = False
            told = await lost
            assert told["sessionId"] == session.id and told["firstSeq"] < told["lastSeq"]
            assert session.activity is None or not session.activity.commands  # how they ended may be lost
            await theirs.prompt("echo theirs")
            while await said.get() != "theirs":
                pass
            assert (await session.prompt("echo mine")).text == "mine"
    finally:
        own.stop()


@SPOKEN
@asynchronous
async def test_a_turn_whose_beginning_is_gone_when_the_client_is_back_has_its_end(version: Any, agent: str) -> None:
    own = Gateway(["--no-token", "--ephemeral", "--max-memory", "64MiB"])
    try:
        async with Proxy(own.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(own.url) as other:
            session = await client.new_session(cwd="/tmp")
            turn = session.prompt("stream 160 100000")  # more than an eighth of its memory, which it keeps
            async for _ in turn:
                break
            proxy.refusing = True
            proxy.cut()
            while (await other.api.session(session.id))["state"] == "running":
                await asyncio.sleep(0.02)
            proxy.refusing = False
            assert (await turn).stop_reason == "end_turn"
            assert (await session.prompt("echo mine")).text == "mine"
    finally:
        own.stop()


@SPOKEN
@asynchronous
async def test_a_prompt_that_is_sent_when_the_client_is_back_has_nothing_of_turns_whose_beginning_is_gone(version: Any, agent: str) -> None:
    own = Gateway(["--no-token", "--ephemeral", "--max-memory", "64MiB"])
    try:
        async with Proxy(own.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(own.url, agent="mock") as other:
            session = await client.new_session(cwd="/tmp")
            theirs = await other.resume_session(session.id)
            lost = asyncio.Event()
            client.on_state(lambda state: lost.set() if state == "reconnecting" else None)
            proxy.refusing = True
            proxy.cut()
            await lost.wait()
            for _ in range(4):
                await theirs.prompt("stream 40 100000")
            mine = session.prompt("echo mine")
            proxy.refusing = False
            assert (await mine).text == "mine"
    finally:
        own.stop()


@pytest.mark.parametrize("version, lost", [(1, True), (2, True), (2, False)])
@pytest.mark.parametrize("method", ["load_session", "resume_session"])
@asynchronous
async def test_a_turn_that_ends_before_its_session_is_opened_anew(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, version: Any, lost: bool, method: str) -> None:
    """The gateway tells nobody of the end of a turn that is history when the session is opened."""
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent="mock", acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await other.resume_session(session.id)
        turn = session.prompt("permission")
        theirs = await other.requests().__anext__()
        await client.requests().__anext__()
        asked, ended = asyncio.Event(), asyncio.Event()
        live, theirs_live, message, ending = client._live, other._live, Wire._message, False

        def late(wire: Wire, text: str) -> None:
            if wire is not theirs_live and ending and '"method"' in text:
                if "turn_ended" in text:
                    ended.set()
                return  # the gateway is about to send it, and does not when the session is opened first
            message(wire, text)
            if wire not in (live, theirs_live) and '"hasMore"' in text:
                asked.set()  # the client knows that the turn goes on, and waits to be told of the end

        monkeypatch.setattr(Wire, "_message", late)
        if lost:
            proxy.cut()
            await asked.wait()
        ending = True
        await theirs.allow()
        await ended.wait()
        ending = False
        await getattr(client, method)(session.id, cwd="/tmp")
        assert (await turn).stop_reason == "end_turn"
        assert (await session.prompt("echo after")).text == "after"


@SPOKEN
@asynchronous
async def test_a_request_that_is_answered_while_the_client_is_away_is_over(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await other.resume_session(session.id)
        turn = session.prompt("permission")
        mine, theirs = await client.requests().__anext__(), await other.requests().__anext__()
        proxy.refusing = True
        proxy.cut()
        await theirs.allow()
        proxy.refusing = False
        assert "allow_once" in (await turn).text
        await mine.over()


@pytest.mark.parametrize("agent", ["mock", "mock2"])
@pytest.mark.parametrize("version, knows", [(1, {"subagents": {}}), (2, {})])
@asynchronous
async def test_a_request_of_a_subagent_that_began_before_the_client_came_is_over(gateway: Gateway, version: Any, knows: dict[str, Any], agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(gateway.url, agent=agent, acp_version=version, capabilities=knows) as owner, SandboxAgent(proxy.url, agent=agent, acp_version=version, capabilities=knows, retry=QUICK) as client:
        session = await owner.new_session(cwd="/tmp")
        turn = session.prompt("subagent" if agent == "mock" else "child-permission")
        theirs = await owner.requests().__anext__()
        await client.resume_session(session.id)
        mine = await client.requests().__anext__()
        assert mine.session_id == theirs.session_id != session.id
        proxy.refusing = True
        proxy.cut()
        await theirs.allow()
        await turn
        proxy.refusing = False
        await mine.over()


@asynchronous
async def test_a_client_that_ends_leaves_the_turn_to_the_next() -> None:
    own = Gateway()
    try:
        async with SandboxAgent(own.url, agent="mock", retry=QUICK) as client:
            session = await client.new_session(cwd="/tmp")
            turn = session.prompt("permission")
            await client.requests().__anext__()
        with pytest.raises(NotConnectedError):
            await turn
        async with SandboxAgent(own.url, agent="mock", retry=QUICK) as client:
            ended = asyncio.Event()
            client.on_notice(lambda method, params: ended.set() if method.endswith("turn_ended") else None)
            await client.resume_session(session.id)
            await (await client.requests().__anext__()).allow()
            await ended.wait()
            assert (await client.api.session(session.id))["state"] == "idle"
    finally:
        own.stop()


@asynchronous
async def test_without_reconnect_a_lost_connection_is_told_and_ends_what_waits() -> None:
    own = Gateway()
    try:
        async with SandboxAgent(own.url, agent="mock", retry=QUICK, reconnect=False) as client:
            session = await client.new_session(cwd="/tmp")
            turn = session.prompt("slow")
            async for _ in turn:
                break
            own.kill()
            with pytest.raises(ConnectionLostError):
                await turn
            with pytest.raises(NotConnectedError, match="given up"):
                await session.prompt("hi")
    finally:
        own.stop()


@asynchronous
async def test_a_token_that_changes_is_asked_for_again(tmp_path: pathlib.Path) -> None:
    own = Gateway([], {"SANDBOX_AGENT_TOKEN": "first-token-0123456789"})
    refusals = 0

    async def token(refused: bool) -> str:
        nonlocal refusals
        refusals += refused
        return "first-token-0123456789" if refused else "stale-token-0123456789"

    try:
        async with SandboxAgent(own.url, agent="mock", retry=QUICK, token=token) as client:
            session = await client.new_session(cwd="/tmp")
            assert (await session.prompt("echo hi")).text == "hi"
            process = await client.processes.start("cat", tty=True)
            await (await client.processes.terminal(process["id"])).close()
            assert len((await client.api.sessions())["sessions"]) == 1
            assert refusals >= 2

            async def pieces() -> AsyncIterator[bytes]:  # which cannot be sent a second time
                yield b"hi"

            await client.fs.write(f"{tmp_path}/file", pieces())
            assert (tmp_path / "file").read_bytes() == b"hi"
        async with SandboxAgent(own.url, agent="mock", retry=QUICK, token="wrong") as client:
            with pytest.raises(ProblemError) as refused:
                await client.new_session(cwd="/tmp")
            assert refused.value.status == 401
            with pytest.raises(ProblemError):
                await client.api.sessions()
    finally:
        own.stop()


async def _answered(client: SandboxAgent, other: SandboxAgent, own: Gateway, session: str) -> None:
    other.on_permission(lambda ask: "allow_once")
    await other.resume_session(session, cwd="/tmp")


async def _killed(client: SandboxAgent, other: SandboxAgent, own: Gateway, session: str) -> None:
    own.kill()
    own.restart()


async def _killed_for_good(client: SandboxAgent, other: SandboxAgent, own: Gateway, session: str) -> None:
    own.kill()


WAYS: dict[str, Any] = {
    "answered by another client": _answered,
    "the turn cancelled": lambda client, other, own, session: client.cancel(session),
    "the gateway killed, and back": _killed,
    "the gateway killed for good": _killed_for_good,
    "the session closed": lambda client, other, own, session: client.close_session(session),
    "the session closed by another client": lambda client, other, own, session: other.close_session(session),
    "the session deleted by another client": lambda client, other, own, session: other.delete_session(session),
    "the session ended": lambda client, other, own, session: client.terminate_session(session),
    "the session left": lambda client, other, own, session: client.detach_session(session),
    "the client disconnected": lambda client, other, own, session: client.disconnect(),
}


@SPOKEN
@pytest.mark.parametrize("way", WAYS)
@asynchronous
async def test_a_handler_is_told_that_its_question_is_gone(version: Any, agent: str, way: str) -> None:
    own = Gateway()
    retry = Retry(first=0.01, longest=0.05, give_up=0.1) if way == "the gateway killed for good" else QUICK
    try:
        async with SandboxAgent(own.url, agent=agent, acp_version=version, retry=retry) as client, SandboxAgent(own.url, agent=agent, acp_version=version, retry=retry) as other:
            shown: asyncio.Future[Ask] = asyncio.get_running_loop().create_future()
            told = asyncio.Event()

            async def think(ask: Ask) -> None:
                shown.set_result(ask)
                try:
                    await asyncio.Event().wait()
                finally:
                    told.set()

            client.on_permission(think)
            session = await client.new_session(cwd="/tmp")
            turn = asyncio.ensure_future(_quietly(session.prompt("permission")))
            ask = await shown
            assert ask.open and not told.is_set()
            await WAYS[way](client, other, own, session.id)
            await told.wait()
            assert not ask.open and client.pending() == []
            turn.cancel()
    finally:
        own.stop()


async def _quietly(turn: Any) -> None:
    try:
        await turn
    except Exception:
        pass  # the turn may go with the question


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", ["initialize", "session/resume"])
@asynchronous
async def test_a_gateway_that_is_ending_is_asked_again(method: str, version: Any) -> None:
    gateway = Gateway()
    refusals = 0

    async def pass_on(near: Any) -> None:
        """Stands before the gateway, and refuses as it does in its last moments."""
        nonlocal refusals
        try:
            far: Any = await getattr(websockets, "connect")(gateway.url.replace("http", "ws", 1) + "/v2/rpc", subprotocols=["acp.sandboxagent.dev"])
        except OSError:
            return

        async def back() -> None:
            async for frame in far:
                await near.send(frame)
            await near.close()

        task = asyncio.ensure_future(back())
        async for frame in near:
            request = json.loads(frame)
            if refusals > 0 and request.get("method") == method:
                refusals -= 1
                data = {"type": "urn:sandbox-agent:error:unavailable", "title": "Service unavailable", "status": 503}
                await near.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "the gateway is shutting down", "data": data}}))
            else:
                await far.send(frame)
        await far.close()
        await asyncio.gather(task, return_exceptions=True)

    async with getattr(websockets, "serve")(pass_on, "127.0.0.1", 0, subprotocols=["acp.sandboxagent.dev"]) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with SandboxAgent(url, agent="mock", acp_version=version, retry=QUICK) as client:
            session = await client.new_session(cwd="/tmp")
            assert (await session.prompt("echo one")).text == "one"
            gateway.kill()
            refusals = 2
            gateway.restart()
            assert (await session.prompt("echo two")).text == "two"
            assert refusals == 0
    gateway.stop()


@asynchronous
async def test_a_token_that_cannot_be_had_while_the_network_is_broken_is_asked_for_again(gateway: Gateway) -> None:
    async with Proxy(gateway.port) as proxy:
        failures = 2

        def token(_: bool) -> str:
            nonlocal failures
            if proxy.cuts and failures:
                failures -= 1
                raise OSError("the vault cannot be reached")
            return "right"

        async with SandboxAgent(proxy.url, agent="mock", token=token, retry=Retry(first=0.01)) as client:
            session = await client.new_session(cwd="/tmp")
            proxy.cut()
            assert (await session.prompt("echo fine")).text == "fine"
            assert failures == 0


@asynchronous
async def test_a_request_that_is_cancelled_while_the_connection_breaks_is_cancelled() -> None:
    sent = asyncio.Event()

    class Breaking:
        async def send(self, _: str) -> None:
            if sent.is_set():
                raise OSError("broken")
            sent.set()

        async def __aiter__(self) -> Any:
            await asyncio.get_running_loop().create_future()
            yield ""

    wire = Wire(Breaking(), lambda *_: None, lambda _: None)
    asked = asyncio.ensure_future(wire.request("session/new", {}))
    await sent.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    wire._reader.cancel()


LARGE = "x" * (12 << 20)  # more than a connection takes whose other end reads nothing


@asynchronous
async def test_a_request_that_is_given_up_behind_what_is_not_taken_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "LAST_WORD", 0.05)
    own = Gateway()
    try:
        async with SandboxAgent(own.url, agent="mock") as client:
            session = await client.new_session(cwd="/tmp")
            own.process.send_signal(signal.SIGSTOP)
            turn = session.prompt(LARGE)
            listing = asyncio.ensure_future(client.request("session/list", {}))
            await asyncio.wait({listing}, timeout=0.2)
            listing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listing
            assert client.state == "open"
            own.process.send_signal(signal.SIGCONT)
            assert (await turn).stop_reason == "end_turn"
    finally:
        own.kill()
        own.stop()


@asynchronous
async def test_a_gateway_that_takes_nothing_of_a_large_prompt_is_given_up() -> None:
    own = Gateway()
    try:
        async with SandboxAgent(own.url, agent="mock", retry=QUICK, silence=3) as client:
            session = await client.new_session(cwd="/tmp")
            lost = asyncio.Event()
            client.on_state(lambda state: lost.set() if state == "reconnecting" else None)
            own.process.send_signal(signal.SIGSTOP)
            turn = session.prompt(LARGE)
            await lost.wait()
            own.process.send_signal(signal.SIGCONT)
            assert (await turn).stop_reason == "end_turn"
    finally:
        own.kill()
        own.stop()


@asynchronous
async def test_a_connection_that_is_slow_and_always_busy_is_kept_until_it_takes_nothing() -> None:
    looks, given_up = 0, asyncio.Event()

    class Slow:
        """As much comes to what waits as is taken of it, for a while."""

        transport: Any

        def __init__(self) -> None:
            self.transport = self

        def get_write_buffer_size(self) -> int:
            nonlocal looks
            looks += 1
            if looks < 10:
                asyncio.ensure_future(wire.notify("session/cancel", {}))
            return 1000

        def abort(self) -> None:
            given_up.set()

        async def send(self, _: str) -> None:
            pass

        async def close(self) -> None:
            given_up.set()

        async def __aiter__(self) -> Any:
            await given_up.wait()
            for nothing in ():
                yield nothing

    wire = Wire(Slow(), lambda *_: None, lambda _: None, 0.03)
    await given_up.wait()
    assert looks >= 12
    await wire.close()


@asynchronous
async def test_a_connection_whose_other_end_is_gone_is_closed_in_silence() -> None:
    ended = asyncio.Event()

    class Gone:
        async def close(self) -> None:
            ended.set()
            raise websockets.exceptions.ConnectionClosedError(None, None)

        async def __aiter__(self) -> Any:
            await ended.wait()
            for nothing in ():
                yield nothing

    await Wire(Gone(), lambda *_: None, lambda _: None).close()


@asynchronous
async def test_a_client_that_is_disconnected_while_it_connects_stays_so(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled, cancelled = asyncio.Event(), asyncio.Event()

    async def swallows(*args: Any) -> Any:
        socket = await dial(*args)
        dialled.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
        return socket

    monkeypatch.setattr("sandbox_agent._wire.dial", swallows)
    async with SandboxAgent(gateway.url, agent="mock") as client:
        connecting = asyncio.ensure_future(client.connect())
        await dialled.wait()
        await client.disconnect()
        await cancelled.wait()
        with pytest.raises(NotConnectedError, match="the client was disconnected"):
            await connecting
        assert client.state == "idle"


@asynchronous
async def test_an_upload_that_the_network_breaks_says_how(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url) as client:

        async def pieces() -> Any:
            while True:
                yield b"." * (1 << 16)
                proxy.cut()

        with pytest.raises(ConnectionLostError, match=r"^PUT v2/fs/file at http://\S+: \w+"):
            await client.fs.write(f"{tmp_path}/file", pieces())


@asynchronous
async def test_who_waits_for_a_connection_that_is_ended_as_it_opens_opens_no_other(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        ended: list[asyncio.Task[None]] = []
        client.on_state(lambda state: ended.append(asyncio.ensure_future(client.disconnect())) if state == "open" else None)
        with pytest.raises(NotConnectedError, match="the client was disconnected"):
            await client.connect()
        await asyncio.gather(*ended)
        assert client.state == "idle" and len(ended) == 1


@pytest.mark.parametrize("end", ["disconnect", "aclose"])
@asynchronous
async def test_what_is_under_way_when_the_client_ends_was_not_lost(gateway: Gateway, end: str) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        session = await client.new_session(cwd="/tmp")
        asking = asyncio.ensure_future(client.request("session/prompt", {"sessionId": session.id, "prompt": [{"type": "text", "text": "permission"}]}))
        await client.requests().__anext__()
        wire = client._live
        assert wire is not None
        async with wire._outgoing:  # another message is on its way
            cancelling = asyncio.ensure_future(client.cancel(session.id))
            await asyncio.sleep(0)  # it waits behind that
            await getattr(client, end)()
        for what in (asking, cancelling):
            with pytest.raises(NotConnectedError, match="the client was disconnected"):
                await what


class Between:
    """Stands before a gateway. `look` is given each message of the client, and says whether it is passed on; `tell` those of the gateway."""

    def __init__(self, gateway: Gateway, look: Callable[[Any, dict[str, Any]], Awaitable[bool]] | None = None, tell: Callable[[Any, dict[str, Any]], Awaitable[bool]] | None = None) -> None:
        self._far, self._look, self._tell = gateway.url.replace("http", "ws", 1) + "/v2/rpc", look, tell
        self.near: Any = None  # the newest connection

    async def __aenter__(self) -> Between:
        self._server = await getattr(websockets, "serve")(self._pass_on, "127.0.0.1", 0, subprotocols=["acp.sandboxagent.dev"])
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _pass_on(self, near: Any) -> None:
        self.near = near
        async with getattr(websockets, "connect")(self._far, subprotocols=["acp.sandboxagent.dev"]) as far:

            async def back() -> None:
                async for frame in far:
                    if self._tell is None or await self._tell(near, json.loads(frame)):
                        await near.send(frame)

            task = asyncio.ensure_future(back())
            async for frame in near:
                if self._look is None or await self._look(near, json.loads(frame)):
                    await far.send(frame)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def refusal(request: dict[str, Any]) -> str:
    """As of a gateway whose node is away for a moment."""
    data = {"type": "urn:sandbox-agent:error:unavailable", "title": "Service unavailable", "status": 503}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "not now", "data": data}})


@pytest.mark.parametrize("agent", ["mock", "mock2"])
@pytest.mark.parametrize("version, knows", [(1, {"subagents": {}}), (2, {})])
@pytest.mark.parametrize("where", ["subagent_update", "allow_once"])
@asynchronous
async def test_a_connection_that_breaks_in_a_subagent_loses_no_frame_and_none_comes_twice(
    gateway: Gateway, version: Any, knows: dict[str, Any], agent: str, where: str
) -> None:
    """It breaks behind the call, which has the same place as what announces the subagent, or behind messages of the subagent."""
    cut: list[Any] = []

    async def tell(near: Any, message: dict[str, Any]) -> bool:
        update = (message.get("params") or {}).get("update") or {}
        if not cut and (update.get("sessionUpdate") == where or where in str(update.get("content"))):
            cut.append(near)
            await near.close()
        return near not in cut

    def kept(client: SandboxAgent) -> asyncio.Future[list[Any]]:
        told: list[Any] = []
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def listen(session_id: str, update: Any) -> None:
            if update["sessionUpdate"] not in ("state_update", "user_message_chunk"):  # whose prompt it is knows it
                told.append((session_id, update))
                if " is done." in json.dumps(update):
                    done.set_result(told)

        client.on_update(listen)
        return done

    async with Between(gateway, tell=tell) as between, SandboxAgent(between.url, agent=agent, acp_version=version, capabilities=knows, retry=QUICK) as client, SandboxAgent(gateway.url, agent=agent, acp_version=version, capabilities=knows) as other:
        client.on_permission(lambda ask: "allow_once")
        session = await client.new_session(cwd="/tmp")
        await other.resume_session(session.id)
        both = kept(client), kept(other)
        await session.prompt("subagent" if agent == "mock" else "child-permission")
        mine, theirs = await asyncio.gather(*both)
        assert mine == theirs
        assert cut and any(update["sessionUpdate"] == "subagent_update" for _, update in mine)


@SPOKEN
@pytest.mark.parametrize("lost", ["its prompt", "both"])
@asynchronous
async def test_a_cancel_comes_behind_a_prompt_that_is_sent_again(gateway: Gateway, version: Any, agent: str, lost: str) -> None:
    swallowed: list[str] = []

    async def look(near: Any, message: dict[str, Any]) -> bool:
        method = str(message.get("method"))
        if method not in ("session/prompt", "session/cancel") or method in swallowed or (method == "session/cancel" and lost != "both"):
            return True
        swallowed.append(method)
        if lost != "both" or method == "session/cancel":
            await near.close()
        return False

    async with Between(gateway, look) as between, SandboxAgent(between.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        away = asyncio.Event()
        client.on_state(lambda state: away.set() if state == "reconnecting" else None)
        turn = session.prompt("slow")
        if lost != "both":
            await away.wait()
        await turn.cancel()
        assert (await turn).stop_reason == "cancelled"


@SPOKEN
@pytest.mark.parametrize("method", ["_sandboxagent/session/pending", "_sandboxagent/session/get", "_sandboxagent/session/events"])
@asynchronous
async def test_a_turn_and_its_question_are_asked_about_until_there_is_an_answer(gateway: Gateway, version: Any, agent: str, method: str) -> None:
    refusals, enough = 0, asyncio.Event()

    async def look(near: Any, message: dict[str, Any]) -> bool:
        nonlocal refusals
        if refusals == 0 or message.get("method") != method:
            return True
        refusals -= 1
        await near.send(refusal(message))
        if refusals == 0:
            enough.set()
        return False

    async with Between(gateway, look) as between, SandboxAgent(between.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        turn = session.prompt("permission")
        ask = await client.requests().__anext__()
        refusals = 2
        away = asyncio.Event()
        client.on_state(lambda state: away.set() if state == "reconnecting" else None)
        await between.near.close()
        await away.wait()
        await client.request("_sandboxagent/session/get", {"sessionId": session.id})  # on the next connection
        await enough.wait()  # an end that is told before is not asked for
        await ask.allow()
        assert "allow" in (await turn).text


@SPOKEN
@asynchronous
async def test_a_session_that_cannot_be_attached_to_again_is_told_as_lost(gateway: Gateway, version: Any, agent: str) -> None:
    """Its prompts fail, and what its agent asks is open at the gateway."""
    refuses = False

    async def look(near: Any, request: dict[str, Any]) -> bool:
        if not refuses or request.get("method") != "session/resume":
            return True
        await near.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": "its agent did not start"}}))
        return False

    async with Between(gateway, look) as between, SandboxAgent(between.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        turn, requests = session.prompt("permission"), client.requests()
        await anext(requests)
        lost: asyncio.Future[tuple[str, str, int]] = asyncio.get_running_loop().create_future()
        client.on_session_lost(lambda session_id, why: lost.set_result((session_id, str(why), len(client.pending()))))
        refuses = True
        await between.near.close()
        assert await lost == (session.id, "its agent did not start", 1)
        with pytest.raises(RpcError):
            await turn
        assert client.pending() == []
        refuses = False
        again = await client.resume_session(session.id)
        await (await anext(requests)).allow()
        assert (await again.prompt("echo there")).text == "there"


@SPOKEN
@pytest.mark.parametrize("of", ["its own client", "another client"])
@asynchronous
async def test_prompts_that_wait_at_the_gateway_are_cancelled_and_nothing_else(gateway: Gateway, version: Any, agent: str, of: str) -> None:
    """Neither the turn that they wait for nor another client's prompt behind them."""
    prompts, all_sent = 0, asyncio.Event()
    want = 3 if of == "its own client" else 2

    async def look(near: Any, request: dict[str, Any]) -> bool:
        nonlocal prompts
        prompts += request.get("method") == "session/prompt"
        if prompts == want:
            all_sent.set()
        return True

    async with Between(gateway, look) as between, SandboxAgent(between.url, agent=agent, acp_version=version) as client, SandboxAgent(gateway.url, agent="mock") as other:
        whose = client if of == "its own client" else other
        session = await client.new_session(cwd="/tmp")
        await other.resume_session(session.id)
        first = whose.prompt(session.id, "permission")
        ask = await anext(whose.requests())
        second, third = session.prompt("echo two"), session.prompt("echo three")
        await all_sent.wait()
        await client.request("_sandboxagent/session/get", {"sessionId": session.id})  # they are there
        behind = other.prompt(session.id, "echo behind")
        await other.request("_sandboxagent/session/get", {"sessionId": session.id})
        await second.cancel()
        assert [(one.stop_reason, one.text) for one in (await second, await third)] == [("cancelled", "")] * 2
        await ask.allow()
        assert "allow" in (await first).text
        assert (await behind).text == "behind"
        assert (await session.prompt("echo four")).text == "four"


@SPOKEN
@pytest.mark.parametrize("then", ["has begun", "is over"])
@asynchronous
async def test_a_prompt_that_begins_while_its_cancel_is_on_its_way_ends_and_nothing_else(gateway: Gateway, version: Any, agent: str, then: str) -> None:
    arrives = asyncio.Event()

    async def look(near: Any, request: dict[str, Any]) -> bool:
        if request.get("method") == "session/cancel":
            await arrives.wait()
        return True

    async with Between(gateway, look) as between, SandboxAgent(between.url, agent=agent, acp_version=version) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await other.resume_session(session.id)
        requests = other.requests()
        first = other.prompt(session.id, "permission")
        ask = await anext(requests)
        second = session.prompt("permission" if then == "has begun" else "echo two")
        await client.request("_sandboxagent/session/get", {"sessionId": session.id})  # it is there
        await second.cancel()
        await ask.allow()
        assert "allow" in (await first).text
        if then == "has begun":
            await anext(requests)
            behind = other.prompt(session.id, "echo behind")
            await other.request("_sandboxagent/session/get", {"sessionId": session.id})
            arrives.set()
            assert (await second).stop_reason == "cancelled"
            assert (await behind).text == "behind"
        else:
            assert (await second).text == "two"
            behind = other.prompt(session.id, "permission")
            ask = await anext(requests)
            arrives.set()
            assert (await client.request("_sandboxagent/session/get", {"sessionId": session.id}))["state"] == "waiting"
            await ask.allow()
            assert "allow" in (await behind).text


@SPOKEN
@pytest.mark.parametrize("lost", ["the cancel", "the prompt and the cancel", "the answer"])
@asynchronous
async def test_the_cancel_of_a_prompt_that_waits_is_sent_again_on_the_next_connection_and_ends_nothing_else(gateway: Gateway, version: Any, agent: str, lost: str) -> None:
    prompt: Any = None
    done = False

    async def look(near: Any, message: dict[str, Any]) -> bool:
        nonlocal prompt, done
        if message.get("method") == "session/prompt" and prompt is None:
            prompt = message["id"]
            return lost != "the prompt and the cancel"
        if message.get("method") == "session/cancel" and not done and lost != "the answer":
            done = True
            await near.close()
            return False
        return True

    async def tell(near: Any, message: dict[str, Any]) -> bool:
        nonlocal done
        if lost == "the answer" and not done and message.get("id") == prompt and "method" not in message:
            done = True
            await near.close()
        return not (done and near is cut)

    cut: Any = None
    async with Between(gateway, look, tell) as between, SandboxAgent(between.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        cut = between.near
        await other.resume_session(session.id)
        first = other.prompt(session.id, "permission")
        ask = await anext(other.requests())
        second = session.prompt("echo two")
        await client.request("_sandboxagent/session/get", {"sessionId": session.id})  # it is there, unless it is lost
        await second.cancel()
        third = session.prompt("echo three")
        assert ((await second).stop_reason, (await second).text) == ("cancelled", "")
        assert done
        await ask.allow()
        assert "allow" in (await first).text
        assert (await third).text.endswith("three")  # version 1 takes what runs for its own when it is back
