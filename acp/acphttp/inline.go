package acphttp

import (
	"net/http"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// hold answers an inline request with its JSON-RPC response, whenever that
// comes. From HoldHeaders on the client gets headers and then blanks, which
// JSON allows before the response, so that nothing between gives up.
func (h *Handler) hold(w http.ResponseWriter, r *http.Request, c *conn, m acp.Message) error {
	replies, err := c.client.Call(r.Context(), m)
	if err != nil {
		return err
	}
	wait := time.NewTimer(h.o.HoldHeaders)
	defer wait.Stop()
	rc := http.NewResponseController(w)
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
			_ = rc.SetWriteDeadline(time.Now().Add(h.o.WriteTimeout))
			if _, err := w.Write([]byte{' '}); err != nil || rc.Flush() != nil {
				return nil // the client is gone; its request goes on
			}
			wait.Reset(h.o.Heartbeat)
		case <-r.Context().Done():
			return nil
		case <-c.client.Done():
			select {
			case rep := <-replies: // it came together with the end
				return h.reply(w, r, c, rep, flushed)
			default:
			}
			if !flushed {
				return problem.New(problem.ClientNotFound, "the connection was ended before the response came; the session goes on and its events can be read")
			}
			e := acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "the connection was ended before the response came"))
			_, _ = w.Write(e.Frame())
			return nil
		}
	}
}

// reply writes the response after the events that precede it.
func (h *Handler) reply(w http.ResponseWriter, r *http.Request, c *conn, rep acp.Reply, flushed bool) error {
	last := c.client.Settle(r.Context(), rep, settleBound)
	if flushed {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.o.WriteTimeout))
		_, _ = w.Write(rep.Frame)
		return nil
	}
	if rep.TimedOut {
		return problem.New(problem.Timeout, "the agent did not answer in time: raise --request-timeout, or look at the agent")
	}
	if last > 0 {
		w.Header().Set(HeaderLastEvent, strconv.FormatUint(last, 10))
	}
	writeJSON(w, rep.Frame)
	return nil
}
