package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/sse"
)

// view is what a client was shown of a session: its events as they were sent, by their numbers.
type view struct {
	events map[uint64]string
	last   uint64
}

// follow reads the events of a session at a gateway until the stream ends. Each n events it does
// the next of what it is given.
func (v *view) follow(t *testing.T, gateway *program, session string, n int, then ...func()) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/v2/sessions/%s/events?after=%d", gateway.url, session, v.last), nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Accept", sse.ContentType)
	req.Header.Set("Authorization", "Bearer the-nodes-own-token")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("follow behind %d: %s", v.last, resp.Status)
		return
	}
	for dec, seen := sse.NewDecoder(resp.Body, 1<<20), 0; ; {
		ev, err := dec.Next()
		if err != nil {
			return // the gateway was killed
		}
		var e struct{ Seq uint64 }
		if ev.Type != "message" || json.Unmarshal(ev.Data, &e) != nil {
			continue
		}
		if e.Seq <= v.last {
			t.Errorf("event %d was shown behind event %d", e.Seq, v.last)
		}
		v.events[e.Seq], v.last = string(ev.Data), e.Seq
		if seen++; seen%n == 0 && len(then) > 0 {
			then[0]()
			then = then[1:]
		}
	}
}

// stored returns the events that the hub has of a session, by their numbers.
func (f *fleet) stored(session string) map[uint64]string {
	f.t.Helper()
	out := map[uint64]string{}
	for after, more := uint64(0), true; more; {
		var page struct {
			Events  []json.RawMessage
			HasMore bool
		}
		f.get(fmt.Sprintf("/v2/sessions/%s/events?after=%d&limit=1000", session, after), &page)
		for _, raw := range page.Events {
			var e struct{ Seq uint64 }
			if err := json.Unmarshal(raw, &e); err != nil {
				f.t.Fatal(err)
			}
			out[e.Seq], after = string(raw), e.Seq
		}
		more = page.HasMore
	}
	return out
}

// A sandbox is killed, and its disk goes with it, at any moment of a stream, once after the hub was
// killed, too. All that its clients were shown is at the hub, byte for byte. A sandbox that comes back with
// its disk shows the rest.
func TestSync_NothingSeenIsLost(t *testing.T) {
	f := startHub(t)
	dice := rand.New(rand.NewPCG(rand.Uint64(), 0))
	const rounds = 5
	for round := range rounds {
		name := fmt.Sprintf("box-%d", round)
		node := f.startNode(name, "", "--durability", "sync")
		dir := node.line[slices.Index(node.line, "--data-dir")+1]
		said, err := os.Create(filepath.Join(t.TempDir(), "said"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, filepath.Join(buildDir, "sandbox-agent"), "prompt", "stream 1000000 40")
		cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+node.url, "SANDBOX_AGENT_TOKEN=the-nodes-own-token")
		cmd.Stdout = said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := func() { cancel(); _ = cmd.Wait() } // it is killed
		defer end()
		session := ""
		f.await("the session is there", func() bool {
			list := f.sessions("node=" + name)
			if len(list) == 1 {
				session = list[0].SessionID
			}
			return session != ""
		})
		seen := &view{events: map[uint64]string{}}
		last := round == rounds-1
		vanish := func() {
			node.kill(syscall.SIGKILL)
			if last {
				return
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
		then := []func(){vanish}
		if round == 1 {
			then = []func(){func() { f.kill(syscall.SIGKILL); f.start() }, vanish}
		}
		seen.follow(t, node, session, 1+dice.IntN(10_000), then...)
		if last {
			node.start()
			f.says(`msg="a node has joined" node=`+name, 2)
			seen.follow(t, node, session, 1, func() { node.kill(syscall.SIGKILL) })
		}
		end()
		f.await("the node is gone", func() bool { // a hub that was killed too says so of no node that it never saw
			var node struct{ State string }
			f.get("/v2/nodes/"+name, &node)
			return node.State == "offline"
		})
		stored := f.stored(session)
		missing := 0
		for seq, event := range seen.events {
			if stored[seq] != event {
				missing++
			}
		}
		if missing > 0 || len(seen.events) == 0 {
			t.Errorf("round %d: of %d events that a client was shown %d are not at the hub, which has %d", round, len(seen.events), missing, len(stored))
		}
		printed, err := os.ReadFile(said.Name())
		if err != nil {
			t.Fatal(err)
		}
		if whole, _ := f.said(session); !strings.HasPrefix(whole, strings.TrimSpace(string(printed))) && !last {
			t.Errorf("round %d: what was printed, %d bytes, is no beginning of what the hub has, %d", round, len(printed), len(whole))
		}
		t.Logf("round %d: %d events shown, %d bytes printed, %d events at the hub", round, len(seen.events), len(printed), len(stored))
	}
}
