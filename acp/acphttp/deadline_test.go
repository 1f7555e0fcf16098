package acphttp

import (
	"io"
	"net/http"
	"strings"
	"testing"

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
