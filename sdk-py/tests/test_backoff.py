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


@asynchronous
async def test_a_try_in_which_the_machine_was_suspended_is_counted_as_one_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("sandbox_agent._backoff.time", types.SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("sandbox_agent._backoff.asyncio", types.SimpleNamespace(sleep=sleep))
    backoff = Backoff(Retry(first=1.0, longest=8.0, give_up=60.0))
    assert await backoff.next()
    now += 3600
    assert await backoff.next()
    now += 30
    assert not await backoff.next()  # what is no suspension counts
