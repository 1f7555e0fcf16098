package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// answerBound is how long a gateway may take for what it answers at once, whatever else it does. Tests lower it.
var answerBound = 25 * time.Second // less than standardTimeout, which does not say that nothing was heard

// errSilent is of a gateway that takes connections and says nothing: its process is stopped, or stuck.
var errSilent = errors.New("it takes connections, and does not answer")

func silence() error { return fmt.Errorf("%w: nothing was heard for %v", errSilent, answerBound) }

// atOnce asks a gateway for what it answers at once, for commands that else have all the time of a turn.
func atOnce[T any](ctx context.Context, ask func(ctx context.Context) (T, error)) (T, error) {
	within, cancel := context.WithTimeoutCause(ctx, answerBound, errSilent)
	defer cancel()
	got, err := ask(within)
	if err != nil && errors.Is(context.Cause(within), errSilent) {
		err = silence()
	}
	return got, err
}

// client returns a client of the gateway's HTTP API. It gives up a request, however long that may take, when the
// gateway has gone silent.
func (t target) client() (*client.Client, error) {
	return client.New(t.endpoint, client.Options{Token: t.token, HTTP: &http.Client{
		Transport:     heard{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
}

var transport = socket.Transport()

// heard gives up requests to a gateway that does not answer. While there is no answer to one it asks now and then
// for what a gateway says at once.
type heard struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (h heard) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, give := context.WithCancelCause(r.Context())
	asking, enough := context.WithCancel(ctx)
	defer enough()
	r = r.WithContext(ctx)
	body := &taken{}
	if r.Body != nil && r.Body != http.NoBody {
		body.ReadCloser, r.Body = r.Body, body
	}
	var over atomic.Bool // it was answered, or given up
	var watch *time.Timer
	begun := make(chan struct{})
	watch = time.AfterFunc(answerBound/2, func() {
		<-begun
		switch silent := !body.lately.Swap(false) && h.silent(asking, r); {
		case silent && over.CompareAndSwap(false, true):
			give(errSilent)
		case !over.Load():
			watch.Reset(answerBound / 2)
		}
	})
	close(begun)
	resp, err := h.RoundTripper.RoundTrip(r)
	answered := over.CompareAndSwap(false, true)
	watch.Stop()
	switch {
	case err == nil && answered:
		return resp, nil // its body ends with ctx, which ends with that of the request
	case err == nil:
		_ = resp.Body.Close()
	case answered:
		give(nil)
		return nil, err
	}
	return nil, silence()
}

// taken is the body of a request. As long as some of it goes, the other end is there: on a slow network a question
// beside it can wait behind it.
type taken struct {
	io.ReadCloser
	lately atomic.Bool // since this was looked at last
}

// Read implements io.Reader.
func (b *taken) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.lately.Store(true)
	}
	return n, err
}

// silent reports whether the server of a request says nothing, whatever it is asked.
func (h heard) silent(ctx context.Context, of *http.Request) bool {
	within, cancel := context.WithTimeoutCause(ctx, answerBound/2, errSilent)
	defer cancel()
	before, _, _ := strings.Cut(of.URL.Path, "/v2/")
	u := url.URL{Scheme: of.URL.Scheme, User: of.URL.User, Host: of.URL.Host, Path: path.Join("/", before, "v2", "health")}
	r, err := http.NewRequestWithContext(within, http.MethodGet, u.String(), nil)
	if err != nil {
		return false
	}
	if token := of.Header.Get("Authorization"); token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := h.RoundTripper.RoundTrip(r)
	if err != nil {
		return errors.Is(context.Cause(within), errSilent)
	}
	_ = resp.Body.Close()
	return false
}
