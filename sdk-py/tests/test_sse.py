from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandbox_agent import _sse

TEXT = "id: 1\ndata: one\n\n: a comment\r\nevent: named\r\nid: 2\r\ndata: two\r\ndata:  and more\r\n\r\ndata: é€😀\u2028\n\ndata: is not over".encode()

EVENTS = [
    _sse.ServerEvent("message", "one", "1"),
    _sse.ServerEvent("named", "two\n and more", "2"),
    _sse.ServerEvent("message", "é€😀\u2028", "2"),
]


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def read(*parts: bytes) -> list[_sse.ServerEvent]:
    async def collect() -> list[_sse.ServerEvent]:
        return [event async for event in _sse.read_events(pieces(*parts))]

    return asyncio.run(collect())


def test_events_are_the_same_in_whichever_pieces_they_come() -> None:
    for at in range(len(TEXT) + 1):
        assert read(TEXT[:at], TEXT[at:]) == EVENTS
    assert read(*(TEXT[i : i + 1] for i in range(len(TEXT)))) == EVENTS


def test_a_line_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sse, "MAX_EVENT", 100)
    with pytest.raises(ValueError, match="an event has more than 100 bytes"):
        read(*[b"data: 12345"] * 20)
