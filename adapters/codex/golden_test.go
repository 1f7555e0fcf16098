package codex

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// player shows what becomes of captured lines: one translator for each thread
// that was opened, as sessions have it. Lines that begin with "> " were sent.
type player struct {
	*bridgetest.Transcript
	threads map[string]*translator // those of subagents included
	turns   map[string]*work       // by thread
	sent    map[string]string      // methods by id
	asked   map[string]*question   // by id
}

func newPlayer(t testing.TB) *player {
	return &player{
		Transcript: bridgetest.NewTranscript(t),
		threads:    map[string]*translator{}, turns: map[string]*work{}, sent: map[string]string{}, asked: map[string]*question{},
	}
}

func (p *player) open(thread string) *translator {
	if tr := p.threads[thread]; tr != nil {
		return tr
	}
	tr := newTranslator()
	tr.thread = thread
	p.threads[thread] = tr
	p.turns[thread] = &work{ids: map[string]bool{}}
	return tr
}

func (p *player) line(line []byte) {
	if sent, ok := bytes.CutPrefix(line, []byte("> ")); ok {
		id, _ := rawjson.Member(sent, "id")
		if method := rawjson.MemberString(sent, "method"); method != "" {
			p.sent[string(id)] = method
			p.WriteString("> " + method + "\n")
			if tr := p.threads[rawjson.MemberString(sent, "params", "threadId")]; tr != nil && method == "turn/start" {
				p.turns[tr.thread] = &work{ids: map[string]bool{}}
			}
		}
		return
	}
	method := rawjson.MemberString(line, "method")
	id, isRequest := rawjson.Member(line, "id")
	params, _ := rawjson.Member(line, "params")
	switch {
	case method == "":
		p.response(p.sent[string(id)], line)
	case isRequest:
		p.ask(method, params)
	default:
		p.notification(method, params, line)
	}
}

// response takes an answer to the bridge: it opens threads and has the past.
func (p *player) response(method string, line []byte) {
	if said := rawjson.MemberString(line, "error", "message"); said != "" {
		p.WriteString("refused " + bridge.OneLine(said) + "\n")
		return
	}
	if id := rawjson.MemberString(line, "result", "thread", "id"); id != "" {
		p.open(id)
	}
	if method != "thread/turns/list" {
		return
	}
	data, _ := rawjson.Member(line, "result", "data")
	for _, raw := range rawjson.Elements(data) {
		var one turnInfo
		if err := bridge.Lenient(raw, &one); err != nil {
			p.WriteString("unparsed " + err.Error() + "\n")
			continue
		}
		tr := newTranslator()
		p.WriteString("past turn\n")
		p.Updates(tr.replay(&one))
	}
}

func (p *player) ask(method string, params []byte) {
	q := &question{Method: method}
	if err := bridge.Lenient(params, q); err != nil {
		p.WriteString("unparsed " + err.Error() + "\n")
		return
	}
	tr := p.threads[q.Thread]
	switch {
	case tr == nil:
		p.WriteString("asks about an unknown thread\n")
	case method == "item/tool/requestUserInput":
		p.Note("question", q.Questions)
		p.Note("  answered:", answered(q, &acp.QuestionResponse{Outcome: acp.QuestionAnswered, Answers: [][]string{{"A"}}}))
		p.Note("  rejected:", answered(q, &acp.QuestionResponse{Outcome: acp.QuestionRejected}))
	case method == "item/tool/call", method == "mcpServer/elicitation/request" && (q.Meta == nil || q.Meta.Approval == ""):
		p.WriteString("asks " + method + "\n")
	default:
		req, list := tr.permission("S", q)
		p.Request("permission", acp.MethodSessionRequestPermission, req)
		for _, c := range list {
			p.Note("  "+string(c.option.OptionID)+":", c.answer)
		}
		p.Note("  cancelled:", q.cancelled())
	}
}

func (p *player) notification(method string, params, line []byte) {
	e, err := parse(method, params)
	if err != nil {
		p.WriteString("unparsed " + err.Error() + "\n")
		return
	}
	at, _ := rawjson.Member(line, "emittedAtMs")
	_ = json.Unmarshal(at, &e.At) // 0 where it is missing
	tr := p.threads[e.Thread]
	if tr == nil && (e.Thread == "" || e.Turn != nil && e.Turn.Root != "") && len(p.threads) == 1 {
		for _, one := range p.threads {
			tr = one
		}
		if e.Thread != "" {
			p.threads[e.Thread] = tr
		}
	}
	if tr == nil {
		return
	}
	if it := e.Item; it != nil && it.Type == "collabAgentToolCall" {
		for _, child := range it.Receivers {
			p.threads[child] = tr
		}
	}
	p.Updates(tr.translate(e))
	if method != "turn/completed" || e.Thread != tr.thread {
		return
	}
	if e.Turn == nil {
		return
	}
	v := p.turns[tr.thread].judge(e.Turn)
	if v.Err != nil {
		p.Note("error", v.Err)
	} else {
		p.WriteString("end " + string(v.Reason) + "\n")
	}
	if used := tr.usage.ofTurn(); used != nil {
		p.Note("usage", used)
	}
}

// shown renders what becomes of lines.
func shownLines(t testing.TB, lines []byte) string {
	t.Helper()
	p := newPlayer(t)
	in := bridge.NewLines(bytes.NewReader(lines), 0)
	for {
		line, err := in.Next()
		if err != nil {
			break
		}
		p.line(bytes.Clone(line))
	}
	for id, tr := range p.threads {
		if id == tr.thread {
			p.Updates(tr.showOutputs())
		}
	}
	return p.String()
}

// TestTranslate_Fixtures replays what codex wrote in captured runs. Of the model,
// which was scripted, the texts and numbers mean nothing.
func TestTranslate_Fixtures(t *testing.T) {
	bridgetest.Fixtures(t, 55, shownLines)
}

// BenchmarkFixtures plays them at full speed, without the process.
func BenchmarkFixtures(b *testing.B) {
	bridgetest.Benchmark(b, shownLines, "01-text-turn", `"method":"item/agentMessage/delta"`)
}

// On a busy machine a subagent is done before the call that made it says which
// thread it has: its calls and words are the subagent's all the same.
func TestTranslate_SubagentBeforeItsName(t *testing.T) {
	file, err := os.ReadFile("testdata/wire/31-subagent.txtar")
	if err != nil {
		t.Fatal(err)
	}
	lines, _, _ := bytes.Cut(file, []byte("-- updates --\n"))
	inOrder := shownLines(t, lines)
	all := bytes.SplitAfter(lines, []byte("\n"))
	named := slices.IndexFunc(all, func(l []byte) bool {
		return bytes.Contains(l, []byte(`"method":"item/completed"`)) && bytes.Contains(l, []byte(`"tool":"spawnAgent"`))
	})
	late := slices.Concat(all[:named], all[named+1:], all[named:named+1])
	sorted := func(s string) []string { return slices.Sorted(strings.SplitSeq(s, "\n")) }
	if diff := cmp.Diff(sorted(inOrder), sorted(shownLines(t, bytes.Join(late, nil)))); diff != "" {
		t.Errorf("what is shown (-named at once, +named last):\n%s", diff)
	}
}
