package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	block := regexp.MustCompile("(?s)\n```sh\n(.*?)```\n").FindStringSubmatch(section)
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
	if err := os.Mkdir(filepath.Join(r.home, "project"), 0o755); err != nil {
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
