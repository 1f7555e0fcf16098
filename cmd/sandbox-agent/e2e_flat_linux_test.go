package main_test

import (
	"fmt"
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// A connection on which sessions come and go costs what it cost in the beginning:
// nothing is kept of sessions that were deleted.
func TestFlat_SessionsMadeAndDeleted(t *testing.T) {
	t.Parallel()
	all := 1_000
	if agentcache.IsLong() {
		all = 100_000
	}
	all = figure.Asked(t, "SESSIONS", all)
	for _, kind := range []dialect{inline, wsocket} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, "--log-level", "warn")
			if agentcache.IsLong() {
				g.withoutRace()
			}
			g.start()
			pid := g.cmd.Process.Pid
			c := connect(t, g, kind, options{})
			descriptors := func() int {
				list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
				if err != nil {
					t.Fatal(err)
				}
				return len(list)
			}
			var memory int64
			var files int
			for i := range all {
				s := c.newSession()
				if i%100 == 0 {
					c.prompt(s, "echo x")
				}
				c.must("session/delete", map[string]any{"sessionId": s})
				if i == all/4 {
					memory, files = status(t, pid, "VmRSS"), descriptors()
				}
			}
			grown, more := status(t, pid, "VmRSS")-memory, descriptors()-files
			figure.Done(t, all, "sessions")
			t.Logf("after a quarter: %d KiB, %d files; since then %d KiB and %d files more", memory, files, grown, more)
			if grown > 24<<10 || more > 8 {
				t.Errorf("%d sessions more took %d KiB and %d files", all-all/4, grown, more)
			}
			left, err := os.ReadDir(g.dir + "/sessions")
			if err != nil && !os.IsNotExist(err) || len(left) > 0 {
				t.Errorf("%d sessions are left on the disk, %v", len(left), err)
			}
		})
	}
}
