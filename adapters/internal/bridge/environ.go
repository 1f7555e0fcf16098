package bridge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// Inherited returns the environment that agents inherit: the gateway's own
// without what configures the gateway, its token above all.
func Inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SANDBOX_AGENT_") })
}

// Environ returns the environment of a native process: what agents inherit, what
// the program needs, what the session asks for, and set, NAME=value, each
// overriding what came before. The variables named by drop are left out unless
// set has them: a session's own credentials replace all others.
func Environ(o adapters.Options, drop []string, set ...string) []string {
	env := slices.Concat(Inherited(), o.Program.Env, o.Env)
	env = slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(drop, name)
	})
	return append(env, set...)
}

// Lookup returns the value that a variable has in env, where the last one counts.
func Lookup(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// DataDir returns where a program that keeps to the XDG directories has its data, with env.
func DataDir(env []string, program string) string {
	if dir := Lookup(env, "XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, program)
	}
	return filepath.Join(Lookup(env, "HOME"), ".local", "share", program)
}
