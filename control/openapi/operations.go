package openapi

import (
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// leftBehind is said of what can be asked of a session that is here no more.
const leftBehind = "Of a session that went to another gateway it is what was left here, and the header Sandbox-Agent-Moved-To of the answer says where it is."

// takenBack is said of what takes back what an agent was allowed.
const takenBack = "The agent asks again at the next such call. The process that serves the session is given back for that, since it may have it in its memory, and the next prompt starts another one: it is refused with conflict while a turn runs, or anything else goes on in the session. What cannot be taken back, as the list says, stays."

// operations returns what the document describes, by tag.
func operations() map[string][]operation {
	session := inPath("id", "The session's id.")
	noContent := openapi3.NewResponse().WithDescription("Done.")
	events := openapi3.NewResponse().WithDescription("A page of events or, to who accepts text/event-stream, a stream of them that goes on for ever. Each event of the stream is named message and has an Event as its data and its sequence number as its id; an event named error has a Problem and is the last.").
		WithContent(openapi3.Content{
			"application/json": openapi3.NewMediaType().WithSchemaRef(ref("EventPage")),
			sse.ContentType:    openapi3.NewMediaType().WithSchema(openapi3.NewStringSchema()),
		})
	get := http.MethodGet
	return map[string][]operation{
		"acp": rpcOperations(),
		"server": {
			{method: get, path: "/v2/health", id: "getHealth", summary: "Whether the process answers", open: true, responses: one(200, jsonResponse("It does.", "Status"))},
			{method: get, path: "/v2/ready", id: "getReady", summary: "Whether new work is accepted", responses: one(200, jsonResponse("It is.", "Status")), problems: []problem.Kind{problem.Unavailable}},
			{method: get, path: "/v2/version", id: "getVersion", summary: "What runs here", responses: one(200, jsonResponse("The program and its platform.", "Version"))},
			{
				method: get, path: "/v2/openapi.json", id: "getOpenAPI", summary: "This document",
				responses: one(200, openapi3.NewResponse().WithDescription("OpenAPI 3.0.").WithJSONSchema(openapi3.NewObjectSchema().WithAnyAdditionalProperties())),
			},
			{
				method: get, path: "/metrics", id: "getMetrics", summary: "Metrics, for Prometheus",
				description: "What the metrics are is in the documentation. Scrapers that accept OpenMetrics get that.",
				responses: one(200, openapi3.NewResponse().WithDescription("All of them.").
					WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{"text/plain"}))),
				problems: []problem.Kind{problem.NotSupported},
			},
			doctorOperation(),
		},
		"agents": append(installOperations(), []operation{
			{method: get, path: "/v2/agents", id: "listAgents", summary: "The agents that sessions can use", responses: one(200, jsonResponse("All of them.", "AgentList"))},
			{method: get, path: "/v2/agents/{agent}", id: "getAgent", summary: "One agent", params: []*openapi3.Parameter{inPath("agent", "The agent's id.")}, responses: one(200, jsonResponse("The agent.", "Agent")), problems: []problem.Kind{problem.NotFound}},
		}...),
		"files":     fileOperations(),
		"processes": processOperations(),
		"sessions": {
			{
				method: get, path: "/v2/sessions", id: "listSessions", summary: "Sessions, the most recently used first",
				params: []*openapi3.Parameter{
					query("cwd", "Only sessions in this directory.", openapi3.NewStringSchema()),
					query("agent", "Only sessions of this agent.", openapi3.NewStringSchema()),
					query("state", "Only sessions in one of these states.", &openapi3.Schema{Type: &openapi3.Types{"array"}, Items: states("")}),
					query("q", "Only sessions with these words in their title or their messages, whatever their case. Sessions say where: see match. A page can have fewer sessions than there are, or none, and a nextCursor to search on.", openapi3.NewStringSchema().WithMaxLength(200)),
					query("sort", "activity: the one in which something happened last comes first, and one in which something happens meanwhile moves to the front. created: the newest comes first.", openapi3.NewStringSchema().WithEnum(string(runtime.ByActivity), string(runtime.ByCreation)).WithDefault(string(runtime.ByActivity))),
					query("cursor", "nextCursor of the page before.", openapi3.NewStringSchema()),
					pageSize(),
				},
				responses: one(200, jsonResponse("A page of sessions.", "SessionPage")), problems: []problem.Kind{problem.InvalidRequest},
			},
			followSessions("Begins with all sessions, behind a change of type reset, unless after is a position from which the gateway knows what has changed. What changes with every message, such as updatedAt, eventCount and cost, is told each second at most."),
			{method: get, path: "/v2/sessions/{id}", id: "getSession", summary: "One session", params: []*openapi3.Parameter{session}, responses: one(200, jsonResponse("The session.", "Session")), problems: []problem.Kind{problem.SessionNotFound}},
			{method: http.MethodDelete, path: "/v2/sessions/{id}", id: "deleteSession", summary: "End a session and delete its events", description: leftBehind, params: []*openapi3.Parameter{session}, responses: one(204, noContent), problems: []problem.Kind{problem.SessionNotFound, problem.AgentError}},
			{method: http.MethodPost, path: "/v2/sessions/{id}/close", id: "closeSession", summary: "Cancel what a session does and let go of its agent", description: "The session's events stay, and loading or resuming it opens it again. " + leftBehind + " With movedTo it is closed because it goes on at another gateway: that is refused while it works, when it has events behind lastSeq, and when it was edited, as its metadata and title are, or closed, more often than edits says, is noted as movedTo in its metadata in the same step, and the session is not opened here again as long as it stands there.", params: []*openapi3.Parameter{
				session,
				query("movedTo", "The address of the gateway where the session goes on.", openapi3.NewStringSchema().WithMaxLength(2048)),
				query("lastSeq", "With movedTo: the newest event that the other gateway has.", openapi3.NewInt64Schema().WithMin(0)),
				query("edits", "With movedTo: the edits of the session that the other gateway has. Without it changes that no event tells, and that were made meanwhile, stay behind.", openapi3.NewInt64Schema().WithMin(0)),
			}, responses: one(204, noContent), problems: []problem.Kind{problem.InvalidRequest, problem.SessionNotFound, problem.Conflict, problem.NotSupported, problem.Unavailable}},
			{
				method: get, path: "/v2/sessions/{id}/permissions", id: "listSessionPermissions", summary: "What a session's agent was allowed for more than one call", params: []*openapi3.Parameter{session},
				responses: one(200, jsonResponse("All of it, the oldest first.", "PermissionList")), problems: []problem.Kind{problem.SessionNotFound},
			},
			{
				method: http.MethodDelete, path: "/v2/sessions/{id}/permissions", id: "forgetSessionPermissions", summary: "Take back all that can be taken back", description: takenBack, params: []*openapi3.Parameter{session},
				responses: one(200, jsonResponse("What does not count any more.", "ForgottenPermissions")), problems: []problem.Kind{problem.SessionNotFound, problem.Conflict, problem.Unavailable},
			},
			{
				method: http.MethodDelete, path: "/v2/sessions/{id}/permissions/{grant}", id: "forgetSessionPermission", summary: "Take back one of them", description: takenBack,
				params:    []*openapi3.Parameter{session, inPath("grant", "The id that the list says.")},
				responses: one(200, jsonResponse("What does not count any more: some agents forget more than they were asked to.", "ForgottenPermissions")), problems: []problem.Kind{problem.SessionNotFound, problem.NotFound, problem.Conflict, problem.Unavailable},
			},
			{
				method: get, path: "/v2/sessions/{id}/events", id: "getSessionEvents", summary: "What happened in a session, in order",
				params: []*openapi3.Parameter{
					session,
					query("after", "The sequence number to continue behind.", openapi3.NewInt64Schema().WithMin(0).WithDefault(0)),
					query("acp", "The version of ACP that a page is in. In version 2 events are what clients of it are told: several may have one number, which are on one page then, also when that has more than limit. A stream is in version 1.", openapi3.NewInt64Schema().WithMin(1).WithMax(2).WithDefault(1)),
					query("clean", "Whether what looks like a key, the session's own credentials, and the values of variables that are called keys are taken out of a page.", openapi3.NewBoolSchema().WithDefault(false)),
					pageSize(),
					header("Last-Event-ID", "The same as after, for event streams; it wins over after."),
				},
				responses: one(200, events), problems: []problem.Kind{problem.InvalidRequest, problem.SessionNotFound, problem.EventsExpired},
			},
			{
				method: get, path: "/v2/sessions/{id}/raw", id: "getSessionRaw", summary: "What a session's agent and the gateway said to each other",
				description: `Of a session that was made or loaded with includeRaw in _meta["sandboxagent.dev"], in the agent's own language. Each line is a JSON object with time, from (gateway or agent) and line, which is cut where cutBytes says how much. A line with goneBytes says that so much of the beginning is not there any more, one with leftOut that so much came faster than it was written. What looks like a key was taken out.`,
				params:      []*openapi3.Parameter{session},
				responses: one(200, openapi3.NewResponse().WithDescription("The newest 8 to 16 MiB.").
					WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{"application/x-ndjson"}))),
				problems: []problem.Kind{problem.SessionNotFound, problem.NotFound, problem.TooManyRequests, problem.Unavailable},
			},
			transcriptOperation(session),
			exportOperation(session),
			exportLackingOperation(session),
			importOperation(),
		},
	}
}

// rpcOperations describe the agent protocol's endpoint as far as OpenAPI can.
func rpcOperations() []operation {
	const path = "/v2/rpc"
	connection := header("Acp-Connection-Id", "The connection, as the answer to initialize named it. Clients that want answers in the response to their POST use X-ACP-Connection-Id instead, with the same value.")
	inline := header("X-ACP-Connection-Id", "See Acp-Connection-Id. A connection uses one of the two.")
	session := header("Acp-Session-Id", "The session of the stream or the message; required by ACP for messages with params.sessionId.")
	message := openapi3.NewObjectSchema().WithAnyAdditionalProperties()
	message.Description = "One JSON-RPC 2.0 message."
	return []operation{
		{
			method: http.MethodPost, path: path, id: "postMessage", summary: "Send one message",
			description: "The first message is initialize, without a connection header. Its answer is in the response body, with the connection's id in both connection headers.",
			params: []*openapi3.Parameter{
				connection, inline, session,
				query("agent", "The agent to use, for clients that cannot set it in initialize.", openapi3.NewStringSchema()),
			},
			body: openapi3.NewRequestBody().WithRequired(true).WithJSONSchema(message),
			responses: map[int]*openapi3.Response{
				200: openapi3.NewResponse().WithDescription("The JSON-RPC response.").WithJSONSchema(message),
				202: openapi3.NewResponse().WithDescription("Accepted. Responses come on a stream."),
			},
			problems: []problem.Kind{problem.InvalidRequest, problem.UnsupportedAgent, problem.ClientNotFound, problem.AgentNotInstalled, problem.NotAcceptable, problem.Conflict, problem.PayloadTooLarge, problem.UnsupportedMediaType, problem.Unavailable, problem.Timeout},
		},
		{
			method: http.MethodGet, path: path, id: "openStream", summary: "Receive messages, as an event stream or over a WebSocket",
			description: "With Upgrade: websocket the connection becomes a WebSocket with one message in each text frame, subprotocol acp.sandboxagent.dev.",
			params: []*openapi3.Parameter{
				connection, inline, session, header("Last-Event-ID", "Continue behind this event."),
				query("agent", "Of a WebSocket: the agent to use, for clients that cannot set it in initialize.", openapi3.NewStringSchema()),
			},
			responses: map[int]*openapi3.Response{
				101: openapi3.NewResponse().WithDescription("The connection is a WebSocket."),
				200: openapi3.NewResponse().WithDescription("Messages, each the data of one event.").WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{sse.ContentType})),
			},
			problems: []problem.Kind{problem.InvalidRequest, problem.ClientNotFound, problem.NotAcceptable, problem.Conflict, problem.EventsExpired, problem.UpgradeRequired, problem.Unavailable},
		},
		{
			method: http.MethodDelete, path: path, id: "closeConnection", summary: "End a connection",
			description: "Sessions live on.",
			params:      []*openapi3.Parameter{connection, inline},
			responses: map[int]*openapi3.Response{
				202: openapi3.NewResponse().WithDescription("Ended, for Acp-Connection-Id."),
				204: openapi3.NewResponse().WithDescription("Ended, for X-ACP-Connection-Id, also when it had ended before."),
			},
			problems: []problem.Kind{problem.InvalidRequest, problem.ClientNotFound},
		},
	}
}

// followSessions is the operation by which one hears how the list of sessions changes.
func followSessions(description string) operation {
	changes := openapi3.NewResponse().WithDescription("Each event is named message and has a SessionChange as its data and its position as its id; an event named error has a Problem and is the last. The stream goes on for ever. A client that does not keep up is told how a session is in the end, and not all that it was in between.").
		WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{sse.ContentType}))
	return operation{
		method: http.MethodGet, path: "/v2/sessions/changes", id: "followSessions", summary: "How the list of sessions changes, as an event stream", description: description,
		params: []*openapi3.Parameter{
			query("after", "The position of a change or of a list.", openapi3.NewInt64Schema().WithMin(0).WithDefault(0)),
			header("Last-Event-ID", "The same as after; it wins over after."),
		},
		responses: one(200, changes), problems: []problem.Kind{problem.InvalidRequest},
	}
}

func transcriptOperation(session *openapi3.Parameter) operation {
	formats := openapi3.NewStringSchema().WithDefault("markdown")
	content := openapi3.Content{}
	for _, f := range transcript.Formats {
		formats.Enum = append(formats.Enum, string(f))
		kind, _, _ := strings.Cut(f.ContentType(), ";")
		content[kind] = openapi3.NewMediaType().WithSchema(openapi3.NewStringSchema())
	}
	off := openapi3.NewBoolSchema().WithDefault(false)
	patterns := openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()).WithMaxItems(transcript.MaxPatterns)
	return operation{
		method: http.MethodGet, path: "/v2/sessions/{id}/transcript", id: "getSessionTranscript", summary: "What was said and done in a session, for people to read",
		description: "Markdown, a page of HTML that needs nothing but itself, or a JSON object on each line; handover is a text of bounded length for an agent that goes on with the conversation. What looks like a key is taken out, long output is cut, and the end says what is missing.",
		params: []*openapi3.Parameter{
			session,
			query("format", "How it is written.", formats),
			query("redact", "A regular expression of what is taken out, too. May be repeated.", patterns),
			query("thoughts", "Keep what the agent thought.", off),
			query("keepSecrets", "Leave in what looks like a key.", off),
		},
		responses: one(200, openapi3.NewResponse().WithDescription("The transcript.").WithContent(content)),
		problems:  []problem.Kind{problem.InvalidRequest, problem.SessionNotFound, problem.TooManyRequests},
	}
}
