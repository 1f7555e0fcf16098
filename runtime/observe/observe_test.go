package observe

import (
	"context"
	"errors"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

var errEnd = errors.New("the end")

func trace(frame string, span Span) string {
	m := WithTrace(acp.MustParse([]byte(frame)), span)
	return string(m.Frame())
}

func TestWithin_EndsAsLifeDoesAndHasTheValues(t *testing.T) {
	type key struct{}
	from, leave := context.WithCancel(context.WithValue(context.Background(), key{}, "v"))
	life, end := context.WithCancelCause(context.Background())
	ctx := Within(life, from)
	leave()
	if ctx.Err() != nil || ctx.Value(key{}) != "v" {
		t.Errorf("%v, %v", ctx.Err(), ctx.Value(key{}))
	}
	below, cancel := context.WithCancel(ctx)
	defer cancel()
	end(errEnd)
	<-below.Done()
	if context.Cause(ctx) != errEnd || context.Cause(below) != errEnd {
		t.Errorf("the causes are %v and %v", context.Cause(ctx), context.Cause(below))
	}
}

func TestWithTrace_KeepsTheRest(t *testing.T) {
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s" , "prompt":[]}}`:                                          `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s" , "prompt":[],"_meta":{"traceparent":"P","tracestate":"S"}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"a": 1.0,"traceparent":"old","b":"\u0041"},"prompt":[]},"id":"1"}`:                   `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"a": 1.0,"traceparent":"P","b":"\u0041","tracestate":"S"},"prompt":[]},"id":"1"}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"tracestate":"old","sandboxagent.dev":{"promptId":"p"}}},"x":{"_meta":{}},"id":"1"}`: `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"tracestate":"S","sandboxagent.dev":{"promptId":"p"},"traceparent":"P"}},"x":{"_meta":{}},"id":"1"}`,
	} {
		if got := trace(frame, tracing{}); got != want {
			t.Errorf("%s\nbecame %s\nwant   %s", frame, got, want)
		}
		if got := trace(frame, NoSpan{}); got != frame {
			t.Errorf("without a trace %s became %s", frame, got)
		}
	}
}

type tracing struct{ NoSpan }

func (tracing) Trace() (parent, state string) { return "P", "S" }
