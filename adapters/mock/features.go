package mock

import "sandboxagent.dev/sandbox-agent/adapters"

var features = adapters.Features{
	adapters.Text:           yes,
	adapters.Streaming:      yes,
	adapters.Reasoning:      no("the mock agent does not think"),
	adapters.ToolCalls:      yes,
	adapters.ToolResults:    yes,
	adapters.Diffs:          yes,
	adapters.CommandOutput:  no("the mock agent runs no commands of its own"),
	adapters.Plan:           yes,
	adapters.Images:         {Level: adapters.ByAgent, Reason: "counted, not looked at"},
	adapters.Attachments:    {Level: adapters.ByAgent, Reason: "counted, not read"},
	adapters.Permissions:    yes,
	adapters.Questions:      yes,
	adapters.PlanApproval:   no("the mock agent asks for none"),
	adapters.Modes:          yes,
	adapters.Models:         yes,
	adapters.ThoughtLevels:  yes,
	adapters.MCPServers:     no("accepted and not used"),
	adapters.MCPStatus:      {Level: adapters.Emulated, Reason: "made up, with the prompt mcp"},
	adapters.Skills:         no("the mock agent has none"),
	adapters.Instructions:   no("the mock agent takes none"),
	adapters.SystemPrompt:   no("the mock agent has none"),
	adapters.Directories:    no("accepted and not used"),
	adapters.Resume:         yes,
	adapters.Load:           yes,
	adapters.Fork:           yes,
	adapters.NativeSessions: yes,
	adapters.Usage:          yes,
	adapters.Cost:           yes,
	adapters.Commands:       yes,
	adapters.Compaction:     no("the mock agent forgets nothing"),
	adapters.Subagents:      yes,
	adapters.Cancel:         yes,
}

var yes = adapters.Support{Level: adapters.ByAgent}

func no(reason string) adapters.Support {
	return adapters.Support{Level: adapters.Unsupported, Reason: reason}
}
