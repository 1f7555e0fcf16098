package agentcache

// Claude is the newest version of Claude Code that all tests passed with.
const Claude = "2.1.330"
