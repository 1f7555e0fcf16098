package docs_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
)

// example is a kind of update on the page, and where its example comes from:
// recordings of real agents that the bridges' tests translate, or the mock agent
// where those show none.
type example struct {
	kind, text string
	agent      string // "mock" runs prompt
	has        string // the example must contain it
	title      string // of a further example of the same kind
	prompt     string
}

var examples = []example{
	{kind: "agent_message_chunk", agent: "claude", has: "I will run a", text: "A piece of the agent's answer. Pieces with the same `messageId` belong together."},
	{kind: "agent_thought_chunk", agent: "claude", has: "The user wan", text: "A piece of the agent's reasoning."},
	{kind: "user_message_chunk", agent: "opencode", has: "[[script:text]] one", text: "What the user said: in a replay, and for the other clients of a session. The recordings were made with a scripted model, which is what this prompt speaks to."},
	{kind: "tool_call", agent: "claude", has: `"kind":"execute"`, text: "A tool call begins. Later messages name it by `toolCallId`; no update names a call that was not introduced."},
	{kind: "tool_call_update", agent: "codex", has: `"in_progress"`, text: "Something of a tool call has changed; what is missing has not. `status` goes from `pending` over `in_progress` to `completed` or `failed`. When a turn ends, none of its calls is left open."},
	{kind: "tool_call_update", agent: "claude", has: `"completed"`, title: "With a result", text: "`content` is for people, `rawOutput` is the agent's own form."},
	{kind: "tool_call_update", agent: "claude", has: `"type":"diff"`, title: "With a diff", text: "`oldText` is missing for a new file."},
	{kind: "tool_call_update", agent: "codex", has: `"status":"in_progress","content"`, title: "With what a command has written so far", text: "`content` takes the place of the call's content before."},
	{kind: "plan", agent: "claude", has: `"in_progress"`, text: "The agent's plan. Each one replaces the one before."},
	{kind: "available_commands_update", agent: "mock", prompt: "commands", text: "The slash commands that a prompt may begin with. Each list replaces the one before."},
	{kind: "current_mode_update", agent: "claude", text: "The mode is another one."},
	{kind: "config_option_update", agent: "mock", prompt: "set", text: "The session's options, all of them, after one has changed: modes, models, thought levels."},
	{kind: "session_info_update", agent: "codex", text: "The title of the session."},
	{kind: "usage_update", agent: "claude", text: "How much of the context is `used`, of which `size`, and what the session has cost, for agents that say."},
	{kind: "notice", agent: "claude", has: `"description"`, text: "Something the agent wants people to know, such as a request that is repeated. A client that does not announce `session.notices` in its `clientCapabilities` is given warnings and errors as a thought."},
	{kind: "compaction_update", agent: "claude", has: `"completed"`, text: "The agent shortens what it remembers. A client that does not announce `session.compaction` in its `clientCapabilities` is told of the end, as a thought."},
	{kind: "compaction_summary_chunk", agent: "opencode", text: "A piece of the summary that takes the place of what was shortened. Only for clients that announce `session.compaction`."},
}

// passedOn are kinds of the protocol that no agent here was seen to send.
var passedOn = []string{"plan_update", "plan_removed", "subagent_update", "session_message", "session_message_chunk"}

var agentNames = map[string]string{"claude": "Claude Code", "codex": "Codex", "opencode": "OpenCode", "amp": "Amp", "pi": "Pi", "mock": "Mock agent"}

// recorded returns the updates of an agent's recordings, as its bridge made them.
func recorded(t *testing.T, agent, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob("../adapters/" + agent + "/testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no recordings: %v", agent, err)
	}
	var all []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, updates, _ := strings.Cut(string(b), "\n-- updates --\n")
		for line := range strings.Lines(updates) {
			if doc, ok := strings.CutPrefix(strings.TrimSpace(line), prefix+" "); ok && json.Valid([]byte(doc)) {
				all = append(all, doc)
			}
		}
	}
	return all
}

// shortest returns the shortest document with all the parts.
func shortest(t *testing.T, docs []string, parts ...string) string {
	t.Helper()
	docs = slices.DeleteFunc(slices.Clone(docs), func(d string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(d, p) })
	})
	if len(docs) == 0 {
		t.Fatalf("no recording has %q", parts)
	}
	return slices.MinFunc(docs, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
}

func TestGenerated_Updates(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	schema, err := os.ReadFile("../acp/schema/v1.unstable.json")
	if err != nil {
		t.Fatal(err)
	}
	var defs struct {
		Defs struct {
			SessionUpdate struct {
				OneOf []struct {
					Properties struct {
						SessionUpdate struct{ Const string } `json:"sessionUpdate"`
					}
				} `json:"oneOf"`
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &defs); err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, u := range defs.Defs.SessionUpdate.OneOf {
		known = append(known, u.Properties.SessionUpdate.Const)
	}
	g := startGateway(t)
	v := acptest.New(t)
	var b strings.Builder
	var seen []string
	agents := []string{"claude", "codex", "opencode", "amp", "pi"}
	all := map[string][]string{}
	for _, a := range agents {
		all[a] = recorded(t, a, "update")
	}
	for _, e := range examples {
		var doc string
		if e.agent == "mock" {
			doc = g.update(t, e.kind, e.prompt)
		} else {
			parts := []string{`{"sessionUpdate":"` + e.kind + `"`}
			if e.has != "" {
				parts = append(parts, e.has)
			}
			doc = shortest(t, all[e.agent], parts...)
		}
		frame := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"example","update":` + doc + `}}`
		if err := v.ValidateFrame([]byte(frame), nil); err != nil {
			t.Errorf("%s: %v", e.kind, err)
		}
		if e.title == "" {
			senders := ""
			for _, a := range agents {
				if slices.ContainsFunc(all[a], func(d string) bool { return strings.HasPrefix(d, `{"sessionUpdate":"`+e.kind+`"`) }) {
					senders += ", " + agentNames[a]
				}
			}
			senders = strings.TrimPrefix(senders, ", ")
			if senders == "" {
				fmt.Fprintf(&b, "### %s\n\n%s The recordings do not hold it; agents send it outside of turns.\n\n", e.kind, e.text)
			} else {
				fmt.Fprintf(&b, "### %s\n\n%s In the recordings of %s.\n\n", e.kind, e.text, senders)
			}
			seen = append(seen, e.kind)
		} else {
			fmt.Fprintf(&b, "#### %s\n\n%s\n\n", e.title, e.text)
		}
		fmt.Fprintf(&b, "```json %s\n%s\n```\n\n", agentNames[e.agent], indent(t, doc))
	}
	slices.Sort(known)
	if got := slices.Sorted(slices.Values(append(seen, passedOn...))); !slices.Equal(got, known) {
		t.Errorf("the page has %q, the protocol %q", got, known)
	}
	for _, kind := range passedOn {
		for _, a := range agents {
			if slices.ContainsFunc(all[a], func(d string) bool { return strings.HasPrefix(d, `{"sessionUpdate":"`+kind+`"`) }) {
				t.Errorf("%s does send %s: give it an example", a, kind)
			}
		}
	}
	fmt.Fprintf(&b, "### Others\n\nThe protocol knows further kinds: `%s`. No agent was seen to send them. They are passed on like all others, "+
		"and so are kinds that the protocol does not know yet. A client ignores what it does not know.\n", strings.Join(passedOn, "`, `"))
	generated(t, "updates.mdx", "updates", b.String())

	b.Reset()
	for _, r := range []struct{ title, text, agent, doc string }{
		{"session/request_permission", "The agent wants to do something and asks. See [Permissions and questions](/permissions).", "claude", request("session/request_permission", shortest(t, recorded(t, "claude", "permission"), `"command"`, `"allow_always"`))},
		{"$/cancel_request", "Somebody else has answered the request with this id: take it off the screen.", "mock", g.withdrawn(t)},
		{"_sandboxagent/session/request_question", "The agent has questions. For clients that know this method.", "mock", g.message(t, "_sandboxagent/session/request_question", "question")},
		{"elicitation/create", "The same question, for clients that offer forms and do not know the method before.", "mock", g.form(t)},
		{"_sandboxagent/session/turn_ended", "A turn of another client has ended. For clients that asked for `turns`.", "mock", g.message(t, "_sandboxagent/session/turn_ended", "hello")},
		{"_sandboxagent/session/ended", "The session, or its process, has ended.", "mock", g.message(t, "_sandboxagent/session/ended", "crash")},
		{"_sandboxagent/agent/unparsed", "The agent wrote something that is no message. It keeps running.", "mock", g.message(t, "_sandboxagent/agent/unparsed", "garbage")},
	} {
		fmt.Fprintf(&b, "### %s\n\n%s\n\n```json %s\n%s\n```\n\n", r.title, r.text, agentNames[r.agent], indent(t, r.doc))
	}
	generated(t, "updates.mdx", "messages", strings.TrimSuffix(b.String(), "\n"))
}

func request(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + strings.Replace(params, `"sessionId":"S"`, `"sessionId":"example"`, 1) + `}`
}

func indent(t *testing.T, doc string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(doc), "", "  "); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	return b.String()
}

// gateway is a running gateway with the mock agent.
type gateway struct {
	url      string
	sessions int
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "server", "--no-token", "--port", "0", "--default-agent", "mock", "--ephemeral")
	cmd.Dir = home
	cmd.Env = append(environment(), "HOME="+home, "PATH="+os.Getenv("PATH"))
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout // announced on either
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // also closes the pipe, which nobody reads any more
		_ = log.Close()
	})
	var said []byte
	chunk := make([]byte, 4096)
	for {
		n, err := out.Read(chunk)
		said = append(said, chunk[:n]...)
		if m := regexp.MustCompile(`http://[\d.]+:\d+`).Find(said); m != nil {
			return &gateway{url: string(m)}
		}
		if err != nil {
			t.Fatalf("the gateway printed no address: %v\n%s", err, said)
		}
	}
}

// peer is one client of the gateway.
type peer struct {
	t    *testing.T
	ctx  context.Context
	conn acp.Conn
	n    int
}

// asks are the capabilities of a client that wants everything there is.
const asks = `{"_meta":{"sandboxagent.dev":{"turns":true,"requestQuestion":true}}}`

func (g *gateway) connect(t *testing.T, capabilities string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	conn, err := acphttp.Dial(ctx, g.url, acphttp.DialOptions{Agent: "mock"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p := &peer{t: t, ctx: ctx, conn: conn}
	p.send("initialize", `{"protocolVersion":1,"clientCapabilities":`+capabilities+`}`)
	p.await(func(m *acp.Message) bool { return m.IsResponse() })
	return p
}

func (p *peer) send(method, params string) {
	p.t.Helper()
	p.n++
	if err := p.conn.Write(p.ctx, acp.NewRequest(acp.ID(strconv.Itoa(p.n)), method, []byte(params))); err != nil {
		p.t.Fatal(err)
	}
}

// await returns the next message that is wanted.
func (p *peer) await(ok func(m *acp.Message) bool) string {
	p.t.Helper()
	for {
		m, err := p.conn.Read(p.ctx)
		if err != nil {
			p.t.Fatalf("the message did not come: %v", err)
		}
		if e := m.Err(); m.IsResponse() && e != nil && e.Code == acp.CodeInvalidParams {
			p.t.Fatal(e)
		}
		if ok(&m) {
			return string(m.Frame())
		}
	}
}

// session makes a session, attaches a second client, and returns both.
func (g *gateway) session(t *testing.T, capabilities string) (id string, first, second *peer) {
	t.Helper()
	g.sessions++
	id = "example-" + strconv.Itoa(g.sessions)
	first, second = g.connect(t, asks), g.connect(t, capabilities)
	response := func(m *acp.Message) bool { return m.IsResponse() }
	first.send("session/new", `{"cwd":"/","mcpServers":[],"_meta":{"sandboxagent.dev":{"requestedSessionId":"`+id+`"}}}`)
	first.await(response)
	second.send("session/resume", `{"cwd":"/","mcpServers":[],"sessionId":"`+id+`"}`)
	second.await(response)
	return id, first, second
}

func prompt(id, text string) string {
	return `{"sessionId":"` + id + `","prompt":[{"type":"text","text":"` + text + `"}]}`
}

// update returns the first update of a kind after a prompt.
func (g *gateway) update(t *testing.T, kind, text string) string {
	t.Helper()
	id, first, second := g.session(t, asks)
	if text == "set" {
		first.send("session/set_config_option", `{"sessionId":"`+id+`","configId":"model","value":"mock-large"}`)
	} else {
		first.send("session/prompt", prompt(id, text))
	}
	frame := second.await(func(m *acp.Message) bool { return string(m.UpdateKind()) == kind })
	m, err := acp.Parse([]byte(frame))
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Update())
}

// message returns the first message of a method that the second client is sent.
func (g *gateway) message(t *testing.T, method, text string) string {
	t.Helper()
	id, first, second := g.session(t, asks)
	first.send("session/prompt", prompt(id, text))
	return second.shown(id, method)
}

// form returns a question as a client is given it that offers forms.
func (g *gateway) form(t *testing.T) string {
	t.Helper()
	id, first, second := g.session(t, `{"elicitation":{"form":{}}}`)
	first.send("session/prompt", prompt(id, "question"))
	return second.shown(id, "elicitation/create")
}

// withdrawn returns what the second client is sent when the first has answered.
func (g *gateway) withdrawn(t *testing.T) string {
	t.Helper()
	id, first, second := g.session(t, asks)
	first.send("session/prompt", prompt(id, "permission"))
	second.shown(id, "session/request_permission")
	asked, err := acp.Parse([]byte(first.await(func(m *acp.Message) bool { return m.Method() == "session/request_permission" })))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := acp.Parse([]byte(`{"jsonrpc":"2.0","id":` + string(asked.ID()) + `,"result":{"outcome":{"outcome":"selected","optionId":"allow_once"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.conn.Write(first.ctx, answer); err != nil {
		t.Fatal(err)
	}
	return second.shown(id, "$/cancel_request")
}

// shown awaits a message of a method and returns it as the page shows it.
func (p *peer) shown(id, method string) string {
	p.t.Helper()
	frame := p.await(func(m *acp.Message) bool { return m.Method() == method })
	frame = regexp.MustCompile(`"at":"[^"]*"`).ReplaceAllString(frame, `"at":"2026-01-01T12:00:00Z"`)
	frame = regexp.MustCompile(`"(id|requestId)":\d+`).ReplaceAllString(frame, `"$1":7`) // another one each time
	return strings.ReplaceAll(frame, id, "example")
}
