// Package cmdline has what the command lines of both programs share: the order of
// flags, what is said of wrong use and of errors, tokens, and output for people and
// programs.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Usage is an error about the arguments of a command.
type Usage struct{ Text, Command string }

func (e *Usage) Error() string { return e.Text }

// Usagef is an error about the arguments of the command that c runs.
func Usagef(c *cli.Context, format string, args ...any) error {
	return &Usage{fmt.Sprintf(format, args...), path(c)}
}

// path is the command with those that it is within.
func path(c *cli.Context) string {
	if c.Command != nil && c.Command.HelpName != "" {
		return c.Command.HelpName
	}
	return c.App.Name
}

// Prepare gives an app and all of its commands the manners of both programs.
func Prepare(app *cli.App) {
	app.HideVersion = true // the version command tells more
	app.HideHelpCommand = true
	app.DisableSliceFlagSeparator = true // values such as command lines contain commas
	app.ExitErrHandler = func(*cli.Context, error) {}
	app.Action = missingCommand
	app.OnUsageError = usageError
	prepare(app.Commands, app.Name)
	for _, c := range app.Commands {
		c.HelpName = c.Name // the library puts the program's name before it
	}
}

// prepare gives every command what the library does not pass on to commands
// within commands, and refuses durations that are negative.
func prepare(commands []*cli.Command, path string) {
	for _, c := range commands {
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		c.HelpName = path + " " + c.Name
		c.Before = givenFlags
		for _, f := range c.Flags {
			if d, ok := f.(*cli.DurationFlag); ok && d.Action == nil {
				d.Action = func(c *cli.Context, given time.Duration) error {
					if given < 0 {
						return Usagef(c, "--%s cannot be negative: %s", d.Name, given)
					}
					return nil
				}
			}
		}
		if len(c.Subcommands) > 0 {
			c.Action = missingCommand
			prepare(c.Subcommands, c.HelpName)
		}
	}
}

// givenFlags leaves a command, before it runs, only the flags that were given: to see which have an action the library looks for each
// of them among all of them, and that is a tenth of what a gateway does at its start.
func givenFlags(c *cli.Context) error {
	names := c.LocalFlagNames()
	var given []cli.Flag
	for _, f := range c.Command.Flags {
		if slices.ContainsFunc(f.Names(), func(name string) bool { return slices.Contains(names, name) }) {
			given = append(given, f)
		}
	}
	c.Command.Flags = given
	return nil
}

// missingCommand is the action of what only has commands.
func missingCommand(c *cli.Context) error {
	if c.Command != nil && len(c.Command.Subcommands) > 0 && c.Command.Name != c.App.Name {
		var names []string
		for _, sub := range c.Command.Subcommands {
			names = append(names, sub.Name)
		}
		return Usagef(c, "a command is missing: %s", strings.Join(names, ", "))
	}
	return cli.ShowAppHelp(c)
}

// Run runs an app that was prepared with the arguments of the program. behind says of a
// command what may stand behind its own flags; nil is a program in which nothing may.
func Run(ctx context.Context, app *cli.App, args []string, behind func(*cli.Command) Behind) error {
	args = CommandsFirst(app, plainly(app, args), behind)
	if err := unknownCommand(app, args); err != nil {
		return err
	}
	app.Metadata = map[string]any{behindKey: behind}
	args = FlagsFirst(app, args, behind)
	if err := badValue(app, args, behind); err != nil {
		return err
	}
	return app.RunContext(ctx, append([]string{app.Name}, args...))
}

// Exactly returns the arguments of a command that takes as many as there are
// names.
func Exactly(c *cli.Context, names ...string) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < len(names):
		return nil, Usagef(c, "%s is missing", names[len(args)])
	case len(args) > len(names):
		return nil, Usagef(c, "unexpected argument %q", args[len(names)])
	}
	for i, a := range args {
		if a == "" {
			return nil, Usagef(c, "%s is empty", names[i])
		}
	}
	return args, nil
}

// Each does something to each of what the arguments of a command name. One at which it fails keeps none behind it
// from that: the last error is returned, and those before are written as describe has them. What is no answer of a
// server ends it.
func Each(c *cli.Context, name string, errs io.Writer, describe func(error) Report, do func(arg string) error) error {
	args := c.Args().Slice()
	switch {
	case len(args) == 0:
		return Usagef(c, "%s is missing", name)
	case slices.Contains(args, ""):
		return Usagef(c, "%s is empty", name)
	}
	var failed error
	for _, arg := range args {
		err := do(arg)
		if err == nil {
			continue
		}
		if failed != nil {
			r := describe(failed)
			r.Print(errs, c.Bool("json"))
		}
		failed = err
		if _, answered := errors.AsType[*problem.Error](err); !answered {
			break // it is the same for all
		}
	}
	return failed
}
