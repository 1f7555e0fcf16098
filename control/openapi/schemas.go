package openapi

import (
	"maps"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// schemas returns the API's types. A test compares them with the Go types that
// are encoded.
func schemas() openapi3.Schemas {
	const name, none = "For people.", ""
	all := installSchemas()
	maps.Copy(all, fileSchemas())
	maps.Copy(all, processSchemas())
	maps.Copy(all, openapi3.Schemas{
		"Problem": {Value: object(fields{
			"type":      enum("One of the known problems.", problemTypes()...),
			"title":     text("The type in words."),
			"status":    {Value: openapi3.NewIntegerSchema().WithMin(400).WithMax(599)},
			"detail":    text("What was wrong with this request, and what to do about it."),
			"requestId": text("The request, as its answer's header X-Request-Id and the server's log name it."),
		}, "detail", "requestId").WithAnyAdditionalProperties()},
		"Status": {Value: object(fields{"status": enum(none, "ok", "ready")})},
		"Version": {Value: object(fields{
			"version": text(none), "protocolVersion": number("The version of ACP."), "goVersion": text(none), "os": text(none), "arch": text(none),
			"instance": text("This run of the gateway: addresses that answer with the same one lead to the same gateway."),
		}, "instance")},
		"Process": {Value: object(fields{
			"pid": number(none), "startedAt": date(), "uptimeMs": number(none), "sessions": number("Sessions that use the process."),
			"restarts": number(none), "lastError": text("Why the process before it ended."), "rssBytes": number("Resident memory."),
			"stderr": ref("Stderr"),
		}, "lastError", "stderr")},
		"Agent": {Value: object(fields{
			"id": text(none), "name": text(name),
			"kind":        enum("bridge translates the agent's own protocol, native speaks ACP itself, custom is a command of the user.", "bridge", "native", "custom"),
			"description": text(none), "website": text(none), "license": text(none), "icon": text(none),
			"installed": boolean(), "version": text("Of the program, when known."), "path": text("Of the program."),
			"source":   text("Where the program came from: path, vendor, npm, registry or command."),
			"verified": text("How the program was verified when it was installed: one of the values of how in Verification. Absent when it was not installed by the server."), "default": boolean(),
			"credentialsAvailable": described(openapi3.NewBoolSchema(), "The environment or the home directory of the gateway holds credentials; they may be wrong."),
			"authState":            enum("What is known of the agent's login.", runtime.AuthUnknown, runtime.AuthAuthenticated, runtime.AuthRequired),
			"capabilities":         byName("Support", "The row of the feature matrix, by feature; absent when nobody has looked."),
			"models":               list("Choice"), "modes": list("Choice"), "thoughtLevels": list("Choice"), "processes": list("Process"),
			"lastError": text("Why the newest process that failed did so: it did not start, or died."),
		}, "lastError", "description", "website", "license", "icon", "version", "path", "source", "verified", "capabilities", "models", "modes", "thoughtLevels")},
		"Choice": {Value: object(fields{"id": text(none), "name": text(none), "description": text(none)}, "description")},
		"Support": {Value: object(fields{
			"level":  enum("native: the agent does it; emulated: the gateway makes it.", adapters.ByAgent, adapters.Emulated, adapters.Unsupported),
			"reason": text("Why not, or what to know about it."),
		}, "reason")},
		"AgentList":   {Value: object(fields{"agents": list("Agent")})},
		"SessionPage": {Value: object(fields{"sessions": list("Session"), "nextCursor": text("Asks for the next page; absent on the last."), "position": number("Where to follow the list from: changes behind it may not be in the page."), "unsearched": number("How many sessions could not be searched for q, because their logs cannot be read; absent for none. The gateway's own log says why.")}, "nextCursor", "unsearched")},
		"SessionChange": {Value: object(fields{
			"position": number("To follow the list from later."),
			"type": enum("reset: all sessions follow, what was told before counts no more. session: how a session is now, which may be a new one. deleted: a session is gone. current: all that had changed until now was told.",
				runtime.ChangeReset, runtime.ChangeSession, runtime.ChangeDeleted, runtime.ChangeCurrent),
			"sessionId": text("With session and deleted."), "session": ref("Session"),
		}, "sessionId", "session")},
		"Cost": {Value: object(fields{"amount": {Value: openapi3.NewFloat64Schema()}, "currency": text("As ISO 4217 names it.")})},
		"Use": {Value: object(fields{
			"day": text("As 2026-03-04, of UTC."), "model": text("Absent when it is not known."), "turns": number("That the agent has ended."),
			"inputTokens": number("These and the others as the agent counts them."), "outputTokens": number(none), "cachedReadTokens": number(none), "cachedWriteTokens": number(none), "thoughtTokens": number(none),
			"cost": ref("Cost"),
		}, "model", "cachedReadTokens", "cachedWriteTokens", "thoughtTokens", "cost")},
		"Match": {Value: object(fields{"seq": number("Of the event, 0 for the title."), "text": text("The words, with what is around them.")})},
		"Child": {Value: object(fields{
			"sessionId": text("A subagent of the session: its updates and requests have this id, in the log of the session. The newest 256 are listed."), "parentSessionId": text("The session, or another child of it."),
			"toolCallId": text("The call in the session's log that shows the child to who does not know subagents."), "title": text(none),
			"state": enum("What it does.", runtime.StateRunning, runtime.StateWaiting, runtime.StateIdle),
		}, "title")},
		"Session": {Value: object(fields{
			"sessionId": text(none), "agent": text(none), "agentSessionId": text("The agent's own id of the session."),
			"title": text(name), "cwd": text(none), "model": text(none),
			"state":      states("dormant has no agent process until the next prompt; closed can be opened again; ended cannot."),
			"background": number("Tool calls that go on though the turn is over, absent for none: state is running as long as there are some."),
			"continuity": enum("What the agent remembered when it was started anew.",
				runtime.ContinuityNative, runtime.ContinuityReplayed, runtime.ContinuityFresh),
			"createdAt": date(), "updatedAt": date(), "eventCount": number("The newest event's sequence number."),
			"edits":             number("How often clients have changed its settings, title or metadata; absent for never. No event tells of all of them."),
			"oldestSeq":         number("The oldest event's that is kept; absent when none was let go."),
			"historyIncomplete": described(openapi3.NewBoolSchema(), "More was said in the session than its events tell: some were let go, or the agent's own record has more."),
			"clients":           number("Attached connections."), "pending": number("Open permission requests and questions."),
			"ended": ref("End"), "metadata": anything("What clients set."),
			"gist": text("How the first prompt begins."), "cost": ref("Cost"), "match": ref("Match"),
			"usage":        list("Use"),
			"children":     list("Child"),
			"mcpServers":   list("MCPServer"),
			"instructions": list("Instruction"),
			"skills":       described(openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()), "Folders of skills that the session was given. Told of one session, and not in lists."),
			"durability":   enum("sync: clients are shown an event when the store of the gateway's hub has it. Absent for async.", session.Sync),
			"unstored":     number("Events of such a session that the store does not have yet. Nobody is shown them, and eventCount does not count them."),
		}, "durability", "unstored", "title", "model", "ended", "metadata", "gist", "cost", "usage", "match", "children", "edits", "oldestSeq", "historyIncomplete", "mcpServers", "instructions", "skills", "background")},
		"MCPServer": {Value: object(fields{
			"name":      text(none),
			"source":    enum("session: it was asked for with the session. agent: the agent's own configuration has it.", acp.ServerOfSession, acp.ServerOfAgent),
			"transport": text("stdio, http or sse, where it is known."),
			"state":     enum("stopped: the agent's process has ended, and another one starts it again. unknown: the agent does not say.", acp.ServerStates...),
			"error":     text("Why it is in this state."),
			"tools":     list("MCPTool"),
			"moreTools": number("Tools that are not listed here: of all servers together 1024 are."),
		}, "transport", "error", "tools", "moreTools")},
		"MCPTool":              {Value: object(fields{"name": text("The server's own name of it."), "description": text("Its beginning.")}, "description")},
		"Instruction":          {Value: object(fields{"field": text("What it was given as: instructions, appendSystemPrompt or systemPrompt."), "text": text("Its beginning, without what looks like a key.")})},
		"PermissionList":       {Value: object(fields{"permissions": list("Permission")})},
		"ForgottenPermissions": {Value: object(fields{"forgotten": list("Permission")})},
		"Permission": {Value: object(fields{
			"id": text("Within the session."), "title": text("What is allowed."), "kind": text("Of the tools that it is about, as in ACP; absent when it is not known."),
			"givenAt": described(openapi3.NewDateTimeSchema(), "Absent when it is not known."), "key": text("What is allowed, in the agent's own words."),
			"where": enum("Who keeps it. session: the gateway, with the session. process: the agent's process, as long as it has the session open. file: a file of the user's, which counts in other sessions, too. agent: the agent, in a way of its own.",
				adapters.GrantInSession, adapters.GrantInProcess, adapters.GrantInFile, adapters.GrantAtAgent),
			"file": text("That holds it."), "revocable": boolean(), "reason": text("Why it cannot be taken back."),
		}, "kind", "givenAt", "file", "reason")},
		"ImportedSession": {Value: object(fields{
			"session": ref("Session"), "leftOut": described(openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()), "What the session had and has not here: names of variables and headers, credentials, settings that are not trusted."),
		})},
		"End": {Value: object(fields{
			"reason": text(none), "terminatedBy": text("client, agent or gateway."), "message": text(none),
			"exitCode": {Value: openapi3.NewIntegerSchema()}, "stderr": ref("Stderr"), "at": date(),
		}, "message", "exitCode", "stderr")},
		"Stderr":    {Value: object(fields{"head": text(none), "tail": text(none), "truncated": boolean(), "totalLines": number(none)})},
		"EventPage": {Value: object(fields{"events": list("Event"), "hasMore": boolean()})},
		"Event": {Value: object(fields{
			"seq": number("Grows by one per event of the session."), "time": date(),
			"direction": enum("Who sent the message.", runtime.FromClient, runtime.FromAgent, runtime.FromGateway),
			"message":   anything("The JSON-RPC message as it was sent."),
		})},
	})
	return all
}

func states(description string) *openapi3.SchemaRef {
	return enum(description, runtime.StateIdle, runtime.StateRunning, runtime.StateWaiting, runtime.StateDormant, runtime.StateClosed, runtime.StateEnded)
}

type fields map[string]*openapi3.SchemaRef

// object returns a schema whose fields are required, the optional ones excepted.
func object(f fields, optional ...string) *openapi3.Schema {
	s := openapi3.NewObjectSchema()
	s.Properties = openapi3.Schemas(f)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(optional, name) {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

func described(s *openapi3.Schema, description string) *openapi3.SchemaRef {
	s.Description = description
	return s.NewRef()
}

// text is any string.
func text(description string) *openapi3.SchemaRef {
	return described(openapi3.NewStringSchema(), description)
}

// enum is one of the values.
func enum[T ~string](description string, values ...T) *openapi3.SchemaRef {
	s := openapi3.NewStringSchema()
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return described(s, description)
}

func number(description string) *openapi3.SchemaRef {
	return described(openapi3.NewInt64Schema().WithMin(0), description)
}

func anything(description string) *openapi3.SchemaRef {
	return described(openapi3.NewSchema(), description)
}

func boolean() *openapi3.SchemaRef { return openapi3.NewBoolSchema().NewRef() }

func date() *openapi3.SchemaRef { return openapi3.NewDateTimeSchema().NewRef() }

func list(of string) *openapi3.SchemaRef {
	s := openapi3.NewArraySchema()
	s.Items = ref(of)
	return s.NewRef()
}

// byName is an object whose members are all of one type.
func byName(of, description string) *openapi3.SchemaRef {
	s := openapi3.NewObjectSchema()
	s.AdditionalProperties = openapi3.AdditionalProperties{Schema: ref(of)}
	return described(s, description)
}

func problemTypes() []string {
	var types []string
	for _, k := range problem.Kinds() {
		types = append(types, k.Type())
	}
	return types
}
