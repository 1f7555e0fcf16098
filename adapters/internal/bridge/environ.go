package bridge

import (
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/native"
)

// Environ returns the environment of a native process: what agents inherit, what
// the program needs, what the session asks for, and set, NAME=value, each
// overriding what came before. The variables named by drop are left out unless
// set has them: a session's own credentials replace all others.
func Environ(o adapters.Options, drop []string, set ...string) []string {
	env := slices.Concat(native.Environ(), o.Program.Env, o.Env)
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
