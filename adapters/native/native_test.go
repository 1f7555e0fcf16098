package native_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/mock/agent"
	"sandboxagent.dev/sandbox-agent/adapters/native"
)

// The first argument by which the test binary is another program.
const (
	runAgent   = "an-agent"
	runEnviron = "its-environment" // writes its environment as a notification
	runFailing = "a-failing-agent" // writes to stderr and exits
)

const (
	failCode  = 7
	failLines = 5000
)

func TestMain(m *testing.M) {
	child := ""
	if len(os.Args) > 1 {
		child = os.Args[1]
	}
	switch child {
	case runAgent:
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	case runEnviron:
		b, err := json.Marshal(map[string][]string{"environ": os.Environ()})
		if err != nil {
			panic(err)
		}
		m := acp.NewNotification("_test/environ", b)
		fmt.Println(string(m.Frame()))
		os.Exit(0)
	case runFailing:
		for i := range failLines {
			fmt.Fprintln(os.Stderr, "line", i)
		}
		fmt.Fprintln(os.Stderr, "the reason")
		os.Exit(failCode)
	default:
		// The thread that starts processes lives as long as the program.
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
	}
}

func custom(t *testing.T, args ...string) native.Command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return native.Command{Path: exe, Args: args}
}

func open(t *testing.T, c native.Command) acp.Conn {
	t.Helper()
	a := native.NewCustom(adapters.Info{ID: "custom", Kind: adapters.Custom}, c, false)
	conn, err := a.Open(t.Context(), adapters.Options{StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestAgent_KeepsTheContract(t *testing.T) {
	keepsTheContract(t, false)
}

// An agent of version 2 keeps the contract of version 1: the gateway does not know the
// difference.
func TestAgent_KeepsTheContractInVersionTwo(t *testing.T) {
	keepsTheContract(t, true, "--acp", "2")
}

// An agent that is asked for version 2, and has version 1 alone, is spoken to in that.
func TestAgent_KeepsTheContractWhenAskedForVersionTwo(t *testing.T) {
	keepsTheContract(t, true)
}

func keepsTheContract(t *testing.T, two bool, args ...string) {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: native.NewCustom(adapters.Info{ID: "custom", Kind: adapters.Custom}, custom(t, append([]string{runAgent, "--state-dir", state}, args...)...), two),
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

func TestAgent_MissingProgram(t *testing.T) {
	const program = "no-such-program-anywhere"
	a := native.NewCustom(adapters.Info{ID: "custom"}, native.Command{Path: program}, false)
	if _, err := a.Locate(); err == nil {
		t.Error("Installed reports true")
	}
	conn, err := a.Open(t.Context(), adapters.Options{})
	missing, ok := errors.AsType[*adapters.NotInstalledError](err)
	if !ok {
		t.Fatalf("Open: %v, %v, want a NotInstalledError", conn, err)
	}
	if missing.Agent != "custom" || !strings.Contains(missing.Remedy, program) {
		t.Errorf("error %+v, want the agent custom and a remedy that names %s", missing, program)
	}
}

func TestAgent_Environment(t *testing.T) {
	t.Setenv("SANDBOX_AGENT_TOKEN", "secret-1")
	t.Setenv("SANDBOX_AGENT_ANYTHING", "secret-2")
	t.Setenv("SOMETHING_ELSE", "inherited")
	c := custom(t, runEnviron)
	c.Env = []string{"OF_THE_COMMAND=added"}
	m, err := open(t, c).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Environ []string }
	if err := json.Unmarshal(m.Params(), &got); err != nil {
		t.Fatalf("%v in %s", err, m.Frame())
	}
	for _, kv := range got.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(value, "secret-") {
			t.Errorf("the agent inherits %s", name)
		}
	}
	for _, want := range []string{"SOMETHING_ELSE=inherited", "OF_THE_COMMAND=added"} {
		if !slices.Contains(got.Environ, want) {
			t.Errorf("the agent's environment lacks %s", want)
		}
	}
}

func TestConn_IsAProcess(t *testing.T) {
	p, ok := open(t, custom(t, runAgent)).(adapters.Process)
	if !ok || p.PID() == 0 || p.StartedAt().IsZero() {
		t.Errorf("%v: %+v", ok, p)
	}
}

// A prompt to an agent whose output has ended is not written, and may be given to another process.
func TestConn_OutputHasEnded(t *testing.T) {
	conn := open(t, native.Command{Path: "/bin/sh", Args: []string{"-c", "exec 1>&-; exec cat >/dev/null"}})
	prompt := acp.NewRequest(acp.IntID(1), acp.MethodSessionPrompt, []byte(`{"sessionId":"s","prompt":[]}`))
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(t.Context())
		ended <- err
	}()
	for conn.Write(t.Context(), prompt) == nil { // until it is known
		goruntime.Gosched()
	}
	if err := <-ended; err == nil {
		t.Error("it says more")
	}
	if !conn.(adapters.Untaker).Untaken("s") {
		t.Error("the prompt counts as taken")
	}
}

func TestConn_ExitErrorHasStderr(t *testing.T) {
	conn := open(t, custom(t, runFailing))
	_, err := conn.Read(t.Context())
	exit, ok := errors.AsType[*adapters.ExitError](err)
	if !ok {
		t.Fatalf("Read: %v, want an ExitError", err)
	}
	if exit.Code != failCode || exit.Signal != "" {
		t.Errorf("exit code %d, signal %q, want %d and none", exit.Code, exit.Signal, failCode)
	}
	last := "line " + strconv.Itoa(failLines-1) + "\nthe reason"
	switch s := exit.Stderr; {
	case !strings.HasPrefix(s.Head, "line 0\nline 1\n"):
		t.Errorf("head %.40q, want the first lines", s.Head)
	case !strings.HasSuffix(s.Tail, last):
		t.Errorf("tail %q, want %q at its end", s.Tail, last)
	case !s.Truncated:
		t.Error("Truncated is false although the middle is missing")
	case s.TotalLines != failLines+1:
		t.Errorf("%d lines, want %d", s.TotalLines, failLines+1)
	}
	if !strings.Contains(err.Error(), "the reason") {
		t.Errorf("error %q, want the reason in it", err)
	}
	var data struct{ ExitCode int }
	if err := json.Unmarshal(exit.Data(), &data); err != nil || data.ExitCode != failCode {
		t.Errorf("data %s (%v), want exit code %d", exit.Data(), err, failCode)
	}
}
