package agent

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

const (
	slowInterval = 20 * time.Millisecond
	maxChunk     = 1 << 30
)

func (t *turn) hello(string) (schema.StopReason, error) {
	for _, s := range []string{"Hello!", " I am the mock agent.", " Tell me what to do,", " and I will pretend to do it."} {
		if err := t.say(s); err != nil {
			return "", err
		}
	}
	return schema.StopReasonEndTurn, nil
}

func (t *turn) echo(rest string) (schema.StopReason, error) {
	return schema.StopReasonEndTurn, t.say(rest)
}

// words echoes one chunk per word with the white space behind it.
func (t *turn) words(rest string) (schema.StopReason, error) {
	for rest != "" && !t.isCancelled() {
		n := strings.IndexFunc(rest, unicode.IsSpace)
		if n < 0 {
			n = len(rest)
		}
		word := rest[:n]
		behind := strings.TrimLeftFunc(rest[n:], unicode.IsSpace)
		word = rest[:len(word)+len(rest[n:])-len(behind)]
		if err := t.say(word); err != nil {
			return "", err
		}
		rest = behind
	}
	return schema.StopReasonEndTurn, nil
}

// countAndSize reads the arguments of stream.
func countAndSize(rest string) (count, size int, ok bool) {
	args := strings.Fields(rest)
	if len(args) != 1 && len(args) != 2 {
		return 0, 0, false
	}
	count, err := strconv.Atoi(args[0])
	if err == nil && len(args) == 2 {
		size, err = strconv.Atoi(args[1])
	}
	return count, size, err == nil && count >= 0 && size >= 0 && size <= maxChunk
}

// stream sends numbered chunks as fast as they can be written.
func (t *turn) stream(rest string) (schema.StopReason, error) {
	count, size, _ := countAndSize(rest)
	chunk, err := schema.Encode(schema.AgentMessage(schema.TextBlock("\x00")))
	if err != nil {
		return "", err
	}
	before, after, _ := strings.Cut(string(chunk), `\u0000`)
	head := append(t.s.frameHead(), before...)
	pad := strings.Repeat("x", size)
	var lines, frames []byte
	flush := func() error {
		err := t.s.write(t.a.lines, lines, frames)
		lines, frames = lines[:0], frames[:0]
		return err
	}
	for i := 0; i < count && !t.isCancelled(); i++ {
		at := len(lines)
		lines = append(lines, before...)
		text := len(lines)
		lines = append(strconv.AppendInt(lines, int64(i), 10), ' ')
		if n := len(lines) - text; n < size {
			lines = append(lines, pad[n:]...)
		}
		lines = append(lines, after...)
		frames = append(append(append(frames, head...), lines[at+len(before):]...), frameTail...)
		lines = append(lines, '\n')
		if len(frames) >= flushAt {
			if err := flush(); err != nil {
				return "", err
			}
		}
	}
	return schema.StopReasonEndTurn, flush()
}

func (t *turn) slow(string) (schema.StopReason, error) {
	return t.ticking(func(i int) error { return t.say("tick " + strconv.Itoa(i) + " ") })
}

func (t *turn) spend(string) (schema.StopReason, error) {
	return t.ticking(func(i int) error {
		return t.send(schema.SessionUpdate{UsageUpdate: &schema.UsageUpdate{Used: 1000, Size: 200000, Cost: &schema.Cost{Amount: float64(i+1) / 100, Currency: "USD"}}})
	})
}

// ticking calls say now and then until the turn is cancelled.
func (t *turn) ticking(say func(i int) error) (schema.StopReason, error) {
	tick := time.NewTicker(slowInterval)
	defer tick.Stop()
	for i := 0; ; i++ {
		if err := say(i); err != nil {
			return "", err
		}
		select {
		case <-tick.C:
		case <-t.cancelled:
			return schema.StopReasonCancelled, nil
		case <-t.s.stop:
			return schema.StopReasonCancelled, nil
		case <-t.ctx.Done():
			return "", t.ctx.Err()
		}
	}
}

// garbage sends lines that are no frames between good ones.
func (t *turn) garbage(string) (schema.StopReason, error) {
	bad := []string{
		"this line is not JSON\n",
		"[1,2,3]\n",
		`{"jsonrpc":"2.0","method":"session/update","params":{"sess` + "\n",
		"\xff\xfe is not UTF-8\n",
	}
	for i, line := range bad {
		if err := t.say("good " + strconv.Itoa(i)); err != nil {
			return "", err
		}
		if err := t.a.lines.WriteLines([]byte(line)); err != nil {
			return "", err
		}
	}
	return schema.StopReasonEndTurn, nil
}
