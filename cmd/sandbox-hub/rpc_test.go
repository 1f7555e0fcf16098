package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// frame is what an editor reads, as far as the tests look at it.
type frame struct {
	ID     json.Number
	Method string
	Result struct{ SessionID, StopReason string }
	Error  json.RawMessage
	Params struct {
		Update struct {
			SessionUpdate     string
			State, StopReason string
		}
		Meta struct {
			Own struct{ Seq uint64 } `json:"sandboxagent.dev"`
		} `json:"_meta"`
	}
}

// editor is the gateway's command for editors, which goes on by itself when its connection
// breaks.
type editor struct {
	t    *testing.T
	in   io.Writer
	dec  *json.Decoder
	said *bytes.Buffer
	id   int
	seqs []uint64 // of the pieces that the agent has said
	end  func()   // ends it
}

func startEditor(t *testing.T, endpoint, token string) *editor {
	t.Helper()
	return startEditorWith(t, endpoint, token, `{"protocolVersion":1,"clientCapabilities":{}}`)
}

// startEditorWith is startEditor with another initialize.
func startEditorWith(t *testing.T, endpoint, token, hello string) *editor {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), "acp", "--endpoint", endpoint, "--agent", "mock")
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_TOKEN="+token)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	e := &editor{t: t, in: in, said: &bytes.Buffer{}}
	cmd.Stderr = e.said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	e.dec = json.NewDecoder(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(3*patience, func() { _ = cmd.Process.Kill() })
	e.end = sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Wait() // what it said is what counts
		late.Stop()
	})
	t.Cleanup(e.end)
	e.request("initialize", hello)
	e.must()
	return e
}

func (e *editor) say(text string) {
	e.t.Helper()
	if _, err := io.WriteString(e.in, text+"\n"); err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) request(method, params string) {
	e.t.Helper()
	e.id++
	e.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, e.id, method, params))
}

func (e *editor) prompt(session, text string) {
	e.t.Helper()
	e.request("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, session, text))
}

// next reads one frame.
func (e *editor) next() frame {
	e.t.Helper()
	var m frame
	if err := e.dec.Decode(&m); err != nil {
		e.t.Fatalf("%v after %d pieces\n%s", err, len(e.seqs), e.said)
	}
	if m.Params.Update.SessionUpdate == "agent_message_chunk" {
		e.seqs = append(e.seqs, m.Params.Meta.Own.Seq)
	}
	return m
}

// response reads up to the answer to the last request, and calls each for each piece.
func (e *editor) response(each func()) frame {
	e.t.Helper()
	for {
		m := e.next()
		if m.Params.Update.SessionUpdate == "agent_message_chunk" {
			each()
		}
		if m.ID.String() == fmt.Sprint(e.id) && m.Method == "" {
			return m
		}
	}
}

func (e *editor) must() frame {
	e.t.Helper()
	m := e.response(func() {})
	if m.Error != nil {
		e.t.Fatalf("%s\n%s", m.Error, e.said)
	}
	return m
}

func (e *editor) session() string {
	e.t.Helper()
	e.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	return e.must().Result.SessionID
}

// pieces reads n further pieces of what the agent says.
func (e *editor) pieces(n int) {
	e.t.Helper()
	for want := len(e.seqs) + n; len(e.seqs) < want; {
		if m := e.next(); m.Error != nil {
			e.t.Fatalf("%s", m.Error)
		}
	}
}

// contiguous checks that the pieces came once and in order, with nothing between but the
// begins and ends of turns.
func (e *editor) contiguous() {
	e.t.Helper()
	for i := 1; i < len(e.seqs); i++ {
		if d := e.seqs[i] - e.seqs[i-1]; e.seqs[i] <= e.seqs[i-1] || d > 8 {
			e.t.Errorf("event %d follows %d", e.seqs[i], e.seqs[i-1])
		}
	}
}

func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, JetStreamMaxStore: math.MaxInt64, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

// Two hubs share a store, behind an address for clients and one for nodes. While an agent
// streams its hub is killed, then the client's, then the node. The client sees each piece
// once as long as the agent lives, and is told when it does not.
func TestKilled_AmidATurn(t *testing.T) {
	nats := natsServer(t)
	admin := filepath.Join(t.TempDir(), "admin")
	if err := os.WriteFile(admin, []byte("admin-token-of-both-hubs"), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := func() *fleet {
		p := startProgram(t, "sandbox-hub", "serve", "--port", "0", "--nats", nats, "--admin-token-file", admin)
		return &fleet{program: p, admin: "admin-token-of-both-hubs"}
	}
	one, two := hub(), hub()
	at := func(f *fleet) string { return strings.TrimPrefix(f.url, "http://") }
	clients, nodes := newWire(t, at(one)), newWire(t, at(two))
	node := two.startNode("box", "http://"+nodes.addr())

	e := startEditor(t, "http://"+clients.addr(), one.admin)
	session := e.session()
	e.prompt(session, "slow")
	e.pieces(20) // through both hubs

	nodes.lead(at(one))
	two.kill(syscall.SIGKILL)
	one.hasJoined("box")
	e.pieces(20)

	two.start()
	clients.lead(at(two))
	nodes.lead(at(two))
	one.kill(syscall.SIGKILL)
	two.hasJoined("box")
	e.pieces(20)
	e.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, session))
	if end := e.must(); end.Result.StopReason != "cancelled" {
		t.Errorf("the turn ended with %+v", end)
	}
	e.contiguous()

	e.prompt(session, "slow")
	e.pieces(5)
	node.kill(syscall.SIGKILL)
	two.says(`msg="a node is gone"`, 1)
	asked := e.id
	e.prompt(session, "echo at once")
	if m := e.response(func() {}); !strings.Contains(string(m.Error), "node_offline") {
		t.Errorf("a prompt for a node that was killed: %+v", m)
	}
	node.start()
	for m := e.next(); ; m = e.next() {
		if m.ID.String() == fmt.Sprint(asked) {
			if m.Error == nil {
				t.Errorf("the turn whose node was killed ended with %+v", m.Result)
			}
			break
		}
	}
	e.prompt(session, "echo again")
	if end := e.must(); end.Result.StopReason != "end_turn" {
		t.Errorf("after all that: %+v", end)
	}
}

// In version 2 of the protocol the answer to a prompt says that the turn has begun. A node is
// killed in the middle of one: the client is told that it is over when the node is back and goes
// on without it, and when the node is forgotten, and can work on.
func TestKilled_TurnOfVersionTwo(t *testing.T) {
	f := startHub(t)
	node := f.startNode("box", "")
	e := startEditorWith(t, f.url, f.admin, `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{}}`)
	begin := func(session string) {
		t.Helper()
		e.prompt(session, "slow")
		e.must()
		e.pieces(5)
		node.kill(syscall.SIGKILL)
	}
	ends := func(want string) {
		t.Helper()
		for {
			m := e.next()
			if m.Error != nil {
				t.Fatalf("%s", m.Error)
			}
			if u := m.Params.Update; u.SessionUpdate == "state_update" && u.State == "idle" {
				if u.StopReason != want {
					t.Errorf("the turn ended with %q, want %q", u.StopReason, want)
				}
				return
			}
		}
	}
	session := e.session()
	begin(session)
	node.start()
	ends("error")
	e.prompt(session, "echo again")
	e.must()
	ends("end_turn")

	begin(session)
	f.says(`msg="a node is gone"`, 2)
	f.command("node", "remove", "box")
	ends("error")
}
