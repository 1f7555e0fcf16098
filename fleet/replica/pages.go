package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	maxChange    = 1 << 20 // bytes of one change of the list of sessions
	changeBuffer = 1 << 10 // of what is read of it at once; one is kept for each node

	maxEvent    = 80 << 20 // bytes of an event; what agents say in one line may have 64 MiB
	usualEvent  = 1 << 20  // one with more waits for its turn among those of all nodes
	largeAtOnce = 2

	firstPage = 100 // events of the first page that is asked for
	mostPage  = 1000
	fullPage  = 1 << 20 // bytes that a page is meant to have
	pageBound = 5 * time.Minute
	stall     = 20 * time.Second // without a byte of it
)

// errLost says that the node could not be asked, or its answer did not come to its end.
var errLost = errors.New("the node did not answer")

// ask sends a GET to the node and returns an answer that is no error. The path is escaped.
func (f *Follower) ask(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header = header
	resp, err := f.o.Carrier.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	if asked := header.Get("Upgrade") != ""; resp.StatusCode != http.StatusOK && !(asked && resp.StatusCode == http.StatusSwitchingProtocols) {
		defer resp.Body.Close()
		return nil, fmt.Errorf("the node answers: %w", acphttp.ReadProblem(resp))
	}
	return resp, nil
}

// changes follows the list of sessions from its beginning until it ends, which is an error.
func (f *Follower) changes(ctx context.Context) error {
	resp, err := f.ask(ctx, "/v2/sessions/changes", nil, http.Header{"Accept": {sse.ContentType}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := sse.NewDecoderSize(resp.Body, maxChange, changeBuffer)
	for {
		ev, err := dec.Next()
		if err != nil {
			return fmt.Errorf("follow the sessions of the node: %w", err)
		}
		if ev.Type != "message" {
			continue
		}
		var c runtime.SessionChange
		if err := json.Unmarshal(ev.Data, &c); err != nil {
			return badAnswer("a change of its sessions is not one: %v", err)
		}
		f.tell(c)
	}
}

// event is an event in the node's own bytes, without newlines.
type event struct {
	seq  uint64
	line []byte
}

// wanted says which events are asked for.
type wanted struct {
	after uint64
	limit int
	// held are those of a session whose node shows its clients only what is stored, and
	// stored up to where it is: what comes behind is wanted, too.
	held   bool
	stored uint64
	// joined asks for the last event of the replica, too: what comes must stand behind it.
	joined bool
	// trouble is why the store takes no more of such a session; its clients are told.
	trouble string
	wait    time.Duration // for the next one of such a session
	// line, if there is one, is where pages come that are waited for.
	line *line
	// room is asked before the answer is read; nil when there is room.
	room func() error
}

func (w *wanted) query() url.Values {
	return url.Values{"after": {strconv.FormatUint(w.after, 10)}, "limit": {strconv.Itoa(w.limit)}}
}

func (w *wanted) header() http.Header {
	h := http.Header{"Accept": {"application/json"}}
	if w.held {
		h.Set(control.HeaderStored, strconv.FormatUint(w.stored, 10))
		if w.trouble != "" {
			h.Set(control.HeaderStoreTrouble, w.trouble)
		}
	}
	if w.wait > 0 {
		h.Set("Prefer", "wait="+strconv.Itoa(int(w.wait/time.Second)))
	}
	return h
}

// answered is what a node says of the events that it has given.
type answered struct {
	size int64  // bytes
	more bool   // there are more
	upTo uint64 // what was looked at for them; 0 when the node does not say
}

// page asks for events of a session, unless there is a line on which they come, and gives each one to take.
func (f *Follower) page(ctx context.Context, id string, w wanted, take func(event) error) (a answered, err error) {
	if w.line != nil && w.line.conn != nil {
		a, err := w.line.page(w, take)
		if errors.Is(err, errEnded) {
			w.line.close()
		}
		return a, err
	}
	begins, header := w.line != nil && !w.line.failed, w.header()
	if begins {
		w.line.ask(header)
	}
	all := ctx
	ctx, cancel := context.WithTimeout(ctx, pageBound)
	defer cancel()
	still := time.AfterFunc(stall, cancel)
	defer still.Stop()
	resp, err := f.ask(ctx, "/v2/sessions/"+url.PathEscape(id)+"/events", w.query(), header)
	if err != nil {
		return a, err
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); begins && ok && resp.StatusCode == http.StatusSwitchingProtocols {
		w.line.open(all, conn, f.o.Share.large)
		return f.page(all, id, w, take)
	}
	if w.line != nil {
		w.line.failed = true
	}
	defer resp.Body.Close()
	if w.room != nil {
		still.Stop() // the wait is not the node's
		if err := w.room(); err != nil {
			return a, err
		}
	}
	body := &gauge{r: resp.Body, ctx: ctx, still: still, large: f.o.Share.large}
	defer body.release()
	return (&values{r: body}).events(body.release, take)
}

// events reads a page of events and gives each one to take. Taken is called behind each.
func (v *values) events(taken func(), take func(event) error) (a answered, err error) {
	err = v.list('{', '}', func() error {
		name, err := v.value()
		if err != nil {
			return err
		}
		of := string(name) // which is gone when more is read
		var to any         // what is not known is of no concern
		switch of {
		case `"hasMore"`:
			to = &a.more
		case `"upTo"`:
			to = &a.upTo
		}
		if err := v.mark(':'); err != nil {
			return err
		}
		if of == `"events"` {
			return v.list('[', ']', func() error {
				ev, err := v.event()
				if err != nil {
					return err
				}
				a.size += int64(len(ev.line))
				if err := take(ev); err != nil {
					return err
				}
				taken()
				return nil
			})
		}
		value, err := v.value()
		if err == nil && to != nil && json.Unmarshal(value, to) != nil {
			err = badAnswer("%s of a page of events is %.40s", of, value)
		}
		return err
	})
	return a, err
}

// event reads an event, which is there until the next value is read.
func (v *values) event() (event, error) {
	raw, err := v.value()
	if err != nil {
		return event{}, err
	}
	seq, ok := usual(raw)
	if !ok {
		ev, err := EventOf(raw)
		if err != nil {
			return event{}, badAnswer("%v", err)
		}
		seq = ev.Seq
	}
	return event{seq, raw}, nil
}

// usual returns the number of an event that is written as gateways write it, and that [EventOf]
// takes. Most are, and to decode them would cost a third of what it takes to copy them.
func usual(line []byte) (seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return 0, false
	}
	digits, rest, ok := bytes.Cut(rest, []byte(`,"time":"`))
	if !ok {
		return 0, false
	}
	if seq, ok = numberOf(digits); !ok {
		return 0, false
	}
	at, rest, ok := bytes.Cut(rest, []byte(`","direction":"`))
	var t time.Time
	if !ok || t.UnmarshalText(at) != nil || t.IsZero() {
		return 0, false
	}
	from, message, ok := bytes.Cut(rest, []byte(`","message":`))
	switch d := runtime.Direction(from); {
	case !ok, d != runtime.FromAgent && d != runtime.FromClient && d != runtime.FromGateway:
		return 0, false
	}
	scan := rawjson.NewScanner(message)
	end := scan.Value(0, 1)
	return seq, end > 0 && end == len(message)-1 && message[end] == '}' // nothing stands behind it
}

// numberOf reads a number as JSON has it, from 1 to what all can hold.
func numberOf(digits []byte) (n uint64, ok bool) {
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// EventOf reads a line of a replica. The event shares no memory with it.
func EventOf(line []byte) (runtime.Event, error) {
	var e runtime.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("an event is not one: %w", err)
	}
	switch {
	case e.Seq == 0 || e.Seq != SeqOf(line) || len(e.Message) == 0 || e.Time.IsZero():
		return e, errors.New("an event has no number, no time or no message")
	case e.Direction != runtime.FromAgent && e.Direction != runtime.FromClient && e.Direction != runtime.FromGateway:
		return e, fmt.Errorf("event %d comes from nobody", e.Seq)
	}
	return e, nil
}

var errLarge = fmt.Errorf("an event has more than %d MiB, which is more than a hub copies", maxEvent>>20)

// gauge reads an answer of which each event is bounded. Of those that are large only a few are
// read at one time, of all nodes.
type gauge struct {
	r     io.Reader
	ctx   context.Context
	still *time.Timer // ends the answer when nothing comes
	large chan struct{}
	n     int  // bytes since the last event
	holds bool // a place in large
}

// Read implements io.Reader.
func (g *gauge) Read(p []byte) (int, error) {
	if g.n > usualEvent && !g.holds {
		g.still.Stop() // the wait is not the node's
		if g.holds = enter(g.ctx, g.large); !g.holds {
			return 0, context.Cause(g.ctx)
		}
	}
	if g.n > maxEvent {
		return 0, errLarge
	}
	g.still.Reset(stall)
	n, err := g.r.Read(p)
	g.n += n
	return n, err
}

// release says that an event was read and is not needed any more.
func (g *gauge) release() {
	if g.n = 0; g.holds {
		<-g.large
		g.holds = false
	}
}
