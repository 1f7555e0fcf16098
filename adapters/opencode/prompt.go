package opencode

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// Prompt runs one turn. Prompts of a session run one after another: OpenCode
// would answer two at a time with the same words.
func (a *agent) Prompt(ctx context.Context, r *acp.PromptRequest) (*acp.PromptResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	c, err := s.prompted(r.Prompt)
	if err != nil {
		return nil, err
	}
	cancelled := acp.TurnCancelled(ctx)
	stopped := &acp.PromptResponse{StopReason: acp.StopReasonCancelled}
	select {
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	case <-cancelled:
		return stopped, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.srv.ended:
		return nil, s.srv.exit
	}
	select {
	case <-cancelled:
		return stopped, nil
	default:
	}
	v := s.run(ctx, c, cancelled)
	if v.err != nil {
		return nil, v.err
	}
	return &acp.PromptResponse{StopReason: v.reason, Usage: v.usage}, nil
}

// Cancel has nothing to do: prompts watch acp.TurnCancelled.
func (a *agent) Cancel(_ context.Context, n *acp.CancelNotification) error {
	_, err := a.session(n.SessionID)
	return err
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
func (s *session) prompted(prompt []acp.ContentBlock) (*call, error) {
	if len(prompt) > 0 && prompt[0].Text != nil {
		if c, err := s.command(prompt[0].Text.Text, prompt[1:]); c != nil || err != nil {
			return c, err
		}
	}
	parts, err := partsOf(prompt)
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

// partsOf turns a prompt's blocks into OpenCode's parts. Embedded texts follow
// the words.
func partsOf(prompt []acp.ContentBlock) ([]any, error) {
	var out, context []any
	say := func(s string) { out = append(out, map[string]any{"type": "text", "text": s}) }
	file := func(mime, name, url string) {
		one := map[string]any{"type": "file", "mime": mime, "url": url}
		if name != "" {
			one["filename"] = name
		}
		out = append(out, one)
	}
	embed := func(uri, text string) {
		say(bridge.Link("", uri))
		context = append(context, map[string]any{"type": "text", "text": fmt.Sprintf("\n<context ref=%q>\n%s\n</context>", uri, text)})
	}
	for _, b := range prompt {
		switch {
		case b.Text != nil:
			if strings.TrimSpace(b.Text.Text) != "" {
				say(b.Text.Text)
			}
		case b.Image != nil && b.Image.Data != "":
			file(b.Image.MimeType, "", "data:"+b.Image.MimeType+";base64,"+b.Image.Data)
		case b.Image != nil && b.Image.URI != nil:
			path, ok := bridge.LocalFile(*b.Image.URI)
			if !ok {
				return nil, acp.Errorf(acp.CodeInvalidParams, "opencode takes images as data or as files on its machine, not from %s", *b.Image.URI)
			}
			file(b.Image.MimeType, path, *b.Image.URI)
		case b.ResourceLink != nil:
			l := b.ResourceLink
			path, ok := bridge.LocalFile(l.URI)
			if !ok {
				say(bridge.Link(l.Name, l.URI))
				break
			}
			mime := "text/plain"
			if l.MimeType != nil && *l.MimeType != "" {
				mime = *l.MimeType
			}
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				mime = "application/x-directory"
			}
			file(mime, bridge.FirstOf(l.Name, path), l.URI)
		case b.Resource != nil && b.Resource.Resource.TextResourceContents != nil:
			r := b.Resource.Resource.TextResourceContents
			embed(r.URI, r.Text)
		case b.Resource != nil && b.Resource.Resource.BlobResourceContents != nil:
			r := b.Resource.Resource.BlobResourceContents
			mime := ""
			if r.MimeType != nil {
				mime = *r.MimeType
			}
			switch {
			case strings.HasPrefix(mime, "image/"), mime == "application/pdf":
				file(mime, r.URI[strings.LastIndexByte(r.URI, '/')+1:], "data:"+mime+";base64,"+r.Blob)
			case strings.HasPrefix(mime, "text/") || mime == "application/json":
				text, err := base64.StdEncoding.DecodeString(r.Blob)
				if err != nil {
					return nil, acp.Errorf(acp.CodeInvalidParams, "resource %s: %v", r.URI, err)
				}
				embed(r.URI, string(text))
			default:
				return nil, acp.Errorf(acp.CodeInvalidParams, "opencode cannot be given resource %s of type %q: images, PDF and text can be embedded", r.URI, mime)
			}
		default:
			return nil, acp.Errorf(acp.CodeInvalidParams, "opencode takes text, images, resource links and embedded resources in a prompt, no other content")
		}
	}
	if len(out) == 0 {
		return nil, acp.Errorf(acp.CodeInvalidParams, "the prompt is empty")
	}
	return append(out, context...), nil
}
