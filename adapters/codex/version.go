package codex

import (
	"context"
	"slices"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// oldest is the first version whose app-server has all requests that this
// package needs: 0.130 lacks thread/settings/update.
const oldest = "0.140.0"

// versionBound limits how long a program may take to tell its version.
const versionBound = 10 * time.Second

var versionForm = pattern.New(`(\d+)\.(\d+)\.(\d+)`)

// checkVersion refuses a program that is too old. A version that is not known is
// asked for; what cannot be run is left to fail where it is started.
func checkVersion(ctx context.Context, o adapters.Options) error {
	version := o.Program.Version
	if version == "" {
		ctx, cancel := bridge.Within(ctx, versionBound)
		defer cancel()
		said, err := bridge.Output(ctx, process.Spec{Path: o.Program.Path, Args: append(slices.Clone(o.Program.Args), "--version"), Env: bridge.Environ(o, nil)})
		if err != nil {
			return nil
		}
		version = said
	}
	found := versionForm.FindString(version)
	if found == "" || slices.Compare(numbers(found), numbers(oldest)) >= 0 {
		return nil
	}
	return &adapters.NotInstalledError{
		Agent: ID, Found: found,
		Remedy: "version " + oldest + " or newer is needed; install it with `sandbox-agent agents install codex`, or update the one at " + o.Program.Path,
	}
}

// numbers returns the parts of a version, which has the [versionForm].
func numbers(version string) []int {
	var out []int
	for _, part := range versionForm.FindStringSubmatch(version)[1:] {
		n, _ := strconv.Atoi(part)
		out = append(out, n)
	}
	return out
}
