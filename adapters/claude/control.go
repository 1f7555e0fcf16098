package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

const controlBound = 30 * time.Second // for the program to answer

var errEnded = errors.New("the claude process has ended")

// send writes one line, within ctx. When the program takes none any more it has ended, and all
// that follows from that is done when send returns. The reader must not call it.
func (s *session) send(ctx context.Context, v any) error {
	b, err := schema.Encode(v)
	if err != nil {
		return fmt.Errorf("encode a line for claude: %w", err)
	}
	if err = s.child.WriteLine(ctx, b); errors.Is(err, bridge.ErrUnwritten) {
		<-s.ended
	}
	return err
}

// control asks the program to do something and returns its answer. The error is
// an *acp.Error when the program refused.
func (s *session) control(ctx context.Context, request any) (json.RawMessage, error) {
	return s.controlWithin(ctx, controlBound, request, func() {})
}

// call is what the program was asked.
type call struct {
	answer chan<- *controlResponse
	taken  func() // is called by the reader when the program has done it: before anything that it says behind that
}

func (s *session) controlWithin(ctx context.Context, bound time.Duration, request any, taken func()) (json.RawMessage, error) {
	ctx, cancel := bridge.Within(ctx, bound)
	defer cancel()
	s.mu.Lock()
	s.lastID++
	id := "gateway-" + strconv.Itoa(s.lastID)
	answer := make(chan *controlResponse, 1)
	s.calls[id] = call{answer, taken}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls, id)
		s.mu.Unlock()
	}()
	writing, written := bridge.Within(context.WithoutCancel(ctx), bound) // half a line cannot be taken back
	defer written()
	if err := s.send(writing, map[string]any{"type": "control_request", "request_id": id, "request": request}); errors.Is(err, bridge.ErrUnwritten) {
		return nil, errEnded
	} else if err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		if r.Subtype == "error" {
			return nil, acp.Errorf(acp.CodeInternal, "claude refused: %s", r.Error)
		}
		return r.Response, nil
	case <-s.ended:
		return nil, errEnded
	case <-ctx.Done():
		return nil, fmt.Errorf("ask claude: %w", ctx.Err())
	}
}

// controlled hands an answer to who waits for it. Others are echoes of our own.
func (s *session) controlled(r *controlResponse) {
	if r == nil {
		return
	}
	s.mu.Lock()
	c, ok := s.calls[r.RequestID]
	delete(s.calls, r.RequestID)
	s.mu.Unlock()
	if !ok {
		return
	}
	if r.Subtype != "error" {
		c.taken()
	}
	c.answer <- r
}

// respond answers a question of the program.
func (s *session) respond(id string, response any) {
	s.reply(map[string]any{"subtype": "success", "request_id": id, "response": response})
}

func (s *session) refuse(id, format string, args ...any) {
	s.reply(map[string]any{"subtype": "error", "request_id": id, "error": fmt.Sprintf(format, args...)})
}

func (s *session) reply(response any) {
	ctx, cancel := bridge.Within(s.ctx, controlBound) // the end of a turn may wait for it
	defer cancel()
	if err := s.send(ctx, map[string]any{"type": "control_response", "response": response}); err != nil {
		s.log.Debug("answer to claude", "session", s.id, "err", err)
	}
}

// asked takes a question of the program. It is called by the reader, which must
// not wait: the answer is found, and written, by a goroutine of its own.
func (s *session) asked(e *event) {
	r := new(controlRequest)
	if bridge.Lenient(e.Request, r) != nil {
		s.work.Go(func() { s.refuse(e.RequestID, "the request cannot be read") })
		return
	}
	if r.Subtype == "can_use_tool" {
		s.emit(func(t *translator) []schema.SessionUpdate { return t.asked(r) })
	}
	t := s.turns.Current()
	until := s.ctx
	ours := t != nil && r.turns
	if ours { // what subagents ask may go on behind the turn
		until = t.Context()
	}
	r.own = t == nil && r.turns
	ctx, done, ok := s.asks.Begin(until, e.RequestID)
	if !ok {
		s.work.Go(func() { s.refuse(e.RequestID, "too many questions are open") })
		return
	}
	s.mu.Lock()
	s.askers[e.RequestID] = r
	s.mu.Unlock()
	answer := func() {
		defer done()
		s.answer(ctx, e.RequestID, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.askers, e.RequestID)
	}
	if !ours || !t.Go(func(over context.Context) {
		if answer(); over.Err() != nil {
			s.refuse(e.RequestID, "the turn is over")
		}
	}) {
		s.work.Go(answer)
	}
}

// dropOwn takes back what the program asks in what it does by itself, which is over, and waits until the client knows.
func (s *session) dropOwn() {
	s.mu.Lock()
	for id, r := range s.askers {
		if r.own {
			s.asks.Withdraw(id)
		}
	}
	s.mu.Unlock()
	s.asks.AwaitWithdrawn()
}

// spare notes that a turn is cancelled beside the questions of subagents that earlier ones have left behind.
func (s *session) spare(t *turn.Turn[work]) {
	left := map[string]bool{}
	s.mu.Lock()
	for id, r := range s.askers {
		left[id] = t.Work.beside(r)
	}
	s.mu.Unlock()
	s.asks.Spare(func(id string) bool { return left[id] })
}

// spared reports whether the answer to a question that is cancelled is meant for a turn that it is not of: clients cancel all that is
// asked with a turn, and gateways for them.
func (s *session) spared(id string, r *controlRequest) bool {
	if s.asks.Spared(id) {
		return true
	}
	t := s.turns.Current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return t != nil && t.Work.beside(r)
}

// answer finds the answer to a question and gives it, unless the question was
// withdrawn. The reader may wait for what the client is told, and not for what is written to the program.
func (s *session) answer(ctx context.Context, id string, r *controlRequest) {
	switch r.Subtype {
	case "can_use_tool":
		if ctx.Err() != nil {
			return
		}
		a, err := s.decide(ctx, r)
		s.asks.Told(id)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.refuse(id, "the client did not answer: %v", err)
			return
		}
		if a.Interrupt && s.spared(id, r) {
			a = deny(saidBeside) // the subagent goes on
		}
		if a.Behavior == "allow" {
			s.emit(func(t *translator) []schema.SessionUpdate { return t.allowed(r.ToolUse) })
		}
		s.respond(id, a)
	case "elicitation":
		resp := s.elicit(ctx, r)
		s.asks.Told(id)
		if ctx.Err() == nil {
			s.respond(id, resp)
		}
	case "request_user_dialog":
		s.asks.Told(id)
		s.respond(id, map[string]string{"behavior": "cancelled"})
	default:
		s.asks.Told(id)
		s.refuse(id, "this host does not know %s", r.Subtype)
	}
}

// decide asks the client whether a tool may be used, or what it wants to know.
func (s *session) decide(ctx context.Context, r *controlRequest) (answer, error) {
	if q, ok := questionsOf(s.id, r); ok {
		var resp acp.QuestionResponse
		if err := s.a.peer.Ask(ctx, acp.MethodRequestQuestion, q, &resp); err != nil {
			return answer{}, err
		}
		return answered(q, r, &resp), nil
	}
	list := choicesOf(r, s.modeIDs())
	req := permissionRequest(s.id, r, list)
	var resp schema.RequestPermissionResponse
	if err := s.a.peer.Ask(ctx, acp.MethodSessionRequestPermission, req, &resp); err != nil {
		return answer{}, err
	}
	a := chosen(&resp, list)
	if len(a.Permissions) > 0 {
		s.keep(func(known *record) { known.allow(a.Permissions, r.ToolName, req.ToolCall.Kind) })
	}
	return a, nil
}
