"""Client of the Sandbox Agent gateway: coding agents in a sandbox, driven from outside.

    async with SandboxAgent("http://127.0.0.1:2468", agent="claude") as client:
        session = await client.new_session(cwd="/tmp")
        print((await session.prompt("hello")).text)

`sandbox_agent.sync` has the same without `async` and `await`.
"""

from ._backoff import Retry
from .activity import Activity, Command, Subagent
from .api import Api
from .asks import Ask
from .client import SandboxAgent
from .errors import ConnectionLostError, NotConnectedError, ProblemError, ProtocolVersionError, RpcError, SandboxAgentError, StartError, TurnInterruptedError
from .files import Files
from .local import LocalSandboxAgent, start
from .processes import Output, Processes
from .session import Session
from .terminal import Terminal, TerminalExit
from .turn import Turn, TurnResult

__all__ = [
    "Activity", "Api", "Ask", "Command", "ConnectionLostError", "Files", "LocalSandboxAgent", "NotConnectedError", "Output", "ProblemError", "Processes", "ProtocolVersionError",
    "Retry", "RpcError", "SandboxAgent", "SandboxAgentError", "Session", "StartError", "Subagent", "Terminal", "TerminalExit", "Turn", "TurnInterruptedError", "TurnResult", "start",
]
