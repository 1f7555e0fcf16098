package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"
)

// stdio are the streams of one run of the program.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

const description = `One gateway between clients of the Agent Client Protocol and coding agents.

Start one with "sandbox-agent server" and talk to it with "sandbox-agent prompt".
Commands that talk to a gateway find it by --endpoint or SANDBOX_AGENT_ENDPOINT,
and present the token of --token-file or SANDBOX_AGENT_TOKEN.

EXIT CODES:
   0    success
   1    failure
   2    wrong usage
   3    the gateway cannot be reached
   4    the token is missing or wrong, or the agent needs a login
   5    the session, agent or address does not exist
   6    the agent failed
   7    the agent refused the prompt, or asked when there was nobody to answer
   8    the turn ended early, at a limit of tokens or requests
   124  timed out
   130  interrupted
process run and process attach end as the program does.`

// run runs the program with its arguments and returns its exit code.
func run(ctx context.Context, args []string, std stdio) int {
	app := newApp(std)
	args = plainly(args)
	err := unknownCommand(app, args)
	if err == nil {
		err = app.RunContext(ctx, append([]string{app.Name}, flagsFirst(app, args)...))
	}
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*programExit](err); ok { // it has said what it had to say
		return exitCode(err)
	}
	printError(std.err, err, slices.Contains(args, "--json") || slices.Contains(args, "-json"))
	return exitCode(err)
}

func newApp(std stdio) *cli.App {
	app := &cli.App{
		Name:            "sandbox-agent",
		Usage:           "run coding agents behind the Agent Client Protocol",
		Description:     description,
		Version:         version,
		HideVersion:     true, // the version command tells more
		HideHelpCommand: true,
		Reader:          std.in,
		Writer:          std.out,
		ErrWriter:       std.err,
		// Values such as command lines contain commas.
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		Action:                    missingCommand,
		Commands: []*cli.Command{
			serverCommand(std),
			acpCommand(std),
			daemonCommand(std),
			promptCommand(std),
			chatCommand(std),
			rpcCommand(std),
			sessionsCommand(std),
			teleportCommand(std),
			journalCommand(std),
			agentsCommand(std),
			fsCommand(std),
			processCommand(std),
			credentialsCommand(std),
			doctorCommand(std),
			healthCommand(std),
			metricsCommand(std),
			openapiCommand(std),
			versionCommand(std),
			completionCommand(std),
		},
	}
	app.OnUsageError = usageError
	prepare(app.Commands, "sandbox-agent")
	for _, c := range app.Commands {
		c.HelpName = c.Name // the library puts the program's name before it
	}
	return app
}

// prepare gives every command what the library does not pass on to commands
// within commands.
func prepare(commands []*cli.Command, path string) {
	for _, c := range commands {
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		c.HelpName = path + " " + c.Name
		if len(c.Subcommands) > 0 {
			c.Action = missingCommand
			prepare(c.Subcommands, c.HelpName)
		}
	}
}

// errUsage is in the chain of errors about arguments.
var errUsage = errors.New("wrong usage")

type usage struct{ text, command string }

func (e *usage) Error() string        { return e.text }
func (e *usage) Is(target error) bool { return target == errUsage }

// usagef is an error about the arguments of a command.
func usagef(c *cli.Context, format string, args ...any) error {
	return &usage{fmt.Sprintf(format, args...), commandPath(c)}
}

func commandPath(c *cli.Context) string {
	if c.Command != nil && c.Command.HelpName != "" {
		return c.Command.HelpName
	}
	return c.App.Name
}

// missingCommand is the action of what only has commands.
func missingCommand(c *cli.Context) error {
	if c.Command != nil && len(c.Command.Subcommands) > 0 && c.Command.Name != c.App.Name {
		var names []string
		for _, sub := range c.Command.Subcommands {
			names = append(names, sub.Name)
		}
		return usagef(c, "a command is missing: %s", strings.Join(names, ", "))
	}
	return cli.ShowAppHelp(c)
}

// serverLine stands for flags of the server command, which a command passes on.
const serverLine = "[FLAGS OF THE SERVER COMMAND]"

// exactly returns the arguments of a command that takes as many as there are
// names.
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
