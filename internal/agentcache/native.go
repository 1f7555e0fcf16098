package agentcache

// The newest versions of agents that speak ACP themselves with which all tests
// passed.
const (
	Gemini  = "0.61.0"
	Qwen    = "0.24.4"
	Copilot = "1.0.102"
)

// The versions of agents from npm that speak version 2 of ACP, too, with which all tests
// passed.
const (
	ClaudeACP = "0.100.0"
	CodexACP  = "2.6.0"
)

// QwenTools are members of Qwen Code's settings. For each session, and for each question of its own to the model, the agent
// compiles the schemas of all its tools, a twentieth of a second each: it is given those alone that tests use. Each command
// of its shell has no terminal: in one of its own a command that ends quickly is now and then taken for one that a signal
// has ended.
const QwenTools = `"tools": {"core": ["run_shell_command", "write_file", "read_file", "edit"], "useRipgrep": false, "shell": {"enableInteractiveShell": false}},
	"permissions": {"deny": ["agent", "ask_user_question", "enter_plan_mode", "exit_plan_mode", "get_goal", "update_goal", "list_agents", "skill"]}`
