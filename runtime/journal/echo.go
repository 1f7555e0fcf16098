package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// A prompt is one entry; those that show it to others name it and a block of it, so that
// its words are in the log once. Readers are given them in full.
const (
	echoLead  = `{"prompt":`
	echoBlock = `,"block":`
)

// AppendEcho adds an entry that shows a block of the prompt that is the entry of.
func (l *Log) AppendEcho(to Recipient, of uint64, block int) uint64 {
	b := strconv.AppendUint([]byte(echoLead), of, 10)
	b = strconv.AppendInt(append(b, echoBlock...), int64(block), 10)
	return l.Append(Echo, to, append(b, '}'))
}

// echoed returns which block of which prompt the frame shows; ok is false when it says so
// itself.
func echoed(frame []byte) (prompt uint64, block int, ok bool) {
	rest, ok := bytes.CutPrefix(frame, []byte(echoLead))
	if !ok {
		return 0, 0, false
	}
	of, rest, _ := bytes.Cut(rest, []byte(echoBlock))
	prompt, err := strconv.ParseUint(string(of), 10, 64)
	block, err2 := strconv.Atoi(string(bytes.TrimSuffix(rest, []byte("}"))))
	return prompt, block, err == nil && err2 == nil && block >= 0
}

// expand puts what entries show in their place. Entries that say it themselves are of
// earlier versions, or of the history of a fork.
func (c *Cursor) expand(batch []Entry) error {
	for i := range batch {
		e := &batch[i]
		if e.Kind != Echo {
			continue
		}
		of, block, ok := echoed(e.Frame)
		if !ok {
			continue
		}
		if err := c.prompted(batch[:i], of); err != nil {
			return err
		}
		if block < len(c.prompt.blocks) && c.log.o.Echo != nil {
			e.Frame = c.log.o.Echo(c.prompt.blocks[block])
		} else {
			e.Frame = c.log.damage(e.Seq, e.Seq)
		}
	}
	return nil
}

// prompt is one whose blocks were looked for last.
type prompt struct {
	seq    uint64
	blocks []json.RawMessage
}

// prompted looks for a prompt, which stands right before what shows it as a rule.
func (c *Cursor) prompted(before []Entry, seq uint64) error {
	if c.prompt.seq == seq {
		return nil
	}
	c.prompt = prompt{seq: seq}
	var found Entry
	for _, e := range before {
		if e.Seq == seq {
			found = e
		}
	}
	if found.Seq == 0 {
		one, err := c.log.Whole(seq-1).next(nil, 1)
		if err != nil && !errors.Is(err, ErrTruncated) {
			return err
		}
		if len(one) == 0 || one[0].Seq != seq {
			return nil
		}
		found = one[0]
	}
	if c.log.o.Blocks != nil {
		c.prompt.blocks = c.log.o.Blocks(bytes.Clone(found.Frame)) // they outlive the entry
	}
	return nil
}
