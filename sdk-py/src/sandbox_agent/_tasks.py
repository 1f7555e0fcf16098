"""The end of tasks."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 1.0  # seconds after which a task that has not ended is cancelled again


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancels tasks, and waits until they have ended. A library can lose a cancel, as while it connects: it is repeated."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        left = (await asyncio.wait(left, timeout=AGAIN))[1]
    await asyncio.gather(*tasks, return_exceptions=True)
