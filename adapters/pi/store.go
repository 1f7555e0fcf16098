package pi

import (
	"regexp"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
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

// Recorded implements [adapters.Recorder].
func (Adapter) Recorded(o adapters.Options, session string) time.Time {
	r, _ := newStore(o.StateDir).Load(session)
	if exists(r.File) {
		return bridge.Written(r.File)
	}
	file, err := conversationsOf((&agent{o: o}).environ()).find(session, "")
	if err != nil {
		return time.Time{}
	}
	return bridge.Written(file)
}

func newStore(dir string) *bridge.Store[record] {
	return &bridge.Store[record]{Dir: dir, Valid: idForm.MatchString}
}
