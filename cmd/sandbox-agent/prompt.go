package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func promptCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "prompt",
		Usage:     "run one turn and show it",
		ArgsUsage: "TEXT",
		Description: `The agent's text goes to the standard output, everything else to the standard
error. Without TEXT, or with -, the prompt is read from the standard input.

Permission requests and questions are asked on the terminal; what was written before
they were read answers none. Where there is no terminal they are rejected, and the
exit code is 7. --permission says answers beforehand: allow, reject or ask for all, KIND=ANSWER for a kind of tool (read, edit, delete,
move, search, execute, think, fetch, switch_mode, other), with commas between
rules: --permission reject,read=allow,edit=allow

A new session is that of --agent, else of the gateway's default; on a terminal one
can be chosen. --mcp gives it an MCP server, NAME=COMMAND LINE or NAME=URL. An agent
that is not installed is installed first.

--attach lets a file go along, - for the standard input, or an address.

Ctrl-C cancels the turn, and so do --timeout and --max-cost, a terminal that hangs up, and a pipe that
nobody reads any more; a second Ctrl-C ends the program at once, and 3 seconds do if the turn goes on. The session lives on and can be
continued with --session. With --close its agent ends with the command, with
--delete its events are deleted as well; after Ctrl-C that has 8 seconds, and after a
second one it is left.

With --json every message is printed as it came, one per line, the answer to the
prompt last, and nothing but an error on the standard error.

With --acp 2 the gateway is spoken to in version 2 of the protocol. The agent's text is
the same. The standard error has more: what commands print, what subagents do and say,
notices, compactions, and what goes on in the background. With --json the messages are
of that version: the last is the state_update that ends the turn.`,
		Flags: targetFlags(
			&cli.StringFlag{Name: "agent", Usage: "agent for the new session, if not the gateway's default"},
			&cli.StringFlag{Name: "session", Usage: "continue this session"},
			&cli.StringFlag{Name: "cwd", Usage: "directory of the new session", Value: "."},
			&cli.StringFlag{Name: "model", Usage: "model to use"},
			&cli.StringFlag{Name: "mode", Usage: "mode to use"},
			&cli.StringFlag{Name: "permission-mode", Usage: "what the new session's agent may do by itself: default, readonly, write or bypass"},
			&cli.StringFlag{Name: "title", Usage: "title of the new session"},
			&cli.BoolFlag{Name: "include-raw", Usage: "record what the new session's agent and the gateway say to each other, for bug reports; see sessions raw"},
			&cli.StringFlag{Name: "instructions", Usage: "instructions for the new session's agent, or @ and a file with them"},
			&cli.StringSliceFlag{Name: "mcp", Usage: "MCP server of the new session, as `NAME=COMMAND LINE`, NAME=URL or a JSON object; may be repeated"},
			&cli.StringSliceFlag{Name: "env", Usage: "variable of the new session's agent, as `NAME=VALUE`; may be repeated"},
			permissionFlag("how permission requests are answered: allow, reject, ask or KIND=ANSWER; may be repeated (default: ask)"),
			&cli.StringSliceFlag{Name: "attach", Usage: "file, - or address that goes along with the prompt; may be repeated"},
			closeFlag(), deleteFlag(),
			timeoutFlag(0),
			versionFlag(),
			&cli.Float64Flag{Name: "max-cost", Usage: "cancel the turn when the session has cost more than this, in the currency that the agent tells, 0 is never"},
			retryFlag(15*time.Second),
		),
		Action: func(c *cli.Context) error {
			o, err := promptOptionsOf(c, std)
			if err != nil {
				return err
			}
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, leaving...)
			defer signal.Stop(signals)
			std := std
			noticeLeft(&std, signals)
			return runTurn(c.Context, o, signals, std)
		},
	}
}

// readOutput tells when nobody reads an output any more.
type readOutput struct {
	io.Writer
	left func()
}

func (w readOutput) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		w.left()
	}
	return n, err
}

// errHungUp is the end of an input whose terminal has hung up: nobody has typed it.
var errHungUp = errors.New("the terminal has hung up")

// typedInput tells when the terminal has hung up that it is, with the error, too.
type typedInput struct {
	*os.File
	left func()
}

func (r typedInput) Read(b []byte) (int, error) {
	n, err := r.File.Read(b)
	if err != nil && !terminal(r.File) {
		r.left()
		err = errHungUp
	}
	return n, err
}

// noticeLeft has signals say once when nobody reads what the command writes. The system's own
// signal for that would end the program at once, and comes of each broken connection, too. That of a terminal
// that hangs up may come behind what is read of it then.
func noticeLeft(std *stdio, signals chan<- os.Signal) {
	cmdline.OutlivePipes()
	says := func(s os.Signal) func() {
		return sync.OnceFunc(func() {
			select {
			case signals <- s:
			default: // it has others
			}
		})
	}
	left := says(syscall.SIGPIPE)
	std.out, std.err = readOutput{std.out, left}, readOutput{std.err, left}
	if f, ok := std.in.(*os.File); ok && terminal(f) && !cmdline.Outlives() {
		std.in = typedInput{f, says(syscall.SIGHUP)}
	}
}

// promptOptions are what the flags of the prompt command say, checked.
type promptOptions struct {
	target                     target
	text                       string
	agent, session, cwd        string
	acp                        int // version of the protocol
	model, mode                string
	opened                     sessionOptions // what else a new session is given
	ending                     ending
	permission                 permissionRules
	attachments                []enclosure
	timeout                    time.Duration // 0 is never
	maxCost                    float64       // 0 is no limit
	retry                      time.Duration // to look for a gateway that is gone
	json, interactive, colours bool
}

func promptOptionsOf(c *cli.Context, std stdio) (promptOptions, error) {
	o := promptOptions{
		agent: c.String("agent"), session: c.String("session"), model: c.String("model"), mode: c.String("mode"),
		timeout: c.Duration("timeout"), maxCost: c.Float64("max-cost"), retry: max(c.Duration("retry"), 1), json: c.Bool("json"),
		text:        strings.Join(c.Args().Slice(), " "),
		interactive: terminal(std.in) && terminal(std.err),
		colours:     terminal(std.err) && os.Getenv("NO_COLOR") == "",
	}
	var err error
	if o.target, err = targetOf(c); err != nil {
		return o, err
	}
	if o.acp, err = versionOf(c); err != nil {
		return o, err
	}
	if c.IsSet("max-cost") && !(o.maxCost >= 0 && o.maxCost <= math.MaxFloat64) { // nor NaN
		return o, cmdline.Usagef(c, "--max-cost must be 0 or more, not %v", o.maxCost)
	}
	if o.permission, err = permissionRulesOf(c, ask, allow, reject, ask); err != nil {
		return o, err
	}
	if o.opened, err = sessionOptionsOf(c); err != nil {
		return o, err
	}
	if o.ending, err = endingOf(c); err != nil {
		return o, err
	}
	if o.session != "" {
		for _, name := range []string{"agent", "cwd", "permission-mode", "title", "instructions", "include-raw", "mcp", "env"} {
			if c.IsSet(name) {
				return o, cmdline.Usagef(c, "--session continues a session: its %s cannot be chosen, leave out --%s", name, name)
			}
		}
	}
	attach := c.StringSlice("attach")
	if slices.Contains(attach, "-") && (o.text == "" || o.text == "-") {
		return o, cmdline.Usagef(c, "the standard input cannot be both the prompt and an attachment: TEXT is missing")
	}
	if o.text == "-" || o.text == "" && !terminal(std.in) {
		b, err := io.ReadAll(std.in)
		if err != nil {
			return o, fmt.Errorf("read prompt: %w", err)
		}
		o.text, o.interactive = string(b), false
	}
	if strings.TrimSpace(o.text) == "" && len(attach) == 0 {
		return o, cmdline.Usagef(c, "TEXT is missing")
	}
	for _, name := range attach {
		if wrong := refusedEnclosure(name); wrong != "" {
			return o, cmdline.Usagef(c, "--attach %s: %s", name, wrong)
		}
		a, err := readEnclosure(name, std.in)
		if err != nil {
			return o, err
		}
		o.attachments = append(o.attachments, a)
		o.interactive = o.interactive && name != "-"
	}
	o.cwd, err = workDir(c.String("cwd"))
	return o, err
}

// prompt returns the prompt's blocks for an agent that takes this in prompts.
func (o promptOptions) prompt(takes map[string]bool) ([]any, error) {
	var blocks []any
	if o.text != "" {
		blocks = append(blocks, object{"type": "text", "text": o.text})
	}
	for _, a := range o.attachments {
		b, err := a.block(takes)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// promptTakes returns what an agent takes in prompts, by the answer to initialize.
func promptTakes(initialized json.RawMessage) map[string]bool {
	for _, version := range []string{"agentCapabilities", "capabilities"} {
		if agent, ok := rawjson.Member(initialized, version); ok {
			return capable(agent)
		}
	}
	return nil
}

// capable returns what an agent takes in prompts by its capabilities: version 1 says true of it, and version 2 has an
// object for it.
func capable(agent json.RawMessage) map[string]bool {
	takes := map[string]bool{}
	for _, place := range [][]string{{"promptCapabilities"}, {"session", "prompt"}} {
		capabilities, _ := rawjson.Member(agent, place...)
		for _, what := range []string{"image", "audio", "embeddedContext"} {
			v, _ := rawjson.Member(capabilities, what)
			takes[what] = takes[what] || len(v) > 0 && (v[0] == '{' || string(v) == "true")
		}
	}
	return takes
}

// mcpServers returns the MCP servers of a new session as the version of the protocol has them.
func (o promptOptions) mcpServers() []any {
	servers := []any{}
	for _, s := range o.opened.mcp {
		if server, ok := s.(object); ok && o.acp == acpversion.Two && server["type"] == nil {
			server = maps.Clone(server)
			server["type"] = "stdio"
			s = server
		}
		servers = append(servers, s)
	}
	return servers
}
