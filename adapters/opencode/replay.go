package opencode

import (
	"context"
	"maps"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// restore learns what was said in a session before, and shows it if replay is
// set. Calls that an ended process has left running are closed; known says that
// clients may have seen them. What was undone is as if it had not been said: undone
// is its first message, "" for none.
func (s *session) restore(ctx context.Context, undone string, replay, known bool) error {
	var all []stored
	if err := s.srv.call(ctx, "GET", s.path("/message"), nil, &all); err != nil {
		return openError(err)
	}
	if undone != "" {
		all = slices.DeleteFunc(all, func(m stored) bool { return m.Info.ID >= undone })
	}
	var todos []todo
	if err := s.srv.call(ctx, "GET", s.path("/todo"), nil, &todos); err != nil {
		s.log.Debug("ask for the plan", "err", err)
	}
	s.emit(func(t *translator) []schema.SessionUpdate {
		var out []schema.SessionUpdate
		for i := range all {
			out = append(out, t.past(&all[i])...)
		}
		left := t.abandon()
		switch {
		case !replay && known:
			return left
		case !replay:
			return nil
		}
		if out = append(out, left...); len(todos) > 0 {
			out = append(out, t.planned(todos)...)
		}
		return append(out, t.usage.show()...)
	})
	return nil
}

// past shows a message of the past.
func (t *translator) past(m *stored) []schema.SessionUpdate {
	t.usage.past = true
	out := t.messaged(&m.Info)
	t.usage.past = false
	for i := range m.Parts {
		p := &m.Parts[i]
		if m.Info.Role == "user" && p.Type != "compaction" {
			out = append(out, userSaid(p)...)
			continue
		}
		if p.Type == "text" || p.Type == "reasoning" {
			out = append(out, t.whole(p)...)
			if s := t.parts[p.ID]; s != nil {
				s.over = true
				s.text.Reset()
			}
			continue
		}
		out = append(out, t.parted(p, 0)...)
	}
	if m.Info.summary() && m.Info.Error == nil {
		out = append(out, t.compactionOver(m.Info.Parent, schema.CompactionStatusCompleted)...)
	}
	return out
}

// userSaid shows what the user said.
func userSaid(p *part) []schema.SessionUpdate {
	if p.Synthetic || p.Ignored {
		return nil
	}
	var b schema.ContentBlock
	switch {
	case p.Type == "text" && p.Text != "":
		b = schema.TextBlock(p.Text)
	case p.Type == "file" && strings.HasPrefix(p.URL, "data:"):
		mime, data, ok := strings.Cut(strings.TrimPrefix(p.URL, "data:"), ";base64,")
		if !ok || !strings.HasPrefix(mime, "image/") {
			b = schema.TextBlock(bridge.Link(p.Filename, "file:"+bridge.FirstOf(p.Filename, "attachment")))
			break
		}
		b = schema.ContentBlock{Image: &schema.ImageContent{Data: data, MimeType: mime}}
	case p.Type == "file" && p.URL != "":
		b = schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: bridge.FirstOf(p.Filename, p.URL), URI: p.URL}}
	default:
		return nil
	}
	u := schema.UserMessage(b)
	u.UserMessageChunk.MessageID = schema.MessageID(p.Message)
	return []schema.SessionUpdate{u}
}

// recent is how many messages of a session are fetched when events were missed.
const recent = "24"

// refetch makes up for events that were missed while the stream was broken. It
// runs on the goroutine that reads, before the first event of the new stream.
func (a *agent) refetch(srv *server) {
	a.mu.Lock()
	var all []*session
	for _, s := range a.sessions {
		if s.srv == srv {
			all = append(all, s)
		}
	}
	a.mu.Unlock()
	ctx, cancel := bridge.Within(srv.ctx, callBound)
	defer cancel()
	for _, s := range all {
		s.emit(func(t *translator) []schema.SessionUpdate { t.missed(); return nil })
	}
	dirs := map[string]bool{}
	for id, s := range a.nativesOf(srv) {
		if s.turns.Busy() {
			s.catchUp(ctx, id)
			dirs[s.cwd] = true
		}
	}
	for dir := range dirs {
		a.recount(ctx, srv, dir)
	}
}

// nativesOf returns the native sessions of a server, those of subagents included.
func (a *agent) nativesOf(srv *server) map[string]*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := maps.Clone(a.natives)
	maps.DeleteFunc(all, func(_ string, s *session) bool { return s.srv != srv })
	return all
}

// catchUp shows what a native session has said that was not shown.
func (s *session) catchUp(ctx context.Context, id string) {
	var now info
	var list []stored
	path := "/session/" + id
	for _, q := range []struct {
		path   string
		result any
	}{{at(path, s.cwd), &now}, {at(path+"/message", s.cwd, "limit", recent), &list}} {
		if err := s.srv.call(ctx, "GET", q.path, nil, q.result); err != nil {
			s.log.Warn("fetch what was missed", "err", err)
			return
		}
	}
	s.take(&event{Type: "session.updated", Session: id, session: &now})
	for i := range list {
		m := &list[i]
		s.take(&event{Type: "message.updated", Session: id, message: &m.Info})
		for j := range m.Parts {
			p := &m.Parts[j]
			if p.Type == "tool" && p.Tool == toolTask {
				s.a.adopt(s, decoded[metadata](p.State.metadata()).Session)
			}
			s.take(&event{Type: "message.part.updated", Session: id, Part: p})
		}
	}
	s.emit(func(t *translator) []schema.SessionUpdate { t.missed(); return nil })
}

// adopt makes the session of a subagent known, and shows what it has said.
func (a *agent) adopt(s *session, id string) {
	a.mu.Lock()
	known := id == "" || a.natives[id] != nil || len(a.natives) >= maxChildren
	if !known {
		a.natives[id] = s
	}
	a.mu.Unlock()
	if !known {
		s.catchUp(s.ctx, id)
	}
}

// recount asks what is open in a directory: questions that were missed are
// asked, those that are gone are withdrawn, and turns that have ended end. What was
// fetched before may have named subagents: their sessions count, too.
func (a *agent) recount(ctx context.Context, srv *server, dir string) {
	natives := a.nativesOf(srv)
	var open []string
	for _, kind := range []string{"permission", "question"} {
		var list []struct {
			ask
			Session string `json:"sessionID"`
		}
		if err := srv.call(ctx, "GET", at("/"+kind, dir), nil, &list); err != nil {
			a.log.Warn("fetch what opencode asks", "err", err)
			return
		}
		for i := range list {
			open = append(open, list[i].ID)
			if s := natives[list[i].Session]; s != nil {
				s.take(&event{Type: kind + ".asked", Session: list[i].Session, ask: list[i].ask})
			}
		}
	}
	var busy map[string]status
	if err := srv.call(ctx, "GET", at("/session/status", dir), nil, &busy); err != nil {
		a.log.Warn("fetch what runs", "err", err)
		return
	}
	for id, s := range natives {
		if s.cwd != dir {
			continue
		}
		s.mu.Lock()
		var gone []string
		for one, q := range s.asks {
			if q.native == id && !slices.Contains(open, one) {
				gone = append(gone, one)
			}
		}
		s.mu.Unlock()
		for _, one := range gone {
			s.withdrawn(one)
		}
		if _, ok := busy[id]; !ok {
			s.take(&event{Type: "session.idle", Session: id})
		}
	}
}
