package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testCache is where real agents stay from one run of the tests to the next.
func testCache(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SANDBOX_AGENT_TEST_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("there is no place to keep agents; set SANDBOX_AGENT_TEST_CACHE: %v", err)
		}
		dir = filepath.Join(base, "sandbox-agent-test")
	}
	return dir
}

// verifiedByNPM is what is known of packages of npm: those that this release was
// tested with are pinned, others are signed, if the registry passes that on.
var verifiedByNPM = regexp.MustCompile(`\nverified   (digest-pinned by this release|signature by the npm registry's key SHA256:|checksum-only by the registry that npm uses; .*the registry gives none|checksum-only; installed by a release that kept no more)`)

// The agents themselves, from npm. The first run downloads some hundred
// megabytes; further ones use what it kept.
func TestInstallCLI_RealNPM(t *testing.T) {
	if testing.Short() {
		t.Skip("real agents are not for -short")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not on this machine")
	}
	c := &commandLine{t: t, env: append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "SANDBOX_AGENT_")
	}), "SANDBOX_AGENT_DATA_DIR="+filepath.Join(testCache(t), "install"), "SANDBOX_AGENT_ENDPOINT=", "SANDBOX_AGENT_SOURCES=npm")}
	agents := []string{"claude", "codex", "opencode"}
	for _, agent := range agents {
		code, out, errOut := c.run("agents", "install", agent)
		if strings.Contains(errOut, "cannot be reached") || strings.Contains(errOut, "sent nothing for too long") {
			t.Skipf("npm cannot reach its registry:\n%s", errOut)
		}
		if code != 0 || !strings.Contains(out, agent+" ") || !strings.Contains(out, "\nsource     npm\n") || !verifiedByNPM.MatchString(out) {
			t.Fatalf("%s: exit %d\n%s%s", agent, code, out, errOut)
		}
		t.Logf("%s", out)
	}
	_, out, errOut := c.run(append([]string{"doctor"}, agents...)...)
	for _, agent := range agents {
		if !strings.Contains(out, "\n"+agent+"\n  ✓ program: ") {
			t.Errorf("doctor finds something wrong with %s:\n%s%s", agent, out, errOut)
		}
	}
	if !strings.Contains(out, "opencode/") || !strings.Contains(out, "answers initialize") {
		t.Errorf("no agent answered initialize:\n%s", out)
	}
}
