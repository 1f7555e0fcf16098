package version

import (
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Row says how a thing of one version is said in the other.
type Row struct {
	From string // its name in the version that it is translated from
	To   string // its name in the other; "" when it has none
	Note string // what changes and what is lost; "" for nothing
}

// updateRow is how an update of version 1 is told in version 2.
type updateRow struct {
	to, note string
	raise    func(v *View, e Entry, m *acp.Message, history bool, out *Frames) // nil passes it on
}

const noteChunk = "gets the `messageId` of its message, if it has none: pieces of one role that follow each other are one message; in a replay an empty message precedes the first"

// updates are the updates of version 1. Others are passed on.
var updates = map[string]updateRow{
	"user_message_chunk":        {"user_message_chunk", noteChunk, (*View).chunk},
	"agent_message_chunk":       {"agent_message_chunk", noteChunk, (*View).chunk},
	"agent_thought_chunk":       {"agent_thought_chunk", noteChunk, (*View).chunk},
	"tool_call":                 {"tool_call_update, subagent_update, terminal_update", "diffs become changes with a patch that has all lines of both texts; a second `tool_call` with the same id patches the first; a subagent that a bridge shows as a call is a session of its own, see [Subagents](#subagents), and a command that it runs has a terminal, see [Commands](#commands)", (*View).toolCall},
	"tool_call_update":          {"tool_call_update, subagent_update, terminal_update, terminal_output_chunk", "diffs, subagents and commands as above; fields that are `null` are left out, because they would be cleared; what a turn leaves running is in the `background` of the states", (*View).toolCallUpdate},
	"plan":                      {"plan_update", "a plan of type `items`; a session has one, whose `planId` is `" + planID + "`", (*View).plan},
	"plan_update":               {"plan_update", "", nil},
	"plan_removed":              {"plan_removed", "", nil},
	"current_mode_update":       {"config_option_update", "all options; modes are the option `" + ModeOption + "`, unless the agent has one of the category `mode`", (*View).currentMode},
	"config_option_update":      {"config_option_update", "`id` is `configId`, `group` is `groupId`; modes are among the options", (*View).configOptions},
	"available_commands_update": {"available_commands_update", "commands get the type `command`, their input the type `text`", (*View).commands},
	"session_info_update":       {"session_info_update", "", nil},
	"usage_update":              {"usage_update", "", nil},
	"notice":                    {"notice", "not in a replay", (*View).liveOnly},
	"compaction_update":         {"compaction_update", "", (*View).compaction},
	"compaction_summary_chunk":  {"compaction_summary_chunk", "in a replay an empty summary precedes the first", (*View).compaction},
	"subagent_update":           {"subagent_update", "in a replay without `state`: how a child was doing is not how it does", (*View).subagent},
	"session_message":           {"session_message", "", nil},
	"session_message_chunk":     {"session_message_chunk", "", nil},
}

// methodRow is how a method of version 2 is said in version 1.
type methodRow struct {
	Row
	lower lower // nil refuses it with the note
}

// methods are the methods that clients of version 2 call and that are said otherwise in
// version 1, and those of version 1 that are no more. Others are passed on.
var methods = map[string]methodRow{
	acp.MethodSessionNew:             {Row{To: acp.MethodSessionNew, Note: "`type` is left out of stdio servers, lists that are missing are empty; in the result modes are options"}, lowerSetup(acp.MethodSessionNew)},
	acp.MethodSessionFork:            {Row{To: acp.MethodSessionFork, Note: "as `session/new`"}, lowerSetup(acp.MethodSessionFork)},
	acp.MethodSessionResume:          {Row{To: "session/load, session/resume", Note: "load with `replayFrom` of type `start`, resume without; a `state_update` precedes the result"}, lowerResume},
	acp.MethodSessionSetConfigOption: {Row{To: "session/set_config_option, session/set_mode", Note: "the type `id` is left out; the result has all options"}, lowerSetOption},
	acp.MethodSessionPrompt:          {Row{To: acp.MethodSessionPrompt, Note: "answered with `messageId` when it begins; the result of version 1 is the `state_update` with `idle`"}, renamed(acp.MethodSessionPrompt)},
	MethodAuthLogin:                  {Row{To: acp.MethodAuthenticate}, renamed(acp.MethodAuthenticate)},
	MethodAuthLogout:                 {Row{To: acp.MethodLogout}, renamed(acp.MethodLogout)},
	MethodToolCallCancel:             {Row{Note: "error -32602, unless the agent speaks version 2, or the call says in its `capabilities` that it can be cancelled: subagents of Claude Code, OpenCode and Codex, commands of Codex, and those of Claude Code that take long"}, lowerCancel("toolCallId", "tool call")},
	MethodTerminalCancel:             {Row{To: MethodToolCallCancel, Note: "for the terminal of a call; error -32602 for others, unless the agent speaks version 2"}, lowerCancel("terminalId", "terminal")},

	acp.MethodSessionLoad:    {Row: Row{Note: "session/load is of version 1: send session/resume with replayFrom"}},
	acp.MethodSessionSetMode: {Row: Row{Note: "session/set_mode is of version 1: send session/set_config_option"}},
	acp.MethodAuthenticate:   {Row: Row{Note: "authenticate is of version 1: send auth/login"}},
	acp.MethodLogout:         {Row: Row{Note: "logout is of version 1: send auth/logout"}},
}

// Table returns how what agents of version 1 say is told to clients of version 2, and how
// what those send is said to the agents, by name.
func Table() (raised, lowered []Row) {
	for _, name := range slices.Sorted(maps.Keys(updates)) {
		raised = append(raised, Row{name, updates[name].to, updates[name].note})
	}
	raised = append(raised,
		Row{acp.MethodSessionRequestPermission, acp.MethodSessionRequestPermission, "the call is the `subject`, and its title the title of the request; a subagent's is of its session"},
		Row{acp.MethodElicitationCreate, acp.MethodElicitationCreate, "what version 1 may leave out of a form is filled in; of a subagent's call it is of its session"},
		Row{"fs/*, terminal/*", "", "not asked of a client of version 2: the gateway's own files and terminals answer, if they are on"},
	)
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		row := methods[name].Row
		row.From = name
		lowered = append(lowered, row)
	}
	return raised, lowered
}

// asks are the methods by which the gateway says otherwise to an agent of version 2 what
// version 1 says. Others are passed on.
var asks = []Row{
	{acp.MethodAuthenticate, MethodAuthLogin, ""},
	{acp.MethodInitialize, acp.MethodInitialize, "asks for version 2, in the form of both versions; an agent of version 1 answers with that, and one that refuses is asked for version 1"},
	{acp.MethodLogout, MethodAuthLogout, ""},
	{acp.MethodSessionLoad, acp.MethodSessionResume, "with `replayFrom` of type `start`"},
	{"session/new, session/resume, session/fork", "session/new, session/resume, session/fork", "stdio servers get the type `stdio`; in the result `configId` is `id`, the option for modes is the modes, too, and commands are told behind it"},
	{acp.MethodSessionPrompt, acp.MethodSessionPrompt, "its result is the end of the turn; the `messageId` is the agent's own"},
	{acp.MethodSessionSetConfigOption, acp.MethodSessionSetConfigOption, "gets the type `id`, unless it has one"},
	{acp.MethodSessionSetMode, acp.MethodSessionSetConfigOption, "of the option for modes"},
	{acp.MethodCancelRequest, acp.MethodCancelRequest + ", " + acp.MethodSessionCancel, "`session/cancel` for a prompt that the agent has begun with"},
}

// AgentTable returns how what agents of version 2 say is told to clients of version 1, and
// how what the gateway asks, in version 1, is said to the agents.
func AgentTable() (said, asked []Row) {
	for _, name := range slices.Sorted(maps.Keys(seconds)) {
		said = append(said, Row{name, seconds[name].to, seconds[name].note})
	}
	said = append(said,
		Row{acp.MethodSessionRequestPermission, acp.MethodSessionRequestPermission, "the `subject` is the call, a command a call of its own; the title is that of a call without one; kinds of options that are unknown are `reject_once`; what an agent's child asks is asked in the session"},
		Row{acp.MethodElicitationCreate, acp.MethodElicitationCreate, "as above for children"},
	)
	return said, slices.Clone(asks)
}
