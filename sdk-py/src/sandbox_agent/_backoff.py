"""How a client tries again."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

BUSY = 5.0  # seconds by which a wait may be late on a machine that is only busy
LONGEST_TRY = 45.0  # seconds that are counted of a try; most take no longer before a gateway that says nothing is given up


@dataclass(frozen=True)
class Retry:
    """How a lost connection is looked for, in seconds."""

    first: float = 0.25
    """Before the first try again; doubles with each, with some chance in it."""
    longest: float = 10.0
    """The longest wait between two tries."""
    give_up: float = 60.0
    """After so long without success the connection is given up. Time in which the machine was suspended does not count; of each try at most 45 s do."""


class Backoff:
    """One run of tries."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._delay, self._since = retry.first, 0.0
        self._tries = 0.0  # since when somebody does

    def reset(self) -> None:
        """Begins anew after a success."""
        self._delay, self._since, self._tries = self._retry.first, 0.0, 0.0

    async def next(self) -> bool:
        """Waits for the next try; False when it is not worth one."""
        now = time.monotonic()
        self._since = self._since or now
        self._since += max(now - (self._tries or now) - LONGEST_TRY, 0)  # the machine, or this program, was suspended during the try
        left = self._since + self._retry.give_up - now
        if left <= 0:
            return False
        delay = self._delay * random.uniform(0.5, 1)
        self._delay = min(self._delay * 2, self._retry.longest)
        wait = min(delay, left)
        await asyncio.sleep(wait)
        slept = time.monotonic() - now - wait
        if slept > BUSY:  # as above, and could not try
            self._since += slept
        self._tries = time.monotonic()
        return True
