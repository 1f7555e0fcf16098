"""The types of the Agent Client Protocol, version 2.

Generated from the protocol's schema by scripts/generate.py; not edited by hand.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, Union

__all__ = [
    "AbsolutePath",
    "AgentAuthCapabilities",
    "AgentCapabilities",
    "AgentMessage",
    "AgentNotification",
    "AgentRequest",
    "AgentResponse",
    "AgentResponseError",
    "AgentResponseResult",
    "AgentThought",
    "Annotations",
    "ArchiveSessionRequest",
    "ArchiveSessionResponse",
    "AudioContent",
    "AuthAccount",
    "AuthMethod",
    "AuthMethodAgent",
    "AuthMethodAgentVariant",
    "AuthMethodId",
    "AuthMethodTerminal",
    "AuthMethodTerminalVariant",
    "AuthState",
    "AuthStatusCapabilities",
    "AuthStatusRequest",
    "AuthStatusResponse",
    "AuthStatusUpdateNotification",
    "AvailableCommand",
    "AvailableCommandCommand",
    "AvailableCommandInput",
    "AvailableCommandInputText",
    "AvailableCommandsUpdate",
    "BackgroundSubagent",
    "BackgroundTerminal",
    "BackgroundToolCall",
    "BackgroundWork",
    "BackgroundWorkSubagent",
    "BackgroundWorkTerminal",
    "BackgroundWorkToolCall",
    "BlobResourceContents",
    "BooleanPropertySchema",
    "CancelRequestNotification",
    "CancelSessionNotification",
    "CancelTerminalRequest",
    "CancelTerminalResponse",
    "CancelToolCallRequest",
    "CancelToolCallResponse",
    "CancelledPermissionOutcome",
    "ClientAuthCapabilities",
    "ClientCapabilities",
    "ClientNotification",
    "ClientRequest",
    "ClientResponse",
    "ClientResponseError",
    "ClientResponseResult",
    "CloseSessionRequest",
    "CloseSessionResponse",
    "Command",
    "CommandPermissionSubject",
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
    "CreateElicitationResponse",
    "CreateElicitationResponseAccept",
    "CreateElicitationResponseCancel",
    "CreateElicitationResponseDecline",
    "DeleteSessionRequest",
    "DeleteSessionResponse",
    "Diff",
    "DiffChange",
    "DiffChangeAdd",
    "DiffChangeCopy",
    "DiffChangeDelete",
    "DiffChangeModify",
    "DiffChangeMove",
    "DiffFileType",
    "DiffPatch",
    "DiffPatchFormat",
    "DiffPathChange",
    "DiffPathPairChange",
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
    "ErrorData",
    "ErrorStopReason",
    "ExtNotification",
    "ExtRequest",
    "ExtResponse",
    "ForkSessionRequest",
    "ForkSessionResponse",
    "HttpHeader",
    "Icon",
    "IconTheme",
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
    "ListProvidersRequest",
    "ListProvidersResponse",
    "ListSessionsRequest",
    "ListSessionsResponse",
    "LlmProtocol",
    "LoginAuthRequest",
    "LoginAuthResponse",
    "LogoutAuthRequest",
    "LogoutAuthResponse",
    "McpAcpCapabilities",
    "McpCapabilities",
    "McpError",
    "McpHttpCapabilities",
    "McpRequestId",
    "McpServer",
    "McpServerAcp",
    "McpServerAcpId",
    "McpServerAcpVariant",
    "McpServerHttp",
    "McpServerHttpVariant",
    "McpServerStdio",
    "McpServerStdioVariant",
    "McpStdioCapabilities",
    "MediaType",
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
    "NoticeSeverity",
    "NumberPropertySchema",
    "PermissionOption",
    "PermissionOptionId",
    "PermissionOptionKind",
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
    "PromptAudioCapabilities",
    "PromptCapabilities",
    "PromptEmbeddedContextCapabilities",
    "PromptImageCapabilities",
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
    "ReplayFrom",
    "ReplayFromStart",
    "ReplayFromStartVariant",
    "RequestId",
    "RequestPermissionOutcome",
    "RequestPermissionOutcomeCancelled",
    "RequestPermissionOutcomeSelected",
    "RequestPermissionRequest",
    "RequestPermissionResponse",
    "RequestPermissionSubject",
    "RequestPermissionSubjectCommand",
    "RequestPermissionSubjectToolCall",
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
    "SessionConfigBoolean",
    "SessionConfigGroupId",
    "SessionConfigId",
    "SessionConfigOption",
    "SessionConfigOptionBoolean",
    "SessionConfigOptionCategory",
    "SessionConfigOptionSelect",
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
    "SessionListCursor",
    "SessionMessage",
    "SessionMessageChunk",
    "SessionNotFoundErrorData",
    "SessionStatus",
    "SessionStatusCapabilities",
    "SessionStatusRequest",
    "SessionStatusResponse",
    "SessionSystemPromptCapabilities",
    "SessionSystemPromptModeCapabilities",
    "SessionSystemPromptOverrideCapabilities",
    "SessionTitleCapabilities",
    "SessionUpdate",
    "SessionUpdateAgentMessage",
    "SessionUpdateAgentMessageChunk",
    "SessionUpdateAgentThought",
    "SessionUpdateAgentThoughtChunk",
    "SessionUpdateAvailableCommandsUpdate",
    "SessionUpdateCompactionSummaryChunk",
    "SessionUpdateCompactionUpdate",
    "SessionUpdateConfigOptionUpdate",
    "SessionUpdateNotice",
    "SessionUpdatePlanRemoved",
    "SessionUpdatePlanUpdate",
    "SessionUpdateSessionInfoUpdate",
    "SessionUpdateSessionMessage",
    "SessionUpdateSessionMessageChunk",
    "SessionUpdateStateUpdateIdle",
    "SessionUpdateStateUpdateRequiresAction",
    "SessionUpdateStateUpdateRunning",
    "SessionUpdateStateUpdateUnknown",
    "SessionUpdateSubagentUpdate",
    "SessionUpdateTerminalOutputChunk",
    "SessionUpdateTerminalUpdate",
    "SessionUpdateToolCallContentChunk",
    "SessionUpdateToolCallUpdate",
    "SessionUpdateUsageUpdate",
    "SessionUpdateUserMessage",
    "SessionUpdateUserMessageChunk",
    "SetProviderRequest",
    "SetProviderResponse",
    "SetSessionConfigOptionRequest",
    "SetSessionConfigOptionRequestBoolean",
    "SetSessionConfigOptionRequestId",
    "SetSessionConfigOptionResponse",
    "SetSessionTitleRequest",
    "SetSessionTitleResponse",
    "StateUpdate",
    "StateUpdateIdle",
    "StateUpdateRequiresAction",
    "StateUpdateRunning",
    "StateUpdateUnknown",
    "StringFormat",
    "StringMultiSelectItems",
    "StringPropertySchema",
    "SubagentSessionCapabilities",
    "SubagentUpdate",
    "SystemPrompt",
    "SystemPromptMode",
    "Terminal",
    "TerminalAuthCapabilities",
    "TerminalCancelCapabilities",
    "TerminalCapabilities",
    "TerminalExitStatus",
    "TerminalId",
    "TerminalOutput",
    "TerminalOutputChunk",
    "TerminalSize",
    "TerminalUpdate",
    "TextCommandInput",
    "TextContent",
    "TextResourceContents",
    "TitledMultiSelectItems",
    "ToolCallCancelCapabilities",
    "ToolCallCapabilities",
    "ToolCallContent",
    "ToolCallContentChunk",
    "ToolCallContentContent",
    "ToolCallContentDiff",
    "ToolCallContentTerminal",
    "ToolCallId",
    "ToolCallLocation",
    "ToolCallPermissionSubject",
    "ToolCallStatus",
    "ToolCallUpdate",
    "ToolKind",
    "UnarchiveSessionRequest",
    "UnarchiveSessionResponse",
    "UnknownStateUpdate",
    "UnsupportedProtocolVersionErrorData",
    "UpdateSessionNotification",
    "Usage",
    "UsageUpdate",
    "UserMessage",
]


# An absolute filesystem path used by the protocol.
AbsolutePath: TypeAlias = "str"


class AgentAuthCapabilities(TypedDict):
    """Authentication-related extension capabilities supported by the agent."""

    status: NotRequired[Union[AuthStatusCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AgentCapabilities(TypedDict):
    """Capabilities supported by the agent."""

    session: NotRequired[Union[SessionCapabilities, None]]
    auth: NotRequired[Union[AgentAuthCapabilities, None]]
    providers: NotRequired[Union[ProvidersCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AgentMessage(TypedDict):
    """An agent message upsert."""

    messageId: MessageId
    content: NotRequired[Union[list[ContentBlock], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AgentNotification(TypedDict):
    """A JSON-RPC notification object."""

    method: str
    params: NotRequired[Union[Union[UpdateSessionNotification, CompleteElicitationNotification, AuthStatusUpdateNotification, ExtNotification], None]]


class AgentRequest(TypedDict):
    """A JSON-RPC request object."""

    id: RequestId
    method: str
    params: NotRequired[Union[Union[RequestPermissionRequest, CreateElicitationRequest, MessageMcpRequest, ExtRequest], None]]


# A JSON-RPC response object.
AgentResponse: TypeAlias = "Union[AgentResponseResult, AgentResponseError]"


class AgentThought(TypedDict):
    """An agent thought or reasoning message upsert."""

    messageId: MessageId
    content: NotRequired[Union[list[ContentBlock], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


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

    data: str
    mimeType: MediaType
    annotations: NotRequired[Union[Annotations, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AuthAccount(TypedDict):
    """**UNSTABLE**"""

    label: str
    active: NotRequired[Union[bool, None]]
    name: NotRequired[Union[str, None]]
    email: NotRequired[Union[str, None]]
    organization: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Describes an available authentication method.
AuthMethod: TypeAlias = "Union[AuthMethodTerminalVariant, AuthMethodAgentVariant]"


class AuthMethodAgent(TypedDict):
    """Agent handles authentication itself through `auth/login`."""

    methodId: AuthMethodId
    name: str
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Typed identifier used for auth method values on the wire.
AuthMethodId: TypeAlias = "str"


class AuthMethodTerminal(TypedDict):
    """Terminal-based authentication method."""

    methodId: AuthMethodId
    name: str
    description: NotRequired[Union[str, None]]
    args: NotRequired[list[str]]
    env: NotRequired[list[EnvVariable]]
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


# A command the agent advertises to the client.
AvailableCommand: TypeAlias = "AvailableCommandCommand"


# The input specification for a command.
AvailableCommandInput: TypeAlias = "AvailableCommandInputText"


class AvailableCommandsUpdate(TypedDict):
    """Available commands are ready or have changed"""

    availableCommands: list[AvailableCommand]
    _meta: NotRequired[Union[dict[str, Any], None]]


class BackgroundSubagent(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class BackgroundTerminal(TypedDict):
    """A listed terminal running in the background."""

    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class BackgroundToolCall(TypedDict):
    """A listed tool call whose work continues in the background."""

    toolCallId: ToolCallId
    _meta: NotRequired[Union[dict[str, Any], None]]


# One piece of work running independently of the session's foreground work.
BackgroundWork: TypeAlias = "Union[BackgroundWorkTerminal, BackgroundWorkToolCall, BackgroundWorkSubagent]"


class BlobResourceContents(TypedDict):
    """Binary resource contents."""

    blob: str
    uri: str
    mimeType: NotRequired[Union[MediaType, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class BooleanPropertySchema(TypedDict):
    """Schema for boolean properties in an elicitation form."""

    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    default: NotRequired[Union[bool, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelRequestNotification(TypedDict):
    """Notification to cancel an ongoing request."""

    requestId: RequestId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelSessionNotification(TypedDict):
    """Notification to cancel a session's foreground work and its prompts not yet inserted."""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelTerminalRequest(TypedDict):
    """Request parameters for cancelling one terminal."""

    sessionId: SessionId
    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelTerminalResponse(TypedDict):
    """Response from cancelling a terminal."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelToolCallRequest(TypedDict):
    """Request parameters for cancelling one tool call."""

    sessionId: SessionId
    toolCallId: ToolCallId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelToolCallResponse(TypedDict):
    """Response from cancelling a tool call."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class CancelledPermissionOutcome(TypedDict):
    """The request was not approved and no option was selected."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class ClientAuthCapabilities(TypedDict):
    """Authentication capabilities supported by the client."""

    terminal: NotRequired[Union[TerminalAuthCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ClientCapabilities(TypedDict):
    """Capabilities supported by the client."""

    auth: NotRequired[Union[ClientAuthCapabilities, None]]
    elicitation: NotRequired[Union[ElicitationCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ClientNotification(TypedDict):
    """A JSON-RPC notification object."""

    method: str
    params: NotRequired[Union[Union[CancelSessionNotification, MessageMcpNotification, ExtNotification], None]]


class ClientRequest(TypedDict):
    """A JSON-RPC request object."""

    id: RequestId
    method: str
    params: NotRequired[Union[Union[InitializeRequest, LoginAuthRequest, ListProvidersRequest, SetProviderRequest, DisableProviderRequest, LogoutAuthRequest, AuthStatusRequest, NewSessionRequest, ListSessionsRequest, DeleteSessionRequest, ForkSessionRequest, ArchiveSessionRequest, UnarchiveSessionRequest, SessionStatusRequest, SetSessionTitleRequest, ResumeSessionRequest, CloseSessionRequest, CancelToolCallRequest, CancelTerminalRequest, SetSessionConfigOptionRequest, PromptRequest, ExtRequest], None]]


# A JSON-RPC response object.
ClientResponse: TypeAlias = "Union[ClientResponseResult, ClientResponseError]"


class CloseSessionRequest(TypedDict):
    """Request parameters for closing an active session."""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class CloseSessionResponse(TypedDict):
    """Response from closing a session."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class Command(TypedDict):
    """A slash command the user can invoke by including it in a prompt."""

    name: str
    description: str
    input: NotRequired[Union[AvailableCommandInput, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class CommandPermissionSubject(TypedDict):
    """Permission request details for a command."""

    command: str
    cwd: AbsolutePath
    toolCallId: NotRequired[Union[ToolCallId, None]]
    terminalId: NotRequired[Union[TerminalId, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Unique identifier for a context compaction within a session.
CompactionId: TypeAlias = "str"


# Lifecycle state of a context compaction.
CompactionStatus: TypeAlias = "str"


class CompactionSummaryChunk(TypedDict):
    """A content block appended to a compaction's summary. A first-seen ID creates an in-progress
    compaction. Chunks append in receive order.
    """

    compactionId: CompactionId
    content: ContentBlock
    _meta: NotRequired[Union[dict[str, Any], None]]


class CompactionUpdate(TypedDict):
    """A context compaction upsert. The first notification fixes the compaction's timeline position.
    Later updates with the same ID patch that entity in place.
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
    """A streamed item of message content."""

    messageId: MessageId
    content: ContentBlock
    _meta: NotRequired[Union[dict[str, Any], None]]


class Cost(TypedDict):
    """Cost information for a session."""

    amount: float
    currency: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# Request from the agent to elicit structured user input.
CreateElicitationRequest: TypeAlias = "Union[ElicitationFormMode, ElicitationUrlMode]"


# Response from the client to an elicitation request.
CreateElicitationResponse: TypeAlias = "Union[CreateElicitationResponseAccept, CreateElicitationResponseDecline, CreateElicitationResponseCancel]"


class DeleteSessionRequest(TypedDict):
    """Request parameters for deleting an existing session from `session/list`."""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class DeleteSessionResponse(TypedDict):
    """Response from deleting a session."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class Diff(TypedDict):
    """File changes produced by a tool call."""

    changes: list[DiffChange]
    patch: NotRequired[Union[DiffPatch, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# One file-level change described by a `Diff`.
DiffChange: TypeAlias = "Union[DiffChangeAdd, DiffChangeDelete, DiffChangeModify, DiffChangeMove, DiffChangeCopy]"


# Kind of file content represented by a diff change.
DiffFileType: TypeAlias = "str"


class DiffPatch(TypedDict):
    """Renderable patch text and its format."""

    format: DiffPatchFormat
    text: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# Text patch format used by `DiffPatch`.
DiffPatchFormat: TypeAlias = "str"


class DiffPathChange(TypedDict):
    """Operation metadata for add, delete, and modify changes."""

    path: AbsolutePath


class DiffPathPairChange(TypedDict):
    """Operation metadata for move and copy changes."""

    oldPath: AbsolutePath
    path: AbsolutePath


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
ElicitationContentValue: TypeAlias = "Any"


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

    type: ElicitationSchemaType
    title: NotRequired[Union[str, None]]
    properties: dict[str, ElicitationPropertySchema]
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

    resource: EmbeddedResourceResource
    annotations: NotRequired[Union[Annotations, None]]
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
    """An environment variable to set when launching a process."""

    name: str
    value: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class Error(TypedDict):
    """JSON-RPC error object."""

    code: ErrorCode
    message: str
    data: NotRequired[Union[ErrorData, None]]


# Predefined error codes for common JSON-RPC and ACP-specific errors.
ErrorCode: TypeAlias = "Union[Literal[-32700], Literal[-32600], Literal[-32601], Literal[-32602], Literal[-32603], Literal[-32800], Literal[-32000], Literal[-32002], Literal[-32022], int]"


# Schema for [`Error::data`]: the shapes ACP defines, or any other value.
ErrorData: TypeAlias = "Any"


class ErrorStopReason(TypedDict):
    """Details of a failure that ended active work."""

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


class ForkSessionRequest(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    cwd: AbsolutePath
    additionalDirectories: NotRequired[list[AbsolutePath]]
    mcpServers: NotRequired[list[McpServer]]
    systemPrompt: NotRequired[Union[SystemPrompt, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ForkSessionResponse(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    configOptions: NotRequired[list[SessionConfigOption]]
    availableCommands: NotRequired[list[AvailableCommand]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class HttpHeader(TypedDict):
    """An HTTP header to set when making requests to the MCP server."""

    name: str
    value: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class Icon(TypedDict):
    """An optionally-sized icon that can be displayed in a user interface."""

    src: str
    mimeType: NotRequired[Union[MediaType, None]]
    sizes: NotRequired[Union[list[str], None]]
    theme: NotRequired[Union[IconTheme, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Theme an icon is designed for.
IconTheme: TypeAlias = "str"


# No foreground work is active. Background activity may continue.
IdleStateUpdate: TypeAlias = "Union[IdleStateUpdateEndTurn, IdleStateUpdateMaxTokens, IdleStateUpdateMaxTurnRequests, IdleStateUpdateRefusal, IdleStateUpdateCancelled, IdleStateUpdateError, IdleStateUpdateNone]"


class ImageContent(TypedDict):
    """An image provided to or from an LLM."""

    data: str
    mimeType: MediaType
    uri: NotRequired[Union[str, None]]
    annotations: NotRequired[Union[Annotations, None]]
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
    info: Implementation
    capabilities: NotRequired[ClientCapabilities]
    _meta: NotRequired[Union[dict[str, Any], None]]


class InitializeResponse(TypedDict):
    """Response to the `initialize` method."""

    protocolVersion: ProtocolVersion
    info: Implementation
    capabilities: NotRequired[AgentCapabilities]
    authMethods: NotRequired[list[AuthMethod]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class IntegerPropertySchema(TypedDict):
    """Schema for integer properties in an elicitation form."""

    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    minimum: NotRequired[Union[int, None]]
    maximum: NotRequired[Union[int, None]]
    default: NotRequired[Union[int, None]]
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

    cwd: NotRequired[Union[AbsolutePath, None]]
    cursor: NotRequired[Union[SessionListCursor, None]]
    archived: NotRequired[Union[SessionArchiveFilter, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ListSessionsResponse(TypedDict):
    """Response from listing sessions."""

    sessions: list[SessionInfo]
    nextCursor: NotRequired[Union[SessionListCursor, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
LlmProtocol: TypeAlias = "str"


class LoginAuthRequest(TypedDict):
    """Request parameters for the `auth/login` method."""

    methodId: AuthMethodId
    _meta: NotRequired[Union[dict[str, Any], None]]


class LoginAuthResponse(TypedDict):
    """Response to the `auth/login` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class LogoutAuthRequest(TypedDict):
    """Request parameters for the `auth/logout` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class LogoutAuthResponse(TypedDict):
    """Response to the `auth/logout` method."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class McpAcpCapabilities(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class McpCapabilities(TypedDict):
    """MCP capabilities supported by the agent for session lifecycle requests."""

    stdio: NotRequired[Union[McpStdioCapabilities, None]]
    http: NotRequired[Union[McpHttpCapabilities, None]]
    acp: NotRequired[Union[McpAcpCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class McpError(TypedDict):
    """**UNSTABLE**"""

    code: int
    message: str
    data: NotRequired[Any]


class McpHttpCapabilities(TypedDict):
    """Capabilities for HTTP MCP server transports."""

    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
McpRequestId: TypeAlias = "str"


# Configuration for connecting to an MCP (Model Context Protocol) server.
McpServer: TypeAlias = "Union[McpServerHttpVariant, McpServerAcpVariant, McpServerStdioVariant]"


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
    headers: NotRequired[list[HttpHeader]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class McpServerStdio(TypedDict):
    """Stdio transport configuration for MCP."""

    name: str
    command: AbsolutePath
    args: NotRequired[list[str]]
    env: NotRequired[list[EnvVariable]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class McpStdioCapabilities(TypedDict):
    """Capabilities for stdio MCP server transports."""

    _meta: NotRequired[Union[dict[str, Any], None]]


# An Internet media type identifying the format of protocol content.
MediaType: TypeAlias = "str"


# Identifier for a message, unique among messages of the same type within a session.
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

    cwd: AbsolutePath
    additionalDirectories: NotRequired[list[AbsolutePath]]
    mcpServers: NotRequired[list[McpServer]]
    systemPrompt: NotRequired[Union[SystemPrompt, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class NewSessionResponse(TypedDict):
    """Response from creating a new session."""

    sessionId: SessionId
    configOptions: NotRequired[list[SessionConfigOption]]
    availableCommands: NotRequired[list[AvailableCommand]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class Notice(TypedDict):
    """Fire-and-forget information for the user."""

    severity: NoticeSeverity
    title: str
    description: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


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
PermissionOptionKind: TypeAlias = "str"


class PlanEntry(TypedDict):
    """A single entry in the execution plan."""

    content: str
    priority: PlanEntryPriority
    status: PlanEntryStatus
    _meta: NotRequired[Union[dict[str, Any], None]]


# Priority levels for plan entries.
PlanEntryPriority: TypeAlias = "str"


# Status of a plan entry in the execution flow.
PlanEntryStatus: TypeAlias = "str"


class PlanFile(TypedDict):
    """**UNSTABLE**"""

    planId: PlanId
    uri: str
    _meta: NotRequired[Union[dict[str, Any], None]]


# Unique identifier for a plan within a session.
PlanId: TypeAlias = "str"


class PlanItems(TypedDict):
    """A plan represented as structured entries."""

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
    """A content update for a plan identified by ID."""

    plan: PlanUpdateContent
    _meta: NotRequired[Union[dict[str, Any], None]]


# Updated content for a plan.
PlanUpdateContent: TypeAlias = "Union[PlanUpdateContentItems, PlanUpdateContentFile, PlanUpdateContentMarkdown]"


class PromptAudioCapabilities(TypedDict):
    """Capabilities for audio content in prompt requests."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class PromptCapabilities(TypedDict):
    """Prompt capabilities supported by the agent in `session/prompt` requests."""

    image: NotRequired[Union[PromptImageCapabilities, None]]
    audio: NotRequired[Union[PromptAudioCapabilities, None]]
    embeddedContext: NotRequired[Union[PromptEmbeddedContextCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class PromptEmbeddedContextCapabilities(TypedDict):
    """Capabilities for embedded context in prompt requests."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class PromptImageCapabilities(TypedDict):
    """Capabilities for image content in prompt requests."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class PromptRequest(TypedDict):
    """Request parameters for sending a user prompt to the agent."""

    sessionId: SessionId
    prompt: list[ContentBlock]
    _meta: NotRequired[Union[dict[str, Any], None]]


class PromptResponse(TypedDict):
    """Response acknowledging that a user prompt was inserted into the ACP conversation."""

    messageId: MessageId
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


# Inclusive cursor describing where replayed session history should begin.
ReplayFrom: TypeAlias = "ReplayFromStartVariant"


class ReplayFromStart(TypedDict):
    """Inclusive replay cursor requesting replay from the start of retained conversation history."""

    _meta: NotRequired[Union[dict[str, Any], None]]


# A JSON-RPC request ID: a string or an integer. Unlike base JSON-RPC, it MUST NOT be `null`.
RequestId: TypeAlias = "Union[int, str]"


# The outcome of a permission request.
RequestPermissionOutcome: TypeAlias = "Union[RequestPermissionOutcomeCancelled, RequestPermissionOutcomeSelected]"


class RequestPermissionRequest(TypedDict):
    """Request for user permission to proceed with an operation."""

    sessionId: SessionId
    title: str
    description: NotRequired[Union[str, None]]
    subject: NotRequired[Union[RequestPermissionSubject, None]]
    options: list[PermissionOption]
    _meta: NotRequired[Union[dict[str, Any], None]]


class RequestPermissionResponse(TypedDict):
    """Response to a permission request."""

    outcome: RequestPermissionOutcome
    _meta: NotRequired[Union[dict[str, Any], None]]


# The operation requiring permission.
RequestPermissionSubject: TypeAlias = "Union[RequestPermissionSubjectToolCall, RequestPermissionSubjectCommand]"


class RequiresActionStateUpdate(TypedDict):
    """The foreground workflow as a whole is blocked on user action."""

    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ResourceLink(TypedDict):
    """A link to a resource that the receiver may be able to read, included in a prompt or tool call
    result.
    """

    name: str
    uri: str
    title: NotRequired[Union[str, None]]
    description: NotRequired[Union[str, None]]
    icons: NotRequired[Union[list[Icon], None]]
    mimeType: NotRequired[Union[MediaType, None]]
    size: NotRequired[Union[int, None]]
    annotations: NotRequired[Union[Annotations, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ResumeSessionRequest(TypedDict):
    """Request parameters for resuming an existing session."""

    sessionId: SessionId
    cwd: AbsolutePath
    additionalDirectories: NotRequired[list[AbsolutePath]]
    mcpServers: NotRequired[list[McpServer]]
    replayFrom: NotRequired[Union[ReplayFrom, None]]
    systemPrompt: NotRequired[Union[SystemPrompt, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ResumeSessionResponse(TypedDict):
    """Response from resuming an existing session."""

    configOptions: NotRequired[list[SessionConfigOption]]
    availableCommands: NotRequired[list[AvailableCommand]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# The sender or recipient of messages and data in a conversation.
Role: TypeAlias = "str"


class RunningStateUpdate(TypedDict):
    """Foreground work is in progress."""

    background: NotRequired[Union[list[BackgroundWork], None]]
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

    prompt: NotRequired[Union[PromptCapabilities, None]]
    mcp: NotRequired[Union[McpCapabilities, None]]
    delete: NotRequired[Union[SessionDeleteCapabilities, None]]
    additionalDirectories: NotRequired[Union[SessionAdditionalDirectoriesCapabilities, None]]
    systemPrompt: NotRequired[Union[SessionSystemPromptCapabilities, None]]
    fork: NotRequired[Union[SessionForkCapabilities, None]]
    archive: NotRequired[Union[SessionArchiveCapabilities, None]]
    status: NotRequired[Union[SessionStatusCapabilities, None]]
    title: NotRequired[Union[SessionTitleCapabilities, None]]
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


class SessionConfigSelect(TypedDict):
    """A single-value selector (dropdown) session configuration option payload."""

    currentValue: SessionConfigValueId
    options: SessionConfigSelectOptions


class SessionConfigSelectGroup(TypedDict):
    """A group of possible values for a session configuration option."""

    groupId: SessionConfigGroupId
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
    cwd: AbsolutePath
    additionalDirectories: NotRequired[list[AbsolutePath]]
    title: NotRequired[Union[str, None]]
    updatedAt: NotRequired[Union[str, None]]
    archived: NotRequired[Union[bool, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SessionInfoUpdate(TypedDict):
    """Update to session metadata. All fields are optional to support partial updates."""

    title: NotRequired[Union[str, None]]
    updatedAt: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# An opaque cursor used to paginate `session/list` results.
SessionListCursor: TypeAlias = "str"


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


class SessionNotFoundErrorData(TypedDict):
    """Data for the `-32002` (Resource not found) error when a session-scoped request names a session
    that does not exist or is not active.
    """

    sessionId: SessionId
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
    state: NotRequired[Union[StateUpdate, None]]
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


# Different types of updates that can be sent while a session exists.
SessionUpdate: TypeAlias = "Union[SessionUpdateUserMessageChunk, SessionUpdateUserMessage, SessionUpdateAgentMessageChunk, SessionUpdateAgentMessage, SessionUpdateAgentThoughtChunk, SessionUpdateAgentThought, Union[SessionUpdateStateUpdateRunning, SessionUpdateStateUpdateIdle, SessionUpdateStateUpdateRequiresAction, SessionUpdateStateUpdateUnknown], SessionUpdateToolCallContentChunk, SessionUpdateToolCallUpdate, SessionUpdateTerminalUpdate, SessionUpdateTerminalOutputChunk, SessionUpdatePlanUpdate, SessionUpdatePlanRemoved, SessionUpdateAvailableCommandsUpdate, SessionUpdateConfigOptionUpdate, SessionUpdateSessionInfoUpdate, SessionUpdateUsageUpdate, SessionUpdateNotice, SessionUpdateCompactionUpdate, SessionUpdateCompactionSummaryChunk, SessionUpdateSubagentUpdate, SessionUpdateSessionMessage, SessionUpdateSessionMessageChunk]"


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
SetSessionConfigOptionRequest: TypeAlias = "Union[SetSessionConfigOptionRequestId, SetSessionConfigOptionRequestBoolean]"


class SetSessionConfigOptionResponse(TypedDict):
    """Response to `session/set_config_option` method."""

    configOptions: list[SessionConfigOption]
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


# A snapshot of the session's aggregate foreground activity.
StateUpdate: TypeAlias = "Union[StateUpdateRunning, StateUpdateIdle, StateUpdateRequiresAction, StateUpdateUnknown]"


# String format types for string properties in elicitation schemas.
StringFormat: TypeAlias = "str"


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
    cwd: NotRequired[Union[AbsolutePath, None]]
    additionalDirectories: NotRequired[Union[list[AbsolutePath], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class SystemPrompt(TypedDict):
    """**UNSTABLE**"""

    mode: SystemPromptMode
    content: list[ContentBlock]
    _meta: NotRequired[Union[dict[str, Any], None]]


# **UNSTABLE**
SystemPromptMode: TypeAlias = "str"


class Terminal(TypedDict):
    """A display-only reference to an agent-owned terminal."""

    terminalId: TerminalId
    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalAuthCapabilities(TypedDict):
    """Capabilities for terminal authentication methods."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalCancelCapabilities(TypedDict):
    """Capability to cancel a terminal with `terminal/cancel`."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalCapabilities(TypedDict):
    """Client-initiated controls a terminal currently supports."""

    cancel: NotRequired[Union[TerminalCancelCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalExitStatus(TypedDict):
    """Exit information for an agent-owned terminal."""

    exitCode: NotRequired[Union[int, None]]
    signal: NotRequired[Union[str, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Unique identifier for an agent-owned terminal within a session.
TerminalId: TypeAlias = "str"


class TerminalOutput(TypedDict):
    """An authoritative replacement snapshot of terminal output bytes."""

    data: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalOutputChunk(TypedDict):
    """A chunk of bytes appended to an agent-owned terminal's output."""

    terminalId: TerminalId
    data: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalSize(TypedDict):
    """The size of an agent-owned terminal in character cells."""

    cols: int
    rows: int
    _meta: NotRequired[Union[dict[str, Any], None]]


class TerminalUpdate(TypedDict):
    """An upsert for the stored state of an agent-owned terminal."""

    terminalId: TerminalId
    command: NotRequired[Union[str, None]]
    cwd: NotRequired[Union[AbsolutePath, None]]
    output: NotRequired[Union[TerminalOutput, None]]
    exitStatus: NotRequired[Union[TerminalExitStatus, None]]
    size: NotRequired[Union[TerminalSize, None]]
    capabilities: NotRequired[Union[TerminalCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class TextCommandInput(TypedDict):
    """All text that was typed after the command name is provided as input."""

    hint: str
    _meta: NotRequired[Union[dict[str, Any], None]]


class TextContent(TypedDict):
    """Text provided to or from an LLM."""

    text: str
    annotations: NotRequired[Union[Annotations, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class TextResourceContents(TypedDict):
    """Text-based resource contents."""

    text: str
    uri: str
    mimeType: NotRequired[Union[MediaType, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class TitledMultiSelectItems(TypedDict):
    """Items definition for titled multi-select enum properties."""

    anyOf: list[EnumOption]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ToolCallCancelCapabilities(TypedDict):
    """Capability to cancel a tool call with `tool_call/cancel`."""

    _meta: NotRequired[Union[dict[str, Any], None]]


class ToolCallCapabilities(TypedDict):
    """Client-initiated controls a tool call currently supports."""

    cancel: NotRequired[Union[ToolCallCancelCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Content produced by a tool call.
ToolCallContent: TypeAlias = "Union[ToolCallContentContent, ToolCallContentDiff, ToolCallContentTerminal]"


class ToolCallContentChunk(TypedDict):
    """A streamed item of tool-call content."""

    toolCallId: ToolCallId
    content: ToolCallContent
    _meta: NotRequired[Union[dict[str, Any], None]]


# Unique identifier for a tool call within a session.
ToolCallId: TypeAlias = "str"


class ToolCallLocation(TypedDict):
    """A file location being accessed or modified by a tool."""

    path: AbsolutePath
    line: NotRequired[Union[int, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class ToolCallPermissionSubject(TypedDict):
    """Permission request details for a tool call."""

    toolCall: ToolCallUpdate
    _meta: NotRequired[Union[dict[str, Any], None]]


# Execution status of a tool call.
ToolCallStatus: TypeAlias = "str"


class ToolCallUpdate(TypedDict):
    """Represents an upsert for a tool call that the language model has requested."""

    toolCallId: ToolCallId
    name: NotRequired[Union[str, None]]
    title: NotRequired[Union[str, None]]
    kind: NotRequired[Union[ToolKind, None]]
    status: NotRequired[Union[ToolCallStatus, None]]
    content: NotRequired[Union[list[ToolCallContent], None]]
    locations: NotRequired[Union[list[ToolCallLocation], None]]
    rawInput: NotRequired[Any]
    rawOutput: NotRequired[Any]
    capabilities: NotRequired[Union[ToolCallCapabilities, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


# Categories of tools that can be invoked.
ToolKind: TypeAlias = "str"


class UnarchiveSessionRequest(TypedDict):
    """**UNSTABLE**"""

    sessionId: SessionId
    _meta: NotRequired[Union[dict[str, Any], None]]


class UnarchiveSessionResponse(TypedDict):
    """**UNSTABLE**"""

    _meta: NotRequired[Union[dict[str, Any], None]]


class UnknownStateUpdate(TypedDict):
    """**UNSTABLE**"""

    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class UnsupportedProtocolVersionErrorData(TypedDict):
    """Data for the `-32022` (Unsupported protocol version) error."""

    requested: ProtocolVersion
    supported: list[ProtocolVersion]
    _meta: NotRequired[Union[dict[str, Any], None]]


class UpdateSessionNotification(TypedDict):
    """Notification containing a session update from the agent."""

    sessionId: SessionId
    update: SessionUpdate
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


class UserMessage(TypedDict):
    """A user message upsert."""

    messageId: MessageId
    content: NotRequired[Union[list[ContentBlock], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]


class AgentResponseResult(TypedDict):
    """A successful JSON-RPC response."""

    id: RequestId
    result: Union[InitializeResponse, LoginAuthResponse, ListProvidersResponse, SetProviderResponse, DisableProviderResponse, LogoutAuthResponse, AuthStatusResponse, NewSessionResponse, ListSessionsResponse, DeleteSessionResponse, ForkSessionResponse, ArchiveSessionResponse, UnarchiveSessionResponse, SessionStatusResponse, SetSessionTitleResponse, ResumeSessionResponse, CloseSessionResponse, CancelToolCallResponse, CancelTerminalResponse, SetSessionConfigOptionResponse, PromptResponse, ExtResponse]


class AgentResponseError(TypedDict):
    """A failed JSON-RPC response."""

    id: Union[int, str, None]
    error: Error


class AuthMethodTerminalVariant(AuthMethodTerminal):
    """Client runs the configured agent program as a separate interactive process, without passing this
    method to `auth/login`.
    """

    type: Literal['terminal']


class AuthMethodAgentVariant(AuthMethodAgent):
    """Agent handles authentication itself through `auth/login`."""

    type: Literal['agent']


class AvailableCommandCommand(Command):
    """A slash command the user can invoke by including it in a prompt."""

    type: Literal['command']


class AvailableCommandInputText(TextCommandInput):
    """All text after the command name and the whitespace following it is provided as input."""

    type: Literal['text']


class BackgroundWorkTerminal(BackgroundTerminal):
    """A process that keeps running after its tool call returned control to the model. Live until its
    `terminal_update` reports `exitStatus`.
    """

    type: Literal['terminal']


class BackgroundWorkToolCall(BackgroundToolCall):
    """Work started by a tool call that continues without a process of its own, such as a watcher, a
    workflow, or a scheduled wakeup. `pending` and `paused` tool calls stay listed.
    """

    type: Literal['tool_call']


class BackgroundWorkSubagent(BackgroundSubagent):
    """**UNSTABLE**"""

    type: Literal['subagent']


class ClientResponseResult(TypedDict):
    """A successful JSON-RPC response."""

    id: RequestId
    result: Union[RequestPermissionResponse, CreateElicitationResponse, MessageMcpResponse, ExtResponse]


class ClientResponseError(TypedDict):
    """A failed JSON-RPC response."""

    id: Union[int, str, None]
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
    """References to resources that the receiver may be able to read."""

    type: Literal['resource_link']


class ContentBlockResource(EmbeddedResource):
    """Complete resource contents embedded directly in the message."""

    type: Literal['resource']


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


class DiffChangeAdd(DiffPathChange):
    """A file was added."""

    fileType: NotRequired[Union[DiffFileType, None]]
    mimeType: NotRequired[Union[MediaType, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    operation: Literal['add']


class DiffChangeDelete(DiffPathChange):
    """A file was deleted."""

    fileType: NotRequired[Union[DiffFileType, None]]
    mimeType: NotRequired[Union[MediaType, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    operation: Literal['delete']


class DiffChangeModify(DiffPathChange):
    """A file was modified in place."""

    fileType: NotRequired[Union[DiffFileType, None]]
    mimeType: NotRequired[Union[MediaType, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    operation: Literal['modify']


class DiffChangeMove(DiffPathPairChange):
    """A file was moved or renamed."""

    fileType: NotRequired[Union[DiffFileType, None]]
    mimeType: NotRequired[Union[MediaType, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    operation: Literal['move']


class DiffChangeCopy(DiffPathPairChange):
    """A file was copied."""

    fileType: NotRequired[Union[DiffFileType, None]]
    mimeType: NotRequired[Union[MediaType, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    operation: Literal['copy']


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
    """The active work ended successfully. Includes locally handled commands that required no model
    call.
    """

    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['end_turn']


class IdleStateUpdateMaxTokens(TypedDict):
    """The active work ended because the agent reached the maximum number of tokens."""

    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['max_tokens']


class IdleStateUpdateMaxTurnRequests(TypedDict):
    """The active work ended because the agent reached the maximum number of model requests for the
    foreground work.
    """

    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['max_turn_requests']


class IdleStateUpdateRefusal(TypedDict):
    """The active work ended because the agent refused to continue."""

    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['refusal']


class IdleStateUpdateCancelled(TypedDict):
    """The user or client chose to stop the work: via `session/cancel`, by closing the session, or
    through an interaction the agent offers, such as a permission option that tells the agent to
    stop. Work the agent stops for its own reasons uses another reason, such as `error` for an
    internal timeout.
    """

    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['cancelled']


class IdleStateUpdateError(ErrorStopReason):
    """The active work ended because something failed."""

    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: Literal['error']


class IdleStateUpdateNone(TypedDict):
    """No stop reason: `stopReason` is omitted or `null`."""

    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    stopReason: NotRequired[None]


class McpServerHttpVariant(McpServerHttp):
    """HTTP transport configuration"""

    type: Literal['http']


class McpServerAcpVariant(McpServerAcp):
    """**UNSTABLE**"""

    type: Literal['acp']


class McpServerStdioVariant(McpServerStdio):
    """Stdio transport configuration"""

    type: Literal['stdio']


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
    """**UNSTABLE**"""

    type: Literal['file']


class PlanUpdateContentMarkdown(PlanMarkdown):
    """**UNSTABLE**"""

    type: Literal['markdown']


class ProxyResponseResult(TypedDict):
    """A successful JSON-RPC response."""

    id: RequestId
    result: Union[InitializeProxyResponse, ProxySuccessorResponse]


class ProxyResponseError(TypedDict):
    """A failed JSON-RPC response."""

    id: Union[int, str, None]
    error: Error


class ReplayFromStartVariant(ReplayFromStart):
    """Replay all retained conversation history from its first replayable entry."""

    type: Literal['start']


class RequestPermissionOutcomeCancelled(CancelledPermissionOutcome):
    """The request was not approved and no option was selected: the session's work was cancelled, the
    user dismissed the prompt, or the client declined it by policy. Agents MUST NOT proceed with the
    operation.
    """

    outcome: Literal['cancelled']


class RequestPermissionOutcomeSelected(SelectedPermissionOutcome):
    """The user selected one of the provided options."""

    outcome: Literal['selected']


class RequestPermissionSubjectToolCall(ToolCallPermissionSubject):
    """Permission is requested before executing a tool call."""

    type: Literal['tool_call']


class RequestPermissionSubjectCommand(CommandPermissionSubject):
    """Permission is requested before running a command."""

    type: Literal['command']


class SessionConfigOptionSelect(SessionConfigSelect):
    """Single-value selector (dropdown)."""

    configId: SessionConfigId
    name: str
    description: NotRequired[Union[str, None]]
    category: NotRequired[Union[SessionConfigOptionCategory, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    type: Literal['select']


class SessionConfigOptionBoolean(SessionConfigBoolean):
    """Boolean on/off toggle."""

    configId: SessionConfigId
    name: str
    description: NotRequired[Union[str, None]]
    category: NotRequired[Union[SessionConfigOptionCategory, None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    type: Literal['boolean']


class SessionUpdateUserMessageChunk(ContentChunk):
    """A chunk of the user's message being streamed."""

    sessionUpdate: Literal['user_message_chunk']


class SessionUpdateUserMessage(UserMessage):
    """A user message has been created or updated."""

    sessionUpdate: Literal['user_message']


class SessionUpdateAgentMessageChunk(ContentChunk):
    """A chunk of the agent's response being streamed."""

    sessionUpdate: Literal['agent_message_chunk']


class SessionUpdateAgentMessage(AgentMessage):
    """An agent message has been created or updated."""

    sessionUpdate: Literal['agent_message']


class SessionUpdateAgentThoughtChunk(ContentChunk):
    """A chunk of the agent's internal reasoning being streamed."""

    sessionUpdate: Literal['agent_thought_chunk']


class SessionUpdateAgentThought(AgentThought):
    """An agent thought or reasoning message has been created or updated."""

    sessionUpdate: Literal['agent_thought']


class SessionUpdateStateUpdateRunning(RunningStateUpdate):
    """Foreground work is in progress."""

    sessionUpdate: Literal['state_update']
    state: Literal['running']


class SessionUpdateStateUpdateIdle(TypedDict):
    """No foreground work is active. Background activity may continue."""

    stopReason: NotRequired[Union[str, None]]
    error: NotRequired[Union[Error, None]]
    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    sessionUpdate: Literal['state_update']
    state: Literal['idle']


class SessionUpdateStateUpdateRequiresAction(RequiresActionStateUpdate):
    """Foreground work is blocked on user action."""

    sessionUpdate: Literal['state_update']
    state: Literal['requires_action']


class SessionUpdateStateUpdateUnknown(UnknownStateUpdate):
    """**UNSTABLE**"""

    sessionUpdate: Literal['state_update']
    state: Literal['unknown']


class SessionUpdateToolCallContentChunk(ToolCallContentChunk):
    """A chunk of tool-call content being streamed."""

    sessionUpdate: Literal['tool_call_content_chunk']


class SessionUpdateToolCallUpdate(ToolCallUpdate):
    """A tool call has been created or updated."""

    sessionUpdate: Literal['tool_call_update']


class SessionUpdateTerminalUpdate(TerminalUpdate):
    """An agent-owned terminal has been created or updated."""

    sessionUpdate: Literal['terminal_update']


class SessionUpdateTerminalOutputChunk(TerminalOutputChunk):
    """A chunk of bytes appended to an agent-owned terminal's output."""

    sessionUpdate: Literal['terminal_output_chunk']


class SessionUpdatePlanUpdate(PlanUpdate):
    """A content update for a plan identified by ID. See protocol docs: [Agent
    Plan](https://agentclientprotocol.com/protocol/v2/draft/agent-plan)
    """

    sessionUpdate: Literal['plan_update']


class SessionUpdatePlanRemoved(PlanRemoved):
    """**UNSTABLE**"""

    sessionUpdate: Literal['plan_removed']


class SessionUpdateAvailableCommandsUpdate(AvailableCommandsUpdate):
    """Available commands are ready or have changed"""

    sessionUpdate: Literal['available_commands_update']


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


class SetSessionConfigOptionRequestId(TypedDict):
    """A `SessionConfigValueId` string value (`type: "id"`)."""

    sessionId: SessionId
    configId: SessionConfigId
    _meta: NotRequired[Union[dict[str, Any], None]]
    type: Literal['id']
    value: SessionConfigValueId


class SetSessionConfigOptionRequestBoolean(TypedDict):
    """A boolean value (`type: "boolean"`)."""

    sessionId: SessionId
    configId: SessionConfigId
    _meta: NotRequired[Union[dict[str, Any], None]]
    type: Literal['boolean']
    value: bool


class StateUpdateRunning(RunningStateUpdate):
    """Foreground work is in progress."""

    state: Literal['running']


class StateUpdateIdle(TypedDict):
    """No foreground work is active. Background activity may continue."""

    stopReason: NotRequired[Union[str, None]]
    error: NotRequired[Union[Error, None]]
    usage: NotRequired[Union[Usage, None]]
    background: NotRequired[Union[list[BackgroundWork], None]]
    _meta: NotRequired[Union[dict[str, Any], None]]
    state: Literal['idle']


class StateUpdateRequiresAction(RequiresActionStateUpdate):
    """Foreground work is blocked on user action."""

    state: Literal['requires_action']


class StateUpdateUnknown(UnknownStateUpdate):
    """**UNSTABLE**"""

    state: Literal['unknown']


class ToolCallContentContent(Content):
    """Standard content block (text, images, resources)."""

    type: Literal['content']


class ToolCallContentDiff(Diff):
    """File modification shown as a diff."""

    type: Literal['diff']


class ToolCallContentTerminal(Terminal):
    """A display-only reference to an agent-owned terminal."""

    type: Literal['terminal']
