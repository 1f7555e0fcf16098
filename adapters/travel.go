package adapters

import (
	"context"
	"errors"
	"io"
	"io/fs"
)

// Travel is a session that is taken to another gateway, or comes from one.
type Travel struct {
	Options
	SessionID string // the agent's own id of the session
	Cwd       string // the session's directory, on this machine
	// Temp is where folders are that live as long as the call; "" is the system's. What is left there by a program
	// that was killed is removed.
	Temp string
}

// Put takes one file of what an agent keeps. Names are relative paths with slashes. Files
// whose names end in .json hold one JSON text, in those of .jsonl each line is one: keys
// are taken out of their texts, and paths in them are replaced by those of the machine
// that they come to. Other files stay as they are.
type Put func(name string, r io.Reader) error

// Traveller is an adapter that knows what its agent keeps of a session. It is asked while
// no process works for the session.
type Traveller interface {
	// Export puts what the agent keeps of a session: nothing when it keeps nothing of it
	// on this machine.
	Export(ctx context.Context, t Travel, put Put) error
	// Import puts what Export has put where the agent looks for it, under the same id.
	// undo takes it away again. An error matches [ErrHere] when the agent has another
	// conversation of that id; nothing is left behind then, or with any other error.
	Import(ctx context.Context, t Travel, files fs.FS) (undo func() error, err error)
}

// ErrHere says that an agent has a conversation of the same id, and not the same one.
var ErrHere = errors.New("the agent has another conversation of that id here")
