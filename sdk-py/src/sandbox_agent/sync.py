"""The client without async: the same names, each call waits for its end.

    with SandboxAgent("http://127.0.0.1:2468", agent="claude") as client:
        session = client.new_session(cwd="/tmp")
        print(session.prompt("hello").result().text)

Handlers of requests run in threads of their own and may use the client. Listeners
run where messages are read: they must return soon, and must not wait for the client.

Generated from the asynchronous classes by scripts/generate.py; not edited by hand.
"""

from __future__ import annotations

from . import api as _api
from . import asks as _asks
from . import client as _client
from . import files as _files
from . import local as _local
from ._blocking import Loop
from . import processes as _processes
from . import session as _session
from . import terminal as _terminal
from . import turn as _turn
from ._backoff import Retry
from .activity import Activity
from .api import SILENCE, Token
from .api_types import Agent, EventPage, FileChange, FileEntry, FileListed, FilePage, FileSearch, FileUpload, GitStatus, HostProcess, ImportedSession, InstallProgress, InstallResult, Permission, ProcessLimits, ProcessLimitsChange, ProcessResult, Report, Session as SessionInfo, SessionChange, SessionPage, Status, Version
from .client import LostListener, NoticeListener, State, UpdateListener
from .processes import Output
from .terminal import TerminalExit
from .turn import TurnResult
from .versions import AcpVersion, ContentBlock, McpServer, PermissionOption, SessionUpdate
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

__all__ = ["Api", "Ask", "Files", "LocalSandboxAgent", "Processes", "SandboxAgent", "Session", "Terminal", "Turn", "start"]

Handler: TypeAlias = "Callable[[Ask], str | dict[str, Any] | None]"


class Api:
    """Agents, sessions and the state of a gateway."""

    def __init__(self, loop: Loop, it: _api.Api) -> None:
        self._loop, self._it = loop, it

    @property
    def base_url(self) -> str:
        return self._it.base_url

    def health(self) -> Status:
        return self._loop.run(lambda: self._it.health())

    def version(self) -> Version:
        return self._loop.run(lambda: self._it.version())

    def metrics(self) -> str:
        """The gateway's metrics in the text format of Prometheus."""
        return self._loop.run(lambda: self._it.metrics())

    def agents(self) -> list[Agent]:
        return self._loop.run(lambda: self._it.agents())

    def agent(self, agent: str) -> Agent:
        return self._loop.run(lambda: self._it.agent(agent))

    def doctor(self, agent: str | None=None) -> Report:
        """What is missing on the machine, and what to do about it."""
        return self._loop.run(lambda: self._it.doctor(agent))

    def install_agent(self, agent: str, *, version: str | None=None, reinstall: bool=False, sources: list[str] | None=None, on_progress: Callable[[InstallProgress], None] | None=None) -> InstallResult:
        """Installs an agent; `on_progress` tells how far it is."""
        return self._loop.run(lambda: self._it.install_agent(agent, version=version, reinstall=reinstall, sources=sources, on_progress=on_progress))

    def remove_agent(self, agent: str) -> None:
        return self._loop.run(lambda: self._it.remove_agent(agent))

    def sessions(self, *, cwd: str | None=None, agent: str | None=None, state: Sequence[str]=(), q: str | None=None, sort: str | None=None, cursor: str | None=None, limit: int | None=None) -> SessionPage:
        """One page of sessions; `q` are words of their title or messages, `sort` is `activity` or `created`."""
        return self._loop.run(lambda: self._it.sessions(cwd=cwd, agent=agent, state=state, q=q, sort=sort, cursor=cursor, limit=limit))

    def follow_sessions(self, after: int=0) -> Iterator[SessionChange]:
        """How the list of sessions changes behind a position, that of a change or of a page; at first, all sessions.

        It ends with the connection: go on behind the last position. Leaving the loop ends it, too."""
        return self._loop.iterate(lambda: self._it.follow_sessions(after))

    def session(self, session_id: str) -> SessionInfo:
        return self._loop.run(lambda: self._it.session(session_id))

    def session_permissions(self, session_id: str) -> list[Permission]:
        """What clients have allowed a session's agent for more than one call, the oldest first."""
        return self._loop.run(lambda: self._it.session_permissions(session_id))

    def forget_permissions(self, session_id: str, permission: str | None=None) -> list[Permission]:
        """Takes one of these permissions back, or without a `permission` all that can be: the agent asks again. Refused with the
        problem `conflict` while something goes on in the session. Returns what does not count any more: some agents forget more
        than they were asked to."""
        return self._loop.run(lambda: self._it.forget_permissions(session_id, permission))

    def session_events(self, session_id: str, *, after: int=0, limit: int=1000, acp: Literal[1, 2]=1) -> EventPage:
        """One page of a session's log, in a version of ACP. In version 2 several events may have one number."""
        return self._loop.run(lambda: self._it.session_events(session_id, after=after, limit=limit, acp=acp))

    def session_transcript(self, session_id: str, *, format: Literal['markdown', 'html', 'jsonl', 'handover']='markdown', redact: Sequence[str]=(), thoughts: bool=False, keep_secrets: bool=False) -> str:
        """What was said and done in a session, for people to read, or with `handover` for another agent. What looks like a key is taken out of it."""
        return self._loop.run(lambda: self._it.session_transcript(session_id, format=format, redact=redact, thoughts=thoughts, keep_secrets=keep_secrets))

    def session_raw(self, session_id: str) -> str:
        """What was recorded of a session with `include_raw`, in the agent's own language: a JSON object on each line."""
        return self._loop.run(lambda: self._it.session_raw(session_id))

    def export_session(self, session_id: str, *, redact: Sequence[str]=(), keep_secrets: bool=False, workspace: bool=False) -> Iterator[bytes]:
        """All of a session in one file, as it comes, for `import_session` of another gateway.

        The session is closed while it is read; `workspace` takes the files of its directory along. A file whose reading fails is not whole."""
        return self._loop.iterate(lambda: self._it.export_session(session_id, redact=redact, keep_secrets=keep_secrets, workspace=workspace))

    def import_session(self, file: bytes | Iterable[bytes], *, cwd: str | None=None, trust: bool=False, workspace: bool=False, merge: bool=False, closed: bool=False, replace: bool=False) -> ImportedSession:
        """Makes a session of a file of `export_session`. `trust` takes over settings that can run programs, for files of your own; `workspace` makes the workspace of the file in `cwd`, and `merge` puts it together with files that are there. `closed` has the session arrive closed, and `replace` in the place of what a move has left there."""
        return self._loop.run(lambda: self._it.import_session(self._loop.feed(file), cwd=cwd, trust=trust, workspace=workspace, merge=merge, closed=closed, replace=replace))

    def close(self) -> None:
        return self._loop.run(lambda: self._it.close())



class Ask:
    """A request of an agent that waits for a person.

    It stays open until somebody answers it: this client, or another one.
    """

    def __init__(self, loop: Loop, it: _asks.Ask) -> None:
        self._loop, self._it = loop, it

    @property
    def method(self) -> str:
        return self._it.method

    @property
    def params(self) -> dict[str, Any]:
        return self._it.params

    @property
    def session_id(self) -> str:
        return self._it.session_id

    @property
    def kind(self) -> Literal['permission', 'question', 'form']:
        return self._it.kind

    @property
    def title(self) -> str:
        """What a permission request is about."""
        return self._it.title

    @property
    def subject(self) -> dict[str, Any]:
        """What a permission request is for: its `type` is `tool_call`, `command`, or what a later version knows. Empty when the agent does not tell."""
        return self._it.subject

    @property
    def tool_call(self) -> dict[str, Any]:
        """The call that a permission request is for, in either version; empty when it is for something else."""
        return self._it.tool_call

    @property
    def options(self) -> list[PermissionOption]:
        """What may be chosen for a permission request."""
        return self._it.options

    @property
    def questions(self) -> list[dict[str, Any]]:
        return self._it.questions

    @property
    def open(self) -> bool:
        """Whether nobody has answered yet."""
        return self._it.open

    def allow(self, *, always: bool=False) -> None:
        """Allows a permission request, once or for ever."""
        return self._loop.run(lambda: self._it.allow(always=always))

    def reject(self, *, always: bool=False) -> None:
        """Rejects a request. Nothing is granted, also where the agent offers no such option."""
        return self._loop.run(lambda: self._it.reject(always=always))

    def select(self, option_id: str) -> None:
        """Chooses an option of a permission request."""
        return self._loop.run(lambda: self._it.select(option_id))

    def reply(self, answers: list[list[str]]) -> None:
        """Answers questions: for each the labels chosen, or the user's own words."""
        return self._loop.run(lambda: self._it.reply(answers))

    def answer(self, result: dict[str, Any]) -> None:
        """Answers with a result of the protocol. An answer that a lost connection swallows is sent again."""
        return self._loop.run(lambda: self._it.answer(result))

    def over(self) -> None:
        """Waits until the request was answered, here or elsewhere, or withdrawn."""
        return self._loop.run(lambda: self._it.over())



class Files:
    """Paths are absolute, or belong to the folder of `session_id`, or to the gateway's root."""

    def __init__(self, loop: Loop, it: _files.Files) -> None:
        self._loop, self._it = loop, it

    def read(self, path: str, *, start: int | None=None, end: int | None=None, session_id: str | None=None) -> bytes:
        """A file, or the bytes from start up to end."""
        return self._loop.run(lambda: self._it.read(path, start=start, end=end, session_id=session_id))

    def read_text(self, path: str, *, session_id: str | None=None) -> str:
        return self._loop.run(lambda: self._it.read_text(path, session_id=session_id))

    def stream(self, path: str, *, start: int | None=None, end: int | None=None, session_id: str | None=None) -> Iterator[bytes]:
        """A file of any length, as it comes."""
        return self._loop.iterate(lambda: self._it.stream(path, start=start, end=end, session_id=session_id))

    def write(self, path: str, content: str | bytes | Iterable[bytes], *, mode: str | None=None, parents: bool | None=None, if_match: str | None=None, only_new: bool=False, session_id: str | None=None) -> FileEntry:
        """Writes a file as a whole: readers see the old one or the new one. `if_match` protects what others wrote."""
        return self._loop.run(lambda: self._it.write(path, self._loop.feed(content), mode=mode, parents=parents, if_match=if_match, only_new=only_new, session_id=session_id))

    def list(self, path: str, *, recursive: bool | None=None, hidden: bool | None=None, sort: str | None=None, order: Literal['asc', 'desc'] | None=None, cursor: str | None=None, limit: int | None=None, session_id: str | None=None) -> FilePage:
        """One page of a folder."""
        return self._loop.run(lambda: self._it.list(path, recursive=recursive, hidden=hidden, sort=sort, order=order, cursor=cursor, limit=limit, session_id=session_id))

    def entries(self, path: str, *, recursive: bool | None=None, hidden: bool | None=None, session_id: str | None=None) -> Iterator[FileListed]:
        """All entries of a folder, page by page."""
        return self._loop.iterate(lambda: self._it.entries(path, recursive=recursive, hidden=hidden, session_id=session_id))

    def stat(self, path: str, *, follow: bool | None=None, session_id: str | None=None) -> FileEntry:
        return self._loop.run(lambda: self._it.stat(path, follow=follow, session_id=session_id))

    def mkdir(self, path: str, *, mode: str | None=None, parents: bool | None=None, session_id: str | None=None) -> FileEntry:
        return self._loop.run(lambda: self._it.mkdir(path, mode=mode, parents=parents, session_id=session_id))

    def move(self, source: str, to: str, *, overwrite: bool | None=None, parents: bool | None=None, session_id: str | None=None) -> FileEntry:
        return self._loop.run(lambda: self._it.move(source, to, overwrite=overwrite, parents=parents, session_id=session_id))

    def copy(self, source: str, to: str, *, overwrite: bool | None=None, parents: bool | None=None, session_id: str | None=None) -> FileEntry:
        return self._loop.run(lambda: self._it.copy(source, to, overwrite=overwrite, parents=parents, session_id=session_id))

    def delete(self, path: str, *, recursive: bool | None=None, session_id: str | None=None) -> None:
        return self._loop.run(lambda: self._it.delete(path, recursive=recursive, session_id=session_id))

    def upload_archive(self, path: str, archive: bytes | Iterable[bytes], *, session_id: str | None=None) -> FileUpload:
        """Unpacks a tar archive, plain, gzip or zstd, into a folder."""
        return self._loop.run(lambda: self._it.upload_archive(path, self._loop.feed(archive), session_id=session_id))

    def download_archive(self, paths: Sequence[str], *, session_id: str | None=None) -> Iterator[bytes]:
        """A tar archive of several paths, as it comes."""
        return self._loop.iterate(lambda: self._it.download_archive(paths, session_id=session_id))

    def search(self, path: str, *, name: str | None=None, content: str | None=None, regexp: bool | None=None, ignore_case: bool | None=None, hidden: bool | None=None, ignored: bool | None=None, cursor: str | None=None, limit: int | None=None, session_id: str | None=None) -> FileSearch:
        return self._loop.run(lambda: self._it.search(path, name=name, content=content, regexp=regexp, ignore_case=ignore_case, hidden=hidden, ignored=ignored, cursor=cursor, limit=limit, session_id=session_id))

    def watch(self, path: str, *, recursive: bool | None=None, hidden: bool | None=None, session_id: str | None=None, on_ready: Callable[[], None] | None=None) -> Iterator[FileChange]:
        """Changes in a folder from now on. Leaving the loop ends the watch. It ends with the folder, or with the connection: watch again, and list.

        `on_ready` is called when every later change will be told: what is listed then misses none."""
        return self._loop.iterate(lambda: self._it.watch(path, recursive=recursive, hidden=hidden, session_id=session_id, on_ready=on_ready))

    def git_status(self, path: str, *, session_id: str | None=None) -> GitStatus:
        return self._loop.run(lambda: self._it.git_status(path, session_id=session_id))

    def git_diff(self, path: str, *, staged: bool | None=None, base: str | None=None, binary: bool | None=None, session_id: str | None=None) -> str:
        """What changed, as a unified diff; with `binary` also in files that are no text.

        A gateway gives 16 MiB at most. More is a `SandboxAgentError`, since a part of a patch is none."""
        return self._loop.run(lambda: self._it.git_diff(path, staged=staged, base=base, binary=binary, session_id=session_id))



class Processes:
    """Programs of the gateway's machine."""

    def __init__(self, loop: Loop, it: _processes.Processes) -> None:
        self._loop, self._it = loop, it

    def run(self, command: str, args: Sequence[str]=(), *, cwd: str | None=None, env: Mapping[str, str] | None=None, stdin: str | None=None, timeout_ms: int | None=None, **more: Any) -> ProcessResult:
        """Runs a program to its end. A task that is cancelled ends it. `more` are further fields of the request."""
        return self._loop.run(lambda: self._it.run(command, args, cwd=cwd, env=env, stdin=stdin, timeout_ms=timeout_ms, **more))

    def start(self, command: str, args: Sequence[str]=(), *, cwd: str | None=None, env: Mapping[str, str] | None=None, tty: bool=False, **more: Any) -> HostProcess:
        """Starts a program in the background, with `tty` on a terminal."""
        return self._loop.run(lambda: self._it.start(command, args, cwd=cwd, env=env, tty=tty, **more))

    def list(self) -> list[HostProcess]:
        return self._loop.run(lambda: self._it.list())

    def get(self, process_id: str) -> HostProcess:
        return self._loop.run(lambda: self._it.get(process_id))

    def logs(self, process_id: str, *, stream: Literal['stdout', 'stderr', 'pty', 'combined'] | None=None, after: int | None=None, tail: int | None=None) -> Sequence[Output]:
        """What a program has written, as far as it is kept."""
        return self._loop.run(lambda: self._it.logs(process_id, stream=stream, after=after, tail=tail))

    def follow(self, process_id: str, *, stream: Literal['stdout', 'stderr', 'pty', 'combined'] | None=None, after: int | None=None, tail: int | None=None) -> Iterator[Output]:
        """A program's output as it comes, to its end. A connection that breaks is opened again behind the last byte."""
        return self._loop.iterate(lambda: self._it.follow(process_id, stream=stream, after=after, tail=tail))

    def write(self, process_id: str, data: str | bytes, *, close: bool=False) -> int:
        """Writes to a program's input; `close` ends it."""
        return self._loop.run(lambda: self._it.write(process_id, data, close=close))

    def signal(self, process_id: str, signal: str) -> None:
        return self._loop.run(lambda: self._it.signal(process_id, signal))

    def stop(self, process_id: str, *, patience_ms: int | None=None) -> HostProcess:
        """Ends a program with all it started: it is asked to, and after a while made to."""
        return self._loop.run(lambda: self._it.stop(process_id, patience_ms=patience_ms))

    def delete(self, process_id: str) -> None:
        """Ends a program at once if it runs, and forgets it and its output."""
        return self._loop.run(lambda: self._it.delete(process_id))

    def limits(self) -> ProcessLimits:
        return self._loop.run(lambda: self._it.limits())

    def set_limits(self, change: ProcessLimitsChange) -> ProcessLimits:
        return self._loop.run(lambda: self._it.set_limits(change))

    def terminal(self, process_id: str, *, after: int | None=None) -> Terminal:
        """Opens the terminal of a program that was started with `tty`; several may look at one."""
        return Terminal(self._loop, self._loop.run(lambda: self._it.terminal(process_id, after=after)))



class Terminal:
    """One viewer of a terminal. Iterate it for the output, from the beginning of the
    scrollback; the loop ends with the program or with `close()`.
    """

    def __init__(self, loop: Loop, it: _terminal.Terminal) -> None:
        self._loop, self._it = loop, it

    @property
    def position(self) -> int:
        return self._it.position

    @property
    def shown(self) -> int:
        return self._it.shown

    @property
    def cols(self) -> int:
        return self._it.cols

    @property
    def rows(self) -> int:
        return self._it.rows

    def write(self, data: str | bytes) -> None:
        """Types into the terminal."""
        return self._loop.run(lambda: self._it.write(data))

    def resize(self, cols: int, rows: int) -> None:
        """Sets the size, for all viewers."""
        return self._loop.run(lambda: self._it.resize(cols, rows))

    def signal(self, signal: str) -> None:
        """Sends a signal, such as SIGINT, to the program in front."""
        return self._loop.run(lambda: self._it.signal(signal))

    def exited(self) -> TerminalExit:
        """Waits for the end of the program; fails when the connection ended first."""
        return self._loop.run(lambda: self._it.exited())

    def close(self) -> None:
        """Leaves the terminal; its program goes on."""
        return self._loop.run(lambda: self._it.close())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        return self._loop.iterate(lambda: self._it.__aiter__())



class Turn:
    """One prompt on its way. Await it for the result, iterate it for the updates, or both."""

    def __init__(self, loop: Loop, it: _turn.Turn) -> None:
        self._loop, self._it = loop, it

    @property
    def session_id(self) -> str:
        return self._it.session_id

    def result(self) -> TurnResult:
        """Waits for the end of the turn."""
        return self._loop.run(lambda: self._it.result())

    def cancel(self) -> None:
        """Asks the agent to end the turn, with those of this client that wait behind it; the result's stop reason is then `cancelled`. One that it waits for goes on.

        A prompt that was not sent yet is not sent any more. Of a turn that is over nothing is ended."""
        return self._loop.run(lambda: self._it.cancel())

    def __iter__(self) -> Iterator[SessionUpdate]:
        return self._loop.iterate(lambda: self._it.__aiter__())



class Session:
    """One session that the client is attached to."""

    def __init__(self, loop: Loop, it: _session.Session) -> None:
        self._loop, self._it = loop, it

    @property
    def id(self) -> str:
        return self._it.id

    @property
    def result(self) -> dict[str, Any]:
        return self._it.result

    @property
    def agent(self) -> str | None:
        return self._it.agent

    @property
    def continuity(self) -> str | None:
        return self._it.continuity

    @property
    def unsupported(self) -> list[dict[str, str]]:
        return self._it.unsupported

    @property
    def config_options(self) -> list[dict[str, Any]]:
        """Modes, models and thought levels, as the agent offered them when the session was opened."""
        return self._it.config_options

    @property
    def activity(self) -> Activity | None:
        """What the session is doing, its subagents and its commands: in version 2 of ACP, while the client is attached to it."""
        return self._it.activity

    def prompt(self, prompt: str | Sequence[ContentBlock]) -> Turn:
        """Sends a prompt. Await it for the result, iterate it for the updates."""
        return Turn(self._loop, self._loop.call(lambda: self._it.prompt(prompt)))

    def cancel(self) -> None:
        """Asks the agent to end what it does."""
        return self._loop.run(lambda: self._it.cancel())

    def set_mode(self, mode_id: str) -> None:
        """Chooses a mode. In version 2 of ACP modes are the values of an option."""
        return self._loop.run(lambda: self._it.set_mode(mode_id))

    def set_config_option(self, config_id: str, value: str) -> dict[str, Any]:
        return self._loop.run(lambda: self._it.set_config_option(config_id, value))

    def on_update(self, listener: Callable[[SessionUpdate], None]) -> Callable[[], None]:
        """Tells of every update of the session, those of other clients' turns too, and not of its subagents'. The result ends that."""
        return self._loop.call(lambda: self._it.on_update(listener))

    def close(self) -> None:
        """Ends the agent's part; load or resume opens the session again."""
        return self._loop.run(lambda: self._it.close())

    def delete(self) -> None:
        """Removes the session and its log."""
        return self._loop.run(lambda: self._it.delete())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()



class SandboxAgent:
    """A client of one gateway: its agents by ACP, its machine by HTTP."""

    def __init__(self, base_url: str, *, token: Token | None=None, agent: str | None=None, headers: Mapping[str, str] | None=None, reconnect: bool=True, retry: Retry=Retry(), client_info: Mapping[str, str] | None=None, capabilities: Mapping[str, Any] | None=None, acp_version: AcpVersion=1, silence: float=SILENCE) -> None:
        """`agent` is that of sessions that name none; a lost connection is looked for as `retry` says.

        A gateway that says nothing for `silence` seconds, also where it answers at once, is taken for gone, on a stream of events after 20 at least; 0 is never.

        `acp_version` is the version of ACP to speak: what handlers and listeners are given are that version's own messages."""
        self._loop = Loop()
        try:
            self._it = self._loop.call(lambda: _client.SandboxAgent(base_url, token=token, agent=agent, headers=headers, reconnect=reconnect, retry=retry, client_info=client_info, capabilities=capabilities, acp_version=acp_version, silence=silence))
        except BaseException:
            self._loop.stop()
            raise

    def close(self) -> None:
        """Ends the connection and lets go of everything."""
        self._loop.close(lambda: self._it.aclose())

    @property
    def acp_version(self) -> AcpVersion:
        return self._it.acp_version

    @property
    def api(self) -> Api:
        return Api(self._loop, self._it.api)

    @property
    def fs(self) -> Files:
        return Files(self._loop, self._it.fs)

    @property
    def processes(self) -> Processes:
        return Processes(self._loop, self._it.processes)

    @property
    def state(self) -> State:
        return self._it.state

    def connect(self) -> dict[str, Any]:
        """Opens the connection now, and returns what the gateway says of itself and the agent. Behind one that was given up it goes on with the sessions where that ended."""
        return self._loop.run(lambda: self._it.connect())

    def __enter__(self) -> SandboxAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, method: str, params: Any) -> Any:
        """Sends any request of ACP or an extension. A task that is cancelled asks the gateway to cancel it."""
        return self._loop.run(lambda: self._it.request(method, params))

    def new_session(self, *, cwd: str, agent: str | None=None, title: str | None=None, model: str | None=None, mode: str | None=None, variant: str | None=None, permission_mode: Literal['default', 'readonly', 'write', 'bypass'] | None=None, instructions: str | None=None, append_system_prompt: str | None=None, mcp_servers: Sequence[McpServer]=(), mcp: Mapping[str, Any] | None=None, additional_directories: Sequence[str] | None=None, env: Mapping[str, str] | None=None, credentials: Mapping[str, Any] | None=None, requested_session_id: str | None=None, handover: str | None=None, durability: Literal['async', 'sync'] | None=None, agent_specific: Mapping[str, Any] | None=None, include_raw: bool | None=None, meta: Mapping[str, Any] | None=None) -> Session:
        """Makes a session. `cwd` is an absolute path on the gateway's machine; what the agent cannot do is in `unsupported`.

        `handover` is a text about another conversation, of `api.session_transcript(id, format="handover")`, which the agent is given
        with the first prompt. `durability` says when clients are shown an event: "async" when it is in the gateway's file, "sync" when the
        store of the gateway's hub has it, too. `include_raw` records what the agent and the gateway say to each other, for
        `api.session_raw(id)`. `meta` has further members of `_meta["sandboxagent.dev"]`."""
        return Session(self._loop, self._loop.run(lambda: self._it.new_session(cwd=cwd, agent=agent, title=title, model=model, mode=mode, variant=variant, permission_mode=permission_mode, instructions=instructions, append_system_prompt=append_system_prompt, mcp_servers=mcp_servers, mcp=mcp, additional_directories=additional_directories, env=env, credentials=credentials, requested_session_id=requested_session_id, handover=handover, durability=durability, agent_specific=agent_specific, include_raw=include_raw, meta=meta)))

    def load_session(self, session_id: str, *, cwd: str | None=None, after: int | None=None, mcp_servers: Sequence[McpServer]=(), meta: Mapping[str, Any] | None=None) -> Session:
        """Opens a session and replays its conversation, to the listeners of `on_update`."""
        return Session(self._loop, self._loop.run(lambda: self._it.load_session(session_id, cwd=cwd, after=after, mcp_servers=mcp_servers, meta=meta)))

    def resume_session(self, session_id: str, *, cwd: str | None=None, after: int | None=None, mcp_servers: Sequence[McpServer]=(), meta: Mapping[str, Any] | None=None) -> Session:
        """Opens a session without a replay, or right after an event. One that the client has open goes on behind what came."""
        return Session(self._loop, self._loop.run(lambda: self._it.resume_session(session_id, cwd=cwd, after=after, mcp_servers=mcp_servers, meta=meta)))

    def fork_session(self, session_id: str, *, cwd: str | None=None, meta: Mapping[str, Any] | None=None) -> Session:
        """Makes a session that begins with another's conversation."""
        return Session(self._loop, self._loop.run(lambda: self._it.fork_session(session_id, cwd=cwd, meta=meta)))

    def activity(self, session_id: str) -> Activity | None:
        """What a session is doing, its subagents and its commands: in version 2 of ACP, while the client is attached to it."""
        return self._loop.call(lambda: self._it.activity(session_id))

    def sessions(self, *, cwd: str | None=None, agent: str | None=None) -> Iterator[SessionInfo]:
        """The sessions that the gateway knows, the newest first."""
        return self._loop.iterate(lambda: self._it.sessions(cwd=cwd, agent=agent))

    def close_session(self, session_id: str) -> None:
        """Ends the agent's part of a session; load or resume opens it again. One that is not there is closed, as ACP says."""
        return self._loop.run(lambda: self._it.close_session(session_id))

    def delete_session(self, session_id: str) -> None:
        """Removes a session and its log. One that is not there is deleted, as ACP says."""
        return self._loop.run(lambda: self._it.delete_session(session_id))

    def detach_session(self, session_id: str) -> None:
        """Gets no more of a session, which goes on. A turn whose end would only be told, as after a lost connection, fails."""
        return self._loop.run(lambda: self._it.detach_session(session_id))

    def terminate_session(self, session_id: str) -> dict[str, Any]:
        """Ends a session for good; its events can still be read."""
        return self._loop.run(lambda: self._it.terminate_session(session_id))

    def prompt(self, session_id: str, prompt: str | Sequence[ContentBlock]) -> Turn:
        """Sends a prompt. The result can be awaited, and iterated for the updates."""
        return Turn(self._loop, self._loop.call(lambda: self._it.prompt(session_id, prompt)))

    def cancel(self, session_id: str) -> None:
        """Asks the agent to end the session's running turn, and drops those that wait. In version 2 of ACP the session may be a subagent's."""
        return self._loop.run(lambda: self._it.cancel(session_id))

    def cancel_tool_call(self, session_id: str, tool_call_id: str) -> None:
        """Ends one call of the agent alone, where the call says that it can be: in version 1 in `_meta`."""
        return self._loop.run(lambda: self._it.cancel_tool_call(session_id, tool_call_id))

    def cancel_terminal(self, session_id: str, terminal_id: str) -> None:
        """Ends one command, where it says that it can be: in version 2 of ACP."""
        return self._loop.run(lambda: self._it.cancel_terminal(session_id, terminal_id))

    def on_permission(self, handler: Handler | None) -> None:
        """Answers permission requests: with an option's id, a whole response, or None to leave it to others.

        Without a handler they wait in `requests()`, also for other clients."""
        return self._loop.call(lambda: self._it.on_permission(self._loop.handler(handler, lambda one: Ask(self._loop, one))))

    def on_question(self, handler: Handler | None) -> None:
        """Answers questions, in the same way."""
        return self._loop.call(lambda: self._it.on_question(self._loop.handler(handler, lambda one: Ask(self._loop, one))))

    def on_form(self, handler: Handler | None) -> None:
        """Answers forms (elicitations), for clients whose capabilities offer them."""
        return self._loop.call(lambda: self._it.on_form(self._loop.handler(handler, lambda one: Ask(self._loop, one))))

    def requests(self) -> Iterator[Ask]:
        """The inbox: what agents ask, first what is open, then what comes until the client is closed. Each request is seen once."""
        for one in self._loop.iterate(lambda: self._it.requests()):
            yield Ask(self._loop, one)

    def pending(self) -> list[Ask]:
        """The requests that nobody has answered yet."""
        return [Ask(self._loop, one) for one in self._loop.call(lambda: self._it.pending())]

    def on_update(self, listener: UpdateListener) -> Callable[[], None]:
        """Tells of the updates of all attached sessions, and of their subagents': the session's id and the update. The result ends that."""
        return self._loop.call(lambda: self._it.on_update(listener))

    def on_activity(self, listener: Callable[[Activity], None]) -> Callable[[], None]:
        """Tells when the activity of a session has changed: in version 2 of ACP. The result ends that."""
        return self._loop.call(lambda: self._it.on_activity(listener))

    def on_notice(self, listener: NoticeListener) -> Callable[[], None]:
        """Tells of the gateway's other notifications: their method and params. The result ends that.

        `_sandboxagent/session/events_expired` is the client's own: the events `firstSeq` to `lastSeq` of `sessionId` were let go of
        while there was no connection, and the session goes on behind them."""
        return self._loop.call(lambda: self._it.on_notice(listener))

    def on_session_lost(self, listener: LostListener) -> Callable[[], None]:
        """Tells of a session that the client could not attach to again on a new connection, and why: its id and the error. It goes on;
        the client gets no more of it until it opens it again. The result ends that."""
        return self._loop.call(lambda: self._it.on_session_lost(listener))

    def on_state(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Tells of every change of `state`. The result ends that."""
        return self._loop.call(lambda: self._it.on_state(listener))




class LocalSandboxAgent(SandboxAgent):
    """A client with a gateway of its own, which ends with the client, and at the latest with this process."""

    _it: _local.LocalSandboxAgent

    @property
    def url(self) -> str:
        return self._it.url

    @property
    def token(self) -> str:
        return self._it.token

    @property
    def pid(self) -> int:
        return self._it.pid


def start(*, agent: str | None=None, binary: str | None=None, data_dir: str | None=None, host: str='127.0.0.1', port: int=0, args: Sequence[str]=(), env: Mapping[str, str] | None=None, timeout: float=15.0, on_log: Callable[[str], None] | None=None, **options: Any) -> LocalSandboxAgent:
    """Starts a gateway and waits until it answers, or uses the one that has the data directory.

    The program is `binary`, `SANDBOX_AGENT_BIN`, or in PATH. `data_dir` is where sessions and agents are kept,
    `SANDBOX_AGENT_DATA_DIR` or the gateway's own default otherwise. `args` are further arguments of
    `sandbox-agent server`, `env` its environment instead of this process's own, `options` those of the client.
    """
    loop = Loop()
    try:
        it = loop.run(lambda: _local.start(agent=agent, binary=binary, data_dir=data_dir, host=host, port=port, args=args, env=env, timeout=timeout, on_log=on_log, **options))
    except BaseException:
        loop.stop()
        raise
    client = LocalSandboxAgent.__new__(LocalSandboxAgent)
    client._loop, client._it = loop, it
    return client
