package control

import (
	"crypto/rand"
	"net/http"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// maxRequestID bounds the ids that clients give their requests.
const maxRequestID = 128

// RequestID returns the id that a client gave its request, if it can be shown
// anywhere as it is, else a new one.
func RequestID(h http.Header) string {
	values := h[problem.RequestIDHeader]
	if len(values) == 1 && plainRequestID(values[0]) {
		return values[0]
	}
	return rand.Text()
}

func plainRequestID(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c == '-', c == '_', c == '.', c == ':', c == '/', c == '+', c == '=':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}
