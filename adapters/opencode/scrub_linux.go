package opencode

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxEnviron bounds the environment of a process that is looked at.
const maxEnviron = 8 << 20

// scrub overwrites the values of variables in what the kernel shows as the initial
// environment of the server's processes, which others of the same user may read.
// They have their own copies by then. Processes are the server's when they have its
// password.
func scrub(password string, names []string) error {
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	mark := []byte("OPENCODE_SERVER_PASSWORD=" + password)
	found := false
	for _, path := range list {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, mark) {
			continue // it is somebody else's, or has ended
		}
		found = true
		if err := blot(filepath.Dir(path), names); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("overwrite the environment: no process has it")
	}
	return nil
}

// blot overwrites the values of variables in the environment of a process.
func blot(proc string, names []string) error {
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return fmt.Errorf("find the environment: %w", err)
	}
	// Behind the name, which may hold anything, the third field is the first one.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 49 {
		return fmt.Errorf("find the environment: %d fields in stat", len(fields))
	}
	from, err1 := strconv.ParseInt(fields[47], 10, 64)
	to, err2 := strconv.ParseInt(fields[48], 10, 64)
	if err1 != nil || err2 != nil || from <= 0 || to <= from || to-from > maxEnviron {
		return fmt.Errorf("find the environment: it is not shown")
	}
	mem, err := os.OpenFile(filepath.Join(proc, "mem"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("overwrite the environment: %w", err)
	}
	defer mem.Close()
	env := make([]byte, to-from)
	if _, err := mem.ReadAt(env, from); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}
	at := from
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		name, value, ok := strings.Cut(string(kv), "=")
		if ok && slices.Contains(names, name) {
			if _, err := mem.WriteAt(bytes.Repeat([]byte("*"), len(value)), at+int64(len(name))+1); err != nil {
				return fmt.Errorf("overwrite the environment: %w", err)
			}
		}
		at += int64(len(kv)) + 1
	}
	return nil
}
