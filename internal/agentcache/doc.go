// Package agentcache gets real agents for tests: from npm, once, into a folder
// outside the repository, and lets the tests of all packages take turns, because
// each agent takes some hundred megabytes and a processor while it starts.
//
// The folder is $SANDBOX_AGENT_TEST_CACHE, or sandbox-agent-test in the user's
// cache folder. Several processes may use it at once.
//
// It says, too, how much of what is dear a run does: which tests belong to the long tier, and how many random
// sequences are played.
package agentcache
