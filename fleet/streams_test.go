package fleet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
)

// Requests that follow each other go by one stream, whatever their answers are.
func TestStreams_AreUsedAgain(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/chunks":
			_, _ = io.WriteString(w, "one ")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "two")
		case "/large":
			_, _ = w.Write(make([]byte, 200<<10))
		default:
			_, _ = io.WriteString(w, "plain")
		}
	}))
	h.awaitState("box", fleet.StateOnline)
	streams := func() (n int) {
		_, body := h.ask(http.MethodGet, "/metrics", adminToken, nil)
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "sandbox_hub_tunnel_streams ") {
				_, _ = fmt.Sscanf(line, "sandbox_hub_tunnel_streams %d", &n)
			}
		}
		return n
	}
	before := -1
	for range 10 {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			for path, want := range map[string]int{"/none": http.StatusNoContent, "/chunks": 200, "/large": 200, "/plain": 200} {
				if status, body := h.ask(method, "/nodes/box"+path, adminToken, nil); status != want {
					t.Fatalf("%s %s: %d %s", method, path, status, body)
				}
			}
		}
		if before < 0 {
			before = streams()
		}
	}
	if n := streams(); n > before+1 {
		t.Errorf("there are %d streams after 120 requests, and were %d after 12", n, before)
	}
}

// A large answer passes as it is. One that the node does not finish does not look whole.
func TestStreams_LargeAnswers(t *testing.T) {
	h := startHub(t)
	want := bytes.Repeat([]byte("0123456789abcde\n"), 100_000)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(want)))
		if r.URL.Path == "/half" {
			_, _ = w.Write(want[:len(want)/2])
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(want)
	}))
	h.awaitState("box", fleet.StateOnline)
	for range 3 {
		resp := h.open(http.MethodGet, "/nodes/box/whole", adminToken, nil)
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came of %d, or others: %v", len(got), len(want), err)
		}
		resp = h.open(http.MethodGet, "/nodes/box/half", adminToken, nil)
		got, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.HasPrefix(want, got) {
			t.Errorf("of an answer that the node cut %d bytes came: %v", len(got), err)
		}
	}
}

// A node may say beforehand that an answer will come. Clients are told.
func TestStreams_EarlyHints(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "here")
	}))
	h.awaitState("box", fleet.StateOnline)
	if status, body := h.ask(http.MethodGet, "/nodes/box/x", adminToken, nil); status != http.StatusOK || string(body) != "here" {
		t.Errorf("%d %q", status, body)
	}
}
