package scriptedmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

var (
	errClientLeft = errors.New("the client left")
	errDropped    = errors.New("dropped by the script")
	errBroken     = errors.New("ended by the script with an error")
)

const defaultChunk = 16

// partKind is what a part of an answer is.
type partKind int

const (
	thought partKind = iota
	answer
	call
)

// part is a contiguous piece of an answer.
type part struct {
	kind   partKind
	callID string
	tool   Tool
	text   string // so far: of thought, answer or arguments
}

// tokens is the usage of one call; in excludes what the cache read and wrote.
type tokens struct{ in, out, cacheRead, cacheWrite int }

func (u tokens) prompt() int { return u.in + u.cacheRead + u.cacheWrite }

// stop reasons that every dialect translates; others pass through.
const (
	endTurn   = "end_turn"
	toolUse   = "tool_use"
	maxTokens = "max_tokens"
	refusal   = "refusal"
)

// stream writes one answer in a dialect. Calls come in the order open, delta...,
// shut for each part, then finish or broken.
type stream interface {
	open(p part) error
	delta(text string) error
	shut() error
	finish(stop string, u tokens) error
	broken(kind, message string) error
}

// player plays one step for one request.
type player struct {
	ctx    context.Context // ends when the client leaves or the model closes
	w      http.ResponseWriter
	req    *Request
	d      dialect
	stream stream
	id     func(prefix string) string

	interval time.Duration
	chunk    int
	usage    tokens
	stop     string
	called   bool
	begun    bool   // something was streamed
	callID   string // of the next call; "" for one that was not used
	open     bool   // a part of kind answer is open: what is said next belongs to it
}

func (p *player) play(s Step) Outcome {
	p.chunk, p.usage = defaultChunk, tokens{in: 100, out: 20}
	err := p.actions(s)
	if err == nil {
		if p.stop == "" {
			p.stop = endTurn
			if p.called {
				p.stop = toolUse
			}
		}
		if err = p.shut(); err == nil {
			err = p.stream.finish(p.stop, p.usage)
		}
	}
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, errDropped):
		return Dropped
	case errors.Is(err, errBroken):
		return Failed
	case p.ctx.Err() != nil || errors.Is(err, errClientLeft):
		return ClientLeft
	}
	// The script is wrong; the agent's log and the test should see how.
	if !p.begun {
		p.httpError(http.StatusInternalServerError, "", "scripted model: "+err.Error())
	}
	return Failed
}

func (p *player) actions(s Step) error {
	for _, a := range s {
		switch {
		case a.fail != nil && (a.fail.left == nil || a.fail.left.Add(-1) >= 0):
			if p.begun {
				return p.broken(a.fail.kind, a.fail.msg)
			}
			p.httpError(a.fail.status, a.fail.kind, a.fail.msg)
			return errBroken
		case a.play != nil:
			if err := a.play(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *player) httpError(status int, kind, message string) {
	writeJSON(p.w, status, p.d.failure(status, kind, message))
}

func (p *player) broken(kind, message string) error {
	p.begun = true
	if err := p.stream.broken(kind, message); err != nil {
		return err
	}
	return errBroken
}

func (p *player) split(s string) []string {
	var out []string
	for runes := []rune(s); len(runes) > 0; {
		n := min(p.chunk, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}

// part streams one part; texts that follow each other are one.
func (p *player) part(pt part, chunks []string) error {
	if err := p.begin(pt); err != nil {
		return err
	}
	for _, c := range chunks {
		if err := p.delta(c); err != nil {
			return err
		}
	}
	if pt.kind == answer {
		return nil
	}
	return p.stream.shut()
}

func (p *player) begin(pt part) error {
	p.begun = true
	if p.open && pt.kind == answer {
		return nil
	}
	if err := p.shut(); err != nil {
		return err
	}
	p.open = pt.kind == answer
	return p.stream.open(pt)
}

// shut ends a text that is open.
func (p *player) shut() error {
	if !p.open {
		return nil
	}
	p.open = false
	return p.stream.shut()
}

func (p *player) delta(s string) error { return p.made(func() string { return s }) }

// made is delta for a text that is made once the wait before it is over.
func (p *player) made(text func() string) error {
	if p.interval > 0 {
		if err := p.wait(p.interval); err != nil {
			return err
		}
	}
	p.begun = true
	if p.ctx.Err() != nil {
		return errClientLeft
	}
	return p.stream.delta(text())
}

func (p *player) call(t Tool, args string) error {
	p.called = true
	id := p.callID
	if p.callID = ""; id == "" {
		id = p.id("call")
	}
	return p.part(part{kind: call, callID: id, tool: t}, p.split(args))
}

func (p *player) wait(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return errClientLeft
	}
}

// whole collects an answer that is not streamed.
type whole struct {
	p     *player
	parts []part
}

func (w *whole) open(p part) error { w.parts = append(w.parts, p); return nil }

func (w *whole) delta(s string) error {
	w.parts[len(w.parts)-1].text += s
	return nil
}

func (w *whole) shut() error { return nil }

func (w *whole) finish(stop string, u tokens) error {
	writeJSON(w.p.w, http.StatusOK, w.p.d.whole(w.p.req, w.p.id, w.parts, stop, u))
	return nil
}

func (w *whole) broken(kind, message string) error {
	w.p.httpError(http.StatusInternalServerError, kind, message)
	return nil
}

// events writes server-sent events; the headers go with the first one.
type events struct {
	w     http.ResponseWriter
	begun bool
}

// send writes one event and flushes it; name may be empty.
func (e *events) send(name string, data any) error {
	b, err := encode(data)
	if err != nil {
		return err
	}
	return e.raw(name, b)
}

func (e *events) raw(name string, data []byte) error {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
		e.w.WriteHeader(http.StatusOK)
	}
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	if _, err := e.w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("%w: %w", errClientLeft, err)
	}
	if err := http.NewResponseController(e.w).Flush(); err != nil {
		return fmt.Errorf("%w: %w", errClientLeft, err)
	}
	return nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := encode(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"message":"the scripted model cannot encode its answer"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone; that is its affair
}
