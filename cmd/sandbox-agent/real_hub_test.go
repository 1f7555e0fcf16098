package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/patient"
	"sandboxagent.dev/sandbox-agent/internal/programs"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// hubProgram builds the hub once.
var hubProgram = sync.OnceValues(func() (string, error) {
	return filepath.Join(buildDir, programs.Hub), programs.Build(buildDir, false, programs.Hub)
})

// aHub is a hub in a process of its own.
type aHub struct {
	t          testing.TB
	url, token string
}

func startHub(t testing.TB) *aHub {
	t.Helper()
	bin, err := hubProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	h := &aHub{t: t, token: "a token of the tests that nobody guesses"}
	h.token = strings.ReplaceAll(h.token, " ", "-")
	if err := os.WriteFile(token, []byte(h.token), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "serve", "--port", "0", "--data-dir", filepath.Join(dir, "hub"), "--admin-token-file", token) // no context: a signal ends it
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	listening := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		address := regexp.MustCompile(`listening on (http://\S+)`)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
			if m := address.FindStringSubmatch(lines.Text()); m != nil {
				listening <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read
		_ = cmd.Wait() // of a signal
		if t.Failed() {
			t.Logf("the hub said:\n%s", &said)
		}
	})
	select {
	case h.url = <-listening:
	case <-read:
		t.Fatalf("the hub ended:\n%s", &said)
	case <-time.After(patience):
		t.Fatal("the hub does not listen")
	}
	return h
}

// command runs a command of the hub's program, or of the gateway's at the hub.
func (h *aHub) command(program string, args ...string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "SANDBOX_HUB_ENDPOINT="+h.url, "SANDBOX_HUB_TOKEN="+h.token, "SANDBOX_AGENT_ENDPOINT="+h.url, "SANDBOX_AGENT_TOKEN="+h.token)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		h.t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

func (h *aHub) get(path string, v any) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil || resp.StatusCode != http.StatusOK {
		h.t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
}

// await returns when ok does; nobody announces what it looks for.
func (h *aHub) await(what string, ok func() bool) {
	h.t.Helper()
	if !patient.Until(patience, ok) {
		h.t.Fatalf("%s: not within %v", what, patience)
	}
}

func (h *aHub) awaitNode(name, state string) {
	h.t.Helper()
	h.await(name+" is "+state, func() bool {
		var list struct {
			Nodes []struct{ Name, State string }
		}
		h.get("/v2/nodes", &list)
		for _, n := range list.Nodes {
			if n.Name == name {
				return n.State == state
			}
		}
		return false
	})
}

// A sandbox is killed with its disk. Its session goes on at another node, in another home, and the
// agent has the whole conversation.
func TestReal_GoesOnWithoutItsNode(t *testing.T) {
	t.Parallel()
	for _, b := range []*bridged{&claude, &codex, &opencode, &pi} {
		t.Run(b.id, func(t *testing.T) {
			t.Parallel()
			if b == &opencode || b == &pi {
				agentcache.Long(t, "TestReal_Travel moves what they keep, and the way through the hub is shown with one agent of each kind")
			}
			testWithoutItsNode(t, b)
		})
	}
}

func testWithoutItsNode(t *testing.T, b *bridged) {
	one := b.real(t)
	two := one.elsewhere(filepath.Join(t.TempDir(), "somebody", "else"), b.program(t))
	h := startHub(t)
	hub, err := hubProgram()
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "join-token")
	if err := os.WriteFile(file, []byte(h.command(hub, "token", "create", "--kind", "join")), 0o600); err != nil {
		t.Fatal(err)
	}
	join := func(r *realRun, name string) {
		t.Helper()
		r.g.args = append(r.g.args, "--join", h.url, "--join-token-file", file, "--node-name", name)
		r.g.start()
		h.awaitNode(name, "online")
	}
	join(one, "one")
	notes := filepath.Join(one.dir, "notes.txt")
	if err := os.WriteFile(notes, []byte("the word is heron\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := h.command(gateway, "prompt", "--agent", b.id, "--cwd", one.dir, "read "+notes); !strings.Contains(out, "heron") {
		t.Fatalf("the agent said %q", out)
	}
	var list struct {
		Sessions []struct {
			SessionID  string
			EventCount uint64
			Replica    struct {
				Missing, Bundle uint64
				BundleTrouble   string
			}
		}
	}
	h.await("what the agent keeps is at the hub", func() bool {
		h.get("/v2/sessions", &list)
		if len(list.Sessions) == 1 && list.Sessions[0].Replica.BundleTrouble != "" {
			t.Fatal(list.Sessions[0].Replica.BundleTrouble)
		}
		return len(list.Sessions) == 1 && list.Sessions[0].EventCount > 0 && list.Sessions[0].Replica.Bundle >= list.Sessions[0].EventCount && list.Sessions[0].Replica.Missing == 0
	})
	id := list.Sessions[0].SessionID
	one.g.kill(syscall.SIGKILL)
	if err := os.RemoveAll(one.g.dir); err != nil {
		t.Fatal(err)
	}
	h.awaitNode("one", "offline")
	join(two, "two")
	var moved struct{ Node, Continuity string }
	if err := json.Unmarshal([]byte(h.command(hub, "session", "move", id, "--cwd", two.dir, "--json")), &moved); err != nil || moved.Node != "two" || moved.Continuity != "fresh" {
		t.Errorf("before the agent was seen to have it: %+v, %v", moved, err)
	}
	asked := len(two.model.Turns())
	if out := h.command(gateway, "prompt", "--session", id, "say still here"); !strings.Contains(out, "still here") {
		t.Errorf("the agent said %q", out)
	}
	turns := two.model.Turns()[asked:]
	last := turns[len(turns)-1]
	if !last.Says(scriptedmodel.Assistant, "heron") {
		t.Errorf("the model is not told what it said: %s", last.Body)
	}
	if strings.Contains(string(last.Body), one.home) {
		t.Errorf("the model is told of the other home: %s", last.Body)
	}
	var info struct{ Continuity string }
	h.get("/nodes/two/v2/sessions/"+id, &info)
	if info.Continuity != "native" {
		t.Errorf("the agent has the conversation, and continuity is %s", info.Continuity)
	}
}
