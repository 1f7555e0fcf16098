package opencode

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// player shows what becomes of captured lines: one translator for each session
// that nobody's subagent has, as sessions have it. A line is an event, a request
// that was sent, or an answer to one.
type player struct {
	*bridgetest.Transcript
	t   testing.TB
	all map[string]*translator
	off map[string]bool // sessions that were aborted
}

func (p *player) open(id string) *translator {
	if tr := p.all[id]; tr != nil {
		return tr
	}
	tr := newTranslator(id, "/workspace")
	tr.window = func(string, string) uint64 { return 200_000 }
	p.all[id] = tr
	return tr
}

func (p *player) line(line []byte) {
	body, _ := rawjson.Member(line, "body")
	if sent := rawjson.MemberString(line, "send"); sent != "" {
		p.WriteString("> " + sent + "\n")
		if id, ok := strings.CutSuffix(strings.TrimPrefix(sent, "POST /session/"), "/abort"); ok {
			p.off[id] = true
		}
		if id, ok := strings.CutSuffix(strings.TrimPrefix(sent, "POST /session/"), "/message"); ok {
			delete(p.off, id)
		}
		return
	}
	if answer := rawjson.MemberString(line, "answer"); answer != "" {
		p.answer(answer, line, body)
		return
	}
	raw, ok := rawjson.Member(line, "event")
	if !ok {
		p.WriteString("unparsed\n")
		return
	}
	var e *event
	var err error
	if _, global := rawjson.Member(raw, "payload"); global {
		e, err = parse(raw)
	} else {
		properties, _ := rawjson.Member(raw, "properties")
		e, err = newEvent("", rawjson.MemberString(raw, "type"), properties)
	}
	if err != nil {
		p.WriteString("unparsed " + err.Error() + "\n")
		return
	}
	if e != nil && e.Session != "" {
		p.event(e)
	}
}

func (p *player) answer(answer string, line, body []byte) {
	if raw, _ := rawjson.Member(line, "status"); string(raw) != "200" && string(raw) != "204" {
		p.WriteString("refused " + refusalOf(500, body).Message + "\n")
		return
	}
	switch {
	case strings.HasPrefix(answer, "GET ") && strings.HasSuffix(answer, "/message"):
		var list []stored
		if bridge.Lenient(body, &list) != nil {
			return
		}
		p.WriteString("the past\n")
		tr := newTranslator(strings.Split(answer, "/")[2], "/workspace")
		for i := range list {
			p.Updates(tr.past(&list[i]))
		}
		p.Updates(tr.abandon())
	case strings.HasSuffix(answer, "/message"), strings.HasSuffix(answer, "/command"):
		var one stored
		if bridge.Lenient(body, &one) != nil || one.Info.ID == "" {
			return
		}
		v := one.Info.verdict(p.off[one.Info.Session], nil)
		if v.Err != nil {
			p.Note("error", v.Err)
		} else {
			p.WriteString("end " + string(v.Reason) + "\n")
		}
	}
}

func (p *player) event(e *event) {
	tr := p.all[e.Session]
	if tr == nil && e.session != nil && e.session.Parent != "" {
		if tr = p.all[e.session.Parent]; tr != nil {
			p.all[e.Session] = tr
		}
	}
	if tr == nil {
		tr = p.open(e.Session)
	}
	p.Updates(tr.translate(e))
	switch e.Type {
	case "permission.asked":
		req, before := tr.permission("S", e.Session, &e.ask)
		p.Updates(before)
		p.Request("permission", acp.MethodSessionRequestPermission, req)
	case "question.asked":
		p.Note("question", e.Questions)
	case "session.idle":
		if e.Session == tr.root {
			p.WriteString("idle\n")
		}
	}
}

// shownLines renders what becomes of lines.
func shownLines(t testing.TB, lines []byte) string {
	t.Helper()
	p := &player{Transcript: bridgetest.NewTranscript(t), t: t, all: map[string]*translator{}, off: map[string]bool{}}
	in := bridge.NewLines(bytes.NewReader(lines), 0)
	for {
		line, err := in.Next()
		if err != nil {
			break
		}
		p.line(bytes.Clone(line))
	}
	for _, id := range slices.Sorted(maps.Keys(p.all)) {
		if tr := p.all[id]; id == tr.root {
			p.Updates(tr.showOutputs())
			if left := tr.abandon(); len(left) > 0 {
				p.WriteString("left open\n")
				p.Updates(left)
			}
			if used := tr.usage.ofTurn(); used != nil {
				p.Note("usage", used)
			}
		}
	}
	return p.String()
}

// TestTranslate_Fixtures replays what the server reported in captured runs. Of
// the model, which was scripted, the texts and numbers mean nothing.
func TestTranslate_Fixtures(t *testing.T) {
	bridgetest.Fixtures(t, 70, shownLines)
}

// BenchmarkFixtures plays them at full speed, without the process.
func BenchmarkFixtures(b *testing.B) {
	bridgetest.Benchmark(b, shownLines, "text-turn-async", `"type":"message.part.delta"`)
}

// FuzzTranslate feeds lines of any kind to translators. Whatever comes out must
// be valid.
func FuzzTranslate(f *testing.F) {
	kind := func(line []byte) string {
		return rawjson.MemberString(line, "event", "type") + rawjson.MemberString(line, "event", "properties", "part", "type") +
			rawjson.MemberString(line, "event", "properties", "part", "tool") + rawjson.MemberString(line, "answer")
	}
	bridgetest.Seed(f, 2, kind, func(line string) {
		session := rawjson.MemberString(json.RawMessage(line), "event", "properties", "sessionID")
		f.Add([]byte(strings.ReplaceAll(line, session+`"`, `ses_1"`)))
	})
	f.Fuzz(func(t *testing.T, lines []byte) {
		shownLines(t, lines)
	})
}
