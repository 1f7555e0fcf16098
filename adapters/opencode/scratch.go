package opencode

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// OpenCode's runtime unpacks libraries of 5 MB for each process into the folder that
// this variable names, and never removes them: in the folder for all, a machine that
// works for weeks fills up.
const scratchVar = "BUN_TMPDIR"

// run tells the folders of this process from what one that was killed has left.
var run = rand.Text()[:8]

// scratch makes the folder of a process, unless the user has chosen one. remove
// removes it when the process has ended.
func (a *agent) scratch(env []string) (set []string, remove func(), err error) {
	if bridge.Lookup(env, scratchVar) != "" {
		return nil, func() {}, nil
	}
	all := filepath.Join(a.o.StateDir, "scratch")
	if err := os.MkdirAll(all, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make a folder for what opencode unpacks: %w", err)
	}
	old, err := os.ReadDir(all)
	if err != nil {
		return nil, nil, fmt.Errorf("look for what opencode has unpacked: %w", err)
	}
	for _, e := range old {
		if !strings.HasPrefix(e.Name(), run) {
			_ = os.RemoveAll(filepath.Join(all, e.Name())) // tried again at the next start
		}
	}
	dir, err := os.MkdirTemp(all, run+"-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for what opencode unpacks: %w", err)
	}
	return []string{scratchVar + "=" + dir}, func() { _ = os.RemoveAll(dir) }, nil
}
