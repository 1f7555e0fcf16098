package scriptedmodel

import (
	"fmt"
	"regexp"
	"strings"
)

// Over is what the model says when a script has no step left.
const Over = "The script is over."

// Step is what the model does in answer to one request, in order.
type Step []Action

// Match chooses requests. A matcher about prompts matches turns only.
type Match struct {
	name  string
	kind  Kind
	match func(r *Request, prompt string) bool
}

// Exactly matches the prompt text, blanks around it aside.
func Exactly(text string) Match {
	return When("exactly "+text, func(_ *Request, prompt string) bool { return prompt == strings.TrimSpace(text) })
}

// Contains matches prompts with text in them.
func Contains(text string) Match {
	return When("contains "+text, func(_ *Request, prompt string) bool { return strings.Contains(prompt, text) })
}

// Pattern matches prompts with a match of the regular expression; it panics when
// it is none.
func Pattern(expr string) Match {
	re := regexp.MustCompile(expr)
	return When("pattern "+expr, func(_ *Request, prompt string) bool { return re.MatchString(prompt) })
}

// When matches turns for which ok returns true; it is called for each prompt of
// the turn, the newest first, perhaps concurrently.
func When(name string, ok func(r *Request, prompt string) bool) Match {
	return Match{name, Turn, ok}
}

// Of matches the requests of a kind, whatever is in them.
func Of(kind Kind) Match {
	return Match{"of kind " + string(kind), kind, func(*Request, string) bool { return true }}
}

// rule is a match and its script.
type rule struct {
	Match
	steps func(r *Request) []Step
}

// choose returns what to do for the request and fills in what the choice was
// made by. Newer rules go first; rules are oldest first.
func choose(r *Request, rules []rule) Step {
	if r.Kind != Turn {
		for i := len(rules) - 1; i >= 0; i-- {
			if rules[i].kind == r.Kind {
				r.Rule = rules[i].name
				return step(rules[i].steps(r), 0)
			}
		}
		return sideAnswer(r)
	}
	prompts := r.candidates()
	for _, p := range prompts {
		for i := len(rules) - 1; i >= 0; i-- {
			if rules[i].kind == Turn && rules[i].match(r, p.text) {
				r.Prompt, r.Round, r.Rule = p.text, p.rounds, rules[i].name
				return step(rules[i].steps(r), p.rounds)
			}
		}
		if steps := ready(p.text); steps != nil {
			r.Prompt, r.Round, r.Rule = p.text, p.rounds, "ready-made"
			return step(steps, p.rounds)
		}
	}
	if len(prompts) == 0 {
		return Step{Say("The scripted model found no prompt in this request.")}
	}
	r.Prompt, r.Round = prompts[0].text, prompts[0].rounds
	return Step{Say(fmt.Sprintf("The scripted model has no rule for %q.", clip(r.Prompt, 200)))}
}

func step(steps []Step, n int) Step {
	if n >= len(steps) {
		return Step{Say(Over)}
	}
	return steps[n]
}

// candidate is a text that may be the prompt of the present turn.
type candidate struct {
	text   string
	rounds int // of tool results that follow
}

// candidates returns the turn's user texts, the newest first.
func (r *Request) candidates() []candidate {
	var out []candidate
	rounds := 0
	for i := len(r.Messages) - 1; i >= 0; i-- {
		m := &r.Messages[i]
		switch m.Role {
		case ToolRole:
			rounds++
		case Assistant:
			if len(m.Calls) == 0 && len(out) > 0 {
				return out
			}
		case User:
			for j := len(m.Texts) - 1; j >= 0; j-- {
				if text := own(m.Texts[j]); text != "" {
					out = append(out, candidate{text, rounds})
				}
			}
		}
	}
	return out
}

// sideAnswer answers what agents ask on their own account.
func sideAnswer(r *Request) Step {
	switch r.Kind {
	case Title:
		if r.wantsAmpTitle() {
			return Step{ampTitle("Scripted title")}
		}
		return Step{Say("Scripted title")}
	case Structured:
		return Step{Say(string(instance(r.Schema)))}
	default:
		return Step{Say("Summary: " + strings.Join(r.Prompts(), "; "))}
	}
}

func clip(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n]) + "..."
	}
	return s
}
