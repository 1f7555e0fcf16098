package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// BenchmarkDormant tells what ten thousand sessions cost that nobody uses: a start, a first page of
// the list and a later one, and the memory of each.
func BenchmarkDormant(b *testing.B) {
	const sessions = 10_000
	dir := b.TempDir()
	o := Options{DataDir: dir, DefaultAgent: "burst", Fsync: "never", Adapters: []adapters.Adapter{burst{1, 50}}}
	populate(b, o, sessions)
	var start, ready, first, page time.Duration
	var bytes uint64
	for range b.N {
		before := inUse()
		began := time.Now()
		r, err := New(o)
		if err != nil {
			b.Fatal(err)
		}
		start += time.Since(began)
		if err := r.Ready(); err != nil { // all sessions have been read
			b.Fatal(err)
		}
		ready += time.Since(began)
		bytes += inUse() - before
		for i := range 11 {
			began = time.Now()
			list, err := r.Sessions(b.Context(), SessionFilter{Limit: 50})
			if err != nil || len(list.Sessions) != 50 {
				b.Fatalf("%d sessions, %v", len(list.Sessions), err)
			}
			if i == 0 {
				first += time.Since(began)
			} else {
				page += time.Since(began) / 10
			}
		}
		if err := r.Shutdown(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(start.Seconds()*1e3/n, "start-ms")
	b.ReportMetric(ready.Seconds()*1e3/n, "ready-ms")
	b.ReportMetric(first.Seconds()*1e3/n, "first-page-ms")
	b.ReportMetric(page.Seconds()*1e3/n, "page-ms")
	b.ReportMetric(float64(bytes)/n/sessions, "B/session")
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// populate makes so many sessions of one that an agent has answered in.
func populate(b *testing.B, o Options, n int) {
	r, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	c, _, err := r.Connect(b.Context(), acp.NewRequest("1", "initialize", []byte(`{"protocolVersion":1}`)), acp.ConnectOptions{Shape: acp.Inline})
	if err != nil {
		b.Fatal(err)
	}
	for i, call := range []acp.Message{
		acp.NewRequest("2", "session/new", []byte(`{"cwd":"/tmp","mcpServers":[]}`)),
		acp.NewRequest("3", "session/prompt", []byte(prompt("s", "go"))),
	} {
		done, err := c.Call(b.Context(), call)
		if err != nil {
			b.Fatal(err)
		}
		if rep := <-done; !strings.Contains(string(rep.Frame), `"result"`) {
			b.Fatalf("call %d: %s", i, rep.Frame)
		}
	}
	c.Close()
	if err := r.Shutdown(b.Context()); err != nil {
		b.Fatal(err)
	}
	const id = "s"
	folder := filepath.Join(o.DataDir, "sessions")
	record, err := os.ReadFile(filepath.Join(folder, id, "session.json"))
	if err != nil {
		b.Fatal(err)
	}
	options := strings.Repeat(`{"value":"model","name":"A model","description":"What it is good for"},`, 12) // as agents have
	record = rawjson.SetMember(record, []byte(`[{"id":"model","name":"Model","type":"select","currentValue":"model","options":[`+strings.TrimSuffix(options, ",")+`]}]`), "configOptions")
	log, err := os.ReadFile(filepath.Join(folder, id, "log.journal"))
	if err != nil {
		b.Fatal(err)
	}
	for i := range n - 1 {
		other := fmt.Sprintf("%s-%05d", id, i)
		if err := os.Mkdir(filepath.Join(folder, other), 0o700); err != nil {
			b.Fatal(err)
		}
		for name, content := range map[string]string{
			"session.json": strings.ReplaceAll(string(record), `"`+id+`"`, `"`+other+`"`), "log.journal": string(log),
		} {
			if err := os.WriteFile(filepath.Join(folder, other, name), []byte(content), 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
}
