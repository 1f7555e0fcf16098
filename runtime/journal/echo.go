package journal

import (
	"encoding/json"
	"errors"
	"strconv"
)

// A prompt is one entry; those that show it to others name it and a block of it, so that
// its words are in the log once. Readers are given them in full.
const echoLead = `{"prompt":`

// AppendEcho adds an entry that shows a block of the prompt that is the entry of.
func (l *Log) AppendEcho(to Recipient, of uint64, block int) uint64 {
	b := strconv.AppendUint([]byte(echoLead), of, 10)
	b = strconv.AppendInt(append(b, `,"block":`...), int64(block), 10)
	return l.Append(Echo, to, append(b, '}'))
}

// expand puts what entries show in their place. Entries that say it themselves are of
// earlier versions, or of the history of a fork.
func (c *Cursor) expand(batch []Entry) error {
	for i := range batch {
		e := &batch[i]
		if e.Kind != Echo || len(e.Frame) < len(echoLead) || string(e.Frame[:len(echoLead)]) != echoLead {
			continue
		}
		var ref struct {
			Prompt uint64 `json:"prompt"`
			Block  int    `json:"block"`
		}
		if json.Unmarshal(e.Frame, &ref) != nil {
			continue
		}
		if err := c.prompted(batch[:i], ref.Prompt); err != nil {
			return err
		}
		if ref.Block < len(c.prompt.blocks) && c.log.o.Echo != nil {
			e.Frame = c.log.o.Echo(c.prompt.blocks[ref.Block])
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
	var m struct {
		Params struct {
			Prompt []json.RawMessage `json:"prompt"`
		} `json:"params"`
	}
	if json.Unmarshal(found.Frame, &m) == nil {
		c.prompt.blocks = m.Params.Prompt
	}
	return nil
}
