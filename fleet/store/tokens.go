package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// MaxTokens bounds the tokens. At the bound the one that has expired first goes for a new one; if none has, the new
// one is refused.
const MaxTokens = 10_000

// Kind says what a token is for.
type Kind string

// The kinds of tokens.
const (
	KindJoin   Kind = "join"   // a gateway joins with it, and can do nothing else
	KindClient Kind = "client" // people and programs use nodes and the hub with it
	KindPeer   Kind = "peer"   // another hub of the store; none is made, see Store.Secret
)

// Scope says what a token of clients allows. Each one allows what those before it do.
type Scope string

// The scopes.
const (
	ScopeRead  Scope = "read"
	ScopeDrive Scope = "drive"
	ScopeAdmin Scope = "admin"
)

// scopes in order.
var scopes = []Scope{ScopeRead, ScopeDrive, ScopeAdmin}

// Valid reports whether s is a scope.
func (s Scope) Valid() bool { return slices.Contains(scopes, s) }

// Allows reports whether s allows what needs scope need. What is no scope allows
// nothing and is never enough.
func (s Scope) Allows(need Scope) bool {
	return s.Valid() && need.Valid() && slices.Index(scopes, s) >= slices.Index(scopes, need)
}

// Token is what is known of a token. The token itself is known to who has it only.
type Token struct {
	ID    string `json:"id"`
	Kind  Kind   `json:"kind"`
	Scope Scope  `json:"scope,omitempty"` // of clients
	// Labels and Node say which nodes the token is for: those with all of these
	// labels, and with this name. A token without both is for all nodes.
	Labels map[string]string `json:"labels,omitempty"`
	Node   string            `json:"node,omitempty"`
	Note   string            `json:"note,omitempty"` // of people, for people

	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"` // nil is never
}

// kept is a token as it lies in the store.
type kept struct {
	Token
	Hash string `json:"hash"` // SHA-256 of the token, in hexadecimal
}

// Everywhere reports whether the token is for all nodes.
func (t Token) Everywhere() bool { return len(t.Labels) == 0 && t.Node == "" }

// For reports whether the token is for a node.
func (t Token) For(name string, labels map[string]string) bool {
	for k, v := range t.Labels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return t.Node == "" || t.Node == name
}

const tokenPrefix = "sah-" // people and scanners for secrets know them by it

// CreateToken makes a token like t, and returns it with the text that is the token.
func (s *Store) CreateToken(ctx context.Context, t Token) (Token, string, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	if s.tokens.len() >= MaxTokens {
		s.dropExpired(ctx)
	}
	if s.tokens.len() >= MaxTokens {
		return t, "", problem.New(problem.TooManyRequests, "the hub has %d tokens: revoke those that nobody needs", MaxTokens)
	}
	t.ID, t.Created = strings.ToLower(rand.Text()[:12]), time.Now().UTC().Truncate(time.Second)
	text := tokenPrefix + t.ID + "-" + rand.Text()
	if _, err := s.tokens.put(ctx, t.ID, kept{t, hashOf(text)}, 0); err != nil {
		return t, "", problem.Wrap(problem.Unavailable, err, "the hub cannot keep the token")
	}
	return t, text, nil
}

// dropExpired removes the token that expired first. Others stay in case that it is the clock that is wrong.
func (s *Store) dropExpired(ctx context.Context) {
	now := time.Now()
	expired := slices.DeleteFunc(s.Tokens(), func(t Token) bool { return t.Expires == nil || now.Before(*t.Expires) })
	if len(expired) == 0 {
		return
	}
	first := slices.MinFunc(expired, func(a, b Token) int { return a.Expires.Compare(*b.Expires) })
	if err := s.RevokeToken(ctx, first.ID); err != nil {
		s.log.Debug("a token that has expired stays", "id", first.ID, "err", err)
	}
}

// Tokens returns all tokens, the newest last.
func (s *Store) Tokens() []Token {
	out := make([]Token, 0, s.tokens.len())
	for _, k := range s.tokens.all() {
		out = append(out, k.Token)
	}
	slices.SortFunc(out, func(a, b Token) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}

// RevokeToken makes a token worth nothing, also for what is open with it.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	had, ok := s.tokens.get(id)
	if !ok {
		return problem.New(problem.NotFound, "there is no token %q", id)
	}
	if err := s.tokens.remove(ctx, id, had.revision); err != nil && !errors.Is(err, errChanged) {
		return problem.Wrap(problem.Unavailable, err, "the hub cannot revoke the token")
	}
	return nil
}

// Verify returns the token of a text. Over ends when it is revoked or expires, with that *problem.Error as its cause.
func (s *Store) Verify(text string) (t Token, over context.Context, ok bool) {
	id, _, _ := strings.Cut(strings.TrimPrefix(text, tokenPrefix), "-")
	return s.gates.enter(id, hashOf(text))
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// gateLook bounds how late an open gate notices that its token has expired: timers do not count the time in which
// the machine was suspended, nor that by which its clock was set.
const gateLook = 30 * time.Second

// errOver ends what was let in with a token.
var errOver = problem.New(problem.TokenInvalid, "the token was revoked or has expired")

// gate lets in with one token. It is open or shut as the clock says each time it is asked: one that was shut
// while the clock was wrong opens again.
type gate struct {
	kept  kept
	over  context.Context // of what was let in; nil while it is shut
	end   context.CancelCauseFunc
	timer *time.Timer // looks at the clock while it is open; nil for a token that never expires
}

// gates are those of all tokens. The zero value has none.
type gates struct {
	mu   sync.Mutex
	byID map[string]*gate
}

// enter lets in who has the token of a hash. Over ends when it is revoked or expires, and says so as its cause.
func (g *gates) enter(id, hash string) (t Token, over context.Context, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.byID[id]
	if n == nil || subtle.ConstantTimeCompare([]byte(n.kept.Hash), []byte(hash)) != 1 {
		return Token{}, nil, false
	}
	if g.lookLocked(n); n.over == nil {
		return Token{}, nil, false
	}
	return n.kept.Token, n.over, true
}

// changed is told of each change of a token.
func (g *gates) changed(id string, has bool, k kept) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.byID[id]; old != nil {
		old.shutLocked()
		delete(g.byID, id)
	}
	if !has || k.ID != id {
		return
	}
	if g.byID == nil {
		g.byID = map[string]*gate{}
	}
	g.byID[id] = &gate{kept: k}
}

// lookLocked opens or shuts a gate, as the clock says.
func (g *gates) lookLocked(n *gate) {
	expires := n.kept.Expires
	switch {
	case expires != nil && !time.Now().Before(*expires):
		n.shutLocked()
	case n.over == nil:
		n.over, n.end = context.WithCancelCause(context.Background())
		if expires != nil {
			n.timer = time.AfterFunc(n.soon(), func() { g.look(n) })
		}
	}
}

// look is called now and then while a gate is open.
func (g *gates) look(n *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n.over == nil {
		return
	}
	if g.lookLocked(n); n.over != nil {
		n.timer.Reset(n.soon())
	}
}

func (n *gate) soon() time.Duration { return min(time.Until(*n.kept.Expires), gateLook) }

func (n *gate) shutLocked() {
	if n.over == nil {
		return
	}
	n.end(errOver)
	if n.timer != nil {
		n.timer.Stop()
	}
	n.over, n.end, n.timer = nil, nil, nil
}

// close ends all gates.
func (g *gates) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.byID {
		n.shutLocked()
	}
	g.byID = nil
}
