package cmdline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// usageError is the error of arguments that the library does not take.
func usageError(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return unknownFlag(c, name)
	}
	if head, name, ok := strings.Cut(text, "flag needs an argument: -"); ok && head == "" {
		return &Usage{"the value of " + dashes(name) + " is missing", path(c)}
	}
	// could not parse "x" as bool value from environment variable "NAME" for flag ephemeral: strconv...
	if value, rest, ok := strings.Cut(strings.TrimPrefix(text, "could not parse "), " from environment variable "); ok {
		if i := strings.LastIndex(value, " as "); i > 0 {
			value = value[:i]
		}
		variable, rest, _ := strings.Cut(rest, " for flag ")
		name, _, _ := strings.Cut(rest, ":")
		return &Usage{"invalid value " + value + " of the variable " + strings.Trim(variable, `"`) + ": " + wanted(c, name), path(c)}
	}
	// invalid value "x" for flag -timeout: parse error
	if head, tail, ok := strings.Cut(text, " for flag -"); ok {
		name, why, _ := strings.Cut(tail, ":")
		if why == " parse error" {
			why = " " + wanted(c, name)
		}
		text = head + " for " + dashes(name) + ":" + why
	}
	// invalid boolean value "x" for -json: parse error
	if value, tail, ok := strings.Cut(strings.TrimPrefix(text, "invalid boolean value "), " for -"); ok && strings.HasSuffix(tail, ": parse error") {
		name, _, _ := strings.Cut(tail, ":")
		text = "invalid value " + value + " for " + dashes(name) + ": it is true or false"
	}
	return &Usage{text, path(c)}
}

// wanted says what the value of a flag looks like.
func wanted(c *cli.Context, name string) string {
	flags := c.App.Flags
	if c.Command != nil {
		flags = slices.Concat(flags, c.Command.Flags)
	}
	for _, f := range flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			return "it is a time with its unit, as 90s, 5m or 1h30m"
		case *cli.IntFlag, *cli.Int64Flag, *cli.UintFlag, *cli.Uint64Flag:
			return "it is a whole number"
		case *cli.Float64Flag:
			return "it is a number"
		case *cli.BoolFlag:
			return "it is true or false"
		}
	}
	return "it cannot be understood"
}

// dashes is a flag as people write it.
func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// unknownFlag says which flag could be meant, or which command has it.
func unknownFlag(c *cli.Context, name string) error {
	top := c.Command == nil || c.Command.Name == c.App.Name
	text, flags := "there is no flag "+dashes(name), c.App.Flags
	if !top {
		flags = c.Command.Flags
	}
	var known []string
	for _, f := range slices.Concat(flags, passed(c)) {
		known = append(known, f.Names()...)
	}
	if top {
		known = append(known, "version") // it is a command, see plainly
	}
	if like := Nearest(name, append(known, "help")); like != "" {
		return &Usage{text + ": did you mean " + dashes(like) + "?", path(c)}
	}
	commands, at := c.App.Commands, c.App.Name
	if !top {
		commands, at = c.Command.Subcommands, path(c)
	}
	if command := commandWith(commands, name); command != nil {
		text = fmt.Sprintf("%s before a command: it belongs behind one, as in %s %s %s", dashes(name), at, command.Name, dashes(name))
	}
	return &Usage{text, path(c)}
}

// passed are the flags that the command of c passes on.
func passed(c *cli.Context) []cli.Flag {
	behind, _ := c.App.Metadata[behindKey].(func(*cli.Command) Behind)
	if behind == nil || c.Command == nil {
		return nil
	}
	return behind(c.Command).Passed
}

// behindKey is where an app has what may stand behind the flags of its commands.
const behindKey = "behind"

// commandWith returns the first command that has a flag; the gateway's own comes
// first.
func commandWith(commands []*cli.Command, flag string) *cli.Command {
	for _, c := range commands {
		for _, f := range c.Flags {
			if slices.Contains(f.Names(), flag) {
				return c
			}
		}
	}
	return nil
}

// unknownCommand is the error of the first word that is in the place of a command
// and is none; nil when all are known.
func unknownCommand(app *cli.App, args []string) error {
	path, commands := app.Name, app.Commands
	for _, a := range args {
		if a == "" || a[0] == '-' {
			return nil
		}
		c := Find(commands, a)
		if c == nil {
			var names []string
			for _, sub := range commands {
				if !sub.Hidden {
					names = append(names, sub.Name)
				}
			}
			text := fmt.Sprintf("there is no command %q", a)
			if like := cmp.Or(Nearest(a, names), synonym(a, names), below(commands, a)); like != "" {
				text += ": did you mean " + like + "?"
			}
			return &Usage{text, path}
		}
		if len(c.Subcommands) == 0 {
			return nil
		}
		path, commands = path+" "+c.Name, c.Subcommands
	}
	return nil
}

// below returns the only command of commands that has one called name, with it; "" for
// none or several.
func below(commands []*cli.Command, name string) string {
	var found []string
	for _, c := range commands {
		if !c.Hidden && Find(c.Subcommands, name) != nil {
			found = append(found, c.Name+" "+name)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// synonyms are words of other programs for what a command does.
var synonyms = [][]string{
	{"list", "ls", "dir"},
	{"rm", "delete", "remove", "uninstall", "del"},
	{"cp", "copy"},
	{"mv", "move", "rename"},
	{"get", "cat", "read", "download"},
	{"show", "info", "describe", "inspect", "status"},
	{"put", "write", "upload"},
	{"stop", "kill", "terminate", "close", "end"},
	{"start", "run", "exec", "up"},
	{"install", "add"},
	{"import", "load", "restore"},
	{"export", "save", "dump"},
}

// synonym returns the name that says the same as a word; "" when none does.
func synonym(word string, names []string) string {
	for _, same := range synonyms {
		if !slices.Contains(same, word) {
			continue
		}
		for _, name := range same {
			if slices.Contains(names, name) {
				return name
			}
		}
	}
	return ""
}

// Nearest returns the name that a mistyped word is most like; "" when it is like
// none.
func Nearest(word string, names []string) string {
	best, least := "", 1+max(1, min(len(word)/3, 3))
	for _, name := range names {
		if d := distance(strings.ToLower(word), name); d < least && d < len(name) {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters must be added, removed, changed or swapped with
// their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// plainly rewrites what people type by habit to what the program has: --version
// and -v for version, help COMMAND and COMMAND help for COMMAND --help, the latter where only
// the name of another command can stand.
func plainly(app *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	for commands, i := app.Commands, 0; i < len(args) && len(commands) > 0; i++ {
		if i > 0 && args[i] == "help" {
			return slices.Concat(args[:i], args[i+1:], []string{"--help"})
		}
		c := Find(commands, args[i])
		if c == nil {
			break
		}
		commands = c.Subcommands
	}
	switch args[0] {
	case "--version", "-version", "-v":
		return append([]string{"version"}, args[1:]...)
	case "help":
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}
