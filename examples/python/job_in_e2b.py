"""The whole job in an E2B sandbox, which this program makes and takes away.

    E2B_API_KEY=... E2B_TEMPLATE=sandbox-agent AGENT=claude ANTHROPIC_API_KEY=... \
        REPO=https://github.com/you/project PROMPT="Fix the failing test" python3 job_in_e2b.py

It needs packages: pip install e2b ../../sdk-py. The template has the gateway's program in it; examples/e2b builds it. KEEP=1 leaves the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys

import httpx
from e2b import AsyncSandbox

from job import JobError, job, wish

PORT = int(os.environ.get("GATEWAY_PORT", "2468"))


async def healthy(endpoint: str) -> None:
    """Returns when the gateway answers. Its health needs no token."""
    async with httpx.AsyncClient(timeout=5) as http, asyncio.timeout(60):
        while True:
            try:
                if (await http.get(f"{endpoint}/v2/health")).is_success:
                    return
            except httpx.TransportError:
                pass  # not yet
            await asyncio.sleep(0.2)


async def main() -> None:
    wish()  # before a sandbox costs anything
    me = asyncio.current_task()
    for name in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, which Python does by itself
        asyncio.get_running_loop().add_signal_handler(name, lambda: me and me.cancel())
    token = secrets.token_urlsafe(32)
    keep = os.environ.get("KEEP") == "1"
    making = asyncio.ensure_future(
        AsyncSandbox.create(
            os.environ["E2B_TEMPLATE"],
            timeout=3600 if keep else 600,  # seconds; it ends by itself then, even if this program is killed
            **({"lifecycle": {"on_timeout": "pause"}} if keep else {}),  # or waits, with all that runs in it
        )
    )
    told = None
    while not making.done():  # there may be one by now, and it is taken away only by who knows it
        try:
            await asyncio.shield(making)
        except asyncio.CancelledError as signalled:
            told = signalled
            print("the sandbox is taken away when it is made")
    sandbox = making.result()
    print(f"sandbox {sandbox.sandbox_id}")
    stays = False
    try:
        if told:
            raise told
        host = sandbox.get_host(PORT)
        await sandbox.commands.run(
            f"exec sandbox-agent server --host 0.0.0.0 --port {PORT} --allowed-host {host}",
            background=True,
            timeout=0,  # as long as the sandbox
            envs={"SANDBOX_AGENT_TOKEN": token},  # not in the command line, which others can see
        )
        endpoint = f"https://{host}"
        await healthy(endpoint)
        try:
            await job(endpoint, token)
            stays = keep
        except JobError as error:
            stays = keep and error.begun  # what the agent has done is there alone
            raise
    finally:
        if stays:
            print(f"[page] {endpoint}/ui/#token={token}")
        else:
            try:
                await sandbox.kill()
            except BaseException:
                print(f"THE SANDBOX MAY STILL RUN. Take it away: python3 -c 'import e2b; e2b.Sandbox.kill(\"{sandbox.sandbox_id}\")'", file=sys.stderr)
                raise
            print("the sandbox is gone")


try:
    asyncio.run(main())
except JobError as error:
    sys.exit(str(error))
except asyncio.CancelledError:
    sys.exit("ended by a signal")
