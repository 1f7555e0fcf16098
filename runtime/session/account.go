package session

import (
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// An account is what was said in a session as the log has it, or as the agent's own
// record has it, told apart in turns, so that the two can be compared. Texts are known
// by their hashes: the agent's record may be of any size.
type account struct {
	turns []past
	keeps bool // what was said is kept, to be shown later
	held  int  // bytes that are kept
	gone  int  // the turns before it are not kept any more
}

// maxKept bounds what is kept of an agent's record. Of more the oldest goes: what is
// new stands at the end. Tests lower it.
var maxKept = 64 << 20

// past is a turn of an account.
type past struct {
	prompt   []textHash // each text of the prompt, and nothing else of it
	ids      []uint64   // of the agent's messages and calls; at most maxMarks
	answer   textHash
	answered bool          // the agent has said something
	command  bool          // the prompt is a /command, which not all agents keep
	sent     bool          // a client of the gateway sent the prompt
	over     bool          // and was told how the turn ended
	user     string        // the id of the user's message
	said     int           // updates of the agent
	forms    []uint64      // of each of them; of the last turn only, in what is not kept
	frames   []acp.Message // if kept: the user's words and what the agent said
	words    int           // of the frames: those of the user's words
	long     bool          // it is longer than what may be kept
}

// maxMarks bounds the ids by which a turn is known.
const maxMarks = 32

var hashSeed = maphash.MakeSeed()

// textHash is the hash of a text that comes in pieces, without its white space, which
// agents do not keep. It is 0 for none.
type textHash uint64

func (h *textHash) add(s string) {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	for i := range len(s) {
		if c := s[i]; c > ' ' {
			if *h == 0 {
				*h = offset
			}
			*h = (*h ^ textHash(c)) * prime
		}
	}
}

func (a *account) last() *past {
	if len(a.turns) == 0 {
		return nil
	}
	return &a.turns[len(a.turns)-1]
}

func (a *account) begin() *past {
	if t := a.last(); t != nil && !a.keeps {
		t.forms = nil // only the last turn can go on
	}
	a.turns = append(a.turns, past{})
	return a.last()
}

func (t *past) says(text string) {
	var h textHash
	h.add(text)
	if h == 0 || len(t.prompt) == maxMarks {
		return
	}
	if len(t.prompt) == 0 {
		t.command = isCommand(text)
	}
	t.prompt = append(t.prompt, h)
}

func (t *past) marked(id string) {
	if h := maphash.String(hashSeed, id); id != "" && len(t.ids) < maxMarks && !slices.Contains(t.ids, h) {
		t.ids = append(t.ids, h)
	}
}

// prompted takes a prompt of a client.
func (a *account) prompted(blocks json.RawMessage) {
	t := a.begin()
	t.sent = true
	for _, b := range rawjson.Elements(blocks) {
		t.says(rawjson.MemberString(b, "text"))
	}
}

// update takes an update of the agent. What is of no turn is not taken.
func (a *account) update(m *acp.Message) {
	u, kind := m.Update(), string(m.UpdateKind())
	t := a.last()
	if kind == "user_message_chunk" {
		id := rawjson.MemberString(u, "messageId")
		if t == nil || t.said > 0 || t.over || !t.sent && id != t.user {
			t = a.begin()
		}
		t.user = id
		t.says(rawjson.MemberString(u, "content", "text"))
		t.words++
		a.keep(t, m)
		return
	}
	if t == nil {
		return
	}
	switch kind {
	case "agent_message_chunk":
		t.marked(rawjson.MemberString(u, "messageId"))
		t.answer.add(rawjson.MemberString(u, "content", "text"))
		t.answered = t.answered || t.answer != 0
	case "tool_call":
		t.marked(rawjson.MemberString(u, "toolCallId"))
		t.answered = true
	}
	t.said++
	t.forms = append(t.forms, formOf(u))
	a.keep(t, m)
}

// part tells prompts apart that an agent's record has one behind the other, without ids:
// that of a turn of the log which nobody answered, and the next one.
func (a *account) part(log []past) {
	var turns []past
	for _, t := range a.turns {
		for t.user == "" && len(t.frames) > 0 {
			n := 0 // texts of the longest prompt of the log that the turn begins with
			for i := range log {
				if p := log[i].prompt; len(p) > n && len(p) < len(t.prompt) && slices.Equal(p, t.prompt[:len(p)]) {
					n = len(p)
				}
			}
			if n == 0 {
				break
			}
			first := past{prompt: t.prompt[:n], command: t.command}
			texts := 0
			for texts <= n { // the next prompt begins with a text
				var h textHash
				text := rawjson.MemberString(t.frames[first.words].Update(), "content", "text")
				if h.add(text); h != 0 {
					texts++
				}
				if texts > n {
					t.command = isCommand(text)
					break
				}
				first.words++
			}
			first.frames, t.frames = t.frames[:first.words], t.frames[first.words:]
			t.prompt, t.words = t.prompt[n:], t.words-first.words
			turns = append(turns, first)
		}
		turns = append(turns, t)
	}
	a.turns = turns
}

func isCommand(prompt string) bool { return strings.HasPrefix(strings.TrimSpace(prompt), "/") }

// formOf is the same for an update that is shown again.
func formOf(update json.RawMessage) uint64 {
	u := rawjson.DeleteMember(rawjson.DeleteMember(update, "messageId"), "_meta")
	return maphash.Bytes(hashSeed, u)
}

// keep keeps an update of the last turn.
func (a *account) keep(t *past, m *acp.Message) {
	if !a.keeps || t.long {
		return
	}
	t.frames = append(t.frames, m.Clone())
	a.held += len(m.Frame())
	for ; a.held > maxKept && a.gone < len(a.turns); a.gone++ {
		a.turns[a.gone].long = a.gone == len(a.turns)-1
		for _, f := range a.turns[a.gone].frames {
			a.held -= len(f.Frame())
		}
		a.turns[a.gone].frames = nil
	}
}

// alike says how sure it is that two turns are the same, 0 for not at all.
func alike(a, b *past) int {
	n := 0
	if slices.ContainsFunc(a.ids, func(id uint64) bool { return slices.Contains(b.ids, id) }) {
		n += 8
	}
	if a.answer != 0 && a.answer == b.answer {
		n += 4
	}
	if slices.ContainsFunc(a.prompt, func(h textHash) bool { return slices.Contains(b.prompt, h) }) {
		n += 2
	}
	return n
}

// surely is how alike turns are of which nobody asks which of several is meant.
const surely = 6

// maxCompared bounds the turns of which it is looked which belong together, from the
// end of each account: the time for it grows with the square.
const maxCompared = 512

// compared is what an agent's record has and the log has not.
type compared struct {
	from  int  // the first turn of the record that is new
	log   int  // the turn of the log that is the one before it, -1 for none
	alien bool // the record has other turns between those of the log, or in their place
}

// compare finds the end of the log in the record. whole says that the log has the
// session's beginning.
func compare(log, record []past, whole bool) compared {
	var c compared
	c.log = -1
	for whole && len(log) > c.from && len(record) > c.from && alike(&log[c.from], &record[c.from]) >= surely {
		c.log = c.from
		c.from++
	}
	if n, m := len(log), len(record); !whole && n > 0 && m > 0 && alike(&log[n-1], &record[m-1]) >= surely {
		return compared{from: m, log: n - 1}
	}
	l, r := log[c.from:], record[c.from:]
	skipL, skipR := c.from+max(0, len(l)-maxCompared), c.from+max(0, len(r)-maxCompared)
	l, r = log[skipL:], record[skipR:]
	if len(l) == 0 || len(r) == 0 {
		if !whole { // what the log had may have been let go
			c.from = len(record)
		}
		return c
	}
	// best[i][j] is how alike the first i turns of one and the first j of the other are,
	// when each turn is counted once and none overtakes another.
	best := make([][]int32, len(l)+1)
	best[0] = make([]int32, len(r)+1)
	for i := range l {
		best[i+1] = make([]int32, len(r)+1)
		for j := range r {
			n := max(best[i][j+1], best[i+1][j])
			if w := alike(&l[i], &r[j]); w > 0 {
				n = max(n, best[i][j]+int32(w))
			}
			best[i+1][j+1] = n
		}
	}
	i, j := lastPair(l, r, best, whole)
	if i == 0 && !whole {
		c.from = len(record)
		return c
	}
	// What else the log has to its end may be what the record has there, told in another
	// way. It must not be said twice.
	if slices.ContainsFunc(l[i:], func(t past) bool { return t.answered && !t.command }) && j < len(r) {
		return compared{from: len(record), log: -1, alien: true}
	}
	if i > 0 {
		c.log, c.from = skipL+i-1, skipR+j
		c.alien = whole && told(r[:j-1]) > told(l[:i-1])
	}
	return c
}

// told counts the turns that have a prompt and an answer.
func told(turns []past) (n int) {
	for _, t := range turns {
		if t.answered && len(t.prompt) > 0 {
			n++
		}
	}
	return n
}

// lastPair returns how many turns of two accounts there are up to the last that both
// have, none for none.
func lastPair(l, r []past, best [][]int32, whole bool) (i, j int) {
	all := best[len(l)][len(r)]
	if all == 0 {
		return 0, 0
	}
	ends := func(i, j int) bool {
		w := alike(&l[i-1], &r[j-1])
		return w > 0 && best[i-1][j-1]+int32(w) == all
	}
	// Of turns that are the same in all, such as "go on", the first is the log's, if it
	// has all that was said before; else the last, so that nothing is said twice.
	j = len(r)
	for whole && j > 1 && best[len(l)][j-1] == all {
		j--
	}
	for ; j > 0; j-- {
		for i = len(l); i > 0; i-- {
			if ends(i, j) {
				return i, j
			}
		}
	}
	return 0, 0
}

// account reads what the log has. whole says that it has the session's beginning.
func (s *Session) account() (a account, whole bool, err error) {
	log := s.Log()
	whole = log.Oldest() <= 1
	cur := log.Whole(log.Oldest() - 1)
	echoes := 0 // that repeat the last prompt; others are all that a fork has of prompts
	for {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil || len(batch) == 0 {
			return a, whole, err
		}
		for _, e := range batch {
			m, err := acp.Parse(e.Frame)
			if err != nil {
				continue
			}
			switch e.Kind {
			case journal.Client:
				if m.Method() == acp.MethodSessionPrompt {
					blocks, _ := rawjson.Member(m.Params(), "prompt")
					a.prompted(blocks)
					echoes = len(rawjson.Elements(blocks))
				}
			case journal.Echo:
				if echoes--; echoes < 0 {
					a.update(&m)
				}
			case journal.Update, journal.First:
				if m.Method() == acp.MethodSessionUpdate && ofConversation(&m) {
					a.update(&m)
				}
			case journal.Response:
				_, ended := rawjson.Member(m.Result(), "stopReason")
				if t := a.last(); t != nil && (ended || m.Err() != nil) && acp.TurnBegan(m.Result()) {
					t.over = true
				}
			case journal.TurnEnd:
				_, lost := rawjson.Member(m.Params(), "error")
				if t := a.last(); t != nil && !lost && acp.TurnBegan(m.Params()) {
					t.over = true
				}
			}
		}
	}
}
