package acphttp

import (
	"context"
	"io"
	"net/http"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

const (
	pieceBytes = 256 << 10      // that are written at one time
	batchBytes = 2 * pollBytes  // that a batch of small events takes: as they were read, and as they are written
	largeFrame = keepBuffer / 4 // a larger one is written from where it is
)

// outgoing is an answer or a stream on its way to a client. A client that stands still is
// dropped after WriteTimeout, and before that when others need the memory.
type outgoing struct {
	w     io.Writer
	time  *deadline.Deadline
	share *memory.Share
	uncut func() bool // the handler's end is of no matter any more
}

// bounding is a connection, or the controller of an answer on it.
type bounding interface{ SetWriteDeadline(time.Time) error }

func (h *Handler) outgoing(w http.ResponseWriter) *outgoing {
	return h.writing(w, http.NewResponseController(w))
}

func (h *Handler) writing(w io.Writer, bound bounding) *outgoing {
	d := deadline.New(h.o.WriteTimeout, bound.SetWriteDeadline)
	return &outgoing{w: w, time: d, share: h.memory.Open(d.End), uncut: context.AfterFunc(h.cut, func() { d.Hurry(farewell, h.last) })}
}

// close gives the memory back. The connection may serve other requests.
func (o *outgoing) close() {
	o.share.Close()
	o.uncut()
	o.time.Lift()
}

// count counts a frame that is in memory already, after it has waited for room.
func (o *outgoing) count(ctx context.Context, frame []byte) {
	if len(frame) > largeFrame && o.share.Take(ctx, len(frame)) != nil {
		o.share.Count(len(frame))
	}
}

// write writes b in pieces, each in its time.
func (o *outgoing) write(b []byte) error {
	for len(b) > 0 {
		o.time.Extend()
		n, err := o.w.Write(b[:min(len(b), pieceBytes)])
		o.share.Moved(n)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// roomIn returns what a stream asks before it takes much memory.
func roomIn(ctx context.Context, share *memory.Share) func(bytes int) error {
	return func(bytes int) error {
		if share.Take(ctx, bytes) != nil {
			return errMemory
		}
		return nil
	}
}
