package join

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// refusing answers each attempt to join, and notes when it came.
type refusing struct {
	after string // of the answer's Retry-After
	at    []time.Time
}

// RoundTrip implements [http.RoundTripper].
func (r *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	r.at = append(r.at, time.Now())
	answer := httptest.NewRecorder()
	if r.after != "" {
		answer.Header().Set("Retry-After", r.after)
	}
	answer.WriteHeader(http.StatusServiceUnavailable)
	return answer.Result(), nil
}

// A gateway that is told when to come again comes then, and not all do at one time. What is no number of
// seconds says nothing, and nobody waits for longer than a minute for it.
func TestRun_ComesAgain(t *testing.T) {
	for after, want := range map[string]struct{ least, most time.Duration }{
		"":                              {leastWait, leastWait + firstWait},
		"10":                            {10 * time.Second, 10*time.Second + leastWait + firstWait},
		"86400":                         {mostLater, mostLater + leastWait + firstWait},
		"-5":                            {leastWait, leastWait + firstWait},
		"Wed, 21 Oct 2026 07:28:00 GMT": {leastWait, leastWait + firstWait},
	} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte("a-token"), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := New(Options{Hub: &url.URL{Scheme: "http", Host: "hub.test"}, TokenFile: file, Name: "box"})
			if err != nil {
				t.Fatal(err)
			}
			hub := &refusing{after: after}
			j.http.Transport = hub
			ctx, stop := context.WithTimeout(t.Context(), want.most)
			defer stop()
			j.Run(ctx)
			if len(hub.at) < 2 {
				t.Fatalf("%q: it did not come again within %v", after, want.most)
			}
			if took := hub.at[1].Sub(hub.at[0]); took < want.least || took > want.most {
				t.Errorf("%q: it came again after %v, want %v to %v", after, took, want.least, want.most)
			}
		})
	}
}

// The nodes of a hub that has gone do not come again all at once.
func TestRun_NodesComeSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 100
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("a-token"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), leastWait+firstWait)
		defer stop()
		var hubs [nodes]refusing
		var all sync.WaitGroup
		for i := range hubs {
			j, err := New(Options{Hub: &url.URL{Scheme: "http", Host: "hub.test"}, TokenFile: file, Name: fmt.Sprintf("node-%d", i)})
			if err != nil {
				t.Fatal(err)
			}
			j.http.Transport = &hubs[i]
			all.Go(func() { j.Run(ctx) })
		}
		all.Wait()
		var knocks []time.Time
		for i := range hubs {
			knocks = append(knocks, hubs[i].at[1])
		}
		slices.SortFunc(knocks, time.Time.Compare)
		for i, k := range knocks[:nodes/2] { // half of them never come within a tenth of the time
			if within := knocks[i+nodes/2].Sub(k); within < firstWait/10 {
				t.Errorf("%d of %d come within %v", nodes/2, nodes, within)
			}
		}
	})
}
