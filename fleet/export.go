package fleet

import (
	"context"
	"fmt"
	"mime"
	"net/http"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
)

// exportSession writes what the hub has of a session whose node does not give it into one file, as
// that node would have done it.
func (h *Hub) exportSession(w http.ResponseWriter, r *http.Request, c call) error {
	s, state, err := h.sessionThere(r, c)
	if err != nil {
		return err
	}
	if h.atNode(s, state) {
		return h.toNodeOf(s, w, r, c)
	}
	if err := queries.Check(r, "/v2/sessions/{id}/export"); err != nil {
		return err
	}
	select {
	case h.reading <- struct{}{}:
		defer func() { <-h.reading }()
	default:
		return problem.New(problem.TooManyRequests, "%d sessions are being read: try again when some are done", maxReading)
	}
	ctx, done := h.during(r, c)
	defer done()
	dir, remove, err := h.packing()
	if err != nil {
		return err
	}
	defer remove()
	p, err := h.pack(ctx, s, dir)
	if err != nil {
		return err
	}
	if p.manifest.LastSeq = p.last; p.missing > 0 {
		p.manifest.LeftOut = append(p.manifest.LeftOut, fmt.Sprintf("%d events behind event %d, which the hub does not have", p.missing, p.last))
	}
	out := w.Header()
	out.Set("Content-Type", parcel.ContentType)
	out.Set("Cache-Control", "no-store")
	out.Set("X-Content-Type-Options", "nosniff")
	out.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": "session-" + unplain.ReplaceAllString(s.Session, "-") + ".tar.zst"}))
	return h.sendPacked(ctx, w, p)
}

// unplain is what names of files do not have.
var unplain = pattern.New(`[^A-Za-z0-9_-]`)

// sendPacked writes the file. One that ends early must not look whole.
func (h *Hub) sendPacked(ctx context.Context, w http.ResponseWriter, p *packed) error {
	err := p.write(ctx, w)
	if rec, ok := w.(*recorder); err != nil && ok && rec.status != 0 {
		h.log.Debug("a session's file ended early", "session", p.s.Session, "node", p.s.Node, "err", err)
		panic(http.ErrAbortHandler)
	}
	return err
}
