package bridgetest

import (
	"fmt"
	"os"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
)

// Scenarios are the contracts that the scenarios of every agent with a bridge show
// through the gateway, with the same program, and more of those that only some can play.
func Scenarios(more ...string) map[string]string {
	const again = `the scenario "closed, loaded and resumed, ..." shows it through the gateway`
	all := map[string]string{
		"load": again, "resume": again,
		"calls-of-a-dead-process": `the scenario "process killed in the middle of turns" shows it through the gateway`,
		"two-sessions-interleave": `the scenario "sessions at once" shows it through the gateway`,
		"permission-cancelled":    `the scenario "permission answered as cancelled ends the turn" shows it through the gateway`,
		"cancel-ends-the-turn":    `the scenarios "cancel ..." show it through the gateway`,
	}
	for _, contract := range more {
		all[contract] = someScenarios[contract]
	}
	return all
}

// someScenarios are those that not every agent can play.
var someScenarios = map[string]string{
	"lost-record": `the scenario "an agent whose files are gone says so" shows it through the gateway`,
}

// AgentPID is shell that sets p to the nearest ancestor for which isAgent, a
// shell condition about the process p, holds: the agent that runs the shell.
func AgentPID(isAgent string) string {
	return "p=$$\nwhile ! " + isAgent + "; do p=$(awk '{print $4}' /proc/$p/stat); done\n"
}

// Prompts are the contract suite's, for an agent that the scripted model drives
// with its general script. The agent must run sh without asking, and touch not.
// The crash's code is -1, its stderr "about to crash".
func (w *World) Prompts(isAgent string) adaptertest.Prompts {
	w.T.Helper()
	pid := AgentPID(isAgent)
	crash := w.Write("crash.sh", pid+`echo "about to crash" > /proc/$p/fd/2; kill -KILL $p`, 0o700)
	garbage := w.Write("garbage.sh", pid+`printf 'this is no JSON\n{"neither":\n' > /proc/$p/fd/1; echo done`, 0o700)
	// The agent may end the group of a command that is over: what is to stay has left it before.
	left := filepath.Join(w.Home, "left-the-group")
	spawn := w.Write("spawn.sh", "rm -f "+left+"\nsetsid sh -c 'echo >"+left+"; exec sleep 1000' >/dev/null 2>&1 &\nuntil [ -e "+left+" ]; do sleep 0.01; done\necho spawned", 0o700)
	notes := w.Write("notes.txt", "some notes\n", 0o600)
	return adaptertest.Prompts{
		Say:     adaptertest.Prompt{Text: "say good morning", Says: "good morning"},
		Stream:  adaptertest.Prompt{Text: "stream 20", Says: "chunk 20"},
		Tool:    adaptertest.Prompt{Text: "read " + notes, Says: "some notes"},
		Reread:  adaptertest.Prompt{Text: "reread " + notes},
		Ask:     adaptertest.Prompt{Text: "run touch " + filepath.Join(w.Home, "made"), Says: "ran: "},
		Run:     adaptertest.Prompt{Text: "forever"},
		Garbage: adaptertest.Prompt{Text: "run sh " + garbage, Says: "ran: "},
		Crash:   adaptertest.Prompt{Text: "run sh " + crash},
		Spawn:   adaptertest.Prompt{Text: "run sh " + spawn, Says: "spawned"},
	}
}

// Forget removes folders below the home directory, in which an agent keeps what was said.
func (w *World) Forget(folders ...string) func() error {
	return func() error {
		for _, one := range folders {
			path := filepath.Join(w.Home, one)
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("forget what was said: %w", err)
			}
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("forget what was said: %w", err)
			}
		}
		return nil
	}
}
