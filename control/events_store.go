package control

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// Copies gives the events of sessions to who stores them; see [runtime.Runtime.EventsToStore] and
// [runtime.Runtime.Attend].
type Copies interface {
	Attend(id string, after, stored uint64, trouble string, limit int) (*runtime.Attendance, error)
	EventsToStore(ctx context.Context, id string, after, stored uint64, trouble string, limit int, wait time.Duration) (events []runtime.Event, upTo uint64, hasMore bool, err error)
}

var _ Copies = (*runtime.Runtime)(nil)

// HeaderStored is in a request for events of the hub that the gateway has joined: the number of
// the event up to which its store has the session. The hub takes it out of requests of clients,
// and from others it is not accepted.
const HeaderStored = "Sandbox-Agent-Stored"

// HeaderStoreTrouble stands beside HeaderStored when the store takes no more of the session, and
// says why: clients are told.
const HeaderStoreTrouble = "Sandbox-Agent-Store-Trouble"

// ProtocolAttend is what such a request can be upgraded to, for a session of which clients are shown
// only what is stored. The gateway writes pages of events, as the answers to such requests are. Behind each the hub
// writes the number of the event up to which its store has the session then, and a newline: the next page follows
// when there is something for it. One that goes no further is the last.
const ProtocolAttend = "attend.sandboxagent.dev"

// maxWait bounds how long such a request waits for an event; Prefer says how long it would.
const maxWait = 60 * time.Second

// eventsToStore answers the hub with a page of events, also of those that are shown to nobody
// before it has stored them.
func (s *Server) eventsToStore(c echo.Context, ctx context.Context, id, said string, after uint64, limit int) error {
	r := c.Request()
	if r.Method != http.MethodGet || s.o.Copies == nil || !vouched(r.Context()) {
		return problem.New(problem.PermissionDenied, "the header %s is for the hub that this gateway has joined: leave it out", HeaderStored)
	}
	stored, err := uintParam(HeaderStored, said, 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	wait := preferredWait(r.Header.Get("Prefer"))
	if r.Header.Get("Upgrade") == ProtocolAttend {
		a, err := s.o.Copies.Attend(id, after, stored, r.Header.Get(HeaderStoreTrouble), limit)
		if err != nil {
			return err
		}
		if a != nil {
			return s.attend(ctx, c, a, wait)
		}
	}
	events, upTo, hasMore, err := s.o.Copies.EventsToStore(ctx, id, after, stored, r.Header.Get(HeaderStoreTrouble), limit, wait)
	if err != nil {
		return err
	}
	return writeEvents(c, events, hasMore, &upTo)
}

// attend gives pages of events to the hub on the connection of its request, until there is none for a
// time, or ctx ends.
func (s *Server) attend(ctx context.Context, c echo.Context, a *runtime.Attendance, wait time.Duration) error {
	defer a.End()
	h := c.Response().Header()
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", ProtocolAttend)
	c.Response().WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := http.NewResponseController(c.Response()).Hijack()
	if err != nil {
		return fmt.Errorf("take the connection of the hub: %w", err)
	}
	_ = conn.SetDeadline(time.Time{}) // the tunnel has its own
	share := s.o.Memory.Open(func() { _ = conn.Close() })
	defer share.Close()
	ctx, cancel := context.WithCancel(memory.With(ctx, share))
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() {
		cancel()
		_ = conn.Close()
	}()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	stored := make(chan struct{}, 1) // has one when the last page is in the store
	reading.Go(func() {
		defer cancel()
		readStored(buffered.Reader, a, stored)
	})
	for at := a.UpTo(); ; at = a.UpTo() {
		events, more, err := a.Next(ctx, wait)
		if err != nil {
			return nil // the hub asks again, and is told
		}
		upTo := a.UpTo()
		if !writePage(conn, share, pageOf(events, more, &upTo)) || len(events) == 0 && upTo == at {
			return nil
		}
		share.GiveAll()
		select {
		case <-stored:
		case <-ctx.Done():
			return nil
		}
	}
}

// readStored reads up to where the store has a session, and tells of each page that it has.
func readStored(r *bufio.Reader, a *runtime.Attendance, stored chan<- struct{}) {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		upTo, err := strconv.ParseUint(string(bytes.TrimSuffix(line, []byte{'\n'})), 10, 64)
		if err != nil || !a.Stored(upTo) {
			return
		}
		select {
		case stored <- struct{}{}:
		default:
			return // it was given no page since
		}
	}
}

// writePage writes b, and reports whether it could. What went out is the share's.
func writePage(w io.Writer, share *memory.Share, b []byte) bool {
	for len(b) > 0 {
		n, err := w.Write(b[:min(len(b), pieceBytes)])
		share.Moved(n)
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// preferredWait reads the preference wait=SECONDS of RFC 7240; what is none of that is no wait.
func preferredWait(prefer string) time.Duration {
	seconds, ok := strings.CutPrefix(strings.TrimSpace(prefer), "wait=")
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(seconds, 10, 16)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxWait)
}
