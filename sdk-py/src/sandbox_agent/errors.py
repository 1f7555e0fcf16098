"""What can go wrong."""

from __future__ import annotations

from typing import Any


class SandboxAgentError(Exception):
    """Every error of this package."""


class ProblemError(SandboxAgentError):
    """The gateway refused an HTTP request; its document says why."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self.status = status
        self.type = str(document.get("type", "about:blank"))
        self.title = str(document.get("title", f"HTTP {status}"))
        self.detail = str(document.get("detail", ""))
        self.extensions = {k: v for k, v in document.items() if k not in ("type", "title", "status", "detail")}
        super().__init__(f"{self.title}: {self.detail}" if self.detail else self.title)

    @property
    def passes(self) -> bool:
        """Whether it goes away by itself, as that of a hub whose node is about to come."""
        return self.type in _PASSING

    @property
    def is_final(self) -> bool:
        """Whether it stays so: a token is refused, or the gateway itself says it. What a proxy before it says may be otherwise in a moment."""
        return self.status in (401, 403) or (400 <= self.status < 500 and self.type.startswith(_KIND) and not self.passes)


class RpcError(SandboxAgentError):
    """An ACP request was answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)

    @property
    def passes(self) -> bool:
        """Whether it goes away by itself, as that of a gateway which is ending, and will be started again."""
        return isinstance(self.data, dict) and self.data.get("type") in _PASSING

    @property
    def is_not_there(self) -> bool:
        """Whether there is no such session. The code alone says less: it is also that of one that has ended, or went elsewhere."""
        return isinstance(self.data, dict) and self.data.get("type") == "urn:sandbox-agent:error:session_not_found"

    @property
    def node_is_away(self) -> bool:
        """Whether a hub says that the node is not there, which may be about to come."""
        return isinstance(self.data, dict) and self.data.get("type") == "urn:sandbox-agent:error:node_offline"

    @property
    def may_be_done(self) -> bool:
        """Whether a hub says that nobody knows whether what was asked was done: the node went away while it did it."""
        return isinstance(self.data, dict) and self.data.get("done") == "unknown"

    @property
    def oldest_kept(self) -> int | None:
        """The oldest event that a session has, where the error says that those before it are no longer kept."""
        if isinstance(self.data, dict) and self.data.get("type") == "urn:sandbox-agent:error:events_expired":
            return self.data.get("oldestSeq")
        return None


_KIND = "urn:sandbox-agent:error:"
_PASSING = {_KIND + kind for kind in ("unavailable", "node_offline", "too_many_requests", "insufficient_storage", "timeout")}


class NotConnectedError(SandboxAgentError):
    """There is no connection, and none is being made."""


class ProtocolVersionError(SandboxAgentError):
    """The gateway does not speak the version of ACP that was asked for."""

    def __init__(self, wanted: int, offered: Any) -> None:
        self.wanted = wanted
        self.offered = offered
        super().__init__(f"the gateway does not speak version {wanted} of ACP, which acp_version asks for: it offers {offered!r}")


class ConnectionLostError(SandboxAgentError):
    """The connection ended, and what waited for an answer got none."""


class TurnInterruptedError(SandboxAgentError):
    """The gateway was started anew in the middle of the turn. The session goes on."""


class StartError(SandboxAgentError):
    """A gateway could not be started; the message ends with its log."""

    def __init__(self, message: str, log: str = "") -> None:
        self.log = log
        super().__init__(f"{message}\n{log.strip()}" if log.strip() else message)
