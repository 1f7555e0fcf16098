"""The whole job of the other examples, at a gateway that is there already.

    ENDPOINT=https://... SANDBOX_AGENT_TOKEN=... AGENT=claude ANTHROPIC_API_KEY=... \
        REPO=https://github.com/you/project PROMPT="Fix the failing test" python3 job.py

It needs the package sandbox_agent: pip install ../../sdk-py
"""

from __future__ import annotations

import asyncio
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

SHOWN = 64 * 1024  # bytes of a change that are printed


def credentials(agent: str) -> dict[str, str]:
    """The agent's key, which the gateway keeps in memory for this session only."""
    names = KEYS.get(agent, ())
    for name in names:
        if value := os.environ.get(name):
            return {"oauthToken" if name.endswith("_OAUTH_TOKEN") else "apiKey": value}
    if names:
        sys.exit(f"AGENT={agent} needs {' or '.join(names)}")
    return {}


class JobError(Exception):
    """Why a job is not complete."""

    begun = False
    """Whether the agent has worked by then: what it has done is in the sandbox alone."""


def wish() -> tuple[str, str, pathlib.Path]:
    """What the environment asks for: the agent, the repository, and where the patch goes. Nothing has been made yet if it cannot be done."""
    agent = os.environ.get("AGENT", "mock")
    credentials(agent)
    repository = os.environ.get("REPO")
    if not repository:
        sys.exit("REPO is not set: name the repository that is cloned into the sandbox")
    patch = pathlib.Path(os.environ.get("OUT", "changes.patch"))
    if not os.access(patch.absolute().parent, os.W_OK) or (patch.exists() and not patch.is_file()):
        sys.exit(f"OUT={patch} cannot be written")
    return agent, repository, patch


async def command(client: SandboxAgent, cwd: str | None, name: str, *args: str) -> str:
    """Runs a command in the sandbox and returns what it printed.

    It may take as long as the sandbox lives: a request that waits for its end would be cut on the way.
    """
    line = f"{name} {' '.join(args)}"
    process = await client.processes.start(name, args, cwd=cwd)
    printed, complaints = b"", b""
    try:
        async for part in client.processes.follow(process["id"]):
            if part.missed:
                raise JobError(f"{line} has printed more than the gateway keeps")
            if part.stream == "stderr":
                complaints += part.data
            else:
                printed += part.data
        ended = await client.processes.get(process["id"])
    except BaseException:
        await client.processes.delete(process["id"])
        raise
    if ended.get("exitCode") != 0:
        how = f"it ended with {ended.get('exitCode', ended.get('signal'))}"
        raise JobError(f"{line}: {complaints.decode(errors='replace') or how}")
    return printed.decode(errors="replace")


async def job(endpoint: str, token: str | None) -> str:
    """Clones, has the agent work, brings the change home, and returns the session's id."""
    agent, repository, patch = wish()
    key = credentials(agent)
    async with SandboxAgent(endpoint, token=token, agent=agent) as client:

        async def allow(ask: Ask) -> None:
            print(f"[permission] {ask.params['toolCall'].get('title')}: allowed once")
            await ask.allow()

        client.on_permission(allow)
        folder = f"job-{secrets.token_hex(4)}"
        await command(client, None, "git", "clone", "--quiet", "--depth", "1", "--", repository, folder)
        cwd = (await command(client, folder, "pwd")).strip()
        base = (await command(client, folder, "sh", "-c", "git rev-parse --verify --quiet HEAD || git hash-object -t tree /dev/null")).strip()

        session = await client.new_session(cwd=cwd, permission_mode="default", credentials=key or None)
        print(f"[session] sandbox-agent chat --endpoint {endpoint} --session {session.id}")
        try:
            turn = session.prompt(os.environ.get("PROMPT", "write hello.txt Hello from the sandbox"))
            async for update in turn:
                if update["sessionUpdate"] == "agent_message_chunk" and update["content"]["type"] == "text":
                    print(update["content"]["text"], end="", flush=True)
            print(f"\n[end] {(await turn).stop_reason}")
            await bring_home(client, folder, base, patch)
        except Exception as error:
            incomplete = JobError(f"the job is not complete: {error}")
            incomplete.begun = True
            raise incomplete from error
        return session.id


# Takes new files into git's index as far as it can, and prints what no patch will have:
# what git refuses, and repositories within the repository, of which it has the name alone.
ADD_ALL = r"""said=$(git -c advice.addEmbeddedRepo=false add --all --intent-to-add --ignore-errors 2>&1) || printf '%s\n' "$said"
git diff --raw "$1" | grep '^:[0-7]* 160000 ' | cut -f 2-"""


async def bring_home(client: SandboxAgent, folder: str, base: str, patch: pathlib.Path) -> None:
    """Writes what has changed since the clone to a file here, also what the agent has staged or committed, and new files.

    The sandbox makes a file of it first: a patch can be larger than what a command may print. It raises when that is not all there is.
    """
    left = await command(client, folder, "sh", "-c", ADD_ALL, "sh", base)
    await command(client, folder, "git", "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--output=.git/changes.patch", base)
    diff = await client.fs.read(f"{folder}/.git/changes.patch")
    if diff:
        keep_patch(diff, patch)
    else:
        print("[diff] nothing has changed")
    if left:
        raise JobError(f"the patch is not the whole change, it is without what is in\n{left.strip()}")


def keep_patch(diff: bytes, patch: pathlib.Path) -> None:
    print(diff[:SHOWN].decode(errors="replace") + (f"\n... and {len(diff) - SHOWN} bytes more" if len(diff) > SHOWN else ""))
    part = patch.with_name(patch.name + ".part")
    part.write_bytes(diff)
    part.replace(patch)  # an earlier patch is replaced by a whole one
    print(f"[patch] git apply {patch}")


if __name__ == "__main__":
    try:
        asyncio.run(job(os.environ.get("ENDPOINT", "http://127.0.0.1:2468"), os.environ.get("SANDBOX_AGENT_TOKEN")))
    except JobError as error:
        sys.exit(str(error))
