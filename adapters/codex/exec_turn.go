package codex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// execLadder ends a run: its input has ended long before.
var execLadder = process.Ladder{Term: 3 * time.Second}

// sandboxes are codex's own names of the modes.
var sandboxes = map[string]string{modeReadOnly: "read-only", modeAgent: "workspace-write", modeFullAccess: "danger-full-access"}

// environ is the environment of a run, which takes its key from there.
func (a *execAgent) environ() []string {
	var set []string
	if c := a.o.Credentials; c.APIKey != "" {
		set = append(set, varCodex+"="+c.APIKey, varOpenAI+"="+c.APIKey)
	}
	if url := a.o.Credentials.BaseURL; url != "" {
		set = append(set, "OPENAI_BASE_URL="+url)
	}
	drop := []string{}
	if a.o.Credentials.APIKey != "" {
		drop = []string{varOpenAI, varCodex}
	}
	env := bridge.Environ(a.o, drop, set...)
	if key := bridge.Lookup(env, varOpenAI); key != "" && bridge.Lookup(env, varCodex) == "" {
		env = append(env, varCodex+"="+key) // exec reads no other
	}
	return env
}

// arguments are those of a run. The prompt goes through stdin.
func (s *execSession) arguments() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append(slices.Clone(s.a.o.Program.Args), "exec", "--json", "--skip-git-repo-check", "-c", "sandbox_mode="+quoted(sandboxes[s.mode]))
	if s.mode == modeAgent && len(s.dirs) > 0 {
		args = append(args, "-c", "sandbox_workspace_write.writable_roots="+quoted(s.dirs))
	}
	if s.model != "" {
		args = append(args, "-c", "model="+quoted(s.model))
	}
	if url := s.a.o.Credentials.BaseURL; url != "" {
		args = append(args, "-c", "openai_base_url="+quoted(url))
	}
	if s.thread != "" {
		args = append(args, "resume", s.thread)
	}
	return append(args, "-")
}

// quoted is a value of the configuration, as JSON, which is TOML as well.
func quoted(v any) string {
	b, err := schema.Encode(v)
	if err != nil {
		return `""`
	}
	return string(b)
}

// Prompt runs codex once. Prompts of a session run one after another.
func (a *execAgent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	s, err := a.sessions.Get(r.SessionID)
	if err != nil {
		return nil, err
	}
	text, err := wordsOf(r.Prompt)
	if err != nil {
		return nil, err
	}
	gone := func() error { return bridge.NotFound(s.id) }
	return s.slot.Prompt(ctx, s.ctx.Done(), gone, func(w *bridge.Waiting) (*schema.PromptResponse, error) {
		s.mu.Lock()
		first := !s.titled
		s.titled = true
		over := s.ctx.Err() != nil
		if !over {
			s.work.Add(1)
		}
		s.mu.Unlock()
		if over {
			return nil, gone()
		}
		defer s.work.Done()
		if first {
			s.emit(func(*translator) []schema.SessionUpdate { return bridge.Entitled(r.Prompt) })
		}
		return s.run(ctx, text, w.Cancelled)
	})
}

// Cancel has nothing to do: prompts watch acp.TurnCancelled.
func (a *execAgent) Cancel(_ context.Context, n *schema.CancelNotification) error {
	_, err := a.sessions.Get(n.SessionID)
	return err
}

// wordsOf is a prompt as text.
func wordsOf(prompt []schema.ContentBlock) (string, error) {
	for _, b := range prompt {
		if b.Image != nil {
			return "", acp.Errorf(acp.CodeInvalidParams, "this version of codex runs without its app-server and takes text only: install %s or newer for images", oldest())
		}
	}
	inputs, err := content.Parts(prompt)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, in := range inputs {
		if m, ok := in.(map[string]any); ok && m["type"] == "text" {
			if s, ok := m["text"].(string); ok {
				parts = append(parts, s)
			}
		}
	}
	return strings.Join(parts, "\n"), nil
}

// run runs the program for one prompt.
func (s *execSession) run(ctx context.Context, text string, cancelled <-chan struct{}) (*schema.PromptResponse, error) {
	child, err := bridge.Start(ctx, process.Spec{Path: s.a.o.Program.Path, Args: s.arguments(), Env: s.a.environ(), Dir: s.cwd})
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	s.work.Go(func() { // it ends the run when nobody wants it any more
		select {
		case <-cancelled:
		case <-ctx.Done():
		case <-s.ctx.Done():
		case <-stop:
			return
		}
		child.Stop(execLadder)
	})
	watch := make(chan struct{})
	s.work.Go(func() {
		defer close(watch)
		_, err := io.WriteString(child.Stdin, text)
		if err = errors.Join(err, child.Stdin.Close()); err != nil {
			s.a.log.Debug("give codex its prompt", "session", s.id, "err", err)
		}
	})
	run := &execRun{id: uuid.NewString(), cwd: s.cwd}
	for {
		line, err := child.ReadLine()
		if _, ok := errors.AsType[*ndjson.TooLongError](err); ok {
			s.unparsed(line, err)
			continue
		}
		if err != nil {
			break
		}
		s.take(run, line)
	}
	exit := child.End(execLadder)
	<-watch
	close(stop)
	over := &event{Method: "turn/completed", Turn: &turn{ID: run.id, Status: "interrupted"}}
	s.emit(func(t *translator) []schema.SessionUpdate { return t.turnOver(over, "") })
	select {
	case <-cancelled:
		return &schema.PromptResponse{StopReason: schema.StopReasonCancelled, Usage: run.usage}, nil
	case <-s.ctx.Done():
		return &schema.PromptResponse{StopReason: schema.StopReasonCancelled, Usage: run.usage}, nil
	default:
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case run.foreign != "":
		return nil, acp.Errorf(acp.CodeInternal, "codex did not go on with thread %s and began another one, %s", s.thread, run.foreign)
	case run.failed != nil && run.failed.unauthorized():
		const how = "set CODEX_API_KEY or OPENAI_API_KEY, give the session credentials, or run `codex login` in a terminal on the agent's machine"
		return nil, acp.Errorf(acp.CodeAuthRequired, "authentication required: %s; %s", run.failed.Message, how).WithData(map[string]any{
			"reason": run.failed.Message, "remedy": how,
		})
	case run.failed != nil:
		v := (&running{}).judge(&turn{Status: "failed", Error: run.failed})
		if v.err != nil {
			return nil, v.err
		}
		return &schema.PromptResponse{StopReason: v.reason, Usage: run.usage}, nil
	case !run.done:
		return nil, &acp.Error{Code: acp.CodeInternal, Message: fmt.Sprintf("codex ended in the middle of the turn: %v", exit), Data: exit.Data()}
	}
	return &schema.PromptResponse{StopReason: schema.StopReasonEndTurn, Usage: run.usage}, nil
}

func (s *execSession) unparsed(line []byte, reason error) {
	m := ndjson.Unparsed(line, reason)
	if err := s.a.peer.Notify(s.ctx, m.Method(), m.Params()); err != nil {
		s.a.log.Debug("report a line that is no message", "err", err)
	}
}

// take acts on a line of a run.
func (s *execSession) take(run *execRun, line []byte) {
	var e execEvent
	if err := bridge.Lenient(line, &e); err != nil {
		s.unparsed(line, err)
		return
	}
	if e.Type == "thread.started" && e.Thread != "" {
		s.mu.Lock()
		before := s.thread
		if before == "" {
			s.thread = e.Thread
		}
		s.mu.Unlock()
		switch {
		case before == "":
			s.keep(func(r *record) { r.Thread = e.Thread })
		case before != e.Thread:
			run.foreign = e.Thread
		}
		return
	}
	if e.Type == "turn.completed" && e.Usage != nil {
		s.mu.Lock()
		used := e.Usage.since(&s.total)
		if s.counted {
			run.usage = used
		}
		s.counted = true
		s.mu.Unlock()
	}
	s.emit(func(t *translator) []schema.SessionUpdate { return run.translate(t, &e) })
}

// emit sends the updates that f returns. f has the translator for itself.
func (s *execSession) emit(f func(t *translator) []schema.SessionUpdate) {
	s.out.Lock()
	defer s.out.Unlock()
	for _, u := range f(s.tr) {
		if err := s.a.peer.Update(s.ctx, s.id, u); err != nil {
			s.a.log.Debug("send an update", "session", s.id, "err", err)
		}
	}
}
