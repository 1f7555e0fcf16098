package agentcache

// Codex is the newest version of Codex that all tests passed with.
const Codex = "0.169.0"
