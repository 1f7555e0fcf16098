"""Whose turn an update is of, and what ends a prompt, when others have prompts in the session too."""

from __future__ import annotations

import asyncio
import types
from typing import Any

import pytest

from conftest import asynchronous
from sandbox_agent._backoff import Backoff, Retry
from sandbox_agent._prompts import Prompts
from sandbox_agent.errors import ConnectionLostError, NotConnectedError, RpcError
from sandbox_agent.versions import AcpVersion

BEGINS = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "theirs"}, "_meta": {"sandboxagent.dev": {"prompt": True}}}


class Gateway:
    """A connection, and the client that has it."""

    def __init__(self, version: AcpVersion) -> None:
        self.closed = asyncio.Event()
        self.prompts = Prompts(version, self)  # type: ignore[arg-type]
        self.tasks: list[asyncio.Task[Any]] = []
        self.asked: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
        self.name = ""
        self.states: list[str] = []  # that are told first, before it is said to run
        self.kept: dict[str, Any] | None = None  # the message of event 5, where those before it are no longer kept

    _disconnects = 0

    async def _connected(self, session_id: str, since: int | None = None) -> Any:
        return self

    def _goes_on(self) -> bool:
        return True

    def _backoff(self) -> Backoff:
        return Backoff(Retry())

    def _prompted(self, session_id: str) -> None:
        pass

    def _after(self, session_id: str) -> int | None:
        return 0

    def _newest(self, session_id: str) -> int:
        return 0

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    async def request(self, method: str, params: Any, answered: Any = None, sent: Any = None) -> Any:
        if method == "_sandboxagent/session/get":
            return {"state": self.states.pop(0) if self.states else "running"}
        if method == "_sandboxagent/session/events" and self.kept is not None:
            if params["after"] < 4:
                raise RpcError(-32603, "no longer kept", {"type": "urn:sandbox-agent:error:events_expired", "oldestSeq": 5})
            return {"events": [{"seq": 5, "message": self.kept}]}
        if method == "_sandboxagent/session/events":
            return {"events": [{"seq": 1, "message": {"method": "session/prompt", "params": {"_meta": {"sandboxagent.dev": {"promptId": self.name}}}}}]}
        self.name = params["_meta"]["sandboxagent.dev"]["promptId"]
        sent()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self.asked.put((answered, future))
        return await future

    async def sent(self) -> None:
        while self.asked.empty():
            await asyncio.sleep(0)

    async def answer(self, result: Any) -> None:
        answered, future = await self.asked.get()
        answered(result)
        future.set_result(result)

    def said(self, text: str) -> None:
        self.prompts.update("s", {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


@asynchronous
async def test_anothers_turn_goes_on_when_a_prompt_that_waited_for_it_is_cancelled() -> None:
    g = Gateway(1)
    g.prompts.update("s", BEGINS)
    g.prompts.ended({"sessionId": "s", "result": {"stopReason": "cancelled"}, "began": False})
    turn = g.prompts.add("s", [])
    await g.sent()
    g.said("theirs")
    g.prompts.ended({"sessionId": "s", "result": {"stopReason": "cancelled"}, "began": True})
    g.said("mine")
    await g.answer({"stopReason": "end_turn"})
    assert (await turn).text == "mine"


@asynchronous
async def test_an_own_prompt_that_is_cancelled_while_it_waits_has_nothing_of_the_turn_before_it() -> None:
    g = Gateway(1)
    g.prompts.update("s", BEGINS)
    waits = g.prompts.add("s", [])
    await g.sent()
    g.said("theirs")
    await g.answer({"stopReason": "cancelled", "_meta": {"sandboxagent.dev": {"began": False}}})
    assert (await waits).text == ""
    turn = g.prompts.add("s", [])
    await g.sent()
    g.said("theirs, too")
    g.prompts.ended({"sessionId": "s", "result": {"stopReason": "cancelled"}, "began": True})
    g.said("mine")
    await g.answer({"stopReason": "end_turn"})
    assert (await turn).text == "mine"


@pytest.mark.parametrize("version", [1, 2])
@asynchronous
async def test_a_prompt_that_an_earlier_connection_brings_while_the_gateway_is_asked_for_it_was_not_interrupted(version: AcpVersion) -> None:
    g = Gateway(version)
    g.states = ["idle"]  # then the prompt came, which is among the events
    turn = g.prompts.add("s", [])
    _, asked = await g.asked.get()
    asked.set_exception(ConnectionLostError("it was lost"))
    while g.states:
        await asyncio.sleep(0)
    g.prompts.ended({"sessionId": "s", "promptId": g.name, "result": {"stopReason": "end_turn"}})
    if version == 2:
        g.prompts.update("s", {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"})
    assert (await turn).stop_reason == "end_turn"


@pytest.mark.parametrize("behind", [
    {"method": "session/prompt", "params": {}},
    {"method": "_sandboxagent/session/turn_ended", "params": {"sessionId": "s", "error": {"code": -32603, "message": "the gateway was ended"}, "began": True}},
])
@pytest.mark.parametrize("version", [1, 2])
@asynchronous
async def test_a_turn_whose_beginning_is_no_longer_kept_is_over_when_another_one_or_an_end_is_behind_it(version: AcpVersion, behind: dict[str, Any]) -> None:
    g = Gateway(version)
    g.kept = behind
    turn = g.prompts.add("s", [])
    await g.sent()
    if version == 1:
        g.said("mine")
        _, asked = await g.asked.get()
        asked.set_exception(ConnectionLostError("it was lost"))
    else:
        await g.answer({"messageId": "sa.1"})
        g.closed.set()
    with pytest.raises(RpcError, match="no longer kept"):
        await asyncio.wait_for(_result(turn), 5)


@pytest.mark.parametrize("what", ["detached", "deleted"])
@pytest.mark.parametrize("version", [1, 2])
@asynchronous
async def test_a_session_that_is_detached_or_deleted_leaves_no_prompt_waiting(version: AcpVersion, what: str) -> None:
    g = Gateway(version)
    turn = g.prompts.add("s", [])
    if version == 2:
        await g.answer({"messageId": "sa.1"})
    else:
        _, future = await g.asked.get()
        future.set_exception(ConnectionLostError("lost"))
    for _ in range(20):
        await asyncio.sleep(0)
    getattr(g.prompts, what)("s")
    with pytest.raises(NotConnectedError if what == "detached" else RpcError, match=what):
        await asyncio.wait_for(_result(turn), 5)


async def _result(turn: Any) -> Any:
    return await turn


@asynchronous
async def test_a_prompt_that_failed_while_the_client_was_away_is_not_sent_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Gateway(2)
    back = asyncio.Event()

    async def connected(session_id: str, since: int | None = None) -> Any:
        await back.wait()
        return g

    monkeypatch.setattr(g, "_connected", connected)
    turn = g.prompts.add("s", [])
    g.prompts.fail_of("s", ConnectionLostError("the session is gone"))
    with pytest.raises(ConnectionLostError):
        await turn
    back.set()
    while not g.tasks[0].done() and g.asked.empty():
        await asyncio.sleep(0)
    assert g.asked.empty()


@asynchronous
async def test_the_end_of_a_turn_is_that_of_each_that_has_begun() -> None:
    """That of the one before may be lost with its gateway."""
    g = Gateway(2)
    turns = [g.prompts.add("s", []) for _ in range(2)]
    for number in (1, 2):
        await g.answer({"messageId": f"sa.{number}"})
    g.prompts.update("s", {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"})
    assert g.prompts.ended({"sessionId": "s", "promptId": g.name, "result": {"stopReason": "end_turn"}})
    assert (await asyncio.wait_for(_result(turns[1]), 5)).stop_reason == "end_turn"


REFUSED = RpcError(-32603, "not now", {"type": "urn:sandbox-agent:error:node_offline"})


@pytest.mark.parametrize("again", ["anew", "lost"])
@asynchronous
async def test_a_prompt_that_was_found_is_looked_for_anew_when_that_is_needed_again(monkeypatch: pytest.MonkeyPatch, again: str) -> None:
    now = 1.0

    async def sleep(_: float) -> None:
        pass

    monkeypatch.setattr("sandbox_agent._backoff.time", types.SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("sandbox_agent._backoff.asyncio", types.SimpleNamespace(sleep=sleep))
    g = Gateway(1)
    refusals = 1
    looked = asyncio.Event()
    request = g.request

    async def refuses(method: str, params: Any, answered: Any = None, sent: Any = None) -> Any:
        nonlocal refusals
        if method == "_sandboxagent/session/get" and refusals > 0:
            refusals -= 1
            raise REFUSED
        if method == "_sandboxagent/session/events":
            looked.set()
        return await request(method, params, answered, sent)

    monkeypatch.setattr(g, "_backoff", lambda: Backoff(Retry(give_up=40)))  # of each try 45 s count
    monkeypatch.setattr(g, "request", refuses)
    turn = g.prompts.add("s", [])
    _, future = await g.asked.get()
    future.set_exception(ConnectionLostError("lost"))
    await looked.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    now += 3600
    refusals = 1
    looked.clear()
    if again == "anew":
        g.prompts.reopened("s")
    else:
        lost, g.closed = g.closed, asyncio.Event()
        lost.set()
    found = asyncio.ensure_future(looked.wait())
    result = asyncio.ensure_future(_result(turn))
    await asyncio.wait({found, result}, return_when=asyncio.FIRST_COMPLETED)
    assert not result.done()
    assert g.prompts.ended({"sessionId": "s", "promptId": g.name, "result": {"stopReason": "end_turn"}})
    assert (await result).stop_reason == "end_turn"


@pytest.mark.parametrize("fails", [False, True])
@asynchronous
async def test_a_cancel_whose_connection_is_lost_while_it_is_sent_is_repeated_unless_it_failed(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    g = Gateway(1)
    sends: list[asyncio.Future[None]] = []

    async def notify(method: str, _: Any) -> None:
        assert method == "session/cancel"
        sends.append(asyncio.get_running_loop().create_future())
        await sends[-1]

    monkeypatch.setattr(g, "notify", notify, raising=False)
    monkeypatch.setattr(g, "left", fails, raising=False)
    g.prompts.add("s", [])
    _, future = await g.asked.get()
    cancel = asyncio.ensure_future(g.prompts.cancel("s"))
    while not sends:
        await asyncio.sleep(0)
    if fails:
        sends[0].set_exception(ConnectionLostError("lost"))
        with pytest.raises(NotConnectedError):
            await cancel
    future.set_exception(ConnectionLostError("lost"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(sends) == (1 if fails else 2)
    for task in [cancel, *g.tasks]:
        task.cancel()
    await asyncio.gather(cancel, *g.tasks, return_exceptions=True)


class Breaking(Gateway):
    """A connection that breaks in the middle of a cancel."""

    def __init__(self) -> None:
        super().__init__(1)
        self.left = False
        self.closed.set()
        self.cancels = 0
        self.meanwhile: Any = lambda: asyncio.sleep(0)

    async def notify(self, method: str, params: Any) -> None:
        self.cancels += 1
        await self.meanwhile()
        raise ConnectionLostError("it broke")


@asynchronous
async def test_a_cancel_of_what_no_prompt_of_this_client_asked_for_is_not_sent_again_on_another_connection() -> None:
    g = Breaking()
    with pytest.raises(ConnectionLostError):
        await g.prompts.cancel("s")
    assert g.cancels == 1


@asynchronous
async def test_a_cancel_is_not_sent_again_when_the_turns_that_it_was_to_end_are_over() -> None:
    g = Breaking()
    turn = g.prompts.add("s", [])
    await g.sent()

    async def ends() -> None:
        await g.answer({"stopReason": "end_turn"})
        await turn

    g.meanwhile = ends
    await g.prompts.cancel("s")
    assert g.cancels == 1
