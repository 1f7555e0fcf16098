package main

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetToken takes the token out of what the system shows of this process: its
// first environment and its command line, which every program of the same user
// could read. It also keeps those without more rights out of its memory. What
// cannot be done is left: the token then is where whoever started this put it.
func forgetToken(token string) {
	_ = os.Unsetenv("SANDBOX_AGENT_TOKEN")
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if token == "" {
		return
	}
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return
	}
	// The name may have blanks. Behind it, from the 3rd field on, stand the
	// 48th to 51st: the ends of arguments and environment.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 49 {
		return
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer func() { _ = mem.Close() }()
	for i := 45; i < 49; i += 2 {
		from, err1 := strconv.ParseInt(fields[i], 10, 64)
		to, err2 := strconv.ParseInt(fields[i+1], 10, 64)
		if err1 != nil || err2 != nil || to <= from || to-from > 16<<20 {
			continue
		}
		region := make([]byte, to-from)
		if _, err := mem.ReadAt(region, from); err != nil {
			continue
		}
		// Only where it was given: what else has these letters, such as the path of a folder, is read there by this program.
		at, before := from, ""
		for entry := range strings.SplitSeq(string(region), "\x00") {
			if rest, ok := strings.CutSuffix(entry, token); ok && slices.Contains(givesToken, cmp.Or(rest, before)) {
				_, _ = mem.WriteAt(bytes.Repeat([]byte{'x'}, len(token)), at+int64(len(rest)))
			}
			at, before = at+int64(len(entry))+1, entry
		}
	}
}

// givesToken is what stands before a token.
var givesToken = []string{"SANDBOX_AGENT_TOKEN=", "--token=", "-token=", "--token", "-token"}
