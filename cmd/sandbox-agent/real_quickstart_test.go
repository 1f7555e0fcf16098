package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// TestReal_Quickstart runs what the quickstart says about a real agent, with
// Claude Code and a model on loopback in place of an account. The rest of the
// page is run by the tests of package docs.
func TestReal_Quickstart(t *testing.T) {
	if testing.Short() {
		t.Skip("a real agent takes its time")
	}
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "quickstart.mdx"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## 3. A real agent\n")
	block := regexp.MustCompile("\n```sh\n([^`]*--agent claude[^`]*)```\n").FindStringSubmatch(section)
	question := regexp.MustCompile(`--agent claude .*"(.+)"`).FindStringSubmatch(section)
	if block == nil || question == nil {
		t.Fatal("the page has no block with a prompt to claude")
	}
	r := claude.real(t)
	r.model.On(scriptedmodel.Contains(question[1]), scriptedmodel.Step{scriptedmodel.Say("There is nothing in it.")})
	r.g.start()

	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bin, filepath.Join(r.dir, "sandbox-agent")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", block[1])
	cmd.Dir = r.dir
	cmd.Env = append(slices.Concat(os.Environ(), r.base), "SANDBOX_AGENT_ENDPOINT="+r.g.url)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "There is nothing in it.\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestReal_MaxCost: Claude Code tells what a turn has cost when it is over, and is given the
// limit, so that it ends one that costs too much.
func TestReal_MaxCost(t *testing.T) {
	agentcache.NotShort(t)
	t.Parallel()
	r := claude.real(t)
	loop := make([]scriptedmodel.Step, 5)
	for i := range loop {
		loop[i] = scriptedmodel.Step{scriptedmodel.Shell("echo step-" + strconv.Itoa(i))}
	}
	r.model.On(scriptedmodel.Exactly("loop"), loop...)
	r.g.start()
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+r.g.url)}
	cmd := c.command(t.Context(), "prompt", "--agent", "claude", "--cwd", r.dir, "--permission", "allow", "--max-cost", "0.000001", "loop")
	out, _ := cmd.CombinedOutput() // the exit code says how it ended
	if code := cmd.ProcessState.ExitCode(); code != 8 || !strings.Contains(string(out), "more than --max-cost 1e-06") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if strings.Contains(string(out), "step-4") {
		t.Errorf("the turn went on to its end:\n%s", out)
	}
}
