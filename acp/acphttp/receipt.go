package acphttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

const (
	// HeaderKey names a POST. One that comes again on its connection with the
	// same key is answered and not carried out again: a client whose network
	// failed can repeat what may have arrived.
	HeaderKey = "Idempotency-Key"
	// HeaderAfter has the key of the POST that this one must not overtake: POSTs
	// travel on connections of their own.
	HeaderAfter = "X-Acp-After"
)

const (
	afterBound  = 5 * time.Second // a POST waits so long for the one it is to follow, while nothing of that is there
	maxKeyLen   = 255
	maxReceipts = 1024    // keys remembered per connection; the oldest is forgotten
	maxKept     = 8 << 20 // bytes of answers kept with them; the oldest answers go
)

// receipts are the POSTs of a connection that came with a key. All methods are
// safe for concurrent use.
type receipts struct {
	mu    sync.Mutex
	m     map[string]*receipt
	order []*receipt    // oldest first
	bytes int           // of answers
	moved chan struct{} // closed when a POST was taken or refused, or its arrival begins or ends; nil when nobody waits

	arrivals map[string]*arrival // by key
}

// arrival is what is there of a POST that is not yet taken: requests whose bodies are read, or which wait themselves. It lasts as
// long as one of them.
type arrival struct {
	requests int
	after    string // the key of the POST that they wait for
}

// receipt is one such POST. Its fields are guarded by the receipts' mu.
type receipt struct {
	key      string
	taken    bool // handed to the client; what comes after it follows it
	refused  bool // it is wrong, also when it comes again: what comes after it need not wait
	answered bool // reply holds the answer unless it was dropped
	dropped  bool
	reply    acp.Reply
	waiting  []chan<- acp.Reply
}

// keyOf returns the request's key, "" when it has none.
func keyOf(r *http.Request) (string, error) {
	key := r.Header.Get(HeaderKey)
	if len(key) > maxKeyLen {
		return "", problem.New(problem.InvalidRequest, "%s is longer than %d bytes", HeaderKey, maxKeyLen)
	}
	return key, nil
}

// arrive notes that a POST with the key is there, of which no more may have come than its headers, until over is called.
func (rs *receipts) arrive(key string) (over func()) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.arrivals[key]
	if a == nil {
		if rs.arrivals == nil {
			rs.arrivals = map[string]*arrival{}
		}
		a = &arrival{}
		rs.arrivals[key] = a
	}
	a.requests++
	rs.movedLocked()
	return sync.OnceFunc(func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		if a.requests--; a.requests == 0 {
			delete(rs.arrivals, key)
		}
		rs.movedLocked()
	})
}

// begin notes the key; again says that it was there already.
func (rs *receipts) begin(key string) (_ *receipt, again bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.m[key]; r != nil && !r.refused {
		return r, true
	} else if r != nil {
		rs.forgetLocked(r)
	}
	if rs.m == nil {
		rs.m = map[string]*receipt{}
	}
	if len(rs.order) >= maxReceipts {
		rs.forgetLocked(rs.order[0])
	}
	r := &receipt{key: key}
	rs.m[key] = r
	rs.order = append(rs.order, r)
	return r, false
}

func (rs *receipts) forgetLocked(r *receipt) {
	if rs.m[r.key] != r {
		return
	}
	delete(rs.m, r.key)
	rs.bytes -= len(r.reply.Frame)
	for i, o := range rs.order {
		if o == r {
			rs.order = append(rs.order[:i], rs.order[i+1:]...)
			return
		}
	}
}

// end says what became of a POST: err is why it was not handed on. What was refused for a reason that
// goes away is waited for until it comes again.
func (rs *receipts) end(r *receipt, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	wrong, ok := errors.AsType[*problem.Error](err)
	switch {
	case err == nil:
		r.taken = true
	case ok && wrong.Kind == problem.InvalidRequest:
		r.refused = true
	default:
		rs.forgetLocked(r)
		return
	}
	rs.movedLocked()
}

func (rs *receipts) movedLocked() {
	if rs.moved != nil {
		close(rs.moved)
		rs.moved = nil
	}
}

// await has the POST with the key own, which may be empty, wait until the one with the key was taken or is known to be wrong. It waits as
// long as something of that one is there, whose time is bounded, and else at most afterBound: it may never arrive. The error says that ctx
// ended first.
func (rs *receipts) await(ctx context.Context, key, own string) error {
	rs.mu.Lock()
	if a := rs.arrivals[own]; a != nil {
		a.after = key
		rs.movedLocked() // it may close a circle
	}
	rs.mu.Unlock()
	bound := time.NewTimer(afterBound)
	defer bound.Stop()
	for there := false; ; {
		rs.mu.Lock()
		if r := rs.m[key]; r != nil && (r.taken || r.refused) {
			rs.mu.Unlock()
			return nil
		}
		if there && rs.arrivals[key] == nil { // it may come again
			bound.Reset(afterBound)
		}
		there = rs.arrivals[key] != nil && !rs.followsLocked(key, own)
		if rs.moved == nil {
			rs.moved = make(chan struct{})
		}
		moved, passed := rs.moved, bound.C
		rs.mu.Unlock()
		if there {
			passed = nil
		}
		select {
		case <-moved:
		case <-passed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// followsLocked reports whether the POST with the key waits for the one with the other key, also by way of more: those would wait for ever.
func (rs *receipts) followsLocked(key, other string) bool {
	for range len(rs.arrivals) { // no way is longer
		a := rs.arrivals[key]
		if a == nil || key == other {
			break
		}
		key = a.after
	}
	return key == other && other != ""
}

// record keeps the answer and gives it to who waits.
func (rs *receipts) record(r *receipt, rep acp.Reply) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, w := range r.waiting {
		w <- rep // each has room for it
	}
	r.answered, r.waiting = true, nil
	if rs.m[r.key] != r {
		return
	}
	r.reply = rep
	rs.bytes += len(rep.Frame)
	for _, o := range rs.order {
		if rs.bytes <= maxKept {
			return
		}
		if o.answered && !o.dropped {
			rs.bytes -= len(o.reply.Frame)
			o.reply, o.dropped = acp.Reply{}, true
		}
	}
}

// answer returns a channel that receives the answer once.
func (rs *receipts) answer(r *receipt) (<-chan acp.Reply, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	ch := make(chan acp.Reply, 1)
	switch {
	case r.dropped:
		return nil, problem.New(problem.Conflict, "this request was answered, and its answer is no longer kept: read the session's events")
	case r.answered:
		ch <- r.reply
	default:
		r.waiting = append(r.waiting, ch)
	}
	return ch, nil
}
