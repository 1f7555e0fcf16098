package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// An account in these tests is a text, one word for each turn: PROMPT=ANSWER, with the id
// of the agent's message behind a #.
func accountOf(text string, gateway bool) *account {
	a := &account{keeps: !gateway}
	n := 0
	for word := range strings.FieldsSeq(text) {
		prompt, rest, _ := strings.Cut(word, "=")
		answer, id, _ := strings.Cut(rest, "#")
		n++
		if gateway {
			a.prompted(slices.Concat([]byte("["), rawjson.Object{}.String("type", "text").String("text", prompt).End(), []byte("]")))
			a.last().over = true
		} else {
			a.update(chunkOf("user_message_chunk", prompt, "u"+strconv.Itoa(n)))
		}
		for i := range len(answer) { // in pieces
			a.update(chunkOf("agent_message_chunk", answer[i:i+1], id))
		}
	}
	return a
}

func chunkOf(kind, text, id string) *acp.Message {
	u := rawjson.Object{}.String("sessionUpdate", kind)
	if id != "" {
		u = u.String("messageId", id)
	}
	u = u.Raw("content", rawjson.Object{}.String("type", "text").String("text", text).End())
	m := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", "s").Raw("update", u.End()).End())
	return &m
}

// Words behind a turn that is over are of another, also when the agent said nothing in it.
func TestAccount_SilentTurn(t *testing.T) {
	a := accountOf("/compact=", true)
	a.update(chunkOf("user_message_chunk", "more", "u"))
	if n := len(a.turns); n != 2 {
		t.Errorf("there are %d turns, want 2", n)
	}
}

func TestCompare(t *testing.T) {
	for _, test := range []struct {
		what, log, record string
		part              bool   // the log does not have the session's beginning
		want              string // the prompts that are new
		alien             bool
	}{
		{what: "the same", log: "a=1 b=2", record: "a=1 b=2"},
		{what: "one more", log: "a=1 b=2", record: "a=1 b=2 c=3", want: "c"},
		{what: "two more", log: "a=1", record: "a=1 b=2 c=3", want: "b c"},
		{what: "nothing yet", log: "", record: "a=1", want: "a"},
		{what: "the same words again", log: "a=1 go=ok", record: "a=1 go=ok go=ok", want: "go"},
		{what: "the same words again, told apart by ids", log: "a=1 go=ok#2", record: "go=ok#0 a=1 go=ok#2", part: true},
		{what: "the same words, other answers", log: "go=1 go=2", record: "go=1 go=2 go=3", want: "go"},
		{what: "a prompt that never got there", log: "a=1 lost= b=2", record: "a=1 b=2 c=3", want: "c"},
		{what: "and one at the end", log: "a=1 lost=", record: "a=1 c=3", want: "c"},
		{what: "a prompt that is told in other words", log: "a=1 b=2", record: "a=1 <file>b=2 c=3", want: "c"},
		{what: "an answer that is told in other words", log: "a=1 b=2", record: "a=1 b=two c=3", want: "c"},
		{what: "both in other words, known by the id", log: "a=1 b=2#x", record: "a=1 B=two#x c=3", want: "c"},
		{what: "both in other words", log: "a=1 b=2", record: "a=1 B=two", alien: true},
		{what: "a command that the record lacks", log: "a=1 /cost=3", record: "a=1 c=3cents", want: "c"},
		{what: "nothing in common", log: "a=1", record: "b=2 c=3", alien: true},
		{what: "nothing was answered", log: "a=", record: "b=2", want: "b"},
		{what: "the record is lost", log: "a=1 b=2", record: ""},
		{what: "the record begins later", log: "a=1 b=2 c=3", record: "c=3 d=4", want: "d"},
		{what: "the log begins later", log: "c=3", record: "a=1 b=2 c=3 d=4", part: true, want: "d"},
		{what: "the log begins later, with common words", log: "go=ok", record: "go=ok b=2 go=ok d=4", part: true, want: "d"},
		{what: "a turn between", log: "a=1 c=3", record: "a=1 b=2 c=3", alien: true},
		{what: "a turn between, and one more", log: "a=1 c=3", record: "a=1 b=2 c=3 d=4", want: "d", alien: true},
	} {
		log, record := accountOf(test.log, true), accountOf(test.record, false)
		c := compare(log.turns, record.turns, !test.part)
		g := &merge{log: *log, record: *record}
		news, lost := g.news(c)
		var got []string
		for i := range news {
			if string(news[i].UpdateKind()) == "user_message_chunk" {
				got = append(got, rawjson.MemberString(news[i].Update(), "content", "text"))
			}
		}
		if s := strings.Join(got, " "); s != test.want || c.alien != test.alien || lost {
			t.Errorf("%s: new is %q, alien %v, lost %v, want %q, %v", test.what, s, c.alien, lost, test.want, test.alien)
		}
	}
}

// Accounts of any length are compared, also where they have little in common.
func TestCompare_LongAccounts(t *testing.T) {
	var log, record strings.Builder
	for i := range 3 * maxCompared {
		fmt.Fprintf(&log, "a%d=x ", i)
		fmt.Fprintf(&record, "a%d=y ", i)
	}
	for _, whole := range []bool{true, false} {
		c := compare(accountOf(log.String(), true).turns, accountOf(record.String()+"new=z", false).turns, whole)
		if c.from != 3*maxCompared || c.log != 3*maxCompared-1 || c.alien {
			t.Errorf("whole %v: %+v", whole, c)
		}
	}
}

// A turn whose end the gateway did not live to see is answered from the record.
func TestCompare_TurnThatWasLost(t *testing.T) {
	for _, over := range []bool{false, true} {
		log, record := accountOf("a=1 b=", true), accountOf("a=1 b=2", false)
		log.last().over = over
		g := &merge{log: *log, record: *record}
		news, _ := g.news(compare(log.turns, record.turns, true))
		if got := len(news) == 1 && rawjson.MemberString(news[0].Update(), "content", "text") == "2"; got == over {
			t.Errorf("over %v: the answer is new: %v, %d updates", over, got, len(news))
		}
	}
}

// However often a record is read while a terminal writes it, each turn is said once.
func TestCompare_RecordThatGrows(t *testing.T) {
	var record, log account
	record.keeps = true
	said := func(m *acp.Message) {
		before := record
		record = account{keeps: true}
		for _, turn := range before.turns {
			for i := range turn.frames {
				record.update(&turn.frames[i])
			}
		}
		record.update(m)
		g := &merge{log: log, record: record}
		news, _ := g.news(compare(log.turns, record.turns, true))
		for i := range news {
			log.update(&news[i])
		}
	}
	want := 0
	for turn := range 4 {
		said(chunkOf("user_message_chunk", "go on", fmt.Sprint("u", turn)))
		for piece := range 3 {
			said(chunkOf("agent_message_chunk", "and on", fmt.Sprint("m", turn, piece)))
		}
		want += 3
	}
	got := 0
	for _, turn := range log.turns {
		got += turn.said
	}
	if len(log.turns) != 4 || got != want {
		t.Errorf("the log has %d turns with %d pieces, want 4 with %d", len(log.turns), got, want)
	}
}

// What is kept of a long record is bounded. That not all of it is there is said.
func TestCompare_RecordThatIsTooLong(t *testing.T) {
	defer func(was int) { maxKept = was }(maxKept)
	maxKept = 64 << 10
	g := &merge{record: account{keeps: true}}
	long := strings.Repeat("x", maxKept/8)
	for turn := range 12 {
		g.take(chunkOf("user_message_chunk", "go on", fmt.Sprint("u", turn)))
		g.take(chunkOf("agent_message_chunk", long, fmt.Sprint("m", turn)))
		if g.record.held > maxKept {
			t.Fatalf("%d bytes are held", g.record.held)
		}
	}
	news, lost := g.news(compare(nil, g.record.turns, true))
	if !lost || len(news) == 0 || len(news) >= 24 {
		t.Errorf("%d updates, lost %v", len(news), lost)
	}
	g = &merge{record: account{keeps: true}}
	g.take(chunkOf("user_message_chunk", "go on", "u"))
	for range 12 {
		g.take(chunkOf("agent_message_chunk", long, "m"))
	}
	if _, lost := g.news(compare(nil, g.record.turns, true)); !lost || g.record.held > maxKept {
		t.Errorf("one turn: lost %v, %d bytes are held", lost, g.record.held)
	}
}

// A turn that failed has a prompt and no answer. Without ids it stands before the next
// prompt in an agent's record as if both were one.
func TestCompare_TurnsThatFailed(t *testing.T) {
	for _, test := range []struct {
		log    string
		record []string // > before what the user says
		want   string
	}{
		{"a=1 fail=", []string{">a", "1", ">fail", ">news", "2"}, "news"},
		{"a=1 fail= again=", []string{">a", "1", ">fail", ">again", ">news", "2"}, "news"},
		{"a=1 fail= b=2", []string{">a", "1", ">fail", ">b", "2"}, ""},
		{"a=1 fail= b=2", []string{">a", "1", ">fail", ">b", "2", ">news", "3"}, "news"},
		{"a=1 fail= fail=", []string{">a", "1", ">fail", ">fail", ">/news", "3"}, "/news"},
		{"a=1 fail=", []string{">a", "1", ">fail"}, ""},
		{"a=1 fail=", []string{">a", "1", ">fail", ">", ">news", ">its second part", "2"}, "news its second part"},
		{"fail=", []string{">fail", ">news", "2"}, "news"},
	} {
		log, record := accountOf(test.log, true), &account{keeps: true}
		for _, said := range test.record {
			if prompt, ok := strings.CutPrefix(said, ">"); ok {
				record.update(chunkOf("user_message_chunk", prompt, ""))
			} else {
				record.update(chunkOf("agent_message_chunk", said, ""))
			}
		}
		record.part(log.turns)
		g := &merge{log: *log, record: *record}
		news, lost := g.news(compare(log.turns, record.turns, true))
		var got []string
		for i := range news {
			if string(news[i].UpdateKind()) == "user_message_chunk" {
				got = append(got, rawjson.MemberString(news[i].Update(), "content", "text"))
			}
		}
		if s := strings.Join(got, " "); s != test.want || lost {
			t.Errorf("%s and %q: new is %q, want %q, lost %v", test.log, test.record, s, test.want, lost)
		}
	}
}
