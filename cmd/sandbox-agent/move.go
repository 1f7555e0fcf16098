package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// move is one session on its way. It is made of steps, and whoever repeats it finds out
// how far it has come:
//
//  1. the session is open here
//  2. all of it is at the other gateway, closed
//  3. it is closed here, and says where it went
//  4. it is open at the other gateway
//
// Up to 2 it goes on here, and what is said here meanwhile ends the move before 3. From 3
// on it goes on there, and is not opened here.
type move struct {
	source    target
	from, to  *client.Client
	target    target // of to
	address   string // of to, as others may see it
	cwd       string
	workspace bool
	copy      bool
	agent     string // which may have the session
	agentCwd  string
	shown     *transfer
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
	here, err := m.find(ctx, id)
	if err != nil {
		return none, err
	}
	went := ""
	if here.State == runtime.StateClosed {
		went = rawjson.MemberString(here.Metadata, movedTo)
	}
	switch {
	case went == "":
	case strings.TrimRight(went, "/") == strings.TrimRight(m.address, "/"):
		m.address = went
	default:
		return none, m.elsewhere(ctx, &here, went)
	}
	if err := m.apart(ctx); err != nil {
		return none, err
	}
	there, err := m.to.Session(ctx, id)
	p, _ := errors.AsType[*problem.Error](err)
	switch {
	case p != nil && p.Kind == problem.SessionNotFound:
		if went != "" {
			return none, fmt.Errorf("session %s went to %s, which does not have it any more: take %s out of its metadata with _sandboxagent/session/set_metadata, and it opens here", id, went, movedTo)
		}
		return m.bringAll(ctx, &here, nil)
	case err != nil:
		return none, during(ofDestination(err), "ask %s", m.address)
	case there.Agent != here.Agent || !there.CreatedAt.Equal(here.CreatedAt):
		return none, m.other(id)
	case went != "" && there.State != runtime.StateClosed: // it was moved before
		return runtime.Imported{Session: there, LeftOut: []string{}}, nil
	case there.State == runtime.StateClosed && (there.EventCount < here.EventCount || went == "" && there.Edits < here.Edits || rawjson.MemberString(there.Metadata, movedTo) != ""):
		return m.bringAll(ctx, &here, &there)
	case there.State == runtime.StateClosed && went == "" && there.EventCount == here.EventCount && m.workspace && !m.copy:
		// It has arrived before, and files may have changed since. One that somebody has closed
		// there is not replaced.
		got, err := m.bringAll(ctx, &here, &there)
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.SessionAlreadyExists {
			return got, err
		}
	}
	same, err := m.sameEnd(ctx, &here, &there)
	if err != nil {
		return none, err
	}
	if !same {
		return none, m.other(id)
	}
	if m.copy {
		return runtime.Imported{Session: there, LeftOut: []string{}}, nil
	}
	return m.leave(ctx, runtime.Imported{Session: there, LeftOut: []string{}})
}

// apart returns an error when both addresses are those of one gateway: a session that left it for
// itself would open nowhere.
func (m *move) apart(ctx context.Context) error {
	here, err := m.from.Version(ctx)
	if err != nil {
		return err
	}
	there, err := m.to.Version(ctx)
	if err != nil {
		return during(ofDestination(err), "ask %s", m.address)
	}
	if m.source.endpoint == m.target.endpoint || here.Instance != "" && here.Instance == there.Instance {
		return &cmdline.Usage{Text: m.address + " is the gateway that has the session already: name another one with --to", Command: "sandbox-agent teleport"}
	}
	return nil
}

// elsewhere says where a session is that went to another address than the one that is named now. That may be the same gateway,
// which cannot be asked at its old address, nor be told from one to which an earlier move has brought all of the session.
func (m *move) elsewhere(ctx context.Context, here *runtime.SessionInfo, went string) error {
	there, err := m.to.Session(ctx, here.ID)
	if err == nil && there.Agent == here.Agent && there.CreatedAt.Equal(here.CreatedAt) && there.EventCount >= here.EventCount {
		return &advice{
			fmt.Errorf("session %s went to %s, and %s has all of it, too", here.ID, went, m.address),
			fmt.Sprintf("if that is the same gateway at another address, it goes on there: sandbox-agent prompt --endpoint %s --session %s", m.address, here.ID),
		}
	}
	return fmt.Errorf("session %s went to %s: move it from there", here.ID, went)
}

func (m *move) other(id string) error {
	return fmt.Errorf("%s has a session %s that is not the same as here: delete one of them with `sandbox-agent sessions delete`", m.address, id)
}

// find returns the session, opened first where only its agent has it.
func (m *move) find(ctx context.Context, id string) (runtime.SessionInfo, error) {
	here, err := m.from.Session(ctx, id)
	if p, ok := errors.AsType[*problem.Error](err); m.agent == "" || !ok || p.Kind != problem.SessionNotFound {
		return here, err
	}
	if err := adopt(ctx, m.source, m.agent, id, m.agentCwd); err != nil {
		return here, err
	}
	return m.from.Session(ctx, id)
}

// sameEnd reports whether both gateways have the session up to the same event.
func (m *move) sameEnd(ctx context.Context, here, there *runtime.SessionInfo) (bool, error) {
	if here.EventCount != there.EventCount || here.EventCount == 0 {
		return here.EventCount == there.EventCount, nil
	}
	var ends []runtime.Event
	for _, api := range []*client.Client{m.from, m.to} {
		page, err := api.Events(ctx, here.ID, here.EventCount-1, 1)
		if err != nil {
			return false, err
		}
		ends = append(ends, page.Events...)
	}
	return len(ends) == 2 && ends[0].Seq == ends[1].Seq && ends[0].Time.Equal(ends[1].Time), nil
}

// bringAll has the other gateway take the session, in the place of what a move has left
// there, and leaves it.
func (m *move) bringAll(ctx context.Context, here, there *runtime.SessionInfo) (runtime.Imported, error) {
	got, err := m.bring(ctx, here, there)
	if err != nil {
		return got, err
	}
	if m.copy {
		return got, nil
	}
	return m.leave(ctx, got)
}

// bring has the other gateway import what this one exports.
func (m *move) bring(ctx context.Context, here, there *runtime.SessionInfo) (runtime.Imported, error) {
	out := client.ExportOptions{KeepSecrets: true, Workspace: m.workspace}
	in := client.ImportOptions{Cwd: m.cwd, Trust: true, Workspace: m.workspace, Merge: m.workspace, Closed: !m.copy, Replace: there != nil}
	if there != nil && in.Cwd == "" {
		in.Cwd = there.Cwd
	}
	if m.workspace {
		// What is there says what need not travel. A directory that is not there yet, or is
		// no repository, has nothing.
		st, err := m.to.Files("").GitRecent(ctx, cmp.Or(in.Cwd, here.Cwd))
		if err == nil {
			out.Have = st.Recent
			if there != nil && m.cwd == "" {
				in.Cwd = st.Root
			}
		} else if _, answered := errors.AsType[*problem.Error](err); !answered {
			return runtime.Imported{}, during(ofDestination(err), "ask %s what it has of the files", m.address)
		}
	}
	body, shown, err := m.lacking(ctx, here.ID, cmp.Or(in.Cwd, here.Cwd), out)
	if err != nil {
		return runtime.Imported{}, err
	}
	defer body.Close()
	whole := &watched{r: parcel.Passing(body, shown)}
	got, err := m.to.ImportSession(ctx, whole, in)
	if whole.err != nil { // why the other gateway has refused a part of it
		return got, fmt.Errorf("the session could not be read to its end: %w", whole.err)
	}
	if err != nil {
		return got, withConflicts(during(ofDestination(err), "bring the session to %s", m.address))
	}
	return got, nil
}

// lacking exports what the other gateway does not have, files in the directory there among
// it. shown is told how much of it has passed.
func (m *move) lacking(ctx context.Context, id, there string, o client.ExportOptions) (body io.ReadCloser, shown func(int64), err error) {
	shown = func(int64) {}
	o.Begun = func(bytes int64) { shown = m.shown.watch("move", id, bytes) }
	if m.workspace {
		sums, err := m.to.Files("").Checksums(ctx, there)
		if err == nil {
			defer sums.Close()
			o.Checksums = sums
		} else if _, answered := errors.AsType[*problem.Error](err); !answered {
			return nil, nil, during(ofDestination(err), "ask %s which files it has", m.address)
		}
	}
	body, err = m.from.ExportSession(ctx, id, o)
	return body, shown, err
}

// ofDestination gives the error of a gateway that is not there the flag that named it.
func ofDestination(err error) error {
	if errors.Is(err, acphttp.ErrForeign) || cmdline.Unreachable(err) {
		return &advice{err, "start one there with: sandbox-agent server; or name another with --to"}
	}
	return err
}

// during says at what an error has come. One of a gateway keeps its kind.
func during(err error, format string, args ...any) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return fmt.Errorf(format+": %w", append(args, err)...)
	}
	told := *p
	told.Detail = fmt.Sprintf(format, args...) + ": " + p.Detail
	return &told
}

// withConflicts adds the names of what both sides have changed, each on a line.
func withConflicts(err error) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.Conflict {
		return err
	}
	names, _ := p.Extensions["conflicts"].([]any)
	for _, name := range names {
		p.Detail += fmt.Sprintf("\n  %s", cmdline.Printable(fmt.Sprint(name)))
	}
	return p
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

// leave closes the session here, with a note where it went, and opens it there.
func (m *move) leave(ctx context.Context, got runtime.Imported) (runtime.Imported, error) {
	id := got.Session.ID
	err := m.from.DepartSession(ctx, id, got.Session.EventCount, &got.Session.Edits, m.address)
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Conflict {
		return got, during(err, "session %s went on here while it was moved, and stays here; what is at %s is closed, and the same command brings the rest", id, m.address)
	}
	if err != nil {
		return got, during(err, "close session %s here", id)
	}
	l, err := sessionLink(ctx, m.target, id)
	if err == nil {
		defer l.close()
		_, err = l.call(ctx, acp.MethodSessionResume, object{"sessionId": id, "cwd": got.Session.Cwd, "mcpServers": []any{}})
	}
	if err != nil {
		return got, during(err, "open session %s at %s, where it is", id, m.address)
	}
	if got.Session, err = m.to.Session(ctx, id); err != nil {
		return got, during(ofDestination(err), "ask %s", m.address)
	}
	return got, nil
}

// adopt has a gateway open a session that an agent's own program has made.
func adopt(ctx context.Context, t target, agent, id, cwd string) error {
	l, err := dialLink(ctx, t, func(*link, acp.Message) {})
	if err != nil {
		return err
	}
	defer l.close()
	if _, err = l.initialize(ctx, agent, object{}); err == nil {
		_, err = l.call(ctx, acp.MethodSessionLoad, object{"sessionId": id, "cwd": cwd, "mcpServers": []any{}})
	}
	if err != nil {
		return fmt.Errorf("open session %s of agent %s in %s: %w", id, agent, cwd, err)
	}
	return nil
}
