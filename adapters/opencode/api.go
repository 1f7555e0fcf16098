package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	callBound = 60 * time.Second // for the answer to a request that is not a turn
	// maxBody bounds an answer: a larger one is an error.
	maxBody = 128 << 20
	// exitPause is how long a broken connection waits for the news that the
	// process has ended, which explains it.
	exitPause = 3 * time.Second
)

// refusal is an answer of the server that is an error.
type refusal struct {
	Status  int
	Name    string
	Message string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s (HTTP %d)", r.Message, r.Status) }

// vague reports whether the server does not tell the reason: it is in an event.
func (r *refusal) vague() bool { return r.Status >= 500 }

// refused returns the server's refusal, nil for other errors.
func refused(err error) *refusal {
	r, _ := errors.AsType[*refusal](err)
	return r
}

// unknown reports whether the server has no such thing.
func unknown(err error) bool {
	r := refused(err)
	return r != nil && r.Status == http.StatusNotFound
}

// at is a path in a directory.
func at(path, directory string, query ...string) string {
	q := url.Values{}
	if directory != "" {
		q.Set("directory", directory)
	}
	for i := 0; i+1 < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// call sends a request and waits for its answer at most callBound.
func (s *server) call(ctx context.Context, method, path string, body, result any) error {
	ctx, cancel := bridge.Within(ctx, callBound)
	defer cancel()
	return s.send(ctx, method, path, body, result)
}

// send sends a request. The error is a *refusal when the server refused, and how
// the process ended when it did. What was sent and answered is in no error: both
// hold secrets.
func (s *server) send(ctx context.Context, method, path string, body, result any) error {
	return s.sendBy(s.http, ctx, method, path, body, result)
}

func (s *server) sendBy(way *http.Client, ctx context.Context, method, path string, body, result any) error {
	what := method + " " + strings.SplitN(path, "?", 2)[0]
	var content io.Reader
	var sent []byte
	if body != nil {
		var err error
		if sent, err = schema.Encode(body); err != nil {
			return fmt.Errorf("encode %s: %w", what, err)
		}
		content = bytes.NewReader(sent)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, content)
	if err != nil {
		return fmt.Errorf("ask opencode for %s: %w", what, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.SetBasicAuth(user, s.pass)
	s.toServer(method, path, sent)
	resp, err := way.Do(r)
	if err != nil {
		return s.broken(ctx, what, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return s.broken(ctx, what, err)
	}
	s.fromServer(fmt.Sprintf("%d %s %s", resp.StatusCode, method, path), b)
	if len(b) > maxBody {
		return fmt.Errorf("opencode answers %s with more than %d bytes", what, maxBody)
	}
	if resp.StatusCode >= 300 {
		return refusalOf(resp.StatusCode, b)
	}
	if result == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if kind := resp.Header.Get("Content-Type"); !strings.Contains(kind, "json") {
		return fmt.Errorf("opencode does not know %s: it answers with %q", what, kind)
	}
	if err := json.Unmarshal(b, result); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil // of something newer than this package
		}
		return fmt.Errorf("read opencode's answer to %s: %w", what, err)
	}
	return nil
}

// toServer and fromServer tell the tap of a request, and of an answer or an event, as one
// line each.
func (s *server) toServer(method, path string, body []byte) {
	if tap := s.a.o.Tap; tap != nil {
		tap.ToAgent(line(method+" "+path, body))
	}
}

func (s *server) fromServer(what string, body []byte) {
	if tap := s.a.o.Tap; tap != nil {
		tap.FromAgent(line(what, body))
	}
}

func line(what string, body []byte) []byte {
	if body = bytes.TrimSpace(body); len(body) == 0 {
		return []byte(what)
	}
	return append([]byte(what+" "), body...)
}

// broken explains a connection that broke.
func (s *server) broken(ctx context.Context, what string, err error) error {
	if ctx.Err() == nil {
		wait := time.NewTimer(exitPause)
		defer wait.Stop()
		select {
		case <-s.ended:
			return s.exit
		case <-ctx.Done():
		case <-wait.C:
		}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the address
	}
	return fmt.Errorf("ask opencode for %s: %w", what, err)
}

func refusalOf(status int, body []byte) *refusal {
	r := &refusal{Status: status}
	var e struct {
		Name    string `json:"name"`
		Tag     string `json:"_tag"`
		Message string `json:"message"`
		Data    struct {
			Message string `json:"message"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &e) == nil {
		r.Name, r.Message = e.Name+e.Tag, e.Data.Message+e.Message
	}
	if r.Message == "" {
		r.Message = "opencode refused without a reason"
	}
	return r
}
