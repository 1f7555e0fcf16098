package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// hubPrompt has a session say something by the hub's own address; "" for a new one, at a node.
func (f *fleet) hubPrompt(session, text string) string {
	f.t.Helper()
	args := []string{"prompt", "--endpoint", f.url, "--agent", "mock", text}
	if session != "" {
		args = []string{"prompt", "--endpoint", f.url, "--session", session, text}
	}
	cmd := exec.CommandContext(f.t.Context(), filepath.Join(buildDir, "sandbox-agent"), args...)
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_TOKEN="+f.admin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return string(out)
}

// movedSession is what the hub says of a session that may have moved.
type movedSession struct {
	SessionID, Node, State string
	EventCount             uint64
	Replica                struct{ LastSeq, Missing, Bundle uint64 }
	Moves                  *struct {
		Term   uint64
		To     string
		Before []struct {
			Node                    string
			LastSeq, Missing, Extra uint64
		}
	}
}

// session is what the hub says of a session; of one that it has not heard of yet, nothing.
func (f *fleet) session(id string) (s movedSession) {
	f.t.Helper()
	f.find("/v2/sessions/"+id, &s)
	return s
}

// transcript returns what the hub has of a session once it has the last that was said. Until the node tells of
// that nothing is missing.
func (f *fleet) transcript(id, last string) (all string) {
	f.t.Helper()
	f.await(last+" is copied", func() bool {
		all = f.command("session", "transcript", id)
		return strings.Contains(all, "\n"+last)
	})
	return all
}

// The node of a session is killed while an editor is connected to the hub, and its disk is lost. The
// session goes on at another one, by the command, and the editor with it.
func TestMove_NodeIsKilled(t *testing.T) {
	f := startHub(t)
	node := f.startNode("one", "")
	e := startEditor(t, f.url, f.admin)
	id := e.session()
	e.prompt(id, "echo first")
	e.response(func() {})
	f.await("what the agent keeps is there", func() bool {
		s := f.session(id)
		return s.EventCount > 0 && s.Replica.Bundle == s.EventCount && s.Replica.Missing == 0
	})
	if out, code := f.try("session", "move", id); code == 0 || !strings.Contains(out, "no other node") {
		t.Errorf("with nowhere to go: %d %s", code, out)
	}
	node.kill(syscall.SIGKILL)
	f.says(`msg="a node is gone"`, 1)
	file := filepath.Join(t.TempDir(), "session.tar.zst")
	if out := f.command("session", "export", id, "-o", file); !strings.Contains(out, "wrote") {
		t.Errorf("export: %s", out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	f.startNode("two", "")
	if err := os.RemoveAll(node.line[slices.Index(node.line, "--data-dir")+1]); err != nil {
		t.Fatal(err)
	}
	out := f.command("session", "move", id)
	if !strings.Contains(out, "from one to two") {
		t.Errorf("it said %s", out)
	}
	chunks := 0
	e.prompt(id, "echo second")
	if end := e.response(func() { chunks++ }); end.Result.StopReason != "end_turn" || chunks == 0 {
		t.Errorf("the editor got %s %s after %d chunks", end.Result.StopReason, end.Error, chunks)
	}
	if out := f.hubPrompt(id, "echo third"); !strings.Contains(out, "third") {
		t.Errorf("another client got %s", out)
	}
	f.await("the new node's copy is whole", func() bool {
		s := f.session(id)
		return s.Node == "two" && s.Replica.Missing == 0 && s.Moves != nil && s.Moves.Term == 2 && len(s.Moves.Before) == 1 && s.Moves.Before[0].Node == "one" && s.Moves.Before[0].Missing == 0
	})
	all := f.transcript(id, "third")
	for _, text := range []string{"first", "second", "third"} {
		if strings.Count(all, "\n"+text) != 1 {
			t.Errorf("%q is not in the transcript once:\n%s", text, all)
		}
	}
}

// The disk of a node is lost, and it is started anew: the session is brought back to it, and that is what is said.
func TestMove_BroughtBack(t *testing.T) {
	f := startHub(t)
	node := f.startNode("one", "")
	f.hubPrompt("", "echo first")
	f.await("what the agent keeps is there", func() bool {
		if len(f.sessions("")) == 0 {
			return false
		}
		s := f.session(f.sessions("")[0].SessionID)
		return s.EventCount > 0 && s.Replica.Bundle == s.EventCount && s.Replica.Missing == 0
	})
	id := f.sessions("")[0].SessionID
	node.kill(syscall.SIGKILL)
	f.startNode("one", "")
	f.await("the session is gone", func() bool { return f.session(id).State == "gone" })
	if out := f.command("session", "move", id, "--to", "one"); !strings.HasPrefix(out, "brought "+id+" back to one, ") {
		t.Errorf("it said %s", out)
	}
}

// A session goes to another node with its files, and back with what was changed there.
func TestMove_WithItsFiles(t *testing.T) {
	f := startHub(t)
	f.startNode("one", "")
	f.startNode("two", "")
	here, there := t.TempDir(), filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(filepath.Join(here, "a.txt"), []byte("from one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), "prompt", "--endpoint", f.node("one"), "--cwd", here, "echo first")
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_TOKEN="+f.admin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f.await("the session is known", func() bool { return len(f.sessions("")) == 1 && f.sessions("")[0].EventCount > 0 })
	id := f.sessions("")[0].SessionID
	if out, code := f.try("session", "move", id, "--to", "two", "--cwd", there); code == 0 || !strings.Contains(out, "stays at one") {
		t.Errorf("without its files and a directory: %d %s", code, out)
	}
	out := f.command("session", "move", id, "--to", "two", "--cwd", there, "--workspace")
	if b, err := os.ReadFile(filepath.Join(there, "a.txt")); err != nil || string(b) != "from one\n" || !strings.Contains(out, there) {
		t.Errorf("%s: %q, %v", out, b, err)
	}
	if err := os.WriteFile(filepath.Join(there, "b.txt"), []byte("from two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.command("session", "move", id, "--to", "one", "--cwd", here, "--workspace")
	if b, err := os.ReadFile(filepath.Join(here, "b.txt")); err != nil || string(b) != "from two\n" {
		t.Errorf("back came %q, %v", b, err)
	}
	if out := f.hubPrompt(id, "echo home"); !strings.Contains(out, "home") {
		t.Errorf("%s", out)
	}
}

// The hub is killed while sessions are moved to and fro and prompted. Afterwards each is at one node,
// open, with all that was said, once and in order.
func TestMove_HubIsKilled(t *testing.T) {
	f := startHub(t)
	one := f.startNode("one", "")
	two := f.startNode("two", "")
	f.hubPrompt("", "echo said 0")
	f.await("the session is known", func() bool { return len(f.sessions("")) == 1 && f.sessions("")[0].EventCount > 0 })
	id := f.sessions("")[0].SessionID
	const rounds = 3
	for i := range rounds {
		to := []string{"one", "two"}[i%2]
		if f.session(id).Node == to {
			to = map[string]string{"one": "two", "two": "one"}[to]
		}
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, filepath.Join(buildDir, "sandbox-hub"), "session", "move", id, "--to", to)
		cmd.Env = append(os.Environ(), "SANDBOX_HUB_ENDPOINT="+f.url, "SANDBOX_HUB_TOKEN="+f.admin)
		ended := make(chan error, 1)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- cmd.Wait() }()
		over := false
		f.await("the move has begun, or is done", func() bool {
			select {
			case <-ended:
				over = true
			default:
			}
			return over || i%2 == 0 && f.session(id).Moves != nil && f.session(id).Moves.To != ""
		})
		f.kill(syscall.SIGKILL)
		cancel()
		if !over {
			<-ended
		}
		f.start()
		one.says("joined the hub", i+2)
		two.says("joined the hub", i+2)
		f.hasJoined("one")
		f.hasJoined("two")
		f.hubPrompt(id, fmt.Sprintf("echo said %d", i+1))
	}
	open := 0
	for _, name := range []string{"one", "two"} {
		var s struct{ State string }
		f.get("/nodes/"+name+"/v2/sessions/"+id, &s)
		if s.State != "closed" {
			open++
		}
	}
	if open != 1 {
		t.Errorf("it is open at %d nodes", open)
	}
	all := f.transcript(id, fmt.Sprintf("said %d", rounds))
	at := -1
	for i := range rounds + 1 {
		text := fmt.Sprintf("\nsaid %d", i)
		next := strings.Index(all, text)
		if next <= at || strings.Count(all, text) != 1 {
			t.Errorf("%q stands at %d and %d times:\n%s", text, next, strings.Count(all, text), all)
		}
		at = next
	}
}

// --node says where a session is made, and which is meant that is there. One that goes to another node is followed.
func TestMove_OfASessionOfANamedNode(t *testing.T) {
	f := startHub(t)
	one := f.startNode("one", "")
	f.startNode("two", "")
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), append(args, "--node", "one")...)
		cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+f.url, "SANDBOX_AGENT_TOKEN="+f.admin)
		return cmd
	}
	prompt := func(args ...string) string {
		t.Helper()
		out, err := command(append([]string{"prompt"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	said := regexp.MustCompile(`session (\S+)`).FindStringSubmatch(prompt("echo first"))
	if said == nil {
		t.Fatal("no session is named")
	}
	id := said[1]
	f.await("it is known", func() bool { return f.session(id).Node == "one" && f.session(id).State == "idle" })

	follower := command("rpc", "stream", "--session", id, "--after", "0")
	out, err := follower.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = follower.Process.Kill()
		_ = follower.Wait() // it was killed
	}()
	lines := bufio.NewScanner(out)
	shown := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("%q is not shown to who follows the session: %v", text, lines.Err())
	}
	shown("first")
	f.command("session", "move", id, "--to", "two")
	if out := prompt("--session", id, "echo second"); !strings.Contains(out, "second") {
		t.Errorf("at its new node: %s", out)
	}
	shown("second")
	prompt("--session", id, "--close", "echo third")
	shown("third")
	f.await("it is closed where it is", func() bool { return f.session(id).Node == "two" && f.session(id).State == "closed" })
	prompt("--session", id, "--delete", "echo fourth")
	f.await("it is deleted", func() bool { return !f.find("/v2/sessions/"+id, &movedSession{}) })

	cmd := command("prompt", "echo nowhere")
	cmd.Env = append(cmd.Env, "SANDBOX_AGENT_ENDPOINT="+one.url, "SANDBOX_AGENT_TOKEN=the-nodes-own-token")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "leave out --node") {
		t.Errorf("at a gateway: %v\n%s", err, out)
	}
}

// At a hub it is known with the session what its agent takes in prompts. What it does not take is not sent, and the
// session that was made for it is not left behind.
func TestPrompt_AtTheHub_TheAgentTakesNoImages(t *testing.T) {
	f := startHub(t)
	dir := t.TempDir()
	agent, picture := filepath.Join(dir, "agent.sh"), filepath.Join(dir, "a.png")
	for file, text := range map[string]string{picture: "\x89PNG\r\n\x1a\n", agent: `while read -r line; do
	answer='{}'
	case $line in
	*'"initialize"'*) answer='{"protocolVersion":1,"agentCapabilities":{}}' ;;
	*'"session/new"'*) answer='{"sessionId":"plain"}' ;;
	esac
	id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$answer"'}'
done
`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.startNode("box", "", "--agent-command", "plain=sh "+agent)
	for _, more := range [][]string{nil, {"--node", "box"}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), append([]string{"prompt", "--agent", "plain", "--attach", picture, "look"}, more...)...)
		cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+f.url, "SANDBOX_AGENT_TOKEN="+f.admin)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "takes no image/png") {
			t.Errorf("%v: %v\n%s", more, err, out)
		}
	}
	if out, err := f.agent("box", f.admin, "sessions", "list", "--json"); err != nil || strings.Contains(out, "sessionId") {
		t.Errorf("there is a session: %v\n%s", err, out)
	}
}

// A session that goes on with another one's conversation is where that one's directory is, whichever node has
// less to do.
func TestHandoff_AtTheHub(t *testing.T) {
	f := startHub(t)
	f.startNode("one", "")
	f.startNode("two", "")
	said, err := f.agent("two", f.admin, "prompt", "echo first") // the hub would take the other one
	if err != nil {
		t.Fatal(err)
	}
	old := regexp.MustCompile(`session (\S+)`).FindStringSubmatch(said)[1]
	f.await("the hub knows the session", func() bool { return f.session(old).Node != "" })
	cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), "sessions", "handoff", old, "--agent", "mock", "--json", "--endpoint", f.url)
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_TOKEN="+f.admin)
	out, err := cmd.Output()
	var made struct{ SessionID string }
	if err != nil || json.Unmarshal(out, &made) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.await("the hub knows the new session", func() bool { return f.session(made.SessionID).Node != "" })
	if from, to := f.session(old).Node, f.session(made.SessionID).Node; from != to {
		t.Errorf("it is at %s, and the other one at %s", to, from)
	}
}
