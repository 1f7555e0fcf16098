package opencode

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// Prompt runs one turn. Prompts of a session run one after another: OpenCode
// would answer two at a time with the same words.
func (a *agent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	c, err := s.prompted(r.Prompt)
	if err != nil {
		return nil, err
	}
	return s.turns.Prompt(ctx, s.script(c))
}

// script is how a turn runs that asks OpenCode for something.
func (s *session) script(c *call) turn.Script[work] {
	return turn.Script[work]{
		Work: work{
			id: newMessageID(), named: c.turn, completed: map[string]bool{}, trailed: map[string]bool{},
			posted: make(chan struct{}), shown: make(chan struct{}),
		},
		Gone: s.srv.ended, Exit: func() error { return s.srv.exit }, Log: s.log,
		Begin: func(_ *turn.Waiting, t *turn.Turn[work]) error { return s.begin(t, c) },
		Stop:  s.abort, Bound: cancelBound, End: s.closeTurn,
	}
}

// Cancel ends what nobody prompted, or what a prompt has left. Prompts watch
// acp.TurnCancelled. The next one waits, so that it is not what is aborted.
func (a *agent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	s, err := a.session(n.SessionID)
	if err != nil {
		return err
	}
	release, idle := s.turns.Pause()
	if !idle {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		release()
		return nil
	}
	s.work.Go(func() {
		defer release()
		ctx, cancel := bridge.Within(s.ctx, a.abortBound)
		defer cancel()
		s.dropAsks()
		if err := s.srv.call(ctx, "POST", s.path("/abort"), nil, nil); err != nil {
			s.log.Debug("abort what nobody prompted", "err", err)
		}
	})
	return nil
}

// call is what a prompt asks of OpenCode.
type call struct {
	path string // below the session's
	body map[string]any
	// turn says that the answer is the last message of a turn.
	turn bool
	// done is what is said when a request that is no turn has worked.
	done string
}

// ids makes ids that sort by time, as OpenCode's own do.
var ids struct {
	mu   sync.Mutex
	last int64
}

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newMessageID returns an id for a message that is above all before it and, since
// OpenCode counts from one within a millisecond, below those that answer it.
func newMessageID() string {
	ids.mu.Lock()
	ids.last = max(ids.last+1, time.Now().UnixMilli()<<12)
	now := ids.last
	ids.mu.Unlock()
	var random [14]byte
	_, _ = rand.Read(random[:]) // it never fails
	for i, b := range random {
		random[i] = digits[int(b)%len(digits)]
	}
	return fmt.Sprintf("msg_%012x%s", now&(1<<48-1), random[:])
}

// prompted turns a prompt into OpenCode's request: a turn, or a command.
func (s *session) prompted(prompt []schema.ContentBlock) (*call, error) {
	if len(prompt) > 0 && prompt[0].Text != nil {
		if c, err := s.command(prompt[0].Text.Text, prompt[1:]); c != nil || err != nil {
			return c, err
		}
	}
	parts, err := content.Parts(prompt)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"parts": parts}
	if s.system != "" {
		body["system"] = s.system
	}
	return &call{path: "/message", body: body, turn: true}, nil
}

// chosen adds what was chosen of the session to a request, in the form that the
// request has for it.
func (s *session) chosen(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set.works = ""
	m := s.set.current()
	switch c.path {
	case "/message":
		c.body["agent"] = s.set.mode
		if m != nil {
			c.body["model"] = map[string]string{"providerID": m.provider, "modelID": m.id}
		}
	case "/command":
		c.body["agent"] = s.set.mode
		if m != nil {
			c.body["model"] = m.key()
		}
	case "/summarize":
		if m != nil {
			c.body["providerID"], c.body["modelID"] = m.provider, m.id
		}
		return
	default:
		return
	}
	if s.set.variant != "" {
		c.body["variant"] = s.set.variant
	}
}

// content makes OpenCode's parts of a prompt's blocks.
var content = bridge.Content{
	Agent: "opencode", Files: "images, PDF and text",
	Text:  func(text string) any { return map[string]any{"type": "text", "text": text} },
	Image: func(mime, data string) any { return file(mime, "", "data:"+mime+";base64,"+data) },
	ImageAt: func(i *schema.ImageContent) (any, error) {
		path, ok := bridge.LocalFile(*i.URI)
		if !ok {
			return nil, acp.Errorf(acp.CodeInvalidParams, "opencode takes images as data or as files on its machine, not from %s", *i.URI)
		}
		return file(i.MimeType, path, *i.URI), nil
	},
	Link: func(l *schema.ResourceLink) []any {
		path, ok := bridge.LocalFile(l.URI)
		if !ok {
			return []any{map[string]any{"type": "text", "text": bridge.Link(l.Name, l.URI)}}
		}
		mime := "text/plain"
		if l.MimeType != nil && *l.MimeType != "" {
			mime = *l.MimeType
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			mime = "application/x-directory"
		}
		return []any{file(mime, bridge.FirstOf(l.Name, path), l.URI)}
	},
	File: func(mime, uri, data string) ([]any, bool) {
		if !strings.HasPrefix(mime, "image/") && mime != "application/pdf" {
			return nil, false
		}
		return []any{file(mime, uri[strings.LastIndexByte(uri, '/')+1:], "data:"+mime+";base64,"+data)}, true
	},
}

func file(mime, name, url string) any {
	part := map[string]any{"type": "file", "mime": mime, "url": url}
	if name != "" {
		part["filename"] = name
	}
	return part
}
