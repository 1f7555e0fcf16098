package agentcache

import (
	"context"
	"runtime"
	"testing"
)

const nodeVersion = "22.23.3"

// Node returns the program of a Node.js that all agents run with which need one. Unlike
// older ones it keeps what it has compiled, in NODE_COMPILE_CACHE. The test is skipped,
// with the reason, when npm is missing or cannot reach its registry.
func Node(t testing.TB) string {
	t.Helper()
	return orSkip(t, NodeProgram)
}

// NodeProgram is [Node] for programs that are no tests.
func NodeProgram(ctx context.Context) (string, error) {
	node := "node-" + runtime.GOOS + "-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	return Packages(ctx, node+"/bin/node", node+"@"+nodeVersion)
}
