package viewer

import (
	"bytes"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// A connection that lives for a week does not keep all answers that it ever got, only
// what it has not read, and enough of the rest for a stream that broke.
func TestClient_ForgetsWhatWasWritten(t *testing.T) {
	c := NewClient("c", 1, Capabilities{}, acp.OneStream, nil, NewUnread(0))
	defer c.Close()
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":"` + string(bytes.Repeat([]byte("x"), 64<<10)) + `"}`)
	st, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	log := func() *journal.Log {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.controlFeedLocked().log
	}()
	read := func() (n int) {
		for {
			events, err := st.Poll(64 << 10)
			if err != nil {
				t.Fatal(err)
			}
			st.Written()
			if len(events) == 0 {
				return n
			}
			n += len(events)
		}
	}
	const many = 200 // of 64 KiB
	for range many {
		c.Post(journal.Response, answer)
	}
	if oldest := log.Oldest(); oldest != 1 {
		t.Fatalf("answers before %d were given up unread", oldest)
	}
	if n := read(); n != many {
		t.Errorf("%d answers were read", n)
	}
	for range many {
		c.Post(journal.Response, answer)
		if n := read(); n != 1 {
			t.Fatalf("%d answers were read", n)
		}
	}
	if kept := log.Last() - log.Oldest() + 1; kept < keepWritten>>16/2 || kept > 2*keepWritten>>16 {
		t.Errorf("%d answers are kept", kept)
	}
}
