package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// A client reads in which time a program has not answered, and what to do, however the program was asked.
func TestWithin_ClientsAreTold(t *testing.T) {
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, ask := range map[string]func(ctx context.Context) error{
		"by the context": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"by HTTP": func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+silent.Addr().String(), http.NoBody)
			if err != nil {
				return err
			}
			way := &http.Transport{}
			defer way.CloseIdleConnections()
			resp, err := way.RoundTrip(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		},
	} {
		c, _ := open(func(ctx context.Context, _ *talker) error {
			ctx, cancel := bridge.Within(ctx, 50*time.Millisecond)
			defer cancel()
			err := ask(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v is no end of a time", name, err)
			}
			return fmt.Errorf("ask it: %w", err)
		})
		write(t, c, promptFrame)
		m, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e := m.Err(); e == nil || !strings.HasPrefix(e.Message, "ask it: ") || !strings.Contains(e.Message, "no answer within 50ms: try again") || strings.Contains(e.Message, "context") ||
			rawjson.MemberString(e.Data, "type") != "urn:sandbox-agent:error:timeout" {
			t.Errorf("%s: %s", name, m.Frame())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	within, done := bridge.Within(ctx, time.Hour)
	defer done()
	if cancel(); !errors.Is(within.Err(), context.Canceled) {
		t.Errorf("cancelled it says %v", within.Err())
	}
}
