// Package programs gives tests the gateway and the hub as programs.
package programs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// FolderVar names the folder in which a run of all tests has built them, without the race detector.
const FolderVar = "SANDBOX_AGENT_TEST_PROGRAMS"

// Folder is the one in the cache of agents in which runs have what they have built.
const Folder = "programs"

// The programs that tests start.
const (
	Gateway = "sandbox-agent"
	Hub     = "sandbox-hub"
)

// CollectLate has Go's programs look for garbage less often, which is a seventh of what the compiler and tests with the race
// detector take of the processor. None gets much larger by it. A run of all tests adds it to the environment.
var CollectLate = []string{"GOGC=400", "GOMEMLIMIT=1GiB"}

// AsUsers takes CollectLate from what this program starts from now on: what memory the gateway and the hub need is tested
// as users have them. Call it before the tests.
func AsUsers() {
	for _, variable := range CollectLate {
		name, _, _ := strings.Cut(variable, "=")
		_ = os.Unsetenv(name) // a valid name
	}
}

// Build makes programs of this repository in a folder, with the race detector where the tests have it: it copies what the
// run has built, else it builds them.
func Build(folder string, raced bool, names ...string) error {
	if built := os.Getenv(FolderVar); built != "" && !raced {
		for _, name := range names {
			if err := take(filepath.Join(built, name), filepath.Join(folder, name)); err != nil {
				return fmt.Errorf("take what the run has built: %w", err)
			}
		}
		return nil
	}
	args := []string{"build", "-o", folder + string(filepath.Separator)}
	if raced {
		args = append(args, "-race")
	}
	for _, name := range names {
		args = append(args, "sandboxagent.dev/sandbox-agent/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

func take(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
