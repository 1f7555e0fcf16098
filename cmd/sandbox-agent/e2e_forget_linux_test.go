package main_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// A program that looks does not find the token in what the system shows of the
// gateway, however it was given.
func TestToken_IsNotShownBySystem(t *testing.T) {
	const secret = "canary-0123456789abcdef"
	for name, give := range map[string]func(g *gateway){
		"environment": func(g *gateway) { g.env = append(g.env, "SANDBOX_AGENT_TOKEN="+secret) },
		"argument":    func(g *gateway) { g.args = append(g.args, "--token", secret) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			give(g)
			g.start()
			for _, file := range []string{"environ", "cmdline"} {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", g.cmd.Process.Pid, file))
				if err != nil && !os.IsPermission(err) {
					t.Fatal(err)
				}
				if bytes.Contains(b, []byte(secret)) {
					t.Errorf("%s shows the token", file)
				}
			}
		})
	}
}
