package mock_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/adapters/mock/agent"
)

// The test binary is also the mock agent.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mock.Arg {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/adapters/internal/process.init.func1.1"))
}

func program(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func TestAdapter_KeepsTheContract(t *testing.T) {
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: mock.New(program(t)),
		Prompts: adaptertest.Prompts{
			Say:     adaptertest.Prompt{Text: "hello", Says: "I am the mock agent"},
			Stream:  adaptertest.Prompt{Text: "stream 500 100", Says: "499 "},
			Tool:    adaptertest.Prompt{Text: "tool", Says: "I read notes.txt."},
			Ask:     adaptertest.Prompt{Text: "permission", Says: "permission: allow_once"},
			Run:     adaptertest.Prompt{Text: "slow"},
			Echo:    func(text string) string { return "echo " + text },
			Garbage: adaptertest.Prompt{Text: "garbage", Says: "good 3"},
			Crash:   adaptertest.Prompt{Text: "crash"},
			Spawn:   adaptertest.Prompt{Text: "fork-child", Says: "child: "},
		},
		Crash:      adaptertest.Crash{Code: 3, Stderr: "mock-agent: giving up"},
		Chunks:     500,
		EchoesMeta: true,
	})
}

// Without its load powers the agent neither claims nor has them.
func TestAdapter_WithoutLoading(t *testing.T) {
	t.Setenv(agent.EnvNoLoad, "1")
	const other = "is the same with loading"
	adaptertest.Run(t, adaptertest.Subject{
		Adapter:  mock.New(program(t)),
		Prompts:  adaptertest.Prompts{Say: adaptertest.Prompt{Text: "hello"}},
		NoLoad:   true,
		NoResume: true,
		Skip: map[string]string{
			"updates-precede-response": other, "tool-call-lifecycle": other, "permission-allow": other,
			"permission-reject": other, "permission-cancelled": other, "cancel-ends-the-turn": other,
			"two-sessions-interleave": other, "garbage-line-survived": other, "10-MiB-message": other,
			"crash-fails-pending": other, "close-idempotent": other, "close-leaves-no-process": other,
		},
	})
}
