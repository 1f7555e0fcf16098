package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	iofs "io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// busyReason is why a load's settings have no effect while something goes on.
const busyReason = "the session is working: load it again when its turn has ended"

// Change is what a session/load or session/resume asks of a session that is known,
// beyond attaching to it. Its zero value asks for nothing.
type Change struct {
	setup       json.RawMessage // the session's, with what was asked for
	fields      []string        // that differ from the session's
	credentials *adapters.Credentials
	title       string
	options     map[string]string // model, variant and mode, which are the agent's own options
	edited      bool              // setup differs in what no agent is told
	missing     []Unsupported
}

// None reports whether nothing is asked for.
func (c *Change) None() bool {
	return len(c.fields) == 0 && c.credentials == nil && c.title == "" && len(c.options) == 0 && !c.edited && len(c.missing) == 0
}

// Asked reads what the params of a session/load or session/resume ask for. What they
// leave out stays as it is, and so does what they repeat. A field of _meta that is null
// goes. An empty list of MCP servers says nothing: the protocol wants one of everybody
// who attaches. A null of that name in _meta takes the servers away.
func (s *Session) Asked(params json.RawMessage) (Change, error) {
	var c Change
	meta, _ := rawjson.Member(params, "_meta")
	var n agents.Needs
	if err := n.Read(meta); err != nil {
		return c, err
	}
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	c.setup = rec.Setup
	given := members(params)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		v := given[name]
		if name == "sessionId" || name == "_meta" || name == "mcpServers" && len(rawjson.Elements(v)) == 0 {
			continue
		}
		if was, _ := rawjson.Member(rec.Setup, name); sameJSON(was, v) {
			continue
		}
		if name == "cwd" {
			if err := CheckFolder(textOf(v)); err != nil {
				c.missing = append(c.missing, Unsupported{name, err.Message})
				continue
			}
		}
		c.setup, c.fields = rawjson.SetMember(c.setup, v, name), append(c.fields, name)
	}
	own := members(meta, acp.MetaKey)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		v := own[name]
		if name == "mcpServers" && string(v) == "null" {
			c.withoutServers(given[name])
			continue
		}
		was, _ := rawjson.Member(rec.Setup, "_meta", acp.MetaKey, name)
		if !slices.Contains(knownFields, name) {
			c.missing = append(c.missing, unknownFields(map[string]json.RawMessage{name: v})...)
			continue
		}
		switch name {
		case "after":
			continue
		case beginAnew:
			c.setup, c.edited = rawjson.SetMember(c.setup, v, "_meta", acp.MetaKey, name), !sameJSON(was, v)
			continue
		case "requestedSessionId", "handover":
			c.missing = append(c.missing, ofNewSessions(s.id, name, v)...)
			continue
		case "credentials":
			if n.Credentials != rec.credentials || rec.lacksCredentials() {
				c.credentials = &n.Credentials
				c.fields = append(c.fields, name)
			}
			continue
		case includeRaw:
			if s.set.store.dir == "" && string(v) == "true" {
				c.missing = append(c.missing, Unsupported{name, noFiles})
				continue
			}
		case "durability":
			if is := s.set.durability(rec.Setup); Durability(textOf(v)) != is {
				c.missing = append(c.missing, Unsupported{name, "it is chosen when a session is made, and is " + string(is)})
			}
			continue
		case "agent":
			if a := textOf(v); a != rec.Agent {
				c.missing = append(c.missing, Unsupported{name, "it is a session of agent " + rec.Agent})
			}
			continue
		}
		if sameJSON(was, v) || len(was) == 0 && string(v) == "null" {
			continue
		}
		switch {
		case name == "title":
			c.title = textOf(v)
		case name == "model" || name == "variant" || name == "mode":
			if c.options == nil {
				c.options = map[string]string{}
			}
			c.options[name] = textOf(v)
		case string(v) == "null":
			c.setup, c.fields = rawjson.DeleteMember(c.setup, "_meta", acp.MetaKey, name), append(c.fields, name)
			continue
		default:
			c.fields = append(c.fields, name)
		}
		c.setup = rawjson.SetMember(c.setup, v, "_meta", acp.MetaKey, name)
	}
	c.setup = bytes.Clone(c.setup)
	return c, nil
}

// withoutServers takes the servers of mcpServers away, unless the request brings others. It is asked for by a null in
// _meta, since the empty list says nothing.
func (c *Change) withoutServers(given json.RawMessage) {
	if had, _ := rawjson.Member(c.setup, "mcpServers"); len(rawjson.Elements(given)) > 0 || len(rawjson.Elements(had)) == 0 {
		return
	}
	c.setup, c.fields = rawjson.SetMember(c.setup, []byte("[]"), "mcpServers"), append(c.fields, "mcpServers")
}

// CheckFolder says why a session cannot have its working directory there, nil if it can. The
// kind of the problem is in the error's data.
func CheckFolder(cwd string) *acp.Error {
	refuse := func(kind problem.Kind, format string, args ...any) *acp.Error {
		p := problem.New(kind, format, args...).With("parameter", "cwd")
		return acp.Errorf(acp.CodeInvalidParams, "%s", p.Detail).WithData(p)
	}
	if !filepath.IsAbs(cwd) {
		return refuse(problem.InvalidRequest, "cwd must be an absolute path, not %q", cwd)
	}
	info, err := os.Stat(cwd)
	if err == nil && !info.IsDir() {
		return refuse(problem.NotADirectory, "cwd %s is not a directory: name one", cwd)
	}
	if err == nil { // a program can start there only if it may be entered
		_, err = os.Stat(cwd + string(filepath.Separator) + ".")
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, iofs.ErrNotExist):
		return refuse(problem.NotFound, "cwd %s cannot be used: %v: make the directory, or name another", cwd, errors.Unwrap(err))
	case errors.Is(err, iofs.ErrPermission):
		return refuse(problem.PermissionDenied, "cwd %s cannot be used: %v: let the gateway's user enter it, or name another", cwd, errors.Unwrap(err))
	}
	return refuse(problem.InvalidRequest, "cwd %s cannot be used: %v", cwd, errors.Unwrap(err))
}

// Apply applies a change: at once to a session that has no process, by opening it anew
// to one that is idle. It returns what has no effect, with the reasons. The error is
// why the agent cannot be started with the change, which is undone then.
func (s *Session) Apply(ctx context.Context, n agents.Needs, c *Change) ([]Unsupported, error) {
	missing := slices.Clone(c.missing)
	s.mu.Lock()
	agent := s.rec.Agent
	s.mu.Unlock()
	if a := s.set.o.Agents.Find(agent); a != nil {
		if c.credentials != nil {
			if err := a.Info().Credentials.Check(agent, *c.credentials); err != nil {
				return nil, err
			}
		}
		if slices.Contains(c.fields, "mcpServers") || slices.Contains(c.fields, "mcp") {
			missing = append(missing, untimed(a.Info(), c.setup)...)
		}
		takes, own := taken(a.Info()), members(c.setup, "_meta", acp.MetaKey)
		for _, f := range c.fields {
			if f != permissionMode && slices.Contains(setupFields, f) && own[f] != nil && !takesField(takes, f, own[f]) {
				missing = append(missing, notTaken(agent, f))
			}
		}
		if v := own[permissionMode]; slices.Contains(c.fields, permissionMode) && !slices.Contains(takes, permissionMode) {
			c.fields = slices.DeleteFunc(c.fields, func(f string) bool { return f == permissionMode })
			mode, reason := s.modeFor(a.Info(), textOf(v))
			switch err := unheld(textOf(v), reason); {
			case err != nil:
				return nil, err
			case reason != "":
				missing = append(missing, Unsupported{permissionMode, reason})
			case mode != "":
				if c.options == nil {
					c.options = map[string]string{}
				}
				c.options["mode"] = mode
			}
		}
	}
	if len(c.fields) > 0 {
		more, err := s.reopen(ctx, n, c)
		if err != nil {
			return nil, err
		}
		missing = append(missing, more...)
	} else {
		err := s.edit(func(rec *record) func(*record) {
			was := rec.Setup
			rec.Setup = c.setup
			return func(rec *record) { rec.Setup = was }
		})
		if err != nil {
			return nil, s.Unwritten(err)
		}
	}
	if c.title != "" {
		if err := s.SetTitle(c.title); err != nil {
			missing = append(missing, Unsupported{"title", err.Error()})
		}
	}
	s.mu.Lock()
	l := s.m.link
	if s.m.hosting != serving {
		l = nil
	}
	s.mu.Unlock()
	for _, f := range configFields {
		wish := c.options[f.field]
		if wish == "" {
			continue
		}
		reason := ""
		if l != nil {
			bounded, cancel := agents.Within(ctx, s.set.o.RequestTimeout)
			reason = s.setOption(bounded, l, f.category, wish)
			cancel()
		} else {
			reason = s.chooseLater(f.category, wish)
		}
		if reason != "" {
			missing = append(missing, Unsupported{f.field, reason})
		}
	}
	return missing, nil
}

// reopens says why the agent cannot open the session anew that it has open, "" if it can.
func (l *link) reopens() (reason string) {
	switch caps := l.p.Capabilities(); {
	case !caps.Resume && !caps.Load:
		return "cannot open a session again"
	case !caps.Close && !l.p.Alone():
		return "cannot close a session"
	}
	return ""
}

// reopen gives the session the change's setup and credentials.
func (s *Session) reopen(ctx context.Context, n agents.Needs, c *Change) ([]Unsupported, error) {
	s.Log() // is opened without the lock
	s.mu.Lock()
	if s.m.busy() {
		s.mu.Unlock()
		return cannot(c.fields, busyReason), nil
	}
	l, serves := s.m.link, s.m.hosting == serving
	if serves {
		if reason := l.reopens(); reason != "" {
			s.mu.Unlock()
			return cannot(c.fields, "agent "+s.rec.Agent+" "+reason+", and has this one open"), nil
		}
	}
	was := s.rec
	if s.rec.Before == nil && !sameJSON(was.Setup, c.setup) {
		s.rec.Before = was.Setup
	}
	s.rec.take(c.setup)
	if c.credentials != nil {
		s.rec.credentials, s.rec.OwnCredentials = *c.credentials, c.credentials.Fields()
	}
	undo := func(rec *record) {
		rec.take(was.Setup)
		rec.credentials, rec.OwnCredentials, rec.Before = was.credentials, was.OwnCredentials, was.Before
	}
	kept := make(chan error, 1)
	s.editedLocked(edit{undo: undo, told: func(err error) { kept <- err }})
	if !serves {
		s.mu.Unlock()
		_ = s.save()
		return nil, s.Unwritten(<-kept)
	}
	opened := make(chan error, 1)
	s.handleLocked(event{kind: changed, req: &waiter{
		needs: n, ctx: ctx, ready: func() { opened <- nil }, fail: func(err error) { opened <- err },
	}})
	var err error
	select {
	case err = <-opened:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.change(undo)
		return nil, err
	}
	_ = s.save()
	if err := <-kept; err != nil {
		return nil, unkept(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused, nil
}

// Rename gives the session a title, which the agent's own do not replace, and tells
// everybody when it is on the disk, and who called then. It does not wait. Without a title
// it is called again as its agent calls it.
func (s *Session) Rename(title string, told func(err error)) {
	s.mu.Lock()
	was, titled, agents := s.rec.Title, s.rec.Titled, s.rec.AgentTitle
	s.rec.noteTitle(title)
	is := s.rec.Title
	s.editedLocked(edit{
		undo:   func(rec *record) { rec.Title, rec.Titled, rec.AgentTitle = was, titled, agents },
		wanted: true,
		told: func(err error) {
			if err == nil && was != is {
				update := rawjson.Object{}.String("sessionUpdate", "session_info_update")
				if is == "" {
					update = update.Raw("title", []byte("null"))
				} else {
					update = update.String("title", is)
				}
				given := rawjson.Object{}.Raw(givenTitle, strconv.AppendBool(nil, title != "")).End()
				s.tell(update.Raw("_meta", rawjson.Object{}.Raw(acp.MetaKey, given).End()).End())
			}
			told(err)
		},
	})
	s.mu.Unlock()
	s.saveSoon()
}

// givenTitle is the member of our part of _meta that says, with the update of a title, whether a client has given it, or
// has taken away that which it had given.
const givenTitle = "given"

// noteTitle gives the session a title of a client's, or with "" that of its agent.
func (rec *record) noteTitle(title string) {
	own := rec.AgentTitle
	if !rec.Titled {
		own = rec.Title
	}
	if rec.Title, rec.Titled, rec.AgentTitle = title, true, own; title == "" {
		rec.Title, rec.Titled, rec.AgentTitle = own, false, ""
	}
}

// SetTitle is Rename, and waits for it.
func (s *Session) SetTitle(title string) error {
	told := make(chan error, 1)
	s.Rename(title, func(err error) { told <- err })
	return s.Unwritten(<-told)
}

// tell shows an update of the gateway's own to everybody, now and later.
func (s *Session) tell(update []byte) {
	u := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", s.id).Raw("update", update).End())
	s.Log().Append(journal.Notice, journal.Everyone, u.Frame())
	s.Flush()
}

// chooseLater has an option of a category set when the agent is started next. It
// returns why that is impossible.
func (s *Session) chooseLater(category, wish string) (reason string) {
	s.mu.Lock()
	options, modes, agent := s.rec.ConfigOptions, s.rec.Modes, s.rec.Agent
	s.mu.Unlock()
	c := choice{id: wish, value: rawjson.AppendQuoted(nil, wish)}
	for _, o := range rawjson.Elements(options) {
		if c.option == "" && rawjson.MemberString(o, "category") == category {
			c.method, c.option = acp.MethodSessionSetConfigOption, rawjson.MemberString(o, "id")
		}
	}
	if c.method == "" && category == "mode" && len(modes) > 0 {
		c.method = acp.MethodSessionSetMode
	}
	if c.method == "" {
		return "agent " + agent + " offers no option for it"
	}
	if err := s.edit(func(rec *record) func(*record) { return rec.choose(c) }); err != nil {
		return err.Error()
	}
	return ""
}

// take makes setup the session's.
func (rec *record) take(setup json.RawMessage) {
	rec.Setup = setup
	if cwd := rawjson.MemberString(setup, "cwd"); cwd != "" {
		rec.Cwd = cwd
	}
}

// differing names the fields in which two setups differ.
func differing(a, b json.RawMessage) []string {
	var out []string
	for _, path := range [][]string{nil, {"_meta", acp.MetaKey}} {
		one, other := members(a, path...), members(b, path...)
		for name := range one {
			if _, both := other[name]; !both {
				other[name] = nil
			}
		}
		for _, name := range slices.Sorted(maps.Keys(other)) {
			if name != "_meta" && !sameJSON(one[name], other[name]) {
				out = append(out, name)
			}
		}
	}
	return out
}

func cannot(fields []string, reason string) []Unsupported {
	var out []Unsupported
	for _, f := range fields {
		out = append(out, Unsupported{f, reason})
	}
	return out
}

// UnsupportedIn returns what an agent's result lists as without effect.
func UnsupportedIn(result json.RawMessage) []Unsupported {
	raw, _ := rawjson.Member(result, "_meta", acp.MetaKey, "unsupported")
	var out []Unsupported
	_ = json.Unmarshal(raw, &out) // what is no list of them says nothing
	return out
}

// members returns the members of an object in raw, none if there is no object.
func members(raw json.RawMessage, path ...string) map[string]json.RawMessage {
	inner := raw
	if len(path) > 0 {
		inner, _ = rawjson.Member(raw, path...)
	}
	out := map[string]json.RawMessage{}
	_ = json.Unmarshal(inner, &out)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	return out
}

// sameJSON reports whether two JSON texts mean the same.
func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	value := func(raw json.RawMessage) (v any) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		_ = d.Decode(&v)
		return v
	}
	return bytes.Equal(a, b) || reflect.DeepEqual(value(a), value(b))
}

// textOf returns a JSON text's value, "" for what is none.
func textOf(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// ofNewSessions lists a field that only a session can have that is made.
func ofNewSessions(id, name string, v json.RawMessage) []Unsupported {
	switch {
	case name == "requestedSessionId" && textOf(v) != id:
		return []Unsupported{{name, "a session has its id for good: fork it to have another"}}
	case name == "handover":
		return []Unsupported{{name, "it is for a session that is made: prompt with the text instead"}}
	}
	return nil
}

// Misplaced lists what of a _meta is for sessions that are made, and not for one with an id that is opened.
func Misplaced(id string, meta json.RawMessage) (out []Unsupported) {
	for _, name := range []string{"requestedSessionId", "handover"} {
		if v, given := rawjson.Member(meta, acp.MetaKey, name); given {
			out = append(out, ofNewSessions(id, name, v)...)
		}
	}
	return out
}
