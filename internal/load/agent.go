package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// agent is the agent that gateways start: it speaks ACP on its standard streams and does what
// the prompt says.
//
//	echo                    one update, and the end of the turn
//	stream COUNT SIZE PAUSE so many updates of so many bytes, with microseconds in between
//	ask                     one permission, and the end of the turn, which says how long it took
//	deltas FIRST COUNT PAUSE  what the scripted model says for it, for tests
//
// Each update is written by itself and begins with its time and its number, so that a client
// on the same machine knows how long it took, and that none is missing.
type agent struct {
	mu       sync.Mutex // of the output
	sessions atomic.Int64
	asked    atomic.Int64
	answers  sync.Map // id of a permission to a channel that is closed by its answer
}

// stampSize is the length of what updates begin with: @, nanoseconds, #, number, ;
const stampSize = 1 + 19 + 1 + 9 + 1

func runAgent(in io.Reader) error {
	a := &agent{}
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		var m incoming
		if json.Unmarshal(line, &m) == nil {
			a.take(&m)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

type incoming struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		Prompt    []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	} `json:"params"`
}

func (a *agent) take(m *incoming) {
	switch m.Method {
	case "initialize":
		a.answer(m.ID, `{"protocolVersion":1,"agentCapabilities":{},"agentInfo":{"name":"load","version":"1"},"authMethods":[]}`)
	case "session/new":
		a.answer(m.ID, fmt.Sprintf(`{"sessionId":"load-%d-%d"}`, os.Getpid(), a.sessions.Add(1)))
	case "session/prompt":
		go a.prompt(m)
	case "":
		if c, ok := a.answers.LoadAndDelete(string(bytes.Trim(m.ID, `"`))); ok {
			close(c.(chan struct{}))
		}
	default:
		if len(m.ID) > 0 {
			a.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"not known"}}`)
		}
	}
}

func (a *agent) prompt(m *incoming) {
	var words []string
	if len(m.Params.Prompt) > 0 {
		words = strings.Fields(m.Params.Prompt[0].Text)
	}
	number := func(i int) int {
		if len(words) <= i {
			return 0
		}
		n, _ := strconv.Atoi(words[i])
		return n
	}
	end := `{"stopReason":"end_turn"}`
	switch {
	case len(words) > 0 && words[0] == "stream":
		a.stream(m.Params.SessionID, 0, number(1), number(2), time.Duration(number(3))*time.Microsecond)
	case len(words) > 0 && words[0] == deltasVerb:
		a.stream(m.Params.SessionID, number(1), number(2), 50, time.Duration(number(3))*time.Microsecond)
	case len(words) > 0 && words[0] == "ask":
		id, answered, began := strconv.FormatInt(a.asked.Add(1), 10), make(chan struct{}), time.Now()
		a.answers.Store(id, answered)
		a.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"session/request_permission","params":{"sessionId":"` + m.Params.SessionID +
			`","toolCall":{"toolCallId":"t1","title":"do it"},"options":[{"optionId":"allow","name":"Allow","kind":"allow_once"}]}}`)
		<-answered
		end = fmt.Sprintf(`{"stopReason":"end_turn","_meta":{"askedNs":%d}}`, time.Since(began))
	default:
		a.stream(m.Params.SessionID, 0, 1, 50, 0)
	}
	a.answer(m.ID, end)
}

// stream says count updates, of which the first one has a number. Each has a time, and other words than those before it, up to a
// megabyte: no log is made smaller than those of real agents.
func (a *agent) stream(session string, first, count, size int, pause time.Duration) {
	line := []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session +
		`","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"`)
	at := len(line)
	line = append(line, make([]byte, stampSize)...)
	texts := make([]string, max(1, min(count, 1<<20/max(size, 1))))
	for i := range texts {
		texts[i] = prose(size-stampSize, uint32(i))
	}
	began := time.Now()
	for i := range count {
		line = append(append(line[:at+stampSize], texts[i%len(texts)]...), `"}}}}`+"\n"...)
		if wait := time.Until(began.Add(time.Duration(i) * pause)); pause > 0 && wait > 0 {
			time.Sleep(wait)
		}
		stamp(line[at:], time.Now().UnixNano(), first+i)
		a.write(line)
	}
}

// prose returns about so many bytes of text that is as hard to compress as what agents say.
func prose(size int, seed uint32) string {
	words := strings.Fields("the file has a function that reads each line and returns an error when it cannot be parsed so a test for it should write one with two lines of which the second is not closed return nil err if else func package string int bytes len range for var 12 400 main.go _test.go Δ")
	var b strings.Builder
	for seed = seed*2654435761 + 1; b.Len() < size; {
		seed = seed*1664525 + 1013904223
		b.WriteString(words[int(seed>>16)%len(words)])
		if seed>>28 == 0 {
			b.WriteString(strconv.FormatUint(uint64(seed), 36))
		}
		b.WriteByte(' ')
	}
	return strings.ToValidUTF8(b.String()[:max(size, 0)], " ")
}

func stamp(b []byte, at int64, number int) {
	b[0] = '@'
	for i := 19; i > 0; i, at = i-1, at/10 {
		b[i] = '0' + byte(at%10)
	}
	b[20] = '#'
	for i := 29; i > 20; i, number = i-1, number/10 {
		b[i] = '0' + byte(number%10)
	}
	b[30] = ';'
}

// stamped returns what a stamp in the frame says; ok is false when it has none.
func stamped(frame []byte) (at time.Time, number int, ok bool) {
	i := bytes.Index(frame, []byte(`"text":"@`))
	if i < 0 || len(frame) < i+8+stampSize {
		return time.Time{}, 0, false
	}
	b := frame[i+8:]
	ns, err := strconv.ParseInt(string(b[1:20]), 10, 64)
	n, err2 := strconv.Atoi(string(b[21:30]))
	return time.Unix(0, ns), n, err == nil && err2 == nil
}

func (a *agent) answer(id json.RawMessage, result string) {
	a.say(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
}

func (a *agent) say(message string) { a.write([]byte(message + "\n")) }

func (a *agent) write(line []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := os.Stdout.Write(line); err != nil {
		os.Exit(0) // whoever started it is gone
	}
}
