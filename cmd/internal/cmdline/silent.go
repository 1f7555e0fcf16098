package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/internal/secret"
	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// AnswerBound is how long a server may take for what it answers at once, whatever else it does. Tests lower it.
var AnswerBound = 25 * time.Second // less than the usual --timeout, which does not say that nothing was heard

// ErrSilent is of a server that takes connections and says nothing: its process is stopped, or stuck.
var ErrSilent = lasting.ErrSilent

func silence(server *url.URL, since time.Time) error {
	return fmt.Errorf("%s %w: nothing was heard for %v", secret.Address(server.String()), ErrSilent, max(time.Since(since).Round(time.Second), time.Second))
}

// AtOnce asks a server for what it answers at once, for commands that else have all the time of a turn.
func AtOnce[T any](ctx context.Context, endpoint string, ask func(ctx context.Context) (T, error)) (T, error) {
	began := time.Now()
	within, cancel := context.WithTimeoutCause(ctx, AnswerBound, ErrSilent)
	defer cancel()
	got, err := ask(within)
	if err != nil && errors.Is(context.Cause(within), ErrSilent) {
		if server, wrong := url.Parse(endpoint); wrong == nil {
			err = silence(server, began)
		}
	}
	return got, err
}

// HTTPClient returns a client that gives up a request, however long that may take, when the server has gone silent, and
// follows no redirects: they would carry the token to where it does not belong.
func HTTPClient() *http.Client {
	return &http.Client{
		Transport:     Heard{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

var transport = socket.Transport()

// Heard gives up requests to a server that does not answer. While there is no answer to one it asks now and then
// for what a server says at once.
type Heard struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (h Heard) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
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
	watch = time.AfterFunc(AnswerBound/2, func() {
		<-begun
		switch silent := !body.lately.Swap(false) && h.silent(asking, r); {
		case silent && over.CompareAndSwap(false, true):
			give(ErrSilent)
		case !over.Load():
			watch.Reset(AnswerBound / 2)
		}
	})
	close(begun)
	resp, err := h.RoundTripper.RoundTrip(r)
	answered := over.CompareAndSwap(false, true)
	watch.Stop()
	switch {
	case err == nil && answered:
		if _, upgraded := resp.Body.(io.Writer); !upgraded {
			resp.Body = &heardBody{resp.Body, give}
		}
		return resp, nil
	case err == nil:
		_ = resp.Body.Close()
	case answered:
		give(nil)
		return nil, err
	}
	return nil, silence(base(r.URL), began)
}

// heardBody is the body of an answer, with which the context of its request ends.
type heardBody struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close implements io.Closer.
func (b *heardBody) Close() error {
	defer b.end(nil)
	return b.ReadCloser.Close()
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

// base is the address of the server, as commands are given it.
func base(of *url.URL) *url.URL {
	before, _, _ := strings.Cut(of.Path, "/v2/")
	return &url.URL{Scheme: of.Scheme, User: of.User, Host: of.Host, Path: before}
}

// silent reports whether the server of a request says nothing, whatever it is asked.
func (h Heard) silent(ctx context.Context, of *http.Request) bool {
	within, cancel := context.WithTimeoutCause(ctx, AnswerBound/2, ErrSilent)
	defer cancel()
	u := base(of.URL).JoinPath("v2", "health")
	r, err := http.NewRequestWithContext(within, http.MethodGet, u.String(), nil)
	if err != nil {
		return false
	}
	if token := of.Header.Get("Authorization"); token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := h.RoundTripper.RoundTrip(r)
	if err != nil {
		return errors.Is(context.Cause(within), ErrSilent)
	}
	_ = resp.Body.Close()
	return false
}
