package scriptedmodel

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// AmpTeamKey is an API key of a member of Amp's own team: only they may use other
// modes than the usual one in the program's JSON stream.
const AmpTeamKey = "sgamp_team"

// AmpRefusedKey is an API key that Amp's server does not know.
const AmpRefusedKey = "sgamp_refused"

// ampTitleTool is the tool by which Amp wants a thread's title.
const ampTitleTool = "set_title"

// isAmp reports whether a request is for Amp's own server, which Amp asks besides
// the providers that it reaches through it.
func isAmp(req *http.Request) bool {
	return req.Method == http.MethodPost && (req.URL.Path == "/api/internal" || req.URL.Path == "/api/telemetry")
}

// amp answers for Amp's server: who the user is, and yes to all the rest. The
// key decides what it says.
func (m *Model) amp(w http.ResponseWriter, req *http.Request) {
	method := req.URL.RawQuery
	m.mu.Lock()
	m.ampAsked = append(m.ampAsked, method)
	m.wakeLocked()
	m.mu.Unlock()
	key := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
	email := "somebody@example.com"
	switch {
	case key == AmpRefusedKey || key == "":
		writeJSON(w, http.StatusUnauthorized, map[string]any{"ok": false, "error": map[string]any{"code": "auth-required", "message": "this key is not known"}})
		return
	case key == AmpTeamKey:
		email = "somebody@ampcode.com"
	}
	result := map[string]any{}
	if method == "getUserInfo" {
		result = map[string]any{"id": "user_1", "email": email, "username": "somebody", "displayName": "Somebody", "features": []any{}}
	}
	writeJSON(w, http.StatusOK, map[string]any{"ok": true, "result": result})
}

// AmpAsked returns the methods that Amp's server was asked for, in order.
func (m *Model) AmpAsked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ampAsked)
}

// wantsAmpTitle reports whether a request wants a title by a tool.
func (r *Request) wantsAmpTitle() bool { return len(r.Tools) == 1 && r.Tools[0].Name == ampTitleTool }

func ampTitle(text string) Action {
	return Call(ampTitleTool, map[string]json.RawMessage{"title": json.RawMessage(literal(text))})
}
