package install

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

const (
	askLimit  = 20 * time.Second // of a program that is asked for its version
	roomForIt = 1 << 30          // bytes that an installation may need
)

const namespacesRemedy = "allow user namespaces (kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0; in a container a seccomp profile that lets unshare and mount through), or use a mode with full access"

// machineChecks are the checks that are no agent's own.
func (in *Installer) machineChecks(patients []patient) []func(context.Context) []Check {
	one := func(f func(context.Context) Check) func(context.Context) []Check {
		return func(ctx context.Context) []Check { return []Check{f(ctx)} }
	}
	return append([]func(context.Context) []Check{
		one(in.checkPlatform), one(checkPath), one(in.checkDataDir), one(checkTempDir), one(checkCertificates),
		one(checkClient("npm", CheckWarning, "the source npm is not available", "install Node.js 22 or newer with npm")),
		one(checkClient("uvx", CheckAbsent, "agents that are Python packages cannot be installed", "install uv if you want one of them")),
	}, in.sourceChecks(patients)...)
}

func (in *Installer) checkPlatform(context.Context) Check {
	p := in.platform
	c := Check{Name: "platform", Status: CheckOK, Found: p.String()}
	if p.OS == "linux" {
		c.Found = p.OS + "-" + p.Arch + " with " + map[bool]string{true: "musl", false: "glibc"}[p.Musl]
	}
	for _, r := range recipes {
		if r.vendor != nil && r.vendor.targets[p.String()] != "" {
			return c
		}
	}
	c.Status, c.Found = CheckWarning, c.Found+"; no vendor is known to have programs for it"
	c.Remedy = "name programs of your own, such as with " + BinVariable("NAME")
	return c
}

func checkPath(context.Context) Check {
	c := Check{Name: "PATH", Status: CheckFailed, Remedy: "set PATH to the directories of this machine's programs"}
	var there, gone []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			there = append(there, dir)
		} else {
			gone = append(gone, dir)
		}
	}
	switch {
	case len(there) > 0:
		c.Status, c.Remedy, c.Found = CheckOK, "", strings.Join(there, ", ")
	case len(gone) > 0:
		c.Found = "none of its directories exists: " + strings.Join(gone, ", ")
	default:
		c.Found = "it is empty"
	}
	return c
}

// checkDataDir checks that agents can be written to, and run from, the place
// where they are installed. When it does not exist yet, the directory in which
// it will be made is looked at.
func (in *Installer) checkDataDir(ctx context.Context) Check {
	c := Check{Name: "data directory", Found: in.root, Status: CheckFailed, Remedy: "choose another one with --data-dir or SANDBOX_AGENT_DATA_DIR"}
	dir := in.root
	for !exists(dir) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
	}
	probe, err := os.MkdirTemp(dir, ".sandbox-agent-doctor-")
	if err != nil {
		c.Found = fmt.Sprint(advise(err, in.root))
		return c
	}
	defer func() { _ = os.RemoveAll(probe) }()
	script := filepath.Join(probe, "run")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		c.Found = fmt.Sprint(advise(err, in.root))
		return c
	}
	if _, _, err := run(ctx, askLimit, process.Spec{Path: script, Dir: probe}, "", nil); errors.Is(err, fs.ErrPermission) {
		c.Found = in.root + " is on a file system that forbids running programs (noexec)"
		return c
	}
	c.Status, c.Remedy = CheckOK, ""
	if free, ok := freeSpace(dir); ok {
		c.Found = fmt.Sprintf("%s has %.1f GB free", in.root, float64(free)/1e9)
		if free < roomForIt {
			c.Status, c.Remedy = CheckWarning, "free some space, or choose another data directory: an agent may need 1 GB while it is being installed"
		}
	}
	return c
}

func checkTempDir(context.Context) Check {
	dir, err := os.MkdirTemp("", "sandbox-agent-doctor-")
	if err != nil {
		return Check{Name: "temporary directory", Status: CheckFailed, Found: err.Error(), Remedy: "make " + os.TempDir() + " writable, or name another directory with TMPDIR"}
	}
	_ = os.Remove(dir)
	return Check{Name: "temporary directory", Status: CheckOK, Found: os.TempDir()}
}

// checkCertificates looks for the authorities that downloads trust. npm brings
// its own.
func checkCertificates(context.Context) Check {
	c := Check{Name: "certificates", Status: CheckOK, Found: "the system has authorities to trust"}
	if goruntime.GOOS != "linux" {
		return c
	}
	pool, err := x509.SystemCertPool()
	if err == nil && !pool.Equal(x509.NewCertPool()) {
		return c
	}
	c.Status, c.Found = CheckWarning, "no authority is trusted, so nothing can be downloaded over https"
	if err != nil {
		c.Found += ": " + err.Error()
	}
	c.Remedy = "install the package ca-certificates, or name a file of certificates with SSL_CERT_FILE"
	return c
}

// checkClient looks for a program that installations may use; absent is what it
// means when there is none.
func checkClient(name string, absent CheckStatus, without, remedy string) func(context.Context) Check {
	return func(ctx context.Context) Check {
		c := Check{Name: name, Status: CheckOK}
		said, err := versionOf(ctx, name)
		if c.Found = said; err != nil {
			c.Status, c.Found, c.Remedy = absent, err.Error()+"; "+without, remedy
		}
		return c
	}
}

// versionOf asks a program of this machine, which needs its own home directory
// for its configuration, for its version.
func versionOf(ctx context.Context, name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s %w in PATH", name, errMissing)
	}
	stdout, stderr, err := run(ctx, askLimit, process.Spec{Path: path, Args: []string{"--version"}, Env: fetchEnviron("NPM_", "NODE_", "UV_")}, "", nil)
	if err != nil {
		return "", fmt.Errorf("%s --version %w", path, err)
	}
	return firstLine(stdout, stderr) + " at " + path, nil
}
