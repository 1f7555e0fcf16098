"""What is set in a session, and what is sent behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from conftest import asynchronous

from sandbox_agent._settings import Settings


class World:
    """Settings of one session whose answers come when the test says so."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.sent: list[str] = []
        self.answers: dict[str, asyncio.Future[None]] = {}

    def set(self, name: str) -> asyncio.Task[None]:
        async def send(sent: Callable[[bool], None]) -> None:
            self.sent.append(name)
            sent(True)
            self.answers[name] = asyncio.get_running_loop().create_future()
            await self.answers[name]

        return asyncio.ensure_future(self.settings.set("s", send))

    async def behind(self, name: str) -> None:
        held = self.settings.behind("s")
        while (first := held()) is not None:
            await first.wait()
        self.sent.append(name)


async def pause() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynchronous
async def test_a_prompt_waits_until_all_that_was_set_before_is_sent() -> None:
    world = World()
    a, b = world.set("a"), world.set("b")
    await pause()
    prompt = asyncio.ensure_future(world.behind("prompt"))
    await pause()
    assert world.sent == ["a"]
    world.answers["a"].set_result(None)
    await prompt
    assert world.sent == ["a", "b", "prompt"]
    world.answers["b"].set_result(None)
    await asyncio.gather(a, b)
    assert world.settings.behind("s")() is None


@asynchronous
async def test_who_fails_or_is_given_up_holds_nobody_up() -> None:
    world = World()
    a, b, c = world.set("a"), world.set("b"), world.set("c")
    await pause()
    prompt = asyncio.ensure_future(world.behind("prompt"))
    b.cancel()
    await pause()
    assert world.sent == ["a"]  # c is behind a, still
    world.answers["a"].set_exception(ValueError())
    await prompt
    assert world.sent == ["a", "c", "prompt"]
    world.answers["c"].set_result(None)
    ends = await asyncio.gather(a, b, c, return_exceptions=True)
    assert [type(end) for end in ends] == [ValueError, asyncio.CancelledError, type(None)]
