package docs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// TestQuickstart_Clone runs the quickstart word by word in a fresh copy of the
// repository, with an empty home directory.
func TestQuickstart_Clone(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "git", "ls-files", "-coz", "--exclude-standard", "--", "..").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	clone, home := t.TempDir(), t.TempDir()
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // a folder, or deleted and not yet committed
		}
		to := filepath.Join(clone, "docs", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var env []string
	for _, name := range []string{"GOFLAGS", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOTOOLCHAIN", "GONOSUMDB", "GONOSUMCHECK", "GOSUMDB"} {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		value := strings.TrimSpace(string(out))
		if name == "GOFLAGS" {
			// Without the folder's path the build finds in the cache what others compiled.
			value = strings.TrimSpace(value + " -trimpath")
		}
		env = append(env, name+"="+value)
	}
	runPage(t, quickstart(t), clone, home, append(env, "PATH="+os.Getenv("PATH")))
}

func quickstart(t *testing.T) page {
	t.Helper()
	all := pages(t)
	return all[slices.IndexFunc(all, func(p page) bool { return p.name == "quickstart.mdx" })]
}

// TestQuickstart_RealAgent runs what the quickstart says about a real agent, with
// Claude Code and a model on loopback in place of an account.
func TestQuickstart_RealAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("a real agent takes its time")
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	agentcache.Turn(t)
	program := claude(t)
	model := scriptedmodel.Start(t)
	p := quickstart(t)
	at := slices.IndexFunc(p.blocks, func(b block) bool { return strings.Contains(b.text, "--agent claude") })
	real := p.blocks[at]
	question := strings.Split(real.text, `"`)[1]
	model.On(scriptedmodel.Contains(question), scriptedmodel.Step{scriptedmodel.Say("There is nothing in it.")})

	real.mark = "run"
	shown := block{line: real.line, mark: "output", text: "There is nothing in it."}
	server := p.blocks[slices.IndexFunc(p.blocks, func(b block) bool { return b.mark == "run: background" })]
	home := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(home, "project"), 0o755), os.Symlink(bin, filepath.Join(home, "sandbox-agent"))); err != nil {
		t.Fatal(err)
	}
	runPage(t, page{name: p.name, blocks: []block{server, real, shown}}, home, home, []string{
		"PATH=" + os.Getenv("PATH"), "SANDBOX_AGENT_CLAUDE_BIN=" + program,
		"ANTHROPIC_API_KEY=sk-ant-not-a-key", "ANTHROPIC_BASE_URL=" + model.URL,
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + model.URL, "HTTP_PROXY=" + model.URL, "NO_PROXY=127.0.0.1,localhost",
	})
}

// claude returns the program of Claude Code, which is installed once per machine.
func claude(t *testing.T) string {
	t.Helper()
	dir, err := agentcache.Dir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := install.New(install.Options{DataDir: dir}).Install(ctx, install.Request{
		Agent: "claude", Version: agentcache.Claude, Sources: []install.Source{install.NPM},
	})
	if p, ok := errors.AsType[*problem.Error](err); ok && (strings.Contains(p.Detail, "cannot be reached") || strings.Contains(p.Detail, "not found in PATH")) {
		t.Skipf("claude %s cannot be installed here: %v", agentcache.Claude, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.Program
}
