package claude

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// TestTranscripts_List pages through many conversations; some were held here,
// some hold nothing, one is being written.
func TestTranscripts_List(t *testing.T) {
	home, state := t.TempDir(), t.TempDir()
	cwd := "/w/a_project"
	dir := filepath.Join(home, ".claude", "projects", folderOf(cwd))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const all = 120
	id := func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
	for i := range all {
		line := fmt.Sprintf(`{"type":"user","uuid":"u","cwd":%q,"message":{"role":"user","content":"prompt %d\nmore"}}`, cwd, i) + "\n"
		switch {
		case i%40 == 0:
			line = `{"type":"queue-operation"}` + "\n"
		case i == 1:
			line += `{"type":"custom-title","customTitle":"Given"}` + "\n" + `{"type":"assist`
		}
		path := filepath.Join(dir, id(i)+".jsonl")
		if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1_000_000+i/2), 0) // two of each age
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "no-uuid.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := New().Open(t.Context(), adapters.Options{StateDir: state, Program: adapters.Program{Path: "/none"}, Env: []string{"HOME=" + home}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := newStore(state).made(id(2), record{Cwd: cwd, Made: true}); err != nil {
		t.Fatal(err)
	}
	seen := map[schema.SessionID]schema.SessionInfo{}
	params := `{"cwd":"` + cwd + `"}`
	for pages := 1; ; pages++ {
		var r schema.ListSessionsResponse
		if err := json.Unmarshal(request(t, conn, acp.MethodSessionList, params, nil), &r); err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Sessions {
			if _, twice := seen[s.SessionID]; twice {
				t.Errorf("%s is listed twice", s.SessionID)
			}
			seen[s.SessionID] = s
		}
		if r.NextCursor == nil {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		params = `{"cwd":"` + cwd + `","cursor":"` + *r.NextCursor + `"}`
	}
	if len(seen) != all-3 {
		t.Errorf("%d sessions are listed, want %d", len(seen), all-3)
	}
	for i, title := range map[int]string{1: "Given", 2: "prompt 2"} {
		s := seen[schema.SessionID(id(i))]
		if s.Title == nil || *s.Title != title || s.Cwd != cwd || rawjson.MemberBool(s.Meta[acp.MetaKey], "native") != (i != 2) {
			b, _ := schema.Encode(s)
			t.Errorf("session %d is %s", i, b)
		}
	}
	other := request(t, conn, acp.MethodSessionList, `{"cwd":"/elsewhere"}`, nil)
	if !strings.Contains(string(other), `"sessions":[]`) {
		t.Errorf("elsewhere: %s", other)
	}
}

func TestTranscripts_Folder(t *testing.T) {
	if got := folderOf("/home/a.b_c/ü"); got != "-home-a-b-c--" {
		t.Errorf("the folder is %q", got)
	}
	long := "/" + strings.Repeat("d", 300)
	if !belongs(folderOf(long)[:maxFolder]+"-1a2b3c", long) || belongs("-w-other", "/w/one") {
		t.Error("folders are not told apart")
	}
	for id, want := range map[string]bool{
		"00000000-0000-4000-8000-00000000000a": true, "00000000-0000-4000-8000-00000000000g": false,
		"../../../../../../etc/passwd00000000": false, "": false, "00000000x0000-4000-8000-00000000000a": false,
	} {
		if bridge.IsUUID(id) != want {
			t.Errorf("bridge.IsUUID(%q) is %t", id, !want)
		}
	}
}

// TestReplay_DamagedTranscripts: what cannot be read is left out.
func TestReplay_DamagedTranscripts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	// Of its subagent no more than the name was written.
	if err := bridge.WritePrivate(filepath.Join(filepath.Dir(path), "t", "subagents", "agent-1.meta.json"), []byte(`{"toolUseId":"c"}`)); err != nil {
		t.Fatal(err)
	}
	lines := []string{
		`{"type":"user","uuid":"a","parentUuid":"b","message":{"role":"user","content":"in a circle"}}`,
		`this is no JSON`, `[]`, `null`, `{"uuid":1}`,
		`{"type":"assistant","uuid":"b","parentUuid":"a","message":{"id":"m","content":[{"type":"text","text":"answer"},{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}`,
		`{"type":"user","uuid":"x","isSidechain":true,"message":{"content":"hidden"}}`,
		`{"type":"user","uuid":"c","parentUuid":"b","message":{"content":"last"}}`, `{"type":"us`,
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := newTranslator(nil)
	var got []schema.SessionUpdate
	err := replayFile(path, func(f func(*translator) []schema.SessionUpdate) { got = append(got, f(tr)...) })
	if err != nil || heard(got) != "in a circle|last" || bridgetest.Said(got) != "answer" {
		t.Errorf("%q, %q, %v", heard(got), bridgetest.Said(got), err)
	}
	if last := got[len(got)-1].ToolCallUpdate; last == nil || last.Status != schema.ToolCallStatusFailed {
		t.Errorf("the open call did not end: %+v", got[len(got)-1])
	}
	if replayFile(filepath.Join(t.TempDir(), "none"), func(func(*translator) []schema.SessionUpdate) {}) == nil {
		t.Error("a file that is not there was replayed")
	}
}

// A conversation that was held in another folder is there: nothing is begun in its place.
// An earlier version left it to the program to write what a fork knows, with its first prompt.
func TestReopen_ForkOfAnEarlierVersion(t *testing.T) {
	const id, from = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	for _, method := range []string{acp.MethodSessionResume, acp.MethodSessionFork} {
		w := bridgetest.With(t, New(), adapters.Program{Path: "/none"})
		file := w.Write(filepath.Join(".claude", "projects", folderOf(w.Cwd), from+".jsonl"), `{"type":"user","uuid":"u","sessionId":"`+from+`","cwd":"`+w.Cwd+`","message":{"role":"user","content":"hello"}}`+"\n", 0o600)
		if err := newStore(w.State).Change(id, func(r *record) { *r = record{Cwd: w.Cwd, Made: true, Fork: from} }); err != nil {
			t.Fatal(err)
		}
		c := w.Open(schema.ClientCapabilities{}, nil)
		_, e := c.Call(method, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
		if e == nil || !strings.Contains(e.Message, "/none") {
			t.Errorf("%s: %v, but there is no program", method, e)
		}
		if method != acp.MethodSessionResume {
			continue // what it has copied is gone with it
		}
		if got := w.Read(filepath.Join(filepath.Dir(file), id+".jsonl")); !strings.Contains(got, `"sessionId":"`+id+`"`) || !strings.Contains(got, "hello") {
			t.Errorf("it has %s", got)
		}
	}
}

func TestReopen_HeldElsewhere(t *testing.T) {
	w := bridgetest.With(t, New(), adapters.Program{Path: "/none"})
	const id = "00000000-0000-4000-8000-00000000000a"
	w.Write(filepath.Join(".claude", "projects", "-elsewhere", id+".jsonl"), `{"type":"user","uuid":"u","cwd":"/elsewhere","message":{"role":"user","content":"hello"}}`+"\n", 0o600)
	if err := newStore(w.State).made(id, record{Cwd: w.Cwd, Made: true}); err != nil {
		t.Fatal(err)
	}
	c := w.Open(schema.ClientCapabilities{}, nil)
	for _, method := range []string{acp.MethodSessionResume, acp.MethodSessionFork} {
		_, e := c.Call(method, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
		if e == nil || e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, id+" was held in /elsewhere") {
			t.Errorf("%s: %v", method, e)
		}
	}
}
