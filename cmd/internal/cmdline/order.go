package cmdline

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// Behind is what may stand behind the flags of a command.
type Behind struct {
	Program bool       // the command line of a program, whose flags are its own
	Passed  []cli.Flag // flags that are passed on; those that are not the command's own
}

// FlagsFirst moves flags before the other arguments of their command, so that
// both orders work: the library takes everything behind the first argument for
// arguments. What follows "--", or the name of a program to run, is left alone.
// Where a command passes flags on, those that are not its own are put behind "--". Who asks
// for help gets that alone: the library takes an argument beside it for a topic.
func FlagsFirst(app *cli.App, args []string, behind func(*cli.Command) Behind) []string {
	var out []string
	command := &cli.Command{Subcommands: app.Commands, Flags: app.Flags}
	i := 0
	for ; i < len(args); i++ { // the names of commands
		c := Find(command.Subcommands, args[i])
		if c == nil {
			break
		}
		out = append(out, args[i])
		command = c
	}
	var last Behind
	if behind != nil {
		last = behind(command)
	}
	var flags, passed, rest []string
	divided := false // there was a "--"
	for ; i < len(args); i++ {
		a := args[i]
		if a == "--" || last.Program && (len(a) < 2 || a[0] != '-') {
			if a == "--" {
				i++
			}
			divided = true
			rest = append(rest, args[i:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		name, _, joined := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !has(command.Flags, name) && has([]cli.Flag{cli.HelpFlag}, name) {
			return append(out, "--help")
		}
		into, known := &flags, command.Flags
		if !has(known, name) && has(last.Passed, name) {
			into, known, divided = &passed, last.Passed, true
		}
		*into = append(*into, a)
		if joined || !takesValue(known, name) {
			continue
		}
		if i++; i == len(args) { // nothing may stand behind it, or it would be taken for the value
			rest = nil
			break
		}
		*into = append(*into, args[i])
	}
	out = append(out, flags...)
	if divided {
		out = append(out, "--")
	}
	return slices.Concat(out, passed, rest)
}

// mayBeEmpty are flags whose empty value says something: a text that is taken away, or that
// nothing is looked for.
var mayBeEmpty = []string{"title", "note", "content", "search", "query"}

// mustBeText are flags whose value the gateway is told, which can be told UTF-8 only. Names of
// files of this machine may be any bytes.
var mustBeText = []string{"cwd", "agent-cwd"}

// badValue is the error of the first flag that was given a value which none can be: an empty one,
// as "$NAME" is in a script when NAME is not set, which taken for no value would be another command,
// or one that the gateway would be told otherwise. args are in the order of FlagsFirst. What comes
// from the environment is not looked at, where empty is unset.
func badValue(app *cli.App, args []string, behind func(*cli.Command) Behind) error {
	command, path := &cli.Command{Subcommands: app.Commands, Flags: app.Flags}, app.Name
	for len(args) > 0 {
		c := Find(command.Subcommands, args[0])
		if c == nil {
			break
		}
		command, path, args = c, path+" "+c.Name, args[1:]
	}
	known := command.Flags
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" && behind != nil && len(behind(command).Passed) > 0 {
			known = behind(command).Passed
			continue
		}
		if len(a) < 2 || a[0] != '-' || a == "--" {
			return nil
		}
		name, value, joined := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !takesValue(known, name) {
			continue
		}
		if !joined {
			if i++; i == len(args) {
				return nil
			}
			value = args[i]
		}
		if value == "" && !slices.Contains(mayBeEmpty, name) {
			return &Usage{"the value of " + dashes(name) + " is empty", path}
		}
		if !utf8.ValidString(value) && slices.Contains(mustBeText, name) {
			return &Usage{"the value of " + dashes(name) + " is not UTF-8: the gateway can be told no other names", path}
		}
	}
	return nil
}

// Find returns the command of a name, or nil.
func Find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

func has(flags []cli.Flag, name string) bool {
	return slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

// takesValue reports whether the flag's value is the next argument.
func takesValue(flags []cli.Flag, name string) bool {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			d, ok := f.(cli.DocGenerationFlag)
			return ok && d.TakesValue()
		}
	}
	return false
}

// CommandsFirst moves flags that stand before the name of a command behind it. Which take a
// value is what the commands that may still come say of them; where none of these has a
// flag, or they do not agree, the arguments are left as they are.
func CommandsFirst(app *cli.App, args []string, behind func(*cli.Command) Behind) []string {
	var names, early []string
	commands := app.Commands
	i := 0
	for ; i < len(args) && len(commands) > 0; i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' {
			c := Find(commands, a)
			if c == nil {
				break
			}
			names, commands = append(names, a), c.Subcommands
			continue
		}
		name, _, joined := strings.Cut(strings.TrimLeft(a, "-"), "=")
		value, known := valueBelow(commands, name, behind)
		if !known || a == "--" {
			return args
		}
		early = append(early, a)
		if value && !joined {
			if i++; i == len(args) {
				return args
			}
			early = append(early, args[i])
		}
	}
	if len(early) == 0 || len(commands) > 0 { // nothing is in the wrong place, or no command was found for it
		return args
	}
	return slices.Concat(names, early, args[i:])
}

// valueBelow reports whether a flag of some of the commands, or of those below them, takes a
// value; known is false if none has it, or they do not agree.
func valueBelow(commands []*cli.Command, name string, behind func(*cli.Command) Behind) (value, known bool) {
	for _, c := range commands {
		flags := c.Flags
		if behind != nil {
			flags = slices.Concat(flags, behind(c).Passed)
		}
		v, k := takesValue(flags, name), has(flags, name)
		if len(c.Subcommands) > 0 {
			v, k = valueBelow(c.Subcommands, name, behind)
		}
		switch {
		case !k:
		case known && v != value:
			return false, false
		default:
			value, known = v, true
		}
	}
	return value, known
}
