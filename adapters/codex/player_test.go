package codex

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// playerVar makes the test binary play an app-server, for orders of messages that
// the real one shows now and then only.
const playerVar = "SANDBOX_TEST_CODEX_PLAYS"

// playerLate is how long a turn's begin is held back.
const playerLate = 300 * time.Millisecond

// play is the app-server's side. what is the value of playerVar.
func play(what string, in io.Reader, out io.Writer) {
	if len(os.Args) > 1 && os.Args[1] == "sandbox" {
		return
	}
	const thread = "01a1fbe6-5ec2-7403-ba5c-c9e13d7fed9c"
	turn := ""
	send := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	started := func() {
		send(`{"method":"turn/started","params":{"threadId":%q,"turn":{"id":%q,"status":"inProgress"}}}`, thread, turn)
	}
	said := func(text string) {
		send(`{"method":"item/agentMessage/delta","params":{"threadId":%q,"turnId":%q,"itemId":%q,"delta":%q}}`, thread, turn, "message of "+turn, text)
	}
	over := func(status string) {
		send(`{"method":"turn/completed","params":{"threadId":%q,"turn":{"id":%q,"status":%q}}}`, thread, turn, status)
	}
	begun, refused, early, hangs := false, 0, false, false
	lines := make(chan []byte, 16)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(in); in.Scan(); {
			lines <- bytes.Clone(in.Bytes())
		}
	}()
	var later <-chan time.Time
	for {
		var line []byte
		select {
		case <-later:
			begun, later = true, nil
			started()
			continue
		case l, more := <-lines:
			if !more {
				return
			}
			line = l
		}
		id, isRequest := rawjson.Member(line, "id")
		if !isRequest || hangs {
			continue
		}
		result := func() { send(`{"id":%s,"result":{"turn":{"id":%q,"status":"inProgress"},"data":[]}}`, id, turn) }
		switch rawjson.MemberString(line, "method") {
		case "thread/start":
			send(`{"id":%s,"result":{"thread":{"id":%q},"model":"m","sandbox":{"type":"readOnly"}}}`, id, thread)
		case "thread/fork":
			send(`{"id":%s,"result":{"thread":{"id":%q},"model":"m","sandbox":{"type":"readOnly"}}}`, id, "02"+thread[2:])
		case "thread/resume":
			if what == opensAgain {
				send(`{"id":%s,"result":{"thread":{"id":%q},"model":"m","sandbox":{"type":"readOnly"}}}`, id, thread)
				continue
			}
			send(`{"id":%s,"error":{"code":-32600,"message":%q}}`, id, what)
		case "thread/archive":
			if what == endsArchiving {
				return
			}
			result()
		case "thread/compact/start":
			turn = "turn " + string(id)
			started()
			over("failed")
			result()
		case "turn/start":
			turn = "turn " + string(id)
			switch what {
			case startedBefore:
				started()
				said("well")
				result()
				over("completed")
			case overBefore:
				started()
				said("well")
				over("completed")
				result()
			case startedAfter:
				result()
				started()
				said("well")
				over("completed")
			case refusesBeside:
				started()
				send(`{"id":%s,"error":{"code":-32600,"message":"another one runs"}}`, id)
				begun, refused = true, 2
			case hangsThen:
				result()
				started()
				said("sent, ")
				hangs = true
			case endsLate:
				result()
				started()
				if begun {
					said("well")
					over("completed")
				} else {
					said("sent, ")
				}
				begun, refused = true, 2
			case hangsBefore:
				said("taken")
				hangs = true
			case startedLate:
				result()
				said("sent, ")
				later = time.After(playerLate)
			}
		case "thread/unarchive":
			if what == keepsArchived {
				send(`{"id":%s,"error":{"code":-32603,"message":"the disk is full"}}`, id)
				continue
			}
			result()
		case "turn/interrupt":
			early = early || !begun
			if refused++; !begun || refused <= 2 {
				send(`{"id":%s,"error":{"code":-32600,"message":"no active turn to interrupt"}}`, id)
				continue
			}
			if what == endsLate {
				if refused > 3 {
					over("interrupted")
				}
				result()
				continue
			}
			result()
			said(fmt.Sprintf("attempt %d, early %v", refused, early))
			over("interrupted")
		default:
			result()
		}
	}
}

// What the player does.
const (
	startedBefore = "turn/started, response"
	startedAfter  = "response, turn/started"
	overBefore    = "turn/started, turn/completed, response"
	startedLate   = "response, a while, turn/started"
	hangsThen     = "response, turn/started, nothing any more"
	hangsBefore   = "a word, nothing any more"
	endsLate      = "response, turn/started, turn/completed as it is asked again"
	keepsArchived = "nothing leaves the archive"
	endsArchiving = "the end, in thread/archive"
	refusesBeside = "turn/started, a refusal"
	opensAgain    = "all threads are opened again"
)

func played(t *testing.T, what string) *client {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{bridgetest.With(t, New(), adapters.Program{Path: exe, Env: []string{playerVar + "=" + what}, Version: agentcache.Codex})}
	return w.open(schema.ClientCapabilities{}, nil)
}

// TestTurn_StartedBeforeOrAfterTheResponse: a prompt ends with its turn, in
// whatever order codex tells of it.
func TestTurn_StartedBeforeOrAfterTheResponse(t *testing.T) {
	for _, what := range []string{startedBefore, startedAfter, overBefore} {
		t.Run(what, func(t *testing.T) {
			c := played(t, what)
			id := c.New("")
			for range 3 {
				if stop, got := c.Turn(id, "go"); stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "well" {
					t.Errorf("it ended with %s and said %q\n%s", stop, bridgetest.Said(got), c.Quote())
				}
			}
		})
	}
}

// A compaction may fail before there is anything of it, and before codex has answered.
func TestTurn_CompactionFailsAtOnce(t *testing.T) {
	c := played(t, overBefore)
	if _, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: c.New(""), Prompt: []schema.ContentBlock{schema.TextBlock("/compact")}}); e == nil || e.Message != "the turn failed" {
		t.Errorf("it ended with %v", e)
	}
}

// A turn of codex's own that has begun as codex refused a prompt goes on, and can be cancelled.
func TestTurn_OwnOneBesideARefusal(t *testing.T) {
	c := played(t, refusesBeside)
	id := c.New("")
	if _, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock("go")}}); e == nil || !strings.Contains(e.Message, "another one runs") {
		t.Errorf("it ended with %v", e)
	}
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	c.Await("the end of that turn", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "attempt 3") })
}

// TestTurn_CancelIsHeldAndRetried: codex refuses to interrupt a turn that has not
// begun, and goes on with it; and it may refuse for a while after that.
func TestTurn_CancelIsHeldAndRetried(t *testing.T) {
	c := played(t, startedLate)
	id := c.New("")
	p := c.Prompt(id, "go")
	c.Await("a sign that codex has the prompt", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "sent") })
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("it ended with %s, %v", r, e)
	}
	if said := bridgetest.Said(c.Updates(0)); said != "sent, attempt 3, early false" {
		t.Errorf("codex was interrupted at %q", said)
	}
}

// TestTurn_CancelOfAProcessThatHangs: a process that answers nothing any more is ended, and
// the prompt with it.
func TestTurn_CancelOfAProcessThatHangs(t *testing.T) {
	defer func(cancel, hang time.Duration) { cancelBound, hangBound = cancel, hang }(cancelBound, hangBound)
	cancelBound, hangBound = 200*time.Millisecond, 200*time.Millisecond
	for what, sign := range map[string]string{hangsThen: "sent", hangsBefore: "taken"} {
		t.Run(what, func(t *testing.T) {
			c := played(t, what)
			id := c.New("")
			c.Prompt(id, "go")
			c.Await("a sign of the turn", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), sign) })
			c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
			if _, ok := errors.AsType[*adapters.ExitError](c.Ended()); !ok {
				t.Errorf("the connection ended with %v", c.Ended())
			}
		})
	}
}

// TestTurn_EndsAsItIsLeft: codex may end a turn just as nobody waits for that any more. The next prompt does not wait for it.
func TestTurn_EndsAsItIsLeft(t *testing.T) {
	defer func(d time.Duration) { cancelBound = d }(cancelBound)
	cancelBound = 200 * time.Millisecond
	c := played(t, endsLate)
	id := c.New("")
	p := c.Prompt(id, "go")
	c.Await("a sign of the turn", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "sent") })
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("it ended with %s, %v", r, e)
	}
	if stop, got := c.Turn(id, "go"); stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "well" {
		t.Errorf("the next one ended with %s and said %q", stop, bridgetest.Said(got))
	}
}

// A conversation is begun anew when codex does not have it, and not when codex cannot open it now.
func TestReopen_BeginsAnewOnlyWhatIsGone(t *testing.T) {
	for said, gone := range map[string]bool{
		"no rollout found for thread id 01a1fbe6-5ec2-7403-ba5c-c9e13d7fed9c":      true,
		"thread not found: 01a1fbe6-5ec2-7403-ba5c-c9e13d7fed9c":                   true,
		"failed to load rollout /r.jsonl: empty session file":                      true,
		"failed to load configuration: Model provider `scripted` not found":        false,
		"failed to load rollout /r.jsonl: Permission denied (os error 13)":         false,
		"thread 01a1fbe6-5ec2-7403-ba5c-c9e13d7fed9c already has an active writer": false,
	} {
		c := played(t, said)
		id := c.New("")
		c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
		r, e := c.Call(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: c.W.Cwd})
		switch {
		case gone && (e != nil || !strings.Contains(string(r), bridge.Fresh)):
			t.Errorf("%s: %s, %v, want a new thread", said, r, e)
		case !gone && (e == nil || e.Code == acp.CodeResourceNotFound || !strings.Contains(e.Message, said)):
			t.Errorf("%s: %s, %v, want what codex says", said, r, e)
		}
	}
}

// A session that is opened with another permissionMode, or forked, is in no mode of before.
func TestReopen_InTheModeThatIsAskedFor(t *testing.T) {
	bridgetest.Modes(t, func(t *testing.T) *bridgetest.Client { return played(t, opensAgain).Client }, []bridgetest.Mode{
		{Under: "write", Again: "write", Want: modeAgent},
		{Under: "write", Chosen: modePlan, Again: "write", Want: modePlan},
		{Chosen: modeFullAccess, Want: modeFullAccess},
		{Under: "write", Again: "readonly", Want: modeReadOnly},
		{Chosen: modeFullAccess, Again: "readonly", Want: modeReadOnly},
		{Under: "readonly", Chosen: modeAgent, Again: "readonly", Want: modeReadOnly},
		{Under: "bypass", Want: modeReadOnly},
		{Under: "bypass", Again: "default", Want: modeReadOnly},
		{Under: "write", Again: "readonly", Fork: true, Want: modeReadOnly},
		{Chosen: modeFullAccess, Fork: true, Want: modeReadOnly},
	})
}
