package agents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/claim"
)

// folder is where agents keep what is their own. A gateway without a folder for it has a
// private one among the temporary files, made with the first agent that needs it: an
// adapter that is given none would use the folder in which the gateway was started.
type folder struct {
	mu   sync.Mutex
	dir  string // "" until there is one
	temp func() // releases it; nil for one that does not go with the Set
	over bool
}

// of returns an agent's folder. It need not exist.
func (f *folder) of(agent string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir == "" {
		if f.over {
			return "", errors.New("make a folder for agents: the gateway is ending")
		}
		dir, release, err := private()
		if err != nil {
			return "", fmt.Errorf("make a folder for agents: %w", err)
		}
		f.dir, f.temp = dir, release
	}
	return filepath.Join(f.dir, agent), nil
}

// Scratch returns a private directory for sessions that only ask an agent something. It is below the folder of agents'
// own state: agents read settings from the directory of a session, and in one that all users can write somebody else
// could put some.
func (set *Set) Scratch() (string, error) {
	dir, err := set.folder.of(".scratch") // no agent that keeps something has this name
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", problem.Wrap(problem.Unavailable, err, "make a directory for a question to an agent")
	}
	return dir, nil
}

// close removes what goes with the Set. No agent runs any more.
func (f *folder) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.temp == nil {
		return nil
	}
	err := remove(f.dir, f.temp)
	f.dir, f.temp = "", nil
	if err != nil {
		return fmt.Errorf("remove the folder of agents: %w", err)
	}
	return nil
}

const privatePrefix = "sandbox-agent-state-"

// private makes a folder among the temporary files that is this process's until release. It removes those that others
// left when they were killed.
func private() (dir string, release func(), err error) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), privatePrefix+"*"))
	for _, dir := range left {
		if release, ok := claim.Abandoned(dir); ok {
			_ = remove(dir, release) // the next one tries it again
		}
	}
	for range 10 {
		if dir, err = os.MkdirTemp("", privatePrefix); err != nil {
			return "", nil, err
		}
		if release, err = claim.Dir(dir); err == nil {
			return dir, release, nil
		}
		_ = os.RemoveAll(dir) // somebody took it for one that was left
	}
	return "", nil, err
}

// remove removes a folder and gives back the claim to it. A file that is open cannot be removed everywhere.
func remove(dir string, release func()) error {
	_ = os.RemoveAll(dir)
	release()
	return os.RemoveAll(dir)
}
