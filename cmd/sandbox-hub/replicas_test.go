package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/patient"
)

// get reads what the hub answers at a path.
func (f *fleet) get(path string, v any) {
	f.t.Helper()
	if !f.find(path, v) {
		f.t.Fatalf("%s: not found", path)
	}
}

// asked returns the hub's answer to who may do everything.
func (f *fleet) asked(path string) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.admin)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp
}

// find is get for what may not be there yet.
func (f *fleet) find(path string, v any) bool {
	f.t.Helper()
	resp := f.asked(path)
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return false
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
	return true
}

// copies are what the hub says of a session that is copied.
type copies struct {
	SessionID  string
	Title      string
	Gist       string
	State      string
	EventCount uint64
	Replica    struct {
		LastSeq, Missing uint64
		Trouble          string
	}
}

func (f *fleet) sessions(query string) []copies {
	f.t.Helper()
	var list struct{ Sessions []copies }
	f.get("/v2/sessions?sort=created&"+query, &list)
	return list.Sessions
}

// said returns what the agent has said, piece after piece, and what the client asked, as far as
// the hub has it. The events must stand in their order.
func (f *fleet) said(id string) (text string, last uint64) {
	f.t.Helper()
	var b strings.Builder
	for more := true; more; {
		var page struct {
			Events []struct {
				Seq     uint64
				Message struct {
					Params struct {
						Update struct {
							SessionUpdate string
							Content       struct{ Text string }
						}
					}
				}
			}
			HasMore bool
		}
		f.get(fmt.Sprintf("/v2/sessions/%s/events?after=%d&limit=37", id, last), &page)
		for _, e := range page.Events {
			if e.Seq != last+1 {
				f.t.Errorf("%s: event %d stands behind event %d", id, e.Seq, last)
			}
			if last = e.Seq; e.Message.Params.Update.SessionUpdate == "agent_message_chunk" {
				b.WriteString(e.Message.Params.Update.Content.Text)
			}
		}
		more = page.HasMore
	}
	return b.String(), last
}

// await returns when ok does; nobody announces what it looks for.
func (f *fleet) await(what string, ok func() bool) {
	f.t.Helper()
	if !patient.Until(patience, ok) {
		f.t.Fatalf("%s: not within %v", what, patience)
	}
}

// While two sessions stream, the hub is killed and comes back, then the node is killed and its disk
// is lost. What the hub has is the beginning of each, whole and once, and it can be read and searched.
func TestReplicas_EverythingIsKilled(t *testing.T) {
	f := startHub(t)
	node := f.startNode("box", "")
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		cmd := exec.CommandContext(ctx, filepath.Join(buildDir, "sandbox-agent"), "prompt", "slow")
		cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+node.url, "SANDBOX_AGENT_TOKEN=the-nodes-own-token")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }() // it is killed
	}
	defer cancel()
	reached := func(events uint64) func() bool {
		return func() bool {
			list := f.sessions("")
			return len(list) == 2 && list[0].Replica.LastSeq > events && list[1].Replica.LastSeq > events
		}
	}
	f.await("both sessions are copied while they stream", reached(10))

	f.kill(syscall.SIGKILL)
	f.start()
	before := f.sessions("")
	if len(before) != 2 {
		t.Fatalf("after the hub was killed: %+v", before)
	}
	most := uint64(0)
	for i := range before {
		// A list tells what was noted last, a session what is there.
		s := f.session(before[i].SessionID)
		if s.Replica.LastSeq <= 10 {
			t.Fatalf("after the hub was killed: %+v", s)
		}
		most = max(most, s.Replica.LastSeq)
	}
	f.await("both go on where they were", reached(most))

	node.kill(syscall.SIGKILL)
	if err := os.RemoveAll(node.line[slices.Index(node.line, "--data-dir")+1]); err != nil {
		t.Fatal(err)
	}
	f.says(`msg="a node is gone"`, 1)
	for _, s := range f.sessions("state=offline") {
		text, last := f.said(s.SessionID)
		var want strings.Builder
		n := strings.Count(text, "tick")
		for i := range n {
			fmt.Fprintf(&want, "tick %d ", i)
		}
		if n < 10 || text != want.String() {
			t.Errorf("the text is no beginning of what the agent said: %q", text)
		}
		if s.Replica.LastSeq != last || s.Replica.Missing != s.EventCount-last || s.Replica.Trouble != "" {
			t.Errorf("%+v, and there are %d events", s, last)
		}
		out := f.command("session", "transcript", s.SessionID)
		if !strings.Contains(out, "tick 0 tick 1 tick 2") || s.Replica.Missing > 0 && !strings.Contains(out, "at the end") {
			t.Errorf("the transcript: %s", out)
		}
		if out := f.command("session", "show", s.SessionID); !strings.Contains(out, "offline") || !strings.Contains(out, fmt.Sprintf("up to event %d", last)) || !strings.Contains(out, "lost at work") || strings.Contains(out, "all up to") {
			t.Errorf("the session: %s", out)
		}
	}
	if out := f.command("session", "list", "--query", "TICK 7 TICK"); strings.Count(out, "offline") != 2 {
		t.Errorf("the search: %s", out)
	}

	// The sandbox is made anew, with an empty disk: what was there before is not forgotten.
	node.start()
	f.says(`msg="a node has joined" node=box`, 2)
	f.await("the sessions are gone from the node", func() bool { return len(f.sessions("state=gone")) == 2 })
	id := f.sessions("state=gone")[0].SessionID
	if text, _ := f.said(id); !strings.HasPrefix(text, "tick 0 tick 1 ") {
		t.Errorf("the copy of a session that is gone: %q", text)
	}
	other := f.sessions("state=gone")[1].SessionID
	if out, code := f.try("session", "remove", id, "nobody", other); code != 5 || !strings.Contains(out, "removed "+id) || !strings.Contains(out, `"nobody" was not found`) || !strings.Contains(out, "removed "+other) {
		t.Errorf("of three: %d %s", code, out)
	}
	for _, id := range []string{id, other} {
		if out, code := f.try("session", "show", id); code != 5 || !strings.Contains(out, "Session not found") {
			t.Errorf("after it was removed: %d %s", code, out)
		}
	}
}
