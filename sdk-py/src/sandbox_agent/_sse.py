"""Server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

MAX_EVENT = 32 << 20  # bytes; beyond, reading fails


@dataclass(frozen=True)
class ServerEvent:
    event: str
    data: str
    id: str


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[ServerEvent]:
    """The events of a response. Lines end with a newline only: data may have other separators in it."""
    begun: list[bytes] = []  # pieces of the line that has not ended: joined once, however many there are
    length = 0
    name, last = "message", ""
    data: list[str] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        length += len(first)
        if length > MAX_EVENT:
            raise ValueError(f"an event has more than {MAX_EVENT} bytes")
        if not others:
            continue
        *lines, rest = [b"".join(begun), *others]
        begun, length = [rest], len(rest)
        for raw in lines:
            line = raw.removesuffix(b"\r").decode("utf-8", "replace")
            if line == "":
                if data:
                    yield ServerEvent(name, "\n".join(data), last)
                name, data = "message", []
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
            elif field == "id":
                last = value
