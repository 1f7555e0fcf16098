package fleet

import (
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

const (
	maxBody = 64 << 10 // bytes of a body that asks for something
	maxNote = 200      // runes

	mostSeconds = 100 * 366 * 24 * 60 * 60 // until a token expires
)

// NewToken asks for a token.
type NewToken struct {
	Kind   store.Kind        `json:"kind"`
	Scope  store.Scope       `json:"scope,omitempty"`  // of clients; read by default
	Labels map[string]string `json:"labels,omitempty"` // of the nodes it is for
	Node   string            `json:"node,omitempty"`   // the one it is for
	Note   string            `json:"note,omitempty"`
	// Expires is when it ends, ExpiresIn in how many seconds, by the hub's clock. One of them may be given.
	Expires   *time.Time `json:"expires,omitempty"`
	ExpiresIn *int64     `json:"expiresIn,omitempty"`
}

// CreatedToken is a token with its text, which is shown this once.
type CreatedToken struct {
	store.Token
	Text string `json:"token"`
}

// check returns the token that is asked for, without an id.
func (n NewToken) check() (store.Token, error) {
	bad := func(format string, args ...any) (store.Token, error) {
		return store.Token{}, problem.New(problem.InvalidRequest, format, args...)
	}
	t := store.Token{Kind: n.Kind, Scope: n.Scope, Labels: n.Labels, Node: n.Node, Note: strings.TrimSpace(n.Note)}
	switch {
	case t.Kind == store.KindClient && t.Scope == "":
		t.Scope = store.ScopeRead
	case t.Kind == store.KindClient && !t.Scope.Valid():
		return bad("there is no scope %q: use %s, %s or %s", t.Scope, store.ScopeRead, store.ScopeDrive, store.ScopeAdmin)
	case t.Kind == store.KindJoin && t.Scope != "":
		return bad("a token of the kind %s has no scope", t.Kind)
	case t.Kind != store.KindClient && t.Kind != store.KindJoin:
		return bad("there is no kind %q: use %s or %s", t.Kind, store.KindJoin, store.KindClient)
	}
	if err := tunnel.CheckLabels(t.Labels); err != nil {
		return bad("%s", err)
	}
	if t.Node != "" {
		if err := tunnel.CheckName(t.Node); err != nil {
			return bad("%s", err)
		}
	}
	if len([]rune(t.Note)) > maxNote || strings.ContainsFunc(t.Note, unicode.IsControl) {
		return bad("the note is longer than %d characters, or has some that cannot be shown", maxNote)
	}
	if in := n.ExpiresIn; in != nil {
		if n.Expires != nil {
			return bad("expires and expiresIn are both given: choose one")
		}
		if *in < 1 || *in > mostSeconds {
			return bad("expiresIn is %d: give 1 to %d seconds", *in, mostSeconds)
		}
		at := time.Now().Add(time.Duration(*in) * time.Second)
		n.Expires = &at
	}
	if n.Expires != nil {
		at := n.Expires.UTC().Truncate(time.Second)
		if now := time.Now().UTC(); !at.After(now) || at.Year() > 9999 {
			return bad("the token would expire at %s, and it is %s by the hub's clock: choose a time to come", at.Format(time.RFC3339), now.Format(time.RFC3339))
		}
		t.Expires = &at
	}
	return t, nil
}

func (h *Hub) listTokens(w http.ResponseWriter, _ *http.Request, _ call) error {
	return writeJSON(w, http.StatusOK, map[string][]store.Token{"tokens": h.o.Store.Tokens()})
}

func (h *Hub) createToken(w http.ResponseWriter, r *http.Request, c call) error {
	var said struct {
		NewToken
		Node *string `json:"node"` // "" is not the same as none
	}
	if err := readJSON(w, r, "an object with kind and any of scope, labels, node, note, and expires or expiresIn", &said); err != nil {
		return err
	}
	if said.Node != nil {
		if said.NewToken.Node = *said.Node; *said.Node == "" {
			return invalidParam("node", "node is empty: give the name of a node, or leave it out for a token of all nodes")
		}
	}
	t, err := said.check()
	if err != nil {
		return err
	}
	t, text, err := h.o.Store.CreateToken(r.Context(), t)
	if err != nil {
		return err
	}
	h.log.Info("a token was made", "id", t.ID, "kind", t.Kind, "scope", t.Scope, "by", c.token.ID)
	w.Header().Set("Location", "/v2/tokens/"+t.ID)
	return writeJSON(w, http.StatusCreated, CreatedToken{t, text})
}

// readJSON reads the body of a request, which has JSON and nothing else.
func readJSON(w http.ResponseWriter, r *http.Request, must string, v any) error {
	b, err := control.ReadBody(w, r, maxBody)
	if err != nil {
		return err
	}
	return problem.DecodeJSON(b, v, must)
}

func (h *Hub) revokeToken(w http.ResponseWriter, r *http.Request, c call) error {
	id, err := url.PathUnescape(c.params["id"])
	if err != nil {
		return problem.Wrap(problem.InvalidRequest, err, "the path cannot be read")
	}
	if err := h.o.Store.RevokeToken(r.Context(), id); err != nil {
		return err
	}
	h.log.Info("a token was revoked", "id", id, "by", c.token.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
