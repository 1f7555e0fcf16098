package main_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// Whoever reads a session while it is closed, ended, deleted, trimmed or prompted gets
// all that was asked for, or is told why not: never half of it as if it were all, never
// an error of the gateway's own, never nothing.
func TestMeet_ReadersAndEnds(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--retain-session-bytes", "200000")
	c := connect(t, g, wsocket, options{})
	seed := uint64(time.Now().UnixNano())
	dice := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)

	rounds := 1
	if agentcache.IsLong() {
		rounds = 50
	}
	reads := map[string]func(id string) string{
		"get":        func(id string) string { return "/v2/sessions/" + id },
		"events":     func(id string) string { return "/v2/sessions/" + id + "/events?limit=1000" },
		"markdown":   func(id string) string { return "/v2/sessions/" + id + "/transcript?format=markdown" },
		"html":       func(id string) string { return "/v2/sessions/" + id + "/transcript?format=html" },
		"jsonl":      func(id string) string { return "/v2/sessions/" + id + "/transcript?format=jsonl" },
		"search":     func(string) string { return "/v2/sessions?q=unmistakable" },
		"newest":     func(string) string { return "/v2/sessions?sort=activity&limit=5" },
		"export":     func(id string) string { return "/v2/sessions/" + id + "/export" },
		"statistics": func(string) string { return "/v2/health" },
	}
	whole := map[string]func(body []byte) bool{
		"html":     func(b []byte) bool { return bytes.HasSuffix(b, []byte("</html>\n")) },
		"markdown": func(b []byte) bool { return bytes.HasSuffix(b, []byte("\n")) },
		"export": func(b []byte) bool {
			from, err := zstd.NewReader(bytes.NewReader(b))
			if err != nil {
				return false
			}
			defer from.Close()
			for entries := tar.NewReader(from); ; {
				if _, err := entries.Next(); err != nil {
					return err == io.EOF
				}
			}
		},
		"jsonl": func(b []byte) bool {
			for line := range bytes.Lines(b) {
				if !json.Valid(line) {
					return false
				}
			}
			return true
		},
	}
	ends := map[string]func(id string){
		"delete by HTTP": func(id string) { g.ask("DELETE", "/v2/sessions/"+id, "") },
		"delete by ACP":  func(id string) { c.call("session/delete", map[string]any{"sessionId": id}) },
		"close":          func(id string) { g.ask("POST", "/v2/sessions/"+id+"/close", "") },
		"close, delete": func(id string) {
			g.ask("POST", "/v2/sessions/"+id+"/close", "")
			g.ask("DELETE", "/v2/sessions/"+id, "")
		},
		"a prompt, delete": func(id string) {
			c.call("session/prompt", map[string]any{"sessionId": id, "prompt": []any{map[string]any{"type": "text", "text": "echo once more"}}})
			g.ask("DELETE", "/v2/sessions/"+id, "")
		},
	}
	for name, end := range ends {
		for range rounds {
			id := c.newSession()
			c.prompt(id, "echo unmistakable "+strings.Repeat("words, ", 2000+dice.IntN(4000)))
			c.prompt(id, "stream 600 300")
			if dice.IntN(2) == 0 {
				g.ask("POST", "/v2/sessions/"+id+"/close", "") // its log is read from the disk
			}
			ctx, stop := context.WithCancel(context.Background())
			read := make(chan struct{})
			var readers sync.WaitGroup
			for what, path := range reads {
				readers.Go(func() {
					for n := 0; ctx.Err() == nil || n == 0; n++ {
						if err := g.readsWhole(path(id), whole[what]); err != nil {
							t.Errorf("%s meets %s: %v", what, name, err)
							return
						}
						select {
						case read <- struct{}{}:
						case <-ctx.Done():
						}
					}
				})
			}
			for range dice.IntN(3 * len(reads)) { // the moment is what is tried
				<-read
			}
			go func() { // they read on meanwhile
				for {
					select {
					case <-read:
					case <-ctx.Done():
						return
					}
				}
			}()
			end(id)
			stop()
			readers.Wait()
			if name != "close" {
				if a := g.ask("GET", "/v2/sessions/"+id+"/transcript", ""); a.status != http.StatusNotFound {
					t.Errorf("after %s the transcript answers %d", name, a.status)
				}
			}
		}
	}
}

// readsWhole reads a resource that may go away: all of it, or a problem that says why not.
func (g *gateway) readsWhole(path string, whole func([]byte) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := g.do(ctx, http.MethodGet, path, "", "*/*")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusOK && err != nil:
		return nil // it was cut off, and whoever reads it knows
	case err != nil:
		return err
	case resp.StatusCode == http.StatusOK:
		if whole != nil && !whole(b) || whole == nil && !json.Valid(b) {
			return fmt.Errorf("%s was cut off and looks whole: %d bytes, the last %q", path, len(b), b[max(0, len(b)-80):])
		}
		return nil
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusGone, resp.StatusCode == http.StatusConflict:
		if !json.Valid(b) {
			return fmt.Errorf("%s answers %d with %q", path, resp.StatusCode, b)
		}
		return nil
	}
	return fmt.Errorf("%s answers %d: %s", path, resp.StatusCode, b)
}
