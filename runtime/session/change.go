package session

import (
	"bytes"
	"cmp"
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

// asksReason is why they have none while the agent asks something before it has answered what was set. Who loads the session is asked then.
const asksReason = "the agent asks something before it takes what was set: load the session without settings, answer it, then load it again"

// Change is what a session/load or session/resume asks of a session that is known,
// beyond attaching to it. Its zero value asks for nothing.
type Change struct {
	edits       []setupEdit // of the session's setup, where that has something else
	fields      []string    // that differ from the session's, and with which its agent opens it
	credentials *adapters.Credentials
	sets        map[string]json.RawMessage // permissionMode, mode, model, variant and title, whatever the session has
	goesOn      bool                       // it comes from who goes on behind an event, and may only repeat what it asked for before
	repeats     []string                   // of setupFields, which have no effect if the adapter does not take them
	keeps       bool                       // judged: it asks for the permissionMode that the session has, and is held to
	beside      bool                       // judged: likewise, and for a mode beside it, where the session is in another one
	missing     []Unsupported              // what has no effect
}

// readsSince is why who goes on behind an event does not end that a session is to read only.
const readsSince = "the session reads only since: load it without after to change that"

// setupEdit sets a member of a setup, or takes it away.
type setupEdit struct {
	path  []string        // ends with the field
	value json.RawMessage // nil takes it away
}

func (e *setupEdit) field() string { return e.path[len(e.path)-1] }

// set has the setup get a member.
func (c *Change) set(v json.RawMessage, path ...string) {
	c.edits = append(c.edits, setupEdit{path, bytes.Clone(v)})
}

// setOwn is set for a field of _meta of ours. One that is null goes.
func (c *Change) setOwn(name string, v json.RawMessage) {
	if string(v) == "null" {
		v = nil
	}
	c.set(v, "_meta", acp.MetaKey, name)
}

// drop takes fields out of what is asked for.
func (c *Change) drop(fields ...string) {
	c.edits = slices.DeleteFunc(c.edits, func(e setupEdit) bool { return slices.Contains(fields, e.field()) })
	c.fields = slices.DeleteFunc(c.fields, func(f string) bool { return slices.Contains(fields, f) })
	for _, f := range fields {
		delete(c.sets, f)
	}
}

// no says that a field has no effect, if there is a reason: it is no setting then, and who asks for it again is told again.
func (c *Change) no(field, reason string) {
	if reason != "" {
		c.missing = append(c.missing, Unsupported{field, reason})
		c.drop(field)
	}
}

// in returns a setup with what is asked for.
func (c *Change) in(setup json.RawMessage) json.RawMessage {
	for _, e := range c.edits {
		if e.value == nil {
			setup = rawjson.DeleteMember(setup, e.path...)
		} else {
			setup = rawjson.SetMember(setup, e.value, e.path...)
		}
	}
	return setup
}

// None reports whether nothing is asked for.
func (c *Change) None() bool {
	return len(c.edits) == 0 && c.credentials == nil && len(c.sets) == 0 && len(c.repeats) == 0 && len(c.missing) == 0
}

// Asked reads what the params of a session/load or session/resume ask for. What they
// leave out stays as it is, and so does what they repeat. A field of _meta that is null
// goes. An empty list of MCP servers says nothing: the protocol wants one of everybody
// who attaches. A null of that name in _meta takes the servers away.
func (s *Session) Asked(params json.RawMessage, again bool) (Change, error) {
	c := Change{sets: map[string]json.RawMessage{}}
	meta, _ := rawjson.Member(params, "_meta")
	var n agents.Needs
	if err := n.Read(meta); err != nil {
		return c, err
	}
	s.mu.Lock()
	rec, refused := s.rec, []Unsupported(nil)
	if s.m.hosting == serving {
		refused = s.m.link.refusals()
	}
	s.mu.Unlock()
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
		c.set(v, name)
		c.fields = append(c.fields, name)
	}
	own := members(meta, acp.MetaKey)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		v := own[name]
		if name == "mcpServers" && string(v) == "null" {
			c.withoutServers(given[name], rec.Setup)
			continue
		}
		was, _ := rawjson.Member(rec.Setup, "_meta", acp.MetaKey, name)
		if !slices.Contains(knownFields, name) {
			c.missing = append(c.missing, unknownFields(map[string]json.RawMessage{name: v})...)
			continue
		}
		switch name {
		case "after":
			c.goesOn = again
			continue
		case beginAnew:
			if !sameJSON(was, v) {
				c.setOwn(name, v)
			}
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
		same, opens := sameJSON(was, v) || len(was) == 0 && string(v) == "null", !slices.Contains(setFields, name)
		if !same {
			c.setOwn(name, v)
		}
		switch at := slices.IndexFunc(refused, func(r Unsupported) bool { return r.Field == name }); {
		case !opens:
			c.sets[name] = bytes.Clone(v)
		case !same:
			c.fields = append(c.fields, name)
		case at >= 0:
			c.missing = append(c.missing, refused[at])
		case slices.Contains(setupFields, name):
			c.repeats = append(c.repeats, name)
		}
	}
	return c, nil
}

// withoutServers takes the servers of mcpServers away, unless the request brings others. It is asked for by a null in
// _meta, since the empty list says nothing.
func (c *Change) withoutServers(given, setup json.RawMessage) {
	if had, _ := rawjson.Member(setup, "mcpServers"); len(rawjson.Elements(given)) > 0 || len(rawjson.Elements(had)) == 0 {
		return
	}
	c.set([]byte("[]"), "mcpServers")
	c.fields = append(c.fields, "mcpServers")
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

// judge takes out of a change what has no effect, whatever the agent says, and what is so already. It asks nobody and changes nothing:
// with what is left the agent is opened, or set to it. l serves the session, nil if nobody does. The session's mu is held.
func (c *Change) judge(rec *record, l *link, info adapters.Info) {
	takes, has := taken(info), rec.permissionMode()
	byMode := !slices.Contains(takes, permissionMode)
	for _, f := range configFields {
		if string(c.sets[f.field]) == `""` {
			c.no(f.field, "it is empty: null has nothing be chosen")
		}
	}
	counts := "" // the permissionMode beside which a mode may be asked for
	if v, asked := c.sets[permissionMode]; asked {
		wish := permits(v)
		counts = wish
		switch stray := rec.strays(l, info, wish); {
		case wish != "" && !slices.Contains(permissionModes, wish):
			c.no(permissionMode, noPermissionMode(wish))
			counts = has
		case c.goesOn && has == "readonly" && wish != has:
			// Clients that connect again by themselves say once more what they have said before: nobody wants to take back by it
			// what somebody else has asked for since.
			c.no(permissionMode, readsSince)
			counts = has
		case wish != has:
		case wish != "" && l != nil && l.refusal(permissionMode) != "":
			c.no(permissionMode, l.refusal(permissionMode))
		case wish == "" || stray == "" || wish != "readonly" && (c.goesOn || !byMode && textOf(c.sets["mode"]) != ""): // a mode is set behind it
			c.keeps = wish != "" && !c.goesOn
			c.beside = c.keeps && stray != ""
			c.drop(permissionMode)
		case c.goesOn:
			c.no(permissionMode, "the session is in mode "+stray+" since: load it without after to have it read only")
		}
	}
	_, changes := c.sets[permissionMode]
	if _, asked := c.sets["mode"]; asked {
		switch {
		case c.goesOn && has == "readonly":
			c.no("mode", readsSince)
		case counts == "readonly" || counts != "" && byMode && !changes: // the permissionMode counts, also one that the session has
			c.no("mode", outranked)
		}
	}
	for _, f := range setFields {
		differs := slices.ContainsFunc(c.edits, func(e setupEdit) bool { return e.field() == f })
		if f != permissionMode && c.goesOn && !differs {
			c.drop(f)
		}
	}
	if changes && !byMode {
		c.fields = append(c.fields, permissionMode)
	}
	setup := c.in(rec.Setup)
	if slices.Contains(c.fields, "mcpServers") || slices.Contains(c.fields, "mcp") {
		c.missing = append(c.missing, untimed(info, setup)...)
	}
	own := members(setup, "_meta", acp.MetaKey)
	for _, f := range slices.Concat(c.fields, c.repeats) {
		if f != permissionMode && slices.Contains(setupFields, f) && own[f] != nil && !slices.Contains(takes, f) {
			c.no(f, notTaken(info.ID))
		}
	}
}

// Apply applies a change: at once to a session that has no process, by opening it anew
// to one that is idle. It returns what has no effect, with the reasons, which is no part of the
// session's setup then: who asks for it again is told again. The error is why the agent cannot be
// started with the change, or not be held to reading, which is undone then.
func (s *Session) Apply(ctx context.Context, n agents.Needs, c *Change) ([]Unsupported, error) {
	s.catchUp(everything) // what is applied now is newer than what the log says
	asks, err := s.awaitChoices(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	was := s.rec
	s.mu.Unlock()
	info := adapters.Info{ID: was.Agent, Takes: setupFields} // of one that is not configured nothing is known
	if a := s.set.o.Agents.Find(was.Agent); a != nil {
		info = a.Info()
		if c.credentials != nil {
			if err := info.Credentials.Check(was.Agent, *c.credentials); err != nil {
				return nil, err
			}
		}
	}
	l := s.served()
	s.mu.Lock()
	c.judge(&was, l, info)
	s.mu.Unlock()
	if c.keeps { // the agent is asked for nothing, and what it may still take was asked for before
		s.mu.Lock()
		s.setByLocked(s.askLocked(), "mode")
		s.mu.Unlock()
	}
	if asks {
		if err := unheld(permits(c.sets[permissionMode]), asksReason); err != nil {
			return nil, err
		}
		for _, f := range slices.Concat(c.fields, setFields) {
			if _, set := c.sets[f]; f != "title" && (set || !slices.Contains(setFields, f)) {
				c.no(f, asksReason)
			}
		}
	}
	if err := s.carryOut(ctx, n, info, c); err != nil {
		s.change(func(rec *record) { rec.takeBack(&was) })
		return nil, err
	}
	if title, asked := c.sets["title"]; asked {
		if err := s.SetTitle(textOf(title)); err != nil {
			c.no("title", err.Error())
		}
	}
	return c.missing, nil
}

// carryOut does what was judged: the permissionMode, what the agent is opened with anew, and then what it is set to. What it does not
// take is no part of the change then. The error is as that of Apply.
func (s *Session) carryOut(ctx context.Context, n agents.Needs, info adapters.Info, c *Change) error {
	v, asked := c.sets[permissionMode]
	wish := permits(v)
	if _, mode := c.sets["mode"]; asked && !slices.Contains(info.Takes, permissionMode) && !(mode && wish == "") {
		if wish == "readonly" {
			defer s.hold()()
		}
		// Before the session is opened anew, where it is set again: with a refusal nothing has changed.
		reason := s.permit(ctx, s.served(), info, wish)
		if err := unheld(wish, reason); err != nil {
			return err
		}
		if c.no(permissionMode, reason); reason == "" && mode {
			c.no("mode", outranked)
		}
	}
	openAnew := func() error {
		more, err := s.reopen(ctx, n, c)
		for _, m := range more {
			if m.Field == permissionMode {
				err = cmp.Or(err, unheld(wish, m.Reason))
			}
		}
		if err != nil {
			return err
		}
		c.missing = append(c.missing, more...)
		c.drop(slices.Clone(c.fields)...)
		return nil
	}
	if len(c.fields) > 0 {
		if err := openAnew(); err != nil {
			return err
		}
	}
	written := len(c.edits) > 0 // also when nothing is left of it: who asks is told that the record cannot be written
	var gone []string
	for _, f := range configFields {
		wish, asked := c.sets[f.field]
		if asked && textOf(wish) == "" {
			gone = append(gone, f.field)
		} else if asked {
			c.no(f.field, s.setOption(ctx, s.served(), f.category, textOf(wish)))
		}
	}
	if _, taken := c.sets["mode"]; c.beside && !taken { // as if the permissionMode alone had been asked for
		c.fields = []string{permissionMode}
		if err := openAnew(); err != nil {
			return err
		}
	}
	if err := s.keepHeld(ctx, info); err != nil {
		return err
	}
	if !written && len(gone) == 0 {
		return nil
	}
	return s.Unwritten(s.edit(func(rec *record) func(*record) {
		setup, chosen := rec.Setup, rec.choices
		rec.Setup = c.in(setup)
		for _, f := range gone {
			s.setByLocked(s.askLocked(), f)
			rec.forget(f)
		}
		return func(rec *record) { rec.Setup, rec.choices = setup, chosen }
	}))
}

// keepHeld sets an agent back that has left the mode in which the session only reads while it was set to something else. The error is that it
// does not stay there.
func (s *Session) keepHeld(ctx context.Context, info adapters.Info) error {
	for tried := false; ; tried = true {
		l := s.served()
		s.mu.Lock()
		left := s.holding && l != nil && l.astrayLocked()
		is := s.rec.inModes()
		s.mu.Unlock()
		switch {
		case !left:
			return nil
		case tried:
			return unheld("readonly", "agent "+info.ID+" goes over to mode "+cmp.Or(is[1], is[0]))
		}
		if err := unheld("readonly", s.permit(ctx, l, info, "readonly")); err != nil {
			return err
		}
	}
}

// served returns the link to the process that serves the session, nil if there is none.
func (s *Session) served() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m.hosting != serving {
		return nil
	}
	return s.m.link
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
	opening := Change{edits: slices.DeleteFunc(slices.Clone(c.edits), func(e setupEdit) bool { // these are written when they have had their effect
		return e.field() != permissionMode && slices.Contains(setFields, e.field())
	})}
	setup := opening.in(was.Setup)
	if s.rec.Before == nil && !sameJSON(was.Setup, setup) {
		s.rec.Before = was.Setup
	}
	s.rec.take(setup)
	if c.credentials != nil {
		s.rec.credentials, s.rec.OwnCredentials = *c.credentials, c.credentials.Fields()
	}
	s.rec.ModeOver = was.ModeOver || slices.Contains(c.fields, permissionMode)
	undo := func(rec *record) { rec.takeBack(&was) }
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
	if err := <-kept; err != nil { // the agent was opened with what the session had before: see start
		return nil, s.Unwritten(err)
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

// take makes setup the session's.
func (rec *record) take(setup json.RawMessage) {
	rec.Setup = setup
	if cwd := rawjson.MemberString(setup, "cwd"); cwd != "" {
		rec.Cwd = cwd
	}
}

// takeBack takes back what a load has changed in the record since it was so.
func (rec *record) takeBack(was *record) {
	rec.takeMode(was)
	rec.take(was.Setup)
	rec.credentials, rec.OwnCredentials, rec.Before = was.credentials, was.OwnCredentials, was.Before
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
