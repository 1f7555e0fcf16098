"""A client of one gateway."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias

from ._attached import OVER, Attached, end_of, is_update
from ._backoff import Backoff, Retry
from ._position import Position
from ._prompts import ENDED, EXPIRED, NOT_FOUND, TURN_ENDED, Prompts, began
from ._settings import Settings
from ._tasks import OF_OTHERS, end
from ._wire import SUBPROTOCOL, Wire, open_socket
from .activity import Activity
from .api import SILENCE, Api, Token, strings
from .api_types import Session as SessionInfo
from .asks import ELICITATION, PERMISSION, QUESTION, Ask, Asks, Handler
from .errors import ConnectionLostError, NotConnectedError, ProblemError, ProtocolVersionError, RpcError, SandboxAgentError
from .files import Files
from .processes import Processes
from .session import META, Session, kept, meta_of, with_meta
from .turn import Turn
from .versions import AcpVersion, ContentBlock, McpServer, SessionUpdate

NODE_BOUND = 30.0  # seconds that a node of a hub is waited for, as nodeBound of acp/lasting
DETACH = "_sandboxagent/session/detach"
UNKNOWN_METHOD = -32601  # the code of the error about a method that the other end does not have

State: TypeAlias = Literal["idle", "connecting", "open", "reconnecting"]
UpdateListener: TypeAlias = Callable[[str, SessionUpdate], None]
NoticeListener: TypeAlias = Callable[[str, "dict[str, Any]"], None]
LostListener: TypeAlias = Callable[[str, Exception], None]


class SandboxAgent:
    """A client of one gateway: its agents by ACP, its machine by HTTP.

    >>> async with SandboxAgent("http://127.0.0.1:2468", agent="claude") as client:
    ...     session = await client.new_session(cwd="/tmp")
    ...     print((await session.prompt("hello")).text)

    One client has one ACP connection, which is opened when it is needed. A connection
    that is lost is replaced: sessions and prompts carry on, nothing is missing and
    nothing comes twice. A client belongs to one event loop.
    """

    def __init__(
        self, base_url: str, *, token: Token | None = None, agent: str | None = None, headers: Mapping[str, str] | None = None,
        reconnect: bool = True, retry: Retry = Retry(), client_info: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | None = None, acp_version: AcpVersion = 1, silence: float = SILENCE,
    ) -> None:
        """`agent` is that of sessions that name none; a lost connection is looked for as `retry` says.

        A gateway that says nothing for `silence` seconds, also where it answers at once, is taken for gone, on a stream of events after 20 at least; 0 is never.

        `acp_version` is the version of ACP to speak: what handlers and listeners are given are that version's own messages.
        """
        if acp_version not in (1, 2):
            raise ValueError(f"acp_version is 1 or 2, not {acp_version!r}")
        self.acp_version: AcpVersion = acp_version
        self.api: Api = Api(base_url, token, headers, silence)
        self.fs: Files = Files(self.api)
        self.processes: Processes = Processes(self.api, retry)
        self._agent = agent
        self._reconnect, self._retry = reconnect, retry
        self._info = dict(client_info or {"name": "sandbox-agent-python", "version": "0.1.0"})
        self._capabilities = dict(capabilities or {})
        # An event may be several frames: in version 2, and for who knows subagents.
        self._parts = acp_version == 2 or self._capabilities.get("subagents") not in (None, False)
        self._useless = self._patience()
        self._ending: asyncio.Future[None] | None = None  # of the client
        self._state: State = "idle"
        self._connection: asyncio.Future[Wire] | None = None
        self._live: Wire | None = None
        self._replacing: asyncio.Future[Wire] | None = None  # the connection, while it takes the place of a lost one
        self._attaching: dict[str, asyncio.Event] = {}  # sessions that the new one is not attached to yet: what names one waits for that
        self._given_up: BaseException | None = None  # why there is no connection any more
        self._closed = False
        self._disconnects = 0  # what was asked before the last one is not done on another connection
        self._hello: dict[str, Any] = {}
        self._attached: dict[str, Attached] = {}
        self._prompts = Prompts(acp_version, self)
        self._settings = Settings()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asks = Asks(self._spawn)
        self._updates: list[UpdateListener] = []
        self._notices: list[NoticeListener] = []
        self._activities: list[Callable[[Activity], None]] = []
        self._lost_sessions: list[LostListener] = []
        self._states: list[Callable[[str], None]] = []

    # -- the connection

    @property
    def state(self) -> State:
        return self._state

    async def connect(self) -> dict[str, Any]:
        """Opens the connection now, and returns what the gateway says of itself and the agent. Behind one that was given up it goes on with the sessions where that ended."""
        if self._given_up is not None and not self._closed:
            self._given_up = None
            self._begin(list(self._attached))
        await self._connected()
        return self._hello

    async def disconnect(self) -> None:
        """Ends the connection, and leaves the sessions, which live on. The next use opens another."""
        connection, live = self._connection, self._live
        self._disconnects += 1
        self._connection = self._live = self._replacing = self._given_up = None
        self._all_attached()
        self._set_state("idle")
        self._prompts.fail_all(NotConnectedError("the client was disconnected"))
        self._asks.leave(lambda _: True)
        self._attached.clear()
        if connection is not None and not connection.done():
            connection.cancel()
        if live is not None:
            await live.close()

    async def aclose(self) -> None:
        """Ends the connection and lets go of everything. What is asked of the client then fails.

        Who calls it again waits for the same end. It comes also when the call is cancelled.
        """
        self._closed = True
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end_all())
        await asyncio.shield(self._ending)

    async def _end_all(self) -> None:
        await self.disconnect()
        self._asks.close()
        await end(*self._tasks, again=OF_OTHERS)
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
                self._tell(listener, state)

    def _begin(self, sessions: Iterable[str]) -> None:
        self._set_state("connecting")
        self._connect(self._open(sessions))

    def _connect(self, opening: Any) -> None:
        connection: asyncio.Future[Wire] = asyncio.ensure_future(opening)
        self._connection = connection

        def done(connection: asyncio.Future[Wire]) -> None:
            if self._replacing is connection:
                self._replacing = None
            error = None if connection.cancelled() else connection.exception()
            if error is not None and self._connection is connection:
                self._gave_up(error)

        connection.add_done_callback(done)

    def _gave_up(self, error: BaseException) -> None:
        self._connection, self._given_up = None, error
        self._all_attached()
        self._set_state("idle")
        self._prompts.fail_all(error)
        self._asks.leave(lambda _: True, answered=False)

    async def _open(self, sessions: Iterable[str]) -> Wire:
        """A new connection, which is being attached to the sessions right where the one before ended."""
        url = self.api.base_url.replace("http", "ws", 1) + "/v2/rpc"
        wire = Wire(await open_socket(url, self.api.headers, [SUBPROTOCOL], self.api._silence), self._receive, self._lost, self.api._silence)
        own = self._capabilities.get("_meta") or {}
        capabilities = {**self._capabilities, "_meta": {**own, META: {**(own.get(META) or {}), "eventIds": True, "turns": True, "requestQuestion": True}}}
        two = self.acp_version == 2
        try:
            self._hello = await wire.request("initialize", {
                "protocolVersion": self.acp_version,
                "info" if two else "clientInfo": self._info,
                "capabilities" if two else "clientCapabilities": capabilities,
                **({"_meta": {META: {"agent": self._agent}}} if self._agent else {}),
            })
            if self._hello.get("protocolVersion") != self.acp_version:
                raise ProtocolVersionError(self.acp_version, self._hello.get("protocolVersion"))
            if self._connection is not asyncio.current_task():  # before Python 3.12 asyncio.wait_for, which dial uses, may swallow a cancel
                raise NotConnectedError("the client was disconnected")
        except BaseException:
            await wire.close()
            raise
        self._live = wire
        for session_id in list(sessions):
            self._attaching[session_id] = attached = asyncio.Event()
            self._spawn(self._reattach(wire, session_id)).add_done_callback(functools.partial(self._attached_again, session_id, attached))
        self._set_state("open")
        if wire.closed.is_set():  # it ended in the same moment
            self._lost(wire)
        return wire

    def _lost(self, wire: Wire) -> None:
        """A connection has ended that nobody closed."""
        if self._live is not wire:
            return
        self._live = None
        self._asks.lost(wire)
        if not self._reconnect:
            self._gave_up(ConnectionLostError(f"the connection has ended: {wire.error or 'the gateway closed it'}"))
            return
        self._all_attached()
        self._set_state("reconnecting")
        self._connect(self._reopen(wire))
        self._replacing = self._connection

    async def _reopen(self, lost: Wire) -> Wire:
        if lost.used or time.monotonic() - lost.since > self._retry.longest:
            self._useless = self._patience()
        else:  # a gateway that takes connections only to end them is not asked without a pause
            await self._useless.next()
        backoff = Backoff(self._retry)
        while True:
            try:
                return await self._open(self._attached)
            except ConnectionLostError:
                if not await backoff.next():
                    raise
            except ProblemError as e:
                if e.is_final or not await backoff.next():
                    raise
            except RpcError as e:
                if not e.passes or not await backoff.next():
                    raise
            except SandboxAgentError:
                raise
            except Exception:  # of the function that is asked for the token: it may need the network that is broken
                if not await backoff.next():
                    raise

    def _attached_again(self, session_id: str, attached: asyncio.Event, *_: Any) -> None:
        attached.set()
        if self._attaching.get(session_id) is attached:
            del self._attaching[session_id]

    def _all_attached(self) -> None:
        """Nobody waits any more for a session to be attached on this connection."""
        for session_id, attached in list(self._attaching.items()):
            self._attached_again(session_id, attached)

    async def _reattach(self, wire: Wire, session_id: str) -> None:
        if (known := self._attached.get(session_id)) is None:
            return
        attached: Attached = known
        asked = self._asks.open_in(session_id)
        info: dict[str, Any] | None = None

        async def is_over() -> bool:
            nonlocal info
            info = await self._info_of(wire, session_id, attached.params)
            return info is not None and info.get("state") in OVER

        try:
            result = await self._resumed(wire, session_id, attached, is_over)
            if self._live is not wire:
                return  # the next connection is attached
            if result is None and info:
                return self._gone(session_id, end_of(info))  # its prompts look at its events
            self._attached_to(session_id, meta_of(result))
            if asked:
                page = await self._patiently(lambda: wire.request("_sandboxagent/session/pending", {"sessionId": session_id}))
                self._asks.keep(asked, {one.get("seq") for one in page["pending"]})
        except ConnectionLostError:
            pass  # the next connection does it
        except RpcError as e:  # it was deleted meanwhile, or cannot be followed any more
            if self._live is not wire:
                return
            self._prompts.fail_of(session_id, e)
            if info is None and e.is_not_there:
                return self._gone(session_id, {"at": datetime.now(timezone.utc).isoformat(), "reason": "deleted", "terminatedBy": ""})
            self._attached.pop(session_id, None)
            for listener in list(self._lost_sessions):  # before its requests end: they are still open at the gateway
                self._tell(listener, session_id, e)
            self._asks.leave(lambda session: session == session_id)

    def _gone(self, session_id: str, data: dict[str, Any]) -> None:
        """A session has ended while there was no connection."""
        attached = self._attached.get(session_id)
        self._left(session_id)
        if not (attached and attached.over):
            self._notify(ENDED, {"sessionId": session_id, "data": data})

    async def _info_of(self, wire: Wire, session_id: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """What the gateway says of a session; None when it does not, of which what follows tells why. Fails with what goes away by itself."""
        try:
            info: dict[str, Any] = await wire.request("_sandboxagent/session/get", with_meta({"sessionId": session_id}, node=meta_of(params).get("node")))
            return info
        except RpcError as e:
            if e.passes:
                raise
            return None

    async def _resumed(self, wire: Wire, session_id: str, attached: Attached, is_over: Callable[[], Awaitable[bool]]) -> Any:
        """Attaches to a session right behind what came of it, or with the oldest event that is kept; not to one that is over, which that would open again."""
        own = meta_of(attached.params)
        while True:
            first = attached.position.after + 1
            if attached.opening is not None:
                attached.opening = math.inf
            after = attached.position.go_on(attached.opening is not None)  # before the newest, where that may have come in part
            params = with_meta({**attached.params, "sessionId": session_id, **({"cwd": attached.cwd} if attached.cwd else {})}, **{**own, "after": after})

            async def resume(params: dict[str, Any] = params) -> Any:
                return None if await is_over() else await wire.request("session/resume", params)

            try:
                return await self._patiently(resume)
            except RpcError as e:
                oldest = e.oldest_kept
                if oldest is None or oldest <= after + 1:
                    raise
            attached.position = self._position(oldest - 1)
            attached.opening = math.inf if self.acp_version == 2 else None  # the state is told anew
            if attached.activity is not None:
                attached.activity._restart()
            self._notify(EXPIRED, {"sessionId": session_id, "firstSeq": min(first, oldest - 1), "lastSeq": oldest - 1})

    async def _patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Asks again what was refused for a reason that goes away."""
        backoff = self._backoff()
        while True:
            try:
                return await ask()
            except RpcError as e:
                if not e.passes or not await backoff.next():
                    raise

    async def _connected(self, session_id: str = "", since: int | None = None) -> Wire:
        """The connection, when there is one that lives, and is attached again to the session that is named. Fails when the client was disconnected `since`."""
        since = self._disconnects if since is None else since
        while True:
            if since != self._disconnects and not self._closed:
                raise NotConnectedError("the client was disconnected")
            if self._connection is None:
                if self._closed:
                    raise NotConnectedError("the client was closed: make another one")
                if self._given_up is not None:
                    raise NotConnectedError(f"the connection was given up, connect() opens another: {self._given_up}") from self._given_up
                self._begin(())
            wanted = self._connection
            assert wanted is not None
            try:
                wire = await asyncio.shield(wanted)
            except asyncio.CancelledError:
                if wanted.cancelled():
                    raise NotConnectedError("the client was disconnected") from None
                raise
            if self._connection is wanted:
                if (attached := self._attaching.get(session_id)) is None:
                    return wire
                await attached.wait()

    def _patience(self) -> Backoff:
        """For connections that end, and were of no use."""
        return Backoff(replace(self._retry, give_up=math.inf))

    def _backoff(self) -> Backoff:
        return Backoff(self._retry)

    def _goes_on(self) -> bool:
        return self._connection is not None

    async def _request(self, method: str, params: Any, repeat: bool | Literal["node", "undone"] = False, answered: Callable[[Any], None] | None = None, behind: Callable[[], asyncio.Event | None] = lambda: None, sent: Callable[[bool], None] = lambda _: None, since: int | None = None) -> Any:
        """Sends an ACP request, when there is nothing that it waits for. With repeat it is sent again when the connection was lost in the middle,
        and then also while its node comes to the hub that the connection is to now; with "node" only that, and with "undone"
        only where the hub does not say that it may have been done. `sent` is told whether it is on its way: where a lost connection was being
        replaced it may still have to be sent again, until it is answered."""
        later: Backoff | None = None  # once a lost connection was being replaced
        since = self._disconnects if since is None else since
        while True:
            if repeat and (self._replacing is not None or self._attaching):
                later = later or Backoff(replace(self._retry, give_up=min(self._retry.give_up, NODE_BOUND)))
            wire = await self._connected(str(params.get("sessionId", "")) if isinstance(params, dict) else "", since)
            if (first := behind()) is not None:
                await first.wait()
                continue
            try:
                return await wire.request(method, params, answered, sent=functools.partial(sent, later is None))
            except ConnectionLostError as e:
                sent(False)
                if wire.left:
                    raise NotConnectedError("the client was disconnected") from e
                if repeat is not True:
                    raise
                await wire.closed.wait()  # the socket knows it before the connection does
                if not self._goes_on():
                    raise
            except RpcError as e:
                sent(False)
                if later is None or not e.node_is_away or (repeat == "undone" and e.may_be_done) or not await _next(later, wire) or not self._goes_on():
                    raise

    async def _set(self, method: str, params: dict[str, Any]) -> Any:
        since = self._disconnects
        return await self._settings.set(params["sessionId"], lambda sent: self._request(method, params, repeat=True, sent=sent, since=since))

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
        agent_specific: Mapping[str, Any] | None = None, include_raw: bool | None = None, meta: Mapping[str, Any] | None = None,
    ) -> Session:
        """Makes a session. `cwd` is an absolute path on the gateway's machine; what the agent cannot do is in `unsupported`.

        `handover` is a text about another conversation, of `api.session_transcript(id, format="handover")`, which the agent is given
        with the first prompt. `durability` says when clients are shown an event: "async" when it is in the gateway's file, "sync" when the
        store of the gateway's hub has it, too. `include_raw` records what the agent and the gateway say to each other, for
        `api.session_raw(id)`. `meta` has further members of `_meta["sandboxagent.dev"]`.
        """
        own = {
            "agent": agent, "title": title, "model": model, "mode": mode, "variant": variant, "permissionMode": permission_mode, "instructions": instructions,
            "appendSystemPrompt": append_system_prompt, "mcp": mcp, "env": env, "credentials": credentials, "requestedSessionId": requested_session_id,
            "handover": handover, "durability": durability, "agentSpecific": agent_specific, "includeRaw": include_raw, **(meta or {}),
        }
        params: dict[str, Any] = {"cwd": cwd, "mcpServers": [*mcp_servers], **({"additionalDirectories": strings("additional_directories", additional_directories)} if additional_directories else {})}
        params = with_meta(params, **own)
        return await self._make("session/new", params)

    async def load_session(self, session_id: str, *, cwd: str | None = None, after: int | None = None, mcp_servers: Sequence[McpServer] = (), meta: Mapping[str, Any] | None = None) -> Session:
        """Opens a session and replays its conversation, to the listeners of `on_update`."""
        return await self._open_session("session/load", session_id, cwd, after, mcp_servers, meta)

    async def resume_session(self, session_id: str, *, cwd: str | None = None, after: int | None = None, mcp_servers: Sequence[McpServer] = (), meta: Mapping[str, Any] | None = None) -> Session:
        """Opens a session without a replay, or right after an event. One that the client has open goes on behind what came."""
        return await self._open_session("session/resume", session_id, cwd, after, mcp_servers, meta)

    async def _open_session(self, method: str, session_id: str, cwd: str | None, after: int | None, mcp_servers: Sequence[McpServer], meta: Mapping[str, Any] | None) -> Session:
        cwd = cwd or await self._cwd(session_id)
        known = self._attached.get(session_id)
        load = method == "session/load"
        begins = after if after is not None or load or known is None else known.position.after  # who has it open goes on behind what came
        params = with_meta({"sessionId": session_id, "cwd": cwd, "mcpServers": [*mcp_servers]}, after=begins, **(meta or {}))
        attached = replace(known or self._begun(session_id, after or 0), cwd=cwd, params=kept(params), over=False)

        def written() -> None:
            """On a connection that lives: a new one goes on behind what came, and only what is asked for then comes again."""
            if self.acp_version == 2:
                attached.opening = math.inf if known is None or begins is None else begins
            if known is not None and (after if after is not None else 0 if load else math.inf) < attached.position.after:
                attached.position.again(functools.partial(self._comes_again, session_id, attached.activity))

        if load and self.acp_version == 2:
            method, params = "session/resume", {**params, "replayFrom": {"type": "start"}}
        self._attached[session_id] = attached
        try:
            result = await self._request(method, params, repeat="node", behind=written)
            if self._attached.get(session_id) is attached:
                told = meta_of(result)
                if begins is None and self.acp_version == 1 and attached.position.after < told.get("seq", 0):
                    attached.position = self._position(told["seq"])
                self._attached_to(session_id, told)  # behind the prompts that came again
            return Session(self, session_id, result)
        except BaseException as e:
            if self._attached.get(session_id) is attached:
                if known is not None:
                    self._attached[session_id] = replace(known, position=attached.position)
                elif not isinstance(e, asyncio.CancelledError) or attached.position.after <= (after or 0):
                    self._left(session_id)  # else what was cancelled has begun, and goes on
            raise
        finally:
            self._prompts.reopened(session_id)  # also where it failed, the gateway may have done it

    def _comes_again(self, session_id: str, activity: Activity | None, up_to: int) -> None:
        """What the session has said up to an event begins to come once more."""
        if activity is not None:
            activity._restart()
        self._prompts.again(session_id, up_to)

    async def _cwd(self, session_id: str) -> str:
        """The directory of a session. Whatever goes wrong must not open it in another one."""
        try:
            return str((await self._request("_sandboxagent/session/get", {"sessionId": session_id}, repeat=True))["cwd"])
        except RpcError as e:
            if e.code not in (NOT_FOUND, UNKNOWN_METHOD):
                raise
            return "/"  # of a session that only its agent knows

    def _attached_to(self, session_id: str, told: Mapping[str, Any]) -> None:
        """Takes what the answer that opens a session says of its turn, unless a newer event came before it."""
        attached, seq = self._attached.get(session_id), told.get("seq")
        if attached is not None and isinstance(seq, int):
            attached.newest = seq
            if attached.turn_at > seq:
                return
        self._prompts.attached(session_id, told.get("turn") == "running")

    async def fork_session(self, session_id: str, *, cwd: str | None = None, meta: Mapping[str, Any] | None = None) -> Session:
        """Makes a session that begins with another's conversation."""
        params = with_meta({"sessionId": session_id, "cwd": cwd or await self._cwd(session_id), "mcpServers": []}, **(meta or {}))
        return await self._make("session/fork", params)

    async def _make(self, method: str, params: dict[str, Any]) -> Session:
        """Makes a session, which is known from where the answer comes, between the updates around it."""

        def answered(result: Any) -> None:
            if isinstance(result, dict):
                session_id = str(result.get("sessionId"))
                # What was said before it is not new; in version 1 a new session has said nothing.
                seq = meta_of(result).get("seq") if self.acp_version == 2 or method == "session/fork" else 0
                self._attached[session_id] = replace(self._begun(session_id, seq or 0), cwd=params["cwd"], params=kept(params))

        result = await self._request(method, params, repeat="undone", answered=answered)
        return Session(self, result["sessionId"], result)

    def _begun(self, session_id: str, after: int) -> Attached:
        """A session of which nothing has come behind an event."""
        return Attached(self._position(after), Activity(session_id) if self.acp_version == 2 else None)

    async def _joins(self, wire: Wire, session_id: str, sends: Callable[[], bool]) -> None:
        """The gateway attaches who sends a prompt to a session, as after `disconnect()`: it is followed on the next connection, too."""
        if session_id in self._attached:
            return
        info = None
        with suppress(RpcError):
            info = await self._info_of(wire, session_id, {})
        if info and info["state"] not in OVER and sends() and session_id not in self._attached:
            self._attached[session_id] = self._begun(session_id, info["eventCount"])

    def _position(self, after: int) -> Position:
        return Position(self.acp_version, self._parts, after)

    def _left(self, session_id: str) -> None:
        """The client is attached to the session no more."""
        self._asks.leave(lambda session: session == session_id)
        self._attached.pop(session_id, None)

    def _of(self, params: Mapping[str, Any]) -> Attached | None:
        """The session that an event belongs to: a subagent's are its session's, which the message names."""
        return self._attached.get(str(params.get("sessionId"))) or self._attached.get(str(meta_of(params).get("rootSessionId")))

    def _prompted(self, session_id: str) -> None:
        attached = self._attached.get(session_id)
        if attached is not None and attached.leaving:
            self._attached[session_id] = replace(attached, leaving=False)

    def _after(self, session_id: str) -> int | None:
        attached = self._attached.get(session_id)
        return attached.position.after if attached else None

    def _newest(self, session_id: str) -> int:
        attached = self._attached.get(session_id)
        return attached.newest if attached else 0

    def activity(self, session_id: str) -> Activity | None:
        """What a session is doing, its subagents and its commands: in version 2 of ACP, while the client is attached to it."""
        attached = self._attached.get(session_id)
        return attached.activity if attached else None

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
        """Ends the agent's part of a session; load or resume opens it again. One that is not there is closed, as ACP says."""
        await self._end("session/close", session_id)

    async def delete_session(self, session_id: str) -> None:
        """Removes a session and its log. One that is not there is deleted, as ACP says."""
        await self._end("session/delete", session_id)

    async def _end(self, method: str, session_id: str) -> None:
        try:
            await self._last(method, session_id)
        except RpcError as error:
            if error.code != NOT_FOUND:  # which is also what a repeated request is told whose first answer was lost
                raise
            self._left(session_id)

    async def detach_session(self, session_id: str) -> None:
        """Gets no more of a session, which goes on. A turn whose end would only be told, as after a lost connection, fails."""
        await self._last(DETACH, session_id, self._prompts.detached)

    async def terminate_session(self, session_id: str) -> dict[str, Any]:
        """Ends a session for good; its events can still be read."""
        result: dict[str, Any] = await self._last("_sandboxagent/session/terminate", session_id)
        return result

    async def _last(self, method: str, session_id: str, left: Callable[[str], None] = lambda _: None) -> Any:
        """Leaves a session, behind its prompts: one that has to be sent again must not come to a session that has ended."""
        before = self._attached.get(session_id)

        def sent(is_sent: bool) -> None:
            if before is not None:
                before.leaving = is_sent and method == DETACH

        set_before, prompts = self._settings.behind(session_id), self._prompts.behind(session_id)
        result = await self._request(method, {"sessionId": session_id}, repeat=True, behind=lambda: set_before() or prompts(), sent=sent)
        if self._attached.get(session_id) is before:  # else it was opened again behind that
            self._left(session_id)
            left(session_id)
        return result

    # -- prompts

    def prompt(self, session_id: str, prompt: str | Sequence[ContentBlock]) -> Turn:
        """Sends a prompt. The result can be awaited, and iterated for the updates."""
        blocks: list[Any] = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else [*prompt]
        return self._prompts.add(session_id, blocks, self._settings.behind(session_id))

    async def cancel(self, session_id: str) -> None:
        """Asks the agent to end the session's running turn, and drops those that wait. In version 2 of ACP the session may be a subagent's."""
        await self._prompts.cancel(session_id)

    async def cancel_tool_call(self, session_id: str, tool_call_id: str) -> None:
        """Ends one call of the agent alone, where the call says that it can be: in version 1 in `_meta`."""
        await self._request("tool_call/cancel", {"sessionId": session_id, "toolCallId": tool_call_id}, repeat=True)

    async def cancel_terminal(self, session_id: str, terminal_id: str) -> None:
        """Ends one command, where it says that it can be: in version 2 of ACP."""
        await self._request("terminal/cancel", {"sessionId": session_id, "terminalId": terminal_id}, repeat=True)

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
        """The inbox: what agents ask, first what is open, then what comes until the client is closed. Each request is seen once."""
        return self._asks.inbox()

    def pending(self) -> list[Ask]:
        """The requests that nobody has answered yet."""
        return self._asks.open()

    def on_update(self, listener: UpdateListener) -> Callable[[], None]:
        """Tells of the updates of all attached sessions, and of their subagents': the session's id and the update. The result ends that."""
        return _added(self._updates, listener)

    def on_activity(self, listener: Callable[[Activity], None]) -> Callable[[], None]:
        """Tells when the activity of a session has changed: in version 2 of ACP. The result ends that."""
        return _added(self._activities, listener)

    def on_notice(self, listener: NoticeListener) -> Callable[[], None]:
        """Tells of the gateway's other notifications: their method and params. The result ends that.

        `_sandboxagent/session/events_expired` is the client's own: the events `firstSeq` to `lastSeq` of `sessionId` were let go of
        while there was no connection, and the session goes on behind them.
        """
        return _added(self._notices, listener)

    def on_session_lost(self, listener: LostListener) -> Callable[[], None]:
        """Tells of a session that the client could not attach to again on a new connection, and why: its id and the error. It goes on;
        the client gets no more of it until it opens it again. The result ends that.
        """
        return _added(self._lost_sessions, listener)

    def on_state(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Tells of every change of `state`. The result ends that."""
        return _added(self._states, listener)

    def _receive(self, wire: Wire, message: dict[str, Any]) -> None:
        method, params = str(message["method"]), message.get("params")
        if not isinstance(params, dict):
            params = {}
        if method == "session/update" and not is_update(params):
            params = {**params, "update": None}  # only its place is noted
        if "id" in message:
            if method in (PERMISSION, QUESTION, ELICITATION):
                attached, seq = self._of(params), meta_of(params).get("seq")
                if attached is not None and isinstance(seq, int):
                    attached.position.asked(seq)
                self._asks.take(wire, message, seq)
            else:
                self._spawn(self._refuse(wire, message["id"], method))
            return
        if method == "$/cancel_request":
            self._asks.withdraw(wire, params.get("requestId"))
            return
        if not self._fresh(params):
            return
        self._note_turn(method, params)
        if method == "session/update":
            if params.get("update"):
                self._update(params)
            return
        if method == TURN_ENDED and self._prompts.ended(params):
            return
        if method == ENDED:
            session_id, reason = str(params.get("sessionId")), (params.get("data") or {}).get("reason")
            attached = self._attached.get(session_id)
            if reason == "deleted":  # by whichever client
                self._left(session_id)
                self._prompts.deleted(session_id)
            elif attached is not None:
                attached.over = reason in ("closed", "moved", "terminated")
        self._notify(method, params)

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        for notice in list(self._notices):
            self._tell(notice, method, params)

    def _update(self, params: dict[str, Any]) -> None:
        session_id, update = str(params.get("sessionId")), params["update"]
        activity = None
        if (attached := self._of(params)) is not None:
            attached.over, activity = False, attached.activity
        changed = activity is not None and activity._take(session_id, update)
        seq = meta_of(params).get("seq")
        self._prompts.update(session_id, update, seq if isinstance(seq, int) else math.inf)
        for listener in list(self._updates):
            self._tell(listener, session_id, update)
        if changed:
            for told in list(self._activities):
                self._tell(told, activity)

    def _tell(self, listener: Callable[..., None], *args: Any) -> None:
        try:
            listener(*args)
        except (Exception, asyncio.CancelledError) as e:  # a future that it looks at may be cancelled
            asyncio.get_running_loop().call_exception_handler({"message": "a listener of sandbox_agent failed", "exception": e})

    async def _refuse(self, wire: Wire, number: Any, method: str) -> None:
        try:
            await wire.send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": f"this client does not offer {method}"}})
        except ConnectionLostError:
            pass  # nobody waits for it any more

    def _note_turn(self, method: str, params: dict[str, Any]) -> None:
        """Notes an event that says whose turn it is."""
        update = params.get("update") or {}
        begins = update.get("sessionUpdate") == "user_message_chunk" and meta_of(update).get("prompt") is True
        if begins or (method == TURN_ENDED and began(params)):  # else it never began
            attached, seq = self._attached.get(str(params.get("sessionId"))), meta_of(params).get("seq")
            if attached is not None and isinstance(seq, int):
                attached.turn_at = seq

    def _fresh(self, params: dict[str, Any]) -> bool:
        """Notes how far the session has come; False for what came before the connection was replaced, and for a state that a newer one has replaced."""
        session_id = str(params.get("sessionId"))
        attached, seq = self._of(params), meta_of(params).get("seq")
        if attached is None or not isinstance(seq, int):
            return True
        return attached.fresh(seq, params.get("update") or {}, session_id in self._attached)


async def _next(backoff: Backoff, wire: Wire) -> bool:
    """Waits for the next try, at most until the connection ends."""
    waiting, ended = asyncio.ensure_future(backoff.next()), asyncio.ensure_future(wire.closed.wait())
    try:
        await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
        return not waiting.done() or waiting.result()
    finally:
        await end(waiting, ended)


def _added(listeners: list[Any], listener: Callable[..., None]) -> Callable[[], None]:
    """Adds a listener; the result removes it."""
    listeners.append(listener)

    def remove() -> None:
        nonlocal listeners
        if listener in listeners:
            listeners.remove(listener)
        listeners = []  # a second call removes no other of the same

    return remove
