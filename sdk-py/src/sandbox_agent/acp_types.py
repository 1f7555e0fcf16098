"""The types of the Agent Client Protocol, version 1.

Generated from the protocol's schema by scripts/generate.py; not edited by hand.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, Union

__all__ = [
    "AgentAuthCapabilities",
    "AgentCapabilities",
    "AgentNotification",
    "AgentRequest",
    "AgentResponse",
    "AgentResponseError",
    "AgentResponseResult",
    "Annotations",
    "ArchiveSessionRequest",
    "ArchiveSessionResponse",
    "AudioContent",
    "AuthAccount",
    "AuthCapabilities",
    "AuthMethod",
    "AuthMethodAgent",
    "AuthMethodId",
    "AuthMethodTerminal",
    "AuthMethodTerminalVariant",
    "AuthState",
    "AuthStatusCapabilities",
    "AuthStatusRequest",
    "AuthStatusResponse",
    "AuthStatusUpdateNotification",
    "AuthenticateRequest",
    "AuthenticateResponse",
    "AvailableCommand",
    "AvailableCommandInput",
    "AvailableCommandsUpdate",
    "BlobResourceContents",
    "BooleanConfigOptionCapabilities",
    "BooleanPropertySchema",
    "CancelNotification",
    "CancelRequestNotification",
    "ClientCapabilities",
    "ClientNotification",
    "ClientRequest",
    "ClientResponse",
    "ClientResponseError",
    "ClientResponseResult",
    "ClientSessionCapabilities",
    "CloseSessionRequest",
    "CloseSessionResponse",
    "CompactionCapabilities",
    "CompactionId",
    "CompactionStatus",
    "CompactionSummaryChunk",
    "CompactionUpdate",
    "CompleteElicitationNotification",
    "ConfigOptionUpdate",
    "Content",
    "ContentBlock",
    "ContentBlockAudio",
    "ContentBlockImage",
    "ContentBlockResource",
    "ContentBlockResourceLink",
    "ContentBlockText",
    "ContentChunk",
    "Cost",
    "CreateElicitationRequest",
    "CreateElicitationRequestForm",
    "CreateElicitationRequestUrl",
    "CreateElicitationResponse",
    "CreateElicitationResponseAccept",
    "CreateElicitationResponseCancel",
    "CreateElicitationResponseDecline",
    "CreateTerminalRequest",
    "CreateTerminalResponse",
    "CurrentModeUpdate",
    "DeleteSessionRequest",
    "DeleteSessionResponse",
    "Diff",
    "DisableProviderRequest",
    "DisableProviderResponse",
    "ElicitationAcceptAction",
    "ElicitationCapabilities",
    "ElicitationContentValue",
    "ElicitationFormCapabilities",
    "ElicitationFormMode",
    "ElicitationFormModeRequest",
    "ElicitationFormModeSession",
    "ElicitationId",
    "ElicitationPropertySchema",
    "ElicitationPropertySchemaArray",
    "ElicitationPropertySchemaBoolean",
    "ElicitationPropertySchemaInteger",
    "ElicitationPropertySchemaNumber",
    "ElicitationPropertySchemaString",
    "ElicitationRequestScope",
    "ElicitationSchema",
    "ElicitationSchemaType",
    "ElicitationSessionScope",
    "ElicitationUrlCapabilities",
    "ElicitationUrlMode",
    "ElicitationUrlModeRequest",
    "ElicitationUrlModeSession",
    "EmbeddedResource",
    "EmbeddedResourceResource",
    "EnumOption",
    "EnvVariable",
    "Error",
    "ErrorCode",
    "ErrorStopReason",
    "ExtNotification",
    "ExtRequest",
    "ExtResponse",
    "FileSystemCapabilities",
    "ForkSessionRequest",
    "ForkSessionResponse",
    "HttpHeader",
    "IdleStateUpdate",
    "IdleStateUpdateCancelled",
    "IdleStateUpdateEndTurn",
    "IdleStateUpdateError",
    "IdleStateUpdateMaxTokens",
    "IdleStateUpdateMaxTurnRequests",
    "IdleStateUpdateNone",
    "IdleStateUpdateRefusal",
    "ImageContent",
    "Implementation",
    "InitializeProxyRequest",
    "InitializeProxyResponse",
    "InitializeRequest",
    "InitializeResponse",
    "IntegerPropertySchema",
    "KillTerminalRequest",
    "KillTerminalResponse",
    "ListProvidersRequest",
    "ListProvidersResponse",
    "ListSessionsRequest",
    "ListSessionsResponse",
    "LlmProtocol",
    "LoadSessionRequest",
    "LoadSessionResponse",
    "LogoutCapabilities",
    "LogoutRequest",
    "LogoutResponse",
    "McpCapabilities",
    "McpError",
    "McpRequestId",
    "McpServer",
    "McpServerAcp",
    "McpServerAcpId",
    "McpServerAcpVariant",
    "McpServerHttp",
    "McpServerHttpVariant",
    "McpServerSse",
    "McpServerSseVariant",
    "McpServerStdio",
    "MessageId",
    "MessageMcpNotification",
    "MessageMcpRequest",
    "MessageMcpResponse",
    "MessageMcpResponseError",
    "MessageMcpResponseResult",
    "MultiSelectItems",
    "MultiSelectItemsString",
    "MultiSelectPropertySchema",
    "NewSessionRequest",
    "NewSessionResponse",
    "Notice",
    "NoticeCapabilities",
    "NoticeSeverity",
    "NumberPropertySchema",
    "PermissionOption",
    "PermissionOptionId",
    "PermissionOptionKind",
    "Plan",
    "PlanCapabilities",
    "PlanEntry",
    "PlanEntryPriority",
    "PlanEntryStatus",
    "PlanFile",
    "PlanId",
    "PlanItems",
    "PlanMarkdown",
    "PlanRemoved",
    "PlanUpdate",
    "PlanUpdateContent",
    "PlanUpdateContentFile",
    "PlanUpdateContentItems",
    "PlanUpdateContentMarkdown",
    "PromptCapabilities",
    "PromptRequest",
    "PromptResponse",
    "ProtocolVersion",
    "ProviderCurrentConfig",
    "ProviderId",
    "ProviderInfo",
    "ProvidersCapabilities",
    "ProxyNotification",
    "ProxyRequest",
    "ProxyResponse",
    "ProxyResponseError",
    "ProxyResponseResult",
    "ProxySuccessorNotification",
    "ProxySuccessorRequest",
    "ProxySuccessorResponse",
    "ReadTextFileRequest",
    "ReadTextFileResponse",
    "ReleaseTerminalRequest",
    "ReleaseTerminalResponse",
    "RequestId",
    "RequestPermissionOutcome",
    "RequestPermissionOutcomeCancelled",
    "RequestPermissionOutcomeSelected",
    "RequestPermissionRequest",
    "RequestPermissionResponse",
    "RequiresActionStateUpdate",
    "ResourceLink",
    "ResumeSessionRequest",
    "ResumeSessionResponse",
    "Role",
    "RunningStateUpdate",
    "SelectedPermissionOutcome",
    "SessionAdditionalDirectoriesCapabilities",
    "SessionArchiveCapabilities",
    "SessionArchiveFilter",
    "SessionCancelCapabilities",
    "SessionCapabilities",
    "SessionCloseCapabilities",
    "SessionConfigBoolean",
    "SessionConfigGroupId",
    "SessionConfigId",
    "SessionConfigOption",
    "SessionConfigOptionBoolean",
    "SessionConfigOptionCategory",
    "SessionConfigOptionSelect",
    "SessionConfigOptionsCapabilities",
    "SessionConfigSelect",
    "SessionConfigSelectGroup",
    "SessionConfigSelectOption",
    "SessionConfigSelectOptions",
    "SessionConfigValueId",
    "SessionDeleteCapabilities",
    "SessionForkCapabilities",
    "SessionId",
    "SessionInfo",
    "SessionInfoUpdate",
    "SessionListCapabilities",
    "SessionMessage",
    "SessionMessageChunk",
    "SessionMode",
    "SessionModeId",
    "SessionModeState",
    "SessionNotification",
    "SessionResumeCapabilities",
    "SessionStatus",
    "SessionStatusCapabilities",
    "SessionStatusRequest",
    "SessionStatusResponse",
    "SessionSystemPromptCapabilities",
    "SessionSystemPromptModeCapabilities",
    "SessionSystemPromptOverrideCapabilities",
    "SessionTitleCapabilities",
    "SessionUpdate",
    "SessionUpdateAgentMessageChunk",
    "SessionUpdateAgentThoughtChunk",
    "SessionUpdateAvailableCommandsUpdate",
    "SessionUpdateCompactionSummaryChunk",
    "SessionUpdateCompactionUpdate",
    "SessionUpdateConfigOptionUpdate",
    "SessionUpdateCurrentModeUpdate",
    "SessionUpdateNotice",
    "SessionUpdatePlan",
    "SessionUpdatePlanRemoved",
    "SessionUpdatePlanUpdate",
    "SessionUpdateSessionInfoUpdate",
    "SessionUpdateSessionMessage",
    "SessionUpdateSessionMessageChunk",
    "SessionUpdateSubagentUpdate",
    "SessionUpdateToolCall",
    "SessionUpdateToolCallUpdate",
    "SessionUpdateUsageUpdate",
    "SessionUpdateUserMessageChunk",
    "SetProviderRequest",
    "SetProviderResponse",
    "SetSessionConfigOptionRequest",
    "SetSessionConfigOptionRequestBoolean",
    "SetSessionConfigOptionRequestValueId",
    "SetSessionConfigOptionResponse",
    "SetSessionModeRequest",
    "SetSessionModeResponse",
    "SetSessionTitleRequest",
    "SetSessionTitleResponse",
    "StateUpdate",
    "StateUpdateIdle",
    "StateUpdateRequiresAction",
    "StateUpdateRunning",
    "StateUpdateUnknown",
    "StopReason",
    "StringFormat",
    "StringMultiSelectItems",
    "StringPropertySchema",
    "SubagentCapabilities",
    "SubagentSessionCapabilities",
    "SubagentUpdate",
    "SystemPrompt",
    "SystemPromptMode",
    "Terminal",
    "TerminalExitStatus",
    "TerminalId",
    "TerminalOutputRequest",
    "TerminalOutputResponse",
    "TextContent",
    "TextResourceContents",
    "TitledMultiSelectItems",
    "ToolCall",
    "ToolCallContent",
    "ToolCallContentContent",
    "ToolCallContentDiff",
    "ToolCallContentTerminal",
    "ToolCallId",
    "ToolCallLocation",
    "ToolCallStatus",
    "ToolCallUpdate",
    "ToolKind",
    "UnarchiveSessionRequest",
    "UnarchiveSessionResponse",
    "UnknownStateUpdate",
    "UnstructuredCommandInput",
    "Usage",
    "UsageUpdate",
    "WaitForTerminalExitRequest",
    "WaitForTerminalExitResponse",
    "WriteTextFileRequest",
    "WriteTextFileResponse",
]


class AgentAuthCapabilities(TypedDict):
    """Authentication-related capabilities supported by the agent."""

    status: NotRequired[Union[AuthStatusCapabilities, None]]
    logout: NotRequired[Union[LogoutCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AgentCapabilities(TypedDict):
    """Capabilities supported by the agent."""

    loadSession: NotRequired[bool]
    promptCapabilities: NotRequired[PromptCapabilities]
    mcpCapabilities: NotRequired[McpCapabilities]
    sessionCapabilities: NotRequired[SessionCapabilities]
    auth: NotRequired[AgentAuthCapabilities]
    providers: NotRequired[Union[ProvidersCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AgentNotification(TypedDict):
    """A JSON-RPC notification object."""

    method: str
    params: NotRequired[Union[Union[SessionNotification, CompleteElicitationNotification, AuthStatusUpdateNotification, ExtNotification], None]]


class AgentRequest(TypedDict):
    """A JSON-RPC request object."""

    id: RequestId
    method: str
    params: NotRequired[Union[Union[WriteTextFileRequest, ReadTextFileRequest, RequestPermissionRequest, CreateTerminalRequest, TerminalOutputRequest, ReleaseTerminalRequest, WaitForTerminalExitRequest, KillTerminalRequest, CreateElicitationRequest, MessageMcpRequest, ExtRequest], None]]


# A JSON-RPC response object.
AgentResponse: TypeAlias = "Union[AgentResponseResult, AgentResponseError]"


class Annotations(TypedDict):
    """Optional annotations for the client. The client can use annotations to inform how objects are
    used or displayed
    """

    audience: NotRequired[Union[list[Role], None]]
    lastModified: NotRequired[Union[str, None]]
    priority: NotRequired[Union[float, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ArchiveSessionRequest(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class ArchiveSessionResponse(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class AudioContent(TypedDict):
    """Audio provided to or from an LLM."""

    annotations: NotRequired[Union[Annotations, None]]
    data: str
    mimeType: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthAccount(TypedDict):
    """**UNSTABLE**"""

    label: str
    active: NotRequired[Union[bool, None]]
    name: NotRequired[Union[str, None]]
    email: NotRequired[Union[str, None]]
    organization: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthCapabilities(TypedDict):
    """Authentication capabilities supported by the client."""

    terminal: NotRequired[bool]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Describes an available authentication method.
AuthMethod: TypeAlias = "Union[AuthMethodTerminalVariant, AuthMethodAgent]"


class AuthMethodAgent(TypedDict):
    """Agent handles authentication itself through `authenticate`."""

    id: AuthMethodId
    name: str
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Typed identifier used for auth method values on the wire.
AuthMethodId: TypeAlias = "str"


class AuthMethodTerminal(TypedDict):
    """Terminal-based authentication method."""

    id: AuthMethodId
    name: str
    description: NotRequired[Union[str, None]]
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
AuthState: TypeAlias = "str"


class AuthStatusCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthStatusRequest(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthStatusResponse(TypedDict):
    """**UNSTABLE**"""

    state: AuthState
    accounts: NotRequired[list[AuthAccount]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthStatusUpdateNotification(TypedDict):
    """**UNSTABLE**"""

    state: AuthState
    accounts: NotRequired[list[AuthAccount]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthenticateRequest(TypedDict):
    """Request parameters for the authenticate method."""

    methodId: AuthMethodId
    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthenticateResponse(TypedDict):
    """Response to the `authenticate` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class AvailableCommand(TypedDict):
    """Information about a command."""

    name: str
    description: str
    input: NotRequired[Union[AvailableCommandInput, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# The input specification for a command.
AvailableCommandInput: TypeAlias = "UnstructuredCommandInput"


class AvailableCommandsUpdate(TypedDict):
    """Available commands are ready or have changed"""

    availableCommands: list[AvailableCommand]
    _meta: NotRequired[Union[dict[str, Any], None]]


class BlobResourceContents(TypedDict):
    """Binary resource contents."""

    blob: str
    mimeType: NotRequired[Union[str, None]]
    uri: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class BooleanConfigOptionCapabilities(TypedDict):
    """Capabilities for boolean session configuration options."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class BooleanPropertySchema(TypedDict):
    """Schema for boolean properties in an elicitation form."""

    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    default: NotRequired[Union[bool, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelNotification(TypedDict):
    """Notification to cancel ongoing operations for a session."""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelRequestNotification(TypedDict):
    """Notification to cancel an ongoing request."""

    requestId: RequestId
    _meta: NotRequired[Union[dict[str, Any], None]]


class ClientCapabilities(TypedDict):
    """Capabilities supported by the client."""

    fs: NotRequired[FileSystemCapabilities]
    terminal: NotRequired[bool]
    session: NotRequired[Union[ClientSessionCapabilities, None]]
    subagents: NotRequired[Union[SubagentCapabilities, None]]
    plan: NotRequired[Union[PlanCapabilities, None]]
    auth: NotRequired[AuthCapabilities]
    elicitation: NotRequired[Union[ElicitationCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ClientNotification(TypedDict):
    """A JSON-RPC notification object."""

    method: str
    params: NotRequired[Union[Union[CancelNotification, MessageMcpNotification, ExtNotification], None]]


class ClientRequest(TypedDict):
    """A JSON-RPC request object."""

    id: RequestId
    method: str
    params: NotRequired[Union[Union[InitializeRequest, AuthenticateRequest, ListProvidersRequest, SetProviderRequest, DisableProviderRequest, LogoutRequest, AuthStatusRequest, NewSessionRequest, LoadSessionRequest, ListSessionsRequest, DeleteSessionRequest, ForkSessionRequest, ArchiveSessionRequest, UnarchiveSessionRequest, SessionStatusRequest, SetSessionTitleRequest, ResumeSessionRequest, CloseSessionRequest, SetSessionModeRequest, SetSessionConfigOptionRequest, PromptRequest, ExtRequest], None]]


# A JSON-RPC response object.
ClientResponse: TypeAlias = "Union[ClientResponseResult, ClientResponseError]"


class ClientSessionCapabilities(TypedDict):
    """Session-related capabilities supported by the client."""

    compaction: NotRequired[Union[CompactionCapabilities, None]]
    configOptions: NotRequired[Union[SessionConfigOptionsCapabilities, None]]
    notices: NotRequired[Union[NoticeCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class CloseSessionRequest(TypedDict):
    """Request parameters for closing an active session."""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CloseSessionResponse(TypedDict):
    """Response from closing a session."""

    _meta: NotRequired[Union[dict[str, Any], None]]


# Client support for ID-addressed context compaction updates.
CompactionCapabilities: TypeAlias = "dict[str, Any]"


# Unique identifier for a context compaction within a session.
CompactionId: TypeAlias = "str"


# Lifecycle state of a context compaction.
CompactionStatus: TypeAlias = "str"


class CompactionSummaryChunk(TypedDict):
    """A content block appended to a compaction's summary. A first-seen ID creates an in-progress
    compaction. Chunks append in receive order. Agents MUST only send this update when the Client
    advertised the `session.compaction` Client capability.
    """

    compactionId: CompactionId
    content: ContentBlock
    _meta: NotRequired[Union[dict[str, Any], None]]


class CompactionUpdate(TypedDict):
    """A context compaction upsert. The first notification fixes the compaction's timeline position.
    Later updates with the same ID patch that entity in place. Agents MUST only send this update
    when the Client advertised the `session.compaction` Client capability.
    """

    compactionId: CompactionId
    status: CompactionStatus
    summary: NotRequired[Union[list[ContentBlock], None]]
    error: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class CompleteElicitationNotification(TypedDict):
    """Notification sent by the agent when a URL-based elicitation is complete."""

    elicitationId: ElicitationId
    _meta: NotRequired[Union[dict[str, Any], None]]


class ConfigOptionUpdate(TypedDict):
    """Session configuration options have been updated."""

    configOptions: list[SessionConfigOption]
    _meta: NotRequired[Union[dict[str, Any], None]]


class Content(TypedDict):
    """Standard content block (text, images, resources)."""

    content: ContentBlock
    _meta: NotRequired[Union[dict[str, Any], None]]


# Content blocks represent displayable information in the Agent Client Protocol.
ContentBlock: TypeAlias = "Union[ContentBlockText, ContentBlockImage, ContentBlockAudio, ContentBlockResourceLink, ContentBlockResource]"


class ContentChunk(TypedDict):
    """A streamed item of content"""

    content: ContentBlock
    messageId: NotRequired[Union[MessageId, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class Cost(TypedDict):
    """Cost information for a session."""

    amount: float
    currency: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# Request from the agent to elicit structured user input.
CreateElicitationRequest: TypeAlias = "Union[CreateElicitationRequestForm, CreateElicitationRequestUrl]"


# Response from the client to an elicitation request.
CreateElicitationResponse: TypeAlias = "Union[CreateElicitationResponseAccept, CreateElicitationResponseDecline, CreateElicitationResponseCancel]"


class CreateTerminalRequest(TypedDict):
    """Request to create a new terminal and execute a command."""

    sessionId: SessionId
    command: str
    args: NotRequired[list[str]]
    env: NotRequired[list[EnvVariable]]
    cwd: NotRequired[Union[str, None]]
    outputByteLimit: NotRequired[Union[int, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class CreateTerminalResponse(TypedDict):
    """Response containing the ID of the created terminal."""

    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CurrentModeUpdate(TypedDict):
    """The current mode of the session has changed"""

    currentModeId: SessionModeId
    _meta: NotRequired[Union[dict[str, Any], None]]


class DeleteSessionRequest(TypedDict):
    """Request parameters for deleting an existing session from `session/list`."""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class DeleteSessionResponse(TypedDict):
    """Response from deleting a session."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class Diff(TypedDict):
    """A diff representing file modifications."""

    path: str
    oldText: NotRequired[Union[str, None]]
    newText: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class DisableProviderRequest(TypedDict):
    """**UNSTABLE**"""

    providerId: ProviderId
    _meta: NotRequired[Union[dict[str, Any], None]]


class DisableProviderResponse(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class ElicitationAcceptAction(TypedDict):
    """The user accepted the elicitation and provided content."""

    content: NotRequired[Union[dict[str, ElicitationContentValue], None]]


class ElicitationCapabilities(TypedDict):
    """Elicitation capabilities supported by the client."""

    form: NotRequired[Union[ElicitationFormCapabilities, None]]
    url: NotRequired[Union[ElicitationUrlCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Allowed wire representations for `ElicitationContentValue`.
ElicitationContentValue: TypeAlias = "Union[str, int, float, bool, list[str]]"


class ElicitationFormCapabilities(TypedDict):
    """Form-based elicitation capabilities."""

    _meta: NotRequired[Union[dict[str, Any], None]]


# Form-based elicitation mode where the client renders a form from the provided schema.
ElicitationFormMode: TypeAlias = "Union[ElicitationFormModeSession, ElicitationFormModeRequest]"


# Unique identifier for an elicitation.
ElicitationId: TypeAlias = "str"


# Property schema for elicitation form fields.
ElicitationPropertySchema: TypeAlias = "Union[ElicitationPropertySchemaString, ElicitationPropertySchemaNumber, ElicitationPropertySchemaInteger, ElicitationPropertySchemaBoolean, ElicitationPropertySchemaArray]"


class ElicitationRequestScope(TypedDict):
    """Request-scoped elicitation, tied to a specific JSON-RPC request outside of a session (e.g.,
    during auth/configuration phases before any session is started).
    """

    requestId: RequestId


class ElicitationSchema(TypedDict):
    """Type-safe elicitation schema for requesting structured user input."""

    type: NotRequired[ElicitationSchemaType]
    title: NotRequired[Union[str, None]]
    properties: NotRequired[dict[str, ElicitationPropertySchema]]
    required: NotRequired[Union[list[str], None]]
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Type discriminator for elicitation schemas.
ElicitationSchemaType: TypeAlias = "Literal['object']"


class ElicitationSessionScope(TypedDict):
    """Session-scoped elicitation, optionally tied to a specific tool call."""

    sessionId: SessionId
    toolCallId: NotRequired[Union[ToolCallId, None]]


class ElicitationUrlCapabilities(TypedDict):
    """URL-based elicitation capabilities."""

    _meta: NotRequired[Union[dict[str, Any], None]]


# URL-based elicitation mode where the client directs the user to a URL.
ElicitationUrlMode: TypeAlias = "Union[ElicitationUrlModeSession, ElicitationUrlModeRequest]"


class EmbeddedResource(TypedDict):
    """The contents of a resource, embedded into a prompt or tool call result."""

    annotations: NotRequired[Union[Annotations, None]]
    resource: EmbeddedResourceResource
    _meta: NotRequired[Union[dict[str, Any], None]]


# Resource content that can be embedded in a message.
EmbeddedResourceResource: TypeAlias = "Union[TextResourceContents, BlobResourceContents]"


class EnumOption(TypedDict):
    """A titled enum option with a const value, human-readable title, and optional description."""

    const: str
    title: str
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class EnvVariable(TypedDict):
    """An environment variable to set when launching an MCP server."""

    name: str
    value: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class Error(TypedDict):
    """JSON-RPC error object."""

    code: ErrorCode
    message: str
    data: NotRequired[Any]


# Predefined error codes for common JSON-RPC and ACP-specific errors.
ErrorCode: TypeAlias = "Union[Literal[-32700], Literal[-32600], Literal[-32601], Literal[-32602], Literal[-32603], Literal[-32800], Literal[-32000], Literal[-32002], int]"


class ErrorStopReason(TypedDict):
    """**UNSTABLE**"""

    error: NotRequired[Union[Error, None]]


# Allows either side to send an arbitrary notification that is not part of the ACP spec. Extension
# notifications provide a way to send one-way messages for custom functionality while maintaining
# protocol compatibility.
ExtNotification: TypeAlias = "Any"


# Allows for sending an arbitrary request that is not part of the ACP spec. Extension methods
# provide a way to add custom functionality while maintaining protocol compatibility.
ExtRequest: TypeAlias = "Any"


# Allows for sending an arbitrary response to an extension request that is not part of the ACP spec.
# Extension methods provide a way to add custom functionality while maintaining protocol
# compatibility.
ExtResponse: TypeAlias = "Any"


class FileSystemCapabilities(TypedDict):
    """File system capabilities that a client may support."""

    readTextFile: NotRequired[bool]
    writeTextFile: NotRequired[bool]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ForkSessionRequest(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    cwd: str
    additionalDirectories: NotRequired[list[str]]
    mcpServers: NotRequired[list[McpServer]]
    systemPrompt: NotRequired[Union[SystemPrompt, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ForkSessionResponse(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    modes: NotRequired[Union[SessionModeState, None]]
    configOptions: NotRequired[Union[list[SessionConfigOption], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class HttpHeader(TypedDict):
    """An HTTP header to set when making requests to the MCP server."""

    name: str
    value: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# The child is ready to process another prompt.
IdleStateUpdate: TypeAlias = "Union[IdleStateUpdateEndTurn, IdleStateUpdateMaxTokens, IdleStateUpdateMaxTurnRequests, IdleStateUpdateRefusal, IdleStateUpdateCancelled, IdleStateUpdateError, IdleStateUpdateNone]"


class ImageContent(TypedDict):
    """An image provided to or from an LLM."""

    annotations: NotRequired[Union[Annotations, None]]
    data: str
    mimeType: str
    uri: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class Implementation(TypedDict):
    """Metadata about the implementation of the client or agent. Describes the name and version of an
    ACP implementation, with an optional title for UI representation.
    """

    name: str
    title: NotRequired[Union[str, None]]
    version: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
InitializeProxyRequest: TypeAlias = "InitializeRequest"


# **UNSTABLE**
InitializeProxyResponse: TypeAlias = "InitializeResponse"


class InitializeRequest(TypedDict):
    """Request parameters for the initialize method."""

    protocolVersion: ProtocolVersion
    clientCapabilities: NotRequired[ClientCapabilities]
    clientInfo: NotRequired[Union[Implementation, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class InitializeResponse(TypedDict):
    """Response to the `initialize` method."""

    protocolVersion: ProtocolVersion
    agentCapabilities: NotRequired[AgentCapabilities]
    authMethods: NotRequired[list[AuthMethod]]
    agentInfo: NotRequired[Union[Implementation, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class IntegerPropertySchema(TypedDict):
    """Schema for integer properties in an elicitation form."""

    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    minimum: NotRequired[Union[int, None]]
    maximum: NotRequired[Union[int, None]]
    default: NotRequired[Union[int, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class KillTerminalRequest(TypedDict):
    """Request to kill a terminal without releasing it."""

    sessionId: SessionId
    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class KillTerminalResponse(TypedDict):
    """Response to `terminal/kill` method"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class ListProvidersRequest(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class ListProvidersResponse(TypedDict):
    """**UNSTABLE**"""

    providers: list[ProviderInfo]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ListSessionsRequest(TypedDict):
    """Request parameters for listing existing sessions."""

    cwd: NotRequired[Union[str, None]]
    cursor: NotRequired[Union[str, None]]
    archived: NotRequired[Union[SessionArchiveFilter, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ListSessionsResponse(TypedDict):
    """Response from listing sessions."""

    sessions: list[SessionInfo]
    nextCursor: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
LlmProtocol: TypeAlias = "str"


class LoadSessionRequest(TypedDict):
    """Request parameters for loading an existing session."""

    mcpServers: list[McpServer]
    cwd: str
    additionalDirectories: NotRequired[list[str]]
    sessionId: SessionId
    systemPrompt: NotRequired[Union[SystemPrompt, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class LoadSessionResponse(TypedDict):
    """Response from loading an existing session."""

    modes: NotRequired[Union[SessionModeState, None]]
    configOptions: NotRequired[Union[list[SessionConfigOption], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class LogoutCapabilities(TypedDict):
    """Logout capabilities supported by the agent."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class LogoutRequest(TypedDict):
    """Request parameters for the logout method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class LogoutResponse(TypedDict):
    """Response to the `logout` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class McpCapabilities(TypedDict):
    """MCP capabilities supported by the agent"""

    http: NotRequired[bool]
    sse: NotRequired[bool]
    acp: NotRequired[bool]
    _meta: NotRequired[Union[dict[str, Any], None]]


class McpError(TypedDict):
    """**UNSTABLE**"""

    code: int
    message: str
    data: NotRequired[Any]


# **UNSTABLE**
McpRequestId: TypeAlias = "str"


# Configuration for connecting to an MCP (Model Context Protocol) server.
McpServer: TypeAlias = "Union[McpServerHttpVariant, McpServerSseVariant, McpServerAcpVariant, McpServerStdio]"


class McpServerAcp(TypedDict):
    """**UNSTABLE**"""

    name: str
    serverId: McpServerAcpId
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
McpServerAcpId: TypeAlias = "str"


class McpServerHttp(TypedDict):
    """HTTP transport configuration for MCP."""

    name: str
    url: str
    headers: list[HttpHeader]
    _meta: NotRequired[Union[dict[str, Any], None]]


class McpServerSse(TypedDict):
    """SSE transport configuration for MCP."""

    name: str
    url: str
    headers: list[HttpHeader]
    _meta: NotRequired[Union[dict[str, Any], None]]


class McpServerStdio(TypedDict):
    """Stdio transport configuration for MCP."""

    name: str
    command: str
    args: list[str]
    env: list[EnvVariable]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Unique identifier for a message within a session.
MessageId: TypeAlias = "str"


class MessageMcpNotification(TypedDict):
    """**UNSTABLE**"""

    serverId: McpServerAcpId
    requestId: McpRequestId
    method: str
    params: NotRequired[Union[dict[str, Any], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class MessageMcpRequest(TypedDict):
    """**UNSTABLE**"""

    serverId: McpServerAcpId
    requestId: McpRequestId
    method: str
    params: NotRequired[Union[dict[str, Any], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
MessageMcpResponse: TypeAlias = "Union[MessageMcpResponseResult, MessageMcpResponseError]"


# Items for a multi-select (array) property schema.
MultiSelectItems: TypeAlias = "Union[MultiSelectItemsString, TitledMultiSelectItems]"


class MultiSelectPropertySchema(TypedDict):
    """Schema for multi-select (array) properties in an elicitation form."""

    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    minItems: NotRequired[Union[int, None]]
    maxItems: NotRequired[Union[int, None]]
    items: MultiSelectItems
    default: NotRequired[Union[list[str], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class NewSessionRequest(TypedDict):
    """Request parameters for creating a new session."""

    cwd: str
    additionalDirectories: NotRequired[list[str]]
    mcpServers: list[McpServer]
    systemPrompt: NotRequired[Union[SystemPrompt, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class NewSessionResponse(TypedDict):
    """Response from creating a new session."""

    sessionId: SessionId
    modes: NotRequired[Union[SessionModeState, None]]
    configOptions: NotRequired[Union[list[SessionConfigOption], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class Notice(TypedDict):
    """Fire-and-forget information for the user."""

    severity: NoticeSeverity
    title: str
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Client support for presenting live notices to the user.
NoticeCapabilities: TypeAlias = "dict[str, Any]"


# Severity hint for a session notice.
NoticeSeverity: TypeAlias = "str"


class NumberPropertySchema(TypedDict):
    """Schema for number (floating-point) properties in an elicitation form."""

    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    minimum: NotRequired[Union[float, None]]
    maximum: NotRequired[Union[float, None]]
    default: NotRequired[Union[float, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class PermissionOption(TypedDict):
    """An option presented to the user when requesting permission."""

    optionId: PermissionOptionId
    name: str
    kind: PermissionOptionKind
    _meta: NotRequired[Union[dict[str, Any], None]]


# Unique identifier for a permission option.
PermissionOptionId: TypeAlias = "str"


# The type of permission option being presented to the user.
PermissionOptionKind: TypeAlias = "Union[Literal['allow_once'], Literal['allow_always'], Literal['reject_once'], Literal['reject_always']]"


class Plan(TypedDict):
    """An execution plan for accomplishing complex tasks."""

    entries: list[PlanEntry]
    _meta: NotRequired[Union[dict[str, Any], None]]


class PlanCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class PlanEntry(TypedDict):
    """A single entry in the execution plan."""

    content: str
    priority: PlanEntryPriority
    status: PlanEntryStatus
    _meta: NotRequired[Union[dict[str, Any], None]]


# Priority levels for plan entries.
PlanEntryPriority: TypeAlias = "Union[Literal['high'], Literal['medium'], Literal['low']]"


# Status of a plan entry in the execution flow.
PlanEntryStatus: TypeAlias = "Union[Literal['pending'], Literal['in_progress'], Literal['completed']]"


class PlanFile(TypedDict):
    """**UNSTABLE**"""

    planId: PlanId
    uri: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
PlanId: TypeAlias = "str"


class PlanItems(TypedDict):
    """**UNSTABLE**"""

    planId: PlanId
    entries: list[PlanEntry]
    _meta: NotRequired[Union[dict[str, Any], None]]


class PlanMarkdown(TypedDict):
    """**UNSTABLE**"""

    planId: PlanId
    content: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class PlanRemoved(TypedDict):
    """**UNSTABLE**"""

    planId: PlanId
    _meta: NotRequired[Union[dict[str, Any], None]]


class PlanUpdate(TypedDict):
    """**UNSTABLE**"""

    plan: PlanUpdateContent
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
PlanUpdateContent: TypeAlias = "Union[PlanUpdateContentItems, PlanUpdateContentFile, PlanUpdateContentMarkdown]"


class PromptCapabilities(TypedDict):
    """Prompt capabilities supported by the agent in `session/prompt` requests."""

    image: NotRequired[bool]
    audio: NotRequired[bool]
    embeddedContext: NotRequired[bool]
    _meta: NotRequired[Union[dict[str, Any], None]]


class PromptRequest(TypedDict):
    """Request parameters for sending a user prompt to the agent."""

    sessionId: SessionId
    prompt: list[ContentBlock]
    _meta: NotRequired[Union[dict[str, Any], None]]


class PromptResponse(TypedDict):
    """Response from processing a user prompt."""

    stopReason: StopReason
    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Protocol version identifier.
ProtocolVersion: TypeAlias = "int"


class ProviderCurrentConfig(TypedDict):
    """**UNSTABLE**"""

    apiType: LlmProtocol
    baseUrl: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
ProviderId: TypeAlias = "str"


class ProviderInfo(TypedDict):
    """**UNSTABLE**"""

    providerId: ProviderId
    supported: list[LlmProtocol]
    required: bool
    current: NotRequired[Union[ProviderCurrentConfig, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ProvidersCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class ProxyNotification(TypedDict):
    """A JSON-RPC notification object."""

    method: str
    params: NotRequired[Union[ProxySuccessorNotification, None]]


class ProxyRequest(TypedDict):
    """A JSON-RPC request object."""

    id: RequestId
    method: str
    params: NotRequired[Union[Union[InitializeProxyRequest, ProxySuccessorRequest], None]]


# A JSON-RPC response object.
ProxyResponse: TypeAlias = "Union[ProxyResponseResult, ProxyResponseError]"


class ProxySuccessorNotification(TypedDict):
    """**UNSTABLE**"""

    method: str
    params: NotRequired[Any]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ProxySuccessorRequest(TypedDict):
    """**UNSTABLE**"""

    method: str
    params: NotRequired[Any]
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
ProxySuccessorResponse: TypeAlias = "Any"


class ReadTextFileRequest(TypedDict):
    """Request to read content from a text file."""

    sessionId: SessionId
    path: str
    line: NotRequired[Union[int, None]]
    limit: NotRequired[Union[int, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ReadTextFileResponse(TypedDict):
    """Response containing the contents of a text file."""

    content: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class ReleaseTerminalRequest(TypedDict):
    """Request to release a terminal and free its resources."""

    sessionId: SessionId
    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class ReleaseTerminalResponse(TypedDict):
    """Response to terminal/release method"""

    _meta: NotRequired[Union[dict[str, Any], None]]


# JSON RPC Request Id
RequestId: TypeAlias = "Union[None, int, str]"


# The outcome of a permission request.
RequestPermissionOutcome: TypeAlias = "Union[RequestPermissionOutcomeCancelled, RequestPermissionOutcomeSelected]"


class RequestPermissionRequest(TypedDict):
    """Request for user permission to execute a tool call."""

    sessionId: SessionId
    toolCall: ToolCallUpdate
    options: list[PermissionOption]
    _meta: NotRequired[Union[dict[str, Any], None]]


class RequestPermissionResponse(TypedDict):
    """Response to a permission request."""

    outcome: RequestPermissionOutcome
    _meta: NotRequired[Union[dict[str, Any], None]]


class RequiresActionStateUpdate(TypedDict):
    """Foreground work is blocked on user action."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class ResourceLink(TypedDict):
    """A resource that the server is capable of reading, included in a prompt or tool call result."""

    annotations: NotRequired[Union[Annotations, None]]
    description: NotRequired[Union[str, None]]
    mimeType: NotRequired[Union[str, None]]
    name: str
    size: NotRequired[Union[int, None]]
    title: NotRequired[Union[str, None]]
    uri: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class ResumeSessionRequest(TypedDict):
    """Request parameters for resuming an existing session."""

    sessionId: SessionId
    cwd: str
    additionalDirectories: NotRequired[list[str]]
    mcpServers: NotRequired[list[McpServer]]
    systemPrompt: NotRequired[Union[SystemPrompt, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ResumeSessionResponse(TypedDict):
    """Response from resuming an existing session."""

    modes: NotRequired[Union[SessionModeState, None]]
    configOptions: NotRequired[Union[list[SessionConfigOption], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# The sender or recipient of messages and data in a conversation.
Role: TypeAlias = "Union[Literal['assistant'], Literal['user']]"


class RunningStateUpdate(TypedDict):
    """Foreground work is in progress."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SelectedPermissionOutcome(TypedDict):
    """The user selected one of the provided options."""

    optionId: PermissionOptionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionAdditionalDirectoriesCapabilities(TypedDict):
    """Capabilities for additional session directories support."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionArchiveCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
SessionArchiveFilter: TypeAlias = "str"


class SessionCancelCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionCapabilities(TypedDict):
    """Session capabilities supported by the agent."""

    list: NotRequired[Union[SessionListCapabilities, None]]
    delete: NotRequired[Union[SessionDeleteCapabilities, None]]
    additionalDirectories: NotRequired[Union[SessionAdditionalDirectoriesCapabilities, None]]
    systemPrompt: NotRequired[Union[SessionSystemPromptCapabilities, None]]
    fork: NotRequired[Union[SessionForkCapabilities, None]]
    archive: NotRequired[Union[SessionArchiveCapabilities, None]]
    status: NotRequired[Union[SessionStatusCapabilities, None]]
    title: NotRequired[Union[SessionTitleCapabilities, None]]
    resume: NotRequired[Union[SessionResumeCapabilities, None]]
    close: NotRequired[Union[SessionCloseCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionCloseCapabilities(TypedDict):
    """Capabilities for the `session/close` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionConfigBoolean(TypedDict):
    """A boolean on/off toggle session configuration option payload."""

    currentValue: bool


# Unique identifier for a session configuration option value group.
SessionConfigGroupId: TypeAlias = "str"


# Unique identifier for a session configuration option.
SessionConfigId: TypeAlias = "str"


# A session configuration option selector and its current state.
SessionConfigOption: TypeAlias = "Union[SessionConfigOptionSelect, SessionConfigOptionBoolean]"


# Semantic category for a session configuration option.
SessionConfigOptionCategory: TypeAlias = "str"


class SessionConfigOptionsCapabilities(TypedDict):
    """Session configuration option capabilities supported by the client."""

    boolean: NotRequired[Union[BooleanConfigOptionCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionConfigSelect(TypedDict):
    """A single-value selector (dropdown) session configuration option payload."""

    currentValue: SessionConfigValueId
    options: SessionConfigSelectOptions


class SessionConfigSelectGroup(TypedDict):
    """A group of possible values for a session configuration option."""

    group: SessionConfigGroupId
    name: str
    options: list[SessionConfigSelectOption]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionConfigSelectOption(TypedDict):
    """A possible value for a session configuration option."""

    value: SessionConfigValueId
    name: str
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Possible values for a session configuration option.
SessionConfigSelectOptions: TypeAlias = "Union[list[SessionConfigSelectOption], list[SessionConfigSelectGroup]]"


# Unique identifier for a session configuration option value.
SessionConfigValueId: TypeAlias = "str"


class SessionDeleteCapabilities(TypedDict):
    """Capabilities for the `session/delete` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionForkCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


# A unique identifier for a conversation session between a client and agent.
SessionId: TypeAlias = "str"


class SessionInfo(TypedDict):
    """Information about a session returned by session/list"""

    sessionId: SessionId
    cwd: str
    additionalDirectories: NotRequired[list[str]]
    title: NotRequired[Union[str, None]]
    updatedAt: NotRequired[Union[str, None]]
    archived: NotRequired[Union[bool, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionInfoUpdate(TypedDict):
    """Update to session metadata. All fields are optional to support partial updates."""

    title: NotRequired[Union[str, None]]
    updatedAt: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionListCapabilities(TypedDict):
    """Capabilities for the `session/list` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionMessage(TypedDict):
    """**UNSTABLE**"""

    messageId: MessageId
    senderSessionId: NotRequired[Union[SessionId, None]]
    recipientSessionId: NotRequired[Union[SessionId, None]]
    senderMessageId: NotRequired[Union[MessageId, None]]
    recipientMessageId: NotRequired[Union[MessageId, None]]
    content: NotRequired[Union[list[ContentBlock], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionMessageChunk(TypedDict):
    """**UNSTABLE**"""

    messageId: MessageId
    content: ContentBlock
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionMode(TypedDict):
    """A mode the agent can operate in."""

    id: SessionModeId
    name: str
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Unique identifier for a Session Mode.
SessionModeId: TypeAlias = "str"


class SessionModeState(TypedDict):
    """The set of modes and the one currently active."""

    currentModeId: SessionModeId
    availableModes: list[SessionMode]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionNotification(TypedDict):
    """Notification containing a session update from the agent."""

    sessionId: SessionId
    update: SessionUpdate
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionResumeCapabilities(TypedDict):
    """Capabilities for the `session/resume` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
SessionStatus: TypeAlias = "str"


class SessionStatusCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionStatusRequest(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionStatusResponse(TypedDict):
    """**UNSTABLE**"""

    status: SessionStatus
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionSystemPromptCapabilities(TypedDict):
    """**UNSTABLE**"""

    mode: NotRequired[Union[SessionSystemPromptModeCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionSystemPromptModeCapabilities(TypedDict):
    """**UNSTABLE**"""

    override: NotRequired[Union[SessionSystemPromptOverrideCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionSystemPromptOverrideCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionTitleCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


# Different types of updates that can be sent during session processing.
SessionUpdate: TypeAlias = "Union[SessionUpdateUserMessageChunk, SessionUpdateAgentMessageChunk, SessionUpdateAgentThoughtChunk, SessionUpdateToolCall, SessionUpdateToolCallUpdate, SessionUpdatePlan, SessionUpdatePlanUpdate, SessionUpdatePlanRemoved, SessionUpdateAvailableCommandsUpdate, SessionUpdateCurrentModeUpdate, SessionUpdateConfigOptionUpdate, SessionUpdateSessionInfoUpdate, SessionUpdateUsageUpdate, SessionUpdateNotice, SessionUpdateCompactionUpdate, SessionUpdateCompactionSummaryChunk, SessionUpdateSubagentUpdate, SessionUpdateSessionMessage, SessionUpdateSessionMessageChunk]"


class SetProviderRequest(TypedDict):
    """**UNSTABLE**"""

    providerId: ProviderId
    apiType: LlmProtocol
    baseUrl: str
    headers: NotRequired[dict[str, str]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SetProviderResponse(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


# Request parameters for setting a session configuration option.
SetSessionConfigOptionRequest: TypeAlias = "Union[SetSessionConfigOptionRequestBoolean, SetSessionConfigOptionRequestValueId]"


class SetSessionConfigOptionResponse(TypedDict):
    """Response to `session/set_config_option` method."""

    configOptions: list[SessionConfigOption]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SetSessionModeRequest(TypedDict):
    """Request parameters for setting a session mode."""

    sessionId: SessionId
    modeId: SessionModeId
    _meta: NotRequired[Union[dict[str, Any], None]]


class SetSessionModeResponse(TypedDict):
    """Response to `session/set_mode` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SetSessionTitleRequest(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    title: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class SetSessionTitleResponse(TypedDict):
    """**UNSTABLE**"""

    title: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
StateUpdate: TypeAlias = "Union[StateUpdateRunning, StateUpdateIdle, StateUpdateRequiresAction, StateUpdateUnknown]"


# Reasons why an agent stops processing a prompt turn.
StopReason: TypeAlias = "Union[Literal['end_turn'], Literal['max_tokens'], Literal['max_turn_requests'], Literal['refusal'], Literal['cancelled']]"


# String format types for string properties in elicitation schemas.
StringFormat: TypeAlias = "Union[Literal['email'], Literal['uri'], Literal['date'], Literal['date-time']]"


class StringMultiSelectItems(TypedDict):
    """String item schema for multi-select enum properties."""

    enum: list[str]
    _meta: NotRequired[Union[dict[str, Any], None]]


class StringPropertySchema(TypedDict):
    """Schema for string properties in an elicitation form."""

    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    minLength: NotRequired[Union[int, None]]
    maxLength: NotRequired[Union[int, None]]
    pattern: NotRequired[Union[str, None]]
    format: NotRequired[Union[StringFormat, None]]
    default: NotRequired[Union[str, None]]
    enum: NotRequired[Union[list[str], None]]
    oneOf: NotRequired[Union[list[EnumOption], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SubagentCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class SubagentSessionCapabilities(TypedDict):
    """**UNSTABLE**"""

    cancel: NotRequired[Union[SessionCancelCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SubagentUpdate(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    capabilities: NotRequired[Union[SubagentSessionCapabilities, None]]
    state: NotRequired[Union[StateUpdate, None]]
    cwd: NotRequired[Union[str, None]]
    additionalDirectories: NotRequired[Union[list[str], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SystemPrompt(TypedDict):
    """**UNSTABLE**"""

    mode: SystemPromptMode
    content: list[ContentBlock]
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
SystemPromptMode: TypeAlias = "str"


class Terminal(TypedDict):
    """Embed a terminal created with `terminal/create` by its id."""

    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalExitStatus(TypedDict):
    """Exit status of a terminal command."""

    exitCode: NotRequired[Union[int, None]]
    signal: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Typed identifier used for terminal values on the wire.
TerminalId: TypeAlias = "str"


class TerminalOutputRequest(TypedDict):
    """Request to get the current output and status of a terminal."""

    sessionId: SessionId
    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalOutputResponse(TypedDict):
    """Response containing the terminal output and exit status."""

    output: str
    truncated: bool
    exitStatus: NotRequired[Union[TerminalExitStatus, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class TextContent(TypedDict):
    """Text provided to or from an LLM."""

    annotations: NotRequired[Union[Annotations, None]]
    text: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class TextResourceContents(TypedDict):
    """Text-based resource contents."""

    mimeType: NotRequired[Union[str, None]]
    text: str
    uri: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class TitledMultiSelectItems(TypedDict):
    """Items definition for titled multi-select enum properties."""

    anyOf: list[EnumOption]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ToolCall(TypedDict):
    """Represents a tool call that the language model has requested."""

    toolCallId: ToolCallId
    title: str
    name: NotRequired[Union[str, None]]
    kind: NotRequired[ToolKind]
    status: NotRequired[ToolCallStatus]
    content: NotRequired[list[ToolCallContent]]
    locations: NotRequired[list[ToolCallLocation]]
    rawInput: NotRequired[Any]
    rawOutput: NotRequired[Any]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Content produced by a tool call.
ToolCallContent: TypeAlias = "Union[ToolCallContentContent, ToolCallContentDiff, ToolCallContentTerminal]"


# Unique identifier for a tool call within a session.
ToolCallId: TypeAlias = "str"


class ToolCallLocation(TypedDict):
    """A file location being accessed or modified by a tool."""

    path: str
    line: NotRequired[Union[int, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Execution status of a tool call.
ToolCallStatus: TypeAlias = "Union[Literal['pending'], Literal['in_progress'], Literal['completed'], Literal['failed']]"


class ToolCallUpdate(TypedDict):
    """An update to an existing tool call."""

    toolCallId: ToolCallId
    kind: NotRequired[Union[ToolKind, None]]
    status: NotRequired[Union[ToolCallStatus, None]]
    title: NotRequired[Union[str, None]]
    name: NotRequired[Union[str, None]]
    content: NotRequired[Union[list[ToolCallContent], None]]
    locations: NotRequired[Union[list[ToolCallLocation], None]]
    rawInput: NotRequired[Any]
    rawOutput: NotRequired[Any]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Categories of tools that can be invoked.
ToolKind: TypeAlias = "Union[Literal['read'], Literal['edit'], Literal['delete'], Literal['move'], Literal['search'], Literal['execute'], Literal['think'], Literal['fetch'], Literal['switch_mode'], Literal['other']]"


class UnarchiveSessionRequest(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class UnarchiveSessionResponse(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class UnknownStateUpdate(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class UnstructuredCommandInput(TypedDict):
    """All text that was typed after the command name is provided as input."""

    hint: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class Usage(TypedDict):
    """**UNSTABLE**"""

    totalTokens: int
    inputTokens: int
    outputTokens: int
    thoughtTokens: NotRequired[Union[int, None]]
    cachedReadTokens: NotRequired[Union[int, None]]
    cachedWriteTokens: NotRequired[Union[int, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class UsageUpdate(TypedDict):
    """Context window and cost update for a session."""

    used: int
    size: int
    cost: NotRequired[Union[Cost, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class WaitForTerminalExitRequest(TypedDict):
    """Request to wait for a terminal command to exit."""

    sessionId: SessionId
    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class WaitForTerminalExitResponse(TypedDict):
    """Response containing the exit status of a terminal command."""

    exitCode: NotRequired[Union[int, None]]
    signal: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class WriteTextFileRequest(TypedDict):
    """Request to write content to a text file."""

    sessionId: SessionId
    path: str
    content: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class WriteTextFileResponse(TypedDict):
    """Response to `fs/write_text_file`"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class AgentResponseResult(TypedDict):
    """A successful JSON-RPC response."""

    id: RequestId
    result: Union[InitializeResponse, AuthenticateResponse, ListProvidersResponse, SetProviderResponse, DisableProviderResponse, LogoutResponse, AuthStatusResponse, NewSessionResponse, LoadSessionResponse, ListSessionsResponse, DeleteSessionResponse, ForkSessionResponse, ArchiveSessionResponse, UnarchiveSessionResponse, SessionStatusResponse, SetSessionTitleResponse, ResumeSessionResponse, CloseSessionResponse, SetSessionModeResponse, SetSessionConfigOptionResponse, PromptResponse, ExtResponse]


class AgentResponseError(TypedDict):
    """A failed JSON-RPC response."""

    id: RequestId
    error: Error


class AuthMethodTerminalVariant(AuthMethodTerminal):
    """Client runs the configured agent program as a separate interactive process, without passing this
    method to `authenticate`.
    """

    type: Literal['terminal']


class ClientResponseResult(TypedDict):
    """A successful JSON-RPC response."""

    id: RequestId
    result: Union[WriteTextFileResponse, ReadTextFileResponse, RequestPermissionResponse, CreateTerminalResponse, TerminalOutputResponse, ReleaseTerminalResponse, WaitForTerminalExitResponse, KillTerminalResponse, CreateElicitationResponse, MessageMcpResponse, ExtResponse]


class ClientResponseError(TypedDict):
    """A failed JSON-RPC response."""

    id: RequestId
    error: Error


class ContentBlockText(TextContent):
    """Text content. May be plain text or formatted with Markdown."""

    type: Literal['text']


class ContentBlockImage(ImageContent):
    """Images for visual context or analysis."""

    type: Literal['image']


class ContentBlockAudio(AudioContent):
    """Audio data for transcription or analysis."""

    type: Literal['audio']


class ContentBlockResourceLink(ResourceLink):
    """References to resources that the agent can access."""

    type: Literal['resource_link']


class ContentBlockResource(EmbeddedResource):
    """Complete resource contents embedded directly in the message."""

    type: Literal['resource']


class CreateElicitationRequestForm(TypedDict):
    """Form-based elicitation where the client renders a form from the provided schema."""

    sessionId: NotRequired[SessionId]
    toolCallId: NotRequired[Union[ToolCallId, None]]
    requestId: NotRequired[RequestId]
    requestedSchema: ElicitationSchema
    message: str
    _meta: NotRequired[Union[dict[str, Any], None]]
    mode: Literal['form']


class CreateElicitationRequestUrl(TypedDict):
    """URL-based elicitation where the client directs the user to a URL."""

    sessionId: NotRequired[SessionId]
    toolCallId: NotRequired[Union[ToolCallId, None]]
    requestId: NotRequired[RequestId]
    elicitationId: ElicitationId
    url: str
    message: str
    _meta: NotRequired[Union[dict[str, Any], None]]
    mode: Literal['url']


class CreateElicitationResponseAccept(ElicitationAcceptAction):
    """The user accepted and provided content."""

    _meta: NotRequired[Union[dict[str, Any], None]]
    action: Literal['accept']


class CreateElicitationResponseDecline(TypedDict):
    """The user declined the elicitation."""

    _meta: NotRequired[Union[dict[str, Any], None]]
    action: Literal['decline']


class CreateElicitationResponseCancel(TypedDict):
    """The elicitation was cancelled."""

    _meta: NotRequired[Union[dict[str, Any], None]]
    action: Literal['cancel']


class ElicitationFormModeSession(ElicitationSessionScope):
    """Tied to a session, optionally to a specific tool call within that session."""

    requestedSchema: ElicitationSchema


class ElicitationFormModeRequest(ElicitationRequestScope):
    """Tied to a specific JSON-RPC request outside of a session (e.g., during auth/configuration phases
    before any session is started).
    """

    requestedSchema: ElicitationSchema


class ElicitationPropertySchemaString(StringPropertySchema):
    """String property (or single-select enum when `enum`/`oneOf` is set)."""

    type: Literal['string']


class ElicitationPropertySchemaNumber(NumberPropertySchema):
    """Number (floating-point) property."""

    type: Literal['number']


class ElicitationPropertySchemaInteger(IntegerPropertySchema):
    """Integer property."""

    type: Literal['integer']


class ElicitationPropertySchemaBoolean(BooleanPropertySchema):
    """Boolean property."""

    type: Literal['boolean']


class ElicitationPropertySchemaArray(MultiSelectPropertySchema):
    """Multi-select array property."""

    type: Literal['array']


class ElicitationUrlModeSession(ElicitationSessionScope):
    """Tied to a session, optionally to a specific tool call within that session."""

    elicitationId: ElicitationId
    url: str


class ElicitationUrlModeRequest(ElicitationRequestScope):
    """Tied to a specific JSON-RPC request outside of a session (e.g., during auth/configuration phases
    before any session is started).
    """

    elicitationId: ElicitationId
    url: str


class IdleStateUpdateEndTurn(TypedDict):
    """The work ended successfully."""

    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['end_turn']


class IdleStateUpdateMaxTokens(TypedDict):
    """The work ended because the agent reached the maximum number of tokens."""

    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['max_tokens']


class IdleStateUpdateMaxTurnRequests(TypedDict):
    """The work ended because the agent reached the maximum number of allowed agent requests."""

    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['max_turn_requests']


class IdleStateUpdateRefusal(TypedDict):
    """The work ended because the agent refused to continue."""

    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['refusal']


class IdleStateUpdateCancelled(TypedDict):
    """The work was cancelled."""

    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['cancelled']


class IdleStateUpdateError(ErrorStopReason):
    """The work ended because something failed."""

    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['error']


class IdleStateUpdateNone(TypedDict):
    """No stop reason: `stopReason` is omitted or `null`."""

    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: NotRequired[None]


class McpServerHttpVariant(McpServerHttp):
    """HTTP transport configuration"""

    type: Literal['http']


class McpServerSseVariant(McpServerSse):
    """SSE transport configuration"""

    type: Literal['sse']


class McpServerAcpVariant(McpServerAcp):
    """**UNSTABLE**"""

    type: Literal['acp']


class MessageMcpResponseResult(TypedDict):
    """An opaque inner MCP result."""

    result: Any
    _meta: NotRequired[Union[dict[str, Any], None]]


class MessageMcpResponseError(TypedDict):
    """A structured inner MCP error."""

    error: McpError
    _meta: NotRequired[Union[dict[str, Any], None]]


class MultiSelectItemsString(StringMultiSelectItems):
    """Multi-select string items with plain string values."""

    type: Literal['string']


class PlanUpdateContentItems(PlanItems):
    """Structured plan entries."""

    type: Literal['items']


class PlanUpdateContentFile(PlanFile):
    """A URI pointing to a file containing the plan."""

    type: Literal['file']


class PlanUpdateContentMarkdown(PlanMarkdown):
    """Raw markdown content for the plan."""

    type: Literal['markdown']


class ProxyResponseResult(TypedDict):
    """A successful JSON-RPC response."""

    id: RequestId
    result: Union[InitializeProxyResponse, ProxySuccessorResponse]


class ProxyResponseError(TypedDict):
    """A failed JSON-RPC response."""

    id: RequestId
    error: Error


class RequestPermissionOutcomeCancelled(TypedDict):
    """The prompt turn was cancelled before the user responded."""

    outcome: Literal['cancelled']


class RequestPermissionOutcomeSelected(SelectedPermissionOutcome):
    """The user selected one of the provided options."""

    outcome: Literal['selected']


class SessionConfigOptionSelect(SessionConfigSelect):
    """Single-value selector (dropdown)."""

    id: SessionConfigId
    name: str
    description: NotRequired[Union[str, None]]
    category: NotRequired[Union[SessionConfigOptionCategory, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    type: Literal['select']


class SessionConfigOptionBoolean(SessionConfigBoolean):
    """Boolean on/off toggle."""

    id: SessionConfigId
    name: str
    description: NotRequired[Union[str, None]]
    category: NotRequired[Union[SessionConfigOptionCategory, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    type: Literal['boolean']


class SessionUpdateUserMessageChunk(ContentChunk):
    """A chunk of the user's message being streamed."""

    sessionUpdate: Literal['user_message_chunk']


class SessionUpdateAgentMessageChunk(ContentChunk):
    """A chunk of the agent's response being streamed."""

    sessionUpdate: Literal['agent_message_chunk']


class SessionUpdateAgentThoughtChunk(ContentChunk):
    """A chunk of the agent's internal reasoning being streamed."""

    sessionUpdate: Literal['agent_thought_chunk']


class SessionUpdateToolCall(ToolCall):
    """Notification that a new tool call has been initiated."""

    sessionUpdate: Literal['tool_call']


class SessionUpdateToolCallUpdate(ToolCallUpdate):
    """Update on the status or results of a tool call."""

    sessionUpdate: Literal['tool_call_update']


class SessionUpdatePlan(Plan):
    """The agent's execution plan for complex tasks. See protocol docs: [Agent
    Plan](https://agentclientprotocol.com/protocol/v1/draft/agent-plan)
    """

    sessionUpdate: Literal['plan']


class SessionUpdatePlanUpdate(PlanUpdate):
    """**UNSTABLE**"""

    sessionUpdate: Literal['plan_update']


class SessionUpdatePlanRemoved(PlanRemoved):
    """**UNSTABLE**"""

    sessionUpdate: Literal['plan_removed']


class SessionUpdateAvailableCommandsUpdate(AvailableCommandsUpdate):
    """Available commands are ready or have changed"""

    sessionUpdate: Literal['available_commands_update']


class SessionUpdateCurrentModeUpdate(CurrentModeUpdate):
    """The current mode of the session has changed"""

    sessionUpdate: Literal['current_mode_update']


class SessionUpdateConfigOptionUpdate(ConfigOptionUpdate):
    """Session configuration options have been updated."""

    sessionUpdate: Literal['config_option_update']


class SessionUpdateSessionInfoUpdate(SessionInfoUpdate):
    """Session metadata has been updated (title, timestamps, custom metadata)"""

    sessionUpdate: Literal['session_info_update']


class SessionUpdateUsageUpdate(UsageUpdate):
    """Context window and cost update for the session."""

    sessionUpdate: Literal['usage_update']


class SessionUpdateNotice(Notice):
    """Information for the user that is not part of session history."""

    sessionUpdate: Literal['notice']


class SessionUpdateCompactionUpdate(CompactionUpdate):
    """A context compaction has been created or updated."""

    sessionUpdate: Literal['compaction_update']


class SessionUpdateCompactionSummaryChunk(CompactionSummaryChunk):
    """A content block appended to a context compaction's retained summary."""

    sessionUpdate: Literal['compaction_summary_chunk']


class SessionUpdateSubagentUpdate(SubagentUpdate):
    """**UNSTABLE**"""

    sessionUpdate: Literal['subagent_update']


class SessionUpdateSessionMessage(SessionMessage):
    """**UNSTABLE**"""

    sessionUpdate: Literal['session_message']


class SessionUpdateSessionMessageChunk(SessionMessageChunk):
    """**UNSTABLE**"""

    sessionUpdate: Literal['session_message_chunk']


class SetSessionConfigOptionRequestBoolean(TypedDict):
    """A boolean value (`type: "boolean"`)."""

    sessionId: SessionId
    configId: SessionConfigId
    _meta: NotRequired[Union[dict[str, Any], None]]
    type: Literal['boolean']
    value: bool


class SetSessionConfigOptionRequestValueId(TypedDict):
    """A `SessionConfigValueId` string value."""

    sessionId: SessionId
    configId: SessionConfigId
    _meta: NotRequired[Union[dict[str, Any], None]]
    value: SessionConfigValueId


class StateUpdateRunning(RunningStateUpdate):
    """Foreground work is in progress."""

    state: Literal['running']


class StateUpdateIdle(TypedDict):
    """The child is ready to process another prompt."""

    stopReason: NotRequired[Union[str, None]]
    error: NotRequired[Union[Error, None]]
    usage: NotRequired[Union[Usage, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    state: Literal['idle']


class StateUpdateRequiresAction(RequiresActionStateUpdate):
    """Foreground work is blocked on user action."""

    state: Literal['requires_action']


class StateUpdateUnknown(UnknownStateUpdate):
    """The Agent cannot currently determine foreground activity."""

    state: Literal['unknown']


class ToolCallContentContent(Content):
    """Standard content block (text, images, resources)."""

    type: Literal['content']


class ToolCallContentDiff(Diff):
    """File modification shown as a diff."""

    type: Literal['diff']


class ToolCallContentTerminal(Terminal):
    """Embed a terminal created with `terminal/create` by its id."""

    type: Literal['terminal']
