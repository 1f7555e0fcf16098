package agentcache

import (
	"slices"

	"sandboxagent.dev/sandbox-agent/internal/scratch"
)

// bunEnv makes programs that Bun runs, Claude Code and OpenCode, cheaper and changes nothing of what
// they do. Malloc leaves memory to the C library: the runtime of OpenCode gives what is free back to
// the system, a page or four at a time, and takes it again. The others leave out
// the compilers that optimise and the threads that collect garbage, which pay only in
// processes that live longer than those of tests.
var bunEnv = []string{"Malloc=1", "BUN_JSC_useDFGJIT=0", "BUN_JSC_useConcurrentGC=0", "BUN_JSC_numberOfGCMarkers=1"}

// What the largest process of a test takes when it never collects garbage.
const (
	claudeKeeps   = 400 << 20
	openCodeKeeps = 2600 << 20
)

// ClaudeEnv is what makes Claude Code cheaper.
func ClaudeEnv() []string { return bunEnvOf(claudeKeeps) }

// OpenCodeEnv is what makes OpenCode cheaper. It collects garbage whenever it has nothing to do, which is a third of its time.
func OpenCodeEnv() []string { return bunEnvOf(openCodeKeeps) }

// bunEnvOf leaves out garbage collection where there is memory for five such processes.
func bunEnvOf(keeps int64) []string {
	if scratch.Free() < 5*keeps {
		return bunEnv
	}
	return append(slices.Clip(bunEnv), "BUN_JSC_useGC=0")
}
