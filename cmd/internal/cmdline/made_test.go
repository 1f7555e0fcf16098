package cmdline_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// Who has a server make something, and gets no answer of it, is told that it may be there. Who gets one, or has not reached
// the server, is not.
func TestMade_AnswerThatDoesNotCome(t *testing.T) {
	ends := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}
	says := func(status int, mediaType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tt := range map[string]struct {
		serve http.HandlerFunc // nil for an address where nobody listens
		maybe bool
	}{
		"the connection breaks":            {ends, true},
		"the answer breaks off":            {func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "9"); ends(w, r) }, true},
		"a proxy says that it got nothing": {says(http.StatusBadGateway, "text/html", "<h1>502</h1>"), true},
		"a proxy says that it took long":   {says(http.StatusGatewayTimeout, "text/html", "<h1>504</h1>"), true},
		"the server refuses":               {says(http.StatusServiceUnavailable, "application/problem+json", `{"type":"urn:sandbox-agent:error:unavailable","detail":"full"}`), false},
		"a proxy refuses":                  {says(http.StatusForbidden, "text/html", "<h1>403</h1>"), false},
		"another server":                   {says(http.StatusNotFound, "text/html", "<h1>404</h1>"), false},
		"nobody listens":                   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(tt.serve)
			if tt.serve == nil {
				srv.Close()
			} else {
				defer srv.Close()
			}
			_, err := cmdline.Made(t.Context(), io.Discard, "it may be there", func(ctx context.Context) (string, error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, http.NoBody)
				if err != nil {
					return "", err
				}
				resp, err := srv.Client().Do(req)
				if err != nil {
					return "", err
				}
				defer func() { _ = resp.Body.Close() }()
				return "", acphttp.ReadProblem(resp)
			})
			_, maybe := errors.AsType[*cmdline.UnansweredError](err)
			if maybe != tt.maybe || err == nil {
				t.Errorf("the error is %v, and tells that it may be there: %v, want %v", err, maybe, tt.maybe)
			}
		})
	}
}
