package agentcache

// BunEnv makes programs that Bun runs, Claude Code and OpenCode, cheaper and changes nothing of what
// they do. Malloc leaves memory to the C library: the runtime of OpenCode gives what is free back to
// the system, a page or four at a time, and takes it again. The others leave out
// the compilers that optimise and the threads that collect garbage, which pay only in
// processes that live longer than those of tests.
var BunEnv = []string{"Malloc=1", "BUN_JSC_useDFGJIT=0", "BUN_JSC_useConcurrentGC=0", "BUN_JSC_numberOfGCMarkers=1"}
