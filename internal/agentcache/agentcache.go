package agentcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// patience bounds one installation and the wait for those of others.
const patience = 10 * time.Minute

// Dir returns the cache folder and makes it.
func Dir() (string, error) {
	dir := os.Getenv("SANDBOX_AGENT_TEST_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the user's cache folder; set SANDBOX_AGENT_TEST_CACHE instead: %w", err)
		}
		dir = filepath.Join(base, "sandbox-agent-test")
	}
	if !filepath.IsAbs(dir) { // each package's tests run in a folder of their own
		return "", fmt.Errorf("the cache of agents, %q, must be an absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache of agents: %w", err)
	}
	return dir, nil
}

// NPM returns the path of a file of npm packages, given relative to their
// node_modules, and installs them if they are not there. packages are NAME@VERSION;
// no script of theirs is run. The test is skipped, with the reason, when npm is
// missing or cannot reach its registry.
func NPM(t testing.TB, file string, packages ...string) string {
	t.Helper()
	return orSkip(t, func(ctx context.Context) (string, error) { return Packages(ctx, file, packages...) })
}

// Packages is [NPM] for programs that are no tests.
func Packages(ctx context.Context, file string, packages ...string) (string, error) {
	return cached(ctx, strings.Join(packages, "\n"), file, func(ctx context.Context, root string) error { return install(ctx, root, packages) })
}

// orSkip returns the path that get finds. The test is skipped when npm is missing
// or cannot reach its registry.
func orSkip(t testing.TB, get func(ctx context.Context) (string, error)) string {
	t.Helper()
	path, err := get(t.Context())
	if err != nil && (errors.Is(err, exec.ErrNotFound) || unreachable.MatchString(err.Error())) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// cached returns the path of a file below the node_modules of the folder that
// fill makes, once for each key. The first line of the key names the folder.
func cached(ctx context.Context, key, file string, fill func(ctx context.Context, root string) error) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(key, "\n")
	sum := sha256.Sum256([]byte(key))
	name := regexp.MustCompile(`[^\w.-]+`).ReplaceAllString(first, "_")
	root := filepath.Join(dir, "npm", name+"-"+hex.EncodeToString(sum[:4]))
	path := filepath.Join(root, "node_modules", filepath.FromSlash(file))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err := lock(ctx, root+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // somebody else did it meanwhile
		return path, nil
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("npm is not installed, so %s cannot be: %w", first, err)
	}
	if err := fill(ctx, root); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%q was installed, but has no such file: %w", first, err)
	}
	return path, nil
}

// unreachable is in what npm prints when the network is the reason.
var unreachable = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|ENOTCACHED`)

// install makes root with the packages in it, all of them or nothing.
func install(ctx context.Context, root string, packages []string) error {
	return installWith(ctx, root, packages, func(string) error { return nil })
}

// installWith is install with what more adds to the folder before it is root.
func installWith(ctx context.Context, root string, packages []string, more func(tmp string) error) error {
	tmp, err := os.MkdirTemp(filepath.Dir(root), ".installing-")
	if err != nil {
		return fmt.Errorf("make a folder to install into: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "package.json"), []byte(`{"private":true}`), 0o644); err != nil {
		return fmt.Errorf("write package.json: %w", err)
	}
	args := append([]string{"install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"}, packages...)
	cmd := exec.CommandContext(ctx, "npm", args...)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install %s: %w\n%s", strings.Join(packages, " "), err, out)
	}
	if err := more(tmp); err != nil {
		return err
	}
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("remove an incomplete installation: %w", err)
	}
	if err := os.Rename(tmp, root); err != nil {
		return fmt.Errorf("put the installation in its place: %w", err)
	}
	return nil
}

// lock takes the lock of a file, which the kernel frees when the process ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of a lock: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open a lock: %w", err)
	}
	// A lock that blocks cannot be given up, so it is tried again and again.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		taken, err := tryLock(f)
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if taken {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for the lock %s, which another test holds: %w", path, ctx.Err())
		}
	}
}
