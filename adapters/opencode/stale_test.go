package opencode

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// TestTranslate_MissedPieces shows texts of which pieces were missed: in whatever
// order the whole text and late pieces come, it is shown once.
func TestTranslate_MissedPieces(t *testing.T) {
	whole := func(text string, over bool) *event {
		p := &part{ID: "prt_1", Session: "ses_1", Message: "msg_1", Type: "text", Text: text}
		if over {
			p.Time = &struct {
				End int64 `json:"end"`
			}{1}
		}
		return &event{Type: "message.part.updated", Session: "ses_1", Part: p}
	}
	piece := func(text string) *event {
		return &event{Type: "message.part.delta", Session: "ses_1", PartID: "prt_1", Field: "text", Delta: text}
	}
	miss := (*event)(nil)
	for name, list := range map[string][]*event{
		"nothing missed":              {whole("", false), piece("one "), piece("two "), piece("three"), whole("one two three", true)},
		"a piece missed":              {whole("", false), piece("one "), miss, piece("three"), whole("one two three", true)},
		"fetched as a whole":          {whole("", false), piece("one "), miss, whole("one two ", false), piece("two "), piece("three"), whole("one two three", true)},
		"fetched as it was":           {whole("", false), piece("one "), miss, whole("one ", false), piece("three"), whole("one two three", true)},
		"fetched without its text":    {whole("", false), piece("one "), miss, whole("", false), piece("three"), whole("one two three", true)},
		"its begin missed":            {miss, piece("two "), whole("one two three", true)},
		"its begin missed, fetched":   {whole("one ", false), miss, piece("three"), whole("one two three", true)},
		"its end missed":              {whole("", false), piece("one "), miss, whole("one two three", true), whole("one two three", true), piece("three")},
		"the whole comes a few times": {whole("one two three", true), whole("one two three", true)},
	} {
		tr := newTranslator("ses_1", "/workspace")
		var got []schema.SessionUpdate
		got = append(got, tr.translate(&event{Type: "message.updated", Session: "ses_1", message: &message{ID: "msg_1", Role: "assistant", Session: "ses_1"}})...)
		for _, e := range list {
			if e == miss {
				tr.missed()
				continue
			}
			got = append(got, tr.translate(e)...)
		}
		if said := bridgetest.Said(got); said != "one two three" {
			t.Errorf("%s: said %q", name, said)
		}
	}
}

// TestTranslate_BrokenAnswers shows answers that are begun again after their
// stream broke, in new parts.
func TestTranslate_BrokenAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		attempts [][]string
		want     string
	}{
		"the same again":    {[][]string{{"one ", "two"}, {"one ", "two", " three"}}, "one two three"},
		"broken twice":      {[][]string{{"one "}, {"on"}, {"one ", "two"}}, "one two"},
		"further each time": {[][]string{{"one "}, {"one two "}, {"one two three"}}, "one two three"},
		"something else":    {[][]string{{"one two"}, {"uno due"}}, "one twouno due"},
		"begins alike":      {[][]string{{"one two"}, {"one ", "more"}}, "one twoone more"},
		"nothing at first":  {[][]string{{}, {"one"}}, "one"},
		"shorter":           {[][]string{{"one two"}, {"one"}}, "one two"},
	} {
		tr := newTranslator("ses_1", "/workspace")
		got := tr.translate(&event{Type: "message.updated", Session: "ses_1", message: &message{ID: "msg_1", Role: "assistant", Session: "ses_1"}})
		for i, pieces := range c.attempts {
			p := part{ID: "prt_" + string(rune('a'+i)), Session: "ses_1", Message: "msg_1", Type: "text"}
			if i > 0 {
				got = append(got, tr.translate(&event{Type: "session.status", Session: "ses_1", Status: &status{Type: "retry", Attempt: i}})...)
			}
			begun := p
			got = append(got, tr.translate(&event{Type: "message.part.updated", Session: "ses_1", Part: &begun})...)
			for _, text := range pieces {
				p.Text += text
				got = append(got, tr.translate(&event{Type: "message.part.delta", Session: "ses_1", PartID: p.ID, Field: "text", Delta: text})...)
			}
			if i == len(c.attempts)-1 {
				p.Time = &struct {
					End int64 `json:"end"`
				}{1}
				got = append(got, tr.translate(&event{Type: "message.part.updated", Session: "ses_1", Part: &p})...)
			}
		}
		if said := bridgetest.Said(got); said != c.want {
			t.Errorf("%s: said %q, want %q", name, said, c.want)
		}
	}
}
