package pi

import (
	"slices"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// record is what is remembered of a session.
type record struct {
	Cwd  string `json:"cwd"`
	Made bool   `json:"made"`           // here, and not in a terminal
	File string `json:"file,omitempty"` // of the conversation; Pi makes it with the first message

	// What was chosen last.
	bridge.Mode
	Model    string `json:"model,omitempty"`
	Thinking string `json:"thinking,omitempty"`
	// What the client has allowed for the session, as [gateQuestion.rules] names it. Pi
	// knows nothing of it.
	Always []string `json:"always,omitempty"`
}

// maxAllowed bounds what is remembered of that: of more the oldest is asked about again.
// Of a command longer than maxRule nothing is remembered.
const (
	maxAllowed = 256
	maxRule    = 4 << 10
)

// allow notes what a client has allowed for the session.
func (r *record) allow(rule string) {
	if len(rule) <= maxRule && !slices.Contains(r.Always, rule) {
		r.Always = append(r.Always, rule)
		r.Always = r.Always[max(0, len(r.Always)-maxAllowed):]
	}
}

// idForm is the form of Pi's ids, which people may choose.
var idForm = pattern.New(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// Recorded implements [adapters.Recorder].
func (Adapter) Recorded(o adapters.Options, session string) adapters.Recorded {
	r, _ := newStore(o.StateDir).Load(session)
	if exists(r.File) {
		return bridge.Recorded(r.File)
	}
	file, err := conversationsOf((&agent{o: o}).environ()).find(session, "")
	if err != nil {
		return adapters.Recorded{}
	}
	return bridge.Recorded(file)
}

func newStore(dir string) *bridge.Store[record] {
	return &bridge.Store[record]{Dir: dir, Valid: idForm.MatchString}
}
