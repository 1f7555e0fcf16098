"""Starts a gateway on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import httpx

from .client import SandboxAgent
from .errors import StartError

MAX_LOG = 1000  # lines of the log that are kept for an error
PATIENCE = 20.0  # seconds for a gateway to end in order
OTHERS = 1.5  # seconds for which a data directory may be in use by what nobody of this package has started: it may be about to end


def find_binary(env: Mapping[str, str] | None = None) -> str:
    """The gateway's program: `SANDBOX_AGENT_BIN`, else that in PATH."""
    env = os.environ if env is None else env
    program = env.get("SANDBOX_AGENT_BIN") or shutil.which("sandbox-agent", path=env.get("PATH"))
    if not program:
        raise StartError("no program sandbox-agent: set SANDBOX_AGENT_BIN, or put it into PATH")
    return program


@dataclass(frozen=True)
class Left:
    """What who has started a gateway leaves in its data directory, for others of the same user."""

    url: str
    token: str
    pid: int
    args: list[str]

    @staticmethod
    def file(data_dir: Path) -> Path:
        return data_dir / "started.json"

    @classmethod
    def find(cls, data_dir: Path) -> Left | None:
        try:
            said = json.loads(cls.file(data_dir).read_text())
            return cls(**{f.name: said[f.name] for f in fields(cls)})  # a later version may say more
        except (OSError, ValueError, TypeError, KeyError):
            return None  # it has not come so far, or was not started by this package

    def leave(self, data_dir: Path) -> None:
        file = self.file(data_dir)
        half = file.with_name(f"{file.name}.{os.getpid()}")  # nobody reads half of it
        try:
            with open(os.open(half, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as f:
                json.dump(asdict(self), f)
            half.replace(file)
        except OSError:
            pass  # the gateway is there all the same; others are told that the directory is in use

    async def answers(self) -> bool:
        try:
            async with httpx.AsyncClient(timeout=2.0, trust_env=False) as http:
                return (await http.get(f"{self.url}/v2/ready", headers={"authorization": f"Bearer {self.token}"})).is_success
        except httpx.HTTPError:
            return False


class Starting:
    """A file that is there while a process of this package waits for the gateway that it has started: others wait for it, too."""

    def __init__(self, data_dir: Path | None) -> None:
        self._data_dir = data_dir
        self._file: Path | None = None

    @staticmethod
    def seen(data_dir: Path, pid: str | None) -> bool:
        return pid is not None and (data_dir / f"starting.{pid}").exists()

    def begin(self, pid: int) -> None:
        if self._data_dir is None:
            return
        file = self._data_dir / f"starting.{pid}"
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            self._file = file
        except OSError:
            pass  # others wait for a moment all the same

    def over(self) -> None:
        if self._file:
            self._file.unlink(missing_ok=True)


def take_data_dir(data_dir: str | None, args: Sequence[str]) -> tuple[str | None, list[str]]:
    """The data directory, also where `args` name it, and the other arguments; the last one counts, as on a command line."""
    rest: list[str] = []
    at = 0
    while at < len(args):
        flag, joined, value = args[at].partition("=")
        if flag in ("--data-dir", "-data-dir") and (value := value if joined else "".join(args[at + 1 : at + 2])):
            data_dir = value
            at += 1 if joined else 2
        else:  # another one, or one that the gateway refuses
            rest.append(args[at])
            at += 1
    return data_dir, rest


def data_dir_of(data_dir: str | None, args: Sequence[str], env: Mapping[str, str]) -> Path | None:
    """Where the gateway keeps its data; nothing when it keeps none, or nobody can tell."""
    if any(re.fullmatch("--?ephemeral(=true)?", a) for a in args) or re.fullmatch("1|t|true", env.get("SANDBOX_AGENT_EPHEMERAL", ""), re.I):
        return None
    if not (found := data_dir or env.get("SANDBOX_AGENT_DATA_DIR")):
        base = env.get("XDG_DATA_HOME", "")
        if not os.path.isabs(base):
            if not (home := env.get("HOME") or env.get("USERPROFILE")):
                return None
            base = os.path.join(home, ".local", "share")
        found = os.path.join(base, "sandbox-agent")
    return Path(found).resolve()


@dataclass
class Own:
    """A gateway that this client has started."""

    process: asyncio.subprocess.Process
    drain: asyncio.Task[None]
    data_dir: Path | None

    async def end(self) -> None:
        if self.data_dir and (left := Left.find(self.data_dir)) and left.pid == self.process.pid:
            Left.file(self.data_dir).unlink(missing_ok=True)  # before the directory is another's
        await end(self.process)
        await self.drain


class LocalSandboxAgent(SandboxAgent):
    """A client with a gateway on this machine.

    A gateway that it has started ends with it, and at the latest with this process. One data directory has one
    gateway: who comes second uses that of the first, which the first one ends.
    """

    def __init__(self, own: Own | None, url: str, token: str, pid: int, **options: Any) -> None:
        super().__init__(url, token=token, **options)
        self.url: str = url
        self.token: str = token
        self.pid: int = pid
        self._own = own

    async def _end_all(self) -> None:
        """Ends the gateway with its agents, too, if this client has started it."""
        await super()._end_all()
        if self._own:
            await self._own.end()


async def start(
    *, agent: str | None = None, binary: str | None = None, data_dir: str | None = None, host: str = "127.0.0.1", port: int = 0,
    args: Sequence[str] = (), env: Mapping[str, str] | None = None, timeout: float = 15.0, on_log: Callable[[str], None] | None = None, **options: Any,
) -> LocalSandboxAgent:
    """Starts a gateway and waits until it answers, or uses the one that has the data directory.

    The program is `binary`, `SANDBOX_AGENT_BIN`, or in PATH. `data_dir` is where sessions and agents are kept,
    `SANDBOX_AGENT_DATA_DIR` or the gateway's own default otherwise. `args` are further arguments of
    `sandbox-agent server`, `env` its environment instead of this process's own, `options` those of the client.
    """
    environment = dict(os.environ if env is None else env)
    program = binary or find_binary(environment)
    data_dir, args = take_data_dir(data_dir, args)
    where = data_dir_of(data_dir, args, environment)
    line = ["server", "--end-with-stdin", "--host", host, "--port", str(port), *(["--data-dir", data_dir] if data_dir else []), *args]
    clock = asyncio.get_running_loop().time
    began = clock()
    while True:
        starting = Starting(where)
        try:
            own, url, token = await spawn(program, line, environment, timeout, on_log, where, starting)
            if where:
                Left(url, token, own.process.pid, list(args)).leave(where)
        except StartError as e:
            holder = re.search(r"in use by another process(?: \(process (\d+)\))?", e.log)
            if where is None or holder is None:
                raise
            left = Left.find(where)
            if left and await left.answers():
                if left.args != list(args):
                    raise StartError(f"a gateway uses the data directory {where} already, with other args: give both the same, or another data_dir") from None
                return LocalSandboxAgent(None, left.url, left.token, left.pid, agent=agent, **options)
            if clock() > began + (timeout if Starting.seen(where, holder.group(1)) else OTHERS):
                raise StartError(f"a gateway that this package has not started uses the data directory {where}: connect to that one with SandboxAgent(url), or give another data_dir", e.log) from None
            await asyncio.sleep(0.2)
            continue
        finally:
            starting.over()
        try:
            return LocalSandboxAgent(own, url, token, own.process.pid, agent=agent, **options)
        except BaseException:
            await own.end()  # nobody else would
            raise


async def spawn(
    program: str, line: Sequence[str], env: Mapping[str, str], timeout: float, on_log: Callable[[str], None] | None, where: Path | None, starting: Starting,
) -> tuple[Own, str, str]:
    """Starts a gateway; returns its address and its token, too."""
    token = secrets.token_urlsafe(24)
    environment = {**env, "SANDBOX_AGENT_TOKEN": token}  # arguments can be read by everybody
    try:
        # Its input ends with this process, and the gateway with its input. In a session of its own it is not told of the
        # terminal's Ctrl-C, so that this program can still cancel and close what it has there. On Windows a group of its own does that.
        process = await asyncio.create_subprocess_exec(
            program, *line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except OSError as e:
        raise StartError(f"{program} cannot be started: {e}") from e
    starting.begin(process.pid)
    log: deque[str] = deque(maxlen=MAX_LOG)
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def drain() -> None:
        assert process.stderr is not None
        rest = b""
        while chunk := await process.stderr.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for raw in lines:
                text = raw.decode("utf-8", "replace")
                log.append(text)
                if on_log:
                    try:
                        on_log(text)
                    except Exception as e:  # what is not read any more would hold the gateway up
                        asyncio.get_running_loop().call_exception_handler({"message": "on_log of sandbox_agent failed", "exception": e})
                found = re.search(r"listening on (https?://\S+)", text)
                if found and not listening.done():
                    listening.set_result(found.group(1))
        if rest:
            log.append(rest.decode("utf-8", "replace"))
        if not listening.done():
            listening.set_exception(StartError(f"{program} ended before it was ready", "\n".join(log)))

    draining = asyncio.ensure_future(drain())
    try:
        url = await asyncio.wait_for(asyncio.shield(listening), timeout)
    except asyncio.TimeoutError:
        await end(process)
        await draining
        if listening.done():
            listening.exception()
        raise StartError(f"{program} was not ready within {timeout:g} s", "\n".join(log)) from None
    except BaseException:
        await end(process)
        await draining
        raise
    return Own(process, draining, where), url, token


async def end(process: asyncio.subprocess.Process) -> None:
    """Ends the process: it is asked to, and after a while made to."""
    if process.returncode is None:
        try:
            process.send_signal(signal.SIGTERM)
        except ProcessLookupError:
            pass
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()
