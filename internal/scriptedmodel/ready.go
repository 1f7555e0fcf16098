package scriptedmodel

import (
	"strconv"
	"strings"
	"time"
)

// ready returns the script of a prompt that works without a rule, or nil.
func ready(prompt string) []Step {
	verb, rest, _ := strings.Cut(prompt, " ")
	if script := verbs[strings.ToLower(verb)]; script != nil {
		return script(rest)
	}
	return nil
}

var verbs = map[string]func(rest string) []Step{
	"say":   says,
	"echo":  says,
	"think": func(rest string) []Step { return []Step{{Think(rest), Say("thought")}} },
	"stream": func(rest string) []Step {
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil
		}
		s := Step{Slowly(5 * time.Millisecond)}
		var chunks []string
		for i := range n {
			chunks = append(chunks, "chunk "+strconv.Itoa(i+1)+" ")
		}
		return []Step{append(s, SayChunks(chunks...))}
	},
	"forever": func(rest string) []Step {
		if rest != "" {
			return nil
		}
		return []Step{{Forever()}}
	},
	"read": func(rest string) []Step {
		return []Step{{ReadFile(rest)}, {Say("read: "), SayResult()}}
	},
	"reread": func(rest string) []Step {
		again := Step{CallID("call_again"), ReadFile(rest)}
		return []Step{again, again, {Say("reread: "), SayResult()}}
	},
	"run": func(rest string) []Step {
		return []Step{{Shell(rest)}, {Say("ran: "), SayResult()}}
	},
	"write": func(rest string) []Step {
		path, text, ok := strings.Cut(rest, " ")
		if !ok {
			return nil
		}
		return []Step{{WriteFile(path, text)}, {Say("wrote: "), SayResult()}}
	},
	"fail": func(rest string) []Step {
		status, err := strconv.Atoi(rest)
		if err != nil || status < 400 || status > 599 {
			return nil
		}
		return []Step{{Fail(status, "", "scripted failure "+rest)}}
	},
	"recall": func(rest string) []Step {
		if rest != "" {
			return nil
		}
		return []Step{{recall()}}
	},
}

// says says a long text in larger pieces: who asks for one tries its length. Each piece is worked on by an agent, by what
// is tested and by its client.
func says(rest string) []Step {
	return []Step{{Chunks(max(defaultChunk, len(rest)/mostPieces)), Say(rest)}}
}

const mostPieces = 500
