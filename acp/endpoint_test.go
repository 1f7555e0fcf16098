package acp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// fakeAgent is a struct of funcs; what is nil does nothing.
type fakeAgent struct {
	peer   acp.Peer
	prompt func(ctx context.Context, p acp.Peer, r *schema.PromptRequest) (*schema.PromptResponse, error)
	cancel func(*schema.CancelNotification)
	ext    func(ctx context.Context, method string, params json.RawMessage) (any, error)
	notice func(method string, params json.RawMessage)
}

func (a *fakeAgent) Initialize(context.Context, *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	return &schema.InitializeResponse{ProtocolVersion: 1}, nil
}

func (a *fakeAgent) NewSession(_ context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	return &schema.NewSessionResponse{SessionID: schema.SessionID("<" + r.Cwd + ">")}, nil
}

func (a *fakeAgent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	return a.prompt(ctx, a.peer, r)
}

func (a *fakeAgent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	if a.cancel != nil {
		a.cancel(n)
	}
	return nil
}

func (a *fakeAgent) Close() error { return nil }

type extendedAgent struct{ *fakeAgent }

func (a extendedAgent) ExtMethod(ctx context.Context, method string, params json.RawMessage) (any, error) {
	return a.ext(ctx, method, params)
}

func (a extendedAgent) ExtNotification(_ context.Context, method string, params json.RawMessage) error {
	a.notice(method, params)
	return nil
}

// wire is the client's end of a served agent.
type wire struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
}

type duplex struct {
	*io.PipeReader
	w *io.PipeWriter
}

func (d duplex) Write(p []byte) (int, error) { return d.w.Write(p) }

func (d duplex) Close() error {
	_ = d.PipeReader.Close()
	return d.w.Close()
}

func serve(t *testing.T, a *fakeAgent) *wire {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	w := &wire{t: t, in: inW, out: bufio.NewReader(outR), done: make(chan error, 1)}
	go func() {
		w.done <- acp.ServeAgent(context.Background(), acp.OverLines(duplex{inR, outW}), func(p acp.Peer) acp.Agent {
			a.peer = p
			if a.ext != nil {
				return extendedAgent{a}
			}
			return a
		})
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		if err := <-w.done; err != nil {
			t.Errorf("ServeAgent: %v", err)
		}
		goleak.VerifyNone(t)
	})
	return w
}

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.in, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) want(line string) {
	w.t.Helper()
	got, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("read, wanting %s: %v", line, err)
	}
	if diff := cmp.Diff(line, strings.TrimSuffix(got, "\n")); diff != "" {
		w.t.Fatalf("frame (-want +got):\n%s", diff)
	}
}

func TestServeAgent_IDsSurvive(t *testing.T) {
	w := serve(t, &fakeAgent{})
	for _, id := range []string{"0", "-1", "1", `"0"`, `""`, `"a<b> "`, "1.50", "18446744073709551616"} {
		w.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"initialize","params":{"protocolVersion":1}}`)
		w.want(`{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":1}}`)
	}
}

func TestServeAgent_Errors(t *testing.T) {
	w := serve(t, &fakeAgent{prompt: func(_ context.Context, _ acp.Peer, r *schema.PromptRequest) (*schema.PromptResponse, error) {
		if r.SessionID == "typed" {
			return nil, fmt.Errorf("wrapped: %w", acp.Errorf(-32002, "no <such> session").WithData(map[string]string{"id": "typed"}))
		}
		return nil, errors.New("it broke")
	}})
	for _, c := range []struct{ name, send, want string }{
		{"not json", `{"a":`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"invalid JSON at byte 5 of 5","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`},
		{"batch", `[1]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches are not supported: send one JSON-RPC object per frame","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"x/y"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: x/y","data":{"type":"urn:sandbox-agent:error:not_supported"}}}`},
		{"missing power", `{"jsonrpc":"2.0","id":1,"method":"session/load","params":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: session/load","data":{"type":"urn:sandbox-agent:error:not_supported"}}}`},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"initialize"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the id of a request must not be null","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`},
		{"missing member", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid params: mcpServers: missing","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`},
		{"wrong member", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":5}]}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid params: prompt: 0: text: number where a string is expected","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`},
		{"params list", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid params: list where an object is expected","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`},
		{"typed error", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"typed","prompt":[]}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no <such> session","data":{"id":"typed","type":"urn:sandbox-agent:error:not_found"}}}`},
		{"other error", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"it broke","data":{"type":"urn:sandbox-agent:error:internal"}}}`},
		{"still alive", `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/<&>","mcpServers":[]}}`, `{"jsonrpc":"2.0","id":1,"result":{"sessionId":"</<&>>"}}`},
	} {
		t.Log(c.name)
		w.send(c.send)
		w.want(c.want)
	}
}

func TestServeAgent_CancelArrivesDuringPrompt(t *testing.T) {
	w := serve(t, &fakeAgent{
		prompt: func(ctx context.Context, p acp.Peer, r *schema.PromptRequest) (*schema.PromptResponse, error) {
			<-acp.TurnCancelled(ctx)
			if err := p.Update(ctx, r.SessionID, schema.AgentMessage(schema.TextBlock("bye <&> \u2028"))); err != nil {
				return nil, err
			}
			return &schema.PromptResponse{StopReason: schema.StopReasonCancelled}, nil
		},
	})
	w.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"other"}}`)
	w.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
	w.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
	w.want(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"bye <&> ` + "\u2028" + `"}}}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}`)
}

// TestServeAgent_CancelEndsWhatWaitsFirst: when a prompt hears that it is cancelled, those that came behind it are, too.
// Otherwise the agent would be given one of them.
func TestServeAgent_CancelEndsWhatWaitsFirst(t *testing.T) {
	const prompts, rounds = 64, 20
	var (
		came     [prompts]<-chan struct{}
		all      sync.WaitGroup
		overtook atomic.Bool
	)
	w := serve(t, &fakeAgent{
		prompt: func(ctx context.Context, _ acp.Peer, r *schema.PromptRequest) (*schema.PromptResponse, error) {
			n, err := strconv.Atoi(r.Prompt[0].Text.Text)
			if err != nil {
				return nil, err
			}
			came[n] = acp.TurnCancelled(ctx)
			all.Done()
			all.Wait()
			<-came[n]
			for _, later := range came[n:] {
				select {
				case <-later:
				default:
					overtook.Store(true)
				}
			}
			return &schema.PromptResponse{StopReason: schema.StopReasonCancelled}, nil
		},
	})
	for range rounds {
		all.Add(prompts)
		for n := range prompts {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"%[1]d"}]}}`, n))
		}
		all.Wait()
		w.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
		for range prompts {
			if _, err := w.out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	if overtook.Load() {
		t.Error("a prompt was cancelled before one that came behind it")
	}
}

func TestServeAgent_CancelRequest(t *testing.T) {
	w := serve(t, &fakeAgent{
		prompt: func(ctx context.Context, _ acp.Peer, _ *schema.PromptRequest) (*schema.PromptResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	w.send(`{"jsonrpc":"2.0","id":"a","method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.send(`{"jsonrpc":"2.0","id":"a","method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.want(`{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"a request with this id is still being handled","data":{"type":"urn:sandbox-agent:error:invalid_request"}}}`)
	w.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"b"}}`)
	w.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"a"}}`)
	w.want(`{"jsonrpc":"2.0","id":"a","error":{"code":-32800,"message":"the request was cancelled","data":{"type":"urn:sandbox-agent:error:cancelled"}}}`)
}

func TestServeAgent_Ask(t *testing.T) {
	w := serve(t, &fakeAgent{
		prompt: func(ctx context.Context, p acp.Peer, _ *schema.PromptRequest) (*schema.PromptResponse, error) {
			var read schema.ReadTextFileResponse
			if err := p.Ask(ctx, acp.MethodFSReadTextFile, &schema.ReadTextFileRequest{SessionID: "s", Path: "/<a>"}, &read); err != nil {
				return nil, err
			}
			err := p.Ask(ctx, "_x", map[string]string{"content": read.Content}, nil)
			return nil, err
		},
	})
	w.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/<a>"}}`)
	w.send(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"not ours"}}`)
	w.send(`{"jsonrpc":"2.0","id":"1","result":{"content":"not ours"}}`)
	w.send(`{"jsonrpc":"2.0","id":77,"result":{"content":"not ours"}}`)
	w.send(`{"jsonrpc":"2.0","id":1,"result":{"content":"a & b"}}`)
	w.want(`{"jsonrpc":"2.0","id":2,"method":"_x","params":{"content":"a & b"}}`)
	w.send(`{"jsonrpc":"2.0","id":2,"error":{"code":7,"message":"no","data":[1]}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"no","data":[1]}}`)
}

func TestServeAgent_AskEndsWithTheConnection(t *testing.T) {
	asked := make(chan error, 1)
	w := serve(t, &fakeAgent{
		prompt: func(_ context.Context, p acp.Peer, _ *schema.PromptRequest) (*schema.PromptResponse, error) {
			err := p.Ask(context.Background(), "_x", nil, nil)
			asked <- err
			return nil, err
		},
	})
	w.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
	_ = w.in.Close()
	if err := <-asked; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Ask: %v, want io.ErrClosedPipe", err)
	}
}

func TestServeAgent_AskCancelled(t *testing.T) {
	w := serve(t, &fakeAgent{
		prompt: func(ctx context.Context, p acp.Peer, _ *schema.PromptRequest) (*schema.PromptResponse, error) {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				<-acp.TurnCancelled(ctx)
				cancel()
			}()
			if err := p.Ask(ctx, "_x", nil, nil); !errors.Is(err, context.Canceled) {
				return nil, err
			}
			return &schema.PromptResponse{StopReason: schema.StopReasonCancelled}, nil
		},
	})
	w.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
	w.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
	w.want(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}`)
}

func TestServeAgent_ExtensionsKeepTheirBytes(t *testing.T) {
	var notices []string
	a := &fakeAgent{}
	a.notice = func(method string, params json.RawMessage) { notices = append(notices, method+string(params)) }
	a.ext = func(_ context.Context, _ string, params json.RawMessage) (any, error) { return params, nil }
	w := serve(t, a)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"_echo","params":{"b":1.0,"a":"\u003c<"}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"result":{"b":1.0,"a":"\u003c<"}}`)
	for i := range 5 {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"_n","params":[%d]}`, i))
	}
	_ = w.in.Close()
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	w.done <- nil
	if diff := cmp.Diff([]string{"_n[0]", "_n[1]", "_n[2]", "_n[3]", "_n[4]"}, notices); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

// What is set of a session is set in the order in which it was asked for, and waits for nothing of another session.
func TestServeAgent_WhatIsSetLastCounts(t *testing.T) {
	began, goesOn := make(chan string, 64), make(chan struct{})
	a := &fakeAgent{}
	a.ext = func(_ context.Context, _ string, params json.RawMessage) (any, error) {
		title := rawjson.MemberString(params, "title")
		began <- title
		if title == "0" {
			<-goesOn
		}
		return nil, nil
	}
	w := serve(t, a)
	goOn := sync.OnceFunc(func() { close(goesOn) })
	t.Cleanup(goOn)
	for i := range 20 {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/set_title","params":{"sessionId":"s","title":"%d"}}`, i, i))
	}
	w.send(`{"jsonrpc":"2.0","id":20,"method":"session/set_title","params":{"sessionId":"other","title":"other"}}`)
	w.want(`{"jsonrpc":"2.0","id":20,"result":{}}`)
	for range 2 {
		if got := <-began; got != "0" && got != "other" {
			t.Errorf("%s was set before what was asked for before it", got)
		}
	}
	w.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":10}}`) // it waits, and is answered at once
	w.want(`{"jsonrpc":"2.0","id":10,"error":{"code":-32800,"message":"the request was cancelled","data":{"type":"urn:sandbox-agent:error:cancelled"}}}`)
	goOn()
	for i := range 20 {
		if i == 10 {
			continue
		}
		w.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
		if i == 0 {
			continue
		}
		if got := <-began; got != strconv.Itoa(i) {
			t.Errorf("%s was set in the place of %d", got, i)
		}
	}
}

// A prompt begins with what was set before it, and not sooner. It waits for nothing of another session, and a cancel ends it at once.
func TestServeAgent_PromptBehindWhatIsSet(t *testing.T) {
	goesOn, set := make(chan struct{}), false
	a := &fakeAgent{prompt: func(ctx context.Context, _ acp.Peer, r *schema.PromptRequest) (*schema.PromptResponse, error) {
		select {
		case <-acp.TurnCancelled(ctx):
			return &schema.PromptResponse{StopReason: schema.StopReasonCancelled}, nil
		default:
		}
		if r.SessionID == "s" && !set {
			return nil, errors.New("begun too soon")
		}
		return &schema.PromptResponse{StopReason: schema.StopReasonEndTurn}, nil
	}}
	a.ext = func(context.Context, string, json.RawMessage) (any, error) {
		<-goesOn
		set = true
		return nil, nil
	}
	w := serve(t, a)
	goOn := sync.OnceFunc(func() { close(goesOn) })
	t.Cleanup(goOn)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"session/set_model","params":{"sessionId":"s","modelId":"m"}}`)
	w.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"other","prompt":[]}}`)
	w.want(`{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}`)
	w.send(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
	w.want(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"cancelled"}}`)
	w.send(`{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.send(`{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"other","prompt":[]}}`)
	w.want(`{"jsonrpc":"2.0","id":5,"result":{"stopReason":"end_turn"}}`)
	goOn()
	answers := map[string]bool{}
	for range 2 { // they travel beside each other
		line, err := w.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		answers[strings.TrimSpace(line)] = true
	}
	if want := map[string]bool{`{"jsonrpc":"2.0","id":1,"result":{}}`: true, `{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}`: true}; !cmp.Equal(want, answers) {
		t.Errorf("the answers are %v", answers)
	}
}

// What is set behind a prompt comes behind its begin, and does not wait for the end of its turn.
func TestServeAgent_WhatIsSetBehindAPrompt(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1)) // who is let go first comes first
	began, goesOn, ends := make(chan string, 8), make(chan struct{}), make(chan struct{})
	a := &fakeAgent{prompt: func(context.Context, acp.Peer, *schema.PromptRequest) (*schema.PromptResponse, error) {
		began <- "prompt"
		<-ends
		return &schema.PromptResponse{StopReason: schema.StopReasonEndTurn}, nil
	}}
	a.ext = func(_ context.Context, _ string, params json.RawMessage) (any, error) {
		title := rawjson.MemberString(params, "title")
		began <- title
		if title == "before" {
			<-goesOn
		}
		return nil, nil
	}
	w := serve(t, a)
	goOn, end := sync.OnceFunc(func() { close(goesOn) }), sync.OnceFunc(func() { close(ends) })
	t.Cleanup(func() { goOn(); end() })
	w.send(`{"jsonrpc":"2.0","id":1,"method":"session/set_title","params":{"sessionId":"s","title":"before"}}`)
	w.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
	w.send(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":1}}`)
	if _, err := w.out.ReadString('\n'); err != nil { // the prompt waits
		t.Fatal(err)
	}
	w.send(`{"jsonrpc":"2.0","id":3,"method":"session/set_title","params":{"sessionId":"s","title":"behind"}}`)
	w.send(`{"jsonrpc":"2.0","id":4,"method":"session/set_title","params":{"sessionId":"other","title":"other"}}`)
	w.want(`{"jsonrpc":"2.0","id":4,"result":{}}`) // the others were read
	goOn()
	w.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	var got []string
	for range 4 {
		if one := <-began; one != "other" {
			got = append(got, one)
		}
	}
	if diff := cmp.Diff([]string{"before", "prompt", "behind"}, got); diff != "" {
		t.Errorf("what began (-want +got):\n%s", diff)
	}
	w.want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	end()
	w.want(`{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}`)
}

func TestServeAgent_ContextEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	defer func() { _, _ = inW.Close(), outR.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	err := acp.ServeAgent(ctx, acp.OverLines(duplex{inR, outW}), func(acp.Peer) acp.Agent { return &fakeAgent{} })
	if !errors.Is(err, gone) {
		t.Errorf("ServeAgent: %v, want %v", err, gone)
	}
}

func TestServeAgent_LongLine(t *testing.T) {
	w := serve(t, &fakeAgent{prompt: func(ctx context.Context, p acp.Peer, r *schema.PromptRequest) (*schema.PromptResponse, error) {
		return nil, p.Update(ctx, r.SessionID, schema.AgentMessage(r.Prompt[0]))
	}})
	text := strings.Repeat("ä\\n<x>", 1<<20)
	go func() {
		_, _ = io.WriteString(w.in, `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"`+text+`"}]}}`+"\n")
	}()
	w.want(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}}}`)
	w.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
}
