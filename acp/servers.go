package acp

// MethodMCPServers is the notification that says how the MCP servers of a session are:
// params have sessionId and servers, a list of [MCPServer]. A bridge of the gateway says
// of the servers what its agent tells; the gateway tells clients of all servers of the
// session.
const MethodMCPServers = "_sandboxagent/session/mcp_servers"

// MCPServer is how an MCP server of a session is. It has neither variables nor headers.
type MCPServer struct {
	Name      string       `json:"name"`
	Source    ServerSource `json:"source"`              // a bridge need not say
	Transport string       `json:"transport,omitempty"` // stdio, http or sse; "" where nobody says
	State     ServerState  `json:"state"`
	Error     string       `json:"error,omitempty"` // why it is in this state
	Tools     []MCPTool    `json:"tools,omitzero"`  // nil where nobody says
	MoreTools int          `json:"moreTools,omitempty"`
}

// MCPTool is a tool of an MCP server, under the server's own name of it.
type MCPTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// ServerSource is where a session has an MCP server from.
type ServerSource string

// The sources of MCP servers.
const (
	ServerOfSession ServerSource = "session" // it was asked for with the session
	ServerOfAgent   ServerSource = "agent"   // the agent's own configuration has it
)

// ServerState is how an MCP server is.
type ServerState string

// The states of MCP servers.
const (
	ServerConnecting ServerState = "connecting"
	ServerReady      ServerState = "ready"
	ServerFailed     ServerState = "failed"
	ServerNeedsLogin ServerState = "needs_login"
	ServerDisabled   ServerState = "disabled"
	ServerStopped    ServerState = "stopped" // the agent's process, which had it, has ended; another one has it again
	ServerUnknown    ServerState = "unknown" // the agent does not say
)

// ServerStates are the states of MCP servers.
var ServerStates = []ServerState{ServerConnecting, ServerReady, ServerFailed, ServerNeedsLogin, ServerDisabled, ServerStopped, ServerUnknown}
