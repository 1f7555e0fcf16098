package acphttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
)

// cutting is an answer on whose way its handler ends.
type cutting struct {
	http.ResponseWriter
	h *Handler
}

func (c cutting) Write(p []byte) (int, error) {
	c.h.cutOff()
	return c.ResponseWriter.Write(p)
}

func (c cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// The handler's end meets answers in all their moments, also when they have just ended. What is left of them then, or of their
// connection, is not the handler's any more.
func TestDeadline_EndsTogetherWithTheAnswer(t *testing.T) {
	l := pipes.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := New(fakeGateway{newFakeClient()}, Options{})
		h.ServeHTTP(cutting{w, h}, r)
	}))
	c := http.Client{Transport: l.Transport(t, true)} // HTTP/2, whose answers panic when they are used behind their end
	for range 500 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(r)
		if err != nil {
			continue // it was ended before
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// awaiting is a gateway that does nothing for a request that has ended.
type awaiting struct{ fakeGateway }

func (g awaiting) Connect(ctx context.Context, m acp.Message, o acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, acp.Reply{}, err
	}
	return g.fakeGateway.Connect(ctx, m, o)
}

type lastByte struct {
	io.ReadCloser
	come func()
}

func (b lastByte) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.come()
	}
	return n, err
}

// When others need the memory of a body with its last byte, its client is told so, and its next request is served.
func TestPost_OthersNeedTheMemoryAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4 << 20
		all := memory.NewBound(most)
		h := New(awaiting{fakeGateway{newFakeClient()}}, Options{Memory: all})
		need := func() { // for as long as others take to look who stands still
			go func() {
				other := all.Open(nil)
				defer other.Close()
				if err := other.Take(t.Context(), most*3/4); err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(3 * time.Second) // of the test's own clock
		}
		l := pipes.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > most/8 {
				r.Body = lastByte{r.Body, need}
			}
			h.ServeHTTP(w, r)
		}))
		conn := l.Dial()
		defer func() { _ = conn.Close() }()
		answers := bufio.NewReader(conn)
		for _, row := range []struct{ padding, status int }{{most / 4, http.StatusTooManyRequests}, {0, http.StatusOK}} {
			body := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}` + strings.Repeat(" ", row.padding)
			go func(conn net.Conn) {
				_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			}(conn)
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != row.status {
				t.Errorf("it got %s %s, %v", resp.Status, b, err)
			}
			if resp.Close {
				_ = conn.Close()
				conn = l.Dial()
				answers.Reset(conn)
			}
		}
	})
}
