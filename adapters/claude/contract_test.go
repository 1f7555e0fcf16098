package claude

import (
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
)

// agentPID is shell that sets p to the process that runs the agent.
const agentPID = `p=$$
while [ "$(cat /proc/$p/comm)" != claude ]; do p=$(awk '{print $4}' /proc/$p/stat); done
`

func TestContract(t *testing.T) {
	w := newWorld(t)
	crash := w.write("crash.sh", agentPID+`echo "about to crash" > /proc/$p/fd/2; kill -KILL $p`, 0o700)
	garbage := w.write("garbage.sh", agentPID+`printf 'this is no JSON\n{"neither":\n' > /proc/$p/fd/1; echo done`, 0o700)
	spawn := w.write("spawn.sh", `setsid sleep 1000 >/dev/null 2>&1 & echo spawned`, 0o700)
	notes := w.write("notes.txt", "some notes\n", 0o600)
	w.write(".claude/settings.json", `{"permissions":{"allow":["Read","Bash(sh:*)"]}}`, 0o600)
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: offline{w: w},
		Prompts: adaptertest.Prompts{
			Say:     adaptertest.Prompt{Text: "say good morning", Says: "good morning"},
			Stream:  adaptertest.Prompt{Text: "stream 20", Says: "chunk 20"},
			Tool:    adaptertest.Prompt{Text: "read " + notes, Says: "some notes"},
			Ask:     adaptertest.Prompt{Text: "run touch " + filepath.Join(w.home, "made"), Says: "ran: "},
			Run:     adaptertest.Prompt{Text: "forever"},
			Garbage: adaptertest.Prompt{Text: "run sh " + garbage, Says: "ran: "},
			Crash:   adaptertest.Prompt{Text: "run sh " + crash},
			Spawn:   adaptertest.Prompt{Text: "run sh " + spawn, Says: "spawned"},
		},
		Crash: adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Shows: w.shows(),
		Skip: map[string]string{
			"10-MiB-message": "claude refuses prompts beyond the model's context; TestLargeMessages has the largest that it takes",
		},
	})
}
