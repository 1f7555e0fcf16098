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

// MaxTokens bounds the tokens; more are refused.
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
		return t, "", problem.New(problem.TooManyRequests, "the hub has %d tokens: revoke those that nobody needs", MaxTokens)
	}
	t.ID, t.Created = strings.ToLower(rand.Text()[:12]), time.Now().UTC().Truncate(time.Second)
	text := tokenPrefix + t.ID + "-" + rand.Text()
	if _, err := s.tokens.put(ctx, t.ID, kept{t, hashOf(text)}, 0); err != nil {
		return t, "", problem.Wrap(problem.Unavailable, err, "the hub cannot keep the token")
	}
	return t, text, nil
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
		return problem.New(problem.NotFound, "there is no token %s", id)
	}
	if err := s.tokens.remove(ctx, id, had.revision); err != nil && !errors.Is(err, errChanged) {
		return problem.Wrap(problem.Unavailable, err, "the hub cannot revoke the token")
	}
	return nil
}

// Verify returns the token of a text. Over ends when it is revoked or expires.
func (s *Store) Verify(text string) (t Token, over context.Context, ok bool) {
	id, _, _ := strings.Cut(strings.TrimPrefix(text, tokenPrefix), "-")
	g := s.gates.of(id)
	if g == nil || subtle.ConstantTimeCompare([]byte(g.kept.Hash), []byte(hashOf(text))) != 1 || expired(g.kept.Token) {
		return Token{}, nil, false
	}
	return g.kept.Token, g.over, true
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func expired(t Token) bool { return t.Expires != nil && !time.Now().Before(*t.Expires) }

// gate lets in with one token, until it is over.
type gate struct {
	kept  kept
	over  context.Context // until then
	end   context.CancelFunc
	timer *time.Timer // nil without an end
}

// gates are those of all tokens. The zero value has none.
type gates struct {
	mu   sync.Mutex
	byID map[string]*gate
}

func (g *gates) of(id string) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byID[id]
}

// changed is told of each change of a token.
func (g *gates) changed(id string, has bool, k kept) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.byID[id]; old != nil {
		g.endLocked(id, old)
	}
	if !has || k.ID != id || expired(k.Token) {
		return
	}
	if g.byID == nil {
		g.byID = map[string]*gate{}
	}
	n := &gate{kept: k}
	n.over, n.end = context.WithCancel(context.Background())
	g.byID[id] = n
	if k.Expires != nil {
		n.timer = time.AfterFunc(time.Until(*k.Expires), func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.byID[id] == n {
				g.endLocked(id, n)
			}
		})
	}
}

func (g *gates) endLocked(id string, old *gate) {
	if old.timer != nil {
		old.timer.Stop()
	}
	old.end()
	delete(g.byID, id)
}

// close ends all gates.
func (g *gates) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, old := range g.byID {
		g.endLocked(id, old)
	}
}
