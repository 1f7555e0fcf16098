package bridgetest

import (
	"flag"
	"os"
	"path/filepath"
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
func Fixtures(t *testing.T, least int, show func(t *testing.T, lines []byte) string) {
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
	t     *testing.T
	valid *acptest.Validator
}

// NewTranscript returns an empty transcript.
func NewTranscript(t *testing.T) *Transcript {
	return &Transcript{t: t, valid: acptest.New(t)}
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
	if err := p.valid.ValidateFrame(m.Frame(), func(string) string { return "" }); err != nil {
		p.t.Errorf("%v: %.300s", err, m.Frame())
	}
}
