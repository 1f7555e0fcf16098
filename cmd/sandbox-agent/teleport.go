package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func teleportCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "teleport",
		Usage:     "move a session with its files to another gateway",
		ArgsUsage: "[SESSION]",
		Description: "Without SESSION it is the one that was used last. It goes on at the other gateway with all that\n" +
			"its agent remembers, and is closed here; its metadata say where it went. A move that was\n" +
			"interrupted leaves the session where it was, or at both: the same command finishes it. The\n" +
			"other gateway must be yours: MCP servers and modes come along, and texts that look like keys.\n" +
			"Credentials, and the values of variables and headers, do not.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "from", Usage: "address of the gateway that has the session; that of --endpoint, if it is not given"},
			&cli.StringFlag{Name: "to", Usage: "address of the gateway that it goes to"},
			&cli.StringFlag{Name: "to-token", Usage: "the other gateway's token; other users of the machine can see it here, so prefer the variable or --to-token-file", EnvVars: []string{"SANDBOX_AGENT_TO_TOKEN"}},
			&cli.StringFlag{Name: "to-token-file", Usage: "read the other gateway's token from this file", EnvVars: []string{"SANDBOX_AGENT_TO_TOKEN_FILE"}},
			&cli.StringFlag{Name: "cwd", Usage: "directory at the other gateway, empty or not there, for the files; the same path as here, if it is not given"},
			&cli.BoolFlag{Name: "no-workspace", Usage: "leave the files: --cwd is a directory that has them"},
			&cli.BoolFlag{Name: "copy", Usage: "leave the session open here, too"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			if c.Args().Len() > 1 {
				return usagef(c, "name one session, or none for the one that was used last")
			}
			m := &move{workspace: !c.Bool("no-workspace"), cwd: c.String("cwd"), copy: c.Bool("copy")}
			if m.cwd != "" && !filepath.IsAbs(m.cwd) {
				return usagef(c, "--cwd must be an absolute path: it is one of the other machine")
			}
			var err error
			if m.source, m.from, err = sourceOf(c); err != nil {
				return err
			}
			if m.to, m.address, err = destinationOf(c); err != nil {
				return err
			}
			ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
			defer cancel()
			got, err := m.run(ctx, c.Args().First())
			if err != nil {
				return err
			}
			if c.Bool("json") {
				writeJSON(std.out, got)
				return nil
			}
			did := "moved"
			if m.copy {
				did = "copied"
			}
			fmt.Fprintf(std.out, "%s %s to %s, %s: sandbox-agent prompt --endpoint %s --session %s\n", did, got.Session.ID, m.address, got.Session.Cwd, m.address, got.Session.ID)
			if len(got.LeftOut) > 0 {
				fmt.Fprintf(std.err, "not taken over: %s\n", printable(strings.Join(got.LeftOut, ", ")))
			}
			return nil
		},
	}
}

// sourceOf returns the gateway that has the session.
func sourceOf(c *cli.Context) (target, *client.Client, error) {
	t, err := targetOf(c)
	if err != nil {
		return t, nil, err
	}
	if from := c.String("from"); from != "" {
		t.endpoint = from
	}
	api, err := client.New(t.endpoint, client.Options{Token: t.token})
	if err != nil {
		return t, nil, usagef(c, "--from: %v", err)
	}
	return t, api, nil
}

// destinationOf returns the gateway that the session goes to, and its address without a
// password.
func destinationOf(c *cli.Context) (*client.Client, string, error) {
	if c.String("to") == "" {
		return nil, "", usagef(c, "name the gateway that the session goes to with --to")
	}
	token := c.String("to-token")
	if file := c.String("to-token-file"); file != "" && token == "" {
		var err error
		if token, err = readTokenFile(file); err != nil {
			return nil, "", err
		}
	}
	api, err := client.New(c.String("to"), client.Options{Token: token})
	if err != nil {
		return nil, "", usagef(c, "--to: %v", err)
	}
	u, err := url.Parse(c.String("to"))
	if err != nil {
		return nil, "", usagef(c, "--to: %v", err)
	}
	u.User = nil
	return api, u.String(), nil
}

// move is one session on its way. It may be repeated at any point: nothing is closed
// before the session is whole at the other gateway.
type move struct {
	source    target
	from, to  *client.Client
	address   string // of to
	cwd       string
	workspace bool
	copy      bool
}

// movedTo is the member of a session's metadata that says where it went.
const movedTo = "movedTo"

func (m *move) run(ctx context.Context, id string) (runtime.Imported, error) {
	none := runtime.Imported{}
	if id == "" {
		page, err := m.from.Sessions(ctx, runtime.SessionFilter{Limit: 1})
		if err != nil {
			return none, err
		}
		if len(page.Sessions) == 0 {
			return none, errors.New("there is no session that could be moved")
		}
		id = page.Sessions[0].ID
	}
	here, err := m.from.Session(ctx, id)
	if err != nil {
		return none, err
	}
	if went := rawjson.MemberString(here.Metadata, movedTo); went != "" && here.State == runtime.StateClosed && went != m.address {
		return none, fmt.Errorf("session %s went to %s: move it from there", id, went)
	}
	arrived, err := m.arrived(ctx, &here)
	if err != nil {
		return none, err
	}
	if arrived.Session.ID == "" {
		if arrived, err = m.bring(ctx, id); err != nil {
			return none, err
		}
	}
	if here, err = m.from.Session(ctx, id); err != nil {
		return none, err
	}
	if m.copy {
		return arrived, nil
	}
	if here.EventCount > arrived.Session.EventCount {
		return none, fmt.Errorf("session %s went on here while it was moved, so it stays open: delete it and its files at %s, and try again", id, m.address)
	}
	return arrived, m.leave(ctx, &here)
}

// arrived looks whether the other gateway has the session: as an earlier move has left it,
// or as it was there before it came here, which it then forgets.
func (m *move) arrived(ctx context.Context, here *runtime.SessionInfo) (runtime.Imported, error) {
	there, err := m.to.Session(ctx, here.ID)
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.SessionNotFound {
		return runtime.Imported{}, nil
	}
	if err != nil {
		return runtime.Imported{}, fmt.Errorf("ask %s: %w", m.address, err)
	}
	same := there.Agent == here.Agent && there.CreatedAt.Equal(here.CreatedAt)
	switch {
	case same && rawjson.MemberString(there.Metadata, movedTo) != "" && there.State == runtime.StateClosed && there.EventCount <= here.EventCount:
		if m.workspace && m.cwd == "" {
			return runtime.Imported{}, fmt.Errorf("session %s was at %s before, and so are its files: name another directory with --cwd, or say --no-workspace and --cwd for one that has them", here.ID, m.address)
		}
		return runtime.Imported{}, m.to.DeleteSession(ctx, here.ID)
	case same && there.EventCount >= here.EventCount:
		return runtime.Imported{Session: there, LeftOut: []string{}}, nil
	}
	return runtime.Imported{}, fmt.Errorf("%s has a session %s that is not the same as here: delete one of them with `sandbox-agent sessions delete`", m.address, here.ID)
}

// bring has the other gateway import what this one exports.
func (m *move) bring(ctx context.Context, id string) (runtime.Imported, error) {
	body, err := m.from.ExportSession(ctx, id, client.ExportOptions{KeepSecrets: true, Workspace: m.workspace})
	if err != nil {
		return runtime.Imported{}, err
	}
	defer body.Close()
	whole := &watched{r: body}
	got, err := m.to.ImportSession(ctx, whole, client.ImportOptions{Cwd: m.cwd, Trust: true, Workspace: m.workspace})
	if whole.err != nil { // why the other gateway has refused a part of it
		return got, fmt.Errorf("the session could not be read to its end: %w", whole.err)
	}
	if err != nil {
		return got, fmt.Errorf("bring the session to %s: %w", m.address, err)
	}
	return got, nil
}

// watched notes why a body could not be read to its end.
type watched struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// leave closes the session here and notes where it went.
func (m *move) leave(ctx context.Context, here *runtime.SessionInfo) error {
	metadata := here.Metadata
	if len(metadata) == 0 || metadata[0] != '{' {
		metadata = json.RawMessage("{}")
	}
	metadata = rawjson.SetMember(metadata, rawjson.AppendQuoted(nil, m.address), movedTo)
	l, err := sessionLink(ctx, m.source, here.ID)
	if err != nil {
		return err
	}
	defer l.close()
	if _, err := l.call(ctx, "_sandboxagent/session/set_metadata", object{"sessionId": here.ID, "metadata": metadata}); err != nil {
		return fmt.Errorf("note where session %s went: %w", here.ID, err)
	}
	return m.from.CloseSession(ctx, here.ID)
}
