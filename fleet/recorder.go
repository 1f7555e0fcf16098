package fleet

import (
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// writeBound is how long a client may take nothing of an answer until its connection
// is cut. What a node sends is not held for longer.
const writeBound = time.Minute

// movedPiece is how much of an answer is written until its client has time for more.
const movedPiece = 128 << 10 // bytes

// recorder remembers how a request was answered, and bounds how long that waits for
// a client that does not read.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	route   string // "" for what is served nowhere
	node    string // that the request is for, "" for none
	status  int    // 0 until the header is written
	// wait is the deadline with HTTP/2, which ends an answer when one passes, also while nothing is written; nil with HTTP/1.
	wait *awake.Deadline

	mu    sync.Mutex
	until time.Time // the client is waited for
	why   error     // that it is waited for no more than a moment; nil until it is not
	over  bool      // the connection is that of the next request
}

func newRecorder(w http.ResponseWriter, r *http.Request) *recorder {
	rec := &recorder{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.ProtoMajor > 1 {
		rec.wait = awake.NewDeadline(writeBound, rec.SetWriteDeadline)
	}
	return rec
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.begin(status)
	}
	defer w.extend()()
	w.ResponseWriter.WriteHeader(status)
}

// begin notes the status. A client that is hurried has a moment from here on: what it is told may have taken long.
func (w *recorder) begin(status int) {
	w.status = status
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why != nil {
		_ = w.control.SetWriteDeadline(time.Now().Add(farewell))
	}
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	defer w.extend()()
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements [io.ReaderFrom]: what the system can move by itself it does. The client has time for
// each piece.
func (w *recorder) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := w.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	all, limited := r.(*io.LimitedReader) // the system sees a socket through one of these only
	if !limited {
		all = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	for all.N > 0 {
		piece := &io.LimitedReader{R: all.R, N: min(all.N, movedPiece)}
		written := w.extendTo(writeBound * 9 / 10)
		k, err := to.ReadFrom(piece)
		written()
		n += k
		if all.N -= k; err != nil || piece.N > 0 {
			return n, err
		}
	}
	return n, nil
}

// FlushError implements what http.ResponseController asks for.
func (w *recorder) FlushError() error {
	defer w.extend()()
	return w.control.Flush()
}

// extend sets the deadline of the connection, until written is called with HTTP/2. With HTTP/1 it is not taken off behind
// the answer: the next answer on the connection sets its own.
func (w *recorder) extend() (written func()) { return w.extendTo(writeBound / 2) } // one for each write would cost more than the write

// extendTo sees to it that so much time is left.
func (w *recorder) extendTo(left time.Duration) (written func()) {
	if w.wait != nil {
		w.wait.Start()
		return w.wait.Stop
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.why == nil && w.until.Sub(now) < left {
		w.until = now.Add(writeBound)
		_ = w.control.SetWriteDeadline(w.until) // where there is none, nothing waits
	}
	return func() {}
}

// finish bounds how long the rest of the answer may take, which the server writes when the handler has returned.
func (w *recorder) finish() {
	if w.wait != nil {
		_ = w.SetWriteDeadline(time.Now().Add(writeBound)) // of this answer alone
	}
}

// SetReadDeadline implements what http.ResponseController asks for. Whoever is hurried gets no more time.
func (w *recorder) SetReadDeadline(t time.Time) error { return w.bound(w.control.SetReadDeadline, t) }

// SetWriteDeadline is the same for what the client is to read.
func (w *recorder) SetWriteDeadline(t time.Time) error { return w.bound(w.control.SetWriteDeadline, t) }

func (w *recorder) bound(set func(time.Time) error, t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why != nil {
		return nil
	}
	return set(t)
}

// hurry has the client waited for no more than a moment, whether it sends or reads: what it was served for
// has ended. What is to be said then is written behind what does not come.
func (w *recorder) hurry(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.why = why
	now := time.Now()
	_ = w.control.SetReadDeadline(now.Add(farewell / 2)) // where there are none, nothing waits
	_ = w.control.SetWriteDeadline(now.Add(farewell))
}

// hurries has the client of a request hurried when the hub or its token ends, until done is called.
func (h *Hub) hurries(w *recorder, c call) (done func()) {
	stop := h.whenOver(c, w.hurry)
	return func() {
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
	}
}

// ended is why the client is hurried, nil when it is not.
func (w *recorder) ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}

func (w *recorder) routeLabel() string {
	if w.route == "" {
		return "other"
	}
	return w.route
}

// methodLabel is a method as a label: clients may invent others.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch:
		return method
	}
	return "other"
}
