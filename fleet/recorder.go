package fleet

import (
	"net/http"
	"time"
)

// writeBound is how long a client may take nothing of an answer until its connection
// is cut. What a node sends is not held for longer.
const writeBound = time.Minute

// recorder remembers how a request was answered, and bounds how long that waits for
// a client that does not read.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	route   string // "" for what is served nowhere
	node    string // that the request is for, "" for none
	status  int    // 0 until the header is written
	until   time.Time
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
	return w.ResponseWriter.Write(b)
}

// FlushError implements what http.ResponseController asks for.
func (w *recorder) FlushError() error {
	w.extend()
	return w.control.Flush()
}

// extend sets the deadline of the connection. It is not taken off behind the answer:
// the next answer on the connection sets its own.
func (w *recorder) extend() {
	if now := time.Now(); w.until.Sub(now) < writeBound/2 { // one for each write would cost more than the write
		w.until = now.Add(writeBound)
		_ = w.control.SetWriteDeadline(w.until) // where there is none, nothing waits
	}
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
