package codex

import (
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
)

// agentPID is shell that sets p to the process that runs the agent.
const agentPID = `p=$$
while ! tr '\0' ' ' < /proc/$p/cmdline | grep -q 'codex app-server'; do p=$(awk '{print $4}' /proc/$p/stat); done
`

func TestContract(t *testing.T) {
	w := newWorld(t)
	crash := w.write("crash.sh", agentPID+`echo "about to crash" > /proc/$p/fd/2; kill -KILL $p`, 0o700)
	garbage := w.write("garbage.sh", agentPID+`printf 'this is no JSON\n{"neither":\n' > /proc/$p/fd/1; echo done`, 0o700)
	spawn := w.write("spawn.sh", `setsid sleep 1000 >/dev/null 2>&1 & echo spawned`, 0o700)
	notes := w.write("notes.txt", "some notes\n", 0o600)
	// Outside of the sandbox, where the scripts find the agent.
	w.write(".codex/config.toml", `approval_policy = "on-request"
sandbox_mode = "danger-full-access"
`+w.read(filepath.Join(w.home, ".codex/config.toml")), 0o600)
	w.write(".codex/rules/default.rules", `prefix_rule(pattern=["touch"], decision="prompt")
`, 0o600)
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
		Crash:   adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Unshown: unshown(),
		Skip: map[string]string{
			"10-MiB-message": "codex refuses prompts beyond 1048576 characters; TestLive_LargePrompt has the largest that it takes",
		},
	})
}

// unshown names the test that shows each feature: with answers, files and
// settings of its own, where the suite has one client for all.
func unshown() map[adapters.Feature]string {
	out := map[adapters.Feature]string{}
	for f, test := range shownBy() {
		name := goruntime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		out[f] = name[strings.LastIndexByte(name, '.')+1:] + " shows it"
	}
	return out
}
