from __future__ import annotations

import pathlib
import re
import subprocess
import sys

from conftest import PATIENCE, Gateway

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
        program = block.replace("http://127.0.0.1:2468", gateway.url).replace('"/workspace', f'"{tmp_path}')
        process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append((page, block, process))
    for page, block, process in running:
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0, f"{page}:\n{block}\n{said}"


def test_the_example_does_a_whole_job(gateway: Gateway, tmp_path: pathlib.Path) -> None:
    """examples/python/job.py: a repository is cloned and changed in the sandbox, and the change comes home."""

    def git(*args: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com", *args], check=True)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    patch = tmp_path / "home.patch"
    job = [sys.executable, str(HERE.parent / "examples" / "python" / "job.py")]
    env = {**_environment(), "ENDPOINT": gateway.url, "REPO": f"file://{tmp_path}", "PROMPT": "write notes.txt from the sandbox", "OUT": str(patch)}
    done = subprocess.run(job, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[permission] Write notes.txt: allowed once" in done.stdout
    git("apply", str(patch))
    assert (tmp_path / "notes.txt").read_text() == "from the sandbox\n"

    refused = subprocess.run(job, env={**env, "AGENT": "codex", "OPENAI_API_KEY": ""}, capture_output=True, text=True, timeout=PATIENCE)
    assert refused.returncode == 1 and "AGENT=codex needs OPENAI_API_KEY" in refused.stderr


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(HERE / "src"), "SANDBOX_AGENT_TOKEN": ""}
