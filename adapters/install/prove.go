package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/internal/process"
)

// prove runs a program with --version and returns the line it answers. acp are
// the arguments that make it an ACP agent, if it is one: a program that does
// not know --version is then asked to initialize, as the registry asks it.
//
// The program sees no home directory, no credentials and no terminal.
func (in *Installer) prove(ctx context.Context, program string, args, env, acp []string) (string, error) {
	home, err := os.MkdirTemp("", "sandbox-agent-prove-")
	if err != nil {
		return "", fmt.Errorf("make a home directory for the proof: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	spec := process.Spec{
		Path: program,
		Args: append(args[:len(args):len(args)], "--version"),
		Dir:  home,
		Env: append(append(environ(), "HOME="+home, "XDG_CONFIG_HOME="+home+"/.config", "XDG_DATA_HOME="+home+"/.local/share",
			"XDG_CACHE_HOME="+home+"/.cache", "XDG_STATE_HOME="+home+"/.local/state", "TERM=dumb", "NO_COLOR=1", "CI=1"), env...),
	}
	stdout, stderr, err := run(ctx, in.proof, spec, "", nil)
	if err == nil {
		return firstLine(stdout, stderr), nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if acp != nil && !local(err) && !errors.Is(err, fs.ErrNotExist) {
		spec.Args = append(args[:len(args):len(args)], acp...)
		if name, aerr := initialize(ctx, in.proof, spec); aerr == nil {
			return name, nil
		}
	}
	return "", proofError(program, err)
}

// proofError says why a program does not run here.
func proofError(program string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("run %s --version: its loader is missing, so it was built for another C library or processor: %w", program, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("run %s --version: it was built for another system: %w", program, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("run %s --version: the file system may forbid running programs (noexec), so choose another data directory: %w", program, err)
	}
	return fmt.Errorf("%s --version %w", program, err)
}

func firstLine(outputs ...string) string {
	for _, s := range outputs {
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != "" {
				return strings.ToValidUTF8(line[:min(len(line), 200)], "")
			}
		}
	}
	return ""
}

// initialize asks an ACP agent on stdio who it is.
func initialize(ctx context.Context, limit time.Duration, spec process.Spec) (string, error) {
	const ask = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},"clientInfo":{"name":"sandbox-agent","version":"0"}}}` + "\n"
	var name string
	_, _, err := run(ctx, limit, spec, ask, func(stdout string) bool {
		for line := range strings.Lines(stdout) {
			var m struct {
				ID     int `json:"id"`
				Result *struct {
					AgentInfo struct {
						Name    string `json:"name"`
						Version string `json:"version"`
					} `json:"agentInfo"`
				} `json:"result"`
			}
			if json.Unmarshal([]byte(line), &m) == nil && m.ID == 1 && m.Result != nil {
				name = strings.TrimSpace(m.Result.AgentInfo.Name + " " + m.Result.AgentInfo.Version)
				return true
			}
		}
		return false
	})
	if err == nil && name == "" {
		name = "ACP agent"
	}
	return name, err
}
