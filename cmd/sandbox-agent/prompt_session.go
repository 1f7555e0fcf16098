package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// sessionOptions are what a new session is given besides agent, directory, model
// and mode.
type sessionOptions struct {
	own object // members of _meta["sandboxagent.dev"]
	mcp []any  // the MCP servers
}

var permissionModes = []string{"default", "readonly", "write", "bypass"}

func sessionOptionsOf(c *cli.Context) (sessionOptions, error) {
	o := sessionOptions{own: object{}, mcp: []any{}}
	if mode := c.String("permission-mode"); mode != "" {
		if !slices.Contains(permissionModes, mode) {
			return o, cmdline.Usagef(c, "--permission-mode %s: use %s", mode, anyOf(permissionModes))
		}
		o.own["permissionMode"] = mode
	}
	if title := c.String("title"); title != "" {
		o.own["title"] = title
	}
	if c.Bool("include-raw") {
		o.own["includeRaw"] = true
	}
	if text := c.String("instructions"); text != "" {
		if file, ok := strings.CutPrefix(text, "@"); ok {
			if file == "" {
				return o, cmdline.Usagef(c, "--instructions @ names no file")
			}
			if wrong := refusedFile(file); wrong != "" {
				return o, cmdline.Usagef(c, "--instructions @%s: %s", file, wrong)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				return o, fmt.Errorf("read instructions: %w", err)
			}
			text = string(b)
		}
		o.own["instructions"] = text
	}
	env, err := variablesOf(c)
	if err != nil {
		return o, err
	}
	if len(env) > 0 {
		o.own["env"] = env
	}
	for _, value := range c.StringSlice("mcp") {
		server, err := mcpServer(value)
		if err != nil {
			return o, cmdline.Usagef(c, "--mcp %s", err)
		}
		o.mcp = append(o.mcp, server)
	}
	return o, nil
}

// variablesOf returns the variables of --env; nil when it is not given. Errors name no value.
func variablesOf(c *cli.Context) (map[string]string, error) {
	var env map[string]string
	for _, kv := range c.StringSlice("env") {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			return nil, cmdline.Usagef(c, "--env %s is not of the form NAME=VALUE", name)
		case name == "":
			return nil, cmdline.Usagef(c, "--env: there is no name before the =: use NAME=VALUE")
		case env == nil:
			env = map[string]string{}
		}
		env[name] = value
	}
	return env, nil
}

// mcpServer reads a value of --mcp.
func mcpServer(value string) (any, error) {
	if strings.HasPrefix(strings.TrimSpace(value), "{") {
		var server object
		if err := json.Unmarshal([]byte(value), &server); err != nil {
			return nil, fmt.Errorf("%s is not a JSON object: %w", value, err)
		}
		return server, nil
	}
	name, to, ok := strings.Cut(value, "=")
	if name = strings.TrimSpace(name); !ok || name == "" || strings.TrimSpace(to) == "" {
		return nil, fmt.Errorf("%q is not of the form NAME=COMMAND LINE or NAME=URL", value)
	}
	if strings.HasPrefix(to, "http://") || strings.HasPrefix(to, "https://") {
		return object{"type": "http", "name": name, "url": to, "headers": []any{}}, nil
	}
	argv, err := splitWords(to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return object{"name": name, "command": argv[0], "args": argv[1:], "env": []any{}}, nil
}

// ending says what becomes of a session when the command is done with it.
type ending struct{ close, delete bool }

func closeFlag() cli.Flag {
	return &cli.BoolFlag{Name: "close", Usage: "close the session at the end: its agent ends, its events stay"}
}

func deleteFlag() cli.Flag {
	return &cli.BoolFlag{Name: "delete", Usage: "delete the session at the end, with its events"}
}

func endingOf(c *cli.Context) (ending, error) {
	e := ending{c.Bool("close"), c.Bool("delete")}
	if e.close && e.delete {
		return e, cmdline.Usagef(c, "--close and --delete are both given: --delete closes as well")
	}
	return e, nil
}

// of ends a session as asked for, whatever became of the command, within the time of ctx:
// err is its error. A session that was never made has no id.
func (e ending) of(ctx context.Context, t target, id, agent string, err error) error {
	if id == "" || !e.close && !e.delete {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, standardTimeout)
	defer cancel()
	failed := e.end(ctx, t, id, agent)
	if cause := context.Cause(ctx); failed != nil && cause != nil {
		failed = cause // it says why better
	}
	switch {
	case failed == nil:
		return err
	case errors.Is(err, errInterrupted):
		what := fmt.Sprintf("session %s was not ended: %v", id, failed)
		if left, ok := errors.AsType[*leftError](err); ok {
			what = left.what + "; " + what
		}
		return &leftError{what, errInterrupted}
	}
	failed = fmt.Errorf("end session %s: %w", id, failed)
	if err != nil { // it says more about what went wrong
		return errors.Join(err, failed)
	}
	return failed
}

// end ends a session of an agent, which a hub of --node is asked for, since it may be at another node by now.
func (e ending) end(ctx context.Context, t target, id, agent string) error {
	if t.node != "" {
		l, err := dialLink(ctx, t.ofSessions(), func(*link, acp.Message) {})
		if err != nil {
			return err
		}
		defer l.closeWithin(goodbye)
		l.node = t.node
		if _, err := l.initializeAs(ctx, acpversion.One, agent, object{}); err != nil {
			return err
		}
		method := acp.MethodSessionClose
		if e.delete {
			method = acp.MethodSessionDelete
		}
		_, err = l.call(ctx, method, object{"sessionId": id, "_meta": l.meta(nil)})
		return err
	}
	api, err := t.client()
	switch {
	case err != nil:
		return err
	case e.delete:
		return api.DeleteSession(ctx, id)
	}
	return api.CloseSession(ctx, id)
}
