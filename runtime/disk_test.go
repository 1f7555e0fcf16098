package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// A log that cannot be opened refuses work with the reason, and is opened when
// it can be: nothing of the session is in memory only, and no number is given
// twice.
func TestLog_OpeningIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "first"))
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sessions", s, "log.journal")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	b := &fakeAgent{}
	r = newRuntime(t, dir, b)
	tc = connect(t, r, "")
	for _, method := range []string{"session/load", "session/prompt"} {
		params := prompt(s, "lost?")
		if method == "session/load" {
			params = `{"sessionId":"` + s + `","cwd":"/","mcpServers":[]}`
		}
		_, res := tc.until(tc.request(method, params))
		if e := res.Err(); e == nil || !strings.Contains(e.Error(), "cannot be opened") {
			t.Errorf("%s: %v", method, e)
		}
	}
	if _, _, err := r.Events(t.Context(), s, 0, 10); err == nil {
		t.Error("the history of a log that cannot be opened is read")
	}
	if err := r.Ready(); err != nil {
		t.Errorf("what is wrong with one log concerns the gateway: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	events, _, err := r.Events(t.Context(), s, 0, 100)
	if err != nil || len(events) == 0 || !strings.Contains(string(events[len(events)-1].Message), "end_turn") {
		t.Errorf("%d events, %v", len(events), err)
	}
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
}

// While the folder of all sessions is not where it was, nothing is taken that nobody would find again: files that are
// open could be written. When it is back all goes on.
func TestSessions_TheirFolderIsGone(t *testing.T) {
	for _, way := range []string{"removed", "another one"} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, "")
			s := tc.session()
			at, away := filepath.Join(dir, "sessions"), filepath.Join(dir, "away")
			if err := os.Rename(at, away); err != nil {
				t.Fatal(err)
			}
			want := "was removed or renamed"
			if way == "another one" {
				want = "another folder has the place"
				if err := os.CopyFS(at, os.DirFS(away)); err != nil {
					t.Fatal(err)
				}
			}
			refused := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), at) {
					t.Errorf("%s: %v", what, err)
				}
			}
			refused("ready", r.Ready())
			for method, params := range map[string]string{"session/prompt": prompt(s, "lost?"), "session/new": `{"cwd":"/","mcpServers":[]}`} {
				_, res := tc.until(tc.request(method, params))
				e := res.Err()
				if e == nil {
					t.Fatalf("%s is taken", method)
				}
				refused(method, e)
			}
			if way == "another one" {
				if err := os.Rename(at, filepath.Join(dir, "other")); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(away, at); err != nil {
				t.Fatal(err)
			}
			if err := r.Ready(); err != nil {
				t.Error(err)
			}
			id := tc.request("session/prompt", prompt(s, "kept"))
			a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			if _, res := tc.until(id); res.Err() != nil {
				t.Error(res.Err())
			}
		})
	}
}

// apart has another folder in the place of that of all sessions: an empty one, or a copy of it. back puts it back. It is for the time of a
// synctest.
func apart(t *testing.T, dir string, copied bool) (at string, back func()) {
	t.Helper()
	synctest.Wait() // nothing is being written
	at, away := filepath.Join(dir, "sessions"), filepath.Join(dir, "away")
	err := os.Rename(at, away)
	if err == nil && copied {
		err = os.CopyFS(at, os.DirFS(away))
	} else if err == nil {
		err = os.Mkdir(at, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return at, func() {
		t.Helper()
		if err := errors.Join(os.RemoveAll(at), os.Rename(away, at)); err != nil {
			t.Fatal(err)
		}
	}
}

// allIn returns what is in a folder, by the names of the files.
func allIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			files[path] = ""
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A turn that runs as another folder gets the place of that of all sessions ends nowhere else than where it began, and what is changed
// meanwhile is refused. When the folder is back all is there.
func TestSessions_TheirFolderGoesInATurn(t *testing.T) {
	for name, copied := range map[string]bool{"an empty one": false, "a copy": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				a := &fakeAgent{}
				r := newRuntime(t, dir, a)
				tc := connect(t, r, "")
				s := tc.session()
				id := tc.request("session/prompt", prompt(s, "go"))
				asked := a.conn().next(t, "session/prompt")
				at, back := apart(t, dir, copied)
				before := allIn(t, at)
				a.conn().chunk(s, "done")
				a.conn().send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"session_info_update","title":"Of the turn"}}}`)
				a.conn().result(asked, `{"stopReason":"end_turn"}`)
				if _, res := tc.until(id); res.Err() != nil {
					t.Error(res.Err())
				}
				metadata := `{"sessionId":"` + s + `","metadata":{"a":1}}`
				if e := tc.callErr("_sandboxagent/session/set_metadata", metadata); !strings.Contains(e.Message, "another folder has the place of "+at) {
					t.Error(e)
				}
				if diff := cmp.Diff(before, allIn(t, at)); diff != "" {
					t.Errorf("what has its place is changed (-before +after):\n%s", diff)
				}
				back()
				tc.call("_sandboxagent/session/set_metadata", metadata)
				tc.close()
				if err := r.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				r = newRuntime(t, dir, &fakeAgent{})
				info, err := r.Session(s)
				if err != nil || info.Title != "Of the turn" || string(info.Metadata) != `{"a":1}` {
					t.Errorf("%+v, %v", info, err)
				}
				events, _, err := r.Events(t.Context(), s, 0, 100)
				if err != nil || len(events) == 0 || !strings.Contains(string(events[len(events)-1].Message), "end_turn") {
					t.Errorf("%d events, %v", len(events), err)
				}
			})
		})
	}
}

// A gateway that is ended since a copy of the folder of all sessions has its place leaves that as it is: the next one goes on with it.
func TestSessions_EndsWithACopyInTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := &fakeAgent{}
		r := newRuntime(t, dir, a)
		tc := connect(t, r, "")
		s := tc.session()
		turn := func(text string) {
			id := tc.request("session/prompt", prompt(s, text))
			asked := a.conn().next(t, "session/prompt")
			for range 100 {
				a.conn().chunk(s, text+strings.Repeat(" and what is said again", 100))
			}
			a.conn().result(asked, `{"stopReason":"end_turn"}`)
			tc.until(id)
		}
		turn("first")
		synctest.Wait() // it is kept by then
		other := filepath.Join(dir, "copy")
		if err := os.CopyFS(other, os.DirFS(filepath.Join(dir, "sessions"))); err != nil {
			t.Fatal(err)
		}
		turn("second")
		at, _ := apart(t, dir, false)
		if err := errors.Join(os.Remove(at), os.Rename(other, at)); err != nil {
			t.Fatal(err)
		}
		before := allIn(t, at)
		tc.close()
		if err := r.Shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), "another folder has the place") {
			t.Errorf("the end: %v", err)
		}
		if diff := cmp.Diff(before, allIn(t, at)); diff != "" {
			t.Errorf("the copy is changed (-before +after):\n%s", diff)
		}
		r = newRuntime(t, dir, &fakeAgent{})
		events, _, err := r.Events(t.Context(), s, 0, 1000)
		if err != nil || len(events) == 0 {
			t.Fatal(len(events), err)
		}
		for _, e := range events {
			if strings.Contains(string(e.Message), "events_damaged") || strings.Contains(string(e.Message), "second") {
				t.Errorf("the copy has %.300s", e.Message)
			}
		}
	})
}

// A session whose files are not where they were is not deleted: they would come back, and the agent would have nothing of it then.
func TestDelete_TheirFolderIsGone(t *testing.T) {
	for _, serves := range []bool{true, false} {
		t.Run(fmt.Sprint("it is served: ", serves), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{},"delete":{}}}`, shared: make(chan sent, 64)}
				r := newRuntime(t, dir, a)
				tc := connect(t, r, "")
				s := tc.session()
				params := fmt.Sprintf(`{"sessionId":%q}`, s)
				if !serves {
					closed := tc.request("session/close", params)
					a.answer(a.nextOf(t, "session/close"), `{}`)
					tc.until(closed)
				}
				at, back := apart(t, dir, false)
				id := tc.request("session/delete", params)
				if serves {
					a.answer(a.nextOf(t, "session/close"), `{}`)
				}
				_, res := tc.until(id)
				if e := res.Err(); e == nil || !strings.Contains(e.Message, "another folder has the place of "+at) {
					t.Fatalf("%s", res.Frame())
				}
				back()
				if i, err := r.Session(s); err != nil || i.State != StateClosed {
					t.Errorf("%+v, %v", i, err)
				}
				id = tc.request("session/delete", params)
				a.answer(a.nextOf(t, "session/delete"), `{}`)
				if _, res := tc.until(id); res.Err() != nil {
					t.Error(res.Err())
				}
				if left := allIn(t, at); len(left) != 1 {
					t.Errorf("there is %v", left)
				}
			})
		})
	}
}

// A session that was in use until the gateway's end leaves a file that is compressed, and all of its events in it.
func TestLog_CompressedAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "go"))
	asked := a.conn().next(t, "session/prompt")
	for i := range 1000 {
		a.conn().chunk(s, strconv.Itoa(i)+strings.Repeat(" and what is said again", 20))
	}
	a.conn().result(asked, `{"stopReason":"end_turn"}`)
	tc.until(id)
	tc.close()
	path := filepath.Join(dir, "sessions", s, "log.journal")
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	read := func() string {
		events, _, err := r.Events(t.Context(), s, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(events)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	events := read()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := size(); after > int64(len(events)/5) {
		t.Errorf("%d bytes of events take %d at the end", len(events), after)
	}
	r = newRuntime(t, dir, &fakeAgent{})
	if again := read(); again != events {
		t.Error("the events of the next gateway are others")
	}
}

// On a full disk an agent is held back, the prompt is not answered, clients and
// Ready are told, and no session is made; with room again it goes on.
func TestLog_FullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	dir := t.TempDir()
	a := &fakeAgent{}
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	plain := connect(t, r, "{}")
	plain.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	path := filepath.Join(dir, "sessions", s, "log.journal")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	r.sessions.Find(s).Log().Release(0) // the file is opened anew, by whoever writes next
	id := tc.request("session/prompt", prompt(s, "go"))
	told := tc.nextOf("_sandboxagent/session/storage")
	if m := plain.nextOf("session/update"); !strings.Contains(string(m.Update()), `"storage":{"writable":false,"reason":"`) {
		t.Errorf("a client that knows the protocol only is told %s", m.Frame())
	}
	if !strings.Contains(string(told.Params()), "no space left") || !strings.Contains(string(told.Params()), `"writable":false`) {
		t.Errorf("clients are told %s", told.Params())
	}
	late := connect(t, r, "")
	late.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	if m := late.nextOf("_sandboxagent/session/storage"); !strings.Contains(string(m.Params()), `"writable":false`) {
		t.Errorf("who comes meanwhile is told %s", m.Frame())
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("ready: %v", err)
	}
	if _, res := tc.until(tc.request("session/new", `{"cwd":"/","mcpServers":[]}`)); res.Err() == nil {
		t.Error("a session is made that cannot be written")
	}
	if _, res := tc.until(tc.request("session/prompt", prompt(s, "another"))); res.Err() == nil {
		t.Error("a prompt is taken that cannot be written")
	}
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	before, res := tc.until(id)
	if res.Err() != nil {
		t.Error(res.Err())
	}
	// That it takes entries again is told beside the log, a moment later at most.
	if !slices.ContainsFunc(before, func(m acp.Message) bool { return strings.Contains(string(m.Params()), `"writable":true`) }) {
		tc.nextOf("_sandboxagent/session/storage")
	}
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
}

// An answer that does not travel on the stream waits for the file, too: nobody hears of the end of a turn whose
// events a kill would take. What is refused meanwhile is answered at once.
func TestLog_FullDisk_AnswersBesideTheStream(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{caps: reopening}
	r := newRuntime(t, dir, a)
	c := inlineClient(t, r)
	s := rawjson.MemberString(inlineCall(t, c, "1", "session/new", `{"cwd":"/tmp","mcpServers":[]}`).Frame, "result", "sessionId")
	log := r.sessions.Find(s).Log()
	path := filepath.Join(dir, "sessions", s, "log.journal")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // takes nothing
		t.Fatal(err)
	}
	log.Release(0) // the file is opened anew, by whoever writes next
	answer, err := c.Call(t.Context(), acp.NewRequest("2", "session/prompt", []byte(prompt(s, "go"))))
	if err != nil {
		t.Fatal(err)
	}
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == StateIdle })
	if rep := inlineCall(t, c, "3", "session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`); !strings.Contains(string(rep.Frame), `"error"`) {
		t.Errorf("a session is made that cannot be written: %s", rep.Frame)
	}
	r.sessions.Find(s).Flush() // which the turn's end does before it answers
	select {
	case rep := <-answer:
		t.Errorf("%s was said, and the newest event of the file is %d", rep.Frame, log.Last())
	default:
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	select {
	case rep := <-answer:
		if !strings.Contains(string(rep.Frame), "end_turn") || log.Last() < rep.Seq {
			t.Errorf("%s is event %d, and the newest of the file is %d", rep.Frame, rep.Seq, log.Last())
		}
	case <-time.After(wait):
		t.Fatal("with room again the turn is not answered")
	}
}

// A session whose record is lost is made again from its log: with its history,
// once, and its agent.
func TestRecord_IsMadeAgainFromTheLog(t *testing.T) {
	for name, harm := range map[string]func(record string) error{
		"empty":   func(record string) error { return os.WriteFile(record, nil, 0o600) },
		"missing": os.Remove,
		"half":    func(record string) error { return os.WriteFile(record, []byte(`{"version":1,"id":"na`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, "")
			s := tc.session()
			id := tc.request("session/prompt", prompt(s, "precious"))
			a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
			tc.close()
			before, _, err := r.Events(t.Context(), s, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			record := filepath.Join(dir, "sessions", s, "session.json")
			if err := harm(record); err != nil {
				t.Fatal(err)
			}
			harmed, _ := os.ReadFile(record)
			r = newRuntime(t, dir, &fakeAgent{})
			info, err := r.Session(s)
			if err != nil || info.Agent != "fake" || info.EventCount != before[len(before)-1].Seq {
				t.Fatalf("%+v, %v", info, err)
			}
			if kept, err := os.ReadFile(record + ".damaged"); string(kept) != string(harmed) || (err == nil) != (len(harmed) > 0) {
				t.Errorf("of %q is kept %q, %v", harmed, kept, err)
			}
			tc = connect(t, r, "")
			tc.call("session/load", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
			after, _, err := r.Events(t.Context(), s, 0, 100)
			if err != nil || len(after) < len(before) || !strings.Contains(string(after[1].Message), "precious") && !strings.Contains(string(after[0].Message), "precious") {
				t.Errorf("%d events, and %d before, %v", len(after), len(before), err)
			}
		})
	}
}

// A log that lost its end behind the gateway's back says so: the record knows how far it went.
func TestRecord_KnowsWhereTheLogEnds(t *testing.T) {
	for name, harm := range map[string]func(log string) error{
		"cut off": func(log string) error { return os.Truncate(log, 100) },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, "")
			s := tc.session()
			id := tc.request("session/prompt", prompt(s, "precious"))
			a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			info, err := r.Session(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := harm(filepath.Join(dir, "sessions", s, "log.journal")); err != nil {
				t.Fatal(err)
			}
			r = newRuntime(t, dir, &fakeAgent{})
			events, _, err := r.Events(t.Context(), s, 0, 100)
			if err != nil || len(events) == 0 {
				t.Fatalf("%d events, %v", len(events), err)
			}
			last := events[len(events)-1]
			m := acp.MustParse(last.Message)
			var told struct{ FirstSeq, LastSeq uint64 }
			if err := json.Unmarshal(m.Params(), &told); err != nil || m.Method() != "_sandboxagent/session/events_damaged" || told.LastSeq < info.EventCount {
				t.Errorf("of %d events the last is %s, %v", info.EventCount, last.Message, err)
			}
			if now, err := r.Session(s); err != nil || now.UpdatedAt.Before(info.CreatedAt.Truncate(time.Millisecond)) || now.UpdatedAt.After(info.UpdatedAt) {
				t.Errorf("it was last active at %v, and is said to be made at %v and active at %v, %v", info.UpdatedAt, info.CreatedAt, now.UpdatedAt, err)
			}
		})
	}
}

// A log that this version cannot read is the trouble of its session alone: others are
// made, and it can be deleted.
func TestLog_OfANewerVersion(t *testing.T) {
	dir := t.TempDir()
	r := newRuntime(t, dir, &fakeAgent{})
	tc := connect(t, r, "")
	s := tc.session()
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sessions", s, "log.journal"), []byte("sandbox-agent journal 3\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, &fakeAgent{})
	tc = connect(t, r, "")
	if e := tc.callErr("session/load", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`); !strings.Contains(e.Message, "was written by a newer sandbox-agent") {
		t.Errorf("%v", e)
	}
	if got := tc.call("session/list", `{}`); !strings.Contains(got, s) {
		t.Errorf("the list is %s", got)
	}
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
	tc.session()
	tc.call("session/delete", `{"sessionId":"`+s+`"}`)
	if _, err := os.Stat(filepath.Join(dir, "sessions", s)); !os.IsNotExist(err) {
		t.Errorf("of the deleted session there is something left: %v", err)
	}
}

// The record of a session is lost whose agent has said something before it answered
// session/new, as Claude Code does. Its log has a copy: the session is there, and has the
// mode that it was made with.
func TestRecord_LostOfAnAgentThatSpeaksFirst(t *testing.T) {
	early := &fakeAgent{id: "fake"}
	early.handle = func(c *fakeConn, m acp.Message) {
		if m.Method() == acp.MethodSessionNew {
			c.chunk("native-1", "hello") // the first message of its session
			c.newSession(m)
		}
	}
	dir := t.TempDir()
	r := openRuntime(t, Options{DataDir: dir, Adapters: adaptersOf(early), DefaultAgent: "fake"})
	tc := connect(t, r, "")
	s := rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"title":"mine"}}}`)), "sessionId")
	waitFor(t, r, s, func(i SessionInfo) bool { return i.EventCount > 0 })
	after := t.TempDir()
	copyDir(t, after, dir) // as it is after a kill
	records, err := filepath.Glob(filepath.Join(after, "sessions", "*", "session.json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("%q, %v", records, err)
	}
	if err := os.Truncate(records[0], 0); err != nil {
		t.Fatal(err)
	}
	next := openRuntime(t, Options{DataDir: after, Adapters: adaptersOf(&fakeAgent{id: "fake"}), DefaultAgent: "fake"})
	info, err := next.Session(s)
	if err != nil || info.Title != "mine" || info.Cwd != "/tmp" {
		t.Errorf("it is %+v, %v", info, err)
	}
}

// While records cannot be written each session tries again and again. The gateway's log says it now and then: it may
// stand on the same disk.
func TestRecord_ThatCannotBeWrittenIsToldNowAndThen(t *testing.T) {
	var said bytes.Buffer
	dir := t.TempDir()
	r := openRuntime(t, Options{DataDir: dir, Adapters: adaptersOf(&fakeAgent{id: "fake"}), DefaultAgent: "fake", Logger: slog.New(slog.NewTextHandler(&said, nil))})
	tc := connect(t, r, "")
	var inTheWay []string
	set := func(s string) string {
		return `{"sessionId":"` + s + `","metadata":{"tries":` + strconv.Itoa(len(inTheWay)) + `}}`
	}
	sessions := []string{tc.session(), tc.session()}
	for _, s := range sessions {
		tc.call("_sandboxagent/session/set_metadata", set(s)) // behind it no record is being written
		inTheWay = append(inTheWay, filepath.Join(dir, "sessions", s, "session.json.tmp"))
		if err := os.Mkdir(inTheWay[len(inTheWay)-1], 0o700); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if e := tc.callErr("_sandboxagent/session/set_metadata", set(s)); !strings.Contains(e.Message, "cannot be written now") {
				t.Errorf("%v", e)
			}
		}
	}
	for i, s := range sessions {
		if err := os.Remove(inTheWay[i]); err != nil {
			t.Fatal(err)
		}
		tc.call("_sandboxagent/session/set_metadata", set(s))
	}
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "level=ERROR"); n != 1 {
		t.Errorf("the log has %d errors:\n%s", n, said.String())
	}
}

// filesIn returns what the files of a folder have, by name.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range names {
		b, _ := os.ReadFile(name) // a folder has nothing
		files[name] = string(b)
	}
	return files
}

// What a session has on disk is nobody else's when its record cannot be read, or not by this version: it stays
// as it is, whoever asks for its id. When it can be read again it is there, also without another start.
func TestRecord_ThatCannotBeReadStays(t *testing.T) {
	for name, harm := range map[string]func(record string) error{
		"no file": func(record string) error {
			return errors.Join(os.Rename(record, record+".away"), os.Mkdir(record, 0o700))
		},
		"newer": func(record string) error {
			b, err := os.ReadFile(record)
			return errors.Join(err, os.Rename(record, record+".away"), os.WriteFile(record, rawjson.SetMember(b, []byte("9"), "version"), 0o600))
		},
		"another's": func(record string) error {
			b, err := os.ReadFile(record)
			return errors.Join(err, os.Rename(record, record+".away"), os.WriteFile(record, rawjson.SetMember(b, []byte(`"else"`), "id"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := &fakeAgent{}
			r := newRuntime(t, dir, a)
			tc := connect(t, r, "")
			s := tc.session()
			id := tc.request("session/prompt", prompt(s, "precious"))
			a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
			tc.call("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{"since":"then"}}`)
			tc.close()
			if err := r.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			record := filepath.Join(dir, "sessions", s, "session.json")
			if err := harm(record); err != nil {
				t.Fatal(err)
			}
			before := filesIn(t, filepath.Dir(record))
			r = newRuntime(t, dir, &fakeAgent{})
			tc = connect(t, r, "")
			if other := tc.session(); other == s { // the agent counts its sessions from one in each process
				t.Error("a new session has its id")
			}
			if e := tc.callErr("session/new", `{"cwd":"/","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"`+s+`"}}}`); !strings.Contains(e.Message, "is taken") {
				t.Errorf("%v", e)
			}
			load := `{"sessionId":"` + s + `","cwd":"/","mcpServers":[]}`
			if e := tc.callErr("session/load", load); !strings.Contains(e.Message, "cannot be read; it is as it was in "+filepath.Dir(record)) {
				t.Errorf("%v", e)
			}
			if after := filesIn(t, filepath.Dir(record)); !maps.Equal(before, after) {
				t.Errorf("its files were %q and are %q", before, after)
			}
			if err := errors.Join(os.RemoveAll(record), os.Rename(record+".away", record)); err != nil {
				t.Fatal(err)
			}
			tc.call("session/load", load)
			if info, err := r.Session(s); err != nil || string(info.Metadata) != `{"since":"then"}` || info.EventCount == 0 {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

// A gateway that was killed while it made a session, and had written nothing of it that can be read,
// has told nobody of it: its folder goes. What else stands in a folder stays.
func TestRecord_NeverWritten(t *testing.T) {
	dir := t.TempDir()
	for file, holds := range map[string]string{
		"unfinished/session.json.tmp": `{"version":1,"id":"unf`, "begun/session.json.tmp": "", "begun/log.journal": "", "log/log.journal": "",
		"strange/notes": "n", "both/session.json.tmp": "", "both/notes": "", "written/log.journal": "something",
	} {
		path := filepath.Join(dir, "sessions", file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(holds), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sessions", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t, dir, &fakeAgent{})
	if list, err := r.Sessions(t.Context(), SessionFilter{}); err != nil || len(list.Sessions) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
	var left []string
	folders, err := os.ReadDir(filepath.Join(dir, "sessions"))
	for _, f := range folders {
		left = append(left, f.Name())
	}
	if err != nil || !slices.Equal(left, []string{"both", "strange", "written"}) {
		t.Errorf("left are %q, %v", left, err)
	}
}
