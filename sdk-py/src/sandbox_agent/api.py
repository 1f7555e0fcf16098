"""The HTTP API beside ACP. It needs no connection."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlsplit

import httpx

from ._sse import ServerEvent, read_events
from ._tasks import end
from .api_types import Agent, EventPage, ImportedSession, InstallProgress, InstallResult, Permission, Report, Session as SessionInfo, SessionChange, SessionPage, Status, Version
from .errors import ConnectionLostError, NotConnectedError, ProblemError, SandboxAgentError

Token: TypeAlias = "str | Callable[[bool], str | Awaitable[str]]"
Query: TypeAlias = "Mapping[str, Any]"

T = TypeVar("T")

CONNECT_TIMEOUT = 20.0  # seconds
SILENCE = 45.0  # seconds after which a gateway that says nothing, also where it answers at once, is taken for gone
STREAM_SILENCE = 20.0  # seconds, the least on a stream of events, where a comment comes every 15 s if there is no event
NEVER = 2.0**31 / 1000  # seconds, 24 days: who waits longer waits for ever
LONGEST = 32767  # seconds that Linux takes for the time between its own questions
LARGE = 1 << 20  # bytes; beside content of more nothing may get through on a slow network, which is no silence


def address(base_url: str) -> str:
    """The gateway's address; that of ACP below it is taken, too."""
    text = str(base_url)
    if _is_address(text):
        return text.rstrip("/").removesuffix("/v2/rpc").rstrip("/")
    meant = f"http://{text}"
    hint = f": did you mean {meant}?" if isinstance(base_url, str) and "//" not in text and _is_address(meant) else ""
    raise ValueError(f"base_url: {base_url!r} is not an http or https address{hint}")


def _is_address(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # of a port that is no number
        return False


class Api:
    """Agents, sessions and the state of a gateway."""

    def __init__(self, base_url: str, token: Token | None = None, headers: Mapping[str, str] | None = None, silence: float = SILENCE) -> None:
        self.base_url: str = address(base_url)
        self._token = token
        self._headers = dict(headers or {})
        self._silence = silence if 0 < silence < NEVER else None
        self._stream_silence = max(silence, STREAM_SILENCE) if self._silence else None
        self._http = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None))

    async def health(self) -> Status:
        return cast(Status, await self._json("GET", "v2/health"))

    async def version(self) -> Version:
        return cast(Version, await self._json("GET", "v2/version"))

    async def metrics(self) -> str:
        """The gateway's metrics in the text format of Prometheus."""
        return (await self._request("GET", "metrics", headers={"Accept": "text/plain"})).text

    async def agents(self) -> list[Agent]:
        return cast("list[Agent]", (await self._json("GET", "v2/agents"))["agents"])

    async def agent(self, agent: str) -> Agent:
        return cast(Agent, await self._json("GET", f"v2/agents/{segment(agent)}"))

    async def doctor(self, agent: str | None = None) -> Report:
        """What is missing on the machine, and what to do about it."""
        return cast(Report, await self._json("GET", "v2/doctor", {"agent": agent}))

    async def install_agent(
        self, agent: str, *, version: str | None = None, reinstall: bool = False, sources: list[str] | None = None,
        on_progress: Callable[[InstallProgress], None] | None = None,
    ) -> InstallResult:
        """Installs an agent; `on_progress` tells how far it is."""
        wish = {k: v for k, v in {"agentVersion": version, "reinstall": reinstall, "sources": sources}.items() if v}
        async with self._events("POST", f"v2/agents/{segment(agent)}/install", body=wish) as events:
            async for event in events:
                data = json.loads(event.data)
                if event.event == "progress" and on_progress:
                    on_progress(cast(InstallProgress, data))
                if event.event == "result":
                    return cast(InstallResult, data)
        raise SandboxAgentError("the installation's events ended without a result: it goes on; ask again to wait for it")

    async def remove_agent(self, agent: str) -> None:
        await self._do("DELETE", f"v2/agents/{segment(agent)}/install")

    async def sessions(
        self, *, cwd: str | None = None, agent: str | None = None, state: Sequence[str] = (), q: str | None = None, sort: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> SessionPage:
        """One page of sessions; `q` are words of their title or messages, `sort` is `activity` or `created`."""
        query: Query = {"cwd": cwd, "agent": agent, "state": strings("state", state), "q": q, "sort": sort, "cursor": cursor, "limit": limit}
        return cast(SessionPage, await self._json("GET", "v2/sessions", query))

    async def follow_sessions(self, after: int = 0) -> AsyncIterator[SessionChange]:
        """How the list of sessions changes behind a position, that of a change or of a page; at first, all sessions.

        It ends with the connection: go on behind the last position. Leaving the loop ends it, too.
        """
        async with self._events("GET", "v2/sessions/changes", {"after": after}) as events:
            async for event in events:
                yield cast(SessionChange, json.loads(event.data))

    async def session(self, session_id: str) -> SessionInfo:
        return cast(SessionInfo, await self._json("GET", f"v2/sessions/{segment(session_id)}"))

    async def session_permissions(self, session_id: str) -> list[Permission]:
        """What clients have allowed a session's agent for more than one call, the oldest first."""
        page = await self._json("GET", f"v2/sessions/{segment(session_id)}/permissions")
        return cast("list[Permission]", page["permissions"])

    async def forget_permissions(self, session_id: str, permission: str | None = None) -> list[Permission]:
        """Takes one of these permissions back, or without a `permission` all that can be: the agent asks again. Refused with the
        problem `conflict` while something goes on in the session. Returns what does not count any more: some agents forget more
        than they were asked to."""
        one = "" if permission is None else f"/{segment(permission)}"
        page = await self._json("DELETE", f"v2/sessions/{segment(session_id)}/permissions{one}")
        return cast("list[Permission]", page["forgotten"])

    async def session_events(self, session_id: str, *, after: int = 0, limit: int = 1000, acp: Literal[1, 2] = 1) -> EventPage:
        """One page of a session's log, in a version of ACP. In version 2 several events may have one number."""
        return cast(EventPage, await self._json("GET", f"v2/sessions/{segment(session_id)}/events", {"after": after, "limit": limit, "acp": acp}))

    async def session_transcript(
        self, session_id: str, *, format: Literal["markdown", "html", "jsonl", "handover"] = "markdown", redact: Sequence[str] = (), thoughts: bool = False, keep_secrets: bool = False
    ) -> str:
        """What was said and done in a session, for people to read, or with `handover` for another agent. What looks like a key is taken out of it."""
        query: Query = {"format": format, "redact": strings("redact", redact), "thoughts": thoughts, "keepSecrets": keep_secrets}
        return (await self._request("GET", f"v2/sessions/{segment(session_id)}/transcript", query)).text

    async def session_raw(self, session_id: str) -> str:
        """What was recorded of a session with `include_raw`, in the agent's own language: a JSON object on each line."""
        return (await self._request("GET", f"v2/sessions/{segment(session_id)}/raw")).text

    async def export_session(self, session_id: str, *, redact: Sequence[str] = (), keep_secrets: bool = False, workspace: bool = False) -> AsyncIterator[bytes]:
        """All of a session in one file, as it comes, for `import_session` of another gateway.

        The session is closed while it is read; `workspace` takes the files of its directory along. A file whose reading fails is not whole.
        """
        query: Query = {"redact": strings("redact", redact), "keepSecrets": keep_secrets, "workspace": workspace}
        async with self._stream("GET", f"v2/sessions/{segment(session_id)}/export", query) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def import_session(self, file: bytes | AsyncIterator[bytes], *, cwd: str | None = None, trust: bool = False, workspace: bool = False, merge: bool = False, closed: bool = False, replace: bool = False) -> ImportedSession:
        """Makes a session of a file of `export_session`. `trust` takes over settings that can run programs, for files of your own; `workspace` makes the workspace of the file in `cwd`, and `merge` puts it together with files that are there. `closed` has the session arrive closed, and `replace` in the place of what a move has left there."""
        query: Query = {"cwd": cwd, "trust": trust, "workspace": workspace, "merge": merge, "closed": closed, "replace": replace}
        return cast(ImportedSession, await self._json("POST", "v2/sessions/import", query, content=content_of(file), headers={"Content-Type": "application/zstd"}))

    async def close(self) -> None:
        await self._http.aclose()

    async def headers(self, refused: bool = False) -> dict[str, str]:
        """The headers of a request now. After a refusal a token is asked for once more."""
        token: Any = self._token
        if callable(token):
            token = token(refused)
        if inspect.isawaitable(token):
            token = await token
        given = {**self._headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        return {name: sendable(name, value) for name, value in given.items()}

    async def _json(self, method: str, path: str, query: Query | None = None, body: Any = None, *, content: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Sends a request whose answer is a JSON object."""
        response = await self._request(method, path, query, body, content=content, headers=headers)
        try:
            answer = json.loads(response.content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._foreign(response, "no JSON object")
        return answer

    async def _do(self, method: str, path: str, query: Query | None = None, body: Any = None) -> None:
        """Sends a request to which nothing is answered but that it was done."""
        response = await self._request(method, path, query, body)
        if response.status_code != 204:
            raise self._foreign(response, f"{response.status_code} instead of 204")

    def _foreign(self, response: httpx.Response, what: str) -> SandboxAgentError:
        """The error of an answer that no gateway gives, as that of a proxy's page."""
        return SandboxAgentError(f"{response.request.method} {response.request.url.path} at {self.base_url}: the answer is {what}: is this a Sandbox Agent gateway? It begins with {response.content[:60]!r}")

    async def _request(self, method: str, path: str, query: Query | None = None, body: Any = None, *, content: Any = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
        async with self._stream(method, path, query, body, content=content, headers=headers) as response:
            await self._heard(response.aread())
            return response

    @asynccontextmanager
    async def _events(self, method: str, path: str, query: Query | None = None, body: Any = None, *, headers: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[ServerEvent]]:
        """An answer that is a stream of events, which has a comment every 15 s."""
        headers = {"Accept": "text/event-stream", **(headers or {})}
        async with self._stream(method, path, query, body, headers=headers, silence=self._stream_silence) as response:
            if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                await self._heard(response.aread())
                raise self._foreign(response, "no stream of events")
            yield _told(read_events(response.aiter_bytes()))

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, query: Query | None = None, body: Any = None, *, content: Any = None, headers: Mapping[str, str] | None = None, silence: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        """An answer whose body is read as it comes, at most `silence` apart. A refusal is a ProblemError, and so is a redirect: it would carry the token to where it does not belong."""
        if self._http.is_closed:
            raise NotConnectedError("the client was closed: make another one")
        if body is not None:
            content = json.dumps(body, allow_nan=False)
            headers = {"Content-Type": "application/json", **(headers or {})}
        once = content is not None and not isinstance(content, (str, bytes))  # it cannot be sent again
        large = once or len(content or "") > LARGE
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT, write=self._silence, read=silence)
        refused = once and await self._refuses()
        while True:
            given = {**(await self.headers(refused)), **(headers or {})}
            request = self._http.build_request(method, f"{self.base_url}/{path}", params=params(query or {}), content=content, headers=given, timeout=timeout, extensions=self._extensions)
            with self._broken(method, path):
                sending = self._http.send(request, stream=True)
                response = await (sending if large else self._heard(sending))
            try:
                if response.status_code == 401 and not refused and callable(self._token) and not once:
                    refused = True
                    continue
                with self._broken(method, path):
                    if not response.is_success:
                        raise problem(response, await self._heard(response.aread()))
                    yield response
                return
            finally:
                await response.aclose()

    async def _refuses(self) -> bool:
        """Whether the gateway refuses a token that can change: content that is sent only once is not begun with such a one."""
        if not callable(self._token):
            return False
        try:
            answer = await self._heard(self._http.get(f"{self.base_url}/v2/version", headers=await self.headers(), extensions=self._extensions))
        except (_Silent, httpx.RequestError):
            return False  # what follows says how the network is
        return answer.status_code == 401

    @contextmanager
    def _broken(self, method: str, path: str) -> Iterator[None]:
        """What the HTTP library says of the network is said as all of this package."""
        try:
            yield
        except (_Silent, httpx.ReadTimeout, httpx.WriteTimeout) as e:
            silence = self._stream_silence if isinstance(e, httpx.ReadTimeout) else self._silence
            raise ConnectionLostError(f"{method} {path} at {self.base_url}: nothing was heard for {silence:g} s") from e
        except httpx.RequestError as e:
            raise ConnectionLostError(f"{method} {path} at {self.base_url}: {str(e) or type(e).__name__}") from e
        except RuntimeError as e:
            if not self._http.is_closed:
                raise
            raise NotConnectedError("the client was closed: make another one") from e

    async def _heard(self, work: Coroutine[Any, Any, T]) -> T:
        """Does what waits for the gateway. When nothing comes of it for a while, the gateway is asked now and then for what it answers at once, and given up when it says nothing to that, either."""
        half = self._silence and self._silence / 2
        doing = asyncio.ensure_future(work)
        asking: asyncio.Future[Any] | None = None
        try:
            while not (await asyncio.wait({doing}, timeout=half))[0]:
                asking = asyncio.ensure_future(self._answers())
                if not (await asyncio.wait({doing, asking}, timeout=half, return_when=asyncio.FIRST_COMPLETED))[0]:
                    raise _Silent
                await end(asking)
            return doing.result()
        finally:
            await end(doing, *filter(None, [asking]))


    async def _answers(self) -> None:
        """Returns when the gateway answers something, such as a refusal. That nobody is reached is no answer."""
        while True:
            with suppress(httpx.RequestError):
                await self._http.get(f"{self.base_url}/v2/health", extensions=self._extensions)
                return
            await asyncio.sleep((self._silence or SILENCE) / 8)

    @property
    def _extensions(self) -> dict[str, Any]:
        """Of each request: its connection may be a new one."""
        return {"trace": self._connected}

    async def _connected(self, event: str, info: Mapping[str, Any]) -> None:
        """Has the system ask now and then whether the other end of a new connection is there: where it vanished without a word, another gateway may answer at its address."""
        if event != "connection.connect_tcp.complete" or not self._silence:
            return
        connection = info["return_value"].get_extra_info("socket")
        idle, between = (min(max(round(self._silence / part), 1), LONGEST) for part in (2, 6))
        wishes = {"TCP_KEEPIDLE": idle, "TCP_KEEPALIVE": idle, "TCP_KEEPINTVL": between, "TCP_KEEPCNT": 3}
        with suppress(OSError, AttributeError):  # it has ended already, or there is no such thing
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in wishes.items():
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _told(events: AsyncIterator[ServerEvent]) -> AsyncIterator[ServerEvent]:
    """Events up to one that says why they cannot go on."""
    async for event in events:
        if event.event == "error":
            document = json.loads(event.data)
            raise ProblemError(int(document.get("status", 500)), document)
        yield event


class _Silent(Exception):
    """The gateway takes connections and says nothing."""


def problem(response: httpx.Response, body: bytes) -> ProblemError:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if response.is_redirect:
        document = {"detail": f"the server redirects to {response.headers.get('Location', 'another address')}, to which a token is not sent: give the address itself"}
    return ProblemError(response.status_code, document if isinstance(document, dict) else {"detail": "the server did not say why"})


def params(query: Query) -> list[tuple[str, str | int | float | bool | None]]:
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in query.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                pairs.append((name, ("true" if one else "false") if isinstance(one, bool) else str(one)))
    return pairs


def segment(word: str) -> str:
    if not isinstance(word, str):
        raise TypeError(f"an id is a string, not {word!r}")
    return quote(word, safe="")


def sendable(name: str, value: object) -> str:
    """The value of a header, if it can be one. What is wrong is said without it: it may be a secret."""
    text = str(value).strip()
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not text.isascii() or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text):
        raise ValueError(f"the header {name!r} has characters in it that headers cannot have")
    return text


def strings(name: str, given: Sequence[str]) -> list[str]:
    """A list of strings; of one string it would be that of its letters."""
    if isinstance(given, str):
        raise TypeError(f"{name} is a list of strings, not the string {given!r}")
    return [*given]


def content_of(given: Any) -> Any:
    """What a file is written from, as the HTTP client takes it."""
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    if hasattr(given, "__aiter__"):
        return given
    raise TypeError(f"the content is of type {type(given).__name__}: give a string, bytes or an asynchronous iterator of bytes")
