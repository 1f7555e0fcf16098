"""One session that the client is attached to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .turn import Turn
from .versions import ContentBlock, SessionUpdate

if TYPE_CHECKING:
    from .activity import Activity
    from .client import SandboxAgent

META = "sandboxagent.dev"


def meta_of(value: Any) -> dict[str, Any]:
    """The gateway's part of `_meta`."""
    meta = value.get("_meta") if isinstance(value, dict) else None
    own = meta.get(META) if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


class Session:
    """One session that the client is attached to."""

    def __init__(self, client: SandboxAgent, session_id: str, result: dict[str, Any]) -> None:
        self._client = client
        self.id: str = session_id
        self.result: dict[str, Any] = result
        """The gateway's own answer."""
        meta = meta_of(result)
        self.agent: str | None = meta.get("agent")
        self.continuity: str | None = meta.get("continuity")
        """What the agent remembers of a session that was opened again: native is all, replayed the text it was given, fresh nothing."""
        self.unsupported: list[dict[str, str]] = meta.get("unsupported") or []
        """What was asked for and had no effect: `field` and `reason`."""

    @property
    def config_options(self) -> list[dict[str, Any]]:
        """Modes, models and thought levels, as the agent offered them when the session was opened."""
        return self.result.get("configOptions") or []

    @property
    def activity(self) -> Activity | None:
        """What the session is doing, its subagents and its commands: in version 2 of ACP, while the client is attached to it."""
        return self._client.activity(self.id)

    def prompt(self, prompt: str | Sequence[ContentBlock]) -> Turn:
        """Sends a prompt. Await it for the result, iterate it for the updates."""
        return self._client.prompt(self.id, prompt)

    async def cancel(self) -> None:
        """Asks the agent to end what it does."""
        await self._client.cancel(self.id)

    async def set_mode(self, mode_id: str) -> None:
        """Chooses a mode. In version 2 of ACP modes are the values of an option."""
        if self._client.acp_version == 2:
            await self.set_config_option(self._mode_option(), mode_id)
        else:
            await self._client._set("session/set_mode", {"sessionId": self.id, "modeId": mode_id})

    def _mode_option(self) -> str:
        for option in self.config_options:
            if option.get("category") == "mode":
                return str(option["configId"])
        return "mode"

    async def set_config_option(self, config_id: str, value: str) -> dict[str, Any]:
        kind = {"type": "id"} if self._client.acp_version == 2 else {}
        result: dict[str, Any] = await self._client._set("session/set_config_option", {"sessionId": self.id, "configId": config_id, **kind, "value": value})
        return result

    def on_update(self, listener: Callable[[SessionUpdate], None]) -> Callable[[], None]:
        """Tells of every update of the session, those of other clients' turns too, and not of its subagents'. The result ends that."""
        return self._client.on_update(lambda session_id, update: listener(update) if session_id == self.id else None)

    async def close(self) -> None:
        """Ends the agent's part; load or resume opens the session again."""
        await self._client.close_session(self.id)

    async def delete(self) -> None:
        """Removes the session and its log."""
        await self._client.delete_session(self.id)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def with_meta(params: dict[str, Any], **own: Any) -> dict[str, Any]:
    """A request with the gateway's fields in their place in `_meta`."""
    given = {name: value for name, value in own.items() if value is not None}
    return {**params, "_meta": {META: given}} if given else params


def kept(params: dict[str, Any]) -> dict[str, Any]:
    """What a session's params must say again when it is resumed."""
    kept = {k: v for k, v in params.items() if k not in ("sessionId", "cwd", "_meta")}
    own = {k: v for k, v in meta_of(params).items() if k not in ("requestedSessionId", "after", "handover")}
    return {**kept, **({"_meta": {META: own}} if own else {})}
