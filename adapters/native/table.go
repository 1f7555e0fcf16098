package native

import (
	"slices"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// Table returns the agents that are known to speak ACP and to be programs of
// their own. Features stand where somebody has run the agent; what an agent of
// the ACP registry gives beyond it says in initialize.
func Table() []Spec {
	return []Spec{
		{
			Info: adapters.Info{
				ID: "gemini", Name: "Gemini CLI", Kind: adapters.Native, Record: true, Program: "gemini", Website: "https://geminicli.com",
				Login: adapters.Login{
					Env: []string{"GEMINI_API_KEY"}, Files: []string{"~/.gemini/oauth_creds.json"}, Method: "gemini-api-key",
				},
				Features: with(common, adapters.Features{
					adapters.Images: {Level: adapters.ByAgent}, adapters.Attachments: {Level: adapters.ByAgent},
					adapters.CommandOutput: no("the agent reports a command's end and not its output"),
					adapters.Models:        {Level: adapters.ByAgent, Reason: "by the older session/set_model"},
					adapters.MCPServers:    {Level: adapters.ByAgent, Reason: "in folders that the user trusts"},
					adapters.Resume:        {Level: adapters.Emulated, Reason: "by session/load, whose replay is not shown"},
					adapters.Usage:         {Level: adapters.ByAgent, Reason: "in the prompt result's _meta.quota"},
					adapters.Commands:      {Level: adapters.ByAgent},
				}),
			},
			Args: []string{"--acp"}, Keys: Keys{APIKey: "GEMINI_API_KEY", BaseURL: "GOOGLE_GEMINI_BASE_URL"}, ReplaysLate: true, ReplaysInWords: true,
		},
		{
			Info: adapters.Info{
				ID: "qwen", Name: "Qwen Code", Kind: adapters.Native, Record: true, Program: "qwen", Website: "https://qwenlm.github.io/qwen-code-docs",
				Login: adapters.Login{
					Env: []string{"OPENAI_API_KEY"}, Files: []string{"~/.qwen/oauth_creds.json"}, Method: "openai",
				},
				Features: with(common, adapters.Features{
					adapters.Images: {Level: adapters.ByAgent}, adapters.Attachments: {Level: adapters.ByAgent},
					adapters.CommandOutput:  {Level: adapters.ByAgent},
					adapters.Models:         {Level: adapters.ByAgent},
					adapters.Resume:         {Level: adapters.ByAgent},
					adapters.NativeSessions: {Level: adapters.ByAgent},
					adapters.Usage:          {Level: adapters.ByAgent, Reason: "in the _meta of an empty message chunk"},
					adapters.Commands:       {Level: adapters.ByAgent},
				}),
			},
			// Its own default lets a model decide what needs no permission.
			Args: []string{"--acp"}, More: []string{"--approval-mode", "default"},
			Keys: Keys{APIKey: "OPENAI_API_KEY", BaseURL: "OPENAI_BASE_URL"},
		},
		{
			Info: adapters.Info{
				ID: "copilot", Name: "GitHub Copilot CLI", Kind: adapters.Native, Record: true, Program: "copilot", Website: "https://github.com/github/copilot-cli",
				Login: adapters.Login{
					Env:   []string{"COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_API_KEY"},
					Files: []string{"~/.copilot/config.json"},
				},
				Features: with(common, adapters.Features{
					adapters.Images:         {Level: adapters.ByAgent},
					adapters.Attachments:    {Level: adapters.ByAgent, Reason: "links to files; embedded texts do not reach the model"},
					adapters.Commands:       {Level: adapters.ByAgent},
					adapters.MCPServers:     {Level: adapters.ByAgent, Reason: "as the agent says; it starts none in its offline mode"},
					adapters.CommandOutput:  {Level: adapters.ByAgent},
					adapters.Diffs:          {Level: adapters.ByAgent, Reason: "the replaced passage, not the whole file"},
					adapters.Models:         {Level: adapters.ByAgent},
					adapters.Resume:         {Level: adapters.Emulated, Reason: "by session/load, whose replay is not shown"},
					adapters.NativeSessions: {Level: adapters.ByAgent},
					adapters.Usage:          {Level: adapters.ByAgent, Reason: "summed over the session"},
				}),
				// Its plan mode carries the plan out.
				PermissionModes: map[string]string{"readonly": "", "bypass": copilotModes + "autopilot"},
			},
			Args:        []string{"--acp"},
			Keys:        Keys{APIKey: "COPILOT_PROVIDER_API_KEY", BaseURL: "COPILOT_PROVIDER_BASE_URL", OAuthToken: "COPILOT_GITHUB_TOKEN"},
			HoldCancels: true,
		},
		unseen("cursor", "Cursor", "CURSOR_API_KEY", "acp"),
		moded(unseen("goose", "goose", "", "acp"), map[string]string{"readonly": "chat", "write": "smart_approve", "bypass": "auto"}),
		unseen("kimi", "Kimi CLI", "KIMI_API_KEY", "acp"),
		unseen("auggie", "Auggie", "AUGMENT_SESSION_AUTH", "--acp"),
		unseen("factory-droid", "Factory Droid", "FACTORY_API_KEY", "exec", "--output-format", "acp"),
		unseen("mistral-vibe", "Mistral Vibe", "MISTRAL_API_KEY"),
		unseen("grok-build", "Grok Build", "XAI_API_KEY", "agent", "stdio"),
	}
}

// Entry returns the agent for an entry of the ACP registry, described by info.
func Entry(info adapters.Info) *Agent {
	info.Kind, info.Program = adapters.Native, info.ID
	return New(Spec{Info: info, Two: slices.Contains(speakTwo, info.ID)})
}

// speakTwo are the ids of the registry's agents that were seen to speak version 2 of the
// protocol. An older version of one answers with version 1.
var speakTwo = []string{"claude-acp", "codex-acp"}

// unseen is an agent of the ACP registry that nobody here has run: its features
// are not claimed.
func unseen(id, name, key string, args ...string) Spec {
	s := Spec{Info: adapters.Info{ID: id, Name: name, Kind: adapters.Native, Program: id}, Args: args, Keys: Keys{APIKey: key}}
	if key != "" {
		s.Info.Login.Env = []string{key}
	}
	return s
}

// moded is s with modes whose names do not tell what they do.
func moded(s Spec, modes map[string]string) Spec {
	s.Info.PermissionModes = modes
	return s
}

// copilotModes begins the ids of Copilot's modes.
const copilotModes = "https://agentclientprotocol.com/protocol/session-modes#"

// common is what the agents of the table have in common.
var common = adapters.Features{
	adapters.Text:           {Level: adapters.ByAgent},
	adapters.Streaming:      {Level: adapters.ByAgent},
	adapters.Reasoning:      {Level: adapters.ByAgent},
	adapters.ToolCalls:      {Level: adapters.ByAgent},
	adapters.ToolResults:    {Level: adapters.ByAgent},
	adapters.Diffs:          {Level: adapters.ByAgent},
	adapters.CommandOutput:  no("the agent does not report it"),
	adapters.Plan:           no("the agent was not seen to send one"),
	adapters.Images:         no("the agent takes none"),
	adapters.Attachments:    no("the agent takes none"),
	adapters.Permissions:    {Level: adapters.ByAgent},
	adapters.Questions:      no("the agent asks no questions over ACP"),
	adapters.PlanApproval:   no("the agent asks for none over ACP"),
	adapters.Modes:          {Level: adapters.ByAgent},
	adapters.Models:         no("the agent offers no choice"),
	adapters.ThoughtLevels:  no("the agent offers no choice"),
	adapters.MCPServers:     {Level: adapters.ByAgent},
	adapters.MCPStatus:      no("ACP has no word for it: the gateway knows what was asked for"),
	adapters.Skills:         no("the agent takes none from its client"),
	adapters.Instructions:   no("the agent takes none from its client; it reads its own file in the workspace"),
	adapters.SystemPrompt:   no("the agent takes none from its client"),
	adapters.Directories:    no("the agent takes none from its client"),
	adapters.Resume:         no("the agent cannot open a session again"),
	adapters.Load:           {Level: adapters.ByAgent},
	adapters.Fork:           no("the agent does not offer it"),
	adapters.NativeSessions: no("the agent does not list its sessions"),
	adapters.Usage:          no("the agent does not report it"),
	adapters.Cost:           no("the agent does not report it"),
	adapters.Commands:       no("the agent offers none"),
	adapters.Compaction:     no("the agent does not report it"),
	adapters.Subagents:      no("the agent does not attribute their work"),
	adapters.Cancel:         {Level: adapters.ByAgent},
}

func no(reason string) adapters.Support {
	return adapters.Support{Level: adapters.Unsupported, Reason: reason}
}

// with returns base with what differs.
func with(base, differs adapters.Features) adapters.Features {
	out := make(adapters.Features, len(base))
	for f, s := range base {
		out[f] = s
	}
	for f, s := range differs {
		out[f] = s
	}
	return out
}

// Elsewhere returns the ids under which the ACP registry lists agents that have
// another id here.
func Elsewhere() []string {
	return []string{"qwen-code", "github-copilot-cli"}
}
