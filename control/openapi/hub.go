package openapi

import (
	"maps"
	"net/http"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// AccessExtension is the member of an operation of a hub that says who may use it: an [Access].
const AccessExtension = "x-access"

// Access says which tokens an operation of a hub accepts.
type Access struct {
	// Token is the kind of token: client, join, or none when everybody may.
	Token string `json:"token"`
	// Scope is the least that a token of a client must have.
	Scope string `json:"scope,omitempty"`
	// Nodes says which nodes the token must be for: any, the one that is concerned, or all.
	Nodes string `json:"nodes,omitempty"`
}

// The values of Access.Nodes.
const (
	AnyNode  = "any"
	ThisNode = "this"
	AllNodes = "all"
)

// BuildHub returns the document of a hub.
func BuildHub() (*openapi3.T, error) { return checked(hubDocument()) }

// HubJSON returns the document of a hub as it is published.
func HubJSON() ([]byte, error) { return encoded(BuildHub()) }

func hubDocument() *openapi3.T {
	doc := &openapi3.T{
		OpenAPI: "3.0.3",
		Info: &openapi3.Info{
			Title:       "Sandbox Agent hub",
			Version:     apiVersion,
			Description: "The HTTP API of a hub: its nodes, the sessions of all of them, and tokens. What a node itself serves is below /nodes/{name}/, as the document of the gateway says it. Every error is an application/problem+json document. x-access of an operation says which tokens it accepts.",
		},
		Paths: openapi3.NewPaths(),
		Components: &openapi3.Components{
			Schemas: hubSchemas(),
			SecuritySchemes: openapi3.SecuritySchemes{
				"bearer": {Value: openapi3.NewSecurityScheme().WithType("http").WithScheme("bearer").WithDescription("A token that the hub has made.")},
			},
		},
		Security: openapi3.SecurityRequirements{{"bearer": {}}},
		Tags:     openapi3.Tags{{Name: "acp"}, {Name: "hub"}, {Name: "nodes"}, {Name: "sessions"}, {Name: "tokens"}},
	}
	for tag, ops := range hubOperations() {
		for _, op := range ops {
			doc.AddOperation(op.path, op.method, op.build(tag))
		}
	}
	return doc
}

// Who may use operations of a hub.
var (
	anybody   = &Access{Token: "none"}
	joins     = &Access{Token: "join"}
	reads     = &Access{Token: "client", Scope: "read", Nodes: AnyNode}
	readsIt   = &Access{Token: "client", Scope: "read", Nodes: ThisNode}
	readsAll  = &Access{Token: "client", Scope: "read", Nodes: AllNodes}
	drivesIt  = &Access{Token: "client", Scope: "drive", Nodes: ThisNode}
	adminOfIt = &Access{Token: "client", Scope: "admin", Nodes: ThisNode}
	admin     = &Access{Token: "client", Scope: "admin", Nodes: AllNodes}
)

// hubOperations returns what the document of a hub describes, by tag.
func hubOperations() map[string][]operation {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	noContent := openapi3.NewResponse().WithDescription("Done.")
	node := inPath("name", "The node's name.")
	unreadable := problem.Unavailable
	return map[string][]operation{
		"acp": hubRPCOperations(),
		"hub": {
			{method: get, path: "/v2/health", id: "getHealth", summary: "Whether the hub answers", open: true, access: anybody, responses: one(200, jsonResponse("It does.", "Health"))},
			{method: get, path: "/v2/ready", id: "getReady", summary: "Whether the store can be written to, and the hub is not ending", open: true, access: anybody, responses: one(200, jsonResponse("It is.", "Status")), problems: []problem.Kind{problem.Unavailable}},
			{method: get, path: "/v2/version", id: "getVersion", summary: "What runs here, and what the token may do", access: reads, responses: one(200, jsonResponse("The program and its platform.", "Version"))},
			{
				method: get, path: "/v2/openapi.json", id: "getOpenAPI", summary: "This document", access: reads,
				responses: one(200, openapi3.NewResponse().WithDescription("OpenAPI 3.0.").WithJSONSchema(openapi3.NewObjectSchema().WithAnyAdditionalProperties())),
			},
			{
				method: get, path: "/metrics", id: "getMetrics", summary: "Metrics, for Prometheus", access: readsAll,
				responses: one(200, openapi3.NewResponse().WithDescription("All of them.").WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{"text/plain"}))),
			},
		},
		"nodes": {
			{
				method: get, path: "/v2/join", id: "join", summary: "Where gateways join", access: joins,
				description: "A WebSocket of the subprotocol of this version, whose streams carry HTTP/1.1 to the gateway. It is for the program sandbox-agent.",
				responses:   one(101, openapi3.NewResponse().WithDescription("The gateway has joined.")), problems: []problem.Kind{problem.InvalidRequest, problem.Conflict, problem.Unavailable},
			},
			{
				method: get, path: "/v2/join/lane", id: "openLane", summary: "Where gateways open a connection for what is large", access: joins,
				description: "The hub asks for it by the tunnel, and speaks HTTP/1.1 to the gateway on it. It is for the program sandbox-agent.",
				responses:   one(101, openapi3.NewResponse().WithDescription("The lane is open.")), problems: []problem.Kind{problem.InvalidRequest, problem.Conflict},
			},
			{
				method: get, path: "/v2/nodes", id: "listNodes", summary: "The nodes that the token is for", access: reads,
				params:    []*openapi3.Parameter{labels("Only nodes with this label, as NAME=VALUE. May be repeated.")},
				responses: one(200, jsonResponse("The nodes.", "NodeList")), problems: []problem.Kind{problem.InvalidRequest},
			},
			{method: get, path: "/v2/nodes/{name}", id: "getNode", summary: "One node", access: readsIt, params: []*openapi3.Parameter{node}, responses: one(200, jsonResponse("The node.", "Node")), problems: []problem.Kind{problem.NodeNotFound}},
			{
				method: del, path: "/v2/nodes/{name}", id: "removeNode", summary: "Forget a node that is offline", access: adminOfIt, params: []*openapi3.Parameter{node},
				responses: one(204, noContent), problems: []problem.Kind{problem.NodeNotFound, problem.Conflict, unreadable},
			},
		},
		"sessions": hubSessionOperations(),
		"tokens": {
			{method: get, path: "/v2/tokens", id: "listTokens", summary: "All tokens, without their texts", access: admin, responses: one(200, jsonResponse("The tokens.", "TokenList"))},
			{
				method: post, path: "/v2/tokens", id: "createToken", summary: "Make a token", access: admin,
				body:      openapi3.NewRequestBody().WithRequired(true).WithJSONSchemaRef(ref("NewToken")),
				responses: one(201, jsonResponse("The token, with its text: it is shown this once.", "CreatedToken")),
				problems:  []problem.Kind{problem.InvalidRequest, problem.PayloadTooLarge, problem.TooManyRequests, unreadable},
			},
			{
				method: del, path: "/v2/tokens/{id}", id: "revokeToken", summary: "Revoke a token, also for what is open with it", access: admin, params: []*openapi3.Parameter{inPath("id", "The token's id.")},
				responses: one(204, noContent), problems: []problem.Kind{problem.NotFound, unreadable},
			},
		},
	}
}

func labels(description string) *openapi3.Parameter {
	return query("label", description, openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()))
}

// hubRPCOperations describe ACP with all nodes: the messages are those of a gateway.
func hubRPCOperations() []operation {
	own := rpcOperations()
	for i := range own {
		own[i].access = reads
		own[i].problems = append(own[i].problems, problem.NodeNotFound, problem.NodeOffline)
	}
	return own
}

// hubSessionOperations are about what the hub has of sessions.
func hubSessionOperations() []operation {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	// which says which session is meant where several have the id.
	which := func(more ...*openapi3.Parameter) []*openapi3.Parameter {
		return append([]*openapi3.Parameter{
			inPath("id", "The session's id."),
			query("node", "The node of the session; needed where several have one with the id.", openapi3.NewStringSchema()),
			query("epoch", "Which of several sessions that had the id on the same node; the newest, if it is not given.", openapi3.NewInt64Schema().WithMin(1)),
		}, more...)
	}
	problems := func(more ...problem.Kind) []problem.Kind {
		return append([]problem.Kind{problem.InvalidRequest, problem.SessionNotFound, problem.Conflict, problem.Unavailable}, more...)
	}
	transcript := transcriptOperation(nil)
	follow := followSessions("As a gateway tells it, of the sessions of the nodes that the token is for: also when a node goes away or comes back, and when a session moves. Begins with all sessions, behind a change of type reset, unless after is a position from which this hub knows what has changed; one of another hub, or from before it was started, is none. Of several sessions with one id the one is told that a request without a node means, or the one whose node has the first name. deleted says that the token has no session with the id any more.")
	follow.access = reads
	return []operation{
		follow,
		{
			method: get, path: "/v2/sessions", id: "listSessions", summary: "The sessions of the nodes that the token is for", access: reads,
			params: []*openapi3.Parameter{
				query("node", "Only sessions of this node.", openapi3.NewStringSchema()),
				labels("Only sessions of nodes with this label, as NAME=VALUE. May be repeated."),
				query("agent", "Only sessions of this agent.", openapi3.NewStringSchema()),
				query("cwd", "Only sessions in this directory.", openapi3.NewStringSchema()),
				query("state", "Only sessions in one of these states. Without it those that are moved are left out.", &openapi3.Schema{Type: &openapi3.Types{"array"}, Items: hubStates("")}),
				query("q", "Only sessions with these words in their title or their messages, whatever their case. Sessions say where: see match. A page can have fewer sessions than there are, or none, and a nextCursor to search on.", openapi3.NewStringSchema().WithMaxLength(200)),
				query("sort", "activity: the one in which something happened last comes first. created: the newest does.", openapi3.NewStringSchema().WithEnum(string(runtime.ByActivity), string(runtime.ByCreation)).WithDefault(string(runtime.ByActivity))),
				query("cursor", "nextCursor of the page before.", openapi3.NewStringSchema()),
				pageSize(),
			},
			responses: one(200, jsonResponse("A page of sessions.", "SessionPage")), problems: []problem.Kind{problem.InvalidRequest, problem.Unavailable},
		},
		{method: get, path: "/v2/sessions/{id}", id: "getSession", summary: "One session", access: readsIt, params: which(), responses: one(200, jsonResponse("The session.", "Session")), problems: problems()},
		{
			method: del, path: "/v2/sessions/{id}", id: "deleteSession", summary: "Delete a session at its node, and the hub's copy", access: drivesIt,
			description: "Of a session that its node has no more, or whose node is not connected, the copy is removed, which needs a token with the scope admin.",
			params:      which(query("copy", "Only the copy: what a node has that is connected is refused with conflict.", openapi3.NewBoolSchema().WithDefault(false))),
			responses:   one(204, openapi3.NewResponse().WithDescription("Done.")), problems: problems(problem.NodeOffline),
		},
		{
			method: post, path: "/v2/sessions/{id}/move", id: "moveSession", summary: "Move a session to another node", access: drivesIt,
			description: "Answers when it is there. The token must be for both nodes. A move that fails leaves the session where it was.",
			params:      which(), body: openapi3.NewRequestBody().WithRequired(true).WithJSONSchemaRef(ref("MoveRequest")),
			responses: one(200, jsonResponse("What became of it.", "Moved")), problems: problems(problem.NodeNotFound, problem.NodeOffline, problem.TooManyRequests, problem.NotSupported),
		},
		{
			method: get, path: "/v2/sessions/{id}/events", id: "getSessionEvents", summary: "The events that the hub has of a session, in order", access: readsIt,
			params: which(
				query("after", "The sequence number to continue behind.", openapi3.NewInt64Schema().WithMin(0).WithDefault(0)),
				query("acp", "The version of ACP that a page is in. What the hub has is in version 1: a page in version 2 comes from the session's node.", openapi3.NewInt64Schema().WithMin(1).WithMax(2).WithDefault(1)),
				pageSize(),
			),
			responses: one(200, jsonResponse("A page of events.", "EventPage")), problems: problems(problem.EventsExpired, problem.NotSupported),
		},
		{
			method: get, path: transcript.path, id: transcript.id, summary: "What the hub has of a session, for people to read", access: readsIt,
			description: transcript.description, params: which(transcript.params[1:]...), responses: transcript.responses, problems: problems(problem.TooManyRequests),
		},
		{
			method: get, path: "/v2/sessions/{id}/export", id: "exportSession", summary: "A session in one file for a gateway: from its node, or what the hub has of it while that is away", access: drivesIt,
			description: "The file that a gateway's POST /v2/sessions/import takes. While its node is there the node gives it, and takes the query that a gateway takes. Of what the hub gives nothing is taken out that looks like a key. A body that is cut is not a whole file.",
			params:      which(), responses: one(200, openapi3.NewResponse().WithDescription("The file.").WithContent(sessionFile())), problems: problems(problem.TooManyRequests, problem.NotSupported),
		},
	}
}

func hubStates(description string) *openapi3.SchemaRef {
	s := states(description)
	for _, more := range []string{"offline", "gone", "moved"} {
		s.Value.Enum = append(s.Value.Enum, more)
	}
	return s
}

// hubSchemas returns the types of a hub's API: those of sessions with what the hub says of them.
func hubSchemas() openapi3.Schemas {
	const none = ""
	own := schemas()
	all := openapi3.Schemas{}
	for _, name := range []string{"Problem", "Status", "Cost", "Use", "Match", "Child", "End", "Stderr", "EventPage", "Event", "SessionChange", "MCPServer", "MCPTool", "Instruction"} {
		all[name] = own[name]
	}
	byLabel := func(description string) *openapi3.SchemaRef {
		s := openapi3.NewObjectSchema().WithAdditionalProperties(openapi3.NewStringSchema())
		return described(s, description)
	}
	scope := func() *openapi3.SchemaRef {
		return enum("Of a client: read sees, drive does all that a gateway does, admin the rest.", "read", "drive", "admin")
	}
	texts := func(description string) *openapi3.SchemaRef {
		return described(openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()), description)
	}
	token := fields{
		"id": text(none), "kind": enum("What the token is for.", "join", "client"), "scope": scope(),
		"labels": byLabel("The token is for nodes with these labels."), "node": text("The node that the token is for."), "note": text("For people."),
		"created": date(), "expires": date(),
	}
	created := maps.Clone(token)
	created["token"] = text("The token itself. The hub does not have it any more.")
	shown := own["Session"].Value
	properties := maps.Clone(shown.Properties)
	properties["state"] = hubStates("As at the gateway; offline: its node is not connected; gone: its node has it no more; moved: another node has it.")
	properties["node"], properties["epoch"] = text(none), number("Tells sessions apart that had the same id on the same node.")
	properties["replica"], properties["moves"] = ref("Replica"), ref("Moves")
	optional := []string{"moves"}
	for name := range shown.Properties {
		if !slices.Contains(shown.Required, name) {
			optional = append(optional, name)
		}
	}
	maps.Copy(all, openapi3.Schemas{
		"Health": {Value: object(fields{"status": text(none), "role": enum("What this is.", "hub")})},
		"Version": {Value: object(fields{
			"version": text(none), "role": enum("What this is.", "hub"), "scope": scope(), "protocolVersion": number("The version of ACP."), "goVersion": text(none), "os": text(none), "arch": text(none),
		})},
		"NodeList": {Value: object(fields{"nodes": list("Node")})},
		"Node": {Value: object(fields{
			"name": text(none), "state": enum("Whether its gateway is connected.", "online", "offline"), "labels": byLabel(none), "agents": texts("That it lists; it may get others when they are named."),
			"version": text("Of its gateway."), "hub": text("That holds its connection, or did so last."), "token": text("The id of the token by which it has joined."),
			"joined": described(openapi3.NewDateTimeSchema(), "For the first time."), "since": described(openapi3.NewDateTimeSchema(), "When it came, or was last there; absent when it is away and its hub ended without a word."),
			"sessions": described(openapi3.NewObjectSchema().WithAdditionalProperties(openapi3.NewIntegerSchema()), "How many sessions it has in each state. Those of a node that is offline are offline."),
			"lag":      number("Events of its sessions that are not copied yet, at most."),
		}, "since")},
		"SessionPage": {Value: object(fields{"sessions": list("Session"), "nextCursor": text("Asks for the next page; absent on the last."), "position": number("Where to follow the list from: changes behind it may not be in the page.")}, "nextCursor")},
		"Session":     {Value: object(fields(properties), optional...)},
		"Replica": {Value: object(fields{
			"lastSeq": number("All that the node had up to this number is there."), "missing": number("Events behind it that the node has told of, at most."), "trouble": text("Why there are no more of them."),
			"mayMiss": described(openapi3.NewBoolSchema(), "The node was lost while it was at work: what it did in the last moments, and had told nobody, may be missing."),
			"gone":    described(openapi3.NewDateTimeSchema(), "Since when the node has the session no more."), "bundle": number("The session's newest event when what its agent keeps of it was stored; absent when it never was."), "bundleTrouble": text("Why there is no newer one."),
		}, "trouble", "mayMiss", "gone", "bundle", "bundleTrouble")},
		"Moves": {Value: object(fields{
			"term": number("Grows by one with each move."), "node": text("That has the session."), "since": described(openapi3.NewDateTimeSchema(), "When it came there."), "to": text("Where it is being moved."), "before": list("MovedFrom"),
		}, "to")},
		"MovedFrom": {Value: object(fields{
			"node": text(none), "term": number(none), "until": date(), "lastSeq": number("The last event that went along."), "missing": number("Events that it had told of and that did not go along, at most."),
			"extra": number("Events that were copied from it and are no part of the session: what it did when the session was somewhere else."),
		})},
		"MoveRequest": {Value: object(fields{
			"node": text("Where the session goes on. Without it, the node with the least work that fits and has the agent."), "labels": byLabel("Of the node."), "cwd": text("Its directory there; the one that it has, if it is not given."), "workspace": described(openapi3.NewBoolSchema(), "Take the files of the directory along."),
		}, "node", "labels", "cwd", "workspace")},
		"Moved": {Value: object(fields{
			"sessionId": text(none), "from": text(none), "node": text("Where it is now."), "term": number(none), "cwd": text(none), "state": states(none),
			"continuity": enum("What the agent remembers there.", session.ContinuityNative, session.ContinuityReplayed, session.ContinuityFresh),
			"lastSeq":    number("The last event that went along."), "missing": number("Events that the node which it left had told of and that did not go along, at most."), "rememberedSeq": number("Of a session whose node was away: the event up to which its agent knows it."),
			"leftOut": texts("What it has not there."),
		}, "rememberedSeq")},
		"TokenList": {Value: object(fields{"tokens": list("Token")})},
		"Token":     {Value: object(token, "scope", "labels", "node", "note", "expires")},
		"NewToken": {Value: object(fields{
			"kind": enum("What the token is for.", "join", "client"), "scope": scope(), "labels": byLabel("The token is for nodes with these labels; without them, and without node, for all."), "node": text("The node that it is for."), "note": text("For people, at most 200 characters."),
			"expires": date(), "expiresIn": described(openapi3.NewInt64Schema().WithMin(1), "Instead of expires: seconds from now."),
		}, "scope", "labels", "node", "note", "expires", "expiresIn")},
		"CreatedToken": {Value: object(created, "scope", "labels", "node", "note", "expires")},
	})
	return all
}
