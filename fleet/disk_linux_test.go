package fleet_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// smallDisk mounts a disk for a test, whose other part fill fills until free is called.
func smallDisk(t *testing.T, size string) (disk string, fill, free func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts a disk")
	}
	disk = t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("this machine mounts no disk: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	other := filepath.Join(disk, "other")
	fill = func() {
		f, err := os.OpenFile(other, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for size := 64 << 10; size > 0; {
			if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
				size /= 2
			} else if err != nil {
				t.Error(err)
				return
			}
		}
	}
	return disk, fill, func() {
		if err := os.Remove(other); err != nil {
			t.Error(err)
		}
	}
}

// While the disk takes nothing, not even a note of that, the hub says so, and what is not copied. It is ready again when there is room.
func TestReplicas_FullDisk(t *testing.T) {
	disk, fill, free := smallDisk(t, "8m")
	h := startCopierOn(t, "one", store.Options{Dir: filepath.Join(disk, "store")})
	g := newGateway()
	g.put("s", begun, some(2, nil)...)
	h.join("box", h.joinToken(), nil, g)
	h.copied("s", 2)
	fill()
	g.put("s", begun, some(300, nil)...)
	h.await("the trouble is told", func() bool {
		r := h.session("s").Replica
		return strings.Contains(r.Trouble, store.ErrDiskFull.Error()) && r.Missing == 298 && r.LastSeq == 2
	})
	h.await("its store takes small notes again, of the room that it held back", func() bool { return h.store.Ready() == nil })
	if status, body := h.ask(http.MethodGet, "/v2/ready", "", nil); status != http.StatusServiceUnavailable || !bytes.Contains(body, []byte(store.ErrDiskFull.Error())) {
		t.Errorf("a hub that copies nothing says %d %s", status, body)
	}
	free()
	h.await("the hub is ready", func() bool {
		status, _ := h.ask(http.MethodGet, "/v2/ready", "", nil)
		return status == http.StatusOK
	})
	h.copied("s", 300)
}

// The disk of a node is full, or becomes so, as a session moves to it or from it: the session is where it was, with all that was said,
// who moves it is told why, and it can be moved when there is room.
func TestMove_FullDisk(t *testing.T) {
	t.Parallel() // it waits more than it computes
	exports := func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/export") && r.URL.Query().Get("open") == ""
	}
	departs := func(r *http.Request) bool { return r.URL.Query().Has("movedTo") }
	for name, tt := range map[string]struct {
		fullAt string // which node's
		when   func(r *http.Request) bool
		told   string // why it stays, "" when it moves
	}{
		"the target's":                        {"two", exports, "stays at one: two does not take it: there is no room on the disk"},
		"the target's, as it is to be opened": {"two", departs, ""},
		"the source's":                        {"one", exports, "stays at one: one does not give it: "},
		"the source's, as it lets go":         {"one", departs, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fill, free := smallDisk(t, "16m")
			dirs := map[string]string{"one": t.TempDir(), "two": t.TempDir()}
			dirs[tt.fullAt] = filepath.Join(disk, "data")
			h := startCopier(t)
			source := &meddler{box: newBoxIn(t, dirs["one"], session.Async, nil, nil)}
			h.join("one", h.joinToken(), nil, source)
			h.join("two", h.joinToken(), nil, newBoxIn(t, dirs["two"], session.Async, nil, nil))
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			c.must("session/prompt", prompt(s, "echo "+strings.Repeat(rand.Text(), 20_000)))
			h.bundled(s, "one")
			full := sync.OnceFunc(fill)
			source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
				if tt.when(r) {
					full()
				}
				return false
			})
			status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, fleet.MoveRequest{Node: "two"})
			if moved := status == http.StatusOK; moved != (tt.told == "") || !strings.Contains(string(body), tt.told) {
				t.Errorf("%d %s", status, body)
			}
			free()
			source.meddle(nil)
			c.says(s, "second")
			if tt.told != "" {
				h.move(s, fleet.MoveRequest{Node: "two"})
			}
			c.says(s, "third")
			again := h.hello(adminToken)
			again.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
			var said []string
			for _, text := range again.heard(s) {
				said = append(said, text[:min(len(text), 6)])
			}
			if len(said) != 4 || said[0] != "first" || said[2] != "second" || said[3] != "third" {
				t.Errorf("it has %q", said)
			}
			if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
				t.Errorf("it is listed at %v", nodes)
			}
		})
	}
}
