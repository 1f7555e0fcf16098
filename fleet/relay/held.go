package relay

import (
	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// held is a request, or a cancel behind some, that waits until its session can be reached.
type held struct {
	send    func(refused *acp.Message) // with the node's answer if the session could not be opened
	cancels bool
}

// release lets those go on that wait for a session to be opened, unless it is being moved.
func (c *Client) release(s *session, refused *acp.Message) {
	for {
		c.mu.Lock()
		if s.moving != "" && refused == nil {
			s.opening = false
			c.mu.Unlock()
			return
		}
		held := s.held
		s.held, s.opening = nil, len(held) > 0 // who comes meanwhile comes behind
		c.mu.Unlock()
		if len(held) == 0 {
			return
		}
		for _, h := range held {
			if h.send(refused); !h.cancels {
				c.mu.Lock()
				s.waiting--
				c.mu.Unlock()
			}
		}
	}
}

const maxHeld = 64 // requests that wait for a session to be opened; more are refused

// whenOpen calls f when the session is open, with what the node answered if it cannot be
// opened. An error of f that comes later goes to failed.
func (c *Client) whenOpen(s *session, f func(refused *acp.Message) error, failed func(error)) error {
	c.mu.Lock()
	if !s.opening && s.moving == "" {
		c.mu.Unlock()
		return f(nil)
	}
	defer c.mu.Unlock()
	if s.waiting >= maxHeld {
		return problem.New(problem.TooManyRequests, "%d requests wait for session %q to be opened at %s: try again", maxHeld, s.id, s.at().node)
	}
	s.waiting++
	s.held = append(s.held, held{send: func(refused *acp.Message) {
		if err := f(refused); err != nil {
			failed(err)
		}
	}})
	return nil
}

// cancelHeld sends a cancel behind the requests that wait in a session: what is sent now comes there before them. One is
// enough behind each of them.
func (c *Client) cancelHeld(m acp.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[m.Session()]
	if s == nil || s.waiting == 0 || len(s.held) > 0 && s.held[len(s.held)-1].cancels {
		return
	}
	s.held = append(s.held, held{cancels: true, send: func(refused *acp.Message) {
		if refused == nil {
			s.at().tellNode(m)
		}
	}})
}
