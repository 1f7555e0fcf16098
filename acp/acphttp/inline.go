package acphttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// postInline carries an inline request out, unless its key says that it was
// begun before, and answers it. It calls begun when what follows it may come.
func (h *Handler) postInline(w http.ResponseWriter, r *http.Request, c *conn, m acp.Message, key string, begun func()) error {
	if key == "" {
		replies, err := c.client.Call(r.Context(), m)
		if err != nil {
			return err
		}
		return h.hold(w, r, c, m, replies)
	}
	note, again := c.receipts.begin(key)
	mine, err := c.receipts.answer(note)
	if err != nil {
		return err
	}
	if !again {
		// Whoever asks with the key again must find it going on.
		replies, err := c.client.Call(context.WithoutCancel(r.Context()), m)
		c.receipts.end(note, err)
		if err != nil {
			return err
		}
		h.open.add(1)
		go func() {
			defer h.open.add(-1)
			select {
			case rep := <-replies:
				c.receipts.record(note, rep)
			case <-c.client.Done():
				select {
				case rep := <-replies: // it came together with the end
					c.receipts.record(note, rep)
				default:
				}
			}
		}()
	}
	begun()
	return h.hold(w, r, c, m, mine)
}

// hold answers an inline request with its JSON-RPC response, whenever that
// comes. From HoldHeaders on the client gets headers and then blanks, which
// JSON allows before the response, so that nothing between gives up.
func (h *Handler) hold(w http.ResponseWriter, r *http.Request, c *conn, m acp.Message, replies <-chan acp.Reply) error {
	wait := time.NewTimer(h.o.HoldHeaders)
	defer wait.Stop()
	flushed := false
	for {
		select {
		case rep := <-replies:
			return h.reply(w, r, c, rep, flushed)
		case <-wait.C:
			if !flushed {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusOK)
				flushed = true
			}
			if h.writeMore(w, []byte{' '}) != nil {
				return nil // the client is gone; its request goes on
			}
			wait.Reset(h.o.Heartbeat)
		case <-r.Context().Done():
			if h.over(r.Context()) == nil {
				return nil // the client is gone
			}
			return h.unanswered(w, r, m, flushed)
		case <-c.client.Done():
			select {
			case rep := <-replies: // it came together with the end
				return h.reply(w, r, c, rep, flushed)
			default:
			}
			return h.unanswered(w, r, m, flushed)
		}
	}
}

// unanswered ends an inline request to which no response comes any more.
func (h *Handler) unanswered(w http.ResponseWriter, r *http.Request, m acp.Message, flushed bool) error {
	p := problem.New(problem.ClientNotFound, "the connection was ended before the response came; the session goes on and its events can be read")
	if why := h.over(r.Context()); why != nil {
		p = problem.From(why)
	}
	if !flushed {
		return p
	}
	e := acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "%s", p.Detail).WithData(p))
	_ = h.writeMore(w, e.Frame())
	return nil
}

// writeMore sends some more of an answer that has begun, or only its header.
func (h *Handler) writeMore(w http.ResponseWriter, b []byte) error {
	out := h.outgoing(w)
	defer out.close()
	out.time.Extend()
	return errors.Join(out.write(b), http.NewResponseController(w).Flush())
}

// reply writes the response after the events that precede it.
func (h *Handler) reply(w http.ResponseWriter, r *http.Request, c *conn, rep acp.Reply, flushed bool) error {
	last := c.client.AwaitWritten(r.Context(), rep, writtenBound)
	if flushed {
		out := h.outgoing(w)
		defer out.close()
		out.count(r.Context(), rep.Frame)
		_ = out.write(rep.Frame)
		return nil
	}
	if rep.TimedOut {
		return problem.New(problem.Timeout, "the agent did not answer in time: raise --request-timeout, or look at the agent")
	}
	if last > 0 {
		w.Header().Set(HeaderLastEvent, strconv.FormatUint(last, 10))
	}
	h.writeJSON(w, r, http.StatusOK, rep.Frame)
	return nil
}
