package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// stdio are the streams of one run of the program.
type stdio struct{ out, err io.Writer }

const description = `One address before many gateways, which join it as nodes.

Start one with "sandbox-hub serve". Commands that talk to a hub find it by --endpoint
or SANDBOX_HUB_ENDPOINT, and present the token of --token-file or SANDBOX_HUB_TOKEN.

EXIT CODES:
   0    success
   1    failure
   2    wrong usage
   3    the hub cannot be reached
   4    the token is missing or wrong, or does not allow it
   5    the node, session or token does not exist`

// run runs the program with its arguments and returns its exit code.
func run(ctx context.Context, args []string, std stdio) int {
	app := newApp(std)
	err := unknownCommand(app.Name, app.Commands, args)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, flagsFirst(app.Commands, args)...))
	}
	if err == nil {
		return exitOK
	}
	return printError(std.err, err, slices.Contains(args, "--json"))
}

func newApp(std stdio) *cli.App {
	app := &cli.App{
		Name:                      "sandbox-hub",
		Usage:                     "one address before many gateways",
		Description:               description,
		HideVersion:               true, // the version command tells more
		HideHelpCommand:           true,
		Writer:                    std.out,
		ErrWriter:                 std.err,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              usageError,
		Commands:                  []*cli.Command{serveCommand(std), tokenCommand(std), nodeCommand(std), sessionCommand(std), healthCommand(std), versionCommand(std)},
	}
	app.Action = func(c *cli.Context) error { return cli.ShowAppHelp(c) }
	prepare(app.Commands, app.Name)
	for _, c := range app.Commands {
		c.HelpName = c.Name // the library puts the program's name before it
	}
	return app
}

// prepare gives every command what the library does not pass on.
func prepare(commands []*cli.Command, path string) {
	for _, c := range commands {
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		c.HelpName = path + " " + c.Name
		if len(c.Subcommands) > 0 {
			c.Action = func(c *cli.Context) error {
				return usagef(c, "a command is missing: %s", strings.Join(names(c.Command.Subcommands), ", "))
			}
			prepare(c.Subcommands, c.HelpName)
		}
	}
}

func names(commands []*cli.Command) (out []string) {
	for _, c := range commands {
		out = append(out, c.Name)
	}
	return out
}

// usage is an error about the arguments of a command.
type usage struct{ text, command string }

func (e *usage) Error() string { return e.text }

func usagef(c *cli.Context, format string, args ...any) error {
	command := c.App.Name
	if c.Command != nil && c.Command.HelpName != "" {
		command = c.Command.HelpName
	}
	return &usage{fmt.Sprintf(format, args...), command}
}

func usageError(c *cli.Context, err error, _ bool) error { return usagef(c, "%s", err) }

// unknownCommand names a word that stands where a command should.
func unknownCommand(path string, commands []*cli.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || len(commands) == 0 {
		return nil
	}
	i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == args[0] })
	if i < 0 {
		return &usage{fmt.Sprintf("there is no command %q: use %s", args[0], strings.Join(names(commands), ", ")), path}
	}
	return unknownCommand(path+" "+args[0], commands[i].Subcommands, args[1:])
}

// flagsFirst moves flags before the other arguments of their command, so that both
// orders work: the library takes all behind the first argument for arguments.
func flagsFirst(commands []*cli.Command, args []string) []string {
	var path, flags, rest []string
	var known []cli.Flag
	for len(args) > 0 {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == args[0] })
		if i < 0 {
			break
		}
		path, known, commands, args = append(path, args[0]), commands[i].Flags, commands[i].Subcommands, args[1:]
	}
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		switch {
		case a == "--":
			rest, args = append(rest, args...), nil
		case len(a) < 2 || a[0] != '-':
			rest = append(rest, a)
		default:
			flags = append(flags, a)
			if name := strings.TrimLeft(a, "-"); takesValue(known, name) && len(args) > 0 {
				flags, args = append(flags, args[0]), args[1:]
			}
		}
	}
	if len(rest) > 0 {
		rest = append([]string{"--"}, rest...)
	}
	return slices.Concat(path, flags, rest)
}

// takesValue reports whether the argument behind the flag is its value.
func takesValue(known []cli.Flag, name string) bool {
	i := slices.IndexFunc(known, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return false
	}
	_, plain := known[i].(*cli.BoolFlag)
	return !plain
}

// exactly returns the arguments of a command that takes as many as there are names.
func exactly(c *cli.Context, names ...string) ([]string, error) {
	args := c.Args().Slice()
	switch {
	case len(args) < len(names):
		return nil, usagef(c, "%s is missing", names[len(args)])
	case len(args) > len(names):
		return nil, usagef(c, "unexpected argument %q", args[len(names)])
	}
	for i, a := range args {
		if a == "" {
			return nil, usagef(c, "%s is empty", names[i])
		}
	}
	return args, nil
}
