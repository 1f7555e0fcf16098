package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters/credentials"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func credentialsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "credentials",
		Usage: "find the keys and logins that agents use on this machine",
		Description: `They are looked for in the environment and in agents' own files in the home
directory. Nothing is sent anywhere. To give them to a sandbox:

  sandbox-agent credentials extract-env > sandbox.env.new && mv sandbox.env.new sandbox.env`,
		Subcommands: []*cli.Command{extractCommand(std), extractEnvCommand(std)},
	}
}

// credentialFlags say where to look, and for what.
func credentialFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringSliceFlag{Name: "agent", Usage: "only the files of this agent, one of " + strings.Join(credentials.Agents(), ", ") + "; may be repeated"},
		&cli.StringSliceFlag{Name: "provider", Usage: "only credentials for this provider, such as anthropic or openai; may be repeated"},
		&cli.StringFlag{Name: "home-dir", Usage: "look for files in this home directory", DefaultText: "your own"},
		&cli.BoolFlag{Name: "no-oauth", Usage: "leave out the tokens of logins, which expire"},
	}, more...)
}

// findCredentials does what the flags say. Files that cannot be used are told of
// on the standard error.
func findCredentials(c *cli.Context, std stdio) ([]credentials.Credential, []credentials.Problem, error) {
	if _, err := cmdline.Exactly(c); err != nil {
		return nil, nil, err
	}
	o := credentials.Options{
		Home: c.String("home-dir"), Agents: cmdline.Words(c.StringSlice("agent")), Providers: cmdline.Words(c.StringSlice("provider")), NoOAuth: c.Bool("no-oauth"),
	}
	for _, agent := range o.Agents {
		if !credentials.Known(agent) {
			return nil, nil, cmdline.Usagef(c, "--agent %s: credentials are known of %s", agent, strings.Join(credentials.Agents(), ", "))
		}
	}
	if o.Home != "" && !isFolder(o.Home) {
		return nil, nil, cmdline.Usagef(c, "--home-dir: there is no folder %s", o.Home)
	}
	found, problems := credentials.Find(o)
	for _, p := range problems {
		fmt.Fprintf(std.err, "%s: %s\n", p.File, p.Reason)
	}
	return found, problems, nil
}

func extractCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "extract",
		Usage:       "show the keys and logins that are there",
		Description: "Values are shortened so that they can be told apart; --reveal shows them.",
		Flags: credentialFlags(
			&cli.BoolFlag{Name: "reveal", Usage: "show the values"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
		),
		Action: func(c *cli.Context) error {
			found, problems, err := findCredentials(c, std)
			if err != nil {
				return err
			}
			choices := credentials.Choices(found, time.Now())
			if !c.Bool("reveal") {
				for i := range found {
					found[i].Value = found[i].Redacted()
				}
			}
			if c.Bool("json") {
				if found == nil {
					found = []credentials.Credential{}
				}
				if problems == nil {
					problems = []credentials.Problem{}
				}
				cmdline.WriteJSON(std.out, struct {
					Credentials []credentials.Credential `json:"credentials"`
					Problems    []credentials.Problem    `json:"problems"`
					Choices     []credentials.Choice     `json:"choices,omitempty"`
				}{found, problems, choices})
				return nil
			}
			if len(found) == 0 {
				fmt.Fprintln(std.err, "none found")
				return nil
			}
			rows := [][]string{{"PROVIDER", "KIND", "VALUE", "EXPIRES", "FROM"}}
			for _, one := range found {
				rows = append(rows, []string{one.Provider, string(one.Kind), one.Value, expiry(&one, time.Now()), one.Source})
			}
			cmdline.Table(std.out, rows)
			for _, one := range choices {
				fmt.Fprintf(std.err, "%s takes %s, and not %s\n", one.Agent, one.Takes, strings.Join(one.Instead, ", "))
			}
			return nil
		},
	}
}

// expiry says when a credential ends.
func expiry(c *credentials.Credential, now time.Time) string {
	switch {
	case c.ExpiresAt == nil:
		return ""
	case !c.Expired(now):
		return cmdline.Clock(*c.ExpiresAt)
	case c.Renewable:
		return "expired, can be renewed"
	}
	return "expired"
}

func extractEnvCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "extract-env",
		Usage: "print keys and tokens as environment variables",
		Description: `Prints one NAME=VALUE in each line, quoted for a shell where that is needed. With
--export a shell can evaluate it:

  eval "$(sandbox-agent credentials extract-env --export)"

On a terminal values are shortened, unless --reveal is given: others may look on.

Of several for the same variable the first counts: the environment, then agents'
files. What has expired, or has no variable, is told of on the standard error.`,
		Flags: credentialFlags(
			&cli.BoolFlag{Name: "export", Usage: "print export NAME=VALUE"},
			&cli.BoolFlag{Name: "reveal", Usage: "show the values, also on a terminal"},
		),
		Action: func(c *cli.Context) error {
			found, _, err := findCredentials(c, std)
			if err != nil {
				return err
			}
			now := time.Now()
			vars, left := credentials.Environment(found, now)
			for _, one := range left {
				why := "no variable carries it"
				if one.Expired(now) {
					why = "it has expired"
				}
				fmt.Fprintf(std.err, "left out: %s %s of %s: %s\n", one.Provider, one.Kind, one.Source, why)
			}
			prefix := ""
			if c.Bool("export") {
				prefix = "export "
			}
			shorten := terminal(std.out) && !c.Bool("reveal")
			for _, v := range vars {
				if shorten {
					v.Value = v.From.Redacted()
				}
				fmt.Fprintf(std.out, "%s%s=%s\n", prefix, v.Name, quoteWord(v.Value))
			}
			if shorten && len(vars) > 0 {
				note(std, "values are shortened on a terminal: --reveal shows them; a file, a pipe and a shell get all of them")
			}
			return nil
		},
	}
}
