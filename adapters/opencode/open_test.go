package opencode

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// Only a session that opencode says it does not have is gone.
func TestFind_GoneOrNotNow(t *testing.T) {
	for status, gone := range map[int]bool{
		http.StatusNotFound: true, http.StatusBadRequest: false, http.StatusUnauthorized: false,
		http.StatusTooManyRequests: false, http.StatusInternalServerError: false,
	} {
		answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"name":"E","data":{"message":"no"}}`))
		}))
		s := &server{a: &agent{}, base: answers.URL, http: answers.Client()}
		if _, err := s.find(t.Context(), "ses_1"); err == nil || bridge.IsNotFound(err) != gone {
			t.Errorf("HTTP %d: %v", status, err)
		}
		answers.Close()
	}
}
