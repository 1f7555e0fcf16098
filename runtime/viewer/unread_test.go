package viewer

import (
	"bytes"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// What connections do not read has one bound for all of them. The one with most loses its
// oldest and is told; the others read everything. A connection that ends counts no more.
func TestUnread_TheOneWithMostLoses(t *testing.T) {
	const most = 8 << 20
	unread := NewUnread(most)
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":"` + string(bytes.Repeat([]byte("x"), 64<<10)) + `"}`)
	made := 0
	open := func() (*Client, func() (n int, err error)) {
		made++
		c := NewClient("c", journal.Recipient(made), Capabilities{}, acp.OneStream, nil, unread)
		t.Cleanup(func() { c.Close() })
		st, err := c.Stream("", nil)
		if err != nil {
			t.Fatal(err)
		}
		return c, func() (n int, err error) {
			for {
				events, err := st.Poll(64 << 10)
				if err != nil || len(events) == 0 {
					return n, err
				}
				n += len(events)
				st.Written()
			}
		}
	}
	small, readSmall := open()
	large, readLarge := open()
	for range 20 {
		small.Post(journal.Response, answer)
	}
	for range 20 * most >> 16 {
		large.Post(journal.Response, answer)
		unread.mu.Lock()
		total := unread.total
		unread.mu.Unlock()
		if total > most {
			t.Fatalf("%d bytes are unread", total)
		}
	}
	if n, err := readSmall(); n != 20 || err != nil {
		t.Errorf("the small one reads %d, %v", n, err)
	}
	if _, err := readLarge(); err == nil || problem.From(err).Kind != problem.EventsExpired {
		t.Errorf("the large one: %v", err)
	}
	for range 40 { // connections that come and go
		c, _ := open()
		for range 30 {
			c.Post(journal.Response, answer)
		}
		c.Close()
		c.Post(journal.Response, answer)
	}
	small.Close()
	large.Close()
	if unread.total != 0 || len(unread.held) != 0 {
		t.Errorf("%d bytes of %d logs are counted when all have ended", unread.total, len(unread.held))
	}
}
