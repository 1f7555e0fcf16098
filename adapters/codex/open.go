package codex

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	listPage = 100 // sessions of a page
	turnPage = 50  // turns of a page
	// maxPages bounds the pages of one replay, so that a program that never says
	// the end does not make it endless.
	maxPages = 10_000
)

// NewSession starts a thread.
func (a *agent) NewSession(ctx context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	s, up, err := a.begin(ctx, "", bridge.OfNew(r), record{})
	if err != nil {
		return nil, err
	}
	return &schema.NewSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(up)}, nil
}

// begin starts a thread for a session; with the id "" it is a new one with the
// thread's id.
func (a *agent) begin(ctx context.Context, id schema.SessionID, r bridge.Request, known record) (*session, *setup, error) {
	up, srv, err := a.prepare(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	var got opened
	drop := func() { srv.drop(&got) }
	if _, err := srv.opening(ctx, srv.ask, "thread/start", up.params, &got, func(opened bool) {
		if opened {
			drop()
		}
	}); err != nil {
		return nil, nil, openError(err, id)
	}
	if id == "" {
		id = schema.SessionID(got.Thread.ID)
	}
	err = a.store.change(string(id), r.Cwd, func(r *record) {
		r.Made, r.Model, r.Effort = true, known.Model, known.Effort
		if got.Thread.ID != string(id) {
			r.Thread = got.Thread.ID
		}
	})
	if err != nil {
		drop()
		return nil, nil, err
	}
	s := a.newSession(srv, id, &got, up)
	if err := s.open(ctx, up, known); err != nil {
		drop()
		return nil, nil, err
	}
	return s, up, nil
}

// opening opens a thread by call, which waits until codex answers or ends. Codex goes on with one that nobody waits for any more, after
// callBound at the latest: left says so, and late is called when codex has answered after all, with whether it has the thread.
func (s *server) opening(ctx context.Context, call func(context.Context, string, any, any) error, method string, params map[string]any, got *opened, late func(opened bool)) (left bool, err error) {
	waits, cancel := bridge.Within(ctx, callBound)
	defer cancel()
	came, gone := make(chan error), make(chan struct{})
	if !s.run(func() {
		err := call(context.WithoutCancel(ctx), method, params, got)
		select {
		case came <- err:
		case <-gone:
			late(err == nil)
		}
	}) {
		return false, s.broken("ask codex for "+method, bridge.ErrUnwritten)
	}
	select {
	case err := <-came:
		return false, err
	case <-waits.Done():
		close(gone)
		return true, s.broken("ask codex for "+method, waits.Err())
	}
}

// drop deletes a thread that was made for a session that has not come about.
func (s *server) drop(got *opened) {
	ctx, cancel := bridge.Within(context.Background(), endBound)
	defer cancel()
	if err := s.call(ctx, "thread/delete", map[string]string{"threadId": got.Thread.ID}, nil); err != nil {
		s.log.Debug("delete a thread that nobody waits for", "err", err)
	}
}

// prepare maps the wishes, and checks that there are credentials.
func (a *agent) prepare(ctx context.Context, r bridge.Request) (*setup, *server, error) {
	up, err := newSetup(r)
	if err != nil {
		return nil, nil, err
	}
	srv, err := a.server(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, err := srv.readAccount(ctx)
	if err != nil {
		return nil, nil, err
	}
	if now.missing() {
		return nil, nil, authRequired("codex has no credentials")
	}
	if len(up.append) > 0 {
		// They replace those of the configuration, which go first.
		var c struct {
			Config struct {
				Instructions string `json:"developer_instructions"`
			} `json:"config"`
		}
		if err := srv.call(ctx, "config/read", map[string]string{"cwd": r.Cwd}, &c); err != nil {
			a.log.Debug("read codex's configuration", "err", err)
		}
		all := up.append
		if c.Config.Instructions != "" {
			all = append([]string{c.Config.Instructions}, all...)
		}
		up.params["developerInstructions"] = strings.Join(all, "\n\n")
	}
	return up, srv, nil
}

// unarchived opens a thread, and takes it out of codex's archive for that: a close whose
// process ended before it had let go of the thread has left it there, see letGo.
func (s *server) unarchived(ctx context.Context, method string, params, got any) error {
	err := s.ask(ctx, method, params, got)
	if !strings.Contains(refused(err), "is archived") {
		return err
	}
	if err := s.ask(ctx, "thread/unarchive", map[string]any{"threadId": params.(map[string]any)["threadId"]}, nil); err != nil {
		return err
	}
	return s.ask(ctx, method, params, got)
}

// openError says why a thread could not be opened.
func openError(err error, id schema.SessionID) error {
	said := refused(err)
	switch {
	case said == "":
		return err
	case strings.Contains(said, "active writer"):
		return acp.Errorf(acp.CodeInvalidRequest, "session %s is open in another codex process: end it there first (%s)", id, said)
	case id != "" && unknownThread(err):
		return bridge.NotFound(id)
	}
	return acp.Errorf(acp.CodeInvalidParams, "codex refused: %s", said)
}

// LoadSession opens a thread, wherever it was made, and replays it.
func (a *agent) LoadSession(ctx context.Context, r *schema.LoadSessionRequest) (*schema.LoadSessionResponse, error) {
	s, up, err := a.reopen(ctx, r.SessionID, bridge.OfLoad(r), true)
	if err != nil {
		return nil, err
	}
	return &schema.LoadSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(up)}, nil
}

// ResumeSession opens a thread and replays nothing.
func (a *agent) ResumeSession(ctx context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error) {
	s, up, err := a.reopen(ctx, r.SessionID, bridge.OfResume(r), false)
	if err != nil {
		return nil, err
	}
	return &schema.ResumeSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(up)}, nil
}

func (a *agent) reopen(ctx context.Context, id schema.SessionID, r bridge.Request, replay bool) (*session, *setup, error) {
	over, err := a.leaving.Claim(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer func() { over() }()
	if _, err := a.session(id); err == nil {
		return nil, nil, acp.Errorf(acp.CodeInvalidRequest, "session %s is open already", id)
	}
	known, made := a.store.Load(string(id))
	native := bridge.FirstOf(known.Thread, string(id))
	up, srv, err := a.prepare(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	up.params["threadId"], up.params["excludeTurns"] = native, true
	var got opened
	opening := a.opens(native)
	defer func() { a.drop(opening, srv) }()
	claimed := over
	left, err := srv.opening(ctx, srv.unarchived, "thread/resume", up.params, &got, func(opened bool) {
		defer claimed()
		if opened {
			a.newSession(srv, id, &got, up).unopened()
		}
	})
	if left {
		over = func() {} // whoever opens it next waits for codex
	}
	if err != nil {
		if made && known.Made && unknownThread(err) {
			s, up, err := a.begin(ctx, id, r, known) // nobody has prompted it, or what was said is lost
			if err == nil {
				s.anew = true
			}
			return s, up, err
		}
		return nil, nil, openError(err, id)
	}
	s := a.newSession(srv, id, &got, up)
	s.title.Given(got.Thread.Name != "" || got.Thread.Preview != "")
	if replay {
		if err := s.replay(ctx); err != nil {
			s.unopened()
			return nil, nil, err
		}
	}
	if err := s.open(ctx, up, known); err != nil {
		s.unopened()
		return nil, nil, err
	}
	return s, up, nil
}

// unopened has codex let go of the thread of a session that was not opened after all.
func (s *session) unopened() {
	s.stop()
	if err := s.letGo(context.Background()); err != nil {
		s.log.Warn("let go of a thread that nobody waits for", "err", err)
	}
}

// ForkSession starts a thread that knows all of another one.
func (a *agent) ForkSession(ctx context.Context, r *schema.ForkSessionRequest) (*schema.ForkSessionResponse, error) {
	from := bridge.OfFork(r)
	known, made := a.store.Load(string(r.SessionID))
	known.Mode = bridge.Mode{} // a fork is asked for with its own
	up, srv, err := a.prepare(ctx, from)
	if err != nil {
		return nil, err
	}
	up.params["threadId"], up.params["excludeTurns"] = bridge.FirstOf(known.Thread, string(r.SessionID)), true
	var got opened
	drop := func() { srv.drop(&got) }
	if _, err := srv.opening(ctx, srv.unarchived, "thread/fork", up.params, &got, func(opened bool) {
		if opened {
			drop()
		}
	}); err != nil {
		if !made || !known.Made || !unknownThread(err) {
			return nil, openError(err, r.SessionID)
		}
		s, up, err := a.begin(ctx, "", from, known) // there is nothing to know
		if err != nil {
			return nil, err
		}
		s.anew = true
		return &schema.ForkSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(up)}, nil
	}
	id := schema.SessionID(got.Thread.ID)
	// Codex keeps nothing of it until it is prompted.
	if err := a.store.change(string(id), r.Cwd, func(r *record) { r.Made, r.Model, r.Effort = true, known.Model, known.Effort }); err != nil {
		drop()
		return nil, err
	}
	s := a.newSession(srv, id, &got, up)
	s.title.Given(true)
	if err := s.open(ctx, up, known); err != nil {
		drop()
		return nil, err
	}
	return &schema.ForkSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: s.meta(up)}, nil
}

// ListSessions lists the threads that people can go on with, those of a terminal
// included.
func (a *agent) ListSessions(ctx context.Context, r *schema.ListSessionsRequest) (*schema.ListSessionsResponse, error) {
	srv, err := a.server(ctx)
	if err != nil {
		return nil, err
	}
	params := map[string]any{"limit": listPage, "modelProviders": []string{}, "sourceKinds": []string{"cli", "vscode", "exec", "appServer"}}
	if r.Cwd != nil {
		params["cwd"] = *r.Cwd
	}
	if r.Cursor != nil {
		params["cursor"] = *r.Cursor
	}
	var page struct {
		Data []thread `json:"data"`
		Next *string  `json:"nextCursor"`
	}
	if err := srv.call(ctx, "thread/list", params, &page); err != nil {
		if said := refused(err); said != "" {
			return nil, acp.Errorf(acp.CodeInvalidParams, "codex does not list its threads: %s", said)
		}
		return nil, err
	}
	names := a.store.aliases()
	out := &schema.ListSessionsResponse{Sessions: []schema.SessionInfo{}, NextCursor: page.Next}
	for _, t := range page.Data {
		info := schema.SessionInfo{SessionID: schema.SessionID(bridge.FirstOf(names[t.ID], t.ID)), Cwd: t.Cwd}
		if title := bridge.TitleOf(bridge.FirstOf(t.Name, t.Preview)); title != "" {
			info.Title = &title
		}
		if t.Updated > 0 {
			info.UpdatedAt = new(time.Unix(int64(t.Updated), 0).UTC().Format(time.RFC3339))
		}
		out.Sessions = append(out.Sessions, info)
	}
	return out, nil
}

// replay sends the thread's turns, the oldest first.
func (s *session) replay(ctx context.Context) error {
	params := map[string]any{"threadId": s.thread, "limit": turnPage, "itemsView": "full", "sortDirection": "asc"}
	for range maxPages {
		var page struct {
			Data []turnInfo `json:"data"`
			Next *string    `json:"nextCursor"`
		}
		if err := s.srv.call(ctx, "thread/turns/list", params, &page); err != nil {
			if unknownThread(err) {
				return nil
			}
			return openError(err, s.id)
		}
		for i := range page.Data {
			if s.a.begunBeside(s.thread, page.Data[i].ID) {
				continue // it is told by events
			}
			s.emit(func(t *translator) []schema.SessionUpdate { return t.replay(&page.Data[i]) })
		}
		if page.Next == nil || *page.Next == "" {
			return nil
		}
		params["cursor"] = *page.Next
	}
	return nil
}

// replay shows a turn of the past.
func (t *translator) replay(one *turnInfo) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	t.echo.Begin()
	for i := range one.Items {
		it := &one.Items[i]
		e := &event{Method: "item/completed", Thread: t.thread, TurnID: one.ID, Item: it}
		if it.Type == "userMessage" {
			out = append(out, userMessage(it)...)
			continue
		}
		if it.Type == "collabAgentToolCall" {
			it.Receivers = nil // they have ended
		}
		out = append(out, t.completed(e, "")...)
	}
	return append(out, t.turnOver(&event{Thread: t.thread, Turn: &turnInfo{ID: one.ID, Status: "interrupted"}}, "")...)
}

// userMessage shows what the user said.
func userMessage(it *item) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	say := func(b schema.ContentBlock) {
		u := schema.UserMessage(b)
		u.UserMessageChunk.MessageID = schema.MessageID(it.ID)
		out = append(out, u)
	}
	for _, raw := range rawjson.Elements(it.Content) {
		var in input
		if bridge.Lenient(raw, &in) != nil {
			continue
		}
		mime, data, inline := strings.Cut(strings.TrimPrefix(in.URL, "data:"), ";base64,")
		switch {
		case in.Type == "text" && in.Text != "":
			say(schema.TextBlock(in.Text))
		case in.Type == "image" && inline:
			say(schema.ContentBlock{Image: &schema.ImageContent{Data: data, MimeType: mime}})
		case in.Path != "":
			say(schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: bridge.FirstOf(in.Name, in.Path), URI: "file://" + in.Path}})
		}
	}
	return out
}

// meta is what a result says of a session beyond the protocol.
func (s *session) meta(up *setup) map[string]json.RawMessage {
	s.a.mu.Lock()
	state := s.srv.account.state()
	s.a.mu.Unlock()
	m := map[string]any{"authState": state}
	if v := s.a.o.Program.Version; v != "" {
		m["agentVersion"] = v
	}
	if s.srv.confined != nil {
		m["sandbox"] = map[string]any{"available": false, "reason": s.srv.confined.Error()}
	}
	if len(up.Unsupported) > 0 {
		m["unsupported"] = up.Unsupported
	}
	if s.anew {
		m["continuity"] = bridge.Fresh
	}
	return bridge.Meta(m)
}
