package journal

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Kind says what an entry's message is, so that readers can choose entries
// without parsing messages.
type Kind byte

// The kinds of entries.
const (
	Update   Kind = 'u' // session/update of the agent
	Notice   Kind = 'n' // any other notification to clients
	TurnEnd  Kind = 't' // how a turn ended, for those who did not ask for it
	Response Kind = 'r' // response to a client
	Ask      Kind = 'q' // request to whoever may answer
	AskDone  Kind = 'x' // an ask was settled; tells those who hold it
	Echo     Kind = 'p' // a client's prompt as user_message_chunk
	Client   Kind = 'c' // what a client sent; never delivered

	// What an agent of version 2 of the protocol says, and version 1 says otherwise, is
	// two entries: as the agent has said it, and what comes of that in version 1.
	First  Kind = '1' // session/update for readers of version 1 alone
	Second Kind = '2' // session/update for readers of version 2 alone

	// Damage stands in the place of entries that cannot be read. It has the
	// number of the last of them. No file has it as an entry: see [Entry.Damage].
	Damage Kind = 'd'
)

func (k Kind) valid() bool {
	switch k {
	case Update, Notice, TurnEnd, Response, Ask, AskDone, Echo, Client, First, Second:
		return true
	}
	return false
}

// IsUpdate reports whether entries of the kind are what an agent says in version 1 of
// the protocol.
func (k Kind) IsUpdate() bool { return k == Update || k == First }

// Recipient names who an entry is for: 0 is everyone, n the client with that
// number, -n everyone but that client. Numbers are never reused in a process
// and mean nothing after it.
type Recipient int64

// Everyone is the recipient of entries without a particular one.
const Everyone Recipient = 0

// Nobody is the recipient of entries that are kept as a record only.
const Nobody Recipient = 1 << 62

// Except returns the recipient that is everyone but r.
func Except(r Recipient) Recipient { return -r }

// Includes reports whether an entry for r is for client c.
func (r Recipient) Includes(c Recipient) bool {
	return r == 0 || r == c || r < 0 && r != -c
}

// Entry is one entry of a log. Its bytes must not be changed.
type Entry struct {
	Seq   uint64
	Kind  Kind
	To    Recipient
	Frame []byte
	head  []byte // the line's bytes before the frame
	first uint64 // see Damage
}

// NewEntry returns an entry of a log that has let go of it.
func NewEntry(seq uint64, at time.Time, k Kind, to Recipient, frame []byte) Entry {
	return Entry{Seq: seq, Kind: k, To: to, Frame: frame, head: appendHead(nil, seq, at.UnixMilli(), k, to)}
}

// Damage returns the entry as one of the kind [Damage], in whose place entries from first on are lost. [Restore] notes them
// as lost.
func (e Entry) Damage(first uint64) Entry {
	e.Kind, e.To, e.first = Damage, Everyone, first
	return e
}

// begins is the number of the first entry that the entry stands for.
func (e *Entry) begins() uint64 {
	if e.Kind == Damage && e.first > 0 {
		return e.first
	}
	return e.Seq
}

// Time returns when the entry was appended.
func (e Entry) Time() time.Time {
	i := bytes.Index(e.head, []byte(`,"time":`))
	if i < 0 {
		return time.Time{}
	}
	ms, _ := leadingInt(e.head[i+len(`,"time":`):])
	return time.UnixMilli(ms)
}

// size is what the entry adds to a batch.
func (e Entry) size() int { return len(e.head) + len(e.Frame) }

func appendHead(b []byte, seq uint64, ms int64, k Kind, to Recipient) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, `,"time":`...)
	b = strconv.AppendInt(b, ms, 10)
	b = append(b, `,"kind":"`...)
	b = append(b, byte(k))
	b = append(b, `","to":`...)
	b = strconv.AppendInt(b, int64(to), 10)
	return append(b, `,"message":`...)
}

const lineEnd = "}\n"

// parseLine reads a line as appendHead and the append of frame and lineEnd
// wrote it; line has no newline.
func parseLine(line []byte) (Entry, bool) {
	var e Entry
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return e, false
	}
	seq, n := leadingInt(rest)
	rest, ok = bytes.CutPrefix(rest[n:], []byte(`,"time":`))
	if !ok || n == 0 || seq <= 0 {
		return e, false
	}
	_, n = leadingInt(rest)
	rest, ok = bytes.CutPrefix(rest[n:], []byte(`,"kind":"`))
	if !ok || n == 0 || len(rest) < 1 || !Kind(rest[0]).valid() {
		return e, false
	}
	e.Kind = Kind(rest[0])
	rest, ok = bytes.CutPrefix(rest[1:], []byte(`","to":`))
	if !ok {
		return e, false
	}
	to, n := leadingInt(rest)
	rest, ok = bytes.CutPrefix(rest[n:], []byte(`,"message":`))
	if !ok || n == 0 || len(rest) < 3 || rest[0] != '{' || rest[len(rest)-1] != '}' || rest[len(rest)-2] != '}' {
		return e, false
	}
	e.Seq, e.To = uint64(seq), Recipient(to)
	e.head = line[:len(line)-len(rest)]
	e.Frame = rest[: len(rest)-1 : len(rest)-1]
	return e, true
}

// cutLine returns the first line without its end, and what follows.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte{'\n'})
	return line, rest
}

// checkLines says what is wrong with the lines of a block.
func checkLines(lines []byte, h *header) error {
	seq := h.first
	for rest := lines; len(rest) > 0; seq++ {
		var line []byte
		line, rest = cutLine(rest)
		if e, ok := parseLine(line); !ok || e.Seq != seq {
			return fmt.Errorf("the line of entry %d is not one of this version", seq)
		}
	}
	if seq != h.first+uint64(h.count) {
		return fmt.Errorf("it has %d entries and not %d", seq-h.first, h.count)
	}
	return nil
}

// leadingInt parses the integer that b begins with and returns its length, 0
// when there is none or it is larger than an int64.
func leadingInt(b []byte) (v int64, n int) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		n = 1
	}
	start := n
	for n < len(b) && b[n]-'0' <= 9 {
		digit := int64(b[n] - '0')
		if v > (math.MaxInt64-digit)/10 {
			return 0, 0
		}
		v = v*10 + digit
		n++
	}
	if n == start {
		return 0, 0
	}
	if neg {
		v = -v
	}
	return v, n
}
