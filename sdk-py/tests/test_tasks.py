"""Tasks that are ended."""

import asyncio

import pytest

from sandbox_agent._tasks import end

from conftest import asynchronous


@asynchronous
async def test_a_cancel_that_a_library_loses_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_agent._tasks.AGAIN", 0.01)
    lost = 0

    async def loses() -> None:
        nonlocal lost
        while lost < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
        await asyncio.Event().wait()

    tasks = [asyncio.ensure_future(work) for work in (loses(), asyncio.sleep(0))]
    await asyncio.sleep(0)
    await asyncio.wait_for(end(*tasks), 30)
    assert lost == 2 and all(task.done() for task in tasks)


@asynchronous
async def test_who_waits_for_the_end_is_ended_behind_it() -> None:
    tidy = asyncio.Event()

    async def tidies() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await tidy.wait()

    task = asyncio.ensure_future(tidies())
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(end(task, again=30))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.sleep(0)
    tidy.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(ending, 30)
    assert task.done()
