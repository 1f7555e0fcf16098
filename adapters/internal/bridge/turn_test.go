package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// turner is an agent whose prompts wait for each other in a Slot.
type turner struct {
	talker
	slot  bridge.Slot
	ended chan struct{}
	began chan struct{} // one for each turn
	turn  func(w *bridge.Waiting) error
}

func (a *turner) Prompt(ctx context.Context, _ *schema.PromptRequest) (*schema.PromptResponse, error) {
	return a.slot.Prompt(ctx, a.ended, func() error { return acp.Errorf(acp.CodeInternal, "it is gone") }, func(w *bridge.Waiting) (*schema.PromptResponse, error) {
		a.began <- struct{}{}
		if err := a.turn(w); err != nil {
			return nil, err
		}
		return &schema.PromptResponse{StopReason: schema.StopReasonEndTurn}, nil
	})
}

func openTurner(t *testing.T, turn func(*bridge.Waiting) error) (*bridge.Conn, *turner) {
	a := &turner{slot: bridge.NewSlot(), ended: make(chan struct{}), began: make(chan struct{}, 8), turn: turn}
	a.closed = make(chan struct{})
	c := bridge.New(func(acp.Peer, *bridge.Conn) acp.Agent { return a })
	t.Cleanup(func() { _ = c.Close() })
	return c, a
}

func prompt(id int) acp.Message {
	return acp.NewRequest(acp.IntID(int64(id)), acp.MethodSessionPrompt, promptFrame.Params())
}

var cancelFrame = acp.NewNotification(acp.MethodSessionCancel, []byte(`{"sessionId":"S"}`))

// answers reads the responses to n requests, by id.
func answers(t *testing.T, c *bridge.Conn, n int) map[string]string {
	t.Helper()
	got := map[string]string{}
	for len(got) < n {
		m, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e := m.Err(); e != nil {
			got[string(m.ID())] = e.Message
		} else {
			got[string(m.ID())] = rawjson.MemberString(m.Result(), "stopReason")
		}
	}
	return got
}

func TestSlot_PromptsWaitForEachOther(t *testing.T) {
	goOn := make(chan struct{})
	c, a := openTurner(t, func(w *bridge.Waiting) error { return w.For(goOn) })
	write(t, c, prompt(1))
	<-a.began
	write(t, c, prompt(2))
	select {
	case <-a.began:
		t.Fatal("two turns run at one time")
	case <-time.After(50 * time.Millisecond): // nothing tells that nothing happens
	}
	close(goOn)
	<-a.began
	if got := answers(t, c, 2); got["1"] != "end_turn" || got["2"] != "end_turn" {
		t.Error(got)
	}
}

func TestSlot_WhatEndsAWaitingPrompt(t *testing.T) {
	never := make(chan struct{})
	for name, tt := range map[string]struct {
		wait func(*bridge.Waiting) error
		end  func(*bridge.Conn, *turner)
		want string // of the prompt that runs and of the one behind it
	}{
		"cancelled": {
			func(w *bridge.Waiting) error { return w.For(never) },
			func(c *bridge.Conn, _ *turner) { _ = c.Write(context.Background(), cancelFrame) }, "cancelled",
		},
		"cancelled in a bounded wait": {
			func(w *bridge.Waiting) error { return w.ForAtMost(time.Hour, never) },
			func(c *bridge.Conn, _ *turner) { _ = c.Write(context.Background(), cancelFrame) }, "cancelled",
		},
		"agent gone": {
			func(w *bridge.Waiting) error { return w.For(never) },
			func(_ *bridge.Conn, a *turner) { close(a.ended) }, "it is gone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, a := openTurner(t, tt.wait)
			write(t, c, prompt(1))
			<-a.began
			write(t, c, prompt(2))
			tt.end(c, a)
			if got := answers(t, c, 2); got["1"] != tt.want || got["2"] != tt.want {
				t.Errorf("%v, want %s", got, tt.want)
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	over := make(chan struct{})
	close(over)
	var checked error
	passed := make(chan struct{})
	c, _ := openTurner(t, func(w *bridge.Waiting) error {
		if err := errors.Join(w.Check(), w.For(over), w.ForAtMost(time.Millisecond, make(chan struct{}))); err != nil {
			return fmt.Errorf("waits that nothing disturbs: %w", err)
		}
		close(passed)
		<-w.Cancelled
		checked = w.Check()
		return checked
	})
	write(t, c, prompt(1))
	<-passed
	write(t, c, cancelFrame)
	if got := answers(t, c, 1); got["1"] != "cancelled" || checked == nil {
		t.Errorf("%v, checked %v", got, checked)
	}
}
