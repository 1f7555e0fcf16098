package install

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

var update = flag.Bool("update", false, "ask npm for the digests of pins.json")

// tested are the versions of agents that the tests of this release run with.
var tested = map[string]string{
	"claude": agentcache.Claude, "codex": agentcache.Codex, "opencode": agentcache.OpenCode, "amp": agentcache.AmpServer,
	"pi": agentcache.PiInstallable, "gemini": agentcache.Gemini, "qwen": agentcache.Qwen, "copilot": agentcache.Copilot,
}

// testedPackages are their packages, and whether the tests run with them: those
// of other platforms are not in every registry.
func testedPackages() map[string]bool {
	specs := map[string]bool{}
	for agent, version := range tested {
		n := recipes[agent].npm
		if n.targets == nil {
			specs[fill(n.install, map[string]string{"version": version})] = true
		}
		for platform, target := range n.targets {
			specs[fill(n.install, map[string]string{"version": version, "target": target})] = platform == "linux-x64"
		}
	}
	return specs
}

// The digests of what the tests ran with are in the program, and no others.
func TestPins(t *testing.T) {
	packages := testedPackages()
	if *update {
		pins := map[string]string{}
		for spec := range packages {
			out, err := exec.Command("npm", "view", spec, "dist.integrity").CombinedOutput()
			if err != nil && !strings.Contains(string(out), "E404") {
				t.Fatalf("ask npm for %s: %v\n%s", spec, err, out)
			}
			for word := range strings.FieldsSeq(string(out)) {
				if strings.HasPrefix(word, "sha512-") {
					pins[spec] = word
				}
			}
		}
		b, err := json.MarshalIndent(pins, "", "  ")
		if err == nil {
			err = os.WriteFile("pins.json", append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		pinsJSON = b
	}
	pins := pinnedDigests()
	for spec, must := range packages {
		if pins[spec] == "" && must {
			t.Errorf("%s has no digest; go test ./adapters/install -run TestPins -update asks for it", spec)
		}
	}
	for spec, integrity := range pins {
		b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(integrity, "sha512-"))
		if err != nil || len(b) != 64 {
			t.Errorf("%s has the digest %q, which is no SHA-512", spec, integrity)
		}
		if _, ok := packages[spec]; !ok {
			t.Errorf("%s is pinned, and not what the tests run with", spec)
		}
	}
}
