// Package all lists the agents this gateway knows.
package all

import (
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/claude"
	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/adapters/native"
)

// Options configure the list.
type Options struct {
	// Commands are the user's own agents by name: the program and its
	// arguments, which must speak ACP on stdio.
	Commands map[string][]string
}

// Adapters returns the built-in agents and then the user's own, by name. A
// command with a built-in agent's name replaces it.
func Adapters(o Options) []adapters.Adapter {
	builtin := []adapters.Adapter{mock.New(""), claude.New()}
	list := slices.DeleteFunc(builtin, func(a adapters.Adapter) bool { return o.Commands[a.Info().ID] != nil })
	for _, name := range slices.Sorted(maps.Keys(o.Commands)) {
		argv := o.Commands[name]
		if len(argv) == 0 {
			continue
		}
		list = append(list, native.New(
			adapters.Info{ID: name, Name: name, Kind: adapters.Custom},
			native.Command{Path: argv[0], Args: argv[1:]},
		))
	}
	return list
}
