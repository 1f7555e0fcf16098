"""What the client has of version 2 of ACP alone. What both versions have is in test_client.py and test_recovery.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conftest import Gateway, Proxy, asynchronous
from sandbox_agent import Activity, Ask, ProtocolVersionError, Retry, RpcError, SandboxAgent, Session, sync

AGENTS = pytest.mark.parametrize("agent", ["mock", "mock2"])


def connect(gateway: Gateway, agent: str = "mock2", **options: Any) -> SandboxAgent:
    client = SandboxAgent(gateway.url, agent=agent, acp_version=2, **options)
    client.on_permission(lambda ask: "allow_once")
    return client


class Heard:
    """The updates of one kind."""

    def __init__(self, client: SandboxAgent, kind: str) -> None:
        self.updates: list[tuple[str, Any]] = []
        self._kind = kind
        self._more = asyncio.Event()
        client.on_update(self._listen)

    def _listen(self, session_id: str, update: Any) -> None:
        if update["sessionUpdate"] == self._kind:
            self.updates.append((session_id, update))
            self._more.set()

    def of(self, name: str) -> list[Any]:
        return [update.get(name) for _, update in self.updates]

    async def count(self, count: int) -> None:
        """Waits for so many."""
        while len(self.updates) < count:
            self._more.clear()
            await self._more.wait()


@asynchronous
async def test_the_version_is_the_one_that_was_asked_for_or_an_error_says_why_not(gateway: Gateway) -> None:
    async with connect(gateway) as client:
        hello = await client.connect()
        assert (client.acp_version, hello["protocolVersion"], bool(hello["info"]["name"])) == (2, 2, True)
    with pytest.raises(ValueError, match="acp_version is 1 or 2, not 3"):
        SandboxAgent(gateway.url, acp_version=3)  # type: ignore[arg-type]
    old = Gateway(["--no-token", "--acp-versions", "1"])
    try:
        async with connect(old) as client:
            with pytest.raises(ProtocolVersionError, match="does not speak version 2 of ACP"):
                await client.connect()
            assert client.state == "idle"
    finally:
        old.stop()


@AGENTS
@asynchronous
async def test_a_turn_has_its_updates_from_its_message_to_its_end_and_those_of_no_other(gateway: Gateway, agent: str) -> None:
    async with connect(gateway, agent) as client:
        session = await client.new_session(cwd="/tmp")
        words = ["one", "two"]
        for word, turn in zip(words, [session.prompt(f"echo {word}") for word in words]):
            updates: list[Any] = [update async for update in turn]
            kinds = [update["sessionUpdate"] for update in updates]
            assert kinds[:2] == ["user_message", "state_update"] and kinds.count("user_message") == 1
            assert (updates[-1]["sessionUpdate"], updates[-1]["state"], updates[-1]["stopReason"]) == ("state_update", "idle", "end_turn")
            result = await turn
            assert (result.text, result.stop_reason, result.response["messageId"]) == (word, "end_turn", updates[0]["messageId"])


@AGENTS
@asynchronous
async def test_a_prompt_that_is_cancelled_before_it_begins_has_no_message(gateway: Gateway, agent: str) -> None:
    async with connect(gateway, agent) as client:
        session = await client.new_session(cwd="/tmp")
        slow = session.prompt("slow")
        async for update in slow:
            if update["sessionUpdate"] == "agent_message_chunk":
                break
        waiting = session.prompt("echo never")
        await session.cancel()
        ended, never = await slow, await waiting
        assert ended.stop_reason == "cancelled" and ended.response["messageId"]
        assert (never.stop_reason, never.response, never.text) == ("cancelled", {}, "")


@AGENTS
@asynchronous
async def test_a_command_is_a_terminal(gateway: Gateway, agent: str) -> None:
    async with connect(gateway, agent) as client:
        session = await client.new_session(cwd="/tmp")
        told: list[Activity] = []
        client.on_activity(told.append)
        await session.prompt("run")
        activity = session.activity
        assert activity is not None and len(told) > 3 and told[0] is activity
        [command] = activity.commands
        assert (command.command, command.cwd, command.session_id, command.output) == ("count; exit 3", "/tmp", session.id, b"one\ntwo\nthree")
        assert command.exit_status is not None and command.exit_status["exitCode"] == 3
        assert activity.command(command.terminal_id) is command


@AGENTS
@asynchronous
async def test_another_client_replays_it_sees_states_and_may_be_of_version_1(gateway: Gateway, agent: str) -> None:
    async with connect(gateway, agent) as client, connect(gateway, agent) as two, SandboxAgent(gateway.url, agent=agent) as one:
        session = await client.new_session(cwd="/tmp")
        await session.prompt("echo first")
        said, late, states = Heard(two, "agent_message_chunk"), Heard(one, "agent_message_chunk"), Heard(two, "state_update")
        await two.load_session(session.id)
        await one.load_session(session.id)
        assert [[content["text"] for content in heard.of("content")] for heard in (said, late)] == [["first"], ["first"]]
        activity = two.activity(session.id)
        assert activity is not None and (activity.state, states.of("state")) == ("idle", ["idle"])
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        two.on_notice(lambda method, params: ended.set_result(params) if method.endswith("turn_ended") and not ended.done() else None)
        await session.prompt("permission")
        assert (await ended)["result"]["stopReason"] == "end_turn"
        await states.count(5)
        assert states.of("state")[1:] == ["running", "requires_action", "running", "idle"]
        await two.resume_session(session.id)
        assert (await two.prompt(session.id, "echo by another")).text == "by another"


@asynchronous
async def test_notices_compactions_and_replaced_messages(gateway: Gateway) -> None:
    async with connect(gateway) as client:
        session = await client.new_session(cwd="/tmp")
        notices, compactions = Heard(client, "notice"), Heard(client, "compaction_update")
        await session.prompt("notice")
        await session.prompt("compaction")
        assert (notices.of("severity"), notices.of("title")) == (["warning"], ["The disk is nearly full"])
        assert compactions.of("status") == ["in_progress", "completed"]
        assert (await session.prompt("upsert")).text == "The final text."


@asynchronous
async def test_a_subagent_is_a_session_of_its_own_and_asks_as_such(gateway: Gateway) -> None:
    async with connect(gateway) as client:
        asked: list[Ask] = []
        client.on_permission(lambda ask: asked.append(ask) or "allow_once")
        session = await client.new_session(cwd="/tmp")
        said = Heard(client, "agent_message_chunk")
        text = (await session.prompt("child-permission")).text
        activity = session.activity
        assert activity is not None
        [child] = activity.subagents.values()
        assert (child.title, child.parent_id, child.state) == ("Look around", session.id, "idle")
        assert [(ask.session_id, ask.title) for ask in asked] == [(child.session_id, "May I?")]
        assert text == "The child is done."
        assert "".join(update["content"]["text"] for of, update in said.updates if of == child.session_id) == "permission: allow_once"


@pytest.mark.parametrize("version", [1, 2])
@asynchronous
async def test_a_permission_request_says_what_it_is_for(gateway: Gateway, version: Any) -> None:
    async with SandboxAgent(gateway.url, agent="mock2", acp_version=version) as client:
        session = await client.new_session(cwd="/tmp")
        turn = session.prompt("permission")
        ask = await client.requests().__anext__()
        assert ask.title and ask.subject["type"] == "tool_call" and ask.tool_call["toolCallId"]
        await ask.allow()
        await turn


@asynchronous
async def test_what_goes_on_in_the_background_is_known_and_can_be_ended_by_itself(gateway: Gateway) -> None:
    async with connect(gateway) as client:
        session = await client.new_session(cwd="/tmp")
        assert (await session.prompt("background 1000")).stop_reason == "end_turn"
        activity = session.activity
        assert activity is not None
        [work] = activity.background
        assert work["type"] == "terminal"
        command = activity.command(work["terminalId"])
        assert command is not None and (command.command, command.cancellable, command.exit_status) == ("tick", True, None)
        unprompted, states = Heard(client, "agent_message_chunk"), Heard(client, "state_update")
        await client.cancel_terminal(session.id, work["terminalId"])
        await unprompted.count(1)
        assert unprompted.updates[0][1]["content"]["text"] == "The command in the background is cancelled."
        while activity.background:
            await states.count(len(states.updates) + 1)
        command = activity.command(work["terminalId"])
        assert command is not None and command.exit_status is not None and command.exit_status["signal"] == "SIGTERM"


@asynchronous
async def test_a_call_can_be_cancelled_by_itself(gateway: Gateway) -> None:
    async with connect(gateway) as client:
        session = await client.new_session(cwd="/tmp")
        turn = session.prompt("cancellable")
        async for update in turn:
            told: Any = update
            if told["sessionUpdate"] == "tool_call_update" and (told.get("capabilities") or {}).get("cancel") is not None:
                await client.cancel_tool_call(session.id, told["toolCallId"])
        assert (await turn).stop_reason == "end_turn"


@pytest.mark.parametrize("broken", [True, False])
@AGENTS
@asynchronous
async def test_no_older_state_is_told_of_a_turn_that_ends_when_the_connection_breaks_or_the_session_is_opened_again(gateway: Gateway, agent: str, broken: bool) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=2, retry=Retry(first=0.01)) as client, connect(gateway, agent) as other:
        session = await client.new_session(cwd="/tmp")
        heard = Heard(client, "state_update")
        if broken:
            await session.prompt("echo on")
            lost = asyncio.Event()
            client.on_state(lambda _: lost.set())
            proxy.cut()
            await lost.wait()
        else:
            turn = session.prompt("permission")
            await heard.count(2)
            proxy.takes.clear()
            opened = asyncio.ensure_future(client.resume_session(session.id, cwd="/tmp"))
            await other.resume_session(session.id)
            await heard.count(4)
            proxy.takes.set()
            await asyncio.gather(opened, turn)
        await client.request("_sandboxagent/session/get", {"sessionId": session.id})
        states = heard.of("state")
        assert set(states[states.index("idle"):]) == {"idle"} and session.activity is not None and session.activity.state == "idle"


@asynchronous
async def test_every_method_of_a_session(gateway: Gateway) -> None:
    async with connect(gateway) as client:
        session = await client.new_session(cwd="/tmp", title="Second", mcp_servers=[{"type": "stdio", "name": "none", "command": "true"}])
        await session.prompt("echo hi")

        async def chosen(category: str) -> Any:
            opened: Session = await client.resume_session(session.id)
            [option] = [option for option in opened.config_options if option.get("category") == category]
            return option["currentValue"]

        await session.set_mode("plan")
        assert await chosen("mode") == "plan"
        await session.set_config_option("model", "mock-large")
        assert await chosen("model") == "mock-large"
        fork = await client.fork_session(session.id)
        assert (await fork.prompt("echo forked")).text == "forked"
        with pytest.raises(RpcError, match="of version 1"):
            await client.request("session/set_mode", {"sessionId": session.id, "modeId": "plan"})
        await session.close()
        assert (await client.resume_session(session.id)).continuity
        assert (await session.prompt("echo back")).text == "back"
        await client.detach_session(session.id)
        assert session.activity is None
        await session.delete()
        await fork.delete()


@asynchronous
async def test_who_leaves_a_session_and_sends_a_prompt_right_behind_that_is_told_how_it_ends_or_why_it_is_refused(gateway: Gateway) -> None:
    async with connect(gateway) as client:
        session = await client.new_session(cwd="/tmp")
        left = asyncio.ensure_future(client.detach_session(session.id))
        await asyncio.sleep(0)  # it begins
        turn = session.prompt("echo on")
        await left
        assert (await turn).text == "on"
        left = asyncio.ensure_future(client.detach_session(session.id))
        await asyncio.sleep(0)
        refused = session.prompt([{"type": "text"}])  # type: ignore[list-item]
        await left
        with pytest.raises(RpcError):
            await refused


def test_the_same_without_async(gateway: Gateway) -> None:
    with sync.SandboxAgent(gateway.url, agent="mock2", acp_version=2) as client:
        session = client.new_session(cwd="/tmp")
        assert session.activity is not None and session.activity.state == "idle"
        client.on_permission(lambda ask: ask.select(next(option["optionId"] for option in ask.options if option["kind"] == "allow_once")))
        turn = session.prompt("permission")
        assert [update["sessionUpdate"] for update in turn][0] == "user_message"
        assert turn.result().response["messageId"]
        session.prompt("run").result()
        assert session.activity.commands[-1].output == b"one\ntwo\nthree"
