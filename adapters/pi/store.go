package pi

import (
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// record is what is remembered of a session.
type record struct {
	Cwd  string `json:"cwd"`
	Made bool   `json:"made"`           // here, and not in a terminal
	File string `json:"file,omitempty"` // of the conversation; Pi makes it with the first message
	// An extension can have Pi go on with another conversation: Left are the files of those that
	// were the session's before. Theirs says that File is none that was made for the session.
	Left   []string `json:"left,omitempty"`
	Theirs bool     `json:"theirs,omitempty"`

	// What was chosen last.
	bridge.Mode
	Model    string `json:"model,omitempty"`
	Thinking string `json:"thinking,omitempty"`
	// What the client has allowed for the session, as [gateQuestion.rules] names it. Pi
	// knows nothing of it.
	Granted bridge.Grants `json:"granted,omitempty"`
	// Earlier versions had it here.
	Always []string `json:"always,omitempty"`
}

// maxLeft bounds the conversations that a session has left: of more the oldest is not deleted with it.
const maxLeft = 256

// Upgrade takes over what an earlier version has written.
func (r *record) Upgrade() {
	for _, rule := range r.Always {
		tool, command, _ := strings.Cut(rule, "\x00")
		r.Granted.Add(bridge.Grant{Key: rule, Title: grantTitle(tool, command), Kind: kindOf(tool)})
	}
	r.Always = nil
}

var _ adapters.Granter = Adapter{}

// Grants implements [adapters.Granter].
func (Adapter) Grants(o adapters.Options, session string) []adapters.Grant {
	r, _ := newStore(o.StateDir).Load(session)
	return r.Granted.List()
}

// Forget implements [adapters.Granter].
func (Adapter) Forget(o adapters.Options, session string, ids []string) error {
	return newStore(o.StateDir).Change(session, func(r *record) { r.Granted.Forget(ids) })
}

// goOn notes that the session goes on with another conversation, which was made for that or was
// there before. It has a model and a level of its own.
func (r *record) goOn(file string, made bool) {
	if file == r.File {
		return
	}
	made = made || slices.Contains(r.Left, file)
	r.Left = slices.DeleteFunc(r.Left, func(one string) bool { return one == file })
	if !r.Theirs && exists(r.File) { // else nothing was said in it
		r.Left = append(r.Left, r.File)
		r.Left = r.Left[max(0, len(r.Left)-maxLeft):]
	}
	r.File, r.Theirs = file, !made
	r.Model, r.Thinking = "", ""
}

// own are the files that were made for the session.
func (r *record) own() []string {
	if r.File == "" || r.Theirs {
		return r.Left
	}
	return append(slices.Clip(r.Left), r.File)
}

// idForm is the form of Pi's ids, which people may choose.
var idForm = pattern.New(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// Recorded implements [adapters.Recorder].
func (Adapter) Recorded(o adapters.Options, session string) adapters.Recorded {
	r, _ := newStore(o.StateDir).Load(session)
	file, err := conversationsOf((&agent{o: o}).environ()).of(&r, session)
	if err != nil {
		return adapters.Recorded{}
	}
	return bridge.Recorded(file)
}

func newStore(dir string) *bridge.Store[record] {
	return &bridge.Store[record]{Dir: dir, Valid: idForm.MatchString}
}
