"""What a program loses, or is told wrongly, where two events meet: it opens a session that it has open, its connection breaks, others act meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conftest import Gateway, Proxy, asynchronous
from sandbox_agent import Retry, RpcError, SandboxAgent, Session, TurnInterruptedError

QUICK = Retry(first=0.001, longest=0.02)
SPOKEN = pytest.mark.parametrize("version, agent", [(1, "mock"), (2, "mock"), (2, "mock2")])


def heard(session: Session) -> list[str]:
    """What the agent says in a session, as it comes."""
    said: list[str] = []
    session.on_update(lambda update: said.append(update["content"]["text"]) if update["sessionUpdate"] == "agent_message_chunk" else None)  # type: ignore[typeddict-item, index]
    return said


async def lost(client: SandboxAgent, proxy: Proxy) -> None:
    """Has the client notice that its connection is lost; the next one is refused."""
    noticed = asyncio.Event()
    client.on_state(lambda state: noticed.set() if state == "reconnecting" else None)
    proxy.refusing = True
    proxy.cut()
    await noticed.wait()


@SPOKEN
@pytest.mark.parametrize("how", ["load", "resume"])
@asynchronous
async def test_a_session_that_is_open_with_a_turn(gateway: Gateway, version: Any, agent: str, how: str) -> None:
    async with SandboxAgent(gateway.url, agent=agent, acp_version=version) as client:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo before")
        said = heard(session)
        turn = session.prompt("stream 2000 2000")
        async for update in turn:
            if update["sessionUpdate"] == "agent_message_chunk":
                break
        at = len(said)
        await (client.load_session if how == "load" else client.resume_session)(session.id, cwd="/tmp")
        text = (await turn).text
        if how == "load":
            begins = len(said) - said[::-1].index("before")
            assert begins > at
            said = said[begins:]
        assert len("".join(said)) == len(text) == 2000 * 2000
        assert "".join(said) == text


@SPOKEN
@asynchronous
async def test_a_session_that_was_open_before_the_client_connected_anew(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo before")
        await client.disconnect()
        said = heard(session)
        turn = session.prompt("stream 1000 2000")
        async for update in turn:
            if update["sessionUpdate"] == "agent_message_chunk":
                break
        proxy.cut()
        assert len((await turn).text) == 1000 * 2000
        assert len("".join(said)) == 1000 * 2000


@SPOKEN
@asynchronous
async def test_the_end_of_a_turn_that_is_no_longer_kept_when_the_client_is_back(version: Any, agent: str) -> None:
    own = Gateway(["--no-token", "--ephemeral", "--max-memory", "64MiB"])
    try:
        async with Proxy(own.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(own.url, agent="mock") as other:
            session = await client.new_session(cwd="/tmp")
            theirs = await other.resume_session(session.id)
            turn = session.prompt("slow")
            async for update in turn:
                if update["sessionUpdate"] == "agent_message_chunk":
                    break
            proxy.refusing = True
            proxy.cut()
            await theirs.cancel()
            for _ in range(4):
                await theirs.prompt("stream 40 100000")  # more than an eighth of its memory, which it keeps
            proxy.refusing = False
            with pytest.raises(RpcError) as failed:
                await turn
            assert failed.value.oldest_kept
    finally:
        own.stop()


@SPOKEN
@asynchronous
async def test_a_turn_that_was_lost_with_its_gateway_and_another_clients_that_runs_when_the_client_is_back(version: Any, agent: str) -> None:
    own = Gateway(["--no-token"])
    try:
        async with Proxy(own.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:
            session = await client.new_session(cwd="/tmp")
            turn = session.prompt("slow")
            async for update in turn:
                if update["sessionUpdate"] == "agent_message_chunk":
                    break
            proxy.refusing = True
            own.kill()
            own.restart()
            async with SandboxAgent(own.url, agent="mock") as other:
                theirs = await other.resume_session(session.id)
                following = theirs.prompt("permission")
                async for _ in other.requests():
                    break
                proxy.refusing = False
                with pytest.raises(TurnInterruptedError):
                    await turn
                await theirs.cancel()
                await following
                assert (await session.prompt("echo on")).text == "on"
    finally:
        own.stop()


@SPOKEN
@pytest.mark.parametrize("how, reason", [("delete", "deleted"), ("close", "closed"), ("terminate", "terminated")])
@asynchronous
async def test_another_client_ends_a_session_while_there_is_no_connection(gateway: Gateway, version: Any, agent: str, how: str, reason: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo before")
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        client.on_notice(lambda method, params: told.set_result(params["data"]["reason"]) if method == "_sandboxagent/session/ended" else None)
        proxy.refusing = True
        proxy.cut()
        await getattr(other, f"{how}_session")(session.id)
        proxy.refusing = False
        assert await told == reason
        if how != "delete":
            assert (await other.api.session(session.id))["state"] == {"close": "closed", "terminate": "ended"}[how]


@SPOKEN
@asynchronous
async def test_the_end_of_an_own_turn_is_told_once(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        told: list[Any] = []
        client.on_notice(lambda method, params: told.append(params) if method == "_sandboxagent/session/turn_ended" else None)
        for _ in range(5):
            assert (await session.prompt("echo on")).text == "on"
            proxy.cut()
        await session.prompt("echo on")
        titled = asyncio.Event()
        session.on_update(lambda update: titled.set() if update["sessionUpdate"] == "session_info_update" else None)
        await client.request("_sandboxagent/session/set_metadata", {"sessionId": session.id, "title": "behind all that is told"})
        await titled.wait()
        assert told == []


@SPOKEN
@asynchronous
async def test_of_modes_that_are_chosen_while_the_connection_breaks_the_last_one_counts(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        for turns in range(6):
            chosen = [asyncio.ensure_future(session.set_mode("plan"))]
            await asyncio.sleep(0)
            proxy.cut()
            for _ in range(turns):
                await asyncio.sleep(0)
            chosen += [asyncio.ensure_future(session.set_mode(mode)) for mode in ("code", "ask")]
            await asyncio.gather(*chosen)
            options = (await client.resume_session(session.id)).config_options
            assert [option["currentValue"] for option in options if option["category"] == "mode"] == ["ask"]


@SPOKEN
@asynchronous
async def test_a_session_that_is_loaded_while_the_client_connects_anew(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo before")
        said = heard(session)
        await lost(client, proxy)
        loading = asyncio.ensure_future(client.load_session(session.id, cwd="/tmp"))
        await asyncio.sleep(0)  # it begins
        proxy.refusing = False
        await loading
        assert said == ["before"]
        assert (await session.prompt("echo after")).text == "after"
        assert said == ["before", "after"]


@SPOKEN
@asynchronous
async def test_what_was_said_behind_an_older_event_comes_again_when_the_session_is_resumed_there_while_the_client_connects_anew(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo one")
        after = (await client.api.session(session.id))["eventCount"]
        await session.prompt("echo two")
        said = heard(session)
        await lost(client, proxy)
        resuming = asyncio.ensure_future(client.resume_session(session.id, cwd="/tmp", after=after))
        await asyncio.sleep(0)  # it begins
        proxy.refusing = False
        await resuming
        assert (await session.prompt("echo three")).text == "three"
        assert said == ["two", "three"]


@SPOKEN
@pytest.mark.parametrize("how", ["close", "terminate"])
@asynchronous
async def test_the_end_of_a_session_is_told_once_however_often_the_connection_breaks(gateway: Gateway, version: Any, agent: str, how: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo before")
        told: asyncio.Queue[Any] = asyncio.Queue()
        client.on_notice(lambda method, params: told.put_nowait(params) if method == "_sandboxagent/session/ended" else None)
        await getattr(other, f"{how}_session")(session.id)
        await told.get()
        for _ in range(2):
            await lost(client, proxy)
            proxy.refusing = False
            await client.request("_sandboxagent/session/get", {"sessionId": session.id})  # on the next connection
        assert told.empty()


@SPOKEN
@asynchronous
async def test_prompts_that_wait_while_another_client_ends_their_session_fail_and_it_has_ended(gateway: Gateway, version: Any, agent: str) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client, SandboxAgent(gateway.url, agent="mock") as other:
        session = await client.new_session(cwd="/tmp")
        await lost(client, proxy)
        turns = [session.prompt(f"echo {word}") for word in ("one", "two")]
        await other.terminate_session(session.id)
        proxy.refusing = False
        for turn in turns:
            with pytest.raises(RpcError):
                await turn
        assert (await other.api.session(session.id))["state"] == "ended"
