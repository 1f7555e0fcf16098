package adapters

// Feature is something that a client can see of an agent.
type Feature string

// The features, in the order in which they are shown.
const (
	Text           Feature = "text"
	Streaming      Feature = "streaming"
	Reasoning      Feature = "reasoning"
	ToolCalls      Feature = "toolCalls"
	ToolResults    Feature = "toolResults"
	Diffs          Feature = "diffs"
	CommandOutput  Feature = "commandOutput"
	Plan           Feature = "plan"
	Images         Feature = "images"
	Attachments    Feature = "attachments"
	Permissions    Feature = "permissions"
	Questions      Feature = "questions"
	PlanApproval   Feature = "planApproval"
	Modes          Feature = "modes"
	Models         Feature = "models"
	ThoughtLevels  Feature = "thoughtLevels"
	MCPServers     Feature = "mcpServers"
	MCPStatus      Feature = "mcpStatus"
	Skills         Feature = "skills"
	Instructions   Feature = "instructions"
	SystemPrompt   Feature = "appendSystemPrompt"
	Directories    Feature = "additionalDirectories"
	Resume         Feature = "resume"
	Load           Feature = "load"
	Fork           Feature = "fork"
	NativeSessions Feature = "nativeSessions"
	Usage          Feature = "usage"
	Cost           Feature = "cost"
	Commands       Feature = "commands"
	Compaction     Feature = "compaction"
	Subagents      Feature = "subagents"
	Cancel         Feature = "cancel"
)

// AllFeatures lists the features in the order in which they are shown.
var AllFeatures = []Feature{
	Text, Streaming, Reasoning, ToolCalls, ToolResults, Diffs, CommandOutput, Plan, Images, Attachments,
	Permissions, Questions, PlanApproval, Modes, Models, ThoughtLevels, MCPServers, MCPStatus, Skills, Instructions,
	SystemPrompt, Directories, Resume, Load, Fork, NativeSessions, Usage, Cost, Commands, Compaction,
	Subagents, Cancel,
}

// Level says how a feature comes about.
type Level string

// The levels of support.
const (
	ByAgent     Level = "native"      // the agent does it
	Emulated    Level = "emulated"    // the gateway makes it out of what the agent does
	Unsupported Level = "unsupported" // with a reason
)

// Support is what an agent gives of one feature.
type Support struct {
	Level  Level  `json:"level"`
	Reason string `json:"reason,omitempty"` // why not, or what to know about it
}

// Features is one agent's row of the feature matrix. It has all features.
type Features map[Feature]Support
