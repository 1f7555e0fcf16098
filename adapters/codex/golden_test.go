package codex

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	linesMark   = "-- lines --\n"
	updatesMark = "-- updates --\n"
)

// player shows what becomes of captured lines: one translator for each thread
// that was opened, as sessions have it. Lines that begin with "> " were sent.
type player struct {
	t       *testing.T
	valid   *acptest.Validator
	known   bool // the client knows notices and compactions
	out     strings.Builder
	threads map[string]*translator // those of subagents included
	turns   map[string]*running    // by thread
	sent    map[string]string      // methods by id
	asked   map[string]*question   // by id
}

func newPlayer(t *testing.T, known bool) *player {
	return &player{
		t: t, valid: acptest.New(t), known: known,
		threads: map[string]*translator{}, turns: map[string]*running{}, sent: map[string]string{}, asked: map[string]*question{},
	}
}

func (p *player) open(thread string) *translator {
	if tr := p.threads[thread]; tr != nil {
		return tr
	}
	tr := newTranslator()
	tr.thread, tr.notices, tr.compaction = thread, p.known, p.known
	p.threads[thread] = tr
	p.turns[thread] = &running{ids: map[string]bool{}}
	return tr
}

func (p *player) write(kind string, v any) []byte {
	b, err := acp.Encode(v)
	if err != nil {
		p.t.Fatalf("%s: %v", kind, err)
	}
	p.out.WriteString(kind + " " + string(b) + "\n")
	return b
}

func (p *player) check(m acp.Message) {
	if err := p.valid.ValidateFrame(m.Frame(), func(string) string { return "" }); err != nil {
		p.t.Errorf("%v: %.300s", err, m.Frame())
	}
}

func (p *player) updates(list []acp.SessionUpdate) {
	for _, u := range list {
		params := append([]byte(`{"sessionId":"S","update":`), p.write("update", u)...)
		p.check(acp.NewNotification(acp.MethodSessionUpdate, append(params, '}')))
	}
}

func (p *player) line(line []byte) {
	if sent, ok := bytes.CutPrefix(line, []byte("> ")); ok {
		id, _ := acp.Member(sent, "id")
		if method := acp.MemberString(sent, "method"); method != "" {
			p.sent[string(id)] = method
			p.out.WriteString("> " + method + "\n")
			if tr := p.threads[acp.MemberString(sent, "params", "threadId")]; tr != nil && method == "turn/start" {
				p.turns[tr.thread] = &running{ids: map[string]bool{}}
			}
		}
		return
	}
	method := acp.MemberString(line, "method")
	id, isRequest := acp.Member(line, "id")
	params, _ := acp.Member(line, "params")
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
	if said := acp.MemberString(line, "error", "message"); said != "" {
		p.out.WriteString("refused " + bridge.OneLine(said) + "\n")
		return
	}
	if id := acp.MemberString(line, "result", "thread", "id"); id != "" {
		p.open(id)
	}
	if method != "thread/turns/list" {
		return
	}
	data, _ := acp.Member(line, "result", "data")
	for _, raw := range acp.Elements(data) {
		var one turn
		if err := lenient(raw, &one); err != nil {
			p.out.WriteString("unparsed " + err.Error() + "\n")
			continue
		}
		tr := newTranslator()
		tr.notices, tr.compaction = p.known, p.known
		p.out.WriteString("past turn\n")
		p.updates(tr.replay(&one))
	}
}

func (p *player) ask(method string, params []byte) {
	q := &question{Method: method}
	if err := lenient(params, q); err != nil {
		p.out.WriteString("unparsed " + err.Error() + "\n")
		return
	}
	tr := p.threads[q.Thread]
	switch {
	case tr == nil:
		p.out.WriteString("asks about an unknown thread\n")
	case method == "item/tool/requestUserInput":
		p.write("question", q.Questions)
		p.write("  answered:", answered(q, &acp.QuestionResponse{Outcome: acp.QuestionAnswered, Answers: [][]string{{"A"}}}))
		p.write("  rejected:", answered(q, &acp.QuestionResponse{Outcome: acp.QuestionRejected}))
	case method == "item/tool/call", method == "mcpServer/elicitation/request" && (q.Meta == nil || q.Meta.Approval == ""):
		p.out.WriteString("asks " + method + "\n")
	default:
		req, list := tr.permission("S", q)
		p.check(acp.NewRequest("1", acp.MethodSessionRequestPermission, p.write("permission", req)))
		for _, c := range list {
			p.write("  "+string(c.option.OptionID)+":", c.answer)
		}
		p.write("  cancelled:", q.cancelled())
	}
}

func (p *player) notification(method string, params, line []byte) {
	e, err := parse(method, params)
	if err != nil {
		p.out.WriteString("unparsed " + err.Error() + "\n")
		return
	}
	at, _ := acp.Member(line, "emittedAtMs")
	_ = json.Unmarshal(at, &e.At) // 0 where it is missing
	tr := p.threads[e.Thread]
	if tr == nil && e.Thread == "" && len(p.threads) == 1 {
		for _, one := range p.threads {
			tr = one
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
	p.updates(tr.translate(e))
	if method != "turn/completed" || e.Thread != tr.thread {
		return
	}
	if e.Turn == nil {
		return
	}
	v := p.turns[tr.thread].judge(e.Turn)
	if v.err != nil {
		p.write("error", v.err)
	} else {
		p.out.WriteString("end " + string(v.reason) + "\n")
	}
	if used := tr.usage.ofTurn(); used != nil {
		p.write("usage", used)
	}
}

// shown renders what becomes of lines.
func shownLines(t *testing.T, lines []byte, known bool) string {
	t.Helper()
	p := newPlayer(t, known)
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
			p.updates(tr.showOutputs())
		}
	}
	return p.out.String()
}

// TestTranslate_Fixtures replays what codex wrote in captured runs. Of the model,
// which was scripted, the texts and numbers mean nothing.
func TestTranslate_Fixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) < 55 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) { golden(t, f) })
	}
}

// golden compares what becomes of a file's lines with its updates.
func golden(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, want, ok := strings.Cut(strings.TrimPrefix(string(b), linesMark), updatesMark)
	if !ok {
		t.Fatalf("%s has no %q", file, updatesMark)
	}
	got := shownLines(t, []byte(lines), true)
	if *update {
		if err := os.WriteFile(file, []byte(linesMark+lines+updatesMark+got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-want +got; go test -run TestTranslate -update writes it anew\n%s", diff)
	}
}
