package opencode

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// modal is an OpenCode that writes messages of its own.
type modal struct {
	*session
	count int
	mode  string // of the newest message of the user's
	by    string // the mode in which the next turn runs all the same; "" for the one that is asked for
	amid  func() // what happens in the next turn
}

func (m *modal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var body struct{ MessageID, Agent string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case r.URL.Path == "/session/S/message" && r.Method == http.MethodPost:
		m.says(body.MessageID, bridge.FirstOf(m.by, body.Agent))
		if m.amid != nil {
			m.amid()
		}
		m.take(&event{Type: "message.updated", Session: "S", message: &message{ID: "answer", Role: "assistant", Session: "S", Time: struct {
			Completed int64 `json:"completed"`
		}{1}}})
		m.take(&event{Type: "session.idle", Session: "S"})
		fmt.Fprint(w, `{"info":{"id":"answer","role":"assistant","sessionID":"S"},"parts":[]}`)
	case r.URL.Path == "/session/S/summarize":
		m.compacts()
		fmt.Fprint(w, `true`)
	default:
		fmt.Fprint(w, `[]`)
	}
}

// says has a message of the user's come.
func (m *modal) says(id, mode string) {
	m.mode = mode
	m.take(&event{Type: "message.updated", Session: "S", message: &message{ID: id, Role: "user", Session: "S", Agent: mode}})
}

// compacts writes what a compaction writes: a message with the mode of the one before.
func (m *modal) compacts() {
	m.count++
	id := fmt.Sprintf("own-%d", m.count)
	m.says(id, m.mode)
	m.take(&event{Type: "message.part.updated", Session: "S", Part: &part{ID: "part of " + id, Session: "S", Message: id, Type: "compaction"}})
}

// A session is in the mode that the client has chosen, whatever OpenCode writes into it. It follows where OpenCode itself has gone over
// to another one, as when the user has approved a plan.
func TestMode_OfMessagesThatOpenCodeWrites(t *testing.T) {
	defer func(d time.Duration) { endPause = d }(endPause)
	endPause = time.Millisecond // a compaction is over when it was answered and something comes behind that
	type step = func(m *modal)
	choose := func(mode string) step {
		return func(m *modal) {
			if err := m.setMode(mode); err != nil {
				panic(err)
			}
		}
	}
	prompt := func(text string, amid ...step) step {
		return func(m *modal) {
			m.amid = func() {
				for _, do := range amid {
					do(m)
				}
			}
			r, err := m.a.Prompt(m.ctx, &schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock(text)}})
			if err != nil || r.StopReason != schema.StopReasonEndTurn {
				panic(fmt.Sprint(r, err))
			}
		}
	}
	goesOver := func(mode string) step { return func(m *modal) { m.says("own of "+mode, mode) } }
	by := func(mode string) step { return func(m *modal) { m.by = mode } }
	was := func(mode string) step { return func(m *modal) { m.mode = mode } }
	compacts := (*modal).compacts
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"a compaction behind a choice":              {[]step{prompt("go"), choose("plan"), prompt("/compact")}, "plan"},
		"a choice in a turn that compacts":          {[]step{prompt("go", choose("plan"), compacts)}, "plan"},
		"a compaction of a session that was opened": {[]step{choose("plan"), was("build"), prompt("/compact")}, "plan"},
		"a compaction behind what was taken back":   {[]step{prompt("go"), choose("plan"), prompt("go"), was("build"), prompt("/compact")}, "plan"},
		"a turn in the mode of a command":           {[]step{by("plan"), prompt("go", compacts)}, "build"},
		"it leaves the mode":                        {[]step{choose("plan"), prompt("go", goesOver("build"))}, "build"},
		"it leaves the mode, and compacts":          {[]step{choose("plan"), prompt("go", goesOver("build"), compacts), prompt("/compact")}, "build"},
		"it leaves another than was chosen":         {[]step{choose("plan"), prompt("go", choose("review"), goesOver("build"))}, "review"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &modal{}
			m.session = beside(t, latecomer{}, m)
			m.set.catalog = &catalog{modes: []mode{{Name: "build"}, {Name: "plan"}, {Name: "review"}}, first: "build"}
			m.set.mode = "build"
			for _, do := range c.steps {
				do(m)
			}
			if got := string(m.modes().CurrentModeID); got != c.want {
				t.Errorf("it is in mode %s, want %s", got, c.want)
			}
		})
	}
}
