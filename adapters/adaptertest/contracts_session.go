package adaptertest

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// initialize: the agent speaks the version it was asked for.
func (s *suite) initialize(t testing.TB) {
	c := s.connected(t)
	if c.hello.ProtocolVersion != protocolVersion {
		c.fatalf("the agent speaks protocol version %d, want %d", c.hello.ProtocolVersion, protocolVersion)
	}
	if c.hello.AgentCapabilities == nil {
		c.fatalf("the agent does not say what it can")
	}
}

// new: every session has an id of its own.
func (s *suite) new(t testing.TB) {
	c, first := s.ready(t)
	if second := c.other(); second == first {
		c.fatalf("two new sessions have the id %s", first)
	}
}

// past is a conversation of one prompt, Say, at least.
type past struct {
	session schema.SessionID
	answer  string // to the first prompt
}

// reopened returns a session with a past, and another agent with the same state,
// which does not know of it yet.
func (s *suite) reopened(t testing.TB) (*client, *past) {
	t.Helper()
	if s.past == nil {
		c := s.connected(t)
		id := c.other()
		s.past = &past{id, said(c.prompt(id, s.Prompts.Say).updates)}
	}
	s.drop(t)
	return s.connected(t), s.past
}

// load: another process of the agent opens a session and sends what was said,
// before it answers.
func (s *suite) load(t testing.TB) {
	if s.NoLoad {
		c := s.connected(t)
		s.lacks(c, acp.MethodSessionLoad, c.hello.AgentCapabilities != nil && c.hello.AgentCapabilities.LoadSession)
		return
	}
	c, past := s.reopened(t)
	if caps := c.hello.AgentCapabilities; caps == nil || !caps.LoadSession {
		c.fatalf("the agent does not claim to load sessions")
	}
	id := past.session
	p := &turn{c: c, session: id}
	p.id, p.from = c.request(acp.MethodSessionLoad, c.encode(&schema.LoadSessionRequest{SessionID: id, Cwd: c.cwd, MCPServers: []schema.MCPServer{}}))
	at, m := c.response(p.id, acp.MethodSessionLoad, p.from)
	if e := m.Err(); e != nil {
		c.fatalf("%s failed: %v", acp.MethodSessionLoad, e)
	}
	p.at, p.updates = at, c.updates(id, p.from, at)
	if got := asked(p.updates); !strings.Contains(got, s.Prompts.Say.Text) {
		c.fatalf("the replay has the prompts %q, want %q", got, s.Prompts.Say.Text)
	}
	if got := said(p.updates); got != past.answer {
		c.fatalf("the replay has the answer %q, want %q", got, past.answer)
	}
	p.quiet()
	c.prompt(id, s.Prompts.Say)
}

// resume: another process of the agent opens a session and sends nothing of
// what was said.
func (s *suite) resume(t testing.TB) {
	if s.NoResume {
		c := s.connected(t)
		s.lacks(c, acp.MethodSessionResume, resumes(c.hello))
		return
	}
	c, past := s.reopened(t)
	if !resumes(c.hello) {
		c.fatalf("the agent does not claim to resume sessions")
	}
	from := c.seen()
	c.must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: past.session, Cwd: c.cwd, MCPServers: []schema.MCPServer{}}, nil)
	for _, u := range c.updates(past.session, from, c.barrier()) {
		if ofTurn(&u) {
			c.fatalf("resuming replays the session")
		}
	}
	c.prompt(past.session, s.Prompts.Say)
	c.first = past.session // as good as any for what follows
}

func resumes(r *schema.InitializeResponse) bool {
	caps := r.AgentCapabilities
	return caps != nil && caps.SessionCapabilities != nil && caps.SessionCapabilities.Resume != nil
}

// lacks checks that a method is neither claimed nor answered.
func (s *suite) lacks(c *client, method string, claimed bool) {
	c.t.Helper()
	if claimed {
		c.fatalf("the agent claims to have %s", method)
	}
	params := &schema.LoadSessionRequest{SessionID: "no-such-session", Cwd: c.cwd, MCPServers: []schema.MCPServer{}}
	if c.call(method, params, nil) == nil {
		c.fatalf("%s succeeded, want an error", method)
	}
}

// unknownMethod: extensions and methods of other versions are refused with the
// code that says so, and nothing else happens.
func (s *suite) unknownMethod(t testing.TB) {
	c, id := s.ready(t)
	for _, method := range []string{methodProbe, "session/no_such_method"} {
		e := c.call(method, struct{}{}, nil)
		if e == nil || e.Code != acp.CodeMethodNotFound {
			c.fatalf("%s was answered with %v, want code %d", method, e, acp.CodeMethodNotFound)
		}
	}
	c.notify("_adaptertest/unknown_notification", struct{}{}) // has no answer
	c.prompt(id, s.Prompts.Say)
}

// unknownSession: a session that does not exist is an error of the request and
// of nothing else.
func (s *suite) unknownSession(t testing.TB) {
	const none = "no-such-session"
	c, id := s.ready(t)
	if p := c.begin(none, s.Prompts.Say.Text).over(); p.err == nil {
		c.fatalf("a prompt of an unknown session succeeded, want an error")
	}
	c.cancel(none)
	if !s.NoLoad {
		e := c.call(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: none, Cwd: c.cwd, MCPServers: []schema.MCPServer{}}, nil)
		if e == nil {
			c.fatalf("loading an unknown session succeeded, want an error")
		}
	}
	c.prompt(id, s.Prompts.Say)
}

// concurrentWrites: frames written at the same time do not mix, and each
// request gets one answer.
func (s *suite) concurrentWrites(t testing.TB) {
	const writers, each = 8, 25
	c, _ := s.ready(t)
	from := c.seen()
	queues := make([][]acp.Message, writers)
	open := map[acp.ID]bool{}
	for w := range queues {
		for i := range each {
			id := acp.ID(strconv.Quote("writer-" + strconv.Itoa(w) + "-" + strconv.Itoa(i)))
			open[id] = true
			// Of many sizes, beyond what a pipe takes at once.
			pad := strings.Repeat("x", (w*each+i)*97%9000)
			queues[w] = append(queues[w], acp.NewRequest(id, methodProbe, c.encode(map[string]string{"pad": pad})))
		}
	}
	err := c.within("Write", func() error {
		var all sync.WaitGroup
		failed := make(chan error, writers)
		for _, queue := range queues {
			all.Go(func() {
				for _, m := range queue {
					c.note(m)
					if err := c.conn.Write(c.ctx, m); err != nil {
						failed <- err
						return
					}
				}
			})
		}
		all.Wait()
		close(failed)
		return <-failed
	})
	if err != nil {
		c.fatalf("Write: %v", err)
	}
	for len(open) > 0 {
		at, m := c.await(from, strconv.Itoa(len(open))+" responses", func(m *acp.Message) bool { return m.IsResponse() })
		if !open[m.ID()] {
			c.fatalf("a response to %s, which nobody waits for", m.ID())
		}
		delete(open, m.ID())
		from = at + 1
	}
}
