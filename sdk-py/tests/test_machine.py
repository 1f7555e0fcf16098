from __future__ import annotations

import asyncio
import io
import pathlib
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conftest import Gateway, Proxy, asynchronous
from sandbox_agent import ConnectionLostError, ProblemError, Retry, SandboxAgent, SandboxAgentError


@asynchronous
async def test_files(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        fs, here = client.fs, str(tmp_path)
        entry = await fs.write(f"{here}/a/one.txt", "one\n", parents=True)
        assert entry["size"] == 4
        assert await fs.read(f"{here}/a/one.txt", start=1, end=3) == b"ne"

        async def large() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield b"x" * 65536

        await fs.write(f"{here}/large", large())
        assert sum([len(chunk) async for chunk in fs.stream(f"{here}/large")]) == 64 * 65536
        with pytest.raises(ProblemError) as there:
            await fs.write(f"{here}/large", b"", only_new=True)
        assert there.value.status == 412
        await fs.mkdir(f"{here}/b")
        await fs.copy(f"{here}/a/one.txt", f"{here}/b/two.txt")
        await fs.move(f"{here}/b/two.txt", f"{here}/b/three.txt")
        assert sorted([entry["path"] async for entry in fs.entries(here, recursive=True)])[-1].endswith("large")
        assert (await fs.stat(f"{here}/b/three.txt"))["type"] == "file"
        found = await fs.search(here, content="one")
        assert {match["path"] for match in found["matches"]} == {f"{here}/a/one.txt", f"{here}/b/three.txt"}
        archive = b"".join([chunk async for chunk in fs.download_archive([f"{here}/a"])])
        assert any(name.endswith("one.txt") for name in tarfile.open(fileobj=io.BytesIO(archive)).getnames())
        await fs.upload_archive(f"{here}/c", archive)
        await fs.delete(f"{here}/b", recursive=True)
        with pytest.raises(ProblemError):
            await fs.stat(f"{here}/b")
        session = await client.new_session(cwd=here)
        assert await fs.read_text("a/one.txt", session_id=session.id) == "one\n"


@asynchronous
async def test_patches(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        fs, here = client.fs, str(tmp_path)
        subprocess.run(["git", "init", "-q", here], check=True)
        await fs.write(f"{here}/words", "one\n")
        await fs.write(f"{here}/picture", b"\x00\xff")
        patch = await fs.git_diff(here)
        assert "+one\n" in patch and "Binary files /dev/null and b/picture differ\n" in patch
        assert "GIT binary patch\n" in await fs.git_diff(here, binary=True)
        await fs.write(f"{here}/large", "line\n" * (4 << 20))
        with pytest.raises(SandboxAgentError, match="is too long for one answer"):
            await fs.git_diff(here)
        assert "+one\n" in await fs.git_diff(f"{here}/words")


@asynchronous
async def test_changes_are_watched(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        async for change in client.fs.watch(str(tmp_path), on_ready=(tmp_path / "file").touch):
            assert change["path"].endswith("file")
            break


@asynchronous
async def test_programs(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        result = await client.processes.run("sh", ["-c", "cat; echo $X >&2; exit 3"], stdin="in", env={"X": "err"})
        assert (result["exitCode"], result["stdout"]["data"], result["stderr"]["data"]) == (3, "in", "err\n")
        process = await client.processes.start("cat")
        assert process["id"] in [p["id"] for p in await client.processes.list()]
        assert await client.processes.write(process["id"], "hello\n", close=True) == 6
        assert b"".join([out.data async for out in client.processes.follow(process["id"])]) == b"hello\n"
        assert [out.data for out in await client.processes.logs(process["id"])] == [b"hello\n"]
        assert (await client.processes.stop(process["id"]))["id"] == process["id"]
        await client.processes.delete(process["id"])
        with pytest.raises(ProblemError):
            await client.processes.get(process["id"])
        assert (await client.processes.limits())["running"] > 0


@asynchronous
async def test_output_is_followed_over_a_network_that_breaks(gateway: Gateway) -> None:
    async with Proxy(gateway.port) as proxy, SandboxAgent(proxy.url, retry=Retry(first=0.001, longest=0.02)) as client, SandboxAgent(gateway.url) as direct:
        process = await direct.processes.start("sh", ["-c", "for i in $(seq 300); do echo line $i; sleep 0.002; done"])
        text, missed = b"", 0
        async for out in client.processes.follow(process["id"]):
            text += out.data
            missed += out.missed
            if len(text) > 300 * proxy.cuts:
                proxy.cut()
        assert text.decode().split("\n") == [*(f"line {n}" for n in range(1, 301)), ""]
        assert missed == 0 and proxy.cuts > 3


@asynchronous
async def test_output_is_followed_through_a_hub_that_does_not_have_the_gateway_for_a_moment(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SandboxAgent(gateway.url, retry=Retry(first=0.001, longest=0.02)) as client:
        process = await client.processes.start("cat")
        await client.processes.write(process["id"], "one ")
        away = ProblemError(503, {"type": "urn:sandbox-agent:error:node_offline"})
        refusals, events = 0, client.api._events

        @asynccontextmanager
        async def through(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise away

            async def until_broken(stream: Any) -> AsyncIterator[Any]:
                async for event in stream:
                    yield event
                    if refusals:
                        raise ConnectionLostError("broken")

            async with events(*args, **kwargs) as stream:
                yield until_broken(stream)

        monkeypatch.setattr(client.api, "_events", through)
        text = b""
        async for out in client.processes.follow(process["id"]):
            text += out.data
            if text == b"one ":
                refusals = 2
                await client.processes.write(process["id"], "two", close=True)
        assert text == b"one two" and refusals == 0
        refusals = 1
        with pytest.raises(ProblemError):
            await client.processes.follow(process["id"]).__anext__()
        await client.processes.delete(process["id"])


@asynchronous
async def test_terminals(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        process = await client.processes.start("sh", ["-c", "read line; stty size; echo got $line; exit 4"], tty=True)
        async with await client.processes.terminal(process["id"]) as terminal:
            await terminal.resize(91, 31)
            await terminal.write("typed\n")
            text = b"".join([chunk async for chunk in terminal]).decode()
            assert "31 91" in text and "got typed" in text
            assert (await terminal.exited()).exit_code == 4
            assert terminal.position > 0 and terminal.shown == 0  # it is the first that looks
        async with await client.processes.terminal(process["id"], after=terminal.position) as again:
            assert [chunk async for chunk in again] == []
            assert again.shown == terminal.position
        with pytest.raises(ProblemError):
            await client.processes.terminal("no-such-process")


@asynchronous
async def test_the_gateway_itself(gateway: Gateway) -> None:
    async with SandboxAgent(gateway.url, agent="mock") as client:
        assert (await client.api.health())["status"] == "ok"
        assert (await client.api.version())["version"]
        assert "# HELP" in await client.api.metrics()
        agents = {agent["id"]: agent for agent in await client.api.agents()}
        assert agents["mock"]["installed"] and agents["mock"]["default"]
        assert (await client.api.agent("mock"))["name"] == agents["mock"]["name"]
        steps: list[str] = []
        with pytest.raises(ProblemError) as unknown:
            await client.api.install_agent("no-such-agent", on_progress=lambda p: steps.append(p["step"]))
        assert unknown.value.status >= 400 and unknown.value.detail
        assert (await client.api.doctor("mock"))["checks"]


@asynchronous
async def test_content_that_is_none_leaves_the_old_file(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    async with SandboxAgent(gateway.url) as client:
        await client.fs.write(f"{tmp_path}/file", bytearray(b"old"))
        with open(f"{tmp_path}/file", "rb") as file:
            nothing: list[Any] = [None, 5, {"a": 1}, file]
            for content in nothing:
                with pytest.raises(TypeError, match="the content is of type .*: give a string, bytes or an asynchronous iterator of bytes"):
                    await client.fs.write(f"{tmp_path}/file", content)
        assert await client.fs.read_text(f"{tmp_path}/file") == "old"


@asynchronous
async def test_a_terminal_that_is_not_there_says_so_and_one_not_wanted_any_more_leaves_nothing_open(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SandboxAgent(gateway.url) as client:
        process = await client.processes.start("cat")
        with pytest.raises(SandboxAgentError, match="has no terminal: start it with tty"):
            await client.processes.terminal(process["id"])
        await client.processes.delete(process["id"])
        process = await client.processes.start("cat", tty=True)
        waits, closed = asyncio.Event(), asyncio.Event()

        class Silent:
            async def recv(self) -> str:
                waits.set()
                return await asyncio.get_running_loop().create_future()

            async def close(self) -> None:
                closed.set()

        async def dial(*_: Any) -> Silent:
            return Silent()

        monkeypatch.setattr("sandbox_agent._wire.dial", dial)
        opening = asyncio.ensure_future(client.processes.terminal(process["id"]))
        await waits.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert closed.is_set()
        await client.processes.delete(process["id"])
