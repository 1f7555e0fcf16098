from __future__ import annotations

import types

import pytest

from conftest import asynchronous
from sandbox_agent._backoff import Backoff, Retry


@pytest.mark.parametrize("suspended", [0.0, 3600.0])
@asynchronous
async def test_the_time_in_which_nobody_could_try_is_not_counted(monkeypatch: pytest.MonkeyPatch, suspended: float) -> None:
    now = 1.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + suspended

    monkeypatch.setattr("sandbox_agent._backoff.time", types.SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("sandbox_agent._backoff.asyncio", types.SimpleNamespace(sleep=sleep))
    backoff = Backoff(Retry(first=1.0, longest=8.0, give_up=20.0))
    tries = 0
    while await backoff.next():
        tries += 1
        assert tries < 50
    assert tries > 3
