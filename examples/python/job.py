"""The whole job of the other examples, at a gateway that is there already.

    ENDPOINT=https://... SANDBOX_AGENT_TOKEN=... AGENT=claude ANTHROPIC_API_KEY=... \
        REPO=https://github.com/you/project PROMPT="Fix the failing test" python3 job.py
"""

from __future__ import annotations

import asyncio
import base64
import os
import pathlib
import secrets
import sys

from sandbox_agent import Ask, SandboxAgent

# The variables in which each agent's key may be; the first that is set counts.
KEYS = {
    "claude": ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
    "codex": ("OPENAI_API_KEY",),
    "opencode": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    "pi": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    "amp": ("AMP_API_KEY",),
}


def credentials(agent: str) -> dict[str, str]:
    """The agent's key, which the gateway keeps in memory for this session only."""
    names = KEYS.get(agent, ())
    for name in names:
        if value := os.environ.get(name):
            return {"oauthToken" if name.endswith("_OAUTH_TOKEN") else "apiKey": value}
    if names:
        sys.exit(f"AGENT={agent} needs {' or '.join(names)}")
    return {}


async def command(client: SandboxAgent, cwd: str | None, name: str, *args: str) -> bytes:
    """Runs a command in the sandbox and returns its output, which need not be text."""
    ended = await client.processes.run(name, args, cwd=cwd, encoding="base64")
    if ended.get("exitCode") != 0:
        sys.exit(f"{name} {' '.join(args)}: {base64.b64decode(ended['stderr']['data']).decode(errors='replace')}")
    return base64.b64decode(ended["stdout"]["data"])


async def job(endpoint: str, token: str | None) -> str:
    """Clones, has the agent work, brings the change home, and returns the session's id."""
    agent = os.environ.get("AGENT", "mock")
    key = credentials(agent)
    async with SandboxAgent(endpoint, token=token, agent=agent) as client:

        async def allow(ask: Ask) -> None:
            print(f"[permission] {ask.params['toolCall'].get('title')}: allowed once")
            await ask.allow()

        client.on_permission(allow)
        folder = f"job-{secrets.token_hex(4)}"
        await command(client, None, "git", "clone", "--quiet", "--depth", "1", "--", os.environ["REPO"], folder)
        cwd = (await command(client, folder, "pwd")).decode().strip()

        session = await client.new_session(cwd=cwd, permission_mode="default", credentials=key or None)
        turn = session.prompt(os.environ.get("PROMPT", "write hello.txt Hello from the sandbox"))
        async for update in turn:
            if update["sessionUpdate"] == "agent_message_chunk" and update["content"]["type"] == "text":
                print(update["content"]["text"], end="", flush=True)
        print(f"\n[end] {(await turn).stop_reason}")

        await command(client, cwd, "git", "add", "--all", "--intent-to-add")
        diff = await command(client, cwd, "git", "diff", "--binary")
        print(diff.decode(errors="replace"))
        patch = pathlib.Path(os.environ.get("OUT", "changes.patch"))
        patch.write_bytes(diff)
        print(f"[patch] git apply {patch}")
        print(f"[session] sandbox-agent chat --endpoint {endpoint} --session {session.id}")
        return session.id


if __name__ == "__main__":
    asyncio.run(job(os.environ.get("ENDPOINT", "http://127.0.0.1:2468"), os.environ.get("SANDBOX_AGENT_TOKEN")))
