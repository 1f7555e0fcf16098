package pi

import (
	"os/exec"
	"slices"
)

// terminal has Pi hold a conversation as people do in a terminal.
func (w *world) terminal(prompt string) {
	w.T.Helper()
	cmd := exec.Command(w.Program.Path, slices.Concat(w.Program.Args, []string{"--print", prompt})...)
	cmd.Dir = w.Cwd
	cmd.Env = append(cmd.Environ(), w.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.T.Fatalf("%v: %s", err, out)
	}
}
