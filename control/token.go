package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// subprotocolBearer begins the WebSocket subprotocol that carries a token, for
// browsers, which cannot set headers on a WebSocket.
const subprotocolBearer = "bearer."

// tokenCheck knows a token by its hash, so that comparing takes the same time
// for tokens of any length.
type tokenCheck struct{ sum [sha256.Size]byte }

func newTokenCheck(token string) tokenCheck { return tokenCheck{sha256.Sum256([]byte(token))} }

func (t *tokenCheck) match(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}

// check returns a problem unless the request presents the token.
func (t *tokenCheck) check(r *http.Request) error {
	if name := queryToken(r.URL.RawQuery); name != "" {
		return problem.New(problem.TokenInvalid, "the query parameter %s is not accepted, because addresses end up in logs: send the token as Authorization: Bearer", name)
	}
	presented := false
	for _, v := range r.Header["Authorization"] {
		if scheme, token, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "bearer") {
			if t.match(strings.TrimSpace(token)) {
				return nil
			}
			presented = true
		}
	}
	for _, v := range r.Header["X-Sandbox-Token"] {
		if t.match(v) {
			return nil
		}
		presented = true
	}
	if isWebSocket(r) {
		for _, v := range offered(r.Header, "Sec-Websocket-Protocol") {
			if encoded, ok := strings.CutPrefix(v, subprotocolBearer); ok {
				token, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
				if err == nil && t.match(string(token)) {
					return nil
				}
				presented = true
			}
		}
	}
	if presented {
		return problem.New(problem.TokenInvalid, "the token is not this server's token")
	}
	return problem.New(problem.TokenInvalid, "this server needs a token: send it as Authorization: Bearer")
}

// queryToken returns the name of a query parameter that carries a token.
func queryToken(rawQuery string) string {
	if rawQuery == "" {
		return ""
	}
	q, _ := url.ParseQuery(rawQuery) // what it could not parse carries no token
	for _, name := range []string{"token", "access_token"} {
		if q.Has(name) {
			return name
		}
	}
	return ""
}
