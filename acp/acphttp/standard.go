package acphttp

import (
	"context"
	"net/http"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// taken is a message whose request was answered.
type taken struct {
	values  context.Context // those of the request, which never end
	message acp.Message
}

// postStandard takes a message of the standard dialect, which is then accepted
// at once. It is passed on in order: here if that waits for nobody, else behind the
// answer.
func (h *Handler) postStandard(r *http.Request, c *conn, m acp.Message) error {
	if err := checkSession(r, &m); err != nil {
		return err
	}
	c.mu.Lock()
	if !c.waiting.Try(len(m.Frame())) {
		c.mu.Unlock()
		return errMemory
	}
	if len(c.inbox) >= inboxLimit || c.bytes > inboxBytes {
		c.waiting.Give(len(m.Frame()))
		c.mu.Unlock()
		return problem.New(problem.Unavailable, "the agent does not take the %d messages that this connection has waiting: try again later", inboxLimit)
	}
	c.inbox = append(c.inbox, taken{context.WithoutCancel(r.Context()), m})
	c.bytes += len(m.Frame())
	start := !c.running
	c.running = true
	c.mu.Unlock()
	if start && queues(&m) {
		start = c.passOne()
	}
	if start {
		h.open.add(1)
		go func() {
			defer h.open.add(-1)
			c.passOn()
		}()
	}
	return nil
}

// queues reports whether the client queues the message when the agent does not take it: a
// prompt, or an answer. Another goroutine for it would cost more than what it does.
func queues(m *acp.Message) bool { return m.IsResponse() || m.Method() == acp.MethodSessionPrompt }

// postInvalid answers an object that is no JSON-RPC message: accepted, and then
// refused on the connection's stream, because another answer would make the
// official client give the whole connection up.
func (h *Handler) postInvalid(w http.ResponseWriter, r *http.Request, bad error) error {
	c, err := h.find(r)
	if err != nil {
		return err
	}
	c.client.Deliver(acp.Refusal(bad))
	accepted(w)
	return nil
}

// passOn gives the inbox to the client, in order, until it is empty.
func (c *conn) passOn() {
	for c.passOne() {
	}
}

// passOne gives the first message of the inbox to the client, and reports whether there
// are more: then whoever runs goes on.
func (c *conn) passOne() (more bool) {
	c.mu.Lock()
	next := c.inbox[0]
	c.inbox[0] = taken{}
	c.inbox = c.inbox[1:]
	c.bytes -= len(next.message.Frame())
	c.mu.Unlock()
	// Its errors are responses on the stream; a wait ends with the agent.
	_ = c.client.Send(next.values, next.message)
	c.waiting.Give(len(next.message.Frame()))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inbox) == 0 {
		c.running, c.inbox = false, nil
	}
	return c.running
}

// checkSession applies the rule of the session header: a message of a session
// names the session in the header too.
func checkSession(r *http.Request, m *acp.Message) error {
	header := r.Header.Get(HeaderSession)
	if len(header) > maxIDLen {
		return problem.New(problem.InvalidRequest, "%s is longer than %d bytes", HeaderSession, maxIDLen)
	}
	switch {
	case m.IsResponse():
		return nil // it is matched by its id
	case m.HasSession() && header == "":
		return problem.New(problem.InvalidRequest, "%s is missing: %s belongs to a session", HeaderSession, m.Method())
	case m.HasSession() && header != m.Session():
		return problem.New(problem.InvalidRequest, "%s and params.sessionId name different sessions", HeaderSession)
	case !m.HasSession() && needsSession(m.Method()):
		return problem.New(problem.InvalidRequest, "%s needs params.sessionId and the header %s", m.Method(), HeaderSession)
	}
	return nil
}

func needsSession(method string) bool {
	name, ok := strings.CutPrefix(method, "session/")
	if !ok {
		return false
	}
	switch name {
	case "cancel", "close", "delete", "fork", "load", "prompt", "resume", "set_config_option", "set_mode", "set_model":
		return true
	}
	return false
}
