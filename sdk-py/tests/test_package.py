from __future__ import annotations

import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable

from conftest import PATIENCE, Gateway
from sandbox_agent import sync

HERE = pathlib.Path(__file__).resolve().parents[1]


def test_the_generated_files_are_what_the_generator_writes() -> None:
    result = subprocess.run([sys.executable, "scripts/generate.py", "--check"], cwd=HERE, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_types_are_right() -> None:
    result = subprocess.run([sys.executable, "-m", "mypy"], cwd=HERE, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_examples_run(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    """Every block of Python in the README and on the documentation's page, by itself."""
    blocks = []
    for page in (HERE / "README.md", HERE.parent / "docs" / "python.mdx"):
        blocks += [(page.name, block) for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    assert len(blocks) >= 5
    running = []
    for page, block in blocks:  # beside each other: most of their time is Python's start
        program = block.replace("http://127.0.0.1:2468", gateway.url).replace('"/tmp', f'"{tmp_path}')
        process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append((page, block, process))
    for page, block, process in running:
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0, f"{page}:\n{block}\n{said}"


def test_the_example_does_a_whole_job(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    """examples/python/job.py: a repository is cloned and changed in the sandbox, and the change comes home."""
    git = _repository(tmp_path)
    patch = tmp_path / "home.patch"
    job = [sys.executable, str(HERE.parent / "examples" / "python" / "job.py")]
    env = {**_environment(), "ENDPOINT": gateway.url, "REPO": f"file://{tmp_path}", "PROMPT": "write notes.txt from the sandbox", "OUT": str(patch)}
    done = subprocess.run(job, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[permission] Write notes.txt: allowed once" in done.stdout
    git("apply", str(patch))
    assert (tmp_path / "notes.txt").read_text() == "from the sandbox\n"

    for change, why in (
        ({"AGENT": "codex", "OPENAI_API_KEY": ""}, "AGENT=codex needs OPENAI_API_KEY"),
        ({"REPO": ""}, "REPO is not set"),
        ({"OUT": str(tmp_path / "no-such-folder" / "home.patch")}, "cannot be written"),
    ):
        refused = subprocess.run(job, env={**env, **change}, capture_output=True, text=True, timeout=PATIENCE)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr


def test_the_example_brings_home_all_that_an_agent_has_done(tmp_path: pathlib.Path) -> None:
    """What it has committed and what it has staged, however large it is, and however little time a run may take."""
    import json

    gateway = Gateway()
    try:
        agent = json.dumps([str(HERE.parent / "examples" / "test" / "shell_agent.mjs")])
        with open(gateway.dir + "/data/agents.toml", "a", encoding="utf-8") as file:
            file.write(f'[agents.shell]\ncommand = "node"\nargs = {agent}\n')
        gateway.kill()
        gateway.restart()
        with sync.SandboxAgent(gateway.url) as client:
            client.processes.set_limits({"runMs": 1, "runBytes": 64})
        for name, commits in (("empty", False), ("one", True)):
            (tmp_path / name).mkdir()
            git = _repository(tmp_path / name, commits)
            patch = tmp_path / f"{name}.patch"
            prompt = "echo one > one.txt; git add .; git -c user.name=a -c user.email=a@example.com commit -qm done; head -c 3000000 /dev/urandom > large.bin; git add .; echo two >> one.txt"
            env = {**_environment(), "ENDPOINT": gateway.url, "REPO": f"file://{tmp_path / name}", "AGENT": "shell", "PROMPT": prompt, "OUT": str(patch)}
            done = subprocess.run([sys.executable, str(HERE.parent / "examples" / "python" / "job.py")], env=env, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stdout + done.stderr
            git("apply", str(patch))
            assert (tmp_path / name / "one.txt").read_text() == "one\ntwo\n"
            assert (tmp_path / name / "large.bin").stat().st_size == 3_000_000

            # A repository within, of which a patch has the name alone, and one that git does not take in.
            env["PROMPT"] = "echo whole > rest.txt; git init -q within; git init -q other; cd other; touch file; git add .; git -c user.name=a -c user.email=a@example.com commit -qm done"
            done = subprocess.run([sys.executable, str(HERE.parent / "examples" / "python" / "job.py")], env=env, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 1 and "not the whole change" in done.stderr, done.stdout + done.stderr
            assert "within/" in done.stderr and done.stderr.endswith("\nother\n"), done.stderr
            git("apply", str(patch))
            assert (tmp_path / name / "rest.txt").read_text() == "whole\n"
    finally:
        gateway.stop()


def test_the_example_for_e2b_makes_a_sandbox_and_takes_it_away(tmp_path: pathlib.Path) -> None:
    """examples/python/job_in_e2b.py with a stand-in for E2B's SDK: the gateway, its TLS and the job are real."""
    import json
    import os
    import socket

    def run(*line: str) -> None:
        subprocess.run(line, check=True, capture_output=True, cwd=tmp_path)

    run("git", "init", "--quiet")
    run("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--allow-empty", "--message", "first")
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key", "-out", "cert",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")  # fmt: skip
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sandbox-agent").symlink_to(os.environ["SANDBOX_AGENT_BIN"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        **_environment(), "HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "GATEWAY_PORT": str(port),
        "SANDBOX_AGENT_DEFAULT_AGENT": "mock", "SSL_CERT_FILE": str(tmp_path / "cert"), "STANDIN_CERT": str(tmp_path / "cert"),
        "STANDIN_KEY": str(tmp_path / "key"), "STANDIN_LOG": str(tmp_path / "log"), "E2B_TEMPLATE": "mine",
        "REPO": f"file://{tmp_path}", "PROMPT": "write notes.txt from the sandbox", "OUT": str(tmp_path / "home.patch"),
    }  # fmt: skip
    env["PYTHONPATH"] += f":{HERE / 'tests' / 'standin'}"
    program = [sys.executable, str(HERE.parent / "examples" / "python" / "job_in_e2b.py")]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the sandbox is gone" in done.stdout
    assert "+from the sandbox" in (tmp_path / "home.patch").read_text()
    made, started, killed = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert made == {"template": "mine", "timeout": 600, "lifecycle": None} and killed == {"killed": True}
    assert "TOKEN" not in started["run"]

    # What the agent has done is in the sandbox alone when it cannot be written here: KEEP=1 leaves that.
    (tmp_path / "home.patch.part").mkdir()
    kept = subprocess.Popen(
        program, env={**env, "KEEP": "1", "SANDBOX_AGENT_END_WITH_STDIN": "true"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    code = kept.wait(PATIENCE)
    said = kept.communicate(timeout=PATIENCE)[0]  # closes the input, and returns when the gateway in the sandbox has ended, too
    assert code == 1 and "the job is not complete" in said and "[page] " in said and "the sandbox is gone" not in said, said
    assert "killed" not in (tmp_path / "log").read_text().splitlines()[-1]

    # A signal takes the sandbox away, too; that it cannot be is said.
    for keeps, said_last in (({}, "the sandbox is gone"), ({"STANDIN_KEEPS": "1"}, "THE SANDBOX MAY STILL RUN")):
        slow = subprocess.Popen(
            [program[0], "-u", program[1]], env={**env, "PROMPT": "slow", "SANDBOX_AGENT_END_WITH_STDIN": "true", **keeps},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert slow.stdout is not None
        before = ""
        while "[session]" not in before:
            line = slow.stdout.readline()
            assert line, before
            before += line
        slow.terminate()
        said = before + slow.communicate(timeout=PATIENCE)[0]
        assert slow.returncode == 1 and said_last in said, said

    # Those that come while the sandbox is made, and that nobody else would know of.
    os.mkfifo(tmp_path / "made")
    for keep in ("0", "1"):
        (tmp_path / "log").unlink()
        making = subprocess.Popen(
            [program[0], "-u", program[1]], env={**env, "KEEP": keep, "STANDIN_MAKES": str(tmp_path / "made")},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert making.stdout is not None
        with open(tmp_path / "made", "w", encoding="utf-8"):  # returns when the stand-in is asked for one
            for name in (signal.SIGTERM, signal.SIGHUP):
                making.send_signal(name)
                assert "is taken away when it is made" in making.stdout.readline()
        said = making.communicate(timeout=PATIENCE)[0]
        assert making.returncode == 1 and "the sandbox is gone" in said and "ended by a signal" in said, said
    (tmp_path / "log").unlink()

    for change, why in (
        ({"REPO": ""}, "REPO is not set"),
        ({"OUT": "no-such-folder/home.patch"}, "cannot be written"),
    ):
        refused = subprocess.run(program, env={**env, **change}, capture_output=True, text=True, timeout=PATIENCE)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr
    refused = subprocess.run(program, env={**env, "AGENT": "claude", "ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": ""}, capture_output=True, text=True, timeout=PATIENCE)
    assert refused.returncode == 1 and "AGENT=claude needs ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN" in refused.stderr
    assert not (tmp_path / "log").exists(), "a sandbox was made for a job that cannot be done"


def _repository(folder: pathlib.Path, commit: bool = True) -> Callable[..., None]:
    """Makes a repository in a folder, and returns git in it."""

    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com", *args], check=True)

    git("init", "--quiet")
    if commit:
        git("commit", "--quiet", "--allow-empty", "--message", "first")
    return git


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(HERE / "src"), "SANDBOX_AGENT_TOKEN": ""}
