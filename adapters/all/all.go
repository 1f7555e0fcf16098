// Package all lists the agents this gateway knows.
//
//go:generate go run ./internal/matrix ../../docs/agents.mdx
package all

import (
	"maps"
	"path/filepath"
	"slices"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/amp"
	"sandboxagent.dev/sandbox-agent/adapters/claude"
	"sandboxagent.dev/sandbox-agent/adapters/codex"
	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/adapters/native"
	"sandboxagent.dev/sandbox-agent/adapters/opencode"
	"sandboxagent.dev/sandbox-agent/adapters/pi"
)

// Options configure the list.
type Options struct {
	// DataDir holds the file with the user's own agents; "" for no file.
	DataDir string
	// Commands are more of the user's own agents by name: the program and its
	// arguments, which must speak ACP on stdio. They win over the file.
	Commands map[string][]string
}

// builtin returns the agents that need no configuration.
func builtin() []adapters.Adapter {
	list := []adapters.Adapter{
		claude.New(),
		codex.New(),
		opencode.New(),
		amp.New(),
		pi.New(),
		mock.New(""),
	}
	for _, spec := range native.Table() {
		list = append(list, native.New(spec))
	}
	return list
}

// Adapters returns the built-in agents and then the user's own, by name. One of
// the user's that has a built-in agent's name replaces it. The error says what
// is wrong with the user's file.
func Adapters(o Options) ([]adapters.Adapter, error) {
	own := map[string]adapters.Adapter{}
	if o.DataDir != "" {
		commands, err := native.ReadCommands(filepath.Join(o.DataDir, native.CommandsFile))
		if err != nil {
			return nil, err
		}
		for _, c := range commands {
			own[c.Info().ID] = c
		}
	}
	for name, argv := range o.Commands {
		if len(argv) > 0 {
			own[name] = native.NewCustom(adapters.Info{ID: name, Name: name, Kind: adapters.Custom}, native.Command{Path: argv[0], Args: argv[1:]}, false)
		}
	}
	list := slices.DeleteFunc(builtin(), func(a adapters.Adapter) bool { return own[a.Info().ID] != nil })
	for _, name := range slices.Sorted(maps.Keys(own)) {
		list = append(list, own[name])
	}
	return list, nil
}
