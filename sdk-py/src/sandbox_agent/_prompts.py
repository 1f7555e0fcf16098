"""The prompts on their way, also across connections."""

from __future__ import annotations

import asyncio
import math
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ._backoff import Backoff
from ._tasks import end
from ._wire import Wire
from .errors import ConnectionLostError, NotConnectedError, RpcError, TurnInterruptedError
from .session import META, meta_of
from .turn import MAX_KEPT, Turn
from .versions import AcpVersion

ENDED = "_sandboxagent/session/ended"
TURN_ENDED = "_sandboxagent/session/turn_ended"
EXPIRED = "_sandboxagent/session/events_expired"  # the client's own
INTERNAL = -32603
NOT_FOUND = -32002  # the code of the error about a session that is not there
CANCELLED = -32800  # the code of the error of a prompt of version 2 that was cancelled before it began


class Host(Protocol):
    """What the prompts need of their client."""

    _disconnects: int  # how often the client was disconnected

    async def _connected(self, session_id: str, since: int | None = None) -> Wire:
        """The connection, when there is one that lives, and is attached to the session, if it was. Fails when the client was disconnected `since`."""

    def _goes_on(self) -> bool:
        """Whether there is a connection, or one is being made."""

    async def _joins(self, wire: Wire, session_id: str, sends: Callable[[], bool]) -> None:
        """Notes that the client is attached to the session, as the gateway attaches who `sends` a prompt."""

    def _prompted(self, session_id: str) -> None:
        """Notes that a prompt is on its way: the gateway attaches who sends it again, also behind a request to detach."""

    def _after(self, session_id: str) -> int | None:
        """The newest event of the session so far; None when the client is not attached to it."""

    def _newest(self, session_id: str) -> int:
        """The newest event that the session had when the client was attached to it last: up to there nothing is of a prompt that is sent now."""

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        """Runs something until the client is closed."""

    def _backoff(self) -> Backoff:
        """How what was refused for a reason that goes away is asked again."""


@dataclass(frozen=True)
class _KnownEnd:
    """The end of a turn other than by the answer to its prompt, and how it is known.

    "found": in the session's events; what tells it may still be on its way. "announced": in version 2, where the state that ends the
    turn may come behind it. "told": with all that came before it.
    """

    ended: dict[str, Any]
    how: Literal["found", "announced", "told"]


@dataclass(eq=False)
class Prompt:
    id: str
    session_id: str
    turn: Turn
    params: dict[str, Any]
    phase: Literal["sent", "begun", "over"] = "sent"  # or to be sent; begun when it was answered, or was found among the events; over when its turn is, or it was cancelled before it was sent
    sight: Literal["all", "anew", "left", "deleted"] = "all"  # see Prompts
    sent: asyncio.Event = field(default_factory=asyncio.Event)  # or not to be sent any more; not while it may have been lost with its connection
    gone: bool = False  # it was sent at least once
    start_after: int = 0  # the newest event of the session before it was sent
    floor: int = 0  # the events up to this one are not its own, or came before
    cancels: int = 0  # of all, sent behind it
    alone: int = 0  # cancels of it and what is behind it, sent behind it
    held: list[dict[str, Any]] = field(default_factory=list)  # before it is known to have begun: they may be of another client's turn
    heard: bool = False  # of version 1: its turn has had an update
    lost: bool = False  # its connection was: on another one its own words come as those of somebody else
    response: dict[str, Any] | None = None  # of version 2
    message: int = 0  # of version 2: the event that it is, 0 while that is not known
    past: bool = False  # of version 2: a later prompt's message came, and with it the end of what is the turn's; how it ended may be history
    idle: bool = False  # the session's state was told to be so since the last message of a person
    end: _KnownEnd | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # wakes who waits for another phase or sight, or for the end

    @property
    def is_told(self) -> bool:
        return self.end is not None and self.end.how == "told"

    @property
    def is_unannounced(self) -> bool:
        """Whether its end is not known, or was only found."""
        return self.end is None or self.end.how == "found"


@dataclass(eq=False)
class _Cancel:
    """A cancel until it is sent."""

    session_id: str
    asked: list[Prompt]  # the prompts that it is to end
    alone: bool  # and nothing else
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class _End:
    stop_reason: str
    response: dict[str, Any]
    usage: dict[str, Any] | None


class Prompts:
    """The prompts on their way.

    In version 1 the answer to a prompt ends its turn. In version 2 it says that the turn has
    begun, and the end is told: by the gateway's own notification, which names the prompt, and
    by the session's state.

    A prompt's sight is what the client sees of the session since the gateway was last asked how the
    prompt goes. "anew": the session was opened anew, and an end before that is history, of which nobody
    is told. "left": the client is not attached, and no end is told. "deleted": the session is no more, and
    what was still on its way to the client went with it.
    """

    def __init__(self, version: AcpVersion, host: Host) -> None:
        self._version = version
        self._host = host
        self._open: dict[str, Prompt] = {}
        self._order: dict[str, list[Prompt]] = {}  # by session, oldest first
        self._cancels: list[_Cancel] = []
        self._others: set[str] = set()  # sessions in which another client's turn goes on; of version 1
        self._names, self._count = str(uuid.uuid4()), 0
        self._cancelled = _End("cancelled", {"stopReason": "cancelled"} if version == 1 else {}, None)  # of a prompt that never began

    def add(self, session_id: str, blocks: list[Any], set_before: Callable[[], asyncio.Event | None] = lambda: None) -> Turn:
        """Sends a prompt, when what was set in the session before is sent."""
        self._count += 1
        name = f"{self._names}-{self._count}"
        params = {"sessionId": session_id, "prompt": blocks, "_meta": {META: {"promptId": name}}}
        prompt = Prompt(name, session_id, Turn(self._version, session_id, lambda: self.cancel(session_id, prompt)), params)
        self._open[name] = prompt
        self._order.setdefault(session_id, []).append(prompt)
        self._host._spawn(self._run(prompt, set_before))
        return prompt.turn

    def update(self, session_id: str, update: dict[str, Any], seq: float = math.inf) -> None:
        """Gives an update to the session's oldest prompt. The end of a turn is that of each that has begun: the end of one before may be lost with its gateway."""
        queue = list(self._order.get(session_id, []))
        if update["sessionUpdate"] == "user_message":
            message = event_of(update.get("messageId"))
            for prompt in queue:
                prompt.idle = False
                prompt.past = prompt.past or 0 < prompt.message < message
        self._give(session_id, next((p for p in queue if not p.past), None), update, seq)
        if update["sessionUpdate"] == "state_update" and update.get("stopReason") is not None:
            for prompt in queue:
                if prompt.phase == "begun" or prompt is queue[0]:
                    prompt.idle = True
                    if prompt.end is not None and prompt.end.how == "announced":
                        self._tell(prompt, prompt.end.ended)

    def ended(self, ended: dict[str, Any]) -> bool:
        """Takes what the gateway tells of a turn's end; False when it is somebody else's."""
        prompt = self._open.get(str(ended.get("promptId")))
        if prompt is None:
            if began(ended):
                self._free(str(ended.get("sessionId")))
            return str(ended.get("promptId")).startswith(self._names)  # of an own one the end was told
        if ended.get("began") is not False and ("error" not in ended or prompt.phase == "begun"):
            self._begin(prompt)
        # In version 2 the session's state may follow, unless the prompt never began.
        if self._version == 1 or prompt.idle or (("error" in ended or ended.get("began") is False) and prompt.phase != "begun"):
            self._tell(prompt, ended)
        elif not prompt.is_told:
            prompt.end = _KnownEnd(ended, "announced")
        return True

    def fail_all(self, error: BaseException) -> None:
        for prompt in list(self._open.values()):
            self._finish(prompt, error)

    def fail_of(self, session_id: str, error: BaseException) -> None:
        """The session is not there any more: what is known of how a turn ended counts."""
        for prompt in list(self._order.get(session_id, [])):
            if prompt.end is None:
                self._finish(prompt, error)
        self._see(session_id, "deleted")

    async def cancel(self, session_id: str, first: Prompt | None = None) -> None:
        """Ends the session's prompts that were never sent, and sends a cancel behind the others: one that comes before its prompt cancels nothing.

        With `first` that is for this one and those of this client behind it: what is before it, or another client's, goes on.
        """
        queue = list(self._order.get(session_id, []))
        if first is not None and first not in queue:
            return  # its end is here, if not yet handed on
        asked = queue[queue.index(first) if first else 0 :]
        for prompt in asked:
            if not prompt.gone:
                self._finish(prompt, self._cancelled)
                prompt.sent.set()
        asked = [prompt for prompt in asked if prompt.gone]
        if first is None:
            await self._send(self._cancel(session_id, asked))
        elif asked:
            await self._send(self._cancel(session_id, asked, alone=True))

    def behind(self, session_id: str) -> Callable[..., asyncio.Event | None]:
        """Says what is waited for before something is sent that belongs behind the session's prompts of now."""
        prompts = list(self._order.get(session_id, []))
        return lambda *_: next((prompt.sent for prompt in prompts if not prompt.sent.is_set()), None)

    def _cancel(self, session_id: str, prompts: list[Prompt], alone: bool = False) -> _Cancel:
        cancel = _Cancel(session_id, list(prompts), alone)
        self._cancels.append(cancel)
        return cancel

    async def _send(self, cancel: _Cancel) -> None:
        lost, since = False, self._host._disconnects
        params: dict[str, Any] = {"sessionId": cancel.session_id}
        if cancel.alone:
            params["_meta"] = {META: {"promptIds": [prompt.id for prompt in cancel.asked]}}

        def note(by: int) -> None:
            for prompt in cancel.asked:
                if cancel.alone:
                    prompt.alone += by
                else:
                    prompt.cancels += by

        try:
            while True:
                for prompt in cancel.asked:
                    await prompt.sent.wait()
                wire = await self._host._connected(cancel.session_id, since)
                if lost and all(_is_over(prompt) for prompt in cancel.asked):
                    return  # it would end what is newer
                if not all(prompt.sent.is_set() for prompt in cancel.asked):
                    continue  # they went with a connection, and are sent again
                note(1)  # the connection may be lost before it is said to be sent
                try:
                    return await wire.notify("session/cancel", params)
                except BaseException as e:
                    note(-1)
                    if not isinstance(e, ConnectionLostError):
                        raise
                    if wire.left:
                        raise NotConnectedError("the client was disconnected") from e
                    await wire.closed.wait()
                    if not cancel.asked or not self._host._goes_on():
                        raise  # whose turn it was to end nobody knows on another connection, if no prompt says it
                    lost = True
        finally:
            self._cancels.remove(cancel)
            cancel.done.set()

    def _before(self, prompt: Prompt) -> asyncio.Event | None:
        """What the prompt is sent behind: an older prompt, and a cancel that came before it, which would end it, too: of all, or at a gateway that knows no other."""
        for other in self._order.get(prompt.session_id, []):
            if other is prompt:
                break
            if not other.sent.is_set():
                return other.sent
        if not prompt.gone:
            for cancel in self._cancels:
                if cancel.session_id == prompt.session_id and prompt not in cancel.asked:
                    return cancel.done
        return None

    def _found(self, prompt: Prompt) -> None:
        """The prompt is on its way again, or the gateway has it. A cancel may have been lost, and is repeated, but not when it would end what was sent behind it."""
        prompt.sent.set()
        queue = self._order.get(prompt.session_id, [])
        if not prompt.lost or prompt not in queue:
            return
        if prompt.alone:
            self._host._spawn(self._cancel_again(self._cancel(prompt.session_id, [other for other in queue if other.alone], alone=True)))
        if prompt.cancels and not self._sent_behind(prompt):
            self._host._spawn(self._cancel_again(self._cancel(prompt.session_id, queue[: queue.index(prompt) + 1])))

    def _sent_behind(self, prompt: Prompt) -> bool:
        queue = self._order.get(prompt.session_id, [])
        return prompt in queue and any(other.gone for other in queue[queue.index(prompt) + 1 :])

    async def _cancel_again(self, cancel: _Cancel) -> None:
        try:
            await self._send(cancel)
        except (ConnectionLostError, NotConnectedError):
            pass  # the next connection does it

    def _tell(self, prompt: Prompt, ended: dict[str, Any]) -> None:
        prompt.end = _KnownEnd(ended, "told")
        self._leave(prompt)
        prompt.changed.set()

    def _answered(self, prompt: Prompt, result: Any) -> None:
        """The answer is here, if not yet handed on: in version 1, updates that follow are the next prompt's."""
        if not prompt.heard and (result is None or meta_of(result).get("began") is False):
            prompt.held = []  # of the turn that it waited for, which may go on
            self._leave(prompt)
            return
        if prompt.heard:
            prompt.held = []  # of the next turn
        else:
            self._others.discard(prompt.session_id)  # what is held was its own after all
        prompt.message = event_of((result or {}).get("messageId"))
        self._begin(prompt)
        if self._version == 1:
            self._leave(prompt)

    def _begin(self, prompt: Prompt, message: str | None = None) -> None:
        """What is held is the turn's, if it begins with the prompt's message, where that is known."""
        if prompt.phase == "over":
            return
        prompt.phase = "begun"
        held, prompt.held = prompt.held, []
        if message is None or (held and held[0].get("messageId") == message):
            for update in held:
                prompt.turn._push(update)

    def attached(self, session_id: str, running: bool) -> None:
        """The client is attached to the session, where a turn goes on or none does. With a prompt of its own, which was sent, it is taken for that one's."""
        if running and not any(prompt.gone for prompt in self._order.get(session_id, [])):
            self._others.add(session_id)
        else:
            self._free(session_id)

    def again(self, session_id: str, up_to: int) -> None:
        """What the session has said up to an event comes again: an own prompt's words, too."""
        for prompt in self._order.get(session_id, []):
            if prompt.gone:
                prompt.lost, prompt.floor = True, max(prompt.floor, up_to)

    def reopened(self, session_id: str) -> None:
        """The application has opened the session anew."""
        self._see(session_id, "anew")

    def detached(self, session_id: str) -> None:
        """The client has left the session, which goes on: only an answer that is on its way, or an end that was found, still ends a prompt."""
        self._see(session_id, "left")

    def deleted(self, session_id: str) -> None:
        """Somebody has deleted the session: only an answer, or an end that was told or found, still ends a prompt."""
        self._see(session_id, "deleted")

    def _see(self, session_id: str, sight: Literal["anew", "left", "deleted"]) -> None:
        for prompt in self._open.values():
            if prompt.session_id == session_id:
                prompt.sight = sight
                prompt.changed.set()

    def _free(self, session_id: str) -> None:
        """The turn of another client is over."""
        self._others.discard(session_id)
        queue = self._order.get(session_id)
        if queue and self._version == 1:
            queue[0].held = []

    def _give(self, session_id: str, prompt: Prompt | None, update: dict[str, Any], seq: float) -> None:
        """Gives an update to its turn, when that is one of this client's."""
        if self._version == 1 and update["sessionUpdate"] == "user_message_chunk" and meta_of(update).get("prompt") is True and not (prompt and prompt.lost):
            self._others.add(session_id)
        if prompt is None or not prompt.gone or seq <= prompt.floor:
            return
        ours = session_id not in self._others if self._version == 1 else prompt.phase == "begun"
        if ours:
            prompt.heard = self._version == 1
            prompt.turn._push(update)
            return
        # In version 2 the answer, which says that it has begun, comes right behind its own message.
        if update["sessionUpdate"] == "user_message":
            prompt.held = []
        if len(prompt.held) < MAX_KEPT:
            prompt.held.append(update)

    def _leave(self, prompt: Prompt) -> None:
        queue = self._order.get(prompt.session_id, [])
        if prompt in queue:
            queue.remove(prompt)
        if not queue:
            self._order.pop(prompt.session_id, None)

    def _finish(self, prompt: Prompt, outcome: _End | BaseException) -> None:
        if prompt.phase == "over":
            return
        prompt.phase = "over"
        del self._open[prompt.id]
        self._leave(prompt)
        prompt.changed.set()
        if isinstance(outcome, BaseException):
            prompt.turn._fail(outcome)
        else:
            prompt.turn._end(outcome.stop_reason, outcome.response, outcome.usage)

    async def _run(self, prompt: Prompt, set_before: Callable[[], asyncio.Event | None]) -> None:
        try:
            self._finish(prompt, await self._turn(prompt, set_before))
        except asyncio.CancelledError:
            self._finish(prompt, NotConnectedError("the client was closed"))
            raise
        except Exception as e:
            self._finish(prompt, e)
        finally:
            prompt.sent.set()

    async def _turn(self, prompt: Prompt, set_before: Callable[[], asyncio.Event | None]) -> _End:
        while True:
            wire = await self._connected_for(prompt)
            if self._host._after(prompt.session_id) is None:
                with suppress(ConnectionLostError):
                    await self._host._joins(wire, prompt.session_id, lambda: not _is_over(prompt))
                wire = await self._connected_for(prompt)
            if (first := set_before() or self._before(prompt)) is not None:
                await first.wait()
                continue
            if not prompt.gone:
                prompt.start_after = self._host._after(prompt.session_id) or 0
            prompt.gone = True
            prompt.floor = self._host._newest(prompt.session_id)

            def sent() -> None:
                self._found(prompt)
                self._host._prompted(prompt.session_id)

            try:
                response = await wire.request("session/prompt", prompt.params, answered=lambda result: self._answered(prompt, result), sent=sent)
                if self._version == 1:
                    return _end_of(response, response)
                prompt.response = response
                ended = await self._before_loss(prompt, wire)
                if ended is not None:
                    return _settled(ended, prompt.response)
                if not self._host._goes_on():
                    raise ConnectionLostError("the connection has ended in the middle of the turn")
            except RpcError as e:
                if self._version == 2 and e.code == CANCELLED:
                    return self._cancelled
                raise
            except ConnectionLostError:
                if not self._host._goes_on():
                    raise
            ended = await self._after_loss(prompt)
            if ended is not None:
                if self._version == 2 and prompt.response is None and (ended.get("error") or {}).get("code") == CANCELLED:
                    return self._cancelled
                return _settled(ended, prompt.response if self._version == 2 else None)
            if prompt.response is not None:
                raise _interrupted()

    async def _connected_for(self, prompt: Prompt) -> Wire:
        """The connection, unless the prompt failed meanwhile: then nobody wants it, or a connection for it."""
        if not _is_over(prompt):
            wire = await self._host._connected(prompt.session_id)
            if not _is_over(prompt):
                return wire
        raise _interrupted()

    async def _before_loss(self, prompt: Prompt, wire: Wire) -> dict[str, Any] | None:
        """How the prompt ended; None when that is to be asked for: the connection was lost before it was told, or the session opened anew."""
        told = asyncio.ensure_future(self._outcome(prompt))
        await _first(told, wire.closed.wait())
        return None if told.cancelled() else told.result()

    async def _after_loss(self, prompt: Prompt) -> dict[str, Any] | None:
        """Finds out, on a later connection or when the session was opened anew, how the prompt ended; None when it is to be sent again."""
        prompt.lost = True
        prompt.sent.clear()
        backoff = self._host._backoff()
        while True:
            wire = await self._connected_for(prompt)
            look = asyncio.ensure_future(self._look(prompt, wire, backoff))
            await _first(look, wire.closed.wait())
            if not look.cancelled():
                try:
                    return look.result()
                except ConnectionLostError:
                    await wire.closed.wait()  # with the next connection the gateway can be asked
                except RpcError as e:
                    # What is refused without a reason need not be so for good.
                    if not prompt.is_unannounced or ((e.passes or _is_bare(e)) and await backoff.next()):
                        continue
                    if prompt.end is None:
                        raise
                    return prompt.end.ended
            prompt.sent.clear()
            backoff.reset()

    async def _look(self, prompt: Prompt, wire: Wire, backoff: Backoff) -> dict[str, Any] | None:
        received = False  # the session had it before the state was asked for, which then knows of it
        while True:
            if prompt.end is None or (prompt.end.how == "found" and prompt.sight == "all"):
                if prompt.sight == "anew":
                    prompt.sight = "all"
                # The state first: a turn that ends behind it is told of.
                state = (await wire.request("_sandboxagent/session/get", {"sessionId": prompt.session_id}))["state"]
                begun, ended, seq, over, expired = await self._find(prompt, wire)
                backoff.reset()
                if begun and self._version == 2:
                    prompt.message = begun
                    self._begin(prompt, f"sa.{begun}")
                    prompt.response = prompt.response or {"messageId": f"sa.{begun}"}
                if prompt.is_unannounced:
                    prompt.end = None if ended is None else _KnownEnd(ended, "found")
                    after = self._host._after(prompt.session_id)
                    if ended is not None and (after is None or seq <= after):
                        return ended
                    active = state in ("running", "waiting") and not over  # then a prompt may wait, and is no event yet
                    if begun is None and ended is None:
                        # Sent behind another prompt it could not be cancelled any more without that.
                        return {"result": {"stopReason": "cancelled"}} if not active and prompt.cancels and self._sent_behind(prompt) else None
                    if ended is None and not active:
                        if received or over:
                            raise expired or _interrupted()
                        received = True  # an earlier connection may have brought it just now
                        continue
                    if ended is None:
                        self._found(prompt)
            prompt.sent.set()
            # What the stream has not brought yet it will bring, behind the turn's updates, unless the session is opened anew.
            outcome = await self._outcome(prompt)
            if outcome is not None:
                return outcome

    async def _outcome(self, prompt: Prompt) -> dict[str, Any] | None:
        """The prompt's end, when it is told; None when it may not be, so that the gateway is to be asked."""
        while not prompt.is_told and prompt.phase != "over" and prompt.sight == "all":
            prompt.changed.clear()
            await prompt.changed.wait()
        if prompt.phase == "over" and not prompt.is_told:
            raise _interrupted()  # the turn knows more: it has failed
        if prompt.end is not None:
            return prompt.end.ended  # where it is not told, what comes behind it is history, or is not told either
        if prompt.sight == "left":
            raise NotConnectedError(f"the client was detached from the session {prompt.session_id}: how its turn ends is not told here")
        if prompt.sight == "deleted":
            raise RpcError(NOT_FOUND, f"the session {prompt.session_id} was deleted: how its turn ended is not told any more", None)
        return None

    async def _find(self, prompt: Prompt, wire: Wire) -> tuple[int | None, dict[str, Any] | None, int, bool, RpcError | None]:
        """Looks for the prompt, and its end, in the session's events: the event that it is, 0 when that is no longer kept, the end, the event of that, whether the turn was lost with its gateway, as the next one or a prompt behind it says, and why the end may be among those that are no longer kept. Fails when the prompt may be."""
        begun: int | None = None
        over = False
        expired: RpcError | None = None
        after = prompt.start_after
        while True:
            try:
                page = await wire.request("_sandboxagent/session/events", {"sessionId": prompt.session_id, "after": after, "limit": 1000})
            except RpcError as e:
                oldest = e.oldest_kept
                if oldest is None or oldest <= after + 1:
                    raise
                expired, after = e, oldest - 1
                if begun is None and (prompt.heard or prompt.response is not None):
                    begun = 0  # it had begun before, and is one of those
                continue
            for event in page["events"]:
                after = event["seq"]
                message: Any = event.get("message") or {}
                params = message.get("params") or {}
                if message.get("method") == "session/prompt":
                    own = meta_of(params).get("promptId") == prompt.id
                    over = begun is not None and not own
                    begun = after if own else begun
                if message.get("method") == TURN_ENDED:
                    if params.get("promptId") == prompt.id:
                        return begun, params, after, False, None
                    # As a gateway says that does not know whose it was.
                    over = over or (begun is not None and params.get("promptId") is None and began(params))
            if page.get("hasMore"):
                continue
            if expired is not None and begun is None:
                raise expired
            return begun, None, after, over, None if begun else expired


def began(ended: dict[str, Any]) -> bool:
    """Whether the turn began."""
    return ended.get("began") is not False


def _is_bare(e: RpcError) -> bool:
    return e.code == INTERNAL and not (isinstance(e.data, dict) and e.data.get("type"))


def _is_over(prompt: Prompt) -> bool:
    return prompt.phase == "over"


async def _first(*waits: Any) -> None:
    """Waits for the first of them, and ends the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)


def _settled(ended: dict[str, Any], response: dict[str, Any] | None) -> _End:
    """What a turn's end says, with the answer to its prompt, or for version 1 without."""
    if "result" in ended:
        return _end_of(ended["result"], ended["result"] if response is None else response)
    error = ended.get("error") or {"code": INTERNAL, "message": "the turn ended without a result"}
    raise RpcError(error["code"], error["message"], error.get("data"))


def event_of(message_id: Any) -> int:
    """The event of the session that a prompt's message is, 0 for a message that is none's."""
    found = re.fullmatch(r"sa\.([0-9]+)", str(message_id))
    return int(found[1]) if found else 0


def _end_of(result: dict[str, Any], response: dict[str, Any]) -> _End:
    return _End(str(result.get("stopReason", "")), response, result.get("usage"))


def _interrupted() -> TurnInterruptedError:
    return TurnInterruptedError("the gateway was started anew in the middle of the turn")
