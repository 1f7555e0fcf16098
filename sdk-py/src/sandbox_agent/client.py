"""A client of one gateway."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ._backoff import Backoff, Retry
from ._wire import SUBPROTOCOL, Wire, dial
from .acp_types import ContentBlock, McpServer, SessionUpdate
from .api import Api, Token
from .api_types import Session as SessionInfo
from .asks import ELICITATION, PERMISSION, QUESTION, Ask, Asks, Handler
from .errors import ConnectionLostError, NotConnectedError, ProblemError, RpcError, TurnInterruptedError
from .files import Files
from .processes import Processes
from .session import META, Session, meta_of
from .turn import Turn

TURN_ENDED = "_sandboxagent/session/turn_ended"

State: TypeAlias = Literal["idle", "connecting", "open", "reconnecting"]
UpdateListener: TypeAlias = Callable[[str, SessionUpdate], None]
NoticeListener: TypeAlias = Callable[[str, "dict[str, Any]"], None]


@dataclass
class _Attached:
    """What a session needs on a new connection."""

    cwd: str
    params: dict[str, Any]
    after: int = 0  # the newest event seen


@dataclass(eq=False)
class _Prompt:
    id: str
    session_id: str
    turn: Turn
    params: dict[str, Any]
    start_after: int  # the newest event of the session before it
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: dict[str, Any] | None = None  # told on a later connection than it was asked on
    told: asyncio.Event = field(default_factory=asyncio.Event)


class SandboxAgent:
    """A client of one gateway: its agents by ACP, its machine by HTTP.

    >>> async with SandboxAgent("http://127.0.0.1:2468", agent="claude") as client:
    ...     session = await client.new_session(cwd="/workspace")
    ...     print((await session.prompt("hello")).text)

    One client has one ACP connection, which is opened when it is needed. A connection
    that is lost is replaced: sessions and prompts carry on, nothing is missing and
    nothing comes twice. A client belongs to one event loop.
    """

    def __init__(
        self, base_url: str, *, token: Token | None = None, agent: str | None = None, headers: Mapping[str, str] | None = None,
        reconnect: bool = True, retry: Retry = Retry(), client_info: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        """`agent` is that of sessions that name none; a lost connection is looked for as `retry` says."""
        self.api: Api = Api(base_url, token, headers)
        self.fs: Files = Files(self.api)
        self.processes: Processes = Processes(self.api, retry)
        self._agent = agent
        self._reconnect, self._retry = reconnect, retry
        self._info = dict(client_info or {"name": "sandbox-agent-python", "version": "0.1.0"})
        self._capabilities = dict(capabilities or {})
        self._state: State = "idle"
        self._connection: asyncio.Future[Wire] | None = None
        self._live: Wire | None = None
        self._given_up: BaseException | None = None  # why there is no connection any more
        self._hello: dict[str, Any] = {}
        self._attached: dict[str, _Attached] = {}
        self._prompts: dict[str, _Prompt] = {}
        self._order: dict[str, list[_Prompt]] = {}  # by session, oldest first
        self._names, self._count = str(uuid.uuid4()), 0
        self._arrived = asyncio.Event()  # an event of a session has come
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asks = Asks(self._spawn)
        self._updates: list[UpdateListener] = []
        self._notices: list[NoticeListener] = []
        self._states: list[Callable[[str], None]] = []

    # -- the connection

    @property
    def state(self) -> State:
        return self._state

    async def connect(self) -> dict[str, Any]:
        """Opens the connection now, and returns what the gateway says of itself and the agent."""
        self._given_up = None
        await self._connected()
        return self._hello

    async def disconnect(self) -> None:
        """Ends the connection. Sessions live on; the next use opens another."""
        connection, live = self._connection, self._live
        self._connection = self._live = None
        self._set_state("idle")
        self._fail_prompts(NotConnectedError("the client was disconnected"))
        self._attached.clear()
        if connection is not None and not connection.done():
            connection.cancel()
        if live is not None:
            await live.close()

    async def aclose(self) -> None:
        """Ends the connection and lets go of everything."""
        await self.disconnect()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.api.close()

    async def __aenter__(self) -> SandboxAgent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                asyncio.get_running_loop().call_exception_handler({"message": "a handler of sandbox_agent failed", "exception": task.exception()})

        task.add_done_callback(done)
        return task

    def _set_state(self, state: State) -> None:
        if self._state != state:
            self._state = state
            for listener in list(self._states):
                listener(state)

    def _connect(self, opening: Any) -> None:
        connection: asyncio.Future[Wire] = asyncio.ensure_future(opening)
        self._connection = connection

        def done(connection: asyncio.Future[Wire]) -> None:
            error = None if connection.cancelled() else connection.exception()
            if error is not None and self._connection is connection:
                self._gave_up(error)

        connection.add_done_callback(done)

    def _gave_up(self, error: BaseException) -> None:
        self._connection, self._given_up = None, error
        self._set_state("idle")
        self._fail_prompts(error)

    async def _open(self) -> Wire:
        url = self.api.base_url.replace("http", "ws", 1) + "/v2/rpc"
        try:
            socket = await dial(url, await self.api.headers(), [SUBPROTOCOL])
        except ProblemError as e:
            if e.status != 401:
                raise
            socket = await dial(url, await self.api.headers(True), [SUBPROTOCOL])
        wire = Wire(socket, self._receive, self._lost)
        own = self._capabilities.get("_meta") or {}
        try:
            self._hello = await wire.request("initialize", {
                "protocolVersion": 1,
                "clientInfo": self._info,
                "clientCapabilities": {
                    **self._capabilities,
                    "_meta": {**own, META: {**(own.get(META) or {}), "eventIds": True, "turns": True, "requestQuestion": True}},
                },
                **({"_meta": {META: {"agent": self._agent}}} if self._agent else {}),
            })
        except BaseException:
            await wire.close()
            raise
        self._live = wire
        self._set_state("open")
        if wire.closed.is_set():  # it ended in the same moment
            self._lost(wire)
        return wire

    def _lost(self, wire: Wire) -> None:
        """A connection has ended that nobody closed."""
        if self._live is not wire:
            return
        self._live = None
        if not self._reconnect:
            self._gave_up(ConnectionLostError(f"the connection has ended: {wire.error or 'the gateway closed it'}"))
            return
        self._set_state("reconnecting")
        self._connect(self._reopen())

    async def _reopen(self) -> Wire:
        """A new connection, attached to the sessions of the old one right where that ended."""
        backoff = Backoff(self._retry)
        while True:
            try:
                wire = await self._open()
                break
            except ConnectionLostError:
                if not await backoff.next():
                    raise
            except ProblemError as e:
                if e.status < 500 or not await backoff.next():
                    raise
        await asyncio.gather(*(self._reattach(wire, session_id) for session_id in list(self._attached)))
        return wire

    async def _reattach(self, wire: Wire, session_id: str) -> None:
        attached = self._attached.get(session_id)
        if attached is None:
            return
        asked = [ask for ask in self._asks.open() if ask.session_id == session_id]
        own = meta_of(attached.params)
        try:
            await wire.request("session/resume", _with_meta({**attached.params, "sessionId": session_id, "cwd": attached.cwd}, **{**own, "after": attached.after}))
            if asked:
                page = await wire.request("_sandboxagent/session/pending", {"sessionId": session_id})
                self._asks.keep(asked, {one.get("seq") for one in page["pending"]})
        except ConnectionLostError:
            pass  # the next connection does it
        except RpcError as e:
            self._attached.pop(session_id, None)  # it was deleted, or has ended, meanwhile
            for prompt in list(self._order.get(session_id, [])):
                self._finish(prompt, e)

    async def _connected(self) -> Wire:
        """The connection, when there is one that lives."""
        while True:
            if self._connection is None:
                if self._given_up is not None:
                    raise NotConnectedError(f"the connection was given up, connect() opens another: {self._given_up}") from self._given_up
                self._set_state("connecting")
                self._connect(self._open())
            wanted = self._connection
            assert wanted is not None
            try:
                wire = await asyncio.shield(wanted)
            except asyncio.CancelledError:
                if wanted.cancelled():
                    raise NotConnectedError("the client was disconnected") from None
                raise
            if self._connection is wanted:
                return wire

    async def _request(self, method: str, params: Any, repeat: bool = False) -> Any:
        """Sends an ACP request. With repeat it is sent again when the connection was lost in the middle."""
        while True:
            wire = await self._connected()
            try:
                return await wire.request(method, params)
            except ConnectionLostError:
                if not repeat or self._connection is None:
                    raise

    async def request(self, method: str, params: Any) -> Any:
        """Sends any request of ACP or an extension. A task that is cancelled asks the gateway to cancel it."""
        return await self._request(method, params)

    # -- sessions

    async def new_session(
        self, *, cwd: str, agent: str | None = None, title: str | None = None, model: str | None = None, mode: str | None = None, variant: str | None = None,
        permission_mode: Literal["default", "readonly", "write", "bypass"] | None = None, instructions: str | None = None,
        append_system_prompt: str | None = None, mcp_servers: Sequence[McpServer] = (), mcp: Mapping[str, Any] | None = None,
        additional_directories: Sequence[str] | None = None, env: Mapping[str, str] | None = None, credentials: Mapping[str, Any] | None = None,
        requested_session_id: str | None = None, handover: str | None = None, durability: Literal["async", "sync"] | None = None,
        agent_specific: Mapping[str, Any] | None = None, meta: Mapping[str, Any] | None = None,
    ) -> Session:
        """Makes a session. `cwd` is an absolute path on the gateway's machine; what the agent cannot do is in `unsupported`.

        `handover` is a text about another conversation, of `api.session_transcript(id, format="handover")`, which the agent is given
        with the first prompt. `durability` says when clients are shown an event: "async" when it is in the gateway's file, "sync" when the
        store of the gateway's hub has it, too. `meta` has further members of `_meta["sandboxagent.dev"]`.
        """
        own = {
            "agent": agent, "title": title, "model": model, "mode": mode, "variant": variant, "permissionMode": permission_mode, "instructions": instructions,
            "appendSystemPrompt": append_system_prompt, "mcp": mcp, "env": env, "credentials": credentials, "requestedSessionId": requested_session_id,
            "handover": handover, "durability": durability, "agentSpecific": agent_specific, **(meta or {}),
        }
        params: dict[str, Any] = {"cwd": cwd, "mcpServers": [*mcp_servers], **({"additionalDirectories": [*additional_directories]} if additional_directories else {})}
        params = _with_meta(params, **own)
        result = await self._request("session/new", params)
        return self._opened(result["sessionId"], params, result)

    async def load_session(self, session_id: str, *, cwd: str | None = None, after: int | None = None, mcp_servers: Sequence[McpServer] = (), meta: Mapping[str, Any] | None = None) -> Session:
        """Opens a session and replays its conversation, to the listeners of `on_update`."""
        return await self._open_session("session/load", session_id, cwd, after, mcp_servers, meta)

    async def resume_session(self, session_id: str, *, cwd: str | None = None, after: int | None = None, mcp_servers: Sequence[McpServer] = (), meta: Mapping[str, Any] | None = None) -> Session:
        """Opens a session without a replay, or right after an event."""
        return await self._open_session("session/resume", session_id, cwd, after, mcp_servers, meta)

    async def _open_session(self, method: str, session_id: str, cwd: str | None, after: int | None, mcp_servers: Sequence[McpServer], meta: Mapping[str, Any] | None) -> Session:
        params = _with_meta({"sessionId": session_id, "cwd": cwd or await self._cwd(session_id), "mcpServers": [*mcp_servers]}, after=after, **(meta or {}))
        known = self._attached.get(session_id)
        if known is not None and method == "session/load":
            known.after = after or 0  # what comes again is wanted again
        self._attached[session_id] = _Attached(params["cwd"], _kept(params), after or 0)
        try:
            result = await self._request(method, params)
        except BaseException:
            if known is not None:
                self._attached[session_id] = known
            else:
                self._attached.pop(session_id, None)
            raise
        told = meta_of(result)
        if isinstance(told.get("replayedSeq"), int):
            await self._seen(session_id, told["replayedSeq"])
        return self._opened(session_id, params, result, after if after is not None else told.get("seq", 0))

    async def _cwd(self, session_id: str) -> str:
        try:
            return (await self.api.session(session_id))["cwd"]
        except ProblemError:
            return "/"  # of a session that only its agent knows

    async def _seen(self, session_id: str, seq: int) -> None:
        """Waits until the session's event has come, or cannot come any more."""
        live = self._live
        while live is not None and live is self._live and session_id in self._attached and self._attached[session_id].after < seq:
            self._arrived.clear()
            waits = [asyncio.ensure_future(self._arrived.wait()), asyncio.ensure_future(live.closed.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def fork_session(self, session_id: str, *, cwd: str | None = None, meta: Mapping[str, Any] | None = None) -> Session:
        """Makes a session that begins with another's conversation."""
        params = _with_meta({"sessionId": session_id, "cwd": cwd or await self._cwd(session_id), "mcpServers": []}, **(meta or {}))
        result = await self._request("session/fork", params)
        return self._opened(result["sessionId"], params, result)

    def _opened(self, session_id: str, params: dict[str, Any], result: dict[str, Any], after: int = 0) -> Session:
        known = self._attached.get(session_id)
        self._attached[session_id] = _Attached(params["cwd"], _kept(params), max(after, known.after if known else 0))
        return Session(self, session_id, result)

    async def sessions(self, *, cwd: str | None = None, agent: str | None = None) -> AsyncIterator[SessionInfo]:
        """The sessions that the gateway knows, the newest first."""
        cursor: str | None = None
        while True:
            page = await self.api.sessions(cwd=cwd, agent=agent, sort="created", cursor=cursor)  # an order that does not change meanwhile
            for info in page["sessions"]:
                yield info
            cursor = page.get("nextCursor")
            if not cursor:
                return

    async def close_session(self, session_id: str) -> None:
        """Ends the agent's part of a session; load or resume opens it again."""
        await self._request("session/close", {"sessionId": session_id}, repeat=True)
        self._attached.pop(session_id, None)

    async def delete_session(self, session_id: str) -> None:
        """Removes a session and its log."""
        await self._request("session/delete", {"sessionId": session_id}, repeat=True)
        self._attached.pop(session_id, None)

    async def detach_session(self, session_id: str) -> None:
        """Gets no more of a session, which goes on."""
        await self._request("_sandboxagent/session/detach", {"sessionId": session_id}, repeat=True)
        self._attached.pop(session_id, None)

    async def terminate_session(self, session_id: str) -> dict[str, Any]:
        """Ends a session for good; its events can still be read."""
        result: dict[str, Any] = await self._request("_sandboxagent/session/terminate", {"sessionId": session_id}, repeat=True)
        self._attached.pop(session_id, None)
        return result

    # -- prompts

    def prompt(self, session_id: str, prompt: str | Sequence[ContentBlock]) -> Turn:
        """Sends a prompt. The result can be awaited, and iterated for the updates."""
        blocks: list[Any] = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else [*prompt]
        self._count += 1
        name = f"{self._names}-{self._count}"
        attached = self._attached.get(session_id)
        turn = Turn(session_id, lambda: self.cancel(session_id))
        p = _Prompt(name, session_id, turn, _with_meta({"sessionId": session_id, "prompt": blocks}, promptId=name), attached.after if attached else 0)
        self._prompts[name] = p
        self._order.setdefault(session_id, []).append(p)
        self._spawn(self._run(p))
        return turn

    async def cancel(self, session_id: str) -> None:
        """Asks the agent to end the session's running turn, and drops those that wait."""
        for prompt in list(self._order.get(session_id, [])):
            await prompt.sent.wait()  # a cancel that comes before its prompt cancels nothing
        await (await self._connected()).notify("session/cancel", {"sessionId": session_id})

    async def _run(self, p: _Prompt) -> None:
        try:
            self._finish(p, await self._turn(p))
        except asyncio.CancelledError:
            self._finish(p, NotConnectedError("the client was closed"))
            raise
        except Exception as e:
            self._finish(p, e)
        finally:
            p.sent.set()

    async def _turn(self, p: _Prompt) -> dict[str, Any]:
        while True:
            wire = await self._connected()
            try:
                response: dict[str, Any] = await wire.request("session/prompt", p.params, answered=lambda: self._leave(p), sent=p.sent.set)
                return response
            except ConnectionLostError:
                if self._connection is None:
                    raise
            ended = await self._after_loss(p)
            if ended is not None:
                if "result" in ended:
                    result: dict[str, Any] = ended["result"]
                    return result
                error = ended.get("error") or {"code": -32603, "message": "the turn ended without a result"}
                raise RpcError(error["code"], error["message"], error.get("data"))

    async def _after_loss(self, p: _Prompt) -> dict[str, Any] | None:
        """Finds out, on a later connection, how the prompt ended; None when it is to be sent again."""
        while True:
            wire = await self._connected()
            look = asyncio.ensure_future(self._look(p, wire))
            lost = asyncio.ensure_future(wire.closed.wait())
            try:
                await asyncio.wait([look, lost], return_when=asyncio.FIRST_COMPLETED)
                if look.done():
                    try:
                        return look.result()
                    except ConnectionLostError:
                        await lost  # with the next connection the gateway can be asked
            finally:
                for task in (look, lost):
                    task.cancel()
                await asyncio.gather(look, lost, return_exceptions=True)

    async def _look(self, p: _Prompt, wire: Wire) -> dict[str, Any] | None:
        if p.outcome is not None:
            return p.outcome
        # The state first: a turn that ends behind it is told of.
        state = (await wire.request("_sandboxagent/session/get", {"sessionId": p.session_id}))["state"]
        received, ended, seq = await self._find(p, wire)
        attached = self._attached.get(p.session_id)
        if ended is not None and seq <= (attached.after if attached else seq):
            return ended
        if not received:
            return None
        if ended is None and state not in ("running", "waiting"):
            raise TurnInterruptedError("the gateway was started anew in the middle of the turn")
        await p.told.wait()  # what the stream has not brought yet it will bring, behind the turn's updates
        return p.outcome

    async def _find(self, p: _Prompt, wire: Wire) -> tuple[bool, dict[str, Any] | None, int]:
        """Looks for the prompt, and its end, in the session's events."""
        received, after = False, p.start_after
        while True:
            page = await wire.request("_sandboxagent/session/events", {"sessionId": p.session_id, "after": after, "limit": 1000})
            for event in page["events"]:
                after = event["seq"]
                message: Any = event.get("message") or {}
                params = message.get("params") or {}
                if message.get("method") == "session/prompt" and meta_of(params).get("promptId") == p.id:
                    received = True
                if message.get("method") == TURN_ENDED and params.get("promptId") == p.id:
                    return received, params, after
            if not page.get("hasMore"):
                return received, None, after

    def _leave(self, p: _Prompt) -> None:
        """The prompt was answered: updates that follow belong to the next."""
        queue = self._order.get(p.session_id, [])
        if p in queue:
            queue.remove(p)
        if not queue:
            self._order.pop(p.session_id, None)

    def _finish(self, p: _Prompt, outcome: dict[str, Any] | BaseException) -> None:
        if self._prompts.pop(p.id, None) is None:
            return
        self._leave(p)
        p.told.set()
        if isinstance(outcome, BaseException):
            p.turn._fail(outcome)
        else:
            p.turn._end(outcome)

    def _fail_prompts(self, error: BaseException) -> None:
        for prompt in list(self._prompts.values()):
            self._finish(prompt, error)

    # -- what the gateway sends

    def on_permission(self, handler: Handler | None) -> None:
        """Answers permission requests: with an option's id, a whole response, or None to leave it to others.

        Without a handler they wait in `requests()`, also for other clients.
        """
        self._asks.handle("permission", handler)

    def on_question(self, handler: Handler | None) -> None:
        """Answers questions, in the same way."""
        self._asks.handle("question", handler)

    def on_form(self, handler: Handler | None) -> None:
        """Answers forms (elicitations), for clients whose capabilities offer them."""
        self._asks.handle("form", handler)

    def requests(self) -> AsyncIterator[Ask]:
        """The inbox: what agents ask, first what is open, then what comes. Each request is seen once."""
        return self._asks.inbox()

    def pending(self) -> list[Ask]:
        """The requests that nobody has answered yet."""
        return self._asks.open()

    def on_update(self, listener: UpdateListener) -> Callable[[], None]:
        """Tells of the updates of all attached sessions: the session's id and the update. The result ends that."""
        self._updates.append(listener)
        return lambda: self._updates.remove(listener)

    def on_notice(self, listener: NoticeListener) -> Callable[[], None]:
        """Tells of the gateway's other notifications: their method and params. The result ends that."""
        self._notices.append(listener)
        return lambda: self._notices.remove(listener)

    def on_state(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Tells of every change of `state`. The result ends that."""
        self._states.append(listener)
        return lambda: self._states.remove(listener)

    def _receive(self, wire: Wire, message: dict[str, Any]) -> None:
        method, params = str(message["method"]), message.get("params") or {}
        if "id" in message:
            if method in (PERMISSION, QUESTION, ELICITATION):
                self._fresh(params)
                self._asks.take(wire, message, meta_of(params).get("seq"))
            else:
                self._spawn(self._refuse(wire, message["id"], method))
            return
        if method == "$/cancel_request":
            self._asks.withdraw(wire, params.get("requestId"))
            return
        if not self._fresh(params):
            return
        if method == "session/update":
            session_id = str(params["sessionId"])
            queue = self._order.get(session_id)
            if queue:
                queue[0].turn._push(params["update"])
            for listener in list(self._updates):
                self._tell(listener, session_id, params["update"])
            return
        if method == TURN_ENDED and params.get("promptId") in self._prompts:
            prompt = self._prompts[params["promptId"]]
            prompt.outcome = params
            self._leave(prompt)
            prompt.told.set()
            return
        for notice in list(self._notices):
            self._tell(notice, method, params)

    def _tell(self, listener: Callable[..., None], *args: Any) -> None:
        try:
            listener(*args)
        except Exception as e:
            asyncio.get_running_loop().call_exception_handler({"message": "a listener of sandbox_agent failed", "exception": e})

    async def _refuse(self, wire: Wire, number: Any, method: str) -> None:
        try:
            await wire.send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": f"this client does not offer {method}"}})
        except ConnectionLostError:
            pass  # nobody waits for it any more

    def _fresh(self, params: dict[str, Any]) -> bool:
        """Notes how far the session has come; False for what came before the connection was replaced."""
        seq = meta_of(params).get("seq")
        attached = self._attached.get(str(params.get("sessionId")))
        if attached is None or not isinstance(seq, int):
            return True
        if seq <= attached.after:
            return False
        attached.after = seq
        self._arrived.set()
        return True


def _with_meta(params: dict[str, Any], **own: Any) -> dict[str, Any]:
    """A request with the gateway's fields in their place in `_meta`."""
    given = {name: value for name, value in own.items() if value is not None}
    return {**params, "_meta": {META: given}} if given else params


def _kept(params: dict[str, Any]) -> dict[str, Any]:
    """What a session's params must say again when it is resumed."""
    kept = {k: v for k, v in params.items() if k not in ("sessionId", "cwd", "_meta")}
    own = {k: v for k, v in meta_of(params).items() if k not in ("requestedSessionId", "after", "handover")}
    return {**kept, **({"_meta": {META: own}} if own else {})}
