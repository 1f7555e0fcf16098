package agents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// folder is where agents keep what is their own. A gateway without a folder for it has a
// private one among the temporary files, made with the first agent that needs it: an
// adapter that is given none would use the folder in which the gateway was started.
type folder struct {
	mu   sync.Mutex
	dir  string // "" until there is one
	temp bool   // it goes with the Set
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
		dir, err := os.MkdirTemp("", "sandbox-agent-state-")
		if err != nil {
			return "", fmt.Errorf("make a folder for agents: %w", err)
		}
		f.dir, f.temp = dir, true
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
	if !f.temp {
		return nil
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the folder of agents: %w", err)
	}
	f.dir, f.temp = "", false
	return nil
}
