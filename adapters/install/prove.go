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

	"sandboxagent.dev/sandbox-agent/internal/process"
)

// The ways in which a program is proved.
const (
	HandshakeVersion    = "version"    // it said its version
	HandshakeInitialize = "initialize" // it answered initialize as an ACP agent
)

// proof is what a program answered.
type proof struct {
	reported  string // the line that it said of itself
	handshake string
}

// prove runs a program with --version. If it is an ACP agent, acp are the
// arguments that make it one, and it is then asked to initialize: that counts,
// a missing --version does not.
//
// The program sees no home directory, no credentials and no terminal.
func (in *Installer) prove(ctx context.Context, program string, args, env, acp []string) (proof, error) {
	home, remove, err := in.home()
	if err != nil {
		return proof{}, fmt.Errorf("make a home directory for the proof: %w", err)
	}
	defer remove()
	spec := process.Spec{
		Path: program,
		Args: append(args[:len(args):len(args)], "--version"),
		Dir:  home,
		Env: append(append(environ(), "HOME="+home, "XDG_CONFIG_HOME="+home+"/.config", "XDG_DATA_HOME="+home+"/.local/share",
			"XDG_CACHE_HOME="+home+"/.cache", "XDG_STATE_HOME="+home+"/.local/state", "TERM=dumb", "NO_COLOR=1", "CI=1"), env...),
	}
	p := proof{handshake: HandshakeVersion}
	stdout, stderr, err := run(ctx, in.proof, spec, "", nil)
	if err == nil {
		p.reported = firstLine(stdout, stderr)
	}
	if ctx.Err() != nil {
		return proof{}, context.Cause(ctx)
	}
	if acp == nil || err != nil && (local(err) || errors.Is(err, fs.ErrNotExist)) {
		if err != nil {
			return proof{}, proofError(program, err)
		}
		return p, nil
	}
	spec.Args = append(args[:len(args):len(args)], acp...)
	name, aerr := initialize(ctx, in.proof, spec)
	switch {
	case ctx.Err() != nil:
		return proof{}, context.Cause(ctx)
	case aerr != nil && err != nil:
		return proof{}, proofError(program, err)
	case aerr != nil:
		return proof{}, fmt.Errorf("%s says %q, but did not answer initialize as an ACP agent: with %q it %w", program, p.reported, strings.Join(acp, " "), aerr)
	}
	p.handshake = HandshakeInitialize
	if p.reported == "" {
		p.reported = name
	}
	return p, nil
}

// home makes a home directory for a program that is tried.
func (in *Installer) home() (dir string, remove func(), err error) {
	if in.temp != "" {
		err = os.MkdirAll(in.temp, 0o700)
	}
	if err == nil {
		dir, err = os.MkdirTemp(in.temp, "sandbox-agent-home-")
	}
	return dir, func() { _ = os.RemoveAll(dir) }, err
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
	_, stderr, err := run(ctx, limit, spec, ask, func(stdout string) bool {
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
				if name = strings.TrimSpace(m.Result.AgentInfo.Name + " " + m.Result.AgentInfo.Version); name == "" {
					name = "ACP agent"
				}
				return true
			}
		}
		return false
	})
	switch _, ended := errors.AsType[*runError](err); {
	case err == nil && name == "":
		err = errors.New("ended without an answer: " + quoted(stderr))
	case err != nil && !ended:
		err = fmt.Errorf("%w: %s", err, quoted(stderr))
	}
	return name, err
}

// quoted is the end of what a program wrote to stderr, for an error.
func quoted(stderr string) string {
	if stderr = ending(stderr); stderr == "" {
		return "it wrote nothing to stderr"
	}
	return fmt.Sprintf("its stderr ends with %q", stderr)
}
