package amp

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// program is a shell script in the place of Amp, for what the real one does when
// it is broken.
func program(t *testing.T, script string) *world {
	t.Helper()
	w := with(t, adapters.Program{Path: "/bin/sh"})
	w.Program.Args = []string{w.Write("amp.sh", script, 0o700)}
	return w
}

const (
	initLine = `echo '{"type":"system","subtype":"init","session_id":"T-01a1ff59-511e-77f1-8249-a632ffe175a2"}'`
	help     = "case \"$1\" in --help|--version) exit 0;; esac\n"
)

func TestStuck_CancelIsEnforced(t *testing.T) {
	defer func(d time.Duration) { cancelBound = d }(cancelBound)
	cancelBound = 200 * time.Millisecond
	w := program(t, help+"trap '' INT\n"+initLine+"\nread line\necho '{\"type\":\"of_its_own\"}'\nwhile :; do sleep 0.1; done\n")
	c := w.open(nil)
	id := c.New("")
	turn := c.Prompt(id, "say nothing")
	c.Await("the title", 0, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionUpdate })
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	r, e := c.Result(turn)
	if e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("%s, %v", r, e)
	}
}

func TestStuck_StartIsBounded(t *testing.T) {
	defer func(d time.Duration) { startBound = d }(startBound)
	const never, soon, late = 300 * time.Millisecond, 5 * time.Second, time.Minute
	for script, tt := range map[string]struct {
		bound time.Duration
		want  string
	}{
		"sleep 600":               {never, "did not begin within"},
		"echo broken >&2; exit 3": {late, "broken"},
		"echo no JSON; sleep 600": {never, "did not begin within"},
		"echo 'visit https://ampcode.com/auth/cli-login?authToken=x'; sleep 600": {soon, "AMP_API_KEY"},
		"echo 'No API key found. Starting login flow...' >&2; sleep 600":         {soon, "AMP_API_KEY"},
	} {
		startBound = tt.bound
		c := program(t, help+script+"\n").open(nil)
		_, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: c.W.Cwd, MCPServers: []schema.MCPServer{}})
		if e == nil || !strings.Contains(e.Message, tt.want) {
			t.Errorf("%s: %v", script, e)
		}
		c.Close()
	}
}

// A line that is no message is reported, and ends nothing.
func TestStuck_StrayLines(t *testing.T) {
	answer := `{"type":"assistant","message":{"content":[{"type":"text","text":"well"}],"stop_reason":"end_turn"}}`
	w := program(t, help+initLine+"\nwhile read line; do echo 'this is no JSON'; echo '{\"neither\":1}'; echo '"+answer+"'; done\n")
	c := w.open(nil)
	id := c.New("")
	for range 2 {
		if stop, _ := c.Turn(id, "say well"); stop != schema.StopReasonEndTurn {
			t.Errorf("the turn ended with %s", stop)
		}
	}
	n := 0
	for _, m := range c.Frames() {
		if strings.HasSuffix(m.Method(), "agent/unparsed") {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d lines were reported\n%s", n, c.Quote())
	}
}

// What comes behind a cancel is shown to nobody.
func TestStuck_LateLinesAreDropped(t *testing.T) {
	late := `{"type":"assistant","message":{"content":[{"type":"text","text":"too late"}],"stop_reason":"end_turn"}}`
	w := program(t, help+"end() { echo '"+late+"'; echo '{\"type\":\"result\",\"is_error\":true,\"error\":\"User cancelled\"}'; echo '"+late+"'; exit 0; }\ntrap end INT\n"+initLine+"\nread line\nwhile :; do sleep 0.05; done\n")
	c := w.open(nil)
	id := c.New("")
	turn := c.Prompt(id, "say nothing")
	c.Await("the title", 0, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionUpdate })
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	if r, e := c.Result(turn); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("%s, %v", r, e)
	}
	c.Close()
	if strings.Contains(c.Quote(), "too late") {
		t.Error(c.Quote())
	}
}

// A process that ends between turns is replaced by the next prompt; one that ends
// in a turn fails it.
func TestStuck_IdleProcessEnds(t *testing.T) {
	answer := `{"type":"assistant","message":{"content":[{"type":"text","text":"well"}],"stop_reason":"end_turn"}}`
	w := program(t, help+initLine+"\nread line\necho '"+answer+"'\nexit 0\n")
	c := w.open(nil)
	id := c.New("")
	for range 2 {
		c.Turn(id, "say well")
		for c.Conn.(adapters.Process).PID() != 0 {
			runtime.Gosched()
		}
	}
}

// A question may be answered when its turn is over and another one runs, which nobody wants to end.
func TestStuck_LateAnswerEndsNoOtherTurn(t *testing.T) {
	say := func(text, stop string) string {
		return `echo '{"type":"assistant","message":{"content":[{"type":"text","text":"` + text + `"}],"stop_reason":"` + stop + `"}}'` + "\n"
	}
	w := program(t, help+initLine+"\nn=0\nwhile read line; do n=$((n+1))\n"+say("'$n' begun", "tool_use")+"while [ ! -e \"$HOME/end$n\" ]; do sleep 0.05; done\n"+say("over", "end_turn")+"done\n")
	c := w.open(nil)
	id := c.New("")
	begun := func(n string) {
		t.Helper()
		c.Await("turn "+n, 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), n+" begun") })
	}
	first := c.Prompt(id, "say one")
	begun("1")
	desks, _ := filepath.Glob(filepath.Join(w.State, "run", "*", socketName))
	if len(desks) != 1 {
		t.Fatalf("delegates ask at %q", desks)
	}
	delegate, err := (&net.Dialer{}).DialContext(t.Context(), "unix", desks[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = delegate.Close() }()
	if _, err := delegate.Write([]byte(`{"tool":"Bash","id":"toolu_1","input":{"command":"true"}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	_, ask := c.Await("the question", 0, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission })
	w.Write("end1", "", 0o600)
	if r, e := c.Result(first); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
		t.Errorf("the first turn: %s, %v", r, e)
	}
	second := c.Prompt(id, "say two")
	begun("2")
	if err := c.Conn.Write(t.Context(), acp.NewResult(ask.ID(), []byte(`{"outcome":{"outcome":"cancelled"}}`))); err != nil {
		t.Fatal(err)
	}
	var answered reply
	if err := json.NewDecoder(delegate).Decode(&answered); err != nil || answered.Allow {
		t.Errorf("the delegate is told %+v, %v", answered, err)
	}
	w.Write("end2", "", 0o600)
	if r, e := c.Result(second); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
		t.Errorf("the second turn: %s, %v", r, e)
	}
}

// A process that sees its end coming writes its own copy of the thread over what was said in a terminal meanwhile. It
// must see nothing: closed input and a signal, an instant before it is killed, are too much.
func TestEnd_OvertakenProcessDoesNotSeeIt(t *testing.T) {
	const thread = "T-01a1ff59-511e-77f1-8249-a632ffe175a2"
	for range 20 {
		w := program(t, help+initLine+`
trap 'printf own > "$COPY"; exit' TERM
read line
echo '{"type":"user","message":{"role":"user","content":[{"type":"text","text":"say something"}]}}'
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"something"}],"stop_reason":"end_turn"}}'
while read line; do :; done
printf own > "$COPY"
`)
		file := filepath.Join(".local/share/amp/threads", thread+".json")
		w.Env = append(w.Env, "COPY="+filepath.Join(w.Home, file))
		c := w.open(nil)
		id := c.New("")
		c.Result(c.Prompt(id, "say something"))
		later := time.Now().Add(time.Minute)
		said := fmt.Sprintf(`{"messages":[{"role":"user","meta":{"sentAt":%d}}]}`, later.UnixMilli())
		path := w.Write(file, said, 0o600)
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if b, err := os.ReadFile(path); err != nil || string(b) != said {
			t.Fatalf("the copy of the thread is now %s (%v)", b, err)
		}
	}
}
