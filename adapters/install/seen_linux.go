package install

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// seenRunning reports whether some process runs a program of a folder, as far as that can be seen: a program may give
// itself another name, or be replaced by another one that needs its files.
func seenRunning(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		program, _ := os.Readlink(p + "/exe")
		if strings.HasPrefix(program, real+"/") {
			return true
		}
		line, _ := os.ReadFile(p + "/cmdline") // a script is in that of its interpreter
		if bytes.Contains(line, []byte(dir+"/")) || bytes.Contains(line, []byte(real+"/")) {
			return true
		}
	}
	return false
}
