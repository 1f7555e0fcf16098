package pi

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// command is a row of Pi's list of commands.
type command struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Source      string `json:"source"`
}

// builtins are commands of Pi's terminal that its protocol has under other names.
var builtins = []struct{ name, about, hint string }{
	{"compact", "Summarize the conversation so that it needs less context", "[what the summary should say]"},
	{"bash", "Run a command; the model is shown it with the next prompt", "COMMAND"},
}

// terminalOnly are commands of Pi's own extensions that need a terminal.
var terminalOnly = map[string]bool{"llama": true}

// commandsUpdate lists the slash commands.
func commandsUpdate(list []command) []schema.SessionUpdate {
	out := []schema.AvailableCommand{}
	add := func(name, about, hint string) {
		c := schema.AvailableCommand{Name: name, Description: about}
		if hint != "" {
			c.Input = &schema.AvailableCommandInput{Unstructured: &schema.UnstructuredCommandInput{Hint: hint}}
		}
		out = append(out, c)
	}
	taken := map[string]bool{}
	for _, c := range list {
		if c.Name != "" && !terminalOnly[c.Name] {
			taken[c.Name] = true
			add(c.Name, bridge.FirstOf(c.Description, c.Source, c.Name), "")
		}
	}
	for _, b := range builtins {
		if !taken[b.name] {
			add(b.name, b.about, b.hint)
		}
	}
	return []schema.SessionUpdate{{AvailableCommandsUpdate: &schema.AvailableCommandsUpdate{AvailableCommands: out}}}
}

// builtin runs a prompt that is one of builtins. done says that it was.
func (s *session) builtin(ctx context.Context, p *program, t *turn.Turn[work], in *input) (done bool, err error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(in.text), " ")
	rest = strings.TrimSpace(rest)
	switch {
	case name == "/compact":
		s.mu.Lock()
		t.Work.compact = true
		s.mu.Unlock()
		fields := map[string]any{}
		if rest != "" {
			fields["customInstructions"] = rest
		}
		_, err := p.callAs(ctx, "compact", fields, manner{writing: s.ctx, told: s.told})
		return true, quoted(err)
	case name == "/bash" && rest != "":
		return true, quoted(s.bash(ctx, p, rest))
	}
	return false, nil
}

// quoted says whose words an error's are.
func quoted(err error) error {
	if e, ok := errors.AsType[*acp.Error](err); ok {
		return acp.Errorf(e.Code, "pi: %s", e.Message)
	}
	return err
}

// bash runs a command of the user's. Nobody is asked: the client that may prompt
// wants it.
func (s *session) bash(ctx context.Context, p *program, line string) error {
	if s.mode() == modeReadonly {
		return acp.Errorf(acp.CodeInvalidRequest, "this session may only read: choose another mode to run a command")
	}
	id := uuid.NewString()
	args, err := schema.Encode(map[string]string{"command": line})
	if err != nil {
		return err
	}
	s.emit(func(t *translator) []schema.SessionUpdate {
		out := t.announce(id, "bash", args, "")
		t.typed = id
		return append(out, t.allowed(id)...)
	})
	raw, err := p.callAs(ctx, "bash", map[string]any{"command": line}, manner{writing: s.ctx, told: s.told})
	s.emit(func(t *translator) []schema.SessionUpdate {
		t.typed, t.typedSaid = "", ""
		return t.ran(id, raw, err)
	})
	return err
}

// ran ends the call that stands for a command of the user's.
func (t *translator) ran(id string, raw json.RawMessage, err error) []schema.SessionUpdate {
	var r struct {
		Output    string `json:"output"`
		ExitCode  *int   `json:"exitCode"`
		Cancelled bool   `json:"cancelled"`
	}
	if err != nil || bridge.Lenient(raw, &r) != nil {
		return t.abandon(id)
	}
	said := r.Output
	bad := r.Cancelled || r.ExitCode != nil && *r.ExitCode != 0
	switch {
	case r.Cancelled:
		said += "\nCommand aborted"
	case bad:
		said += "\nCommand exited with code " + decimal(*r.ExitCode)
	}
	return t.ended(id, "bash", result{content: []block{{Type: "text", Text: said}}, failed: bad, code: r.ExitCode})
}
