package native

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"github.com/BurntSushi/toml"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// CommandsFile is the name of the file with the user's own agents.
const CommandsFile = "agents.toml"

// command is one agent of the file.
type command struct {
	Name    string            `toml:"name"`
	Command string            `toml:"command"`
	Args    []string          `toml:"args"`
	Env     map[string]string `toml:"env"`
	Cwd     string            `toml:"cwd"`
	Icon    string            `toml:"icon"`
	ACP     *int              `toml:"acp"`
}

var commandID = pattern.New(`^[a-z0-9][a-z0-9_.-]*$`)

// ReadCommands reads the user's own agents from a file, by name:
//
//	[agents.NAME]
//	command = "program"    # a path, or a name that is looked up in PATH
//	args = ["--acp"]
//	env = { KEY = "value" }
//	cwd = "/folder"
//	icon = "https://..."
//	acp = 2                # the version of the protocol to ask for; 1 unless it is said
//	name = "for people"
//
// A file that does not exist has none. An error names the file and the place.
func ReadCommands(path string) ([]*Custom, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the user's agents: %w", err)
	}
	var doc struct {
		Agents map[string]command `toml:"agents"`
	}
	md, err := toml.Decode(string(b), &doc)
	if err != nil {
		return nil, fmt.Errorf("read the user's agents from %s: %w", path, err)
	}
	if unknown := md.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("read the user's agents from %s: %s is unknown; an agent has command, args, env, cwd, icon, acp and name below [agents.NAME]", path, unknown[0])
	}
	if t := md.Type("agents"); t != "" && t != "Hash" {
		return nil, fmt.Errorf("read the user's agents from %s: agents is not a table: write [agents.NAME]", path)
	}
	var out []*Custom
	for _, id := range slices.Sorted(maps.Keys(doc.Agents)) {
		c := doc.Agents[id]
		bad := func(format string, args ...any) error {
			return fmt.Errorf("read the user's agents from %s: agent %s: %s", path, id, fmt.Sprintf(format, args...))
		}
		switch {
		case !commandID.MatchString(id):
			return nil, bad("the name must be lower-case letters, digits, dots, dashes and underscores")
		case c.Command == "":
			return nil, bad("command is missing")
		case c.Cwd != "" && !filepath.IsAbs(c.Cwd):
			return nil, bad("cwd %q must be an absolute path", c.Cwd)
		case c.ACP != nil && *c.ACP != 1 && *c.ACP != 2:
			return nil, bad("acp is %d: the versions of the protocol are 1 and 2", *c.ACP)
		}
		cmd := Command{Path: c.Command, Args: c.Args, Dir: c.Cwd}
		if c.Cwd == "" && filepath.Base(c.Command) != c.Command && !filepath.IsAbs(c.Command) {
			cmd.Path = filepath.Join(filepath.Dir(path), c.Command) // wherever a gateway is started
		}
		for _, name := range slices.Sorted(maps.Keys(c.Env)) {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(c.Env[name], "\x00") {
				return nil, bad("env has the name %q, or a zero byte in its value", name)
			}
			cmd.Env = append(cmd.Env, name+"="+c.Env[name])
		}
		name := c.Name
		if name == "" {
			name = id
		}
		out = append(out, NewCustom(adapters.Info{ID: id, Name: name, Kind: adapters.Custom, Icon: c.Icon}, cmd, c.ACP != nil && *c.ACP == 2))
	}
	return out, nil
}
