package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/killed"
)

// Models, efforts, titles and what a session is opened with, played one step behind the other, so that the model of it says exactly how
// a session must be. Modes, and what meets what, is in TestSettings_RandomSequences.

type tunings struct {
	t      *testing.T
	rng    *rand.Rand
	a      *tuned
	r      *Runtime
	p      *person
	dir    string // "" keeps nothing on the disk
	full   bool   // the records cannot be written
	all    []*tunedSession
	told   []string // what happened, for people
	faults []string
}

// tunedSession is how a session must be.
type tunedSession struct {
	id     string
	want   tuningAt // what was chosen; "" is the agent's own
	title  string
	own    string            // the title that it has without one of a client's
	asked  map[string]string // what loads have asked for, as they are repeated
	maybe  []string          // what may be wanted
	unsure bool              // the agent may be in something else, until its process ends
	prompt bool              // it was prompted
	seen   uint64
}

func (w *tunings) say(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *tunings) wrong(format string, args ...any) {
	w.say("FAULT: "+format, args...)
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *tunings) begins() {
	r, err := New(Options{Adapters: []adapters.Adapter{w.a}, DefaultAgent: "fake", Ephemeral: w.dir == "", DataDir: w.dir, Fsync: "never", IdleTimeout: 30 * time.Second, RequestTimeout: 20 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.r = r
	w.connects()
}

func (w *tunings) connects() {
	p, err := newPerson(w.r, false)
	if err != nil {
		w.t.Fatal(err)
	}
	p.keeps, w.p = true, p
}

func (w *tunings) ends() {
	w.p.close()
	if err := w.r.Shutdown(context.Background()); err != nil {
		w.wrong("shutdown: %v", err)
	}
}

// asks sends a request, and returns how it is answered, within a minute.
func (w *tunings) asks(method, params string) (result json.RawMessage, fails *acp.Error) {
	id := w.p.request(method, params)
	for range 2 {
		synctest.Wait()
		w.p.mu.Lock()
		answers := w.p.answers
		w.p.answers = nil
		w.p.mu.Unlock()
		for _, m := range answers {
			if m.ID() == id {
				if fails = m.Err(); fails != nil {
					w.say("%s %s fails: %s", method, params, fails.Message)
				} else {
					unsupported, _ := rawjson.Member(m.Result(), "_meta", acp.MetaKey, "unsupported")
					w.say("%s %s is done %s", method, params, unsupported)
				}
				return m.Result(), fails
			}
		}
		time.Sleep(25 * time.Second) // what waits for the agent ends
	}
	w.wrong("%s %s is not answered", method, params)
	return nil, acp.Errorf(acp.CodeInternal, "not answered")
}

// at returns how the agent has a session.
func (w *tunings) at(s *tunedSession) (is, asked tuningAt, at *fakeConn) {
	info, err := w.r.Session(s.id)
	if err != nil {
		return is, asked, nil
	}
	return w.a.is(info.AgentSessionID)
}

func lacks(result json.RawMessage) map[string]bool {
	list, _ := rawjson.Member(result, "_meta", acp.MetaKey, "unsupported")
	out := map[string]bool{}
	for _, u := range rawjson.Elements(list) {
		out[rawjson.MemberString(u, "field")] = true
	}
	return out
}

// hears takes notice of what everybody was told of a session: what has no effect is wanted no more.
func (w *tunings) hears(s *tunedSession) {
	events, _, err := w.r.Events(context.Background(), s.id, s.seen, 1000)
	if err != nil {
		w.wrong("events: %v", err)
	}
	for _, e := range events {
		s.seen = e.Seq
		m, err := acp.Parse(e.Message)
		if err != nil || string(m.UpdateKind()) != "session_info_update" {
			continue
		}
		missing := lacks(m.Update())
		for _, field := range []string{"model", "variant", "effort", "instructions", "title"} { // the model decides which efforts there are
			if !missing[field] {
				continue
			}
			w.say("all of %s are told that %s has no effect", s.id, field)
			is, _, _ := w.at(s)
			switch field {
			case "model":
				if w.cannot(s.want.model, modelsHad) {
					s.want.model = ""
					delete(s.asked, "model")
					continue
				}
			case "variant", "effort":
				begins := cmp.Or(s.want.model, "big")
				if s.want.model == "" && w.a.remembers || w.cannot(s.want.effort, effortsOf[begins]) || w.cannot(s.want.effort, effortsOf[is.model]) {
					s.want.effort = ""
					delete(s.asked, "variant")
					continue
				}
			}
			if len(s.maybe) > 0 {
				continue
			}
			w.wrong("all are told that %s of %s has no effect, and %v is wanted", field, s.id, s.want)
		}
	}
}

// cannot reports whether the agent does not take a value.
func (w *tunings) cannot(value string, has []string) bool {
	return value != "" && (w.a.refused[value] || !slices.Contains(has, value))
}

// follows has what was chosen be how the agent is by now.
func (s *tunedSession) follows(is tuningAt, says bool) {
	if len(s.maybe) > 0 {
		s.maybe = append(s.maybe, is.model, is.effort)
	}
	if s.want.model != "" && says { // of its model, too
		s.want.model = is.model
	}
	if s.want.effort != "" {
		s.want.effort = is.effort
	}
}

// looks compares how a session is with how it must be.
func (w *tunings) looks(s *tunedSession, is tuningAt, when string) {
	for _, f := range []struct{ name, want, is string }{{"model", s.want.model, is.model}, {"effort", s.want.effort, is.effort}} {
		if !s.unsure && f.want != "" && f.want != f.is {
			w.wrong("%s: %s of %s is %q and must be %q", when, f.name, s.id, f.is, f.want)
		}
	}
	if is.brief != s.want.brief {
		w.wrong("%s: %s is opened with %q and must be with %q", when, s.id, is.brief, s.want.brief)
	}
}

// tunes notes what came of a request that asked for settings, of a session that is made or loaded.
func (w *tunings) tunes(s *tunedSession, fields map[string]string, result json.RawMessage, serving bool) {
	missing := lacks(result)
	is, _, at := w.at(s)
	before := s.want
	if w.full {
		s.maybe = append(s.maybe, is.effort, is.model, s.want.model, s.want.effort)
	}
	for _, name := range []string{"model", "variant", "title", "instructions"} {
		v, given := fields[name]
		if !given {
			if missing[name] {
				w.wrong("%s is not asked for and has no effect", name)
			}
			continue
		}
		if missing[name] {
			possible := map[string]bool{
				"model":   w.a.byOption && !(serving && w.a.refused[v]),
				"variant": !serving && slices.Contains(effortsOf[fields["model"]], v) && !missing["model"] || serving && !w.cannot(v, effortsOf[is.model]),
				"title":   true, "instructions": true,
			}
			if possible[name] && !w.full {
				w.wrong("%s %s has no effect and is possible", name, v)
			}
			s.unsure = s.unsure || w.full
			continue
		}
		if s.asked[name] = v; v == "null" {
			v = ""
			delete(s.asked, name)
		}
		switch name {
		case "model":
			s.want.model = v
		case "variant":
			s.want.effort = v
		case "title":
			s.title = cmp.Or(v, s.own)
		case "instructions":
			s.want.brief = v
		}
	}
	if fields["model"] != "" && at != nil && s.want.effort == before.effort && s.want.effort != "" && (fields["variant"] == "" || missing["variant"]) {
		s.want.effort = is.effort // the model may have no such effort
	}
	if at != nil && !w.full {
		unsure := s.unsure
		s.unsure = unsure && (fields["model"] == "" || missing["model"] || s.want.model == "")
		s.want.effort = cmp.Or(map[bool]string{true: is.effort}[unsure && s.want.effort != ""], s.want.effort)
		w.looks(s, is, "settings")
		s.unsure = unsure
	}
}

// fields returns settings to ask for, and how they are said.
func (w *tunings) fields() (map[string]string, string) {
	out, said := map[string]string{}, []string{}
	add := func(name string, nth int, values ...string) {
		if w.rng.IntN(nth) > 0 {
			return
		}
		v := values[w.rng.IntN(len(values))]
		if out[name] = v; v != "null" {
			v = `"` + v + `"`
		}
		said = append(said, `"`+name+`":`+v)
	}
	add("model", 2, "big", "huge", "small", "huge", "null")
	add("variant", 3, "low", "high", "max", "null")
	add("title", 4, "T", "U", "null")
	add("instructions", 4, "x", "y", "null")
	return out, strings.Join(said, ",")
}

func (w *tunings) step() {
	s := w.all[w.rng.IntN(len(w.all))]
	is, _, at := w.at(s)
	sets := func() (method, params, value string, model bool) {
		model = w.rng.IntN(2) == 0
		method, value = acp.MethodSessionSetConfigOption, []string{"low", "high", "max"}[w.rng.IntN(3)]
		id := "effort"
		if model {
			id, value = "zmodel", modelsHad[w.rng.IntN(3)]
		}
		params = `{"sessionId":"` + s.id + `","configId":"` + id + `","value":"` + value + `"}`
		if model && w.a.byModel && (!w.a.byOption || w.rng.IntN(2) == 0) {
			method, params = acp.MethodSessionSetModel, `{"sessionId":"`+s.id+`","modelId":"`+value+`"}`
		}
		return method, params, value, model
	}
	switch n := w.rng.IntN(100); {
	case n < 22:
		_, fails := w.asks(acp.MethodSessionPrompt, prompt(s.id, "go"))
		if fails != nil {
			w.wrong("a prompt fails: %v", fails)
			return
		}
		w.hears(s)
		_, asked, _ := w.at(s)
		s.prompt = true
		w.looks(s, asked, "prompt")
	case n < 42:
		fields, said := w.fields()
		if len(fields) == 0 {
			return
		}
		repeats := w.rng.IntN(4) == 0
		if repeats {
			w.p.close()
			w.connects()
			said += `,"after":0`
		}
		for name, v := range fields {
			if repeats && cmp.Or(s.asked[name], "null") == v {
				delete(fields, name) // it asks for nothing
			}
		}
		result, fails := w.asks(acp.MethodSessionResume, loadOf(s.id, "/tmp", `,"mcpServers":[]`+own(said)))
		w.hears(s)
		if fails == nil {
			w.tunes(s, fields, result, at != nil)
		} else if s.unsure = true; !w.full {
			w.wrong("a load fails: %v", fails)
		}
		if w.full {
			s.maybe = append(s.maybe, fields["model"], fields["variant"], s.want.model, s.want.effort)
			if fails != nil && w.a.tells { // what it says by itself is followed
				s.want.model, s.want.effort = "", ""
			}
		}
	case n < 56:
		method, params, value, model := sets()
		_, fails := w.asks(method, params)
		w.hears(s)
		is, _, _ := w.at(s)
		switch {
		case fails == nil && model:
			s.want.model = value
			s.follows(is, true)
		case fails == nil:
			s.want.effort = value
		case w.full:
			s.unsure = true
			if w.a.tells || method == acp.MethodSessionSetModel { // what it says by itself is followed
				s.maybe = append(s.maybe, s.want.model, s.want.effort, value)
				s.want.model, s.want.effort = "", ""
			}
		case model && w.cannot(value, modelsHad), !model && w.cannot(value, effortsOf[is.model]):
		default:
			w.wrong("%s fails: %v", method, fails)
		}
		if fails == nil && !s.unsure {
			w.looks(s, is, "set")
		}
	case n < 61:
		if info, err := w.r.Session(s.id); err == nil && w.a.goesOver(info.AgentSessionID, modelsHad[w.rng.IntN(3)]) {
			synctest.Wait()
			is, _, _ := w.at(s)
			s.follows(is, true)
			w.say("the agent goes over to %s in %s", is.model, s.id)
		}
	case n < 67:
		v := []string{"big", "huge", "small", "high", "max"}[w.rng.IntN(5)]
		w.say("the agent refuses %s: %v", v, w.a.refuses(v))
	case n < 73:
		if at != nil {
			w.say("the process of %s dies", s.id)
			at.crash(errCrash)
			synctest.Wait()
			s.unsure = false
		}
	case n < 78:
		w.say("time passes")
		time.Sleep(40 * time.Second)
		synctest.Wait()
		for _, s := range w.all {
			s.unsure = false
		}
	case n < 82:
		if method, params, value, model := sets(); at != nil && !w.full { // the agent answers late, and goes on with that
			w.a.mu.Lock()
			w.a.holds = true
			w.a.mu.Unlock()
			if _, fails := w.asks(method, params); fails == nil {
				w.wrong("what is late is no error")
			}
			w.a.goesOn()
			synctest.Wait()
			switch now, _, _ := w.at(s); { // what it takes counts
			case model && !w.cannot(value, modelsHad):
				s.want.model = value
				s.follows(now, true)
			case !model && !w.cannot(value, effortsOf[now.model]):
				s.want.effort = value
			}
			if model := modelsHad[w.rng.IntN(3)]; w.a.byOption && !w.a.refused[model] {
				result, fails := w.asks(acp.MethodSessionResume, loadOf(s.id, "/tmp", `,"mcpServers":[]`+own(`"model":"`+model+`"`)))
				if now, _, _ := w.at(s); fails != nil || len(lacks(result)) > 0 || now.model != model {
					w.wrong("%s is in model %s behind a load with %s", s.id, now.model, model)
				} else {
					s.want.model, s.asked["model"] = model, model
					s.follows(now, true)
				}
			}
			at.crash(errCrash)
			synctest.Wait()
			s.unsure = false
		}
	case n < 86:
		if w.dir != "" {
			w.fills()
		}
	case n < 89:
		if w.dir != "" && !w.full {
			kill := w.rng.IntN(2) == 0
			w.say("the gateway starts again, killed: %v", kill)
			dir := w.dir
			if kill {
				dir = killed.Folder(w.t, dir)
			}
			w.ends()
			w.dir = dir
			w.begins()
			for _, s := range w.all {
				s.unsure = false
			}
		}
	case n < 92:
		title := []string{"V", "W", ""}[w.rng.IntN(3)]
		if _, fails := w.asks("_sandboxagent/session/set_metadata", `{"sessionId":"`+s.id+`","title":"`+title+`"}`); fails == nil {
			s.title = cmp.Or(title, s.own)
		} else if !w.full {
			w.wrong("rename: %v", fails)
		}
	case n < 96:
		result, fails := w.asks(acp.MethodSessionResume, loadOf(s.id, "/tmp", `,"mcpServers":[]`))
		if at != nil && fails == nil && w.a.byOption && !s.unsure {
			options, _ := rawjson.Member(result, "configOptions")
			for _, o := range rawjson.Elements(options) {
				if says := rawjson.MemberString(o, "currentValue"); rawjson.MemberString(o, "id") == "zmodel" && says != is.model || rawjson.MemberString(o, "id") == "effort" && says != is.effort {
					w.wrong("a client is told %s of %s, and it is %v", says, s.id, is)
				}
			}
		}
	case len(w.all) < 3 && !w.full:
		made := &tunedSession{id: fmt.Sprint("s", len(w.all)), asked: map[string]string{}}
		id := `"requestedSessionId":"` + made.id + `"`
		if strings.Contains(w.a.caps, "fork") && w.rng.IntN(3) > 0 {
			result, fails := w.asks(acp.MethodSessionFork, `{"sessionId":"`+s.id+`"`+own(id)+`}`)
			w.hears(s)
			if fails != nil {
				w.wrong("a fork fails: %v", fails)
				return
			}
			made.want, made.title, made.own = s.want, s.title, s.title
			for name, v := range s.asked {
				if name == "instructions" {
					made.asked[name] = v
				}
			}
			w.all = append(w.all, made)
			missing := lacks(result)
			is, _, _ := w.at(made)
			if missing["model"] && w.cannot(s.want.model, modelsHad) {
				made.want.model = ""
			}
			if (missing["variant"] || missing["effort"]) && w.cannot(s.want.effort, effortsOf[is.model]) {
				made.want.effort = ""
			}
			w.hears(made)
			w.looks(made, is, "fork")
			return
		}
		fields, said := w.fields()
		w.makes(made, fields, said)
	}
}

// fills has the disk take no records, or take them again.
func (w *tunings) fills() {
	w.full = !w.full
	w.say("the disk is full: %v", w.full)
	do := os.Remove
	if w.full {
		do = func(path string) error { return os.Mkdir(path, 0o700) }
	}
	for _, s := range w.all {
		if err := do(filepath.Join(w.dir, "sessions", s.id, "session.json.tmp")); err != nil {
			w.t.Fatal(err)
		}
		if !w.full {
			w.asks("_sandboxagent/session/set_metadata", `{"sessionId":"`+s.id+`","metadata":{}}`)
		}
	}
}

// makes makes a session.
func (w *tunings) makes(made *tunedSession, fields map[string]string, said string) {
	if said != "" {
		said = "," + said
	}
	result, fails := w.asks(acp.MethodSessionNew, `{"cwd":"/tmp","mcpServers":[]`+own(`"requestedSessionId":"`+made.id+`"`+said)+`}`)
	if fails != nil {
		w.wrong("a session is not made: %v", fails)
		return
	}
	w.all = append(w.all, made)
	w.tunes(made, fields, result, true)
}

// playTunings lets the steps of a seed happen, which are numbers, and says what was wrong.
func playTunings(t *testing.T, seed uint64, steps []int) (told []string, err error) {
	w := &tunings{t: t, rng: rand.New(rand.NewPCG(seed, 1<<41))}
	w.a = newTuned(w.rng)
	w.say("%s", w.a)
	if w.rng.IntN(4) == 0 {
		w.dir = t.TempDir()
	}
	w.begins()
	fields, said := w.fields()
	w.makes(&tunedSession{id: "s0", asked: map[string]string{}}, fields, said)
	for _, n := range steps {
		if len(w.faults) > 0 {
			break
		}
		w.rng = rand.New(rand.NewPCG(seed, uint64(n)))
		before := w.wants()
		w.a.asks()
		said := len(w.told)
		w.step()
		synctest.Wait()
		allowed := strings.Join(append(append(before, w.wants()...), w.told[said:]...), " ")
		for _, set := range w.a.asks() {
			if id, value, _ := strings.Cut(set, "="); id == "planmodel" || !strings.Contains(allowed, value) {
				w.wrong("the agent is set to %s", set)
			}
		}
		for _, s := range w.all {
			w.hears(s)
			if info, err := w.r.Session(s.id); err != nil || info.Title != s.title {
				w.wrong("%s has the title %q and must have %q, %v", s.id, info.Title, s.title, err)
			}
		}
	}
	if w.full {
		w.fills()
	}
	w.ends()
	var wrong []error
	for _, s := range w.faults {
		wrong = append(wrong, errors.New(s))
	}
	return w.told, errors.Join(wrong...)
}

// wants returns all that is wanted of any session.
func (w *tunings) wants() (out []string) {
	for _, s := range w.all {
		out = append(append(out, s.want.model, s.want.effort), s.maybe...)
	}
	return out
}

// Whatever is asked of models, efforts, titles and instructions, one behind the other: they are as they were chosen last when a prompt
// reaches the agent, also a new one, or somebody is told, once. See TestSettings_RandomSequences for the flags.
func TestTunings_RandomSequences(t *testing.T) {
	from, n := *settingsFirst, cmp.Or(*settingsCount, uint64(agentcache.Sequences(150)))
	if *settingsSeed >= 0 {
		from, n = uint64(*settingsSeed), 1
	}
	playSequences(t, from, n, playTunings)
}
