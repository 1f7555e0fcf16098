package cmdline_test

import (
	"bufio"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// Who logs does not wait for who reads it; of what was lost it is said how much that is.
func TestLog_NobodyReads(t *testing.T) {
	const said = 30_000
	r, w := io.Pipe()
	log, end := cmdline.Log{}.Open(w)
	for range said {
		log.Info("a line", "with", strings.Repeat("x", 50))
	}
	read := make(chan int, said)
	go func() {
		n, lost := 0, regexp.MustCompile(`lines of the log are lost.* lines=(\d+)`)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if m := lost.FindStringSubmatch(lines.Text()); m != nil {
				more, _ := strconv.Atoi(m[1])
				n += more
			} else {
				n++
			}
			if n >= said {
				read <- n
			}
		}
	}()
	select {
	case n := <-read:
		if n != said {
			t.Errorf("of %d lines %d were written or told to be lost", said, n)
		}
	case <-time.After(time.Minute):
		t.Error("not all lines were written or told to be lost")
	}
	end()
	_ = w.Close()
}
