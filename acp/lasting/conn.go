package lasting

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

const (
	standardGiveUp = 10 * time.Minute
	dialBound      = 20 * time.Second // to open one connection, without its initialize
	againBound     = 5 * time.Minute  // for the answer to initialize on a later connection: a gateway waits less for an agent
	firstPause     = 200 * time.Millisecond
	longestPause   = 10 * time.Second
	maxWaiting     = 1024    // messages that no connection has taken
	maxUnread      = 256     // messages that the client has not read; beyond, the gateway is not read
	unreadBytes    = 4 << 20 // and their bytes, one message more
)

// ErrSilent is why the context of Dial ends when a gateway does not answer.
var ErrSilent = errors.New("takes connections, and does not answer")

// Options configure New.
type Options struct {
	// Dial opens a connection to the gateway.
	Dial func(ctx context.Context) (acp.Conn, error)
	// Take is given each message in place of Read, in their order, by one goroutine at a time.
	// A message is there until Take returns, and the gateway is not read meanwhile. It must not
	// call Write or Close. Read returns at the end of the Conn then. nil is not used.
	Take func(acp.Message)
	// GiveUp is how long, of time awake, a broken connection is tried to be replaced; 0 is ten
	// minutes. The first connection is tried once.
	GiveUp time.Duration
	// First has the first connection replaced, too, when it could be opened and breaks before the gateway has answered.
	First bool
	// Gone is told of a session that could not be attached to again, and why: the client is
	// given nothing more of it but the end of its turn, unless Gone takes that with
	// Interrupt. Refused says that this is the answer to a request of the client to open it; else one that
	// is on its way may open it all the same.
	// Nothing else of the Conn goes on before it returns; nil for nothing.
	Gone func(session string, why *acp.Error, refused bool)
	// Changed is told once when the connection is lost, and once when there is one again.
	// It must not wait; nil for nothing.
	Changed func(Link)
	Logger  *slog.Logger // nil discards
}

// Link says how the connection itself is: that it was lost, or that there is one again.
type Link struct {
	Lost  error           // why there is no connection; nil when there is one again
	Since time.Time       // when it was lost
	For   time.Duration   // how long there was none; 0 while there is none
	Turns map[string]bool // the sessions that were attached to again: whether a turn goes on there
}

// Conn is an acp.Conn over connections that break. Read and Write may be called
// by two goroutines.
type Conn struct {
	o      Options
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup
	unread chan acp.Message
	now    func() awake.Moment // tests have time stand still

	order  sync.Mutex     // held while messages that belong together are handed to the client
	taking sync.Mutex     // held while Take runs; the last of all
	one    [1]acp.Message // what incoming returns most of the time. Of who holds order

	wake chan struct{} // of the sender: the queue may have become longer

	mu       sync.Mutex
	held     int           // bytes of unread
	drained  chan struct{} // closed and replaced when they become fewer
	hello    acp.Message   // the client's initialize, as it is sent
	begun    bool
	greeted  bool                // initialize was answered
	two      bool                // the connection is of version 2 of the protocol
	parts    bool                // an event may be several frames: in version 2, and for who knows subagents
	turns    bool                // the client itself wants to hear how turns end
	notices  bool                // the client knows the gateway's own notifications
	queue    []outgoing          // what no connection has taken, in order; bounded by maxWaiting
	room     chan struct{}       // closed and replaced when the queue is no longer full
	crowded  bool                // a Write waits for that
	later    []outgoing          // what waits for nodes that are away: requests that were refused, in order, and what is behind them. It counts as the queue does
	soon     *time.Timer         // has the sender ask for these nodes again
	paused   time.Duration       // how long it waited before that last, 0 on a new connection
	pausing  bool                // it is about to
	linked   bool                // there is a connection, which may be on its way to where the one before it was
	up       bool                // it takes what is in the queue
	live     *link               // the connection, while its sender runs
	busy     bool                // somebody sends what is in the queue
	quiet    chan struct{}       // closed when nobody does; nil while nobody waits for that
	requests map[acp.ID]*request // of the client, without a response
	sessions map[string]*session // that the client is attached to
	children map[string]string   // the sessions that have them, by the ids of children
	own      map[acp.ID]chan acp.Message
	lastOwn  int
	refused  *request     // left a session closed, and what ends with that is yet to be told. Of who holds order
	restored int          // how many connections were brought to where the ones before them were, or are being
	since    awake.Moment // since when the last of them is
	renewing bool         // the last of them is not there yet: later has what is recovered, and the queue what is behind all of that
	names    string       // begins the names of prompts

	lost time.Time // since when there is no connection; zero while there is. Of run and of what it waits for
}

var _ acp.Conn = (*Conn)(nil)

// request is one of the client's that waits for its response.
type request struct {
	id       acp.ID
	frame    acp.Message
	method   string
	session  string // that it is about
	n        int    // grows with each
	sent     bool   // to some connection, perhaps in vain
	again    int    // how often it was sent anew. Of restore
	early    bool   // it is older than the connection
	asks     bool   // it is sent once more, perhaps to find out whether its node has come, and what is behind it in later waits for the answer
	attached bool   // to a session that the client was attached to before
	name     string // of a prompt
	after    uint64 // of a prompt: the session's newest event before it
	cancel   bool   // of a prompt: a cancel was sent behind it, perhaps in vain
	alone    bool   // of a prompt: so was one that is for it, and not for all of the session
	from     uint64 // of one that replays: what is behind that event is wanted again
	replay   replay // of such a request that was sent
	told     bool   // of a prompt of version 1 that an earlier connection took: the news of its turn's end is its response

	begun   uint64     // of such a prompt: the event that it is, or the end of its turn where that is all there is
	end     []byte     // of such a prompt: how its turn ended, as it was found; nil while it is not
	ended   uint64     // the event that end is
	deleted *acp.Error // of a prompt: its session was
	over    bool       // of a prompt of version 2: the end of its turn was told before its answer came
}

// replay says whether what comes of a session is what a request asks for anew. Before that are events of now.
type replay uint8

const (
	replayComes   replay = iota
	replayExpects        // nothing was given of it: its first event is as new as one of now
	replayBegan
)

// session is one that the client is attached to.
type session struct {
	params []byte // of the resume that attaches to it again, without after
	after  uint64 // the newest event that the client was given
	part   bool   // it may have more frames than were given
	given  int    // frames of it, requests not counted
	skip   int    // how many of them come again
	turn   turn   // of the client's own, in version 2
	works  bool   // the client was told so last, in version 2: a turn goes on, its own or another's
	since  uint64 // the event with which it was
	asks   map[uint64]*ask
	opened int    // number of the newest request that attaches to it
	from   uint64 // the event behind which the connection is attached to it, while that request is to open it from elsewhere
	here   bool   // the connection of now is attached to it
	unsure int    // number of a request to detach: here counts only if a prompt is taken that was written behind that; 0 when it counts
}

// turn is one whose prompt was answered, as version 2 does when it begins, and whose end was
// not told. The zero value is none: a session has one at a time.
type turn struct {
	name   string // of its prompt
	after  uint64 // the session's newest event before that
	n      int    // of its prompt
	cancel bool   // one was sent behind it, perhaps in vain
	alone  bool   // so was one that is for it, and not for all of the session
	end    []byte // how it ended, as it was found, when that may be still on its way; else nil
}

// ask is a request of the agent, by the place in the session's log.
type ask struct {
	method string
	shown  acp.ID // to the client
	id     acp.ID // on the connection of now; "" when it was not offered there
	answer *acp.Message
}

// New returns a connection that is opened with the first message, which must be
// initialize.
func New(o Options) *Conn {
	if o.GiveUp <= 0 {
		o.GiveUp = standardGiveUp
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{
		o: o, unread: make(chan acp.Message, maxUnread), wake: make(chan struct{}, 1), room: make(chan struct{}), drained: make(chan struct{}),
		requests: map[acp.ID]*request{}, sessions: map[string]*session{}, children: map[string]string{}, own: map[acp.ID]chan acp.Message{}, names: uuid.NewString(), now: awake.Now,
		soon: time.NewTimer(0),
	}
	c.soon.Stop()
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Read returns the next message. It fails when the connection was closed or
// given up. With [Options.Take] it returns then, and not before.
func (c *Conn) Read(ctx context.Context) (acp.Message, error) {
	select {
	case m := <-c.unread:
		return c.given(m), nil
	default:
	}
	select {
	case m := <-c.unread:
		return c.given(m), nil
	case <-ctx.Done():
		return acp.Message{}, ctx.Err()
	case <-c.ctx.Done():
		select {
		case m := <-c.unread: // what came before the end
			return c.given(m), nil
		default:
			return acp.Message{}, context.Cause(c.ctx)
		}
	}
}

// given notes that the client has read a message.
func (c *Conn) given(m acp.Message) acp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held -= len(m.Frame())
	close(c.drained)
	c.drained = make(chan struct{})
	return m
}

// Close ends the connection. Sessions live on.
func (c *Conn) Close() error {
	c.mu.Lock() // a Write that starts the first connection does so before or never
	c.cancel(io.EOF)
	c.soon.Stop()
	c.mu.Unlock()
	c.work.Wait()
	return nil
}

// beginLocked takes the client's first message and starts the connection. It
// returns the answer to one that cannot be the first.
func (c *Conn) beginLocked(m acp.Message) (refused acp.Message, ok bool) {
	if m.Method() != acp.MethodInitialize || !m.IsRequest() {
		if !m.IsRequest() {
			return acp.Message{}, true
		}
		return acp.NotInitialized(m.ID()), false
	}
	c.hello = c.greetingLocked(m)
	c.begun = true
	c.work.Go(c.run)
	return acp.Message{}, true
}

// greetingLocked returns the client's initialize as it is sent: it asks for what the Conn
// needs besides.
func (c *Conn) greetingLocked(m acp.Message) acp.Message {
	c.turns, c.notices = false, false
	params := m.Params()
	places := []string{"clientCapabilities"}
	if _, two := rawjson.Member(params, "info"); two { // as version 2 says it
		places = []string{"capabilities"}
		if _, both := rawjson.Member(params, "clientCapabilities"); both {
			places = append(places, "clientCapabilities")
		}
	}
	for _, place := range places {
		own, _ := rawjson.Member(params, place, "_meta", acp.MetaKey)
		c.turns = c.turns || rawjson.MemberBool(own, "turns")
		if len(own) == 0 || rawjson.IsEmptyObject(own) { // it does not know what the gateway says of its own
			params = rawjson.SetMember(params, []byte("false"), place, "_meta", acp.MetaKey, "notices")
		} else if no, _ := rawjson.Member(own, "notices"); string(no) != "false" {
			c.notices = true
		}
		for _, want := range []string{"eventIds", "turns"} {
			params = rawjson.SetMember(params, []byte("true"), place, "_meta", acp.MetaKey, want)
		}
	}
	return acp.NewRequest(m.ID(), acp.MethodInitialize, params)
}

func uintOf(meta []byte, name string) (uint64, bool) {
	v, ok := rawjson.Member(meta, acp.MetaKey, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(v)), 10, 64)
	return n, err == nil
}
