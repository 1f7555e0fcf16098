"""The types of the gateway's HTTP API.

Generated from the OpenAPI document by scripts/generate.py; not edited by hand.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, Union

__all__ = [
    "Agent",
    "AgentList",
    "Artifact",
    "Attempt",
    "Check",
    "Child",
    "Choice",
    "Cost",
    "Download",
    "End",
    "Event",
    "EventPage",
    "FileChange",
    "FileEntry",
    "FileListed",
    "FileMatch",
    "FilePage",
    "FileSearch",
    "FileUpload",
    "ForgottenPermissions",
    "GitFile",
    "GitStatus",
    "HostProcess",
    "ImportedSession",
    "InstallProgress",
    "InstallRequest",
    "InstallResult",
    "InstallStatus",
    "Installation",
    "Instruction",
    "MCPServer",
    "MCPTool",
    "Match",
    "NewerVersion",
    "Permission",
    "PermissionList",
    "Problem",
    "Process",
    "ProcessCaptured",
    "ProcessLimits",
    "ProcessLimitsChange",
    "ProcessList",
    "ProcessLog",
    "ProcessOutput",
    "ProcessResult",
    "ProcessRun",
    "ProcessSignal",
    "ProcessStart",
    "ProcessWritten",
    "Report",
    "Session",
    "SessionChange",
    "SessionPage",
    "Status",
    "Stderr",
    "Support",
    "TerminalFrame",
    "Use",
    "Verification",
    "Version",
]


class Agent(TypedDict):
    authState: Literal['unknown', 'authenticated', 'required']
    capabilities: NotRequired[dict[str, Support]]
    credentialsAvailable: bool
    default: bool
    description: NotRequired[str]
    icon: NotRequired[str]
    id: str
    installed: bool
    kind: Literal['bridge', 'native', 'custom']
    lastError: NotRequired[str]
    license: NotRequired[str]
    models: NotRequired[list[Choice]]
    modes: NotRequired[list[Choice]]
    name: str
    path: NotRequired[str]
    processes: list[Process]
    source: NotRequired[str]
    thoughtLevels: NotRequired[list[Choice]]
    verified: NotRequired[str]
    version: NotRequired[str]
    website: NotRequired[str]


class AgentList(TypedDict):
    agents: list[Agent]


class Artifact(TypedDict):
    kind: Literal['program', 'helper']
    path: str
    sha256: NotRequired[str]
    source: Literal['path', 'vendor', 'npm', 'registry', 'builtin']
    verified: bool
    version: str


class Attempt(TypedDict):
    answer: str
    source: Literal['path', 'vendor', 'npm', 'registry']


class Check(TypedDict):
    agent: NotRequired[str]
    found: str
    name: str
    remedy: NotRequired[str]
    status: Literal['ok', 'absent', 'warning', 'failed']


class Child(TypedDict):
    parentSessionId: str
    sessionId: str
    state: Literal['running', 'waiting', 'idle']
    title: NotRequired[str]
    toolCallId: str


class Choice(TypedDict):
    description: NotRequired[str]
    id: str
    name: str


class Cost(TypedDict):
    amount: float
    currency: str


class Download(TypedDict):
    bytes: int
    sha256: str
    url: str
    verified: bool


class End(TypedDict):
    at: str
    exitCode: NotRequired[int]
    message: NotRequired[str]
    reason: str
    stderr: NotRequired[Stderr]
    terminatedBy: str


class Event(TypedDict):
    direction: Literal['client', 'agent', 'gateway']
    message: Any
    seq: int
    time: str


class EventPage(TypedDict):
    events: list[Event]
    hasMore: bool


FileChange = TypedDict("FileChange", {"folder": "NotRequired[bool]", "from": "NotRequired[str]", "path": "NotRequired[str]", "rawPath": "NotRequired[str]", "type": "Literal['created', 'modified', 'removed', 'renamed', 'overflow']"})


class FileEntry(TypedDict):
    etag: NotRequired[str]
    mode: str
    modifiedAt: str
    name: str
    path: str
    rawPath: NotRequired[str]
    size: int
    target: NotRequired[str]
    type: Literal['file', 'directory', 'symlink', 'other']


class FileListed(TypedDict):
    error: NotRequired[str]
    etag: NotRequired[str]
    mode: str
    modifiedAt: str
    name: str
    path: str
    rawPath: NotRequired[str]
    size: int
    target: NotRequired[str]
    type: Literal['file', 'directory', 'symlink', 'other']


class FileMatch(TypedDict):
    column: NotRequired[int]
    line: NotRequired[int]
    path: str
    rawPath: NotRequired[str]
    text: NotRequired[str]
    type: Literal['file', 'directory', 'symlink', 'other']


class FilePage(TypedDict):
    entries: list[FileListed]
    nextCursor: NotRequired[str]


class FileSearch(TypedDict):
    files: int
    matches: list[FileMatch]
    nextCursor: NotRequired[str]
    skipped: int
    stopped: NotRequired[Literal['matches', 'files', 'time']]


class FileUpload(TypedDict):
    bytes: int
    files: int
    paths: list[str]
    truncated: bool


class ForgottenPermissions(TypedDict):
    forgotten: list[Permission]


GitFile = TypedDict("GitFile", {"from": "NotRequired[str]", "index": "str", "path": "str", "rawPath": "NotRequired[str]", "workTree": "str"})


class GitStatus(TypedDict):
    ahead: int
    behind: int
    branch: NotRequired[str]
    commit: NotRequired[str]
    files: list[GitFile]
    recent: NotRequired[list[str]]
    root: str
    truncated: bool
    upstream: NotRequired[str]


class HostProcess(TypedDict):
    args: list[str]
    cols: NotRequired[int]
    command: str
    cwd: str
    droppedBytes: int
    endedAt: NotRequired[str]
    exitCode: NotRequired[int]
    id: str
    outputBytes: int
    pid: int
    rows: NotRequired[int]
    signal: NotRequired[str]
    startedAt: str
    state: Literal['running', 'exited']
    stdinOpen: bool
    tty: bool
    viewers: int


class ImportedSession(TypedDict):
    leftOut: list[str]
    session: Session


class InstallProgress(TypedDict):
    agent: str
    detail: NotRequired[str]
    done: int
    source: NotRequired[Literal['path', 'vendor', 'npm', 'registry']]
    step: Literal['wait', 'resolve', 'download', 'unpack', 'package', 'verify', 'prove', 'land']
    total: int


class InstallRequest(TypedDict):
    agentVersion: NotRequired[str]
    reinstall: NotRequired[bool]
    sources: NotRequired[list[Literal['path', 'vendor', 'npm', 'registry']]]


class InstallResult(TypedDict):
    acpArgs: list[str]
    agent: str
    already: bool
    args: NotRequired[list[str]]
    artifacts: list[Artifact]
    attempts: NotRequired[list[Attempt]]
    current: bool
    dir: NotRequired[str]
    downloads: NotRequired[list[Download]]
    env: NotRequired[list[str]]
    handshake: NotRequired[Literal['version', 'initialize']]
    installedAt: NotRequired[str]
    newer: NotRequired[NewerVersion]
    packages: NotRequired[list[str]]
    platform: str
    program: str
    reported: NotRequired[str]
    source: Literal['path', 'vendor', 'npm', 'registry', 'builtin']
    verification: Verification
    verified: bool
    version: str


class InstallStatus(TypedDict):
    agent: str
    inUse: NotRequired[Installation]
    installed: list[Installation]


class Installation(TypedDict):
    acpArgs: list[str]
    agent: str
    args: NotRequired[list[str]]
    artifacts: list[Artifact]
    current: bool
    dir: NotRequired[str]
    downloads: NotRequired[list[Download]]
    env: NotRequired[list[str]]
    handshake: NotRequired[Literal['version', 'initialize']]
    installedAt: NotRequired[str]
    packages: NotRequired[list[str]]
    platform: str
    program: str
    reported: NotRequired[str]
    source: Literal['path', 'vendor', 'npm', 'registry', 'builtin']
    verification: Verification
    verified: bool
    version: str


class Instruction(TypedDict):
    field: str
    text: str


class MCPServer(TypedDict):
    error: NotRequired[str]
    moreTools: NotRequired[int]
    name: str
    source: Literal['session', 'agent']
    state: Literal['connecting', 'ready', 'failed', 'needs_login', 'disabled', 'stopped', 'unknown']
    tools: NotRequired[list[MCPTool]]
    transport: NotRequired[str]


class MCPTool(TypedDict):
    description: NotRequired[str]
    name: str


class Match(TypedDict):
    seq: int
    text: str


class NewerVersion(TypedDict):
    reason: str
    version: str


class Permission(TypedDict):
    file: NotRequired[str]
    givenAt: NotRequired[str]
    id: str
    key: str
    kind: NotRequired[str]
    reason: NotRequired[str]
    revocable: bool
    title: str
    where: Literal['session', 'process', 'file', 'agent']


class PermissionList(TypedDict):
    permissions: list[Permission]


class Problem(TypedDict):
    detail: NotRequired[str]
    requestId: NotRequired[str]
    status: int
    title: str
    type: Literal['urn:sandbox-agent:error:agent_error', 'urn:sandbox-agent:error:agent_not_installed', 'urn:sandbox-agent:error:agent_process_exited', 'urn:sandbox-agent:error:already_exists', 'urn:sandbox-agent:error:archive_refused', 'urn:sandbox-agent:error:auth_required', 'urn:sandbox-agent:error:cancelled', 'urn:sandbox-agent:error:client_not_found', 'urn:sandbox-agent:error:conflict', 'urn:sandbox-agent:error:credentials_required', 'urn:sandbox-agent:error:directory_not_empty', 'urn:sandbox-agent:error:events_expired', 'urn:sandbox-agent:error:install_failed', 'urn:sandbox-agent:error:insufficient_storage', 'urn:sandbox-agent:error:internal', 'urn:sandbox-agent:error:invalid_request', 'urn:sandbox-agent:error:method_not_allowed', 'urn:sandbox-agent:error:mode_not_supported', 'urn:sandbox-agent:error:node_not_found', 'urn:sandbox-agent:error:node_offline', 'urn:sandbox-agent:error:not_a_directory', 'urn:sandbox-agent:error:not_a_file', 'urn:sandbox-agent:error:not_a_repository', 'urn:sandbox-agent:error:not_acceptable', 'urn:sandbox-agent:error:not_found', 'urn:sandbox-agent:error:not_supported', 'urn:sandbox-agent:error:opencode_disabled', 'urn:sandbox-agent:error:path_escapes', 'urn:sandbox-agent:error:payload_too_large', 'urn:sandbox-agent:error:permission_denied', 'urn:sandbox-agent:error:precondition_failed', 'urn:sandbox-agent:error:range_not_satisfiable', 'urn:sandbox-agent:error:session_already_exists', 'urn:sandbox-agent:error:session_not_found', 'urn:sandbox-agent:error:timeout', 'urn:sandbox-agent:error:token_invalid', 'urn:sandbox-agent:error:too_many_requests', 'urn:sandbox-agent:error:unavailable', 'urn:sandbox-agent:error:unsupported_agent', 'urn:sandbox-agent:error:unsupported_media_type', 'urn:sandbox-agent:error:upgrade_required', 'urn:sandbox-agent:error:v1_removed']


class Process(TypedDict):
    lastError: NotRequired[str]
    pid: int
    restarts: int
    rssBytes: int
    sessions: int
    startedAt: str
    stderr: NotRequired[Stderr]
    uptimeMs: int


class ProcessCaptured(TypedDict):
    bytes: int
    data: str
    truncated: bool


class ProcessLimits(TypedDict):
    ended: int
    endedMs: int
    inputBytes: int
    logBytes: int
    maxRunBytes: int
    maxRunMs: int
    runBytes: int
    runMs: int
    running: int
    stopMs: int


class ProcessLimitsChange(TypedDict):
    ended: NotRequired[int]
    endedMs: NotRequired[int]
    inputBytes: NotRequired[int]
    logBytes: NotRequired[int]
    maxRunBytes: NotRequired[int]
    maxRunMs: NotRequired[int]
    runBytes: NotRequired[int]
    runMs: NotRequired[int]
    running: NotRequired[int]
    stopMs: NotRequired[int]


class ProcessList(TypedDict):
    processes: list[HostProcess]


class ProcessLog(TypedDict):
    chunks: list[ProcessOutput]
    ended: bool
    hasMore: bool
    missed: int
    next: int


class ProcessOutput(TypedDict):
    data: str
    position: int
    stream: Literal['stdout', 'stderr', 'pty']
    time: str


class ProcessResult(TypedDict):
    combined: NotRequired[ProcessCaptured]
    durationMs: int
    exitCode: NotRequired[int]
    signal: NotRequired[str]
    stderr: ProcessCaptured
    stdout: ProcessCaptured
    timedOut: bool


class ProcessRun(TypedDict):
    args: NotRequired[list[str]]
    combined: NotRequired[bool]
    command: str
    cwd: NotRequired[str]
    encoding: NotRequired[Literal['utf8', 'base64']]
    env: NotRequired[dict[str, str]]
    maxOutputBytes: NotRequired[int]
    sessionId: NotRequired[str]
    stdin: NotRequired[str]
    timeoutMs: NotRequired[int]


class ProcessSignal(TypedDict):
    signal: str


class ProcessStart(TypedDict):
    args: NotRequired[list[str]]
    cols: NotRequired[int]
    command: str
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]
    rows: NotRequired[int]
    sessionId: NotRequired[str]
    tty: NotRequired[bool]


class ProcessWritten(TypedDict):
    written: int


class Report(TypedDict):
    checks: list[Check]
    ok: bool
    platform: str


class Session(TypedDict):
    agent: str
    agentSessionId: str
    background: NotRequired[int]
    children: NotRequired[list[Child]]
    clients: int
    continuity: Literal['native', 'replayed', 'fresh']
    cost: NotRequired[Cost]
    createdAt: str
    cwd: str
    durability: NotRequired[Literal['sync']]
    edits: NotRequired[int]
    ended: NotRequired[End]
    eventCount: int
    gist: NotRequired[str]
    historyIncomplete: NotRequired[bool]
    instructions: NotRequired[list[Instruction]]
    match: NotRequired[Match]
    mcpServers: NotRequired[list[MCPServer]]
    metadata: NotRequired[Any]
    model: NotRequired[str]
    oldestSeq: NotRequired[int]
    pending: int
    sessionId: str
    skills: NotRequired[list[str]]
    state: Literal['idle', 'running', 'waiting', 'dormant', 'closed', 'ended']
    title: NotRequired[str]
    unstored: NotRequired[int]
    updatedAt: str
    usage: NotRequired[list[Use]]


class SessionChange(TypedDict):
    position: int
    session: NotRequired[Session]
    sessionId: NotRequired[str]
    type: Literal['reset', 'session', 'deleted', 'current']


class SessionPage(TypedDict):
    nextCursor: NotRequired[str]
    position: int
    sessions: list[Session]
    unsearched: NotRequired[int]


class Status(TypedDict):
    status: Literal['ok', 'ready']


class Stderr(TypedDict):
    head: str
    tail: str
    totalLines: int
    truncated: bool


class Support(TypedDict):
    level: Literal['native', 'emulated', 'unsupported']
    reason: NotRequired[str]


class TerminalFrame(TypedDict):
    bytes: NotRequired[int]
    cols: NotRequired[int]
    data: NotRequired[str]
    encoding: NotRequired[Literal['utf8', 'base64']]
    exitCode: NotRequired[int]
    position: NotRequired[int]
    problem: NotRequired[Problem]
    rows: NotRequired[int]
    shown: NotRequired[int]
    signal: NotRequired[str]
    type: Literal['ready', 'missed', 'exit', 'error', 'input', 'resize', 'signal']


class Use(TypedDict):
    cachedReadTokens: NotRequired[int]
    cachedWriteTokens: NotRequired[int]
    cost: NotRequired[Cost]
    day: str
    inputTokens: int
    model: NotRequired[str]
    outputTokens: int
    thoughtTokens: NotRequired[int]
    turns: int


class Verification(TypedDict):
    by: NotRequired[str]
    how: Literal['unverified', 'checksum-only', 'signature', 'digest-pinned', 'builtin']
    note: NotRequired[str]


class Version(TypedDict):
    arch: str
    goVersion: str
    instance: NotRequired[str]
    os: str
    protocolVersion: int
    version: str
