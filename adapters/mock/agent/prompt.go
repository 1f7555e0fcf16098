package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// turn is one running prompt.
type turn struct {
	a         *agent
	s         *session
	ctx       context.Context // ends with the request, not with session/cancel
	cancelled <-chan struct{} // closed by session/cancel
	number    int
	calls     int // tool calls so far
}

// command is a prompt that does something of its own. A prompt whose rest, the
// text behind the first word, it does not take is echoed word by word.
type command struct {
	takes func(rest string) bool
	run   func(t *turn, rest string) (schema.StopReason, error)
}

var commands = map[string]command{
	"hello":      {nothing, (*turn).hello},
	"echo":       {something, (*turn).echo},           // echo TEXT: TEXT in one chunk
	"stream":     {numbers, (*turn).stream},           // stream N [SIZE]: N numbered chunks
	"flood":      {numbers, (*turn).stream},           // flood N SIZE: the same
	"slow":       {nothing, (*turn).slow},             // a chunk every 20 ms until cancelled
	"spend":      {nothing, (*turn).spend},            // a cent every 20 ms until cancelled
	"permission": {nothingOrWord, (*turn).permission}, // permission [KIND]: asks for permission, to edit or for a tool of the kind
	"write":      {twoWords, (*turn).write},           // write FILE WORDS: makes a file, when it is allowed to
	"stop":       {word, (*turn).stop},                // stop REASON: the turn ends for it
	"question":   {nothingOrTwo, (*turn).question},    // question [2]: asks one or two questions
	"tool":       {nothing, (*turn).tool},
	"run":        {nothing, (*turn).command}, // pretends to run a command, which fails
	"diff":       {nothing, (*turn).diff},
	"plan":       {nothing, (*turn).plan},
	"subagent":   {nothing, (*turn).subagent}, // one that asks for a permission
	"usage":      {nothing, (*turn).usage},
	"commands":   {nothing, (*turn).commandList},
	"mcp":        {nothing, (*turn).mcpServers},    // says how made-up MCP servers are
	"title":      {something, (*turn).title},       // title TEXT: names the session
	"fs":         {something, (*turn).readFile},    // fs PATH: a file read through the client
	"terminal":   {something, (*turn).terminal},    // terminal COMMAND: run by the client
	"hang":       {nothing, (*turn).hang},          // never answers
	"crash":      {nothingOrNumber, (*turn).crash}, // crash [MS]: exits with code 3, after some milliseconds
	"ignore-eof": {nothing, (*turn).ignoreEOF},     // the process outlives stdin and SIGTERM
	"fork-child": {nothing, (*turn).forkChild},     // leaves a process behind
	"garbage":    {nothing, (*turn).garbage},       // lines that are no frames
}

func nothing(rest string) bool   { return rest == "" }
func something(rest string) bool { return rest != "" }
func nothingOrNumber(rest string) bool {
	_, err := strconv.ParseUint(rest, 10, 16)
	return rest == "" || err == nil
}

func word(rest string) bool { return rest != "" && !strings.ContainsAny(rest, " \n") }
func twoWords(rest string) bool {
	name, words, _ := strings.Cut(rest, " ")
	return filepath.IsLocal(name) && words != ""
}

func nothingOrWord(rest string) bool { return rest == "" || word(rest) }
func nothingOrTwo(rest string) bool  { return rest == "" || rest == "2" }

func numbers(rest string) bool {
	_, _, ok := countAndSize(rest)
	return ok
}

// run runs one prompt of the session.
func (a *agent) run(ctx context.Context, s *session, blocks []schema.ContentBlock) (schema.StopReason, error) {
	number, err := s.begin()
	if err != nil {
		return "", err
	}
	t := &turn{a: a, s: s, ctx: ctx, cancelled: acp.TurnCancelled(ctx), number: number}
	reason, err := t.run(blocks)
	if endErr := s.end(); err == nil {
		err = endErr
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case t.isCancelled(): // a closed session fails what the turn still does
		return schema.StopReasonCancelled, nil
	}
	return reason, err
}

func (t *turn) run(blocks []schema.ContentBlock) (schema.StopReason, error) {
	var text strings.Builder
	others := 0
	for _, b := range blocks {
		if b.Text != nil {
			text.WriteString(b.Text.Text)
		} else {
			others++
		}
		if err := t.s.record(nil, schema.UserMessage(b)); err != nil {
			return "", err
		}
	}
	prompt := strings.TrimSpace(text.String())
	if prompt == "" && others > 0 {
		return schema.StopReasonEndTurn, t.say(fmt.Sprintf("received %d non-text blocks", others))
	}
	word, rest, _ := strings.Cut(prompt, " ")
	c, ok := commands[word]
	if !ok && t.a.second.isTwo() {
		c, ok = secondCommands[word]
	}
	if ok && c.takes(rest) {
		return c.run(t, rest)
	}
	return t.words(prompt)
}

// say sends a chunk of the answer.
func (t *turn) say(text string) error { return t.send(schema.AgentMessage(schema.TextBlock(text))) }

func (t *turn) send(u schema.SessionUpdate) error { return t.s.record(t.a.lines, u) }

// isCancelled reports whether the client wants the turn to end.
func (t *turn) isCancelled() bool {
	select {
	case <-t.cancelled:
	case <-t.s.stop:
	case <-t.ctx.Done():
	default:
		return false
	}
	return true
}

// untilCancelled returns a context that ends when the turn is cancelled.
func (t *turn) untilCancelled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.ctx)
	go func() {
		select {
		case <-t.cancelled:
		case <-t.s.stop:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// newCall returns the id of a new tool call, unique in the session.
func (t *turn) newCall() schema.ToolCallID {
	t.calls++
	return schema.ToolCallID(fmt.Sprintf("call-%d-%d", t.number, t.calls))
}
