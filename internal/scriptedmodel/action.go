package scriptedmodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Action is one thing that the model does. An Action may be used by many
// requests at once.
type Action struct {
	play func(p *player) error
	// fail is set for actions that answer with an HTTP error if nothing has
	// been streamed before.
	fail *failure
}

type failure struct {
	status    int
	kind, msg string
	left      *atomic.Int64 // nil is for ever
}

func act(play func(p *player) error) Action { return Action{play: play} }

// Think streams a thought.
func Think(text string) Action {
	return act(func(p *player) error { return p.part(part{kind: thought}, p.split(text)) })
}

// Say streams text as the answer. Texts that follow each other in a step are one.
func Say(text string) Action {
	return act(func(p *player) error { return p.part(part{kind: answer}, p.split(text)) })
}

// SayChunks streams text in the given chunks.
func SayChunks(chunks ...string) Action {
	return act(func(p *player) error { return p.part(part{kind: answer}, chunks) })
}

// SayMade streams count chunks as the answer, each made when it is sent. chunk may be
// called concurrently, for several requests.
func SayMade(count int, chunk func(n int) string) Action {
	return act(func(p *player) error {
		if err := p.begin(part{kind: answer}); err != nil {
			return err
		}
		for n := range count {
			if err := p.made(func() string { return chunk(n) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// SayResult streams the texts of the newest round of tool results.
func SayResult() Action {
	return act(func(p *player) error {
		var texts []string
		for _, r := range p.req.Results() {
			texts = append(texts, r.Text)
		}
		return p.part(part{kind: answer}, p.split(strings.Join(texts, "\n")))
	})
}

// recall says the prompts before the newest one.
func recall() Action {
	return act(func(p *player) error {
		all := p.req.Prompts()
		return p.part(part{kind: answer}, p.split(fmt.Sprintf("recalled: %q", all[:max(0, len(all)-1)])))
	})
}

// Call calls a tool by its exact name. args is the object of arguments, or, for
// a freeform tool, its text. Several calls in one step are parallel calls. A
// name that the request does not offer is called nevertheless; NAMESPACE/TOOL is
// a tool of a namespace that the agent has and did not offer.
func Call(tool string, args any) Action {
	return act(func(p *player) error {
		t, text, err := p.toolOf(tool, args)
		if err != nil {
			return err
		}
		return p.call(t, text)
	})
}

// CutCall is Call with a connection that is cut in the middle of the arguments, a moment after
// they have come so far.
func CutCall(tool string, args any) Action {
	return act(func(p *player) error {
		t, text, err := p.toolOf(tool, args)
		if err == nil {
			err = p.begin(part{kind: call, callID: p.id("call"), tool: t})
		}
		if err == nil {
			err = p.delta(text[:len(text)/2])
		}
		if err == nil {
			err = p.wait(300 * time.Millisecond)
		}
		return cmp.Or(err, errDropped)
	})
}

// toolOf returns a tool and the text of its arguments.
func (p *player) toolOf(tool string, args any) (Tool, string, error) {
	text, ok := args.(string)
	if !ok {
		b, err := json.Marshal(args)
		if err != nil {
			return Tool{}, "", fmt.Errorf("encode the arguments of %s: %w", tool, err)
		}
		text = string(b)
	}
	t, ok := p.req.tool(tool)
	if !ok {
		t = Tool{Name: tool, Type: "function"}
		if namespace, name, ok := strings.Cut(tool, "/"); ok {
			t.Name, t.Namespace = name, namespace
		}
	}
	return t, text, nil
}

// CallID gives the next call of the step an id of its own: a model may use one
// again.
func CallID(id string) Action {
	return act(func(p *player) error { p.callID = id; return nil })
}

// Slowly makes the rest of the step wait before each chunk, beginning with the
// second one of the answer.
func Slowly(interval time.Duration) Action {
	return act(func(p *player) error { p.interval = interval; return nil })
}

// Chunks makes the rest of the step use chunks of n characters; 16 at first.
func Chunks(n int) Action {
	return act(func(p *player) error { p.chunk = max(1, n); return nil })
}

// Gate waits until ch is closed or has a value.
func Gate(ch <-chan struct{}) Action {
	return act(func(p *player) error {
		select {
		case <-ch:
			return nil
		case <-p.ctx.Done():
			return errClientLeft
		}
	})
}

// Forever streams "tick N " every 10 ms, or at the pace of [Slowly], until the
// client leaves.
func Forever() Action {
	return act(func(p *player) error {
		if p.interval == 0 {
			p.interval = 10 * time.Millisecond
		}
		if err := p.begin(part{kind: answer}); err != nil {
			return err
		}
		for n := 1; ; n++ {
			if err := p.delta(fmt.Sprintf("tick %d ", n)); err != nil {
				return err
			}
		}
	})
}

// Fail answers with an HTTP error; in mid-stream it is [SSEError]. An empty kind
// is the dialect's usual name for the status.
func Fail(status int, kind, message string) Action {
	return Action{fail: &failure{status: status, kind: kind, msg: message}}
}

// FailTimes is Fail for the first n requests that reach it; later ones go on
// with the step.
func FailTimes(n, status int, kind, message string) Action {
	a := Fail(status, kind, message)
	a.fail.left = new(atomic.Int64)
	a.fail.left.Store(int64(n))
	return a
}

// SSEError ends the stream with the dialect's error event.
func SSEError(kind, message string) Action {
	return act(func(p *player) error { return p.broken(kind, message) })
}

// Drop cuts the connection.
func Drop() Action { return act(func(*player) error { return errDropped }) }

// Usage sets the tokens of this call. in are those not read from, and not
// written to, the cache; each dialect adds up as its provider does. Without it
// they are 100 and 20, and none cached.
func Usage(in, out, cacheRead, cacheWrite int) Action {
	return act(func(p *player) error {
		p.usage = tokens{in, out, cacheRead, cacheWrite}
		return nil
	})
}

// Stop sets why the answer ends: "max_tokens", "refusal", or a reason in the
// dialect's own words. Without it the reason is the end of the turn or the use
// of a tool.
func Stop(reason string) Action {
	return act(func(p *player) error { p.stop = reason; return nil })
}

// Header sets a header of the response; it comes before everything that streams.
func Header(name, value string) Action {
	return act(func(p *player) error { p.w.Header().Set(name, value); return nil })
}
