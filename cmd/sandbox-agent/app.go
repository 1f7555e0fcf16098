package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// stdio are the streams of one run of the program.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	if w, ok := stream.(readOutput); ok {
		stream = w.Writer
	}
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

const description = `One gateway between clients of the Agent Client Protocol and coding agents.

Start one with "sandbox-agent server" or "sandbox-agent daemon start", and talk to
it with "sandbox-agent prompt" or "sandbox-agent chat". To try it without an account:

    sandbox-agent daemon start
    sandbox-agent prompt --agent mock hello

Commands that talk to a gateway find it by --endpoint or SANDBOX_AGENT_ENDPOINT,
and present the token of --token-file or SANDBOX_AGENT_TOKEN.

EXIT CODES:
   0    success
   1    failure
   2    wrong usage
   3    the gateway cannot be reached
   4    the token is missing or wrong, something is not allowed, or the agent needs a login
   5    the session, agent, folder or address does not exist
   6    the agent failed
   7    the agent refused the prompt, or asked when there was nobody to answer
   8    the turn ended early, at a limit of tokens, requests or cost
   124  timed out
   130  interrupted, or cancelled by somebody else
process run and process attach end as the program does.`

// run runs the program with its arguments and returns its exit code.
func run(ctx context.Context, args []string, std stdio) int {
	out, unwritten := cmdline.Written(std.out)
	std.out = out
	err := cmdline.Run(ctx, newApp(std), args, behind)
	if err == nil {
		err = unwritten()
	}
	if err == nil {
		return cmdline.ExitOK
	}
	r := describe(err)
	if _, ok := errors.AsType[*programExit](err); !ok { // else it has said what it had to say
		r.Print(std.err, slices.Contains(args, "--json") || slices.Contains(args, "-json"))
	}
	return r.Exit
}

func newApp(std stdio) *cli.App {
	app := &cli.App{
		Name:        "sandbox-agent",
		Usage:       "run coding agents behind the Agent Client Protocol",
		Description: description,
		Version:     version,
		Reader:      std.in,
		Writer:      std.out,
		ErrWriter:   std.err,
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
	cmdline.Prepare(app)
	return app
}

// serverLine stands for flags of the server command, which a command passes on.
const serverLine = "[FLAGS OF THE SERVER COMMAND]"

// behind says what may stand behind the flags of a command.
func behind(command *cli.Command) cmdline.Behind {
	switch command.ArgsUsage {
	case commandLine:
		return cmdline.Behind{Program: true}
	case serverLine:
		return cmdline.Behind{Passed: serverFlags()}
	}
	return cmdline.Behind{}
}
