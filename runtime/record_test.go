package runtime

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A record is not written anew for each of many short turns; the last of them is in it soon.
func TestRecord_IsNotWrittenForEachShortTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := &fakeAgent{id: "fake"}
		r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
		if err != nil {
			t.Fatal(err)
		}
		tc := connect(t, r, "")
		s := tc.session()
		files, err := filepath.Glob(filepath.Join(dir, "*", "*", "session.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("the records %q, %v", files, err)
		}
		const turns = 100
		var last os.FileInfo
		written := 0
		for range turns {
			id := tc.request("session/prompt", prompt(s, "hi"))
			a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn","usage":{"totalTokens":5,"inputTokens":2,"outputTokens":3}}`)
			tc.until(id)
			time.Sleep(30 * time.Millisecond) // of the bubble: longer than turns are waited for
			synctest.Wait()
			info, err := os.Stat(files[0])
			if err != nil {
				t.Fatal(err)
			}
			if last == nil || !os.SameFile(last, info) {
				written++
			}
			last = info
		}
		if written > turns/5 || written < 3 {
			t.Errorf("the record was written %d times in %d turns of 30 ms", written, turns)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		var record struct {
			Usage []struct {
				Turns int `json:"turns"`
			} `json:"usage"`
		}
		b, err := os.ReadFile(files[0])
		if err = errors.Join(err, json.Unmarshal(b, &record)); err != nil || len(record.Usage) != 1 || record.Usage[0].Turns != turns {
			t.Errorf("a second later the record has %+v, %v", record.Usage, err)
		}
		// A deletion while the record of a turn still waits to be written leaves nothing behind.
		for range 2 {
			id := tc.request("session/prompt", prompt(s, "hi"))
			a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
			time.Sleep(30 * time.Millisecond)
			synctest.Wait()
		}
		tc.call("session/delete", `{"sessionId":"`+s+`"}`)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := os.Stat(filepath.Dir(files[0])); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a deleted session's folder: %v", err)
		}
		tc.close()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
