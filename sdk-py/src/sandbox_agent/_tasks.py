"""The end of tasks."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 1.0  # seconds after which a task that has not ended is cancelled again
OF_OTHERS = 10.0  # and one that people have written, which may have to tidy up


async def end(*tasks: asyncio.Future[Any], again: float | None = None) -> None:
    """Cancels tasks, and waits until they have ended. A library can lose a cancel, as while it connects: it is repeated."""
    cancelled: asyncio.CancelledError | None = None
    while left := {task for task in tasks if not task.done()}:
        for task in left:
            task.cancel()
        try:
            await asyncio.wait(left, timeout=again or AGAIN)
        except asyncio.CancelledError as e:  # who waits is ended, behind them
            cancelled = e
    await asyncio.gather(*tasks, return_exceptions=True)
    if cancelled is not None:
        raise cancelled
