package opencode

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// listPage is how many sessions are on a page.
const listPage = 100

// opening is what a session is made of.
type opening struct {
	up     *setup
	srv    *server
	c      *catalog
	from   *info // the session that there is
	box    *toolbox
	own    []string // MCP servers
	free   func()
	failed []string // what does not work, for the user
}

// prepare maps the wishes, makes the server look at the directory and starts
// what the session wants there. The caller calls done when the session is known.
// With an id it is about a session that there is, which stays where it is.
func (a *agent) prepare(ctx context.Context, r bridge.Request, id schema.SessionID) (*opening, error) {
	up, err := newSetup(r)
	if err != nil {
		return nil, err
	}
	srv, free, err := a.use(ctx, up.kind)
	if err != nil {
		return nil, err
	}
	o := &opening{up: up, srv: srv, free: free}
	if err := a.look(ctx, o, id); err != nil {
		free()
		return nil, err
	}
	return o, nil
}

// look is prepare with a server.
func (a *agent) look(ctx context.Context, o *opening, id schema.SessionID) (err error) {
	up, srv := o.up, o.srv
	if id != "" {
		if o.from, err = srv.find(ctx, id); err != nil {
			return err
		}
		from := o.from
		if from.Directory != "" && from.Directory != up.Cwd {
			if _, err := os.Stat(from.Directory); err != nil {
				return acp.Errorf(acp.CodeInvalidParams, "the directory %s of session %s cannot be used: %v", from.Directory, id, err)
			}
			up.Cannot("cwd", "the session stays in its directory %s", from.Directory)
			up.Cwd = from.Directory
		}
	}
	a.guard.watch(up.Cwd)
	o.box = a.tools.at(srv, up.Cwd)
	if err := o.box.open.enter(ctx); err != nil {
		return fmt.Errorf("wait until opencode knows %s: %w", up.Cwd, err)
	}
	o.c, err = srv.catalog(ctx, up.Cwd)
	switch {
	case err != nil && refused(err) == nil:
		o.leave(ctx)
		return err
	case err != nil:
		o.leave(ctx)
		remedy := "correct it, and try again"
		if !a.startOver(ctx, srv, up.Cwd) {
			remedy = "correct it, close the sessions of this agent, in other directories too, and try again"
		}
		return acp.Errorf(acp.CodeInternal, "opencode refused: %s; its configuration is wrong: %s", refused(err).Message, remedy)
	case len(o.c.models) == 0:
		o.leave(ctx)
		a.startOver(ctx, srv, up.Cwd)
		return authRequired("opencode has no provider with credentials")
	}
	o.own, o.failed = o.box.start(ctx, srv, up)
	if srv.open != nil {
		o.failed = append(o.failed, "Commands can read the password of OpenCode's server, and answer permissions with it: "+srv.open.Error())
	}
	return nil
}

// done lets OpenCode forget the directory again, and end what is not used there.
func (o *opening) done(ctx context.Context) {
	o.box.opened(ctx, o.srv, o.up.Cwd, o.own)
	o.leave(ctx)
	o.free()
}

// leave lets OpenCode forget the directory again, and has it forget what a session has left meanwhile.
func (o *opening) leave(ctx context.Context) {
	o.box.open.leave()
	o.srv.a.vacate(ctx, o.srv, o.up.Cwd)
}

// openError says why a session could not be opened.
func openError(err error) error {
	r := refused(err)
	if r == nil {
		return err
	}
	return acp.Errorf(acp.CodeInternal, "opencode refused: %s; it reads its configuration when it looks at a directory, and does not go on with a wrong one", r.Message)
}

// NewSession makes a session.
func (a *agent) NewSession(ctx context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	o, err := a.prepare(ctx, bridge.OfNew(r), "")
	if err != nil {
		return nil, err
	}
	defer o.done(ctx)
	var made info
	body := map[string]any{}
	if rules := slices.Concat(o.up.rules, o.box.fences(o.own, nil)); len(rules) > 0 {
		body["permission"] = rules
	}
	if err := a.create(ctx, o.srv, at("/session", o.up.Cwd), body, &made); err != nil {
		return nil, openError(err)
	}
	s, err := a.begin(ctx, o, &made, record{}, true)
	if err != nil {
		a.discard(ctx, o.srv, made.ID)
		return nil, err
	}
	return &schema.NewSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(o.up)}, nil
}

// givenUpBound limits how long OpenCode may take to make a session that nobody wants any more, and to delete it.
const givenUpBound = 5 * time.Second

// create has OpenCode make a session. It does so also when it was asked by a request that is given up, and only its answer
// names the session: that is waited for, and the session deleted.
func (a *agent) create(ctx context.Context, srv *server, path string, body any, made *info) error {
	wanted, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	defer context.AfterFunc(ctx, func() {
		limit := time.NewTimer(givenUpBound)
		defer limit.Stop()
		select {
		case <-limit.C:
			done()
		case <-wanted.Done():
		}
	})()
	err := srv.call(wanted, "POST", path, body, made)
	if ctx.Err() == nil {
		return err
	}
	if err == nil {
		a.discard(ctx, srv, made.ID)
	}
	return context.Cause(ctx)
}

// discard deletes a session that was made and is not wanted, also when ctx has ended.
func (a *agent) discard(ctx context.Context, srv *server, id string) {
	ctx, done := bridge.Within(context.WithoutCancel(ctx), givenUpBound)
	defer done()
	if err := srv.call(ctx, "DELETE", "/session/"+url.PathEscape(id), nil, nil); err != nil && !unknown(err) {
		a.log.Warn("delete a session that was given up", "session", id, "err", err)
		return
	}
	if err := a.store.Forget(id); err != nil {
		a.log.Warn("forget a session that was given up", "session", id, "err", err)
	}
}

// begin makes a native session known here. made says that it came to be here. On
// an error nothing is left but the native session.
func (a *agent) begin(ctx context.Context, o *opening, i *info, known record, made bool) (*session, error) {
	s := a.newSession(o.srv, schema.SessionID(i.ID), o.up, o.c)
	mode, model, variant := known.Mode, known.Model, known.Variant
	if i.Model != nil && model == "" {
		model, variant = i.Model.Provider+"/"+i.Model.ID, i.Model.Variant
	}
	if o.up.agent != "" && !s.set.hasMode(o.up.agent) {
		o.up.Cannot("agentSpecific.opencode.customAgent", "there is no agent %q that sessions can use; there are %s", o.up.agent, strings.Join(s.set.modeNames(), ", "))
		o.up.agent = ""
	}
	s.own = map[string]string{}
	for i, name := range o.own {
		s.own[name] = o.up.servers[i].name
	}
	s.set.pick(bridge.FirstOf(mode, o.up.agent, i.Agent), model, variant)
	s.tr.usage.costs[i.ID] = i.Cost
	if made {
		s.keep(func(r *record) { r.Made, r.Mode, r.Model, r.Variant = true, known.Mode, known.Model, known.Variant })
	} else if o.up.PermissionMode != "readonly" {
		s.granted = known.Granted
	}
	if made && o.from != nil {
		// Events about the copied messages come behind the fork's answer. They are known
		// before the first of them reaches the session.
		if err := s.restore(ctx, i.undone(), false, false); err != nil {
			s.stop()
			return nil, err
		}
	}
	if err := a.register(s); err != nil {
		s.stop()
		return nil, err
	}
	o.box.use(s.id, o.own)
	if len(o.own) > 0 {
		a.fence(ctx, s, o.box)
	}
	s.emit(func(t *translator) []schema.SessionUpdate {
		out := s.commandsUpdate()
		for _, f := range o.failed {
			out = append(out, bridge.Notice(schema.NoticeSeverityWarning, f, "")...)
		}
		return out
	})
	s.lookAtServers()
	return s, nil
}

// fence keeps the other sessions of a directory from a session's MCP servers.
func (a *agent) fence(ctx context.Context, s *session, b *toolbox) {
	a.mu.Lock()
	var others []*session
	for _, one := range a.sessions {
		if one != s && one.srv == s.srv && one.cwd == s.cwd {
			others = append(others, one)
		}
	}
	a.mu.Unlock()
	for _, one := range others {
		i, err := s.srv.find(ctx, one.id)
		if err != nil {
			continue // it is gone
		}
		if rules := b.fences(b.of(one.id), i.Permission); len(rules) > 0 {
			if err := s.srv.call(ctx, "PATCH", one.path(""), map[string]any{"permission": rules}, nil); err != nil {
				one.log.Warn("keep a session from the MCP servers of another", "err", err)
			}
		}
	}
}

// of are the servers that a session uses.
func (b *toolbox) of(id schema.SessionID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for name, one := range b.all {
		if one.users[id] {
			out = append(out, name)
		}
	}
	return out
}

// find returns a native session.
func (s *server) find(ctx context.Context, id schema.SessionID) (*info, error) {
	if !native.MatchString(string(id)) {
		return nil, bridge.NotFound(id) // opencode says no more than that something is wrong
	}
	var i info
	if err := s.call(ctx, "GET", "/session/"+url.PathEscape(string(id)), nil, &i); err != nil {
		if unknown(err) {
			return nil, bridge.NotFound(id)
		}
		return nil, err
	}
	return &i, nil
}

// reopen opens a session, wherever it was made.
func (a *agent) reopen(ctx context.Context, id schema.SessionID, r bridge.Request, replay bool) (*session, *setup, error) {
	release, err := a.claim(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	o, err := a.prepare(ctx, r, id)
	if err != nil {
		return nil, nil, err
	}
	known, _ := a.store.Load(string(id))
	s, err := a.attach(ctx, o, known)
	if err != nil {
		return nil, nil, err
	}
	if err := s.restore(ctx, o.from.undone(), replay, known.Made); err != nil {
		a.remove(ctx, s)
		return nil, nil, err
	}
	return s, o.up, nil
}

// attach makes a session that there is known here, with the rules that are
// wished of it.
func (a *agent) attach(ctx context.Context, o *opening, known record) (*session, error) {
	defer o.done(ctx)
	i := o.from
	readonly := func(rules []rule) bool { return slices.Contains(rules, rule{"bash", "*", "deny"}) }
	if readonly(i.Permission) && !readonly(o.up.rules) {
		o.up.Cannot("permissionMode", "the session was made with readonly and stays so")
	}
	rules := slices.DeleteFunc(slices.Concat(o.up.rules, o.box.fences(o.own, i.Permission)), func(one rule) bool {
		return slices.Contains(i.Permission, one)
	})
	if all := slices.Concat(i.Permission, rules); !deny(all, o.up.denials) {
		rules = append(rules, o.up.denials...)
	}
	if len(rules) > 0 {
		if err := o.srv.call(ctx, "PATCH", at("/session/"+i.ID, o.up.Cwd), map[string]any{"permission": rules}, nil); err != nil {
			return nil, openError(err)
		}
	}
	return a.begin(ctx, o, i, known, false)
}

// deny reports whether none of the rules behind the denials allows what these deny: of those that match the last one counts.
func deny(rules, denials []rule) bool {
	for _, d := range denials {
		at := len(rules) - 1
		for at >= 0 && rules[at] != d {
			at--
		}
		if at < 0 || slices.ContainsFunc(rules[at:], func(r rule) bool {
			return r.Action != d.Action && (r.Permission == d.Permission || strings.ContainsAny(r.Permission, "*?"))
		}) {
			return false
		}
	}
	return true
}

// LoadSession opens a session and replays it.
func (a *agent) LoadSession(ctx context.Context, r *schema.LoadSessionRequest) (*schema.LoadSessionResponse, error) {
	s, up, err := a.reopen(ctx, r.SessionID, bridge.OfLoad(r), true)
	if err != nil {
		return nil, err
	}
	return &schema.LoadSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(up)}, nil
}

// ResumeSession opens a session and replays nothing.
func (a *agent) ResumeSession(ctx context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error) {
	s, up, err := a.reopen(ctx, r.SessionID, bridge.OfResume(r), false)
	if err != nil {
		return nil, err
	}
	return &schema.ResumeSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(up)}, nil
}

// ForkSession makes a session that knows all of another one.
func (a *agent) ForkSession(ctx context.Context, r *schema.ForkSessionRequest) (_ *schema.ForkSessionResponse, err error) {
	o, err := a.prepare(ctx, bridge.OfFork(r), r.SessionID)
	if err != nil {
		return nil, err
	}
	defer o.done(ctx)
	from := o.from
	var made info
	if err := a.create(ctx, o.srv, at("/session/"+from.ID+"/fork", o.up.Cwd), struct{}{}, &made); err != nil {
		return nil, openError(err)
	}
	defer func() {
		if err != nil {
			a.discard(ctx, o.srv, made.ID)
		}
	}()
	rules := slices.Concat(o.up.rules, o.box.fences(o.own, made.Permission))
	if len(rules) > 0 {
		if err := o.srv.call(ctx, "PATCH", at("/session/"+made.ID, o.up.Cwd), map[string]any{"permission": rules}, nil); err != nil {
			return nil, openError(err)
		}
	}
	known, _ := a.store.Load(from.ID)
	s, err := a.begin(ctx, o, &made, known, true)
	if err != nil {
		return nil, err
	}
	return &schema.ForkSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(o.up)}, nil
}

// ListSessions lists the sessions that people can go on with, those of a
// terminal included, the newest first.
func (a *agent) ListSessions(ctx context.Context, r *schema.ListSessionsRequest) (*schema.ListSessionsResponse, error) {
	srv, done, err := a.any(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	dir := ""
	query := []string{"roots", "true", "limit", strconv.Itoa(listPage + 1)}
	if r.Cwd != nil {
		dir = *r.Cwd
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
	}
	if r.Cursor != nil {
		if _, err := strconv.ParseInt(*r.Cursor, 10, 64); err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "cursor %q is none that session/list has returned", *r.Cursor)
		}
		query = append(query, "cursor", *r.Cursor)
	}
	var list []info
	if err := srv.call(ctx, "GET", at("/experimental/session", dir, query...), nil, &list); err != nil {
		return nil, openError(err)
	}
	out := &schema.ListSessionsResponse{Sessions: []schema.SessionInfo{}}
	if len(list) > listPage {
		list = list[:listPage]
		out.NextCursor = new(strconv.FormatInt(list[listPage-1].Time.Updated, 10))
	}
	for _, i := range list {
		if dir != "" && i.Directory != dir {
			continue
		}
		one := schema.SessionInfo{SessionID: schema.SessionID(i.ID), Cwd: i.Directory}
		if i.Title != "" {
			one.Title = &i.Title
		}
		if i.Time.Updated > 0 {
			one.UpdatedAt = new(time.UnixMilli(i.Time.Updated).UTC().Format(time.RFC3339))
		}
		out.Sessions = append(out.Sessions, one)
	}
	return out, nil
}

// meta is what a result says of a session beyond the protocol.
func (s *session) meta(up *setup) map[string]json.RawMessage {
	m := map[string]any{"authState": "authenticated"}
	if v := s.a.o.Program.Version; v != "" {
		m["agentVersion"] = v
	}
	if len(up.Unsupported) > 0 {
		m["unsupported"] = up.Unsupported
	}
	return bridge.Meta(m)
}
