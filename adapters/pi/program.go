package pi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

const (
	startBound = 90 * time.Second // for Pi to answer for the first time
	callBound  = 30 * time.Second // for it to answer what takes no time
)

// program is one process of Pi. Its lines go to take, in order, on one goroutine;
// answers go to who waits for them.
type program struct {
	child *bridge.Child
	ended chan struct{}       // closed when the process has ended and was read to its end
	exit  *adapters.ExitError // valid when ended is closed
	work  sync.WaitGroup      // the reader
	gate  *announcement       // the first one; the reader's, until the first answer has come
	asked map[string]string   // questions that extensions may take back, by name; at most turn.MaxAsks; the reader's
	last  string              // the question that came last; the reader's
	take  func(e *event)      // acts on a line
	odd   func([]byte, error) // takes a line that is no event
	over  func(self *program) // is called when the process has ended, before ended is closed

	mu     sync.Mutex
	lastID int
	calls  map[string]call // what Pi was asked, by id
}

// call is a command whose answer is awaited.
type call struct {
	id      string
	command string
	answer  chan *event    // cap 1
	heard   func(e *event) // takes each answer on the reader; may be nil
}

// startProgram starts Pi. ctx bounds only the start of the process.
func startProgram(ctx context.Context, spec process.Spec, tap adapters.Tap, p *program) error {
	child, err := bridge.Start(ctx, spec, tap)
	if err != nil {
		return err
	}
	p.child, p.ended, p.calls = child, make(chan struct{}), map[string]call{}
	p.work.Go(p.read)
	return nil
}

// read takes every line of Pi until it ends.
func (p *program) read() {
	p.child.Each(func(line []byte) error {
		e, err := parse(line)
		if err != nil {
			return err
		}
		p.take(e)
		if e.Type == "response" {
			p.answered(e)
		}
		return nil
	}, p.odd)
	// A program that closed its stdout can do nothing more for anybody.
	p.exit = p.child.End(process.DefaultLadder)
	p.over(p) // before anybody is told that a request has failed
	close(p.ended)
}

// answered hands an answer to who waits for it.
func (p *program) answered(e *event) {
	var asked []call
	p.mu.Lock()
	for id, c := range p.calls {
		// What an early version does not know it refuses without the id.
		if id == e.ID || e.ID == "" && !e.Success && c.command == e.Command {
			asked = append(asked, c)
		}
	}
	p.mu.Unlock()
	for _, c := range asked {
		if c.heard != nil {
			c.heard(e)
		}
		select {
		case c.answer <- e:
		default: // it was answered already
		}
	}
}

// send writes one line, within ctx.
func (p *program) send(ctx context.Context, v any) error {
	b, err := schema.Encode(v)
	if err != nil {
		return fmt.Errorf("encode a line for pi: %w", err)
	}
	return p.child.WriteLine(ctx, b)
}

// died reports whether an error is the end of a process.
func died(err error) bool {
	_, ok := errors.AsType[*adapters.ExitError](err)
	return ok
}

// call has Pi do something and returns its answer. The error is an *acp.Error
// when Pi refused, and an *adapters.ExitError when it has ended. ctx bounds the wait.
func (p *program) call(ctx context.Context, command string, fields map[string]any) (json.RawMessage, error) {
	return p.callAs(ctx, command, fields, manner{writing: ctx, told: func() {}})
}

// manner is how Pi is asked.
type manner struct {
	// writing bounds for how long Pi may not read. It must not end when an answer has come:
	// Pi has read the line then, and whoever wrote it may not know yet.
	writing context.Context
	told    func() // is called as soon as Pi was told
}

// callAs is call in a manner of its own.
func (p *program) callAs(ctx context.Context, command string, fields map[string]any, m manner) (json.RawMessage, error) {
	c := p.expect(command, nil)
	defer p.forget(c)
	return p.exchange(ctx, c, fields, m)
}

// expect notes a command that Pi is about to be given; heard, which may be nil, takes its
// answers on the reader, before the next line, until it is forgotten.
func (p *program) expect(command string, heard func(e *event)) call {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	c := call{"gateway-" + strconv.Itoa(p.lastID), command, make(chan *event, 1), heard}
	p.calls[c.id] = c
	return c
}

// forget takes no answer to a command any more.
func (p *program) forget(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c.id)
}

// exchange gives Pi a command that is expected, and returns the first answer.
func (p *program) exchange(ctx context.Context, c call, fields map[string]any, m manner) (json.RawMessage, error) {
	line := map[string]any{"id": c.id, "type": c.command}
	for name, v := range fields {
		line[name] = v
	}
	if err := p.send(m.writing, line); errors.Is(err, bridge.ErrUnwritten) {
		<-p.ended
		return nil, bridge.Unwritten(p.exit)
	} else if err != nil {
		return nil, err
	}
	m.told()
	select {
	case e := <-c.answer:
		if !e.Success {
			return nil, e.refusal(c.command)
		}
		return e.Data, nil
	case <-p.ended:
		select {
		case e := <-c.answer: // it came before the end
			if e.Success {
				return e.Data, nil
			}
		default:
		}
		return nil, p.exit
	case <-ctx.Done():
		return nil, fmt.Errorf("ask pi for %s: %w", c.command, ctx.Err())
	}
}

// refusal is the error of an answer that refuses a command.
func (e *event) refusal(command string) error {
	return acp.Errorf(acp.CodeInternal, "%s", bridge.FirstOf(e.Error, "pi refused "+command))
}

// ask is call for what takes no time; it decodes the answer into v unless that is
// nil.
func (p *program) ask(ctx context.Context, command string, fields map[string]any, v any) error {
	ctx, cancel := bridge.Within(context.WithoutCancel(ctx), callBound) // half a line cannot be taken back
	defer cancel()
	raw, err := p.call(ctx, command, fields)
	if err != nil || v == nil {
		return err
	}
	if err := bridge.Lenient(raw, v); err != nil {
		return fmt.Errorf("read pi's answer to %s: %w", command, err)
	}
	return nil
}

// end ends the process and everything that it started.
func (p *program) end() {
	p.child.Stop(process.DefaultLadder)
	<-p.ended
	p.work.Wait()
}

// halt ends a process that does not do what it is told.
func (p *program) halt() {
	p.child.Stop(process.Ladder{Term: process.DefaultLadder.Term})
	<-p.ended
}
