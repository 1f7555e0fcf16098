package bridgetest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	linesMark   = "-- lines --\n"
	updatesMark = "-- updates --\n"
)

// fixtures are the files of captured lines in testdata/wire.
func fixtures(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

// Fixtures replays every file of testdata/wire, of which there are at least so
// many, through show. See [Golden].
func Fixtures(t *testing.T, least int, show func(tb testing.TB, lines []byte) string) {
	t.Helper()
	files := fixtures(t)
	if len(files) < least {
		t.Fatalf("%d fixtures", len(files))
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			Golden(t, f, func(lines []byte) string { return show(t, lines) })
		})
	}
}

// Golden compares what show makes of a file's lines with what stands behind them
// in the file.
func Golden(t *testing.T, file string, show func(lines []byte) string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, want, ok := strings.Cut(strings.TrimPrefix(string(b), linesMark), updatesMark)
	if !ok {
		t.Fatalf("%s has no %q", file, updatesMark)
	}
	got := show([]byte(lines))
	compare(t, file, linesMark+lines+updatesMark, want, got)
}

// GoldenFile compares got with a whole file.
func GoldenFile(t *testing.T, file, got string) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	compare(t, file, "", string(want), got)
}

// compare compares what stands in a file behind head, or writes it anew.
func compare(t *testing.T, file, head, want, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(head+got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-want +got; go test -run %s -update writes it anew\n%s", t.Name(), diff)
	}
}

// Benchmark plays captured lines at full speed through show, which checks nothing then: those of
// all files, and those of one file in which each line that has delta in it is said a thousand
// times. Without such a file, "", only the former.
func Benchmark(b *testing.B, show func(tb testing.TB, lines []byte) string, file, delta string) {
	var all, heavy [][]byte
	for _, name := range fixtures(b) {
		text, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		lines, _, _ := strings.Cut(strings.TrimPrefix(string(text), linesMark), updatesMark)
		all = append(all, []byte(lines))
		if filepath.Base(name) != file+".txtar" {
			continue
		}
		var said []byte
		for line := range strings.Lines(lines) {
			times := 1
			if strings.Contains(line, delta) {
				times = 1000
			}
			said = append(said, strings.Repeat(line, times)...)
		}
		heavy = [][]byte{said}
	}
	for name, files := range map[string][][]byte{"recorded": all, "deltas": heavy} {
		if len(files) == 0 {
			continue
		}
		b.Run(name, func(b *testing.B) {
			events := 0
			for _, lines := range files {
				events += bytes.Count(lines, []byte("\n"))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for b.Loop() {
				for _, lines := range files {
					show(b, lines)
				}
			}
			runtime.ReadMemStats(&after)
			n := float64(b.N * events)
			b.ReportMetric(0, "ns/op") // of a file, which says nothing
			b.ReportMetric(float64(b.Elapsed())/n, "ns/event")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/event")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/event")
		})
	}
}

// Seed adds captured lines to a fuzz target: short ones, a few of each kind, for
// what is slow to check is slow to fuzz. A line whose kind is "" is left out.
func Seed(f *testing.F, few int, kind func(line []byte) string, add func(line string)) {
	f.Helper()
	seen := map[string]int{}
	for _, name := range fixtures(f) {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		lines, _, _ := strings.Cut(strings.TrimPrefix(string(b), linesMark), updatesMark)
		for line := range strings.Lines(lines) {
			k := kind([]byte(line))
			if seen[k]++; k != "" && len(line) < 3000 && seen[k] <= few {
				add(line)
			}
		}
	}
}

// Transcript renders what a translator says, one line each, and checks it
// against the schema.
type Transcript struct {
	strings.Builder
	t     testing.TB
	valid *acptest.Validator // nil in benchmarks
}

// NewTranscript returns an empty transcript. That of a benchmark checks nothing.
func NewTranscript(tb testing.TB) *Transcript {
	if _, measured := tb.(*testing.B); measured {
		return &Transcript{t: tb}
	}
	return &Transcript{t: tb, valid: acptest.New(tb)}
}

// Note writes a line of a kind, and returns v's encoding.
func (p *Transcript) Note(kind string, v any) []byte {
	p.t.Helper()
	b, err := schema.Encode(v)
	if err != nil {
		p.t.Fatalf("%s: %v", kind, err)
	}
	p.WriteString(kind + " " + string(b) + "\n")
	return b
}

// Request writes a request to the client.
func (p *Transcript) Request(kind, method string, params any) {
	p.t.Helper()
	p.check(acp.NewRequest("1", method, p.Note(kind, params)))
}

// Updates writes updates of a session.
func (p *Transcript) Updates(list []schema.SessionUpdate) {
	p.t.Helper()
	for _, u := range list {
		params := rawjson.Object{}.String("sessionId", "S").Raw("update", p.Note("update", u)).End()
		p.check(acp.NewNotification(acp.MethodSessionUpdate, params))
	}
}

func (p *Transcript) check(m acp.Message) {
	p.t.Helper()
	if p.valid == nil {
		return
	}
	if err := p.valid.ValidateFrame(m.Frame(), func(string) string { return "" }); err != nil {
		p.t.Errorf("%v: %.300s", err, m.Frame())
	}
}
