package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	for _, p := range pages(t) {
		if p.name == "quickstart.mdx" {
			runPage(t, p, clone, home, append(env, "PATH="+os.Getenv("PATH")))
		}
	}
}
