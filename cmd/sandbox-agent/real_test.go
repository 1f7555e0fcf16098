package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// testReal drives an agent through the gateway as a client does. The agent needs
// nothing but loopback.
func testReal(t *testing.T, a *realAgent) {
	agentcache.NotShort(t)
	t.Parallel()
	flags, env := a.install(t)
	agentcache.Turn(t, a.id)
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	model := scriptedmodel.Start(t)
	a.write(t, home, model)
	r := &real{realAgent: a, t: t, model: model, dir: filepath.Join(home, "workspace")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.g = newGateway(t, flags...)
	r.g.env = slices.Concat(env, []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + home + "/.config", "XDG_DATA_HOME=" + home + "/.local/share",
		"XDG_CACHE_HOME=" + home + "/.cache", "XDG_STATE_HOME=" + home + "/.local/state",
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + model.URL, "HTTP_PROXY=" + model.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + model.URL, "http_proxy=" + model.URL, "no_proxy=127.0.0.1,localhost",
	}, a.env(model))
	r.g.start()

	c := r.connect()
	session := r.newSession(c)
	var turns []realTurn
	add := func(turn realTurn) realTurn {
		turns = append(turns, turn)
		return turn
	}
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			outer := r.t
			r.t, c.t = t, t
			defer func() { r.t, c.t = outer, outer }()
			begin := time.Now()
			f(t)
			t.Logf("took %v", time.Since(begin).Round(time.Millisecond))
			if t.Failed() {
				t.Logf("requests to the model:\n%s", r.calls())
			}
		})
	}
	run("text", func(t *testing.T) { add(r.testText(t, c, session)) })
	run("read", func(t *testing.T) { add(r.testRead(t, c, session)) })
	run("allow", func(t *testing.T) { add(r.testAllow(t, c, session)) })
	run("reject", func(t *testing.T) { add(r.testNo(t, c, session, "rejected", choose(t, "reject_once"))) })
	run("outcome cancelled", func(t *testing.T) { add(r.testNo(t, c, session, "dismissed", outcomeCancelled)) })
	run("cancel while streaming", func(t *testing.T) { add(r.testCancelStream(t, c, session)) })
	run("cancel while asking", func(t *testing.T) { add(r.testCancelAsking(t, c, session)) })
	run("turn after cancel", func(t *testing.T) {
		if turn := add(r.prompt(c, session, "say still here", nil)); turn.stop != "end_turn" || turn.text != "still here" {
			t.Errorf("%s: %q", turn.stop, turn.text)
		}
	})
	run("provider error", func(t *testing.T) { add(r.testProviderError(t, c, session)) })
	run("turn after error", func(t *testing.T) {
		if turn := add(r.prompt(c, session, "say here again", nil)); turn.stop != "end_turn" || turn.text != "here again" {
			t.Errorf("%s: %q", turn.stop, turn.text)
		}
	})
	var p problems
	for _, turn := range turns {
		p.look(session, turn.frames)
	}
	p.between(session, c.messages(), turns)
	r.settled(t, "", p)
	run("readonly", func(t *testing.T) { r.testReadonly(t, c) })
	run("wrong key", func(t *testing.T) { r.testWrongKey(t, c, session) })
	run("elsewhere", func(t *testing.T) { r.testElsewhere(t, session) })
	run("load", func(t *testing.T) { r.testLoad(t, session) })
	r.quirk(t, "invalid-frame", r.violations)
	if r.all < 50 {
		t.Errorf("only %d frames were looked at", r.all)
	}
	if testing.Verbose() || t.Failed() {
		t.Logf("requests to the model:\n%s", r.calls())
		t.Logf("other requests: %q", model.Unknown())
	}
	if path := os.Getenv("SANDBOX_AGENT_TEST_FRAMES"); path != "" {
		r.dump(t, filepath.Join(path, a.id+".jsonl"), session)
	}
}

// dump writes the session's log, for those who look for quirks.
func (r *real) dump(t *testing.T, path, session string) {
	var b []byte
	for _, e := range r.g.events(session) {
		b = append(b, e.Direction...)
		b = append(append(append(b, ' '), e.Message...), '\n')
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Error(err)
	}
}

func (r *real) newSession(c *client) string {
	r.t.Helper()
	var res struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(c.must("session/new", r.params("")), &res); err != nil || res.SessionID == "" {
		r.t.Fatalf("session/new: %v", err)
	}
	return res.SessionID
}

// testReadonly has a session that must only read write a file.
func (r *real) testReadonly(t *testing.T, c *client) {
	params := r.params("")
	params["_meta"] = map[string]any{"sandboxagent.dev": map[string]string{"permissionMode": "readonly"}}
	res, err := c.call("session/new", params)
	if reason := r.quirks["readonly-is-refused"]; reason != "" {
		if err == nil || !strings.Contains(err.Error(), "mode_not_supported") {
			t.Errorf("a readonly session: %s, %v", res, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(res, &made); err != nil {
		t.Fatal(err)
	}
	never := filepath.Join(r.dir, "never.txt")
	r.prompt(c, made.SessionID, "write "+never+" text", choose(t, "allow_once"))
	if _, err := os.Stat(never); err == nil {
		t.Error("a readonly session has written a file")
	}
}

// testWrongKey looks at the error of a key that the provider does not take.
func (r *real) testWrongKey(t *testing.T, c *client, session string) {
	if r.quirks["provider-error-is-no-error"] != "" {
		return
	}
	_, err := c.call("session/prompt", promptParams(session, "fail 401"))
	if err == nil || !strings.Contains(err.Error(), "-32000") || !strings.Contains(err.Error(), "API_KEY in the agent's environment") {
		t.Errorf("a wrong key: %v", err)
	}
}

func (r *real) testText(t *testing.T, c *client, session string) realTurn {
	const want = "one two three four five six seven eight nine ten "
	r.model.On(scriptedmodel.Exactly("count"), scriptedmodel.Step{
		scriptedmodel.Think("I shall count."), scriptedmodel.Slowly(20 * time.Millisecond),
		scriptedmodel.SayChunks(strings.SplitAfter(want, " ")...),
	})
	turn := r.prompt(c, session, "count", nil)
	if turn.stop != "end_turn" || turn.text != want {
		t.Errorf("%s: %q", turn.stop, turn.text)
	}
	chunks := 0
	for i := range turn.frames {
		if u, ok := updateOf(&turn.frames[i], session); ok && u.Kind == "agent_message_chunk" && u.text() != "" {
			chunks++
		}
	}
	if chunks < 3 {
		t.Errorf("the answer came in %d chunks", chunks)
	}
	var plain []string
	if turn.thought != "I shall count." {
		plain = append(plain, "thought "+turn.thought)
	}
	r.quirk(t, "thought-changed", plain)
	if r.usage != nil && !r.usage(&turn) {
		t.Errorf("no usage in %s", turn.result)
	}
	return turn
}

func (r *real) testRead(t *testing.T, c *client, session string) realTurn {
	path := filepath.Join(r.dir, "notes.txt")
	if err := os.WriteFile(path, []byte("the secret word is heron\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	turn := r.prompt(c, session, "read "+path, choose(t, "allow_once"))
	if turn.stop != "end_turn" || !strings.Contains(turn.text, "heron") {
		t.Errorf("%s: %q", turn.stop, turn.text)
	}
	if len(turn.asked) > 0 {
		t.Errorf("reading a file of the workspace needed a permission: %s", turn.asked[0].raw)
	}
	r.quirk(t, "read-without-tool-call", none(turn.frames, session, "tool_call"))
	return turn
}

// none returns a problem if no update of the kind is among the frames.
func none(frames []message, session, kind string) []string {
	for i := range frames {
		if u, ok := updateOf(&frames[i], session); ok && u.Kind == kind {
			return nil
		}
	}
	return []string{"no " + kind + " in the turn"}
}

func (r *real) testAllow(t *testing.T, c *client, session string) realTurn {
	path := filepath.Join(r.dir, "allowed")
	// On a busy machine Qwen Code loses the output of a command that ends with it.
	turn := r.prompt(c, session, "run touch allowed && pwd && printf was-%s run && sleep 0.3", choose(t, "allow_once"))
	if len(turn.asked) != 1 {
		t.Errorf("%d permissions were asked for", len(turn.asked))
	}
	if !strings.Contains(turn.text, r.dir) {
		t.Errorf("the command ran elsewhere: %q", turn.text)
	}
	if _, err := os.Stat(path); err != nil || turn.stop != "end_turn" || !strings.Contains(turn.text, "was-run") {
		t.Errorf("%s: %q, %v", turn.stop, turn.text, err)
	}
	return turn
}

// testNo runs a turn whose permission is refused in some way.
func (r *real) testNo(t *testing.T, c *client, session, name string, permit func(message) any) realTurn {
	path := filepath.Join(r.dir, name)
	turn := r.prompt(c, session, "run touch "+path, permit)
	if len(turn.asked) != 1 {
		t.Errorf("%d permissions were asked for", len(turn.asked))
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the command ran though it was not allowed")
	}
	if turn.stop != "end_turn" && turn.stop != "cancelled" {
		t.Errorf("the turn ended with %s", turn.stop)
	}
	if again := strings.Contains(turn.text, "ran: "); again != r.goesOn {
		t.Errorf("the model went on: %t; the answer is %q", again, turn.text)
	}
	return turn
}

func (r *real) testCancelStream(t *testing.T, c *client, session string) realTurn {
	from, chunks := c.mark(), 0
	var cancelled time.Time
	turn := r.serve(c, session, from, c.start("session/prompt", promptParams(session, "forever")), nil, func(m message) {
		if text, ok := m.chunk(session); ok && strings.Contains(text, "tick") {
			if chunks++; chunks == 3 {
				cancelled = time.Now()
				c.notify("session/cancel", map[string]any{"sessionId": session})
			}
		}
	})
	if took := time.Since(cancelled); cancelled.IsZero() || turn.err != nil || turn.stop != "cancelled" || took > promptly {
		t.Errorf("the turn ended with %q, %v, %v after the cancel", turn.stop, turn.err, took)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if _, err := r.model.Await(ctx, func(q *scriptedmodel.Request) bool {
		return q.Prompt == "forever" && q.Outcome == scriptedmodel.ClientLeft
	}); err != nil {
		t.Error(err)
	}
	return turn
}

func (r *real) testCancelAsking(t *testing.T, c *client, session string) realTurn {
	path := filepath.Join(r.dir, "cancelled")
	from := c.mark()
	var cancelled time.Time
	leave := func(message) any { return nil }
	turn := r.serve(c, session, from, c.start("session/prompt", promptParams(session, "run touch "+path)), leave, func(m message) {
		if m.Method == "session/request_permission" {
			cancelled = time.Now()
			c.notify("session/cancel", map[string]any{"sessionId": session})
		}
	})
	if took := time.Since(cancelled); cancelled.IsZero() || turn.err != nil || turn.stop != "cancelled" || took > promptly {
		t.Errorf("the turn ended with %q, %v, %v after the cancel", turn.stop, turn.err, took)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the command ran though it was not allowed")
	}
	return turn
}

// testProviderError runs a turn in which the model's provider refuses the request.
func (r *real) testProviderError(t *testing.T, c *client, session string) realTurn {
	from := c.mark()
	turn := r.serve(c, session, from, c.start("session/prompt", promptParams(session, "fail 400")), nil, nil)
	var silent, code []string
	var rpc *rpcError
	switch {
	case turn.err == nil:
		silent = append(silent, "the turn ended with "+turn.stop+", the text is "+turn.text)
	case errors.As(turn.err, &rpc) && rpc.Code >= 0:
		code = append(code, turn.err.Error())
	}
	if turn.err != nil && !strings.Contains(turn.err.Error(), "scripted failure") {
		t.Errorf("the error does not say what the provider said: %v", turn.err)
	}
	r.quirk(t, "provider-error-is-no-error", silent)
	r.quirk(t, "provider-error-code", code)
	return turn
}

func (r *real) testLoad(t *testing.T, session string) {
	r.g.restart()
	second := r.connect()
	defer second.abandon()
	from := second.mark()
	second.must("session/load", r.params(session))
	replay := second.messages()[from:]
	var user []string
	var text string
	for i := range replay {
		switch u, ok := updateOf(&replay[i], session); {
		case ok && u.Kind == "user_message_chunk":
			user = append(user, u.text())
		case ok && u.Kind == "agent_message_chunk":
			text += u.text()
		}
	}
	all := strings.Join(user, "|")
	for _, p := range []string{"count", "read ", "run touch ", "forever", "say still here"} {
		want := 1
		if p == "run touch " {
			want = 4
		}
		if n := strings.Count(all, p); n != want {
			t.Errorf("the replay has the prompt %q %d times, want %d: %q", p, n, want, user)
		}
	}
	for _, s := range []string{"one two three four five six seven eight nine ten ", "heron", "was-run", "still here"} {
		if n := strings.Count(text, s); n != 1 {
			t.Errorf("the replay has %q %d times in what the agent said: %q", s, n, text)
		}
	}
	var p problems
	p.look(session, replay)
	r.settled(t, "replay-", p)

	seen := len(r.model.Turns())
	turn := r.prompt(second, session, "say after the load", choose(t, "allow_once"))
	if turn.stop != "end_turn" || !strings.Contains(turn.text, "after the load") { // and nothing else, see replay-in-turn
		t.Errorf("%s: %q", turn.stop, turn.text)
	}
	turns := r.model.Turns()[seen:]
	if len(turns) == 0 {
		t.Fatal("the model was not asked")
	}
	q := turns[len(turns)-1]
	if !q.Says(scriptedmodel.User, "count") || !q.Says(scriptedmodel.Assistant, "one two three") || !q.Says(scriptedmodel.Assistant, "still here") {
		t.Errorf("the model was not given the earlier conversation: %+v", q.Messages)
	}
	var late []string
	for i := range turn.frames {
		if u, ok := updateOf(&turn.frames[i], session); ok && !u.imported() && (u.Kind == "agent_message_chunk" && !strings.Contains("after the load", u.text()) || u.Kind == "user_message_chunk" && u.text() != "say after the load") {
			late = append(late, string(turn.frames[i].raw))
		}
	}
	r.quirk(t, "replay-in-turn", late)

	// What was said elsewhere comes into the log once: with the load, or before the first prompt.
	const want = "user_message_chunk: say from the editor|agent_message_chunk: from the editor"
	if got := broughtIn(session, replay, turn.frames); got != want {
		t.Errorf("opened for the first time, the session has %q of another program, want %q", got, want)
	}
	second.must("session/close", map[string]any{"sessionId": session})
	if res := second.must("session/load", r.params(session)); strings.Contains(string(res), "historyIncomplete") {
		t.Errorf("the load says %s", res)
	}
	turn = r.prompt(second, session, "say and once more", nil)
	if got := broughtIn(session, turn.frames); got != "" || !strings.HasSuffix(turn.text, "and once more") {
		t.Errorf("opened again, the turn brings in %q and says %q", got, turn.text)
	}
}

// testElsewhere has another program add a turn to the conversation: an editor that starts
// the agent by itself, or a terminal. This one gives the agent the tools of its host.
func (r *real) testElsewhere(t *testing.T, session string) {
	r.g.kill(syscall.SIGTERM)
	r.g.awaitNoProcess(r.g.generation())
	if r.age != nil {
		r.age(t, filepath.Dir(r.dir))
	}
	editor := &real{realAgent: r.realAgent, t: t, model: r.model, dir: r.dir, g: newGateway(t, slices.Concat(r.g.args[6:], []string{"--host-tools", "--log-level", "debug"})...)}
	editor.g.env = r.g.env
	editor.g.start()
	c := editor.connect()
	defer c.abandon()
	c.must("session/load", r.params(session))
	if turn := editor.prompt(c, session, "say from the editor", nil); turn.stop != "end_turn" || !strings.HasSuffix(turn.text, "from the editor") {
		t.Fatalf("the editor: %s, %q, %v", turn.stop, turn.text, turn.err)
	}
	if r.writes != "" {
		editor.testHostTools(t, c)
	}
	editor.g.kill(syscall.SIGTERM)
	editor.g.awaitNoProcess(editor.g.generation())
}

// broughtIn tells the messages that came into the log from the agent's own record.
func broughtIn(session string, frames ...[]message) string {
	var found []string
	for _, some := range frames {
		for i := range some {
			if u, ok := updateOf(&some[i], session); ok && u.text() != "" && u.imported() { // usage may be a chunk without text
				found = append(found, u.Kind+": "+u.text())
			}
		}
	}
	return strings.Join(found, "|")
}
