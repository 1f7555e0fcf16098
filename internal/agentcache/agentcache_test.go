//go:build unix

package agentcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLock_IsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "below", "x.lock")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := lock(t.Context(), path)
		if err == nil {
			second()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestNPM_TakesWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SANDBOX_AGENT_TEST_CACHE", dir)
	t.Setenv("PATH", "") // npm cannot be run
	var skipped bool
	t.Run("missing", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		NPM(t, "x/y", "@a/x@1.0.0", "z@2")
	})
	if !skipped {
		t.Error("a package that cannot be installed does not skip the test")
	}
	found, err := filepath.Glob(filepath.Join(dir, "npm", "_a_x_1.0.0-*.lock"))
	if err != nil || len(found) != 1 {
		t.Fatalf("locks %q, %v", found, err)
	}
	root := found[0][:len(found[0])-len(".lock")]
	want := filepath.Join(root, "node_modules", "x", "y")
	if err := errors.Join(os.MkdirAll(filepath.Dir(want), 0o755), os.WriteFile(want, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got := NPM(t, "x/y", "@a/x@1.0.0", "z@2"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestInstall_FailsAsAWhole(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\n/bin/mkdir node_modules\necho request failed, reason: getaddrinfo ENOTFOUND example.com >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	root := filepath.Join(t.TempDir(), "root")
	err := install(t.Context(), root, []string{"x@1"})
	if err == nil || !unreachable.MatchString(err.Error()) {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(root), "*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(root), ".installing-*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestUnpacked_LeavesDependenciesOut(t *testing.T) {
	t.Setenv("SANDBOX_AGENT_TEST_CACHE", t.TempDir())
	bin := t.TempDir()
	script := `#!/bin/sh
if [ "$1" = pack ]; then
	/bin/mkdir package && echo works > package/cli.js && exec /bin/tar -czf x-1.tgz package
fi
for last; do :; done
/bin/mkdir -p node_modules && echo "$last" > node_modules/installed
`
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	path := Unpacked(t, "@a/x", "1", "cli.js", "jiti@2")
	if b, err := os.ReadFile(path); err != nil || string(b) != "works\n" {
		t.Errorf("the package's file is %q, %v", b, err)
	}
	modules := filepath.Join(filepath.Dir(path), "..", "..")
	if b, err := os.ReadFile(filepath.Join(modules, "installed")); err != nil || string(b) != "jiti@2\n" {
		t.Errorf("beside it was installed %q, %v", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(modules, "..", "packs-*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
