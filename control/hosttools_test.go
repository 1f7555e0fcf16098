package control

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/control/process"
)

func TestHostTools(t *testing.T) {
	o, dir := withProcesses(t, Options{}, func(l *process.Limits) { l.LogBytes = 64 << 10 })
	h := NewHostTools(o.Files, o.Processes)
	t.Cleanup(func() { h.Close(context.Background()) })
	call := func(session, method, params string) (string, error) {
		t.Helper()
		result, err := h.Call(t.Context(), session, dir, method, json.RawMessage(params))
		if err != nil {
			return "", err
		}
		b, err := schema.Encode(result)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), nil
	}
	must := func(method, params string) string {
		t.Helper()
		s, err := call("s", method, params)
		if err != nil {
			t.Fatalf("%s %s: %v", method, params, err)
		}
		return s
	}
	refused := func(kind problem.Kind, session, method, params string) {
		t.Helper()
		s, err := call(session, method, params)
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != kind {
			t.Errorf("%s %s: %s, %v, want %s", method, params, s, err, kind)
		}
	}

	must(acp.MethodFSWriteTextFile, `{"path":"`+dir+`/n/f","content":"one\ntwo\nthree"}`)
	if b, err := os.ReadFile(dir + "/n/f"); err != nil || string(b) != "one\ntwo\nthree" {
		t.Errorf("%q, %v", b, err)
	}
	for params, want := range map[string]string{
		``:                       `one\ntwo\nthree`,
		`,"line":2`:              `two\nthree`,
		`,"line":2,"limit":1`:    `two\n`,
		`,"line":0,"limit":2`:    `one\ntwo\n`,
		`,"line":null,"limit":0`: ``,
		`,"line":9`:              ``,
	} {
		if got := must(acp.MethodFSReadTextFile, `{"path":"n/f"`+params+`}`); got != `{"content":"`+want+`"}` {
			t.Errorf("%s: %s", params, got)
		}
	}
	put(t, dir+"/binary", "a\xffb")
	put(t, dir+"/long", strings.Repeat("x", 200<<10)+"\nend")
	if got := must(acp.MethodFSReadTextFile, `{"path":"binary"}`); got != "{\"content\":\"a\uFFFDb\"}" {
		t.Error(got)
	}
	if got := must(acp.MethodFSReadTextFile, `{"path":"long","line":2}`); got != `{"content":"end"}` {
		t.Error(got)
	}
	if err := os.Truncate(dir+"/long", 17<<20); err != nil {
		t.Fatal(err)
	}
	refused(problem.PayloadTooLarge, "s", acp.MethodFSReadTextFile, `{"path":"long"}`)
	refused(problem.NotFound, "s", acp.MethodFSReadTextFile, `{"path":"none"}`)
	refused(problem.PathEscapes, "s", acp.MethodFSReadTextFile, `{"path":"/etc/passwd"}`)
	refused(problem.PathEscapes, "s", acp.MethodFSWriteTextFile, `{"path":"/etc/x","content":""}`)
	refused(problem.InvalidRequest, "s", acp.MethodFSReadTextFile, `{"path":1}`)
	refused(problem.PathEscapes, "s", acp.MethodTerminalCreate, `{"command":"true","cwd":"/"}`)
	refused(problem.NotFound, "s", acp.MethodTerminalCreate, `{"command":"no-such-program","args":["x"]}`)

	create := func(params string) string {
		t.Helper()
		var r schema.CreateTerminalResponse
		if err := json.Unmarshal([]byte(must(acp.MethodTerminalCreate, params)), &r); err != nil || r.TerminalID == "" {
			t.Fatal(err)
		}
		return `{"terminalId":"` + string(r.TerminalID) + `"}`
	}
	id := create(`{"command":"sh","args":["-c","pwd; echo $A >&2; cat; exit 3"],"env":[{"name":"A","value":"b"}],"cwd":"n"}`)
	if got := must(acp.MethodTerminalWaitForExit, id); got != `{"exitCode":3}` {
		t.Error(got)
	}
	got := must(acp.MethodTerminalOutput, id)
	if !strings.Contains(got, dir+`/n\n`) || !strings.Contains(got, `b\n`) || !strings.Contains(got, `"truncated":false,"exitStatus":{"exitCode":3}`) {
		t.Error(got)
	}
	refused(problem.NotFound, "another session", acp.MethodTerminalOutput, id)
	must(acp.MethodTerminalRelease, id)
	refused(problem.NotFound, "s", acp.MethodTerminalOutput, id)

	// A command line without arguments is one for a shell.
	id = create(`{"command":"printf 'äöü' && printf end","outputByteLimit":8}`)
	must(acp.MethodTerminalWaitForExit, id)
	if got := must(acp.MethodTerminalOutput, id); got != `{"output":"öüend","truncated":true,"exitStatus":{"exitCode":0}}` && got != `{"output":"üend","truncated":true,"exitStatus":{"exitCode":0}}` {
		t.Error(got)
	}
	must(acp.MethodTerminalRelease, id)
	// Of a long output the end is there.
	id = create(`{"command":"head -c 1000000 /dev/zero | tr '\\0' x; echo end"}`)
	must(acp.MethodTerminalWaitForExit, id)
	if got := must(acp.MethodTerminalOutput, id); !strings.Contains(got, `xend\n","truncated":true`) || len(got) > 80<<10 {
		t.Errorf("%d bytes: %.100s", len(got), got)
	}
	must(acp.MethodTerminalRelease, id)

	id = create(`{"command":"sleep 1000"}`)
	if got := must(acp.MethodTerminalOutput, id); got != `{"output":"","truncated":false}` {
		t.Error(got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Call(ctx, "s", dir, acp.MethodTerminalWaitForExit, json.RawMessage(id)); err == nil {
		t.Error("it waits no longer, and has a result")
	}
	must(acp.MethodTerminalKill, id)
	if got := must(acp.MethodTerminalOutput, id); !strings.Contains(got, `"exitStatus":{"signal":"SIGKILL"}`) {
		t.Error(got)
	}
	if all := o.Processes.Processes(); len(all) != 0 {
		t.Errorf("an agent's terminals are listed: %d", len(all))
	}
	must(acp.MethodTerminalRelease, id)

	// What a session leaves ends with it, and there is a bound.
	var ids []string
	for range toolTerminals {
		ids = append(ids, create(`{"command":"true"}`))
		must(acp.MethodTerminalWaitForExit, ids[len(ids)-1])
	}
	refused(problem.TooManyRequests, "s", acp.MethodTerminalCreate, `{"command":"true"}`)
	must(acp.MethodTerminalRelease, ids[0])
	id = create(`{"command":"trap '' TERM; sleep 1000"}`)
	left, err := h.terminal("s", strings.Split(id, `"`)[3], false)
	if err != nil {
		t.Fatal(err)
	}
	h.End("s")
	h.Wait(t.Context(), "s")
	select {
	case <-left.p.Done():
	default:
		t.Error("it outlives its session")
	}
	refused(problem.NotFound, "s", acp.MethodTerminalOutput, id)
}

// endsWhen is a context that ends when over says so, as that of a session which is closed meanwhile.
type endsWhen struct {
	context.Context
	over func() bool
}

func (c endsWhen) Err() error {
	if c.over() {
		return context.Canceled
	}
	return nil
}

// A line without an end is not read to the end for who waits no more.
func TestHostTools_CancelledInALongLine(t *testing.T) {
	o, dir := withProcesses(t, Options{})
	h := NewHostTools(o.Files, o.Processes)
	t.Cleanup(func() { h.Close(context.Background()) })
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(dir+"/f", 1<<40); err != nil {
		t.Fatal(err)
	}
	asked := 0
	ctx := endsWhen{t.Context(), func() bool { asked++; return asked > 100 }}
	if _, err := h.Call(ctx, "s", dir, acp.MethodFSReadTextFile, json.RawMessage(`{"path":"f","line":2}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Who waits for the end of a session's terminals waits for one that its agent has released, too: it is forgotten, and still ends.
func TestHostTools_WaitsForWhatWasReleased(t *testing.T) {
	o, dir := withProcesses(t, Options{})
	h := NewHostTools(o.Files, o.Processes)
	t.Cleanup(func() { h.Close(context.Background()) })
	result, err := h.Call(t.Context(), "s", dir, acp.MethodTerminalCreate, json.RawMessage(`{"command":"trap '' TERM; sleep 1000"}`))
	if err != nil {
		t.Fatal(err)
	}
	id := string(result.(schema.CreateTerminalResponse).TerminalID)
	left, err := h.terminal("s", id, false)
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	go func() {
		_, err := h.Call(t.Context(), "s", dir, acp.MethodTerminalRelease, json.RawMessage(`{"terminalId":"`+id+`"}`))
		released <- err
	}()
	for known := true; known; { // it is forgotten first
		_, err := h.terminal("s", id, false)
		known = err == nil
		goruntime.Gosched()
	}
	h.End("s")
	h.Wait(t.Context(), "s")
	select {
	case <-left.p.Done():
	default:
		t.Error("it outlives its session")
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
}

func TestHostTools_EndedWhileATerminalStarts(t *testing.T) {
	o, dir := withProcesses(t, Options{})
	h := NewHostTools(o.Files, o.Processes)
	sleep := json.RawMessage(`{"command":"sleep 1000"}`)
	if r, err := h.Call(endsWhen{t.Context(), func() bool { return o.Processes.Census().Started > 0 }}, "s", dir, acp.MethodTerminalCreate, sleep); err == nil {
		t.Errorf("a session that is closed has %+v", r)
	}
	h.Close(context.Background())
	r, err := h.Call(t.Context(), "s", dir, acp.MethodTerminalCreate, sleep)
	if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.Unavailable {
		t.Errorf("a gateway that ends answers %v, %v", r, err)
	}
	if n := o.Processes.Census().Running; n != 0 {
		t.Errorf("%d programs were left", n)
	}
}

// A call that does not end, as one on a file system that does not answer, holds up no end of the gateway.
func TestHostTools_CloseIsBounded(t *testing.T) {
	h := NewHostTools(nil, nil)
	h.mu.Lock()
	over := h.beginLocked("s")
	h.mu.Unlock()
	defer over()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Close(ctx)
}
