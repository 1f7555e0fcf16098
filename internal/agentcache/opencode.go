package agentcache

// OpenCode is the newest version of OpenCode that all tests passed with.
const OpenCode = "1.18.33"
