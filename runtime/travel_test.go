package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/paths"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// Keys go from all that can be read, paths from all that is not signed, and what is no
// JSON is edited as a text.
func TestTravel_FilesAreEdited(t *testing.T) {
	move := paths.NewMap(paths.Pair{From: "/old", To: "/new/home"})
	clean := func(s string) string { return strings.ReplaceAll(s, "KEY", "[removed]") }
	const in = `{"p":"/old/x KEY","thinking":"/old KEY","signature":"/old KEY"}` + "\n" + `{"p":"/old` + "\n" + `["/old"]`
	read := func(name string, json func([]byte) []byte, text func(string) string) string {
		t.Helper()
		b, err := io.ReadAll(edited(name, strings.NewReader(in), json, text))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct{ name, moved, cleaned string }{
		{
			"a.jsonl", `{"p":"/new/home/x KEY","thinking":"/old KEY","signature":"/old KEY"}` + "\n" + `{"p":"/new/home` + "\n" + `["/new/home"]`,
			`{"p":"/old/x [removed]","thinking":"/old [removed]","signature":"/old KEY"}` + "\n" + `{"p":"/old` + "\n" + `["/old"]`,
		},
		{"a.json", strings.ReplaceAll(in, "/old", "/new/home"), strings.ReplaceAll(in, "KEY", "[removed]")},
		{"a.txt", in, in},
	} {
		if got := read(c.name, move.JSON, move.Text); got != c.moved {
			t.Errorf("%s moved: %s", c.name, got)
		}
		if got := read(c.name, func(b []byte) []byte { return cleanJSON(b, clean) }, clean); got != c.cleaned {
			t.Errorf("%s cleaned: %s", c.name, got)
		}
	}
	if _, err := io.ReadAll(edited("a.json", io.LimitReader(endless{}, maxText+2), move.JSON, nil)); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("a text without an end: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A client may leave while its export waits for the agent to let the session go. The
// session is closed by then, and opens again.
func TestExport_ClientLeavesWhileTheSessionCloses(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	id := tc.session()
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.ExportSession(ctx, id, &Departure{}) }()
	closing := a.conn().next(t, "session/close")
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the export ended with %v", err)
	}
	a.conn().result(closing, `{}`)
	tc.call("session/resume", `{"sessionId":"`+id+`","cwd":"/tmp"}`) // waits until it is closed
	pid := tc.request("session/prompt", prompt(id, "x"))
	a.conn().result(a.conn().next(t, "session/resume"), `{}`)
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	if _, res := tc.until(pid); res.Err() != nil {
		t.Errorf("the next prompt: %s", res.Frame())
	}
}

// A gateway is killed after a session has made place for one that arrives, and before that
// one is there: it has the first one when it starts again, and somebody ends the rest.
func TestNew_KilledWhileASessionIsReplaced(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, &fakeAgent{id: "fake", caps: reopening})
	id := connect(t, r, "").session()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "travelling", "session-1")
	aside := filepath.Join(folder, filepath.FromSlash(session.Stage), "before")
	if err := os.MkdirAll(aside, 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(filepath.Join(dir, "sessions"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := os.Rename(filepath.Join(dir, "sessions", list[0].Name()), filepath.Join(aside, list[0].Name())); err != nil {
		t.Fatal(err)
	}
	left := ""
	open := func(fails error) *Runtime {
		left = ""
		return openRuntime(t, Options{DataDir: dir, Adapters: adaptersOf(&fakeAgent{id: "fake", caps: reopening}), DefaultAgent: "fake", Left: func(folder string, _ func(id, name string) ([]byte, error)) error {
			left = folder
			return fails
		}})
	}
	r = open(errors.New("git is at work there"))
	if _, err := os.Stat(folder); err != nil || left != folder {
		t.Errorf("what could not be ended is not left for the next start: %q, %v", left, err)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = open(nil)
	if _, err := r.Session(id); err != nil {
		t.Errorf("the session that was replaced by none: %v", err)
	}
	if left != folder {
		t.Errorf("%q was left, want %q", left, folder)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("the folder of what was on its way is there")
	}
}

// One whose place another one had taken does not come back when that is deleted, though a start could not end it all.
func TestNew_KilledBehindTheReplacement(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, &fakeAgent{id: "fake", caps: reopening})
	id := connect(t, r, "").session()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	aside := filepath.Join(dir, "travelling", "session-1", filepath.FromSlash(session.Stage), "before")
	copyDir(t, filepath.Join(aside, id), filepath.Join(dir, "sessions", id))
	open := func(fails error) *Runtime {
		return openRuntime(t, Options{
			DataDir: dir, Adapters: adaptersOf(&fakeAgent{id: "fake", caps: reopening}), DefaultAgent: "fake",
			Left: func(string, func(id, name string) ([]byte, error)) error { return fails },
		})
	}
	r = open(errors.New("git is at work there"))
	connect(t, r, "").call("session/delete", `{"sessionId":"`+id+`"}`)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := open(nil).Session(id); err == nil {
		t.Errorf("the one before is there: %+v", s)
	}
}

// A session that is left open while it is exported loses nothing by that: its agent stays, and
// prompts are taken. One that works, or goes on while it is read, is refused.
func TestExport_LeavesTheSessionOpen(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	id := tc.session()
	say := func() {
		pid := tc.request("session/prompt", prompt(id, "x"))
		a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(pid)
	}
	say()
	put := map[string]string{}
	d := Departure{
		Open: true, WithoutLog: true,
		Begin: func(m Manifest) error {
			if !m.WithoutLog || m.LastSeq == 0 {
				t.Errorf("the manifest is %+v", m)
			}
			return nil
		},
		Put: func(name string, from io.Reader) error {
			b, err := io.ReadAll(from)
			put[name] = string(b)
			return err
		},
	}
	if err := r.ExportSession(t.Context(), id, &d); err != nil {
		t.Fatal(err)
	}
	if len(put) != 1 || !strings.Contains(put[TravelRecord], id) {
		t.Errorf("it has %v", put)
	}
	say() // with the process that it had: the agent is not asked to close or to open it
	if _, err := r.ImportSession(t.Context(), Manifest{Version: ManifestVersion, SessionID: "other", WithoutLog: true}, t.TempDir(), ImportOptions{}); problem.From(err).Kind != problem.ArchiveRefused {
		t.Errorf("a file without a log: %v", err)
	}

	began := false
	d.Look = func(context.Context, string, Beside) (int64, error) { say(); return 0, nil }
	d.Begin = func(Manifest) error { began = true; return nil }
	if err := r.ExportSession(t.Context(), id, &d); problem.From(err).Kind != problem.Conflict || began {
		t.Errorf("one that goes on while it is read: %v, begun %v", err, began)
	}
	pid := tc.request("session/prompt", prompt(id, "x"))
	asked := a.conn().next(t, "session/prompt")
	if err := r.ExportSession(t.Context(), id, &d); problem.From(err).Kind != problem.Conflict {
		t.Errorf("one that works: %v", err)
	}
	a.conn().result(asked, `{"stopReason":"end_turn"}`)
	tc.until(pid)
}

// A client opens a session that is closed while it is exported, and goes on in it: what was read before may not
// belong to what is read behind. The session stays open.
func TestExport_OpenedWhileItIsRead(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	id := tc.session()
	began := false
	export := make(chan error, 1)
	opened := make(chan struct{})
	reading := make(chan struct{})
	d := Departure{
		Look: func(context.Context, string, Beside) (int64, error) {
			close(reading)
			<-opened
			return 0, nil
		},
		Begin: func(Manifest) error { began = true; return nil },
		Put:   func(string, io.Reader) error { return nil },
	}
	go func() { export <- r.ExportSession(t.Context(), id, &d) }()
	a.conn().result(a.conn().next(t, "session/close"), `{}`)
	<-reading
	tc.call("session/resume", `{"sessionId":"`+id+`","cwd":"/tmp"}`)
	pid := tc.request("session/prompt", prompt(id, "x"))
	a.conn().result(a.conn().next(t, "session/resume"), `{}`)
	asked := a.conn().next(t, "session/prompt")
	a.conn().result(asked, `{"stopReason":"end_turn"}`)
	tc.until(pid)
	close(opened)
	if err := <-export; err == nil || problem.From(err).Kind != problem.Conflict || began {
		t.Errorf("the export: %v, begun %v", err, began)
	}
	if s, err := r.Session(id); err != nil || s.State == StateClosed {
		t.Errorf("then it is %v, %v", s.State, err)
	}
}

// What an event shows of an entry is enough to make that again, for whoever has lost the log.
func TestEvent_AppendEntry(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	for _, tt := range []struct {
		kind  journal.Kind
		to    journal.Recipient
		frame string
		want  journal.Recipient
	}{
		{journal.Client, journal.Nobody, `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s"}}`, journal.Nobody},
		{journal.Echo, journal.Except(3), `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message_chunk"}}}`, journal.Everyone},
		{journal.Update, journal.Everyone, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"text":"<\u2028>"}}}`, journal.Everyone},
		{journal.Ask, journal.Everyone, `{"jsonrpc":"2.0","id":"a","method":"session/request_permission","params":{"sessionId":"s"}}`, journal.Everyone},
		{journal.AskDone, journal.Everyone, `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"a"}}`, journal.Everyone},
		{journal.Notice, journal.Everyone, `{"jsonrpc":"2.0","method":"x/notice","params":{"sessionId":"s"}}`, journal.Everyone},
		{journal.TurnEnd, journal.Except(3), `{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s"}}`, journal.Everyone},
		{journal.Response, 3, `{"jsonrpc":"2.0","id":1,"result":{}}`, journal.Nobody},
	} {
		was, err := journal.NewLines(bytes.NewReader(journal.AppendEntry(nil, 7, at, tt.kind, tt.to, []byte(tt.frame)))).Next()
		if err != nil {
			t.Fatal(err)
		}
		b, err := event(was).AppendEntry(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := journal.NewLines(bytes.NewReader(b)).Next()
		if err != nil || got.Seq != 7 || !got.Time().Equal(at) || got.Kind != tt.kind || got.To != tt.want || string(got.Frame) != tt.frame {
			t.Errorf("%c became %s: %v", tt.kind, b, err)
		}
	}
	damaged := `{"jsonrpc":"2.0","method":"_sandboxagent/session/events_damaged","params":{"sessionId":"s","firstSeq":5,"lastSeq":7}}`
	b, err := Event{Seq: 7, Time: at, Direction: FromGateway, Message: []byte(damaged)}.AppendEntry(nil)
	if err != nil || !strings.Contains(string(b), `"kind":"n","to":0,"message":`+damaged) { // as logs that travel have it
		t.Errorf("what stands for lost events became %s: %v", b, err)
	}
	if _, err := (Event{Message: []byte(`1`)}).AppendEntry(nil); err == nil {
		t.Error("what is no message is an entry")
	}
}

// A session is closed while it is exported, and open again behind that, of which its clients are told nothing. When somebody
// closes it meanwhile they are, and it stays closed. Of two exports at once the last one opens it.
func TestExport_MeetsAClose(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(t *testing.T, r *Runtime, tc *testClient, id string)
		told      []string
		closed    bool
	}{
		"nothing": {func(*testing.T, *Runtime, *testClient, string) {}, nil, false},
		"a close": {func(t *testing.T, _ *Runtime, tc *testClient, id string) {
			tc.call("session/close", `{"sessionId":"`+id+`"}`)
		}, []string{"closed"}, true},
		"a close, and a resume": {func(t *testing.T, _ *Runtime, tc *testClient, id string) {
			tc.call("session/close", `{"sessionId":"`+id+`"}`)
			tc.call("session/resume", `{"sessionId":"`+id+`","cwd":"/tmp"}`)
		}, []string{"closed"}, false},
		"a move": {func(t *testing.T, r *Runtime, _ *testClient, id string) {
			s, err := r.Session(id)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.DepartSession(t.Context(), id, s.EventCount, nil, "node://elsewhere"); err != nil {
				t.Error(err)
			}
		}, []string{"moved"}, true},
		"another export": {func(t *testing.T, r *Runtime, _ *testClient, id string) {
			if err := r.ExportSession(t.Context(), id, &Departure{Begin: func(Manifest) error { return errLeft }}); !errors.Is(err, errLeft) {
				t.Errorf("the other export: %v", err)
			}
			if s, err := r.Session(id); err != nil || s.State != StateClosed {
				t.Errorf("behind the first of two exports it is %s, %v", s.State, err)
			}
		}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: reopening}
			a.handle = func(c *fakeConn, m acp.Message) {
				switch {
				case m.Method() == "session/new":
					c.newSession(m)
				case m.IsRequest():
					c.result(m, `{}`)
				}
			}
			r := newRuntime(t, t.TempDir(), a)
			watches, tc := connect(t, r, ""), connect(t, r, "")
			id := watches.session()
			err := r.ExportSession(t.Context(), id, &Departure{Begin: func(Manifest) error {
				row.meanwhile(t, r, tc, id)
				return errLeft
			}})
			if !errors.Is(err, errLeft) {
				t.Fatalf("the export: %v", err)
			}
			if s, err := r.Session(id); err != nil || (s.State == StateClosed) != row.closed {
				t.Errorf("then it is %s, %v", s.State, err)
			}
			before, _ := watches.until(watches.request("session/list", `{}`))
			var told []string
			for _, m := range before {
				if m.Method() == "_sandboxagent/session/ended" {
					told = append(told, rawjson.MemberString(m.Params(), "data", "reason"))
				}
			}
			if diff := cmp.Diff(row.told, told); diff != "" {
				t.Errorf("its clients are told (-want +got):\n%s", diff)
			}
		})
	}
}

var errLeft = errors.New("whoever exports has left")

// A session may be deleted while something is kept beside it, as by an export: that is told as what it is. Another session may
// have its id by then, and has nothing of it.
func TestSession_KeepsNothingWhenItIsDeleted(t *testing.T) {
	r := newRuntime(t, t.TempDir(), &fakeAgent{id: "fake", caps: reopening})
	tc := connect(t, r, "")
	const mine = `{"cwd":"/","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"mine","includeRaw":true}}}`
	tc.call("session/new", mine)
	before := r.sessions.Find("mine")
	if err := before.KeepText("text", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	tc.call("session/delete", `{"sessionId":"mine"}`)
	tc.call("session/new", mine)
	after := r.sessions.Find("mine")
	if text, err := after.Kept("text"); text != nil || err != nil {
		t.Errorf("the next session has %q of it, %v", text, err)
	}
	if err := after.KeepText("text", []byte("of the next")); err != nil {
		t.Fatal(err)
	}
	for does, use := range map[string]func() error{
		"keeps a text": func() error { return before.KeepText("text", []byte("kept")) },
		"reads a text": func() error { _, err := before.Kept("text"); return err },
		"reads what was recorded": func() error {
			raw, err := before.Raw(t.Context())
			if raw != nil {
				_ = raw.Close()
			}
			return err
		},
	} {
		err := use()
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.SessionNotFound {
			t.Errorf("one that was deleted %s: %v", does, err)
		}
	}
	if text, err := after.Kept("text"); string(text) != "of the next" || err != nil {
		t.Errorf("the next session has %q, %v", text, err)
	}
}

// What the log of a session has lost, clients are told where it has come to as they are where it was: when they load it, too.
func TestImport_OfADamagedLog(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	for i := range 8 {
		id := tc.request("session/prompt", prompt(s, fmt.Sprint("question ", i)))
		a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sessions", s, "log.journal")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(log[len(log)*2/5 : len(log)/2])
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	shown := func(r *Runtime) (events []Event, told []string) {
		events, _, err := r.Events(t.Context(), s, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		one := connect(t, r, "")
		before, _ := one.loaded(s)
		two := connectTwo(t, r, `{"_meta":{"sandboxagent.dev":{"notices":true}}}`)
		more, _ := two.until(two.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","replayFrom":{"type":"start"}}`))
		for _, m := range append(before, more...) {
			if strings.HasSuffix(m.Method(), "events_damaged") {
				told = append(told, string(m.Params()))
			}
		}
		one.close()
		two.close()
		return events, told
	}
	r = newRuntime(t, dir, &fakeAgent{caps: a.caps})
	m, files := Manifest{}, t.TempDir()
	d := Departure{Open: true, Begin: func(begun Manifest) error { m = begun; return nil }, Put: func(name string, from io.Reader) error {
		b, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		to := filepath.Join(files, filepath.FromSlash(name))
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, b, 0o600))
	}}
	if err := r.ExportSession(t.Context(), s, &d); err != nil {
		t.Fatal(err)
	}
	events, told := shown(r)
	if len(told) < 2 {
		t.Fatalf("where it was clients are told %q", told)
	}
	for name, ephemeral := range map[string]bool{"with files": false, "in memory": true} {
		there := openRuntime(t, Options{
			DataDir: t.TempDir(), Ephemeral: ephemeral, Adapters: []adapters.Adapter{&fakeAgent{id: "fake", caps: a.caps}}, DefaultAgent: "fake", Version: "test",
		})
		if _, err := there.ImportSession(t.Context(), m, files, ImportOptions{}); err != nil {
			t.Fatal(name, err)
		}
		eventsThere, toldThere := shown(there)
		if diff := cmp.Diff(told, toldThere); diff != "" {
			t.Errorf("%s: clients are told (-where it was +there):\n%s", name, diff)
		}
		if diff := cmp.Diff(events, eventsThere[:min(len(events), len(eventsThere))]); diff != "" {
			t.Errorf("%s: the events (-where it was +there):\n%s", name, diff)
		}
	}
}
