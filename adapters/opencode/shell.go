package opencode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// Commands that the model runs inherit the server's environment. With the password
// in it they could answer permissions by themselves. So OpenCode is given a shell
// that forgets such variables and becomes the real one.
const (
	hiddenVar = "SANDBOX_AGENT_HIDDEN" // the names, with spaces between them
	shellVar  = "SANDBOX_AGENT_SHELL"  // the real shell
)

// script forgets the variables. Its name is the real shell's, by which OpenCode
// knows how to use it.
const script = `#!/bin/sh
SHELL=$` + shellVar + `
export SHELL
unset $` + hiddenVar + ` ` + hiddenVar + ` ` + shellVar + `
exec "$SHELL" "$@"
`

// shells are those that OpenCode uses itself when it is given them.
var shells = []string{"bash", "zsh", "sh", "dash", "ksh"}

// hidden are the variables that commands do not get: what is for the server alone,
// and the keys of providers, but for those that the session's own env asks for.
func hidden(own []string) []string {
	names := []string{"OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME", "OPENCODE_AUTH_CONTENT", "OPENCODE_CONFIG_CONTENT"}
	for _, name := range keyVars() {
		if bridge.Lookup(own, name) == "" {
			names = append(names, name)
		}
	}
	return names
}

// realShell is the shell that commands run in: the user's, if OpenCode takes it.
func realShell(env []string) (string, error) {
	if own := bridge.Lookup(env, "SHELL"); filepath.IsAbs(own) && slices.Contains(shells, filepath.Base(own)) {
		if info, err := os.Stat(own); err == nil && info.Mode().IsRegular() {
			return own, nil
		}
	}
	for _, name := range shells {
		if path, err := exec.LookPath(name); err == nil && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no shell: neither SHELL nor PATH has one of %s", strings.Join(shells, ", "))
}

// veil makes the shell, and returns its path and the variables that it needs. It
// was tried, since a file system may not let it run.
func (a *agent) veil(ctx context.Context, env []string) (path string, set []string, err error) {
	if runtime.GOOS == "windows" {
		return "", nil, fmt.Errorf("hide variables from commands: not on Windows")
	}
	shell, err := realShell(env)
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(a.o.StateDir, "shell", filepath.Base(shell))
	names := hidden(a.o.Env)
	if bridge.Lookup(env, scratchVar) == "" {
		names = append(names, scratchVar)
	}
	set = []string{shellVar + "=" + shell, hiddenVar + "=" + strings.Join(names, " ")}
	if now, err := os.ReadFile(path); err != nil || string(now) != script {
		if err := bridge.WritePrivate(path, []byte(script)); err != nil {
			return "", nil, err
		}
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return "", nil, fmt.Errorf("make a shell: %w", err)
	}
	try := exec.CommandContext(ctx, path, "-c", ":")
	try.Env = slices.Concat(env, set)
	if out, err := try.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("run the shell %s: %w: %s", path, err, bridge.OneLine(string(out)))
	}
	return path, set, nil
}
