package session

import (
	"bytes"
	"crypto/sha256"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// A client whose connection broke cannot know what became of a prompt. It may have been
// read late, wait behind another one or for a process, and so be in no log yet. So the
// client sends it once more, with the same promptId, and the session runs it once: who
// asks again is answered with the first one's answer.

// maxNamed bounds the prompts with a name whose repetition is noticed: as many as can be
// on their way at a time. An older one is forgotten.
const maxNamed = maxQueued + 1

// named is a prompt that its client gave a name.
type named struct {
	name []byte // the JSON string
	sum  [sha256.Size]byte
	turn *turn        // nil when it is over
	seq  uint64       // of the prompt in the log; 0 before it is there
	end  *acp.Message // its answer, when it is over
}

// id is the name as its client means it, however it is written.
func (n *named) id() string { return rawjson.Unquote(n.name) }

// readName reads what the prompt's client calls it.
func (t *turn) readName() {
	name, ok := rawjson.Member(t.prompt.Meta(), acp.MetaKey, "promptId")
	if !ok || name[0] != '"' {
		return
	}
	blocks, _ := rawjson.Member(t.prompt.Params(), "prompt")
	t.named = &named{name: bytes.Clone(name), sum: sha256.Sum256(blocks), turn: t}
}

// recalled bounds how far back the log is read for prompts that an earlier gateway has
// taken.
const recalled = 5_000 // entries

// recallNamed has the prompts be known that an earlier gateway has taken: once, before the
// first one with a name.
func (s *Session) recallNamed() {
	s.recall.Do(func() {
		if s.madeHere {
			return
		}
		log := s.Log()
		cur := log.Whole(max(log.Oldest(), log.Saved()-min(log.Saved(), recalled)) - 1)
		var known machine
		for {
			batch, err := cur.Next(nil, 256<<10)
			if err != nil {
				s.logger().Warn("look for prompts in the log", "err", err)
			}
			if err != nil || len(batch) == 0 {
				break
			}
			for _, e := range batch {
				if e.Kind != journal.Client && e.Kind != journal.TurnEnd {
					continue
				}
				if m, err := acp.Parse(e.Frame); err == nil {
					known.recallEntry(e.Seq, &m)
				}
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.m.named = append(known.named, s.m.named...)
		s.m.named = s.m.named[max(0, len(s.m.named)-maxNamed):]
	})
}

// recallEntry takes a prompt, or the end of one, from the log.
func (m *machine) recallEntry(seq uint64, e *acp.Message) {
	if e.Method() == acp.MethodSessionPrompt {
		t := &turn{prompt: *e}
		if t.readName(); t.named != nil {
			n := t.named
			n.seq = seq
			interrupted := acp.NewError("0", acp.Errorf(acp.CodeInternal, "the turn was interrupted: the gateway was started anew"))
			n.over(&interrupted) // unless its end follows
			m.remember(t)
		}
		return
	}
	name, _ := rawjson.Member(e.Params(), "promptId")
	for _, n := range m.named {
		if !bytes.Equal(n.name, name) {
			continue
		}
		if failure, ok := rawjson.Member(e.Params(), "error"); ok {
			end := acp.NewErrorRaw("0", failure)
			n.over(&end)
		} else if result, ok := rawjson.Member(e.Params(), "result"); ok {
			end := acp.NewResult("0", result)
			n.over(&end)
		}
	}
}

// before returns the prompt that t repeats, nil if it repeats none.
func (m *machine) before(t *turn) *named {
	if t.named == nil {
		return nil
	}
	for _, n := range m.named {
		if bytes.Equal(n.name, t.named.name) {
			return n
		}
	}
	return nil
}

// remember has later prompts of the turn's name be the same one.
func (m *machine) remember(t *turn) {
	if t.named == nil {
		return
	}
	if len(m.named) == maxNamed {
		m.named = append(m.named[:0], m.named[1:]...)
	}
	m.named = append(m.named, t.named)
}

// errOtherPrompt is the answer to a prompt with the name of another one.
func errOtherPrompt(name []byte) error {
	return acp.Errorf(acp.CodeInvalidParams, "promptId %s was used for another prompt of this session: give each prompt an id of its own", name)
}

// joinLocked has the request of t answered as the prompt that it repeats.
func (s *Session) joinLocked(t *turn, x *after) {
	s.dropPromptLocked(t)
	n := t.same
	if n.seq != 0 {
		if deliver, answered := t.req.Begun(s, n.seq); answered {
			x.then(deliver)
			x.flush = true
			return
		}
	}
	if first := n.turn; first != nil {
		// The newer connection is the one that the client reads.
		if first.req.Client().Number() < t.req.Client().Number() {
			first.req, t.req = t.req, first.req
		}
		first.others = append(first.others, t.req)
		return
	}
	x.then(t.req.Record(s, t.req.Rewritten(n.end), false, viewer.OutcomeOf(n.end)))
	x.flush = true
}

// maxEnd is how large an answer may be that is kept for who asks again.
const maxEnd = 16 << 10

// over keeps how the prompt ended.
func (n *named) over(end *acp.Message) {
	m := end.Clone()
	if len(m.Frame()) > maxEnd {
		m = acp.NewError(end.ID(), acp.Errorf(acp.CodeInternal, "the prompt is over, and its answer too large to be given again: it is in the session's log"))
	}
	n.turn, n.end = nil, &m
}
