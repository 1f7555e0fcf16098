//go:build countstarts

package process

import (
	"os"
	"strings"
)

// StartsVar names the file that gets a line for each process that is started:
// its program and its first argument. Only programs that are built with the tag
// countstarts write it; the run of all tests counts with it what real agents cost.
const StartsVar = "SANDBOX_AGENT_TEST_STARTS"

func countStart(s Spec) {
	path := os.Getenv(StartsVar)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(strings.Join(append([]string{s.Path}, s.Args[:min(1, len(s.Args))]...), "\t") + "\n")
}
