package native

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// retold is a Conn to an agent that tells the parts of a conversation in words when it
// replays one: a call of a tool as "[Function Call: read_file]" in the agent's text, its
// result as a prompt that says "[Function Response: read_file]", and what it told its model
// of the machine as the first prompt. While a session is loaded each call becomes a tool
// call, and the rest of that is left out.
type retold struct {
	acp.Conn
	queue []acp.Message // to be read before anything else; used by Read only

	mu     sync.Mutex
	loads  map[acp.ID]string // session token by the id of an open session/load
	loaded map[string]int    // by session token: the calls that its replay has so far
}

func retell(c acp.Conn) *retold {
	return &retold{Conn: c, loads: map[acp.ID]string{}, loaded: map[string]int{}}
}

// Write watches which loads are open.
func (r *retold) Write(ctx context.Context, m acp.Message) error {
	if m.Method() == acp.MethodSessionLoad && m.IsRequest() {
		token := strings.Clone(string(m.SessionRaw()))
		r.mu.Lock()
		r.loads[acp.ID(strings.Clone(string(m.ID())))] = token
		r.loaded[token] = 0
		r.mu.Unlock()
	}
	return r.Conn.Write(ctx, m)
}

// Read returns the agent's next message, or what it stands for.
func (r *retold) Read(ctx context.Context) (acp.Message, error) {
	for len(r.queue) == 0 {
		m, err := r.Conn.Read(ctx)
		if err != nil {
			return m, err
		}
		if !r.take(&m) {
			return m, nil
		}
	}
	m := r.queue[0]
	r.queue = r.queue[1:]
	return m, nil
}

var (
	called   = pattern.New(`(?:\[Function Call: [^\]\n]*\])+\s*$`)
	callName = pattern.New(`\[Function Call: ([^\]\n]*)\]`)
	answered = pattern.New(`^(?:\s*\[Function Response: [^\]\n]*\]\s*)+`)
	thought  = pattern.New(`^(?:\[Thought: [^\]\n]*\])+`)
)

// machineContext begins what the agent tells its model of the machine.
const machineContext = "<session_context>"

// take puts what an update of a replay stands for into the queue, and reports whether it
// is another one.
func (r *retold) take(m *acp.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.IsResponse() {
		delete(r.loaded, r.loads[m.ID()])
		delete(r.loads, m.ID())
		return false
	}
	token := string(m.SessionRaw())
	n, replays := r.loaded[token]
	if !replays || m.Method() != acp.MethodSessionUpdate {
		return false
	}
	text := rawjson.MemberString(m.Update(), "content", "text")
	rest, calls := text, ""
	switch string(m.UpdateKind()) {
	case "user_message_chunk":
		if rest = answered.ReplaceAllString(text, ""); strings.HasPrefix(rest, machineContext) {
			rest = ""
		}
	case "agent_message_chunk":
		rest = thought.ReplaceAllString(text, "")
		calls = called.FindString(rest)
		rest = strings.TrimSuffix(rest, calls)
	}
	if rest == text {
		return false
	}
	if strings.TrimSpace(rest) != "" {
		update := rawjson.SetMember(m.Update(), rawjson.AppendQuoted(nil, rest), "content", "text")
		r.queue = append(r.queue, updateOf([]byte(token), update))
	}
	for _, name := range callName.FindAllStringSubmatch(calls, -1) {
		n++
		call := rawjson.Object{}.String("sessionUpdate", "tool_call").String("toolCallId", "replayed-"+strconv.Itoa(n)).
			String("title", name[1]).String("kind", "other").String("status", "completed").End()
		r.queue = append(r.queue, updateOf([]byte(token), call))
	}
	r.loaded[token] = n
	return true
}
