"""What a session is doing, as version 2 of ACP tells it."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import Any, TypeVar

MAX_SUBAGENTS = 1024  # the newest are kept
MAX_COMMANDS = 256  # the newest are kept
MAX_OUTPUT = 256 << 10  # bytes of a command's output; the end is kept

T = TypeVar("T")


@dataclass(frozen=True)
class Subagent:
    """A session of its own, within another."""

    session_id: str
    parent_id: str
    """The session that it works for, which may be a subagent, too."""
    title: str | None = None
    description: str | None = None
    state: str | None = None
    """What it is doing; None when nobody can tell."""
    cancellable: bool = False
    """`cancel` of the client ends what it does."""


@dataclass(frozen=True)
class Command:
    """A command that the agent runs, or has run."""

    terminal_id: str
    session_id: str
    """The session, or the subagent, whose it is."""
    command: str | None = None
    cwd: str | None = None
    output: bytes = b""
    """The end of what it has written, at most 256 KiB."""
    exit_status: dict[str, Any] | None = None
    """How it has ended; None while it runs."""
    cancellable: bool = False
    """`cancel_terminal` of the client ends it."""


class Activity:
    """What a session is doing: a fold of its updates and those of its subagents.

    It belongs to the client and changes with each update; what its properties return does not.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id: str = session_id
        self.state: str = "idle"
        """`running`, `requires_action`, `idle`, or what a later version knows."""
        self._background: list[dict[str, Any]] = []
        self._subagents: dict[str, Subagent] = {}
        self._commands: dict[tuple[str, str], Command] = {}

    @property
    def background(self) -> list[dict[str, Any]]:
        """What goes on though no turn runs."""
        return list(self._background)

    @property
    def subagents(self) -> dict[str, Subagent]:
        """By session id."""
        return dict(self._subagents)

    @property
    def commands(self) -> list[Command]:
        """The newest commands, oldest first."""
        return list(self._commands.values())

    def command(self, terminal_id: str, session_id: str | None = None) -> Command | None:
        """A command of the session, or of the subagent whose session is named."""
        return self._commands.get((session_id or self.session_id, terminal_id))

    def _restart(self) -> None:
        """Updates were lost: what has ended in them would be shown for ever. The state is told anew."""
        self._subagents.clear()
        self._commands.clear()

    def _take(self, session_id: str, update: dict[str, Any]) -> bool:
        """Takes an update of the session or of a subagent; True when the activity has changed."""
        kind = update["sessionUpdate"]
        if kind == "state_update":
            if session_id != self.session_id:
                return False
            self.state = str(update.get("state", self.state))
            self._background = update.get("background") or []
        elif kind == "subagent_update":
            self._subagent(session_id, update)
        elif kind == "terminal_update":
            self._terminal(session_id, update)
        elif kind == "terminal_output_chunk":
            before = self._known(session_id, str(update["terminalId"]))
            self._keep(replace(before, output=_tail(before.output + _decoded(update.get("data")))))
        else:
            return False
        return True

    def _subagent(self, parent_id: str, update: dict[str, Any]) -> None:
        name = str(update["sessionId"])
        before = self._subagents.get(name) or Subagent(name, parent_id)
        state = before.state
        if "state" in update:
            state = str(update["state"]["state"]) if update["state"] is not None else None
        self._subagents[name] = replace(
            before, state=state, title=update.get("title", before.title), description=update.get("description", before.description), cancellable=_cancellable(update, before.cancellable)
        )
        _bound(self._subagents, MAX_SUBAGENTS)

    def _terminal(self, session_id: str, update: dict[str, Any]) -> None:
        before = self._known(session_id, str(update["terminalId"]))
        output = before.output
        if "output" in update:
            output = _tail(_decoded((update["output"] or {}).get("data")))
        self._keep(replace(
            before, output=output, command=update.get("command", before.command), cwd=update.get("cwd", before.cwd),
            exit_status=update.get("exitStatus", before.exit_status), cancellable=_cancellable(update, before.cancellable),
        ))

    def _known(self, session_id: str, terminal_id: str) -> Command:
        return self._commands.get((session_id, terminal_id)) or Command(terminal_id, session_id)

    def _keep(self, command: Command) -> None:
        self._commands[command.session_id, command.terminal_id] = command
        _bound(self._commands, MAX_COMMANDS)


def _cancellable(update: dict[str, Any], before: bool) -> bool:
    if "capabilities" not in update:
        return before
    return (update["capabilities"] or {}).get("cancel") is not None


def _bound(known: dict[Any, T], most: int) -> None:
    for oldest in list(known)[: max(0, len(known) - most)]:
        del known[oldest]


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(data or "")
    except (binascii.Error, TypeError, ValueError):
        return b""  # it is no base64, and so no output


def _tail(output: bytes) -> bytes:
    return output[-MAX_OUTPUT:]
