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
	afterBound  = 5 * time.Second // a POST waits so long for the one it is to follow
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
	moved chan struct{} // closed when a POST was taken or refused; nil when nobody waits
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

// await waits until the POST with the key was taken or is known to be wrong, at most
// afterBound: it may never arrive.
func (rs *receipts) await(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, afterBound)
	defer cancel()
	for {
		rs.mu.Lock()
		if r := rs.m[key]; r != nil && (r.taken || r.refused) {
			rs.mu.Unlock()
			return
		}
		if rs.moved == nil {
			rs.moved = make(chan struct{})
		}
		moved := rs.moved
		rs.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
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
