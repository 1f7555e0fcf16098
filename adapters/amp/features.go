package amp

import "sandboxagent.dev/sandbox-agent/adapters"

var features = adapters.Features{
	adapters.Text: {
		Level:  adapters.ByAgent,
		Reason: "this row is verified with release " + Verified + "; newer releases run their loop on Amp's server: they are driven in the same way, and of them only the start and its failure is tested",
	},
	adapters.Streaming:      no("Amp reports whole messages"),
	adapters.Reasoning:      yes,
	adapters.ToolCalls:      yes,
	adapters.ToolResults:    yes,
	adapters.Diffs:          yes,
	adapters.CommandOutput:  yes,
	adapters.Plan:           no("its tasks are kept on Amp's server; the calls are shown as such"),
	adapters.Images:         no("Amp's JSON input takes text only"),
	adapters.Attachments:    {Level: adapters.Emulated, Reason: "links and embedded texts become part of the prompt's text"},
	adapters.Permissions:    yes,
	adapters.Questions:      no("Amp does not ask any"),
	adapters.PlanApproval:   no("Amp has no plan mode"),
	adapters.Modes:          {Level: adapters.ByAgent, Reason: "release " + Verified + " allows other modes than smart in its JSON stream only to Amp's own team; a mode that is refused is said so"},
	adapters.Models:         no("the mode chooses the model"),
	adapters.ThoughtLevels:  no("the mode chooses it"),
	adapters.MCPServers:     yes,
	adapters.MCPStatus:      {Level: adapters.ByAgent, Reason: "when a process begins; not why one has failed"},
	adapters.Skills:         yes,
	adapters.Instructions:   {Level: adapters.Emulated, Reason: "they are added to the system prompt"},
	adapters.SystemPrompt:   yes,
	adapters.Directories:    no("Amp has one workspace; files elsewhere are reached by their paths"),
	adapters.Resume:         yes,
	adapters.Load:           {Level: adapters.ByAgent, Reason: "threads are replayed from Amp's copy on this machine, if there is one; sessions of the gateway from its log"},
	adapters.Fork:           no("Amp cannot fork threads without a terminal"),
	adapters.NativeSessions: {Level: adapters.ByAgent, Reason: "those of which Amp has a copy on this machine"},
	adapters.Usage:          yes,
	adapters.Cost:           no("Amp does not report it"),
	adapters.Commands:       no("Amp takes none in its JSON input"),
	adapters.Compaction:     no("Amp does not report it"),
	adapters.Subagents:      no("release " + Verified + " reports only the result of a subagent, and asks for its permissions; lines of newer releases that name a parent call are shown under it, which is unverified"),
	adapters.Cancel:         yes,
}

var yes = adapters.Support{Level: adapters.ByAgent}

func no(reason string) adapters.Support {
	return adapters.Support{Level: adapters.Unsupported, Reason: reason}
}
