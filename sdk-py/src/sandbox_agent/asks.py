"""What agents ask the user."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, TypeAlias

from ._wire import Wire
from .errors import ConnectionLostError, SandboxAgentError
from .session import meta_of
from .versions import PermissionOption

MAX_ANSWERED = 1024  # answers kept, in case they have not arrived; the oldest leave

PERMISSION = "session/request_permission"
QUESTION = "_sandboxagent/session/request_question"
ELICITATION = "elicitation/create"


class Ask:
    """A request of an agent that waits for a person.

    It stays open until somebody answers it: this client, or another one.
    """

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.method: str = method
        self.params: dict[str, Any] = params
        self.session_id: str = str(params.get("sessionId", ""))
        """The session that asks: in version 2 of ACP a subagent's is its own."""
        self._wire: Wire | None = None
        self._id: Any = None
        self._answer: dict[str, Any] | None = None
        self._over = asyncio.Event()
        self._withdrawn = False

    @property
    def kind(self) -> Literal["permission", "question", "form"]:
        return "permission" if self.method == PERMISSION else "question" if self.method == QUESTION else "form"

    @property
    def title(self) -> str:
        """What a permission request is about."""
        return str(self.params.get("title") or self.tool_call.get("title") or "")

    @property
    def subject(self) -> dict[str, Any]:
        """What a permission request is for: its `type` is `tool_call`, `command`, or what a later version knows. Empty when the agent does not tell."""
        if "toolCall" in self.params:  # version 1 knows nothing else
            return {"type": "tool_call", "toolCall": self.params["toolCall"]}
        return self.params.get("subject") or {}

    @property
    def tool_call(self) -> dict[str, Any]:
        """The call that a permission request is for, in either version; empty when it is for something else."""
        call: dict[str, Any] = self.subject.get("toolCall") or {}
        return call

    @property
    def options(self) -> list[PermissionOption]:
        """What may be chosen for a permission request."""
        options: list[PermissionOption] = self.params.get("options") or []
        return options

    @property
    def questions(self) -> list[dict[str, Any]]:
        questions: list[dict[str, Any]] = self.params.get("questions") or []
        return questions

    @property
    def open(self) -> bool:
        """Whether nobody has answered yet."""
        return not self._over.is_set()

    async def allow(self, *, always: bool = False) -> None:
        """Allows a permission request, once or for ever."""
        await self.select(self._option("allow_always" if always else "allow_once", "allow"))

    async def reject(self, *, always: bool = False) -> None:
        """Rejects a request. Nothing is granted, also where the agent offers no such option."""
        if self.kind == "question":
            await self.answer({"outcome": "rejected", "answers": []})
        elif self.kind == "form":
            await self.answer({"action": "decline"})
        else:
            option = self._find("reject_always" if always else "reject_once", "reject")
            await self.answer({"outcome": {"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"}})

    async def select(self, option_id: str) -> None:
        """Chooses an option of a permission request."""
        await self.answer({"outcome": {"outcome": "selected", "optionId": option_id}})

    async def reply(self, answers: list[list[str]]) -> None:
        """Answers questions: for each the labels chosen, or the user's own words."""
        await self.answer({"outcome": "answered", "answers": answers})

    async def answer(self, result: dict[str, Any]) -> None:
        """Answers with a result of the protocol. An answer that a lost connection swallows is sent again."""
        if self._over.is_set():
            raise SandboxAgentError("somebody has answered this already" if self._withdrawn else "this was answered already")
        await self._end_with({"result": result})

    async def _end_with(self, answer: dict[str, Any]) -> None:
        json.dumps(answer, allow_nan=False)  # what is no JSON is no answer: it fails here, and the request is open still
        self._answer = answer
        self._over.set()
        await self._send()

    async def over(self) -> None:
        """Waits until the request was answered, here or elsewhere, or withdrawn."""
        await self._over.wait()

    def _option(self, *kinds: str) -> str:
        option = self._find(*kinds)
        if option is None:
            raise SandboxAgentError("the agent offers nothing that allows it")
        return option

    def _find(self, kind: str, prefix: str) -> str | None:
        for wanted in (kind, prefix + "_once", prefix + "_always"):
            for option in self.options:
                if option["kind"] == wanted:
                    return option["optionId"]
        return None

    async def _send(self) -> None:
        if self._wire is None or self._wire.closed.is_set() or self._answer is None:
            return
        try:
            await self._wire.send({"jsonrpc": "2.0", "id": self._id, **self._answer})
        except ConnectionLostError:
            pass  # it is asked again on the next connection


Handler: TypeAlias = "Callable[[Ask], Awaitable[str | dict[str, Any] | None] | str | dict[str, Any] | None]"


class Asks:
    """The open requests, each shown once, however often connections are replaced."""

    def __init__(self, spawn: Callable[[Any], asyncio.Task[Any]]) -> None:
        self._spawn = spawn
        self._known: dict[tuple[str, Any], Ask] = {}
        self._handlers: dict[str, Handler] = {}
        self._running: dict[Ask, asyncio.Task[Any]] = {}
        self._inboxes: set[asyncio.Queue[Ask | None]] = set()  # None is the end
        self._count = 0
        self._closed = False

    def handle(self, kind: str, handler: Handler | None) -> None:
        """Sets who answers a kind of request; those that are open are shown to it."""
        if handler is None:
            self._handlers.pop(kind, None)
            return
        self._handlers[kind] = handler
        for ask in self.open():
            self._run(ask)

    def open(self) -> list[Ask]:
        return [ask for ask in self._known.values() if ask.open]

    def open_in(self, session_id: str) -> list[Ask]:
        """Those of a session, and of its subagents."""
        return [ask for (of, _), ask in self._known.items() if ask.open and of == session_id]

    async def inbox(self) -> AsyncIterator[Ask]:
        """The requests that are open, then those that come, until the client is closed."""
        queue: asyncio.Queue[Ask | None] = asyncio.Queue()
        for one in self.open():
            queue.put_nowait(one)
        if self._closed:
            queue.put_nowait(None)
        self._inboxes.add(queue)
        try:
            while (ask := await queue.get()) is not None:
                if ask.open:
                    yield ask
        finally:
            self._inboxes.discard(queue)

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True
        for queue in self._inboxes:
            queue.put_nowait(None)

    def take(self, wire: Wire, message: dict[str, Any], seq: Any) -> None:
        """A request that came on a connection, perhaps not for the first time."""
        params = message.get("params") or {}
        self._count += 1
        key = (str(meta_of(params).get("rootSessionId") or params.get("sessionId", "")), seq if seq is not None else f"without {self._count}")
        ask = self._known.get(key)
        known = ask is not None
        if ask is None:
            ask = self._known[key] = Ask(str(message["method"]), params)
        ask._wire, ask._id = wire, message["id"]
        if ask._answer is not None:
            self._spawn(ask._send())
        elif not known:
            self._forget()
            for queue in self._inboxes:
                queue.put_nowait(ask)
            self._run(ask)

    def withdraw(self, wire: Wire, request_id: Any) -> None:
        """Somebody else has answered, or the turn was cancelled."""
        for ask in list(self._known.values()):
            if ask._wire is wire and ask._id == request_id and ask.open:
                self._end(ask)

    def keep(self, asked: list[Ask], still: set[Any]) -> None:
        """Ends those of the requests that are not open any more: somebody answered while there was no connection."""
        for (_, seq), ask in list(self._known.items()):
            if ask in asked and ask.open and seq not in still:
                self._end(ask)

    def lost(self, wire: Wire) -> None:
        """Ends the requests of a connection that have no place in a session: they are not asked again."""
        for (_, seq), ask in list(self._known.items()):
            if ask.open and ask._wire is wire and isinstance(seq, str):
                self._end(ask)

    def leave(self, of: Callable[[str], bool], answered: bool = True) -> None:
        """Ends the requests of sessions that the client is told nothing more of. Who opens one again is asked again, unless what was `answered` is kept."""
        for key, ask in list(self._known.items()):
            if of(key[0]) and (answered or ask.open):
                del self._known[key]
                if ask.open:
                    self._end(ask)

    def _end(self, ask: Ask) -> None:
        ask._withdrawn = True
        ask._over.set()
        task = self._running.pop(ask, None)
        if task:
            task.cancel()

    def _run(self, ask: Ask) -> None:
        handler = self._handlers.get(ask.kind)
        if handler is None or ask in self._running:
            return
        handle = handler

        async def run() -> None:
            try:
                given: Any = handle(ask)
                answer = await given if inspect.isawaitable(given) else given
                if answer is None or not ask.open:
                    return  # it is left to others, or was answered by methods of the Ask
                if isinstance(answer, str):
                    await ask.select(answer)
                else:
                    await ask.answer(answer)
            except (Exception, asyncio.CancelledError) as e:
                task = asyncio.current_task()
                if isinstance(e, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise  # nobody waits for it any more
                if ask.open:  # its agent would wait for ever
                    await ask._end_with({"error": {"code": -32603, "message": "the client's handler of the request failed"}})
                if isinstance(e, Exception):
                    raise
                raise SandboxAgentError("the handler has waited for something that was cancelled") from e  # else nobody is told
            finally:
                self._running.pop(ask, None)

        self._running[ask] = self._spawn(run())

    def _forget(self) -> None:
        answered = [key for key, ask in self._known.items() if not ask.open]
        for key in answered[: max(0, len(answered) - MAX_ANSWERED)]:
            del self._known[key]


