package pi

import (
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// extension installs an extension of the user's for the sessions that begin in
// this part of a test.
func (w *world) extension(name, script string) {
	w.T.Helper()
	path := w.Write(".pi/agent/extensions/"+name, script, 0o600)
	w.T.Cleanup(func() { _ = os.Remove(path) })
}

// liveExtensions has extensions of the user's in one session.
func liveExtensions(t *testing.T, w *world) {
	w.extension("early.js", `export default function (pi) {
  pi.on("session_start", (_event, ctx) => {
    ctx.ui.notify("it begins", "warning");
    setTimeout(async () => ctx.ui.notify("it said " + await ctx.ui.select("Now already?", ["Yes"]), "warning"));
  });
}`)
	w.extension("asker.js", asker)
	w.extension("talker.js", `export default function (pi) {
  pi.registerCommand("talk", { description: "Prompts", handler: async () => { pi.sendUserMessage("say from an extension"); } });
}`)
	w.extension("ls.js", `export default function (pi) {
  pi.registerTool({ name: "ls", label: "ls", description: "lists", parameters: { type: "object", properties: {} },
    async execute() { return { content: [{ type: "text", text: "it ran" }], details: {} }; } });
}`)
	// Before there is a session nobody can be asked, and what is told waits for it.
	c := w.open(noticing, func(method string, params json.RawMessage) any {
		t.Errorf("asked %s %s", method, params)
		return nil
	})
	id := c.Fresh()
	for _, want := range []string{"it begins", "it said undefined"} {
		c.Await(want, 0, func(m *acp.Message) bool { return m.Session() == string(id) && has(want)(m) })
	}
	c.Turn(id, "say and on")

	// Tools that look like reading are asked for.
	w.script("list", scriptedmodel.Step{scriptedmodel.Call("ls", map[string]any{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	var asked atomic.Int32
	c = w.open(noticing, counting(&asked, bridgetest.Pick(optionReject)))
	if _, got := c.Turn(id, "list"); asked.Load() != 1 || strings.Contains(bridgetest.Said(got), "it ran") {
		t.Errorf("asked %d times, said %q", asked.Load(), bridgetest.Said(got))
	}
	w.extensionsAsk(id)
}

// liveSummaryOfAnExtension: what Pi summarizes because an extension wants that, nobody
// prompted: it can be cancelled, and prompts wait for its end.
func liveSummaryOfAnExtension(t *testing.T, w *world) {
	w.extension("squeeze.js", `export default function (pi) {
  pi.registerCommand("squeeze", { description: "Summarizes", handler: async (_args, ctx) => { ctx.compact(); } });
  pi.on("session_before_compact", async (_event, ctx) => {
    await ctx.ui.select("Shall it go on?", ["Yes"]);
    return { cancel: true };
  });
}`)
	c := w.open(noticing, nil)
	id := c.Fresh()
	w.fill(func(prompt string) { c.Turn(id, prompt) })
	works := func(on string) func(m *acp.Message) bool {
		return func(m *acp.Message) bool { return m.Method() == acp.MethodWorking && has(`"working":`+on)(m) }
	}
	begin := func() (from int, ask *acp.Message) {
		t.Helper()
		from = c.Seen()
		c.Turn(id, "/squeeze")
		c.Await("its work", from, works("true"))
		_, ask = c.Await("the question", from, is(acp.MethodRequestQuestion))
		return from, ask
	}
	from, _ := begin()
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	c.Await("the end of its work", from, works("false"))
	from, ask := begin()
	p := c.Prompt(id, "say behind it")
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeDefault}) // the prompt is with the bridge
	if err := c.Conn.Write(t.Context(), acp.NewResult(ask.ID(), []byte(`{"outcome":"answered","answers":[["Yes"]]}`))); err != nil {
		t.Fatal(err)
	}
	if r, e := c.Result(p); e != nil || !strings.Contains(bridgetest.Said(c.Updates(from)), "behind it") {
		t.Errorf("the prompt behind it ended with %s, %v", r, e)
	}
}

// extensionsAsk: commands of extensions run, ask and tell, and a run that one of
// them starts is awaited.
func (w *world) extensionsAsk(id schema.SessionID) {
	t := w.T
	t.Helper()
	answers := map[string]string{"Which color?": "Blue", "Really?": "Yes", "Your name?": "Ada"}
	c := w.open(noticing, func(method string, params json.RawMessage) any {
		for question, answer := range answers {
			if strings.Contains(string(params), question) {
				return map[string]any{"outcome": "answered", "answers": [][]string{{answer}}}
			}
		}
		if !strings.Contains(string(params), "Nobody answers?") && !strings.Contains(string(params), "Some time later?") {
			t.Errorf("asked %s %s", method, params)
		}
		return nil
	})
	for command, want := range map[string]string{"/color": "you chose Blue", "/sure": "typed: Ada"} {
		from := c.Seen()
		if stop, _ := c.Turn(id, command); stop != schema.StopReasonEndTurn {
			t.Errorf("%s ended with %s", command, stop)
		}
		c.Await(want, from, has(want))
	}
	c.Await("the confirmation", 0, has("confirmed: true"))
	c.Await("what was not answered in time", 0, has("in time: undefined"))
	c.Await("its withdrawal", 0, is(acp.MethodCancelRequest))
	from := c.Seen()
	c.Turn(id, "/later")
	_, later := c.Await("a question that outlives its turn", from, is(acp.MethodRequestQuestion))
	from = c.Seen()
	c.Turn(id, "/doubt")
	c.Await("that it does without", from, has("without: false"))
	c.Await("the withdrawal of what it asked", from, is(acp.MethodCancelRequest))
	if err := c.Conn.Write(t.Context(), acp.NewResult(later.ID(), []byte(`{"outcome":"answered","answers":[["Yes"]]}`))); err != nil {
		t.Fatal(err)
	}
	c.Await("the answer behind its turn", from, has("later: Yes"))
	from = c.Seen()
	c.Turn(id, "/talk")
	c.Await("its answer", from, has("from an extensio"))
	if stop, got := c.Turn(id, "say next"); stop != schema.StopReasonEndTurn || !strings.HasSuffix(bridgetest.Said(got), "next") {
		t.Errorf("the next turn: %s, %q", stop, bridgetest.Said(got))
	}
}
