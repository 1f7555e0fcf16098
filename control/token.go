package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
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
	tokens, err := PresentedTokens(r)
	if err != nil {
		return err
	}
	for _, token := range tokens {
		if t.match(token) {
			return nil
		}
	}
	if len(tokens) > 0 {
		return problem.New(problem.TokenInvalid, "the token is not this server's token")
	}
	return problem.New(problem.TokenInvalid, "this server needs a token: send it as Authorization: Bearer")
}

// PresentedTokens returns the tokens that a request carries, in its headers and,
// if it asks for a WebSocket, in the subprotocols it offers. One in the query is a
// problem.
func PresentedTokens(r *http.Request) (tokens []string, err error) {
	if name := queryToken(r.URL.RawQuery); name != "" {
		return nil, problem.New(problem.TokenInvalid, "the query parameter %s is not accepted, because addresses end up in logs: send the token as Authorization: Bearer", name)
	}
	for _, v := range r.Header["Authorization"] {
		if scheme, token, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "bearer") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	tokens = append(tokens, r.Header["X-Sandbox-Token"]...)
	if isWebSocket(r) {
		for _, v := range offered(r.Header, "Sec-Websocket-Protocol") {
			if encoded, ok := strings.CutPrefix(v, subprotocolBearer); ok {
				token, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
				if err != nil {
					token = []byte(encoded) // is nobody's
				}
				tokens = append(tokens, string(token))
			}
		}
	}
	return tokens, nil
}

// WithholdTokens takes out of a request's headers what PresentedTokens reads, for
// those who pass it on.
func WithholdTokens(h http.Header) {
	h.Del("Authorization")
	h.Del("X-Sandbox-Token")
	if offers := offered(h, "Sec-Websocket-Protocol"); len(offers) > 0 {
		offers = slices.DeleteFunc(offers, func(v string) bool { return strings.HasPrefix(v, subprotocolBearer) })
		if h.Del("Sec-Websocket-Protocol"); len(offers) > 0 {
			h.Set("Sec-Websocket-Protocol", strings.Join(offers, ", "))
		}
	}
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
