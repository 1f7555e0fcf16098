"""Random sequences of what a program does, while its connection breaks: each turn is answered once, what is said comes once and in order, a cancel ends nothing that is newer, and the client is of use afterwards."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from conftest import Gateway, Proxy, asynchronous
from sandbox_agent import Ask, Retry, RpcError, SandboxAgent, Session, Turn

QUICK = Retry(first=0.001, longest=0.02)
SEEDS = range(40) if os.environ.get("SANDBOX_AGENT_LONG") else (2, 36)
STEPS = 25


class World:
    """One client with one session at a time."""

    def __init__(self, rnd: random.Random, proxy: Proxy, client: SandboxAgent) -> None:
        self.rnd, self.proxy, self.client = rnd, proxy, client
        self.session: Session
        self.prompts = 0
        self.cancelled = 0  # the newest prompt before the newest cancel
        self.turns: list[tuple[int, Turn]] = []
        self.calls: list[asyncio.Future[Any]] = []
        self.said: list[int] = []  # what "echo" has said, in its order
        self.loaded = False  # then it comes again

    async def begin(self) -> None:
        self.session = await self.client.new_session(cwd="/tmp")
        self.said, self.loaded = [], False
        said, one = self.said, self.session

        def listen(update: Any) -> None:
            if update["sessionUpdate"] == "agent_message_chunk" and update["content"]["text"].startswith("n"):
                said.append(int(update["content"]["text"][1:]))

        one.on_update(listen)

    def call(self, work: Any) -> None:
        self.calls.append(asyncio.ensure_future(work))

    async def step(self) -> None:
        what = self.rnd.choice(["prompt", "prompt", "prompt", "ask", "slow", "cancel", "cut", "cut", "away", "resume", "load", "title", "wait", "wait", "fresh", "anew"])
        if what in ("prompt", "ask", "slow"):
            self.prompts += 1
            words = {"prompt": f"echo n{self.prompts}", "ask": "permission", "slow": "slow"}[what]
            self.turns.append((self.prompts, self.session.prompt(words)))
            if what == "slow":
                await asyncio.sleep(self.rnd.random() / 50)
                self.cancel()
        elif what == "cancel":
            self.cancel()
        elif what == "cut":
            self.proxy.cut()
        elif what == "away":
            self.proxy.refusing = True
            self.proxy.cut()
            asyncio.get_running_loop().call_later(self.rnd.random() / 30, setattr, self.proxy, "refusing", False)
        elif what == "resume":
            self.call(self.client.resume_session(self.session.id, cwd="/tmp"))
        elif what == "load":
            self.loaded = True
            self.call(self.client.load_session(self.session.id, cwd="/tmp"))
        elif what == "title":
            self.call(self.client.request("_sandboxagent/session/set_metadata", {"sessionId": self.session.id, "title": "t"}))
        elif what == "wait":
            await asyncio.sleep(self.rnd.random() / 20)
        elif what == "anew":
            await self.settle()
            await self.client.disconnect()
            self.proxy.refusing = False  # the first connection is tried once
            await self.client.connect()
        elif self.rnd.random() < 0.3:
            await self.settle()
            self.call(self.rnd.choice([self.session.close, self.session.delete])())
            await asyncio.gather(*self.calls, return_exceptions=True)
            await self.begin()

    def cancel(self) -> None:
        self.cancelled = self.prompts
        self.call(self.session.cancel())

    async def settle(self) -> None:
        """Every turn ends, and says what it did."""
        self.cancel()  # what is slow ends
        echoed: list[int] = []
        for number, turn in self.turns:
            end = await turn
            assert end.stop_reason == "end_turn" or (end.stop_reason == "cancelled" and number <= self.cancelled), f"prompt {number} has ended with {end.stop_reason}, and the newest cancel is behind {self.cancelled}"
            if end.text.startswith("n"):
                assert end.text == f"n{number}"
                echoed.append(number)
        self.turns = []
        await asyncio.gather(*self.calls, return_exceptions=True)
        assert (await self.session.prompt("echo done")).text == "done"  # behind all
        assert self.loaded or self.said == sorted(set(self.said)), "what is said comes once, in order"
        assert set(echoed) <= set(self.said)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version, agent", [(1, "mock"), (2, "mock"), (2, "mock2")])
@asynchronous
async def test_random_sequences(gateway: Gateway, version: Any, agent: str, seed: int) -> None:
    rnd = random.Random(seed * 3 + version)
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, agent=agent, acp_version=version, retry=QUICK) as client:

        async def allow(ask: Ask) -> str:
            await asyncio.sleep(rnd.random() / 100)
            return "allow_once"

        client.on_permission(allow)
        world = World(rnd, proxy, client)
        await world.begin()
        for _ in range(STEPS):
            await world.step()
        proxy.refusing = False
        await world.settle()
        for done in await asyncio.gather(*world.calls, return_exceptions=True):
            assert not isinstance(done, BaseException) or isinstance(done, (RpcError, ConnectionError)) or "connection" in str(done).lower(), done
