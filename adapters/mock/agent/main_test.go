package agent_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/adapters/mock/agent"
)

const envChild = "MOCK_AGENT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) == "1" {
		os.Exit(agent.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}
