package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// choosyAgent has modes and no configuration options, and refuses a mode that it does not have.
const choosyAgent = `say() { printf '%s\n' "$1"; }
while read -r line; do
	method=${line#*'"method":"'}; method=${method%%'"'*}
	id=${line#*'"id":'}; id=${id%%,*}; id=${id%%'}'*}
	case $method in
	initialize) say '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}' ;;
	session/new) say '{"jsonrpc":"2.0","id":'$id',"result":{"sessionId":"made-'$$'","modes":{"currentModeId":"calm","availableModes":[{"id":"calm","name":"Calm"},{"id":"hasty","name":"Hasty"}]}}}' ;;
	session/set_mode)
		case $line in
		*'"hasty"'*) say '{"jsonrpc":"2.0","id":'$id',"result":{}}' ;;
		*) say '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32602,"message":"no such mode"}}' ;;
		esac ;;
	*) case $line in *'"id":'*) say '{"jsonrpc":"2.0","id":'$id',"result":{"stopReason":"end_turn"}}' ;; esac ;;
	esac
done
`

// A prompt with a mode that the agent does not have says which there are, and leaves no session behind.
func TestPrompt_NoSuchModeOfAnAgentWithoutOptions(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "agent.sh")
	if err := os.WriteFile(script, []byte(choosyAgent), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "--agent-command", "choosy=sh "+script, "--log-level", "error")
	g.start()
	for _, speaks := range []string{"1", "2"} {
		prompt := []string{"prompt", "--acp", speaks, "--agent", "choosy", "--cwd", t.TempDir(), "hello", "--mode"}
		const says = "did you mean hasty? There are calm, hasty"
		if _, err := g.command(append(prompt, "hsty")...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("version %s: %v, want %q", speaks, err, says)
		}
		if out, err := g.command("sessions", "list", "--json"); err != nil || strings.Contains(out, "made-") {
			t.Errorf("version %s: it left %s, %v", speaks, out, err)
		}
		if _, err := g.command(append(prompt, "hasty", "--delete")...); err != nil {
			t.Errorf("version %s: %v", speaks, err)
		}
	}
}
