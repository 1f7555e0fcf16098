package main_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// A playModel does what its prompts say: a prompt "script JSON" carries what
// the model does, so that a scenario stands in one place. See [playScript].
type playModel struct {
	*scriptedmodel.Model

	mu      sync.Mutex
	gates   map[string]chan struct{}        // by name; closed when open
	fails   map[string]scriptedmodel.Action // those that count
	dropped map[string]bool                 // prompts
}

// playScript is a prompt's JSON: a step for each round of tool results, and
// others for the turn in which the program tells of the end of a background
// task.
type playScript struct {
	Steps    [][]playMove `json:"steps"`
	Notified [][]playMove `json:"notified"`
}

// playMove is one action of the model; the first member that is set counts.
type playMove struct {
	Say    string          `json:"say"`
	Think  string          `json:"think"`
	Chunks []string        `json:"chunks"` // of an answer, 20 ms apart
	Call   string          `json:"call"`   // a tool
	Args   json.RawMessage `json:"args"`
	Plan   string          `json:"plan"`   // written to the file that the program wants plans in
	Result bool            `json:"result"` // says the results of tools
	Gate   string          `json:"gate"`   // waits until it is open
	Usage  []int           `json:"usage"`  // input, output, read from and written to the cache
	Fail   int             `json:"fail"`   // HTTP status
	Times  int             `json:"times"`  // of Fail, 0 is for ever
	Words  string          `json:"words"`  // of Fail
}

// planFile is how the program names the file to the model.
var planFile = regexp.MustCompile(`[^\s"'\\]+/\.claude/plans/[\w.-]+\.md`)

func newPlayModel(m *scriptedmodel.Model) *playModel {
	c := &playModel{Model: m, gates: map[string]chan struct{}{}, fails: map[string]scriptedmodel.Action{}, dropped: map[string]bool{}}
	m.OnRequest(scriptedmodel.Pattern(`^script \{`), c.script)
	// The program goes on by itself after these, with prompts of its own.
	for _, reason := range []string{"max_tokens", "refusal"} {
		m.On(scriptedmodel.When("stops with "+reason, func(r *scriptedmodel.Request, _ string) bool {
			return slices.Contains(r.Prompts(), "stop "+reason)
		}), scriptedmodel.Step{scriptedmodel.Say("so far "), scriptedmodel.Stop(reason)})
	}
	m.OnRequest(scriptedmodel.Pattern(`^drops `), c.drop)
	return c
}

// script plays a prompt. It may run concurrently.
func (c *playModel) script(r *scriptedmodel.Request) []scriptedmodel.Step {
	var s playScript
	if err := json.Unmarshal([]byte(strings.TrimPrefix(r.Prompt, "script ")), &s); err != nil {
		return []scriptedmodel.Step{{scriptedmodel.Say(fmt.Sprintf("no script: %v: %s", err, r.Prompt))}}
	}
	moves := s.Steps
	if s.Notified != nil && answeredBefore(r) {
		moves = s.Notified
	}
	var steps []scriptedmodel.Step
	for i, list := range moves {
		var step scriptedmodel.Step
		for j := range list {
			step = append(step, c.move(r, fmt.Sprintf("%s %d %d", r.Prompt, i, j), &list[j])...)
		}
		steps = append(steps, step)
	}
	return steps
}

// drop breaks off its first answer to a prompt. It may run concurrently.
func (c *playModel) drop(r *scriptedmodel.Request) []scriptedmodel.Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped[r.Prompt] {
		return []scriptedmodel.Step{{scriptedmodel.SayChunks("first ", "words", ", then ", "the rest")}}
	}
	c.dropped[r.Prompt] = true
	return []scriptedmodel.Step{{scriptedmodel.SayChunks("first ", "words"), scriptedmodel.SSEError("server_error", "it broke")}}
}

// answeredBefore reports whether the prompt's answer is there already, so that the
// program asks about something else than the prompt.
func answeredBefore(r *scriptedmodel.Request) bool {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		m := &r.Messages[i]
		if m.Role == scriptedmodel.User && slices.Contains(m.Texts, r.Prompt) {
			return false
		}
		if m.Role == scriptedmodel.Assistant && len(m.Calls) == 0 {
			return true
		}
	}
	return false
}

func (c *playModel) move(r *scriptedmodel.Request, key string, m *playMove) scriptedmodel.Step {
	switch {
	case m.Say != "":
		return scriptedmodel.Step{scriptedmodel.Say(m.Say)}
	case m.Think != "":
		return scriptedmodel.Step{scriptedmodel.Think(m.Think)}
	case len(m.Chunks) > 0:
		return scriptedmodel.Step{scriptedmodel.Slowly(20 * time.Millisecond), scriptedmodel.SayChunks(m.Chunks...)}
	case m.Call != "" && len(m.Args) > 0 && m.Args[0] == '"':
		var text string // of a freeform tool
		if err := json.Unmarshal(m.Args, &text); err != nil {
			return scriptedmodel.Step{scriptedmodel.Say(err.Error())}
		}
		return scriptedmodel.Step{scriptedmodel.Call(m.Call, text)}
	case m.Call != "":
		return scriptedmodel.Step{scriptedmodel.Call(m.Call, m.Args)}
	case m.Plan != "":
		return scriptedmodel.Step{scriptedmodel.WriteFile(string(planFile.Find(r.Body)), m.Plan)}
	case m.Result:
		return scriptedmodel.Step{scriptedmodel.SayResult()}
	case m.Gate != "":
		return scriptedmodel.Step{scriptedmodel.Gate(c.gate(m.Gate))}
	case len(m.Usage) == 4:
		return scriptedmodel.Step{scriptedmodel.Usage(m.Usage[0], m.Usage[1], m.Usage[2], m.Usage[3])}
	case m.Fail != 0 && m.Times == 0:
		return scriptedmodel.Step{scriptedmodel.Fail(m.Fail, "", m.Words)}
	case m.Fail != 0:
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, ok := c.fails[key]; !ok {
			c.fails[key] = scriptedmodel.FailTimes(m.Times, m.Fail, "", m.Words)
		}
		return scriptedmodel.Step{scriptedmodel.Header("retry-after", "1"), c.fails[key]}
	}
	return scriptedmodel.Step{scriptedmodel.Say("an empty move")}
}

func (c *playModel) gate(name string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gates[name] == nil {
		c.gates[name] = make(chan struct{})
	}
	return c.gates[name]
}

// open opens a gate, for those who wait and those who come.
func (c *playModel) open(name string) {
	ch := c.gate(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// heard is a model call as scenarios see it.
type heard struct {
	Model   string   `json:"model"`
	Effort  string   `json:"effort"`
	Prompts []string `json:"prompts"`
	Key     string   `json:"key"`
	Body    string   `json:"body"`
}

// heard returns the turns that have text in one of their prompts.
func (c *playModel) heard(text string) []heard {
	out := []heard{}
	for _, r := range c.Turns() {
		prompts := r.Prompts()
		if !slices.ContainsFunc(prompts, func(s string) bool { return strings.Contains(s, text) }) {
			continue
		}
		key := r.Header.Get("X-Api-Key")
		if key == "" {
			key = r.Header.Get("Authorization")
		}
		out = append(out, heard{r.Model, r.Effort, prompts, key, string(r.Body)})
	}
	return out
}
