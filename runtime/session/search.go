package session

import (
	"context"
	"strings"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Search looks for words in sessions: in titles, and in what people and agents have
// written. Upper and lower case are the same. It is not safe for concurrent use.
type Search struct {
	words string // in lower case
	left  int    // bytes of logs that may still be read
}

// NewSearch returns a search that has read enough after about so many bytes.
func NewSearch(words string, bytes int) *Search {
	return &Search{words: strings.ToLower(words), left: bytes}
}

// Spent reports whether the search has read enough.
func (q *Search) Spent() bool { return q.left <= 0 }

// In returns where a session has the words, nil when it has not.
func (q *Search) In(ctx context.Context, s *Session) (*Match, error) {
	s.mu.Lock()
	title := s.rec.Title
	s.mu.Unlock()
	if m := q.Title(title); m != nil {
		return m, nil
	}
	if err := s.Readable(); err != nil {
		return nil, err
	}
	defer s.KeepWhole()()
	log := s.Log()
	cur := log.Cursor(log.Oldest() - 1)
	messages := q.Messages()
	for {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil {
			return nil, s.ReadProblem(err)
		}
		if len(batch) == 0 {
			return nil, nil
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		for _, e := range batch {
			if !e.Kind.IsUpdate() && e.Kind != journal.Echo {
				q.left -= len(e.Frame)
				continue
			}
			if found := messages.Next(e.Seq, e.Frame); found != nil {
				return found, nil
			}
		}
	}
}

// Title returns where a title has the words, nil when it has not.
func (q *Search) Title(title string) *Match { return q.matches(title) }

// Messages looks through the messages of one session for the words of a search.
type Messages struct {
	search *Search
	said   text
}

// Messages begins with a session.
func (q *Search) Messages() *Messages { return &Messages{search: q} }

// Next returns where the next message of the session has the words, nil when it has not.
func (l *Messages) Next(seq uint64, frame []byte) *Match {
	l.search.left -= len(frame)
	m, err := acp.Parse(frame)
	if err != nil || m.Method() != acp.MethodSessionUpdate {
		return nil
	}
	kind := string(m.UpdateKind())
	if kind != "agent_message_chunk" && kind != "user_message_chunk" {
		if kind != "usage_update" { // agents tell usage in the middle of a message
			l.said = text{}
		}
		return nil
	}
	content, _ := rawjson.Member(m.Update(), "content")
	l.said.add(kind, rawjson.MemberString(content, "text"), 4*len(l.search.words))
	found := l.search.matches(l.said.end)
	if found != nil {
		found.Seq = seq
	}
	return found
}

// text is the end of a message that came in pieces: words may be cut by them.
type text struct {
	kind string
	end  string
}

// add adds a piece, and keeps so many bytes of those before it.
func (t *text) add(kind, piece string, keep int) {
	if t.kind != kind {
		*t = text{kind: kind}
	}
	before := t.end
	if cut := len(before) - keep; cut > 0 {
		for cut < len(before) && !utf8.RuneStart(before[cut]) {
			cut++
		}
		before = before[cut:]
	}
	t.end = before + piece
}

// around is how many bytes are shown before and behind the words.
const around = 60

// matches returns the words with what is around them, nil when the text has not got them.
func (q *Search) matches(in string) *Match {
	lower := strings.ToLower(in)
	at := strings.Index(lower, q.words)
	if at < 0 {
		return nil
	}
	if len(lower) != len(in) { // letters whose other case has another length
		in = lower
	}
	from, to := max(0, at-around), min(len(in), at+len(q.words)+around)
	for from > 0 && !utf8.RuneStart(in[from]) {
		from--
	}
	for to < len(in) && !utf8.RuneStart(in[to]) {
		to++
	}
	return &Match{Text: strings.Join(strings.Fields(in[from:to]), " ")}
}
