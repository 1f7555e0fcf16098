package pi

import (
	"regexp"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// record is what is remembered of a session.
type record struct {
	Cwd  string `json:"cwd"`
	Made bool   `json:"made"`           // here, and not in a terminal
	File string `json:"file,omitempty"` // of the conversation; Pi makes it with the first message

	// What was chosen last.
	Mode     string `json:"mode,omitempty"`
	Model    string `json:"model,omitempty"`
	Thinking string `json:"thinking,omitempty"`
}

// idForm is the form of Pi's ids, which people may choose.
var idForm = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

func newStore(dir string) *bridge.Store[record] {
	return &bridge.Store[record]{Dir: dir, Valid: idForm.MatchString}
}
