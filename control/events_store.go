package control

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// Copies gives the events of sessions to who stores them; see [runtime.Runtime.EventsToStore].
type Copies interface {
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
	events, upTo, hasMore, err := s.o.Copies.EventsToStore(ctx, id, after, stored, r.Header.Get(HeaderStoreTrouble), limit, preferredWait(r.Header.Get("Prefer")))
	if err != nil {
		return err
	}
	return writeEvents(c, events, hasMore, &upTo)
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
